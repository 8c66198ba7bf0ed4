//! Shapes, and reshaped tensors.

use polygrad_core::{Error, Result, Shape, SliceRange};
use polygrad_tensor::{PadMode, Tensor};
use smallvec::{SmallVec, smallvec};

use super::row::{Row, rows};
use crate::graph::malformed;
use crate::import::call::{Call, List, Results, axes, axis, isizes, one, size, sizes};

rows! {
    Row::new("Identity", 1, |c| Ok(smallvec![c.need(0)?.clone()]));
    Row::new("Shape", 1, shape_of).of_shape();
    Row::new("Size", 1, |c| Ok(smallvec![c.known(vec![c.shape(0)?.numel() as i64], &[])?])).of_shape();
    Row::new("Reshape", 5, reshape).moves(0..1);
    Row::new("Flatten", 1, flatten).moves(0..1);
    Row::new("Transpose", 1, transpose).moves(0..1);
    Row::new("Squeeze", 1, squeeze).moves(0..1);
    Row::new("Unsqueeze", 1, unsqueeze).moves(0..1);
    Row::new("Expand", 8, expand).moves(0..1);
    Row::new("Tile", 6, tile).moves(0..1);
    Row::new("Concat", 4, concat).moves(0..usize::MAX);
    Row::new("Split", 2, split).moves(0..1);
    Row::new("Slice", 1, slice).moves(0..1);
    Row::new("Pad", 2, pad).like(0);
    Row::new("CenterCropPad", 18, center_crop_pad).like(0);
    Row::new("DepthToSpace", 1, depth_to_space).like(0);
    Row::new("SpaceToDepth", 1, space_to_depth).like(0);
}

fn shape_of(c: &Call<'_>) -> Results {
    let shape = c.shape(0)?;
    let rank = shape.rank() as i64;
    let place = |at: i64| (if at < 0 { at.saturating_add(rank) } else { at }).clamp(0, rank) as usize;
    let (start, end) = (place(c.int("start", 0)?), place(c.int("end", rank)?));
    let dims: Vec<i64> = shape[start..end.max(start)]
        .iter()
        .map(|&extent| extent as i64)
        .collect();
    let count = dims.len();
    Ok(smallvec![c.known(dims, &[count])?])
}

/// The shape that Reshape's operand specifies.
pub(crate) fn reshaped(from: &Shape, wanted: &[i64], allow_zero: bool) -> Result<Shape> {
    let mut dims = List::with_capacity(wanted.len());
    let mut open = None;
    for (i, &extent) in wanted.iter().enumerate() {
        dims.push(match extent {
            -1 if open.replace(i).is_some() => return Err(malformed(format!("{wanted:?} leaves two extents open"))),
            -1 => 1,
            0 if !allow_zero => *from
                .get(i)
                .ok_or_else(|| Error::shape(format!("{wanted:?} keeps an extent that {from} does not have")))?,
            extent => size(extent)?,
        });
    }
    if let Some(open) = open {
        let others = Shape::new(&dims)?.numel();
        if others == 0 || !from.numel().is_multiple_of(others) {
            return Err(Error::shape(format!("{from} cannot be reshaped to {wanted:?}")));
        }
        dims[open] = from.numel() / others;
    }
    Shape::new(&dims)
}

fn reshape(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    one(x.reshape(reshaped(&x.shape(), &c.ints(1)?, c.flag("allowzero", false)?)?)?)
}

fn flatten(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let shape = x.shape();
    let at = c.int("axis", 1)?;
    let at = if at == shape.rank() as i64 {
        shape.rank()
    } else {
        axis(at, shape.rank())?
    };
    one(x.reshape([shape[..at].iter().product(), shape[at..].iter().product::<usize>()])?)
}

fn transpose(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let order = match c.int_list("perm")? {
        Some(order) => axes(order, x.rank())?,
        None => (0..x.rank()).rev().collect(),
    };
    if order.len() != x.rank() {
        return Err(malformed(format!(
            "the order {order:?} does not name all axes of {}",
            x.shape()
        )));
    }
    one(x.permute(isizes(&order).as_slice())?)
}

