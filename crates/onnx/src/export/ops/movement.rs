//! Views, concatenation and padding.

use polygrad_core::{Axes, Error, Result, Scalar, Shape, SliceRange};

use crate::export::OnnxTensor;
use crate::export::call::Call;
use crate::export::extent::Extent;
use crate::graph::ValueId;

type T = OnnxTensor;

/// Largest distance from an end of an axis of unknown extent for which a position may be given as a number.
const NEAR: usize = 64;

pub(crate) fn reshape(x: &T, shape: Shape) -> Result<T> {
    if x.shape == shape {
        return Ok(x.clone());
    }
    let ones_apart = [
        ("Unsqueeze", inserted(&x.shape, &shape)),
        ("Squeeze", inserted(&shape, &x.shape)),
    ];
    for (op, axes) in ones_apart {
        if let Some(axes) = axes {
            let axes = x.recording.state().ints(&axes)?;
            return x.recording.one(Call::of(op, [x]).input(axes).gives(shape, x.dtype));
        }
    }
    let target = reshape_target(x, &shape)?;
    let call = Call::of("Reshape", [x]).input(target);
    x.recording.one(call.gives(shape, x.dtype))
}

/// The axes of `to` with extent 1 that `from` lacks, if the shapes differ in nothing else.
fn inserted(from: &Shape, to: &Shape) -> Option<Vec<i64>> {
    if to.rank() <= from.rank() {
        return None;
    }
    let mut rest = from.iter().peekable();
    let mut axes = Vec::new();
    let missing = to.rank() - from.rank();
    for (axis, dim) in to.iter().enumerate() {
        // Of several consecutive axes of extent 1, the first are the new ones.
        if *dim == 1 && axes.len() < missing {
            axes.push(axis as i64);
        } else if rest.next() != Some(dim) {
            return None;
        }
    }
    (axes.len() == missing && rest.next().is_none()).then_some(axes)
}

/// The second operand of Reshape: a constant if possible, with 0 for an extent that stays in its place and −1 for one
/// that follows from the others.
fn reshape_target(x: &T, shape: &Shape) -> Result<ValueId> {
    let from = x.extents();
    let mut state = x.recording.state();
    let to: Vec<Extent> = shape
        .iter()
        .map(|&dim| state.symbols.read(dim))
        .collect::<Result<_>>()?;
    let product = |extents: &[Extent]| {
        extents
            .iter()
            .fold(Extent::fixed(1), |product, extent| product.times(extent))
    };
    if product(&from) != product(&to) {
        let text = |extents: &[Extent]| {
            extents
                .iter()
                .map(|e| state.symbols.text(e))
                .collect::<Vec<_>>()
                .join(", ")
        };
        return Err(Error::unsupported(format!(
            "[{}] does not become [{}] for all sizes of the symbols",
            text(&from),
            text(&to)
        ))
        .with_hint("compute the new shape from the tensor's own extents"));
    }
    let mut target = to.clone();
    for (extent, own) in target.iter_mut().zip(&from) {
        if extent.is_symbolic() && extent == own {
            *extent = Extent::fixed(0);
        }
    }
    let mut open: Vec<usize> = (0..target.len()).filter(|&i| target[i].is_symbolic()).collect();
    if let (Some(last), None) = (open.pop(), open.last())
        && !shape.contains(&0)
    {
        target[last] = Extent::fixed(-1);
    } else if target.iter().any(Extent::is_symbolic) {
        target = to;
    }
    state.extents(&target)
}

pub(crate) fn permute(x: &T, axes: Axes) -> Result<T> {
    let shape = permuted(&x.shape, axes)?;
    let call = Call::of("Transpose", [x]).ints("perm", axes.iter());
    x.recording.one(call.gives(shape, x.dtype))
}

pub(crate) fn permuted(shape: &Shape, axes: Axes) -> Result<Shape> {
    Shape::new(&axes.iter().map(|axis| shape[axis]).collect::<Vec<_>>())
}

pub(crate) fn expand(x: &T, shape: Shape) -> Result<T> {
    let mut state = x.recording.state();
    let lead = shape.rank() - x.shape.rank();
    let mut target = Vec::with_capacity(shape.rank());
    for (axis, &dim) in shape.iter().enumerate() {
        // An unchanged extent needs no entry.
        let stays = axis >= lead && x.shape[axis - lead] == dim;
        target.push(if stays {
            Extent::fixed(1)
        } else {
            state.symbols.read(dim)?
        });
    }
    let target = state.extents(&target)?;
    let id = state.one(Call::of("Expand", [x]).input(target).gives(shape, x.dtype))?;
    drop(state);
    Ok(x.recording.tensor(id))
}

