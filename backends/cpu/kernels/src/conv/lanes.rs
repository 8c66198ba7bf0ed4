//! Windows over small planes: depthwise convolution and pooling.
//!
//! Short lines would leave most lanes of a register idle. Instead, each lane has a plane of its own: a task transposes
//! as many planes as a register has lanes, so that a position of all of them is one register, and puts them into their
//! border. What a window makes of these registers is transposed back.

use std::sync::OnceLock;

use polygrad_core::Result;

use super::direct::turn;
use super::geometry::{Extents, Geometry};
use super::{Epilogue, MAX_ROWS};
use crate::buffers::Buffer;
use crate::simd::{Kernel, Level, Simd};
use crate::{CpuDevice, Pointer};

/// The most positions of a plane with its border: those of all lanes stay in the first levels of the cache.
const MAX_POSITIONS: usize = 1024;

/// Longer lines fill registers by themselves, except that each plane has its costs, which matter up to this size.
const LONG: usize = 48;
const SMALL: usize = 256;

/// Lanes of the largest register.
const MAX_LANES: usize = 16;

/// Positions whose sums are in registers at a time.
const MANY: usize = 8;

/// What becomes of a window's elements. Those in the border are 0, or the least number for [`Fold::Max`].
pub enum Fold<'a> {
    /// Their products with a filter are added up, and the epilogue is applied.
    Sum(&'a Filters, Option<&'a Epilogue<'a>>),
    /// Their sum is divided by the number for the window's position in the output.
    Mean(&'a [f32]),
    /// The largest, where NaN is larger than all others.
    Max,
}

/// Whether a device computes the windows of these planes this way.
pub fn suits(device: CpuDevice, g: &Geometry) -> bool {
    device.level() != Level::Portable && fits(g, device.level().lanes())
}

/// Whether all levels of instructions compute means this way, whose sums are therefore the same at each of them.
pub fn suits_means(g: &Geometry) -> bool {
    fits(g, MAX_LANES)
}

fn fits(g: &Geometry, lanes: usize) -> bool {
    // A border may have any size, as long as a step crosses it.
    let product = |extents: Extents| {
        extents
            .iter()
            .try_fold(1, |all: usize, &extent| all.checked_mul(extent))
    };
    (g.inputs, g.outputs) == (1, 1)
        && g.groups >= lanes
        && product(g.kernel).is_some_and(|taps| (1..=MAX_ROWS).contains(&taps))
        && product(extents(g)).is_some_and(|border| border <= MAX_POSITIONS)
        && (g.plane() <= SMALL || g.output[2] <= LONG)
}

/// Computes all windows of `g`, for which [`suits`] must hold, or [`suits_means`] for [`Fold::Mean`].
///
/// # Errors
/// When memory runs out.
///
/// # Safety
/// `x` holds the input of `g`, contiguous, and `to` has room for its output. Filters are those of `g`.
pub unsafe fn forward(device: CpuDevice, g: &Geometry, x: *const f32, fold: &Fold<'_>, to: *mut f32) -> Result<()> {
    // SAFETY: by the caller.
    unsafe { forward_by(device.level(), device, g, x, fold, to) }
}

/// # Safety
/// As for [`forward`].
unsafe fn forward_by(
    level: Level,
    device: CpuDevice,
    g: &Geometry,
    x: *const f32,
    fold: &Fold<'_>,
    to: *mut f32,
) -> Result<()> {
    let lanes = level.lanes();
    let layout = Layout::new(g, lanes)?;
    let (x, to) = (Pointer(x.cast_mut()), Pointer(to));
    let blocks = g.groups / lanes;
    let ns = 0.3 * (layout.outputs * layout.taps) as f32 + 4.0 * (g.plane() + layout.outputs) as f32;
    let failed = OnceLock::new();
    device.split(g.batch * blocks, ns, 1, |start, end| {
        let room = match Buffer::alloc(layout.room() * lanes * size_of::<f32>()) {
            Ok(room) => room,
            Err(error) => {
                let _ = failed.set(error);
                return;
            }
        };
        level.run(Blocks {
            g,
            layout: &layout,
            fold,
            blocks: start..end,
            x: x.at(0).cast_const(),
            room: room.as_ptr().cast(),
            to: to.at(0),
        });
    });
    failed.into_inner().map_or(Ok(()), Err)
}

/// Extents of a plane with the border that windows touch.
fn extents(g: &Geometry) -> Extents {
    [0, 1, 2].map(|axis| {
        let reach = g.output[axis].saturating_sub(1) * g.stride[axis] + (g.kernel[axis] - 1) * g.dilation[axis] + 1;
        reach.max(g.padding[axis] + g.input[axis])
    })
}

/// Filters of one channel, transposed: a register for each tap of as many filters as it has lanes. If their number is
/// no multiple of that, the last block overlaps the one before.
pub struct Filters {
    blocks: Buffer,
    groups: usize,
    taps: usize,
    lanes: usize,
}

impl Filters {
    /// # Errors
    /// When memory runs out.
    ///
    /// # Safety
    /// `weight` holds the filters of `g`, for which [`suits`] must hold.
    pub unsafe fn new(device: CpuDevice, g: &Geometry, weight: *const f32) -> Result<Self> {
        // SAFETY: by the caller.
        unsafe { Self::new_by(device.level(), g, weight) }
    }

    /// # Safety
    /// As for [`Filters::new`].
    unsafe fn new_by(level: Level, g: &Geometry, weight: *const f32) -> Result<Self> {
        let (groups, taps, lanes) = (g.groups, g.taps(), level.lanes());
        let blocks = Buffer::alloc(groups.next_multiple_of(lanes) * taps * size_of::<f32>())?;
        level.run(Pack {
            weight,
            groups,
            taps,
            to: blocks.as_ptr().cast(),
        });
        Ok(Self {
            blocks,
            groups,
            taps,
            lanes,
        })
    }

    /// Whether these filters fit the convolution and the device's kernels.
    pub fn are_of(&self, device: CpuDevice, g: &Geometry) -> bool {
        (self.groups, self.taps, self.lanes) == (g.groups, g.taps(), device.level().lanes())
    }

    fn block(&self, block: usize) -> *const f32 {
        let from = self.blocks.as_ptr().cast_const().cast::<f32>();
        from.wrapping_add(block * self.taps * self.lanes)
    }
}

struct Pack {
    weight: *const f32,
    groups: usize,
    taps: usize,
    to: *mut f32,
}

impl Kernel for Pack {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for block in 0..self.groups.div_ceil(S::N) {
            let first = first::<S>(self.groups, block);
            // SAFETY: there are as many filters, and the block has a register for each tap.
            unsafe {
                let (from, to) = (
                    self.weight.add(first * self.taps),
                    self.to.add(block * self.taps * S::N),
                );
                turn(s, from, self.taps, (S::N, self.taps), to, S::N);
            }
        }
    }
}