fn squeeze(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let shape = x.shape();
    let gone = match c.ints_either(1, "axes")? {
        Some(list) => axes(&list, shape.rank())?,
        None => (0..shape.rank()).filter(|&axis| shape[axis] == 1).collect(),
    };
    if let Some(&axis) = gone.iter().find(|&&axis| shape[axis] != 1) {
        return Err(Error::shape(format!(
            "axis {axis} of {shape} cannot be taken out: its extent is not 1"
        )));
    }
    let dims: List<usize> = (0..shape.rank())
        .filter(|axis| !gone.contains(axis))
        .map(|axis| shape[axis])
        .collect();
    one(x.reshape(dims.as_slice())?)
}

fn unsqueeze(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let list = c
        .ints_either(1, "axes")?
        .ok_or_else(|| malformed("the axes are missing"))?;
    let shape = x.shape();
    let new = axes(&list, shape.rank() + list.len())?;
    let mut old = shape.iter();
    let dims = (0..shape.rank() + list.len()).map(|axis| {
        if new.contains(&axis) {
            1
        } else {
            old.next().copied().unwrap_or(1)
        }
    });
    one(x.reshape(dims.collect::<List<_>>().as_slice())?)
}

fn expand(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let shape = x.shape().broadcast(&Shape::new(&sizes(&c.ints(1)?)?)?)?;
    c.limits.check(&shape, x.dtype())?;
    one(x.expand(shape)?)
}

fn tile(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let counts = sizes(&c.ints(1)?)?;
    let shape = x.shape();
    if counts.len() != shape.rank() {
        return Err(Error::shape(format!("{} counts for {shape}", counts.len())));
    }
    let dims = shape
        .iter()
        .zip(&counts)
        .map(|(&extent, &count)| extent.checked_mul(count));
    let dims = dims
        .collect::<Option<List<_>>>()
        .ok_or_else(|| Error::shape(format!("{shape} repeated {counts:?} times")))?;
    c.reserve(&dims, x.dtype())?;
    one(x.repeat(&counts)?)
}

fn concat(c: &Call<'_>) -> Results {
    let parts = c.all()?;
    let first = parts.first().ok_or_else(|| malformed("there are no operands"))?;
    let axis = c.axis("axis", 1, first.rank())?;
    if let Some(other) = parts
        .iter()
        .find(|part| part.rank() != first.rank() || part.dtype() != first.dtype())
    {
        return Err(Error::shape(format!(
            "{}{} and {}{} cannot be joined",
            first.dtype(),
            first.shape(),
            other.dtype(),
            other.shape()
        )));
    }
    let bytes = parts
        .iter()
        .map(|part| part.numel().saturating_mul(part.dtype().size()));
    c.limits.check_bytes(bytes.fold(0, usize::saturating_add))?;
    one(Tensor::cat(&parts.iter().collect::<SmallVec<[_; 4]>>(), axis as isize)?)
}

/// The extents of the parts into which Split and the like cut an axis.
pub(super) fn parts(c: &Call<'_>, extent: usize) -> Result<List<usize>> {
    if let Some(given) = c.ints_either(1, "split")? {
        return sizes(&given);
    }
    let count = c.count("num_outputs", c.node.outputs.len())?;
    if count == 0 || count > c.node.outputs.len() {
        return Err(malformed(format!(
            "an axis of {extent} cannot be cut into {count} parts"
        )));
    }
    if c.version < 18 && !extent.is_multiple_of(count) {
        return Err(Error::shape(format!(
            "an axis of {extent} cannot be cut into {count} equal parts, which version {} of Split wants",
            c.version
        ))
        .with_hint("say the parts with split"));
    }
    let each = extent.div_ceil(count);
    Ok((0..count).map(|i| each.min(extent.saturating_sub(i * each))).collect())
}

fn split(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let axis = c.axis("axis", 0, x.rank())?;
    let sizes = parts(c, x.shape()[axis])?;
    let parts = x.split_with_sizes(&sizes, axis as isize)?;
    Ok(parts.into_iter().map(Into::into).collect())
}

