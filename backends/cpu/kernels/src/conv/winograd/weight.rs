//! The weight's gradient: `dg = Gᵀ (Σ (A e Aᵀ) V) G` over all tiles, where `e` is the output's gradient and `V` the
//! transformed patches.

use polygrad_core::Result;

use super::patches::{Form, Patches, room};
use super::pixels::Frame;
use super::{Geometry, PLACES, TAPS, Tiles, input_frame, lanes, padded, planes};
use crate::CpuDevice;
use crate::Pointer;
use crate::buffers::Buffer;
use crate::gemm::{B, Dims, Mat, MatMut, NV, Rows, Update, cost};
use crate::simd::{Kernel, Simd};

/// Approximate number of tiles of a block: more tiles make longer sums, fewer tiles stay in the cache.
const TILES: usize = 96;

/// Computes the gradient with respect to the filters.
///
/// # Safety
/// `x` holds the input of `g` and `grad` its output, both contiguous; `to` has room for the filters.
pub unsafe fn weight_grad(
    device: CpuDevice,
    g: &Geometry,
    grad: *const f32,
    x: *const f32,
    to: *mut f32,
) -> Result<()> {
    let tiles = Tiles::of(g);
    let (lanes, level) = (lanes(device.level()), device.level());
    let lines = tiles.all_lines();
    let share = TILES.div_ceil(tiles.width).min(lines);
    let most = share * tiles.width;
    let width = NV * lanes;
    let panels = g.inputs.div_ceil(width);
    let (step, row) = (padded(g.outputs, lanes), panels * width);
    let frames = [
        input_frame(g, tiles),
        Frame {
            border: [0; 2],
            columns: 2 * tiles.width,
        },
    ];
    let rooms = [
        room(Form::Inputs, frames[0], share, lanes),
        room(Form::Outputs, frames[1], share, lanes),
    ];
    let bundles = [g.inputs.div_ceil(lanes), g.outputs.div_ceil(lanes)];
    let pixels = bundles[0] * rooms[0] + bundles[1] * rooms[1];
    let alloc = |elements: usize| Buffer::alloc(elements * size_of::<f32>());
    let buffers = [
        alloc(pixels)?,
        alloc(PLACES * panels * width * most)?,
        alloc(PLACES * most * step)?,
        alloc(PLACES * g.outputs * row)?,
    ];
    let [scratch, patches, gradients, sums] = buffers.each_ref().map(|b| Pointer(b.as_ptr().cast::<f32>()));
    // SAFETY: the buffer has this room; all bits zero are the number 0.
    unsafe { scratch.0.write_bytes(0, pixels) };
    let (x, grad, to) = (Pointer(x.cast_mut()), Pointer(grad.cast_mut()), Pointer(to));
    for group in 0..g.groups {
        for start in (0..lines).step_by(share) {
            let block = start..lines.min(start + share);
            let count = block.len() * tiles.width;
            device.each(bundles[0] + bundles[1], (count * PLACES * lanes) as f32 * 0.1, |i| {
                let patches = if let Some(bundle) = i.checked_sub(bundles[0]) {
                    let first = bundle * lanes;
                    Patches {
                        form: Form::Outputs,
                        tiles,
                        planes: planes(grad, g.groups, g.outputs, g.output, group, first, lanes),
                        frame: frames[1],
                        lines: block.clone(),
                        scratch: scratch.at(bundles[0] * rooms[0] + bundle * rooms[1]),
                        to: gradients.at(first),
                        step,
                        place: most * step,
                    }
                } else {
                    let first = i * lanes;
                    Patches {
                        form: Form::Inputs,
                        tiles,
                        planes: planes(x, g.groups, g.inputs, g.input, group, first, lanes),
                        frame: frames[0],
                        lines: block.clone(),
                        scratch: scratch.at(i * rooms[0]),
                        to: patches.at(first / width * width * most + first % width),
                        step: width,
                        place: panels * width * most,
                    }
                };
                level.run(patches);
            });
            let dims = Dims {
                m: g.outputs,
                n: g.inputs,
                k: count,
            };
            device.each(PLACES, cost(dims, level), |place| {
                let from = patches.at(place * panels * width * most).cast_const();
                for panel in 0..panels {
                    let left = panel * width;
                    // Gradients and patches have a row for each tile, and the sums have one for each output channel.
                    level.run(Rows {
                        rows: g.outputs,
                        a: Mat::new(gradients.at(place * most * step).cast_const(), 1, step.cast_signed()),
                        tile: None,
                        // Whole registers, since the sums' rows are as long as the panels.
                        columns: (g.inputs - left).next_multiple_of(lanes).min(width),
                        k: count,
                        b: B {
                            ptr: from.wrapping_add(left * most),
                            panel: 0,
                            row: width.cast_signed(),
                        },
                        c: MatMut::new(sums.at(place * g.outputs * row + left), row.cast_signed(), 1),
                        update: if start == 0 { Update::set() } else { Update::add() },
                    });
                }
            });
        }
        device.each(g.outputs, (g.inputs * PLACES) as f32 * 0.15, |filter| {
            level.run(Filter {
                inputs: g.inputs,
                from: sums.at(filter * row).cast_const(),
                place: g.outputs * row,
                to: to.at((group * g.outputs + filter) * g.inputs * TAPS),
            });
        });
    }
    Ok(())
}

/// Computes `Gᵀ u G` of a filter's sums.
struct Filter {
    inputs: usize,
    /// The filter's first input channel at the first patch element; patch elements are `place` elements apart. Channels
    /// are whole registers.
    from: *const f32,
    place: usize,
    to: *mut f32,
}

impl Kernel for Filter {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // Registers have at most 16 lanes.
        let mut taps = [0f32; 16 * 16];
        let mut turned = [0f32; 16 * 16];
        for first in (0..self.inputs).step_by(S::N) {
            // SAFETY: the sums have whole registers of channels, the filter has these channels and their taps, and the
            // arrays have room for squares.
            unsafe {
                let mut columns = [[s.splat(0.0); 3]; 4];
                for (x, column) in columns.iter_mut().enumerate() {
                    let at = |y: usize| s.load(self.from.add((y * 4 + x) * self.place + first));
                    *column = three(s, at(0), at(1), at(2), at(3));
                }
                let [a, b, c, d] = columns;
                for y in 0..3 {
                    for (x, v) in three(s, a[y], b[y], c[y], d[y]).into_iter().enumerate() {
                        s.store(taps.as_mut_ptr().add((y * 3 + x) * S::N), v);
                    }
                }
                for base in (0..TAPS).step_by(S::N) {
                    let square = taps.as_ptr().add(base * S::N);
                    s.transpose(square, S::N.cast_signed(), turned.as_mut_ptr(), S::N);
                    for channel in 0..S::N.min(self.inputs - first) {
                        let to = self.to.add((first + channel) * TAPS + base);
                        let v = s.load(turned.as_ptr().add(channel * S::N));
                        s.store_part(to, S::N.min(TAPS - base), v);
                    }
                }
            }
        }
    }
}

/// `Gᵀ u`.
#[inline(always)]
fn three<S: Simd>(s: S, a: S::V, b: S::V, c: S::V, d: S::V) -> [S::V; 3] {
    let half = s.splat(0.5);
    let inner = s.mul(half, s.add(b, c));
    [s.add(a, inner), s.mul(half, s.sub(b, c)), s.add(inner, d)]
}
