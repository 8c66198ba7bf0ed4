//! Views, and calls that move numbers.

use polygrad_core::DType;

use super::{Draw, Origin, Way, Wish};
use crate::programs::calls::Arg;

pub(super) const WAYS: &[Way] = &[
    (4, permute),
    (4, reshape),
    (3, expand),
    (3, extents_of_one),
    (5, cut),
    (2, turned),
    (2, repeated),
    (2, triangle),
    (3, parts),
    (2, border),
    (4, joined),
    (3, picked),
    (2, scattered),
    (1, assigned),
    (1, one_hot),
    (1, detached),
];

impl Draw {
    fn any_of_rank(&mut self, rank: usize) -> Option<usize> {
        self.pick(|value| value.rank() >= rank && value.numel() > 0)
    }

    /// A value with an axis, and the axis counted from the front.
    fn along(&mut self) -> Option<(usize, usize)> {
        let x = self.any_of_rank(1)?;
        let axis = self.rng.below(self.values[x].rank());
        Some((x, axis))
    }

    fn is_tracked_result(&self, x: usize) -> bool {
        matches!(self.values[x].origin, Origin::Result(..))
    }
}

fn int(value: usize) -> Arg {
    Arg::Int(value as i64)
}

fn extents(shape: &[usize]) -> Vec<Arg> {
    vec![Arg::List(shape.iter().map(|&dim| dim as i64).collect())]
}

fn permute(draw: &mut Draw) -> Wish {
    let x = draw.any_of_rank(2)?;
    let rank = draw.values[x].rank();
    if draw.rng.chance(0.4) {
        let (a, b) = (draw.axis(rank)?, draw.axis(rank)?);
        return Some(("transpose", vec![x], vec![Arg::Int(a), Arg::Int(b)]));
    }
    let mut order: Vec<i64> = (0..rank as i64).collect();
    for i in (1..rank).rev() {
        let j = draw.rng.below(i + 1);
        order.swap(i, j);
    }
    Some(("permute", vec![x], vec![Arg::List(order)]))
}

fn reshape(draw: &mut Draw) -> Wish {
    let x = draw.pick(|value| value.numel() > 0)?;
    let mut shape = draw.values[x].shape.clone();
    let rank = shape.len();
    match draw.rng.below(4) {
        0 if rank > 1 => {
            let first = draw.rng.below(rank);
            let last = first + draw.rng.below(rank - first);
            return Some(("flatten", vec![x], vec![int(first), int(last)]));
        }
        1 => shape = vec![draw.values[x].numel()],
        2 if rank > 0 => {
            // One axis split into two.
            let axis = draw.rng.below(rank);
            let factor = (2..=shape[axis]).find(|factor| shape[axis].is_multiple_of(*factor))?;
            shape[axis] /= factor;
            shape.insert(axis, factor);
        }
        _ => {
            for i in (1..rank).rev() {
                let j = draw.rng.below(i + 1);
                shape.swap(i, j);
            }
        }
    }
    Some(("reshape", vec![x], extents(&shape)))
}

fn expand(draw: &mut Draw) -> Wish {
    let x = draw.any_of_rank(0)?;
    let mut shape = draw.values[x].shape.clone();
    for dim in shape.iter_mut().filter(|dim| **dim == 1) {
        *dim = 1 + draw.rng.below(4);
    }
    if draw.rng.chance(0.5) {
        shape.insert(0, 1 + draw.rng.below(3));
    }
    Some(("expand", vec![x], extents(&shape)))
}

fn extents_of_one(draw: &mut Draw) -> Wish {
    let x = draw.any_of_rank(0)?;
    let shape = &draw.values[x].shape;
    let rank = shape.len();
    match shape.iter().position(|&dim| dim == 1) {
        Some(axis) if draw.rng.chance(0.5) => Some(("squeeze", vec![x], vec![int(axis)])),
        _ => {
            let axis = draw.rng.below(rank + 1);
            Some(("unsqueeze", vec![x], vec![int(axis)]))
        }
    }
}

