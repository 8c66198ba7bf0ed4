//! Selection by value: the largest, nonzero, or unique elements.

use std::cmp::Ordering;
use std::ops::Range;

use polygrad_core::{Error, HostTensor, Shape, dispatch_dtype};
use smallvec::smallvec;

use super::row::{Row, rows};
use crate::graph::malformed;
use crate::import::call::{Call, Results, axis, size};
use crate::import::value::Value;

rows! {
    Row::new("TopK", 1, top_k);
    Row::new("NonZero", 9, non_zero);
    Row::new("Unique", 11, unique);
    Row::new("NonMaxSuppression", 10, non_max_suppression);
}

fn top_k(c: &Call<'_>) -> Results {
    let (x, element) = (c.x(0)?, c.element(0)?);
    let axis = c.axis("axis", -1, x.rank())?;
    let k = if c.version < 10 {
        c.count("k", 1)?
    } else {
        size(c.int_scalar(1)?)?
    };
    let (values, index) = x.topk(k, axis as isize, c.flag("largest", true)?)?;
    Ok(smallvec![Value::from(values).with_element(element), index.into()])
}

fn non_zero(c: &Call<'_>) -> Results {
    let host = c.host(0)?;
    let shape = *host.shape();
    let strides = shape.contiguous_strides();
    let mut count = 0;
    host.each_f64(|value| count += usize::from(value != 0.0));
    let rank = shape.rank().max(1);
    let mut hits: Vec<usize> = c.list(count)?;
    let mut at = 0;
    host.each_f64(|value| {
        if value != 0.0 {
            hits.push(at);
        }
        at += 1;
    });
    let mut places = c.list(count.saturating_mul(rank))?;
    for axis in 0..rank {
        places.extend(hits.iter().map(|&hit| match shape.rank() {
            0 => 0,
            _ => (hit / strides[axis].unsigned_abs().max(1) % shape[axis]) as i64,
        }));
    }
    Ok(smallvec![c.known(places, &[rank, count])?])
}

/// Slices along an axis, of a tensor `[outer, count, inner]`.
struct Slices {
    count: usize,
    outer: usize,
    inner: usize,
}

impl Slices {
    /// Compares elements in order, in their own dtype: −0 and 0 are equal, and so are NaNs, which come last.
    fn compare<T: PartialOrd>(&self, values: &[T], a: usize, b: usize) -> Ordering {
        let element =
            |slice: usize, i: usize| &values[(i / self.inner * self.count + slice) * self.inner + i % self.inner];
        let order = |a: &T, b: &T| {
            let is_nan = |v: &T| v.partial_cmp(v).is_none();
            a.partial_cmp(b).unwrap_or_else(|| is_nan(a).cmp(&is_nan(b)))
        };
        let mut pairs = (0..self.outer * self.inner).map(|i| order(element(a, i), element(b, i)));
        pairs.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }

    /// Sorts the indices of slices, and returns the ranges of equal slices. The first of each range has the lowest
    /// index.
    fn groups<T: PartialOrd>(&self, values: &[T], sorted: &mut [usize]) -> Vec<Range<usize>> {
        sorted.sort_unstable_by(|&a, &b| self.compare(values, a, b).then(a.cmp(&b)));
        let mut groups: Vec<Range<usize>> = Vec::new();
        for (i, &slice) in sorted.iter().enumerate() {
            match groups.last_mut() {
                Some(group) if self.compare(values, sorted[group.start], slice).is_eq() => group.end = i + 1,
                _ => groups.push(i..i + 1),
            }
        }
        groups
    }
}

