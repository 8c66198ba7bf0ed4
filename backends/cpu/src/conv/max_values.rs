//! Max pooling without positions. Windows with a border are reduced along the columns of the image first, whole rows at
//! a time, then along the remaining row.

use std::sync::OnceLock;

use polygrad_core::Result;

use crate::CpuTensor;
use crate::Pointer;
use crate::buffers::Buffer;
use crate::simd::{Kernel, Level, Simd};
use polygrad_cpu_kernels::conv::geometry::Geometry;

/// An element type of max pooling.
pub(super) trait Number: Copy {
    /// The smallest value.
    const LEAST: Self;

    fn larger(self, other: Self) -> Self;
}

impl Number for f32 {
    const LEAST: Self = Self::NEG_INFINITY;

    /// The larger of two numbers; NaN counts as the largest.
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        if other > self || other.is_nan() { other } else { self }
    }
}

impl Number for u8 {
    const LEAST: Self = 0;

    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        self.max(other)
    }
}

/// The maximum of each window, without dilation; both tensors have elements `T`.
pub(super) fn max_values<T: Number>(level: Level, g: &Geometry, x: &CpuTensor, out: &mut CpuTensor) -> Result<()> {
    let (plane, out_plane) = (g.plane(), g.out_plane());
    let (from, to) = (
        Pointer(x.ptr().cast_mut().cast::<T>()),
        Pointer(out.ptr_mut().cast::<T>()),
    );
    let along = |axis: usize| (0..g.output[axis]).map(move |at| g.taps_inside(axis, at)).collect();
    let walk = Walk {
        depths: along(0),
        lines: along(1),
        taps: (0..g.kernel[2]).map(|tap| g.positions_inside(2, tap)).collect(),
    };
    let failed = OnceLock::new();
    let ns = (plane + out_plane) as f32 * 0.4;
    x.device().split(g.batch * g.groups, ns, 1, |start, end| {
        let line = match Buffer::alloc(g.input[2] * size_of::<T>()) {
            Ok(line) => line,
            Err(error) => {
                let _ = failed.set(error);
                return;
            }
        };
        for i in start..end {
            let planes = Planes {
                g,
                walk: &walk,
                x: from.at(i * plane),
                line: line.as_ptr().cast(),
                y: to.at(i * out_plane),
            };
            Level::run_loops(Some(level), planes);
        }
    });
    failed.into_inner().map_or(Ok(()), Err)
}

/// The windows' extents as [`Geometry::taps_inside`] and [`Geometry::positions_inside`] return them, the same for each
/// plane.
struct Walk {
    /// For each output position along the first two axes.
    depths: Vec<(usize, usize, usize)>,
    lines: Vec<(usize, usize, usize)>,
    /// For each tap along the last axis.
    taps: Vec<(usize, usize, usize)>,
}

/// One plane of the input and of the output, and room for a row of the input.
struct Planes<'a, T> {
    g: &'a Geometry,
    walk: &'a Walk,
    x: *const T,
    line: *mut T,
    y: *mut T,
}

impl<T: Number> Kernel for Planes<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let g = self.g;
        if g.kernel == [1, 2, 2] && g.stride[2] == 2 && g.windows_are_inside() {
            self.squares();
        } else {
            self.windows();
        }
    }
}

impl<T: Number> Planes<'_, T> {
    /// Windows of two by two, the most common ones, which need no room for a row.
    #[inline(always)]
    fn squares(&self) {
        let g = self.g;
        let [_, height, width] = g.input;
        let [depths, rows, columns] = g.output;
        let lines = (0..depths).flat_map(|depth| (0..rows).map(move |row| (depth, row)));
        for (line, (depth, row)) in lines.enumerate() {
            let place = (depth * g.stride[0] * height + row * g.stride[1]) * width;
            // SAFETY: the windows are inside the plane, the line inside the output.
            let (top, bottom, to) = unsafe {
                let of = |place: usize| std::slice::from_raw_parts(self.x.add(place), 2 * columns);
                let to = std::slice::from_raw_parts_mut(self.y.add(line * columns), columns);
                (of(place), of(place + width), to)
            };
            let ((top, _), (bottom, _)) = (top.as_chunks(), bottom.as_chunks());
            match columns {
                16.. => pairs::<T, 16>(top, bottom, to),
                8.. => pairs::<T, 8>(top, bottom, to),
                4.. => pairs::<T, 4>(top, bottom, to),
                _ => pairs::<T, 1>(top, bottom, to),
            }
        }
    }

    #[inline(always)]
    fn windows(self) {
        let Self { g, walk, x, line, y } = self;
        let [_, height, width] = g.input;
        let columns = g.output[2];
        let places = walk
            .depths
            .iter()
            .flat_map(|depth| walk.lines.iter().map(move |line| (depth, line)));
        for (row, (&(d0, d1, z), &(h0, h1, h))) in places.enumerate() {
            // SAFETY: all places are inside the plane, the row's room and the output, as the walk bounds them.
            let (line, to) = unsafe {
                let line = std::slice::from_raw_parts_mut(line, width);
                let of = |z: usize, h: usize| std::slice::from_raw_parts(x.add((z * height + h) * width), width);
                line.copy_from_slice(of(z, h));
                for (z, h) in (z..z + d1 - d0)
                    .flat_map(|z| (h..h + h1 - h0).map(move |h| (z, h)))
                    .skip(1)
                {
                    line.iter_mut().zip(of(z, h)).for_each(|(to, x)| *to = to.larger(*x));
                }
                (line, std::slice::from_raw_parts_mut(y.add(row * columns), columns))
            };
            to.fill(T::LEAST);
            for &(start, end, place) in walk.taps.iter().filter(|(start, end, _)| start < end) {
                let (from, to) = (&line[place..], &mut to[start..end]);
                match g.stride[2] {
                    1 => raise(from, 1, to),
                    2 => raise(from, 2, to),
                    stride => raise(from, stride, to),
                }
            }
        }
    }
}

/// The maximum of each pair in two rows, `N` pairs at a time; there are at least `N`. Some of the last `N` may be
/// computed twice, which is faster than one by one.
#[inline(always)]
fn pairs<T: Number, const N: usize>(top: &[[T; 2]], bottom: &[[T; 2]], to: &mut [T]) {
    let last = to.len() - N;
    for at in (0..to.len()).step_by(N) {
        let at = at.min(last);
        let rows = (top[at..].first_chunk::<N>(), bottom[at..].first_chunk::<N>());
        if let ((Some(top), Some(bottom)), Some(to)) = (rows, to[at..].first_chunk_mut::<N>()) {
            for i in 0..N {
                let column = |j: usize| top[i][j].larger(bottom[i][j]);
                to[i] = column(0).larger(column(1));
            }
        }
    }
}

/// Raises elements to the maximum of themselves and of elements `stride` apart.
#[inline(always)]
fn raise<T: Number>(from: &[T], stride: usize, to: &mut [T]) {
    match (stride, to) {
        // Whole pairs, several of which the compiler handles at a time.
        (2, [to @ .., last]) => {
            *last = last.larger(from[2 * to.len()]);
            let pairs = from.chunks_exact(2);
            to.iter_mut().zip(pairs).for_each(|(to, pair)| *to = to.larger(pair[0]));
        }
        (_, to) => to
            .iter_mut()
            .zip(from.iter().step_by(stride))
            .for_each(|(to, x)| *to = to.larger(*x)),
    }
}