/// The slice along one axis that Python's `start:end:step` takes, except that steps backwards from before the first
/// element begin at it, as ONNX clamps the start.
pub(crate) fn range(start: i64, end: i64, step: i64, extent: usize) -> Result<SliceRange> {
    if step == 0 {
        return Err(malformed("a step is 0"));
    }
    let dim = extent as i64;
    let from_front = |at: i64| if at < 0 { at.saturating_add(dim) } else { at };
    let (start, len) = if step > 0 {
        let (start, end) = (from_front(start).clamp(0, dim), from_front(end).clamp(0, dim));
        (start, end - start)
    } else {
        let (start, end) = (
            from_front(start).max(0).min(dim - 1),
            from_front(end).clamp(-1, dim - 1),
        );
        (start, start - end)
    };
    let len = len.max(0).unsigned_abs().div_ceil(step.unsigned_abs());
    // A step longer than the axis takes one element, whatever its size.
    let step = step.clamp(-dim.max(1), dim.max(1));
    Ok(SliceRange::new(start.max(0) as usize, len as usize, step as isize))
}

fn slice(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let shape = x.shape();
    let missing = || malformed("starts or ends are missing");
    let (starts, ends, which, steps) = if c.version < 10 {
        let list = |name| Ok::<_, Error>(c.int_list(name)?.map(List::from_slice));
        (list("starts")?, list("ends")?, list("axes")?, None)
    } else {
        (c.opt_ints(1)?, c.opt_ints(2)?, c.opt_ints(3)?, c.opt_ints(4)?)
    };
    let (starts, ends) = (starts.ok_or_else(missing)?, ends.ok_or_else(missing)?);
    let which = which.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = steps.unwrap_or_else(|| List::from_elem(1, starts.len()));
    if [ends.len(), which.len(), steps.len()] != [starts.len(); 3] {
        return Err(malformed("starts, ends, axes and steps are not equally many"));
    }
    let mut ranges: List<SliceRange> = shape.iter().map(|&extent| SliceRange::full(extent)).collect();
    for (i, axis) in axes(&which, shape.rank())?.into_iter().enumerate() {
        ranges[axis] = range(starts[i], ends[i], steps[i], shape[axis])?;
    }
    one(x.slice(&ranges)?)
}

fn pad(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let rank = x.rank();
    let list = if c.version < 11 {
        c.int_list("pads")?.map(List::from_slice)
    } else {
        c.opt_ints(1)?
    };
    let list = list.ok_or_else(|| malformed("the pads are missing"))?;
    let which = match c.opt_ints(3)? {
        Some(which) => axes(&which, rank)?,
        None => (0..rank).collect(),
    };
    if list.len() != 2 * which.len() {
        return Err(malformed(format!("{} pads for {} axes", list.len(), which.len())));
    }
    let mut borders = vec![(0isize, 0isize); rank];
    let mut dims = x.dims();
    for (i, &axis) in which.iter().enumerate() {
        let border = (list[i] as isize, list[i + which.len()] as isize);
        borders[axis] = border;
        let extent = (dims[axis] as isize)
            .checked_add(border.0)
            .and_then(|n| n.checked_add(border.1));
        dims[axis] = extent.unwrap_or(isize::MAX).max(0) as usize;
    }
    c.reserve(&dims, x.dtype())?;
    let mode = match c.text("mode", "constant")? {
        "constant" if c.version < 11 => PadMode::Constant(c.float("value", 0.0)?.into()),
        "constant" if c.has(2) => PadMode::Constant(c.scalar(2)?),
        "constant" => PadMode::Constant(0i64.into()),
        "reflect" => PadMode::Reflect,
        "edge" => PadMode::Replicate,
        "wrap" => return one(wrapped(c, x, &borders)?),
        other => return Err(malformed(format!("Pad has no mode {other:?}"))),
    };
    one(x.pad_with(&borders, mode)?)
}

