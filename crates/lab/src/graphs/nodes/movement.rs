//! Ops that move elements: views, joins, indexing, padding.

use polygrad::backend::HostTensor;
use polygrad_onnx::graph::Attribute;

use super::reduce::axes;
use super::{int, scalar};
use crate::graphs::make::{Made, Maker};

pub(super) fn reshape(m: &mut Maker<'_>) -> Option<()> {
    let x = m.pick(|made| made.rank() > 0)?;
    let rank = x.rank() as i64;
    match m.draw.below(4) {
        0 => {
            let axis = int(m.draw.between(0, rank));
            m.node("Flatten", &[Some(&x)], 1, vec![("axis", axis)]).map(drop)
        }
        1 => {
            let axis = m.draw.between(-rank - 1, rank);
            let axes = m.integers(&[axis]);
            m.node("Unsqueeze", &[Some(&x), Some(&axes)], 1, vec![]).map(drop)
        }
        2 => {
            let ones: Vec<i64> = (0..rank).filter(|&axis| x.dims()[axis as usize] == 1).collect();
            let axis = ones.first().copied()?;
            let axes = m.integers(&[axis]);
            m.node("Squeeze", &[Some(&x), Some(&axes)], 1, vec![]).map(drop)
        }
        _ => {
            // Two adjacent axes are merged, or one is split.
            let mut dims: Vec<i64> = x.dims().iter().map(|&extent| extent as i64).collect();
            let at = m.draw.below(dims.len());
            if dims.len() > 1 && at + 1 < dims.len() && m.draw.one_in(2) {
                let next = dims.remove(at + 1);
                dims[at] *= next;
            } else if let Some(factor) = (2..5).find(|factor| dims[at] % factor == 0) {
                dims[at] /= factor;
                dims.insert(at + 1, factor);
            }
            match m.draw.below(3) {
                0 => {
                    let open = m.draw.below(x.rank().min(dims.len()));
                    dims[open] = -1;
                }
                1 if dims[0] == x.dims()[0] as i64 => dims[0] = 0,
                _ => {}
            }
            let shape = m.integers(&dims);
            m.node("Reshape", &[Some(&x), Some(&shape)], 1, vec![]).map(drop)
        }
    }
}

pub(super) fn transpose(m: &mut Maker<'_>) -> Option<()> {
    let x = m.pick(|made| made.rank() > 1)?;
    let mut order: Vec<i64> = (0..x.rank() as i64).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, m.draw.below(i + 1));
    }
    let attributes = if m.draw.one_in(4) {
        vec![]
    } else {
        vec![("perm", Attribute::Ints(order))]
    };
    m.node("Transpose", &[Some(&x)], 1, attributes).map(drop)
}

pub(super) fn slice(m: &mut Maker<'_>) -> Option<()> {
    let x = m.pick(|made| made.rank() > 0)?;
    let list = axes(m, x.rank());
    let (mut starts, mut ends, mut steps) = (Vec::new(), Vec::new(), Vec::new());
    for &axis in &list {
        let extent = x.dims()[axis.rem_euclid(x.rank() as i64) as usize] as i64;
        let (a, b) = (
            m.draw.between(-extent - 1, extent + 1),
            m.draw.between(-extent - 1, extent + 1),
        );
        starts.push(a);
        ends.push(if m.draw.one_in(4) { i64::MAX } else { b });
        steps.push(m.draw.of(&[1, 1, 1, 2, -1, -2]));
        if steps[steps.len() - 1] < 0 {
            let last = ends.len() - 1;
            ends[last] = if m.draw.one_in(2) { i64::MIN } else { -extent - 1 };
        }
    }
    let [starts, ends, axes, steps] = [&starts, &ends, &list, &steps].map(|list| m.integers(list));
    m.node(
        "Slice",
        &[Some(&x), Some(&starts), Some(&ends), Some(&axes), Some(&steps)],
        1,
        vec![],
    )
    .map(drop)
}

pub(super) fn concat(m: &mut Maker<'_>) -> Option<()> {
    let x = m.pick(|made| made.rank() > 0)?;
    let axis = m.draw.below(x.rank());
    let mut all = vec![x.clone()];
    for _ in 0..m.draw.between(1, 2) {
        let fits = |made: &Made| {
            made.value.element() == x.value.element()
                && made.rank() == x.rank()
                && (0..x.rank()).all(|i| i == axis || made.dims()[i] == x.dims()[i])
        };
        all.push(m.pick(fits)?);
    }
    let all: Vec<Option<&Made>> = all.iter().map(Some).collect();
    m.node("Concat", &all, 1, vec![("axis", int(axis as i64))]).map(drop)
}