/// The first channel of a block; the last block ends with the last channel.
#[inline(always)]
fn first<S: Simd>(channels: usize, block: usize) -> usize {
    (block * S::N).min(channels - S::N)
}

/// Where positions are in a task's memory, in registers.
struct Layout {
    /// Extents of a plane with its border, and their product.
    extents: Extents,
    border: usize,
    /// Registers of planes that are not yet in their border; 0 if they have none.
    inside: usize,
    /// Positions of the output and elements of a window.
    outputs: usize,
    taps: usize,
    /// [`Layout::windows`] and [`Layout::places`], in memory of the buffer pool.
    table: Buffer,
}

impl Layout {
    fn new(g: &Geometry, lanes: usize) -> Result<Self> {
        let (extents, outputs, taps) = (extents(g), g.out_plane(), g.taps());
        let table = Buffer::alloc((outputs + taps) * size_of::<usize>())?;
        let offset = |at: usize, of: &Extents, step: &Extents| {
            let [_, height, width] = *of;
            let at = [at / (height * width), at / width % height, at % width];
            let [z, y, x] = [0, 1, 2].map(|axis| at[axis] * step[axis]);
            ((z * extents[1] + y) * extents[2] + x) * lanes
        };
        // SAFETY: the buffer has room for both, one after the other, and is aligned for them.
        unsafe {
            let to = table.as_ptr().cast::<usize>();
            (0..outputs).for_each(|at| to.add(at).write(offset(at, &g.output, &g.stride)));
            (0..taps).for_each(|tap| to.add(outputs + tap).write(offset(tap, &g.kernel, &g.dilation)));
        }
        Ok(Self {
            extents,
            border: extents.iter().product(),
            inside: if extents == g.input { 0 } else { g.plane() },
            outputs,
            taps,
            table,
        })
    }

    /// Offset of the first element of each window from that of the first window.
    fn windows(&self) -> &[usize] {
        // SAFETY: `new` wrote them.
        unsafe { std::slice::from_raw_parts(self.table.as_ptr().cast(), self.outputs) }
    }

    /// Offset of each element of a window from the first.
    fn places(&self) -> &[usize] {
        // SAFETY: `new` wrote them after the others.
        unsafe { std::slice::from_raw_parts(self.table.as_ptr().cast::<usize>().add(self.outputs), self.taps) }
    }