fn cut(draw: &mut Draw) -> Wish {
    let (x, axis) = draw.along()?;
    let dim = draw.values[x].shape[axis];
    match draw.rng.below(4) {
        0 => {
            let at = draw.int(-(dim as i64), dim as i64 - 1);
            Some(("select", vec![x], vec![int(axis), Arg::Int(at)]))
        }
        1 => {
            let start = draw.rng.below(dim);
            let len = 1 + draw.rng.below(dim - start);
            Some(("narrow", vec![x], vec![int(axis), int(start), int(len)]))
        }
        _ => {
            let start = draw.rng.below(dim);
            let every = 1 + draw.rng.below(3);
            let back = draw.rng.chance(0.5);
            let room = if back { start } else { dim - 1 - start };
            let len = 1 + draw.rng.below(room / every + 1);
            let every = if back { -(every as i64) } else { every as i64 };
            Some(("slice", vec![x], vec![int(axis), int(start), int(len), Arg::Int(every)]))
        }
    }
}

fn turned(draw: &mut Draw) -> Wish {
    let (x, axis) = draw.along()?;
    if draw.rng.chance(0.5) {
        let axes = draw.axes(draw.values[x].rank());
        return Some(("flip", vec![x], vec![Arg::List(axes)]));
    }
    let shift = draw.int(-3, 3);
    Some(("roll", vec![x], vec![Arg::Int(shift), int(axis)]))
}

fn repeated(draw: &mut Draw) -> Wish {
    let (x, axis) = draw.along()?;
    if draw.rng.chance(0.5) {
        let count = 1 + draw.rng.below(3);
        return Some(("repeat_interleave", vec![x], vec![int(count), int(axis)]));
    }
    let counts: Vec<usize> = (0..draw.values[x].rank()).map(|_| 1 + draw.rng.below(2)).collect();
    Some(("repeat", vec![x], extents(&counts)))
}

fn triangle(draw: &mut Draw) -> Wish {
    let x = draw.any_of_rank(2)?;
    let offset = Arg::Int(draw.int(-1, 1));
    Some((draw.one_of(&["tril", "triu", "diagonal"]), vec![x], vec![offset]))
}

fn parts(draw: &mut Draw) -> Wish {
    let (x, axis) = draw.along()?;
    let dim = draw.values[x].shape[axis];
    if dim > 1 && dim < 4 && draw.rng.chance(0.4) {
        return Some(("unbind", vec![x], vec![int(axis)]));
    }
    let parts = 2 + draw.rng.below(2);
    (dim > 1).then_some(("chunk", vec![x], vec![int(parts), int(axis)]))
}

fn border(draw: &mut Draw) -> Wish {
    let x = draw.float_of_rank(1)?;
    let (before, after) = (int(draw.rng.below(3)), int(draw.rng.below(2)));
    match draw.rng.below(3) {
        0 => Some(("pad_reflect", vec![x], vec![before, after])),
        1 => Some(("pad_circular", vec![x], vec![before, after])),
        _ => {
            let number = draw.number(-1.0, 1.0);
            Some(("pad", vec![x], vec![before, after, Arg::Number(number)]))
        }
    }
}

fn joined(draw: &mut Draw) -> Wish {
    let (x, axis) = draw.along()?;
    let (shape, kind) = (draw.values[x].shape.clone(), draw.values[x].kind);
    let mut operands = vec![x];
    let stacked = draw.rng.chance(0.3);
    for _ in 0..1 + draw.rng.below(2) {
        let fits = |other: &super::Value| {
            let same = |(i, (a, b)): (usize, (&usize, &usize))| a == b || (i == axis && !stacked);
            other.kind == kind && other.rank() == shape.len() && other.shape.iter().zip(&shape).enumerate().all(same)
        };
        match draw.pick(fits) {
            Some(other) if draw.rng.chance(0.8) => operands.push(other),
            _ => {
                let mut dims = shape.clone();
                if !stacked {
                    dims[axis] = 1 + draw.rng.below(3);
                }
                operands.push(draw.like(x, dims));
            }
        }
    }
    if draw.rng.chance(0.5) {
        operands.reverse();
    }
    Some((if stacked { "stack" } else { "cat" }, operands, vec![int(axis)]))
}