/// Unique slices along an axis: the slices, their first positions, and their counts.
fn unique(c: &Call<'_>) -> Results {
    let (x, element) = (c.x(0)?, c.element(0)?);
    let host = c.host(0)?;
    let shape = *host.shape();
    let at = c
        .opt_int("axis")?
        .map(|number| axis(number, shape.rank()))
        .transpose()?;
    let (count, outer, inner) = match at {
        Some(axis) => (
            shape[axis],
            shape[..axis].iter().product(),
            shape[axis + 1..].iter().product::<usize>(),
        ),
        None => (shape.numel(), 1, 1),
    };
    let mut sorted = c.collect(0..count)?;
    let slices = Slices { count, outer, inner };
    let mut groups = dispatch_dtype!(host.dtype(), T => slices.groups(host.as_slice::<T>()?, &mut sorted));
    if !c.flag("sorted", true)? {
        groups.sort_by_key(|group| sorted[group.start]);
    }
    let mut inverse = c.collect((0..count).map(|_| 0i64))?;
    for (i, group) in groups.iter().enumerate() {
        sorted[group.clone()]
            .iter()
            .for_each(|&slice| inverse[slice] = i as i64);
    }
    let firsts = c.collect(groups.iter().map(|group| sorted[group.start] as i64))?;
    let counts = c.collect(groups.iter().map(|group| group.len() as i64))?;
    let index = c.make(firsts.clone(), &[groups.len()])?;
    let y = match at {
        Some(axis) => x.index_select(axis as isize, &index)?,
        None => x.reshape([count])?.index_select(0, &index)?,
    };
    Ok(smallvec![
        Value::from(y).with_element(element),
        c.known(firsts, &[groups.len()])?,
        c.known(inverse, &[count])?,
        c.known(counts, &[groups.len()])?,
    ])
}

/// A box given by its corners.
struct Corners([f64; 4]);

impl Corners {
    fn new(values: &[f64], centered: bool) -> Self {
        let [a, b, c, d] = [values[0], values[1], values[2], values[3]];
        if centered {
            return Self([b - d / 2.0, a - c / 2.0, b + d / 2.0, a + c / 2.0]);
        }
        Self([a.min(c), b.min(d), a.max(c), b.max(d)])
    }

    fn area(&self) -> f64 {
        (self.0[2] - self.0[0]) * (self.0[3] - self.0[1])
    }

    /// The area of the intersection of both boxes.
    fn overlap(&self, other: &Self) -> f64 {
        let height = self.0[2].min(other.0[2]) - self.0[0].max(other.0[0]);
        let width = self.0[3].min(other.0[3]) - self.0[1].max(other.0[1]);
        let both = height.max(0.0) * width.max(0.0);
        let either = self.area() + other.area() - both;
        if either > 0.0 { both / either } else { 0.0 }
    }
}

fn non_max_suppression(c: &Call<'_>) -> Results {
    let (boxes, scores) = (c.host(0)?, c.host(1)?);
    let (&[batch, count, 4], &[batches, classes, scored]) = (boxes.shape().dims(), scores.shape().dims()) else {
        return Err(Error::shape(format!(
            "boxes of shape {}, scores of shape {}",
            boxes.shape(),
            scores.shape()
        )));
    };
    if batch != batches || count != scored {
        return Err(Error::shape(format!(
            "boxes of shape {}, scores of shape {}",
            boxes.shape(),
            scores.shape()
        )));
    }
    let number = |i: usize, default: f64| {
        if c.has(i) {
            Ok::<_, Error>(c.scalar(i)?.to_f64())
        } else {
            Ok(default)
        }
    };
    // Compared in f32, since the threshold is an f32 and 7 / 10 must not be above 0.7.
    let (most, near, least) = (
        number(2, 0.0)? as usize,
        number(3, 0.0)? as f32,
        number(4, f64::NEG_INFINITY)?,
    );
    let centered = match c.int("center_point_box", 0)? {
        0 => false,
        1 => true,
        other => return Err(malformed(format!("center_point_box is {other}, not 0 or 1"))),
    };
    let (boxes, scores) = (boxes.try_to_f64_vec()?, scores.try_to_f64_vec()?);
    let mut chosen: Vec<i64> = Vec::new();
    for sample in 0..batch {
        let corners = boxes[sample * count * 4..][..count * 4].chunks_exact(4);
        let corners = c.collect(corners.map(|values| Corners::new(values, centered)))?;
        c.limits.step()?;
        for class in 0..classes {
            c.limits.step()?;
            let scores = &scores[(sample * classes + class) * count..][..count];
            let mut order: Vec<usize> = c.list(count)?;
            order.extend((0..count).filter(|&i| scores[i] > least));
            order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
            let mut kept: Vec<usize> = Vec::new();
            for candidate in order {
                if kept.len() >= most {
                    break;
                }
                c.limits.step()?;
                if kept
                    .iter()
                    .all(|&other| corners[other].overlap(&corners[candidate]) as f32 <= near)
                {
                    kept.push(candidate);
                }
            }
            chosen.extend(kept.iter().flat_map(|&i| [sample as i64, class as i64, i as i64]));
        }
    }
    let rows = chosen.len() / 3;
    Ok(smallvec![HostTensor::new(Shape::new(&[rows, 3])?, chosen)?.into()])
}