pub(super) fn split(m: &mut Maker<'_>) -> Option<()> {
    let x = m.pick(|made| made.dims().iter().any(|&extent| extent > 1))?;
    let axis = (0..x.rank()).filter(|&axis| x.dims()[axis] > 1).collect::<Vec<_>>();
    let axis = m.draw.of(&axis);
    let extent = x.dims()[axis] as i64;
    let left = m.draw.between(1, extent - 1);
    let parts = m.integers(&[left, extent - left]);
    m.node("Split", &[Some(&x), Some(&parts)], 2, vec![("axis", int(axis as i64))])
        .map(drop)
}

/// Indices along an axis of this extent, from either end.
fn places(m: &mut Maker<'_>, dims: &[usize], extent: usize) -> Made {
    let shape = polygrad::Shape::new(dims).expect("of rank 8 at most");
    let extent = extent as i64;
    let values: Vec<i64> = (0..shape.numel())
        .map(|_| m.draw.between(-extent, extent - 1))
        .collect();
    m.fixed(
        HostTensor::new(shape, values)
            .expect("as many as the shape says")
            .into(),
    )
}

pub(super) fn gather(m: &mut Maker<'_>) -> Option<()> {
    let x = m.pick(|made| made.rank() > 0)?;
    let axis = m.draw.below(x.rank());
    let extent = x.dims()[axis];
    if m.draw.one_in(2) {
        let dims = m.draw.of(&[vec![], vec![3], vec![2, 2]]);
        let at = places(m, &dims, extent);
        return m
            .node("Gather", &[Some(&x), Some(&at)], 1, vec![("axis", int(axis as i64))])
            .map(drop);
    }
    let mut dims = x.dims().to_vec();
    dims[axis] = m.draw.between(1, 4) as usize;
    let at = places(m, &dims, extent);
    m.node(
        "GatherElements",
        &[Some(&x), Some(&at)],
        1,
        vec![("axis", int(axis as i64))],
    )
    .map(drop)
}

pub(super) fn scatter(m: &mut Maker<'_>) -> Option<()> {
    let x = m.real_of_rank(1..=3)?;
    let reduction = m.draw.of(&["none", "add", "mul", "max", "min"]);
    let attributes = vec![("reduction", Attribute::String(reduction.into()))];
    // Each index occurs once, so that the order does not matter.
    let extent = x.dims()[0];
    let at = m.draw.below(extent) as i64;
    let mut dims = x.dims().to_vec();
    dims[0] = 1;
    if m.draw.one_in(2) {
        let places = HostTensor::new(polygrad::Shape::from([1, 1]), vec![at]).ok()?;
        let places = m.fixed(places.into());
        let updates = m.reals_fixed(&dims, 2.0);
        return m
            .node("ScatterND", &[Some(&x), Some(&places), Some(&updates)], 1, attributes)
            .map(drop);
    }
    let shape = polygrad::Shape::new(&dims).ok()?;
    let places = HostTensor::new(shape, vec![at; shape.numel()]).ok()?;
    let (places, updates) = (m.fixed(places.into()), m.reals_fixed(&dims, 2.0));
    let attributes = [attributes, vec![("axis", int(0))]].concat();
    m.node(
        "ScatterElements",
        &[Some(&x), Some(&places), Some(&updates)],
        1,
        attributes,
    )
    .map(drop)
}

pub(super) fn pad(m: &mut Maker<'_>) -> Option<()> {
    let x = m.real_of_rank(1..=4)?;
    let mode = m.draw.of(&["constant", "reflect", "edge", "wrap"]);
    let mut pads = Vec::new();
    for _side in 0..2 {
        for axis in 0..x.rank() {
            let most = if mode == "reflect" || mode == "wrap" {
                x.dims()[axis] as i64 - 1
            } else {
                2
            };
            let low = if mode == "constant" && m.draw.one_in(6) { -1 } else { 0 };
            pads.push(m.draw.between(low, most.clamp(0, 2)));
        }
    }
    let pads = m.integers(&pads);
    let value = scalar(m, 0.5);
    let value = if mode == "constant" { Some(&value) } else { None };
    m.node(
        "Pad",
        &[Some(&x), Some(&pads), value],
        1,
        vec![("mode", Attribute::String(mode.into()))],
    )
    .map(drop)
}

pub(super) fn expand(m: &mut Maker<'_>) -> Option<()> {
    let x = m.pick(|made| made.rank() > 0 && made.rank() < 4)?;
    if m.draw.one_in(2) {
        let counts: Vec<i64> = (0..x.rank()).map(|_| m.draw.between(1, 2)).collect();
        let counts = m.integers(&counts);
        return m.node("Tile", &[Some(&x), Some(&counts)], 1, vec![]).map(drop);
    }
    let mut dims: Vec<i64> = x
        .dims()
        .iter()
        .map(|&extent| {
            if extent == 1 {
                m.draw.between(1, 4)
            } else {
                extent as i64
            }
        })
        .collect();
    if m.draw.one_in(2) {
        dims.insert(0, 2);
    }
    let shape = m.integers(&dims);
    m.node("Expand", &[Some(&x), Some(&shape)], 1, vec![]).map(drop)
}