pub(crate) fn slice_shape(ranges: &[SliceRange]) -> Result<Shape> {
    Shape::new(&ranges.iter().map(|range| range.len).collect::<Vec<_>>())
}

pub(crate) fn slice(x: &T, ranges: &[SliceRange]) -> Result<T> {
    let extents = x.extents();
    let mut state = x.recording.state();
    let (mut starts, mut ends, mut axes, mut steps) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (axis, (range, &dim)) in ranges.iter().zip(x.shape.iter()).enumerate() {
        if range.is_full(dim) {
            continue;
        }
        // A position near the end of an axis of unknown extent is counted from the end.
        let place = |at: usize| {
            let open = extents[axis].is_symbolic();
            if open && at > dim / 2 && dim - at <= NEAR {
                return Ok(Extent::fixed(at as i64 - dim as i64));
            }
            let place = state.symbols.read(at)?;
            if open && !place.is_symbolic() && at > NEAR {
                return Err(Error::unsupported(format!(
                    "place {at} of an axis of extent {} was asked for, which may not be there",
                    state.symbols.text(&extents[axis])
                ))
                .with_hint("a loop over an axis whose extent has a name cannot be recorded: compute on the whole axis, or give it a fixed extent"));
            }
            Ok(place)
        };
        let last = range.start as i64 + (range.len as i64 - 1) * range.step as i64;
        let next = last + range.step as i64;
        let (start, end) = if range.len == 0 {
            (Extent::fixed(0), Extent::fixed(0))
        } else if range.step > 0 {
            let end = if next >= dim as i64 {
                Extent::fixed(i64::MAX)
            } else {
                place(last as usize + 1)?
            };
            (place(range.start)?, end)
        } else {
            let end = if next < 0 {
                Extent::fixed(i64::MIN)
            } else {
                place(next as usize)?
            };
            (place(range.start)?, end)
        };
        starts.push(start);
        ends.push(end);
        axes.push(axis as i64);
        steps.push(range.step as i64);
    }
    let (starts, ends) = (state.extents(&starts)?, state.extents(&ends)?);
    let (axes, steps) = (state.ints(&axes)?, state.ints(&steps)?);
    let mut call = Call::of("Slice", [x])
        .input(starts)
        .input(ends)
        .input(axes)
        .input(steps);
    if ranges.iter().any(|range| range.step.unsigned_abs() > 1) {
        call = call.walks(x);
    }
    let id = state.one(call.gives(slice_shape(ranges)?, x.dtype))?;
    drop(state);
    Ok(x.recording.tensor(id))
}

pub(crate) fn padded(shape: &Shape, padding: &[(usize, usize)]) -> Result<Shape> {
    let dims = shape
        .iter()
        .zip(padding)
        .map(|(&dim, &(before, after))| dim + before + after);
    Shape::new(&dims.collect::<Vec<_>>())
}

pub(crate) fn pad(x: &T, padding: &[(usize, usize)], value: Scalar) -> Result<T> {
    let mut state = x.recording.state();
    let befores = padding.iter().map(|&(before, _)| before);
    let borders = befores.chain(padding.iter().map(|&(_, after)| after));
    let borders: Vec<Extent> = borders.map(|dim| state.symbols.read(dim)).collect::<Result<_>>()?;
    let borders = state.extents(&borders)?;
    drop(state);
    let value = super::create::full(Shape::SCALAR, value, x.dtype, &x.recording)?;
    let call = Call::of("Pad", [x]).input(borders).input(value.id);
    x.recording.one(call.gives(padded(&x.shape, padding)?, x.dtype))
}

pub(crate) fn concat_shape(xs: &[&T], axis: usize) -> Shape {
    let total = xs.iter().map(|x| x.shape[axis]).sum();
    xs[0].shape.with_dim(axis, total)
}

pub(crate) fn concat(xs: &[&T], axis: usize) -> Result<T> {
    let first = xs[0];
    if xs.len() == 1 {
        return Ok(first.clone());
    }
    let call = Call::of("Concat", xs.iter().copied()).int("axis", axis as i64);
    first.recording.one(call.gives(concat_shape(xs, axis), first.dtype))
}