/// Padding that repeats the tensor. A negative number first cuts off that many elements.
fn wrapped(c: &Call<'_>, x: Tensor, borders: &[(isize, isize)]) -> Result<Tensor> {
    let cut: List<(isize, isize)> = borders.iter().map(|&(a, b)| (a.min(0), b.min(0))).collect();
    let mut y = x.pad_with(&cut, PadMode::Circular)?;
    for (axis, &(before, after)) in borders.iter().enumerate() {
        let (before, after) = (before.max(0), after.max(0));
        let extent = y.shape()[axis] as isize;
        if (before, after) == (0, 0) {
            continue;
        }
        if extent == 0 {
            return Err(Error::shape(format!("axis {axis} has no elements to make a border of")));
        }
        let length = (before + extent + after).unsigned_abs();
        let index = c.collect((0..length).map(|i| (i as isize - before).rem_euclid(extent) as i64))?;
        y = y.index_select(axis as isize, &c.make(index, &[length])?)?;
    }
    Ok(y)
}

fn center_crop_pad(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let wanted = sizes(&c.ints(1)?)?;
    let which = match c.int_list("axes")? {
        Some(list) => axes(list, x.rank())?,
        None => (0..x.rank()).collect(),
    };
    if which.len() != wanted.len() {
        return Err(malformed(format!("{} extents for {} axes", wanted.len(), which.len())));
    }
    let mut borders = vec![(0isize, 0isize); x.rank()];
    let mut dims = x.dims();
    for (&axis, &extent) in which.iter().zip(&wanted) {
        let (from, to) = (dims[axis] as isize, extent as isize);
        // The odd element goes to the end, both when cutting and when padding.
        let before = if to < from { -((from - to) / 2) } else { (to - from) / 2 };
        borders[axis] = (before, to - from - before);
        dims[axis] = extent;
    }
    c.reserve(&dims, x.dtype())?;
    one(x.pad_with(&borders, PadMode::Constant(0i64.into()))?)
}

fn blocks(c: &Call<'_>, x: &Tensor) -> Result<usize> {
    let block = c.count("blocksize", 0)?;
    if x.rank() != 4 || block == 0 || block > 1 << 16 {
        return Err(Error::shape(format!(
            "blocks of {block} in a tensor of shape {}, not [N, C, H, W]",
            x.shape()
        )));
    }
    Ok(block)
}

fn depth_to_space(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let b = blocks(c, &x)?;
    let shape = x.shape();
    let [n, depth, h, w] = [shape[0], shape[1], shape[2], shape[3]];
    if depth % (b * b) != 0 {
        return Err(Error::shape(format!("{depth} channels are no blocks of {b} by {b}")));
    }
    let y = match c.text("mode", "DCR")? {
        "DCR" => x
            .reshape([n, b, b, depth / (b * b), h, w])?
            .permute([0, 3, 4, 1, 5, 2])?,
        "CRD" => x
            .reshape([n, depth / (b * b), b, b, h, w])?
            .permute([0, 1, 4, 2, 5, 3])?,
        other => return Err(malformed(format!("DepthToSpace has no mode {other:?}"))),
    };
    one(y.reshape([n, depth / (b * b), h * b, w * b])?)
}

fn space_to_depth(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let b = blocks(c, &x)?;
    let shape = x.shape();
    let [n, depth, h, w] = [shape[0], shape[1], shape[2], shape[3]];
    if h % b != 0 || w % b != 0 {
        return Err(Error::shape(format!("{h} by {w} are no blocks of {b} by {b}")));
    }
    let y = match c.text("mode", "DCR")? {
        "DCR" => x.reshape([n, depth, h / b, b, w / b, b])?.permute([0, 3, 5, 1, 2, 4])?,
        "CRD" => x.reshape([n, depth, h / b, b, w / b, b])?.permute([0, 1, 3, 5, 2, 4])?,
        other => return Err(malformed(format!("SpaceToDepth has no mode {other:?}"))),
    };
    one(y.reshape([n, depth * b * b, h / b, w / b])?)
}