    /// Registers of a task's memory: planes in their border, then planes, which are no longer needed when sums take
    /// their place.
    fn room(&self) -> usize {
        self.border + self.inside.max(self.outputs.next_multiple_of(MANY))
    }
}

/// The windows of some blocks of channels, counted over all images.
struct Blocks<'a> {
    g: &'a Geometry,
    layout: &'a Layout,
    fold: &'a Fold<'a>,
    blocks: std::ops::Range<usize>,
    /// The whole input.
    x: *const f32,
    /// Scratch memory with [`Layout::room`].
    room: *mut f32,
    /// The whole output.
    to: *mut f32,
}

impl Kernel for Blocks<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let border = s.splat(match self.fold {
            Fold::Max => f32::NEG_INFINITY,
            _ => 0.0,
        });
        for position in 0..self.layout.border {
            // SAFETY: the memory has these registers. Planes later leave their border as it is.
            unsafe { s.store(self.room.add(position * S::N), border) };
        }
        let groups = self.g.groups;
        let whole = groups / S::N;
        for block in self.blocks.clone() {
            let (image, block) = (block / whole, block % whole);
            // The task of the last whole block also has the channels after it, so that no other writes to its output.
            let more = usize::from(block + 1 == whole && !groups.is_multiple_of(S::N));
            for block in block..=block + more {
                // SAFETY: by the caller of `forward`.
                unsafe { self.block(s, image, block) };
            }
        }
    }
}

impl Blocks<'_> {
    /// # Safety
    /// `x` and `to` have these channels of this image, and the memory has its border.
    #[inline(always)]
    unsafe fn block<S: Simd>(&self, s: S, image: usize, block: usize) {
        let Self { g, layout, .. } = self;
        let (plane, outputs) = (g.plane(), layout.outputs);
        let channel = first::<S>(g.groups, block);
        let planes = image * g.groups + channel;
        // SAFETY: by the caller; the memory has these registers.
        unsafe {
            let turned = self.room.add(if layout.inside > 0 { layout.border * S::N } else { 0 });
            turn(s, self.x.add(planes * plane), plane, (S::N, plane), turned, S::N);
            if layout.inside > 0 {
                self.enclose(s, turned);
            }
            let sums = self.sums::<S>();
            match self.fold {
                Fold::Sum(filters, epilogue) => {
                    let bias = epilogue.map(|epilogue| &epilogue.bias[channel..channel + S::N]);
                    let bias = bias.map_or(s.splat(0.0), |bias| s.load(bias.as_ptr()));
                    self.fold::<S, SUM>(s, filters.block(block), bias, &[]);
                }
                Fold::Mean(divisors) => self.fold::<S, MEAN>(s, sums, s.splat(0.0), divisors),
                Fold::Max => self.fold::<S, MAX>(s, sums, s.splat(0.0), &[]),
            }
            turn(s, sums, S::N, (outputs, S::N), self.to.add(planes * outputs), outputs);
            if let Fold::Sum(_, Some(epilogue)) = self.fold
                && (epilogue.residual.is_some() || epilogue.activation.is_some())
            {
                epilogue.run(0.0, self.to, planes * outputs, S::N * outputs);
            }
        }
    }

    /// Where the sums are in the memory.
    #[inline(always)]
    fn sums<S: Simd>(&self) -> *mut f32 {
        self.room.wrapping_add(self.layout.border * S::N)
    }

    /// Copies planes into their border.
    ///
    /// # Safety
    /// `from` has a register for each position of the planes.
    #[inline(always)]
    unsafe fn enclose<S: Simd>(&self, s: S, from: *const f32) {
        let Self { g, layout, .. } = self;
        let ([_, height, width], [deep, high, wide]) = (layout.extents, g.padding);
        for line in 0..g.input[0] * g.input[1] {
            let (z, y) = (deep + line / g.input[1], high + line % g.input[1]);
            let to = (z * height + y) * width + wide;
            for x in 0..g.input[2] {
                // SAFETY: by the caller; the border's extents include the plane.
                unsafe {
                    let v = s.load(from.add((line * g.input[2] + x) * S::N));
                    s.store(self.room.add((to + x) * S::N), v);
                }
            }
        }
    }

    /// The sums or maxima of all windows. A bias is added to sums, a mean has its divisor.
    ///
    /// # Safety
    /// The planes are in their border; for [`SUM`], `weight` has a register for each tap.
    #[inline(always)]
    unsafe fn fold<S: Simd, const KIND: u8>(&self, s: S, weight: *const f32, bias: S::V, divisors: &[f32]) {
        let mut at = 0;
        while at < self.layout.outputs {
            // SAFETY: by the caller.
            at += unsafe {
                match self.layout.outputs - at {
                    ..=4 => self.some::<S, KIND, 4>(s, at, weight, bias, divisors),
                    _ => self.some::<S, KIND, MANY>(s, at, weight, bias, divisors),
                }
            };
        }
    }

    /// Some sums or maxima, from the window at `at` on. Returns their number.
    ///
    /// # Safety
    /// As for [`Blocks::fold`].
    #[allow(clippy::needless_range_loop, reason = "registers are named by their indices")]
    #[inline(always)]
    unsafe fn some<S: Simd, const KIND: u8, const COUNT: usize>(
        &self,
        s: S,
        at: usize,
        weight: *const f32,
        bias: S::V,
        divisors: &[f32],
    ) -> usize {
        let (windows, places) = (self.layout.windows(), self.layout.places());
        // Surplus registers repeat the last window.
        let from: [*const f32; COUNT] = std::array::from_fn(|i| {
            self.room
                .wrapping_add(windows[(at + i).min(windows.len() - 1)])
                .cast_const()
        });
        let mut sums = [s.splat(if KIND == MAX { f32::NEG_INFINITY } else { 0.0 }); COUNT];
        // SAFETY: all elements of all windows are inside the border, and the memory has room for these sums.
        unsafe {
            for (tap, &place) in places.iter().enumerate() {
                let w = if KIND == SUM {
                    s.load(weight.add(tap * S::N))
                } else {
                    s.splat(1.0)
                };
                for i in 0..COUNT {
                    let x = s.load(from[i].add(place));
                    sums[i] = match KIND {
                        SUM => s.mul_add(w, x, sums[i]),
                        MEAN => s.add(sums[i], x),
                        // `max` keeps a NaN only of its second operand.
                        _ => s.select(s.eq(sums[i], sums[i]), s.max(sums[i], x), sums[i]),
                    };
                }
            }
            for i in 0..COUNT {
                let y = match KIND {
                    // First 0, as all kernels do, so that -0 becomes 0.
                    SUM => s.add(s.add(s.splat(0.0), sums[i]), bias),
                    MEAN => s.div(sums[i], s.splat(divisors[(at + i).min(divisors.len() - 1)])),
                    _ => sums[i],
                };
                s.store(self.sums::<S>().add((at + i) * S::N), y);
            }
        }
        COUNT
    }
}

