//! What is chosen by value: the largest, those that are not 0, one of each.

use std::cmp::Ordering;

use polygrad_core::{Backend, DType, Error, HostTensor, Shape};
use smallvec::smallvec;

use super::{Row, rows};
use crate::graph::malformed;
use crate::import::call::{Call, Results, axis, size};
use crate::import::value::Value;

rows! {
    Row::new("TopK", 1, top_k);
    Row::new("NonZero", 9, non_zero);
    Row::new("Unique", 11, unique);
    Row::new("NonMaxSuppression", 10, non_max_suppression);
}

fn top_k<B: Backend>(c: &Call<'_, B>) -> Results<B> {
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

fn non_zero<B: Backend>(c: &Call<'_, B>) -> Results<B> {
    let host = c.host(0)?;
    let shape = *host.shape();
    let strides = shape.contiguous_strides();
    let values = host.to_f64_vec();
    let hits: Vec<usize> = (0..values.len()).filter(|&i| values[i] != 0.0).collect();
    let rank = shape.rank().max(1);
    let mut places = Vec::with_capacity(hits.len() * rank);
    for axis in 0..rank {
        places.extend(hits.iter().map(|&hit| match shape.rank() {
            0 => 0,
            _ => (hit / strides[axis].unsigned_abs().max(1) % shape[axis]) as i64,
        }));
    }
    Ok(smallvec![c.known(places, &[rank, hits.len()])?])
}

/// Slices along an axis: which are equal, where each first stood, and how often.
fn unique<B: Backend>(c: &Call<'_, B>) -> Results<B> {
    let (x, element) = (c.x(0)?, c.element(0)?);
    let host = c.host(0)?;
    let shape = *host.shape();
    let values = host.to_f64_vec();
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
        None => (values.len(), 1, 1),
    };
    c.reserve(&[count], DType::I64)?;
    let compare = |a: usize, b: usize| {
        let element = |slice: usize, i: usize| values[(i / inner * count + slice) * inner + i % inner];
        let pairs = (0..outer * inner).map(|i| element(a, i).total_cmp(&element(b, i)));
        pairs.fold(Ordering::Equal, Ordering::then)
    };
    let mut sorted: Vec<usize> = (0..count).collect();
    sorted.sort_by(|&a, &b| compare(a, b).then(a.cmp(&b)));
    // Groups of equal slices, in sorted order; each begins with its first.
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for slice in sorted {
        match groups.last_mut() {
            Some(group) if compare(group[0], slice) == Ordering::Equal => group.push(slice),
            _ => groups.push(vec![slice]),
        }
    }
    if !c.flag("sorted", true)? {
        groups.sort_by_key(|group| group[0]);
    }
    let mut inverse = vec![0i64; count];
    for (i, group) in groups.iter().enumerate() {
        group.iter().for_each(|&slice| inverse[slice] = i as i64);
    }
    let firsts: Vec<i64> = groups.iter().map(|group| group[0] as i64).collect();
    let counts: Vec<i64> = groups.iter().map(|group| group.len() as i64).collect();
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

/// A box by its corners.
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

    /// The part of both that is in both.
    fn overlap(&self, other: &Self) -> f64 {
        let height = self.0[2].min(other.0[2]) - self.0[0].max(other.0[0]);
        let width = self.0[3].min(other.0[3]) - self.0[1].max(other.0[1]);
        let both = height.max(0.0) * width.max(0.0);
        let either = self.area() + other.area() - both;
        if either > 0.0 { both / either } else { 0.0 }
    }
}

fn non_max_suppression<B: Backend>(c: &Call<'_, B>) -> Results<B> {
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
    let (most, near, least) = (number(2, 0.0)? as usize, number(3, 0.0)?, number(4, f64::NEG_INFINITY)?);
    let centered = match c.int("center_point_box", 0)? {
        0 => false,
        1 => true,
        other => return Err(malformed(format!("center_point_box is {other}, not 0 or 1"))),
    };
    let (boxes, scores) = (boxes.to_f64_vec(), scores.to_f64_vec());
    let mut chosen: Vec<i64> = Vec::new();
    for sample in 0..batch {
        let corners = boxes[sample * count * 4..][..count * 4].chunks_exact(4);
        let corners: Vec<Corners> = corners.map(|values| Corners::new(values, centered)).collect();
        c.limits.step()?;
        for class in 0..classes {
            c.limits.step()?;
            let scores = &scores[(sample * classes + class) * count..][..count];
            let mut order: Vec<usize> = (0..count).filter(|&i| scores[i] > least).collect();
            order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
            let mut kept: Vec<usize> = Vec::new();
            for candidate in order {
                if kept.len() >= most {
                    break;
                }
                c.limits.step()?;
                if kept
                    .iter()
                    .all(|&other| corners[other].overlap(&corners[candidate]) <= near)
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