/// A value as indices, if a suitable one exists, else new ones.
fn index(draw: &mut Draw, shape: &[usize], below: usize) -> usize {
    let fits = |value: &super::Value| {
        value.is(DType::I64) && value.shape == shape && value.low >= 0.0 && value.high < below as f64
    };
    match draw.pick(fits) {
        Some(index) if draw.rng.chance(0.7) => index,
        _ => draw.positions(shape, below),
    }
}

fn picked(draw: &mut Draw) -> Wish {
    let (x, axis) = draw.along()?;
    let mut shape = draw.values[x].shape.clone();
    let dim = shape[axis];
    match draw.rng.below(3) {
        0 => {
            shape[axis] = 1 + draw.rng.below(4);
            let index = index(draw, &shape, dim);
            Some(("gather", vec![x, index], vec![int(axis)]))
        }
        1 if shape.len() == 2 => {
            let lines = draw.shape();
            let index = index(draw, &lines, shape[0]);
            let wanted = draw.values[x].is_float();
            wanted.then_some(("embedding", vec![index, x], Vec::new()))
        }
        _ => {
            let count = 1 + draw.rng.below(5);
            let index = index(draw, &[count], dim);
            Some(("index_select", vec![x, index], vec![int(axis)]))
        }
    }
}

fn scattered(draw: &mut Draw) -> Wish {
    let (x, axis) = draw.along()?;
    if draw.values[x].is(DType::Bool) {
        return None;
    }
    let mut shape = draw.values[x].shape.clone();
    let dim = shape[axis];
    match draw.rng.below(3) {
        0 => {
            let count = 1 + draw.rng.below(3);
            let index = index(draw, &[count], dim);
            shape[axis] = count;
            let y = draw.like(x, shape);
            Some(("index_add", vec![x, index, y], vec![int(axis)]))
        }
        1 => {
            shape[axis] = 1 + draw.rng.below(3);
            let index = index(draw, &shape, dim);
            let y = draw.like(x, shape);
            Some(("scatter_add", vec![x, index, y], vec![int(axis)]))
        }
        // Of several writes to one position any may win, so each position is written once.
        _ => {
            shape
                .iter_mut()
                .enumerate()
                .filter(|(i, _)| *i != axis)
                .for_each(|(_, dim)| *dim = (*dim).max(1));
            let last = axis + 1 == shape.len();
            let index = last.then(|| draw.distinct(&shape))?;
            let y = draw.like(x, shape);
            Some(("scatter", vec![x, index, y], vec![int(axis)]))
        }
    }
}

fn assigned(draw: &mut Draw) -> Wish {
    let x = draw.any_of_rank(1)?;
    if !draw.is_tracked_result(x) {
        return None;
    }
    let shape = draw.values[x].shape.clone();
    let at = draw.int(-(shape[0] as i64), shape[0] as i64 - 1);
    let y = draw.like(x, shape[1..].to_vec());
    Some(("assign", vec![x, y], vec![Arg::Int(at)]))
}

fn one_hot(draw: &mut Draw) -> Wish {
    let x = draw.pick(|value| value.is(DType::I64) && value.low >= 0.0 && value.high < 8.0 && value.numel() > 0)?;
    let classes = draw.values[x].high as usize + 1;
    Some(("one_hot", vec![x], vec![int(classes)]))
}

fn detached(draw: &mut Draw) -> Wish {
    let x = draw.float()?;
    Some(("detach", vec![x], Vec::new()))
}