/// What [`Blocks::fold`] computes.
const SUM: u8 = 0;
const MEAN: u8 = 1;
const MAX: u8 = 2;

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::Kernels;

    /// Windows over planes of these extents, none of which lies wholly in the border.
    pub(in crate::conv) fn geometry(
        groups: usize,
        input: Extents,
        [kernel, stride, padding, dilation]: [Extents; 4],
    ) -> Geometry {
        let output = [0, 1, 2].map(|axis| {
            let reach = (kernel[axis] - 1) * dilation[axis] + 1;
            (input[axis] + 2 * padding[axis] - reach) / stride[axis] + 1
        });
        Geometry {
            batch: 2,
            groups,
            inputs: 1,
            outputs: 1,
            input,
            output,
            kernel,
            stride,
            padding,
            dilation,
        }
    }

    fn geometries(groups: usize) -> Vec<Geometry> {
        let flat = |height: usize, width: usize| [1, height, width];
        let square = |extent: usize| flat(extent, extent);
        let no = [0; 3];
        [
            (square(4), [square(5), square(1), flat(2, 2), square(1)]),
            (square(1), [square(3), square(1), flat(1, 1), square(1)]),
            (square(2), [square(2), square(1), no, square(1)]),
            (flat(3, 7), [square(3), square(2), flat(1, 1), square(1)]),
            (flat(7, 6), [flat(3, 2), flat(1, 3), flat(1, 0), flat(2, 1)]),
            (flat(1, 9), [flat(1, 4), square(1), no, square(1)]),
            ([2, 3, 4], [[2, 3, 3], [1, 2, 1], [1, 1, 1], [1, 1, 1]]),
        ]
        .map(|(input, rest)| {
            let [kernel, stride, mut padding, dilation] = rest;
            padding[0] = if input[0] == 1 { 0 } else { padding[0] };
            geometry(groups, input, [kernel, stride, padding, dilation])
        })
        .to_vec()
    }

    pub(in crate::conv) fn numbers(n: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..n).map(|_| next()).collect()
    }

    /// The elements of each window, with their places in the filter, in the order of their sum.
    pub(in crate::conv) fn windows(g: &Geometry) -> impl Iterator<Item = (usize, Vec<(usize, usize)>)> {
        let g = *g;
        let [_, height, width] = g.output;
        let [_, high, wide] = g.kernel;
        (0..g.batch * g.groups * g.out_plane()).map(move |at| {
            let (plane, at) = (at / g.out_plane(), at % g.out_plane());
            let place = [at / (height * width), at / width % height, at % width];
            let taps = (0..g.taps()).filter_map(|tap| {
                let tap_place = [tap / (high * wide), tap / wide % high, tap % wide];
                let mut from = 0;
                for axis in 0..3 {
                    let x = place[axis] * g.stride[axis] + tap_place[axis] * g.dilation[axis];
                    let x = x.checked_sub(g.padding[axis]).filter(|x| *x < g.input[axis])?;
                    from = from * g.input[axis] + x;
                }
                Some((tap, plane * g.plane() + from))
            });
            (plane, taps.collect())
        })
    }

    /// What every level and number of threads computes, whose bits must be those of `wanted`.
    fn check(g: &Geometry, x: &[f32], weight: Option<&[f32]>, fold: &Fold<'_>, wanted: &[f32]) {
        for level in Level::available().into_iter().filter(|level| g.groups >= level.lanes()) {
            for threads in [1, 2] {
                let device = CpuDevice::new(threads, Kernels::Simd).unwrap();
                let mut y = vec![f32::NAN; wanted.len()];
                // SAFETY: all have the sizes of the geometry.
                unsafe {
                    let filters = weight.map(|weight| Filters::new_by(level, g, weight.as_ptr()).unwrap());
                    let fold = match (&filters, fold) {
                        (Some(filters), _) => &Fold::Sum(filters, None),
                        (None, fold) => fold,
                    };
                    forward_by(level, device, g, x.as_ptr(), fold, y.as_mut_ptr()).unwrap();
                }
                let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&y), bits(wanted), "{level:?} {threads} {g:?}");
            }
        }
    }

    #[test]
    fn borders_and_kernels_whose_sizes_overflow_do_not_fit() {
        let (input, one) = ([1, 4, 4], [1; 3]);
        let far = [1, 1 << 40, 1 << 40];
        assert!(fits(&geometry(16, input, [one, one, [0; 3], one]), 16));
        assert!(!fits(
            &geometry(16, input, [one, far, [0, (1 << 32) - 4, (1 << 32) - 4], one]),
            16
        ));
        // The inverse of 3.
        let inverse = usize::MAX / 3 * 2 + 1;
        let kernel = Geometry {
            kernel: [1, 3, inverse],
            ..geometry(16, input, [one, one, [0; 3], one])
        };
        assert_eq!(3usize.wrapping_mul(inverse), 1);
        assert!(!fits(&kernel, 16));
    }

    #[test]
    fn sums_maxima_and_means_have_the_same_bits_at_each_level() {
        for groups in [4, 16, 19, 33] {
            for g in geometries(groups) {
                let mut x = numbers(g.batch * groups * g.plane(), 1);
                let weight = numbers(groups * g.taps(), 2);
                let sum = |(plane, taps): (usize, Vec<(usize, usize)>)| {
                    let filter = &weight[plane % groups * g.taps()..][..g.taps()];
                    taps.iter()
                        .fold(0f32, |sum, &(tap, at)| filter[tap].mul_add(x[at], sum))
                };
                let sums: Vec<f32> = windows(&g).map(sum).collect();
                check(&g, &x, Some(&weight), &Fold::Max, &sums);
                let divisors = numbers(g.out_plane(), 3);
                let mean = |(at, (_, taps)): (usize, (usize, Vec<(usize, usize)>))| {
                    taps.iter().fold(0f32, |sum, &(_, at)| sum + x[at]) / divisors[at % g.out_plane()]
                };
                let means: Vec<f32> = windows(&g).enumerate().map(mean).collect();
                check(&g, &x, None, &Fold::Mean(&divisors), &means);
                x[3] = f32::NAN;
                let largest = |(_, taps): (usize, Vec<(usize, usize)>)| {
                    let larger = |a: f32, b: f32| if b > a || b.is_nan() { b } else { a };
                    taps.iter().fold(f32::NEG_INFINITY, |a, &(_, at)| larger(a, x[at]))
                };
                let maxima: Vec<f32> = windows(&g).map(largest).collect();
                check(&g, &x, None, &Fold::Max, &maxima);
            }
        }
    }
}
