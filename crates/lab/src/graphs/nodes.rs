//! The nodes that graphs are made of.

use polygrad::DType;
use polygrad::backend::HostTensor;
use polygrad_onnx::graph::{Attribute, ElementType, Literal};

use super::make::{Made, Maker};
use super::windows::{conv, pool};

pub(super) type Attributes = Vec<(&'static str, Attribute)>;

/// Tries to add one node, or a few that belong together.
pub(super) fn add(maker: &mut Maker<'_>) {
    let kinds: [fn(&mut Maker<'_>) -> Option<()>; 32] = [
        unary, unary, unary, binary, binary, binary, compare, choose, reduce, reduce, arg, softmax, reshape, reshape,
        transpose, slice, slice, concat, split, gather, scatter, pad, expand, matmul, matmul, gemm, conv, pool, norm,
        resize, recurrent, odd,
    ];
    let kind = maker.draw.of(&kinds);
    let _ = kind(maker);
}

pub(super) fn int(value: i64) -> Attribute {
    Attribute::Int(value)
}

fn float(value: f32) -> Attribute {
    Attribute::Float(value)
}

fn unary(m: &mut Maker<'_>) -> Option<()> {
    let x = m.real()?;
    let slope = (m.draw.real() * 0.5 + 0.6) as f32;
    let ops: [(&str, Attributes); 33] = [
        ("Abs", vec![]),
        ("Neg", vec![]),
        ("Relu", vec![]),
        ("Sigmoid", vec![]),
        ("Tanh", vec![]),
        ("Exp", vec![]),
        ("Erf", vec![]),
        ("Sin", vec![]),
        ("Cos", vec![]),
        ("Atan", vec![]),
        ("Sinh", vec![]),
        ("Asinh", vec![]),
        ("Floor", vec![]),
        ("Ceil", vec![]),
        ("Round", vec![]),
        ("Sign", vec![]),
        ("Softplus", vec![]),
        ("Softsign", vec![]),
        ("Mish", vec![]),
        ("HardSwish", vec![]),
        ("Identity", vec![]),
        ("Gelu", vec![]),
        ("Gelu", vec![("approximate", Attribute::String("tanh".into()))]),
        ("LeakyRelu", vec![("alpha", float(slope))]),
        ("Elu", vec![("alpha", float(slope))]),
        ("Celu", vec![("alpha", float(slope))]),
        ("Selu", vec![]),
        ("ThresholdedRelu", vec![("alpha", float(slope))]),
        ("HardSigmoid", vec![("alpha", float(slope)), ("beta", float(0.4))]),
        ("Shrink", vec![("lambd", float(slope)), ("bias", float(0.25))]),
        ("Reciprocal", vec![]),
        ("Sqrt", vec![]),
        ("Log", vec![]),
    ];
    let (op, attributes) = m.draw.of(&ops);
    let x = match op {
        // Away from where they are steep.
        "Reciprocal" | "Sqrt" | "Log" => {
            let positive = m.node("Abs", &[Some(&x)], 1, vec![])?;
            let half = scalar(m, 0.5);
            m.node("Add", &[Some(&positive[0]), Some(&half)], 1, vec![])?.remove(0)
        }
        "Exp" | "Sinh" => {
            let (low, high) = (scalar(m, -4.0), scalar(m, 4.0));
            m.node("Clip", &[Some(&x), Some(&low), Some(&high)], 1, vec![])?
                .remove(0)
        }
        _ => x,
    };
    m.node(op, &[Some(&x)], 1, attributes).map(drop)
}

fn scalar(m: &mut Maker<'_>, value: f32) -> Made {
    m.fixed(HostTensor::scalar(value).into())
}

/// A real tensor, or a constant, that goes with this one by broadcasting.
fn partner(m: &mut Maker<'_>, x: &Made) -> Made {
    let dims = x.dims().to_vec();
    let fits = |made: &Made| {
        made.value.element() == ElementType::F32
            && made
                .dims()
                .iter()
                .rev()
                .zip(dims.iter().rev())
                .all(|(&a, &b)| a == b || a == 1 || b == 1)
    };
    if !m.draw.one_in(3)
        && let Some(found) = m.pick(fits)
    {
        return found;
    }
    let skip = m.draw.below(dims.len() + 1);
    let dims: Vec<usize> = dims[skip..]
        .iter()
        .map(|&extent| if m.draw.one_in(3) { 1 } else { extent })
        .collect();
    m.reals_fixed(&dims, 2.0)
}

fn binary(m: &mut Maker<'_>) -> Option<()> {
    let x = m.real()?;
    let y = partner(m, &x);
    let (mut a, mut b) = (x, y);
    if m.draw.one_in(2) {
        std::mem::swap(&mut a, &mut b);
    }
    let op = m
        .draw
        .of(&["Add", "Sub", "Mul", "Max", "Min", "Mean", "Sum", "Div", "PRelu"]);
    if op == "Div" {
        let size = m.node("Abs", &[Some(&b)], 1, vec![])?;
        let half = scalar(m, 0.5);
        b = m.node("Add", &[Some(&size[0]), Some(&half)], 1, vec![])?.remove(0);
    }
    if op == "PRelu"
        && (b.rank() > a.rank()
            || a.dims()
                .iter()
                .rev()
                .zip(b.dims().iter().rev())
                .any(|(&a, &b)| b != 1 && a != b))
    {
        return None;
    }
    m.node(op, &[Some(&a), Some(&b)], 1, vec![]).map(drop)
}

fn compare(m: &mut Maker<'_>) -> Option<()> {
    let x = m.real()?;
    let y = partner(m, &x);
    let op = m
        .draw
        .of(&["Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal"]);
    let found = m.node(op, &[Some(&x), Some(&y)], 1, vec![])?.remove(0);
    match m.draw.below(4) {
        0 => m.node("Not", &[Some(&found)], 1, vec![]).map(drop),
        1 => {
            let other = m.pick(|made| made.value.element() == ElementType::Bool && made.dims() == found.dims())?;
            let op = m.draw.of(&["And", "Or", "Xor"]);
            m.node(op, &[Some(&found), Some(&other)], 1, vec![]).map(drop)
        }
        2 => cast(m, &found),
        _ => Some(()),
    }
}

fn cast(m: &mut Maker<'_>, x: &Made) -> Option<()> {
    let to = m.draw.of(&[ElementType::F32, ElementType::I64, ElementType::I32]);
    m.node("Cast", &[Some(x)], 1, vec![("to", int(to as i64))]).map(drop)
}

fn choose(m: &mut Maker<'_>) -> Option<()> {
    let condition = m.pick(|made| made.value.element() == ElementType::Bool)?;
    let dims = condition.dims().to_vec();
    let x = m.reals_fixed(&dims, 1.0);
    let fits = |made: &Made| {
        made.value.element() == ElementType::F32
            && made
                .dims()
                .iter()
                .rev()
                .zip(dims.iter().rev())
                .all(|(&a, &b)| a == b || a == 1 || b == 1)
    };
    let y = m.pick(fits).unwrap_or_else(|| x.clone());
    m.node("Where", &[Some(&condition), Some(&x), Some(&y)], 1, vec![])
        .map(drop)
}

/// Some axes of a tensor, counted from either end.
fn axes(m: &mut Maker<'_>, rank: usize) -> Vec<i64> {
    let mut axes: Vec<i64> = (0..rank as i64).filter(|_| m.draw.one_in(2)).collect();
    if axes.is_empty() {
        axes.push(m.draw.below(rank) as i64);
    }
    if m.draw.one_in(3) {
        axes.iter_mut().for_each(|axis| *axis -= rank as i64);
    }
    axes
}

fn reduce(m: &mut Maker<'_>) -> Option<()> {
    let x = m.real_of_rank(1..=5)?;
    let ops = [
        "Sum",
        "Mean",
        "Max",
        "Min",
        "L1",
        "L2",
        "SumSquare",
        "LogSumExp",
        "Prod",
    ];
    let op = format!("Reduce{}", m.draw.of(&ops));
    let keep = int(m.draw.between(0, 1));
    let list = axes(m, x.rank());
    let axes = m.integers(&list);
    let axes = if m.draw.one_in(5) { None } else { Some(&axes) };
    m.node(&op, &[Some(&x), axes], 1, vec![("keepdims", keep)]).map(drop)
}

fn arg(m: &mut Maker<'_>) -> Option<()> {
    let x = m.real_of_rank(1..=4)?;
    let axis = m.draw.below(x.rank()) as i64;
    match m.draw.below(4) {
        0 => {
            let count = m.draw.between(1, x.dims()[axis as usize] as i64);
            let count = m.integers(&[count]);
            let attributes = vec![("axis", int(axis)), ("largest", int(m.draw.between(0, 1)))];
            m.node("TopK", &[Some(&x), Some(&count)], 2, attributes).map(drop)
        }
        1 => {
            let axis = m.integers(&[axis]);
            let axis = Made {
                value: first(&axis),
                ..axis
            };
            let scalar = m.fixed(axis.value);
            let attributes = vec![
                ("exclusive", int(m.draw.between(0, 1))),
                ("reverse", int(m.draw.between(0, 1))),
            ];
            m.node("CumSum", &[Some(&x), Some(&scalar)], 1, attributes).map(drop)
        }
        _ => {
            let op = m.draw.of(&["ArgMax", "ArgMin"]);
            let attributes = vec![("axis", int(axis)), ("keepdims", int(m.draw.between(0, 1)))];
            let found = m.node(op, &[Some(&x)], 1, attributes)?.remove(0);
            cast(m, &found)
        }
    }
}

/// The first element as a scalar.
fn first(x: &Made) -> Literal {
    let value = x.value.host().to_f64_vec()[0] as i64;
    HostTensor::scalar(value).into()
}

fn softmax(m: &mut Maker<'_>) -> Option<()> {
    let x = m.real_of_rank(1..=4)?;
    let op = m.draw.of(&["Softmax", "LogSoftmax", "Softmax", "Hardmax"]);
    let rank = x.rank() as i64;
    let axis = int(m.draw.between(-rank, rank - 1));
    m.node(op, &[Some(&x)], 1, vec![("axis", axis)]).map(drop)
}

fn reshape(m: &mut Maker<'_>) -> Option<()> {
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
            // Two neighbours become one, or one becomes two.
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

fn transpose(m: &mut Maker<'_>) -> Option<()> {
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

fn slice(m: &mut Maker<'_>) -> Option<()> {
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

fn concat(m: &mut Maker<'_>) -> Option<()> {
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

fn split(m: &mut Maker<'_>) -> Option<()> {
    let x = m.pick(|made| made.dims().iter().any(|&extent| extent > 1))?;
    let axis = (0..x.rank()).filter(|&axis| x.dims()[axis] > 1).collect::<Vec<_>>();
    let axis = m.draw.of(&axis);
    let extent = x.dims()[axis] as i64;
    let left = m.draw.between(1, extent - 1);
    let parts = m.integers(&[left, extent - left]);
    m.node("Split", &[Some(&x), Some(&parts)], 2, vec![("axis", int(axis as i64))])
        .map(drop)
}

/// Places along an axis of this extent, from either end.
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

fn gather(m: &mut Maker<'_>) -> Option<()> {
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

fn scatter(m: &mut Maker<'_>) -> Option<()> {
    let x = m.real_of_rank(1..=3)?;
    let reduction = m.draw.of(&["none", "add", "mul", "max", "min"]);
    let attributes = vec![("reduction", Attribute::String(reduction.into()))];
    // Each place once, so that the order does not show.
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

fn pad(m: &mut Maker<'_>) -> Option<()> {
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

fn expand(m: &mut Maker<'_>) -> Option<()> {
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

fn matmul(m: &mut Maker<'_>) -> Option<()> {
    let x = m.real_of_rank(1..=4)?;
    let inner = *x.dims().last()?;
    let fits = |made: &Made| made.value.element() == ElementType::F32 && made.rank() == 2 && made.dims()[0] == inner;
    let found = if m.draw.one_in(3) { m.pick(fits) } else { None };
    let y = match found {
        Some(y) => y,
        None => {
            let columns = m.draw.between(1, 6) as usize;
            m.reals_fixed(&[inner, columns], 1.0)
        }
    };
    let found = m.node("MatMul", &[Some(&x), Some(&y)], 1, vec![])?.remove(0);
    if m.draw.one_in(2) {
        let bias = m.reals_fixed(&[y.dims()[1]], 1.0);
        let sum = m.node("Add", &[Some(&found), Some(&bias)], 1, vec![])?.remove(0);
        let op = m.draw.of(&["Relu", "Tanh", "Sigmoid", "Gelu"]);
        m.node(op, &[Some(&sum)], 1, vec![])?;
    }
    Some(())
}

fn gemm(m: &mut Maker<'_>) -> Option<()> {
    let x = m.real_of_rank(2..=2)?;
    let (across, turned) = (m.draw.one_in(2), m.draw.one_in(2));
    let (rows, inner) = if across {
        (x.dims()[1], x.dims()[0])
    } else {
        (x.dims()[0], x.dims()[1])
    };
    let columns = m.draw.between(1, 6) as usize;
    let dims = if turned { [columns, inner] } else { [inner, columns] };
    let w = m.reals_fixed(&dims, 1.0);
    let bias = m.draw.of(&[
        vec![columns],
        vec![1, columns],
        vec![rows, 1],
        vec![rows, columns],
        vec![],
        vec![1],
    ]);
    let bias = m.reals_fixed(&bias, 1.0);
    let bias = if m.draw.one_in(4) { None } else { Some(&bias) };
    let attributes = vec![
        ("transA", int(across.into())),
        ("transB", int(turned.into())),
        ("alpha", float(m.draw.of(&[1.0, 1.0, 0.5]))),
        ("beta", float(m.draw.of(&[1.0, 1.0, 0.25]))),
    ];
    m.node("Gemm", &[Some(&x), Some(&w), bias], 1, attributes).map(drop)
}

pub(super) fn batch_norm(m: &mut Maker<'_>, x: &Made) -> Option<()> {
    let channels = x.dims()[1];
    let [scale, bias, mean] = [(); 3].map(|()| m.reals_fixed(&[channels], 1.0));
    let spread = m.reals(&[channels], 0.5).host().to_f64_vec();
    let spread: Vec<f64> = spread.into_iter().map(|v| v + 1.0).collect();
    let spread = HostTensor::new(polygrad::Shape::from([channels]), spread)
        .ok()?
        .cast(DType::F32);
    let spread = m.fixed(spread.into());
    m.node(
        "BatchNormalization",
        &[Some(x), Some(&scale), Some(&bias), Some(&mean), Some(&spread)],
        1,
        vec![],
    )
    .map(drop)
}

/// Whether no element is far from 0: ONNX Runtime takes products of elements from each other, and the rounding of large
/// ones is left.
fn is_small(x: &Made) -> bool {
    x.value.host().to_f64_vec().iter().all(|v| v.abs() <= 2.0)
}

fn norm(m: &mut Maker<'_>) -> Option<()> {
    let x = m.real_of_rank(2..=4)?;
    match m.draw.below(4) {
        0 => batch_norm(m, &x),
        1 => {
            let dims = x.dims()[1..].to_vec();
            let (scale, bias) = (m.reals_fixed(&dims, 1.0), m.reals_fixed(&dims, 1.0));
            m.node(
                "LayerNormalization",
                &[Some(&x), Some(&scale), Some(&bias)],
                1,
                // Where an axis has equal numbers, their mean's rounding is divided by the root of this.
                vec![("axis", int(1)), ("epsilon", float(0.01))],
            )
            .map(drop)
        }
        2 if x.rank() > 2 && is_small(&x) => {
            let channels = x.dims()[1];
            let (scale, bias) = (m.reals_fixed(&[channels], 1.0), m.reals_fixed(&[channels], 1.0));
            m.node(
                "InstanceNormalization",
                &[Some(&x), Some(&scale), Some(&bias)],
                1,
                vec![("epsilon", float(0.1))],
            )
            .map(drop)
        }
        3 if x.rank() == 4 && is_small(&x) => m.node("LRN", &[Some(&x)], 1, vec![("size", int(3))]).map(drop),
        _ => None,
    }
}

fn resize(m: &mut Maker<'_>) -> Option<()> {
    let x = m.real_of_rank(4..=4)?;
    let mode = m.draw.of(&["nearest", "linear", "cubic"]);
    let place = m
        .draw
        .of(&["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]);
    let sizes: Vec<i64> = x
        .dims()
        .iter()
        .enumerate()
        .map(|(axis, &extent)| if axis < 2 { extent as i64 } else { m.draw.between(1, 7) })
        .collect();
    let sizes = m.integers(&sizes);
    let attributes = vec![
        ("mode", Attribute::String(mode.into())),
        ("coordinate_transformation_mode", Attribute::String(place.into())),
    ];
    m.node("Resize", &[Some(&x), None, None, Some(&sizes)], 1, attributes)
        .map(drop)
}

fn recurrent(m: &mut Maker<'_>) -> Option<()> {
    let x = m.real_of_rank(3..=3)?;
    let (op, gates) = m.draw.of(&[("LSTM", 4), ("GRU", 3), ("RNN", 1)]);
    let (directions, way) = m.draw.of(&[(1, "forward"), (1, "reverse"), (2, "bidirectional")]);
    let (width, hidden) = (x.dims()[2], m.draw.between(1, 4) as usize);
    let w = m.reals_fixed(&[directions, gates * hidden, width], 1.0);
    let r = m.reals_fixed(&[directions, gates * hidden, hidden], 1.0);
    let b = m.reals_fixed(&[directions, 2 * gates * hidden], 1.0);
    let b = if m.draw.one_in(4) { None } else { Some(&b) };
    let mut attributes = vec![
        ("hidden_size", int(hidden as i64)),
        ("direction", Attribute::String(way.into())),
    ];
    if op == "GRU" {
        attributes.push(("linear_before_reset", int(m.draw.between(0, 1))));
    }
    let outputs = if op == "LSTM" { 3 } else { 2 };
    m.node(op, &[Some(&x), Some(&w), Some(&r), b], outputs, attributes)
        .map(drop)
}

/// Whole numbers and others that fit nowhere else.
fn odd(m: &mut Maker<'_>) -> Option<()> {
    match m.draw.below(6) {
        0 => {
            let x = m.pick(|made| matches!(made.value.element(), ElementType::I64 | ElementType::I32))?;
            cast(m, &x)
        }
        1 => {
            let x = m.pick(|made| made.value.element() == ElementType::I64)?;
            let other = m.draw.between(1, 5);
            let other = m.fixed(HostTensor::scalar(other).into());
            let op = m.draw.of(&["Add", "Sub", "Mul", "Div", "Mod", "Max", "Min"]);
            m.node(op, &[Some(&x), Some(&other)], 1, vec![]).map(drop)
        }
        2 => {
            let x = m.real_of_rank(2..=4)?;
            let upper = int(m.draw.between(0, 1));
            m.node("Trilu", &[Some(&x)], 1, vec![("upper", upper)]).map(drop)
        }
        3 => {
            let x = m.real_of_rank(1..=3)?;
            let found = m.node("DynamicQuantizeLinear", &[Some(&x)], 3, vec![])?;
            m.node(
                "DequantizeLinear",
                &[Some(&found[0]), Some(&found[1]), Some(&found[2])],
                1,
                vec![],
            )
            .map(drop)
        }
        4 => {
            let x = m.real_of_rank(1..=3)?;
            let scale = scalar(m, 0.125);
            let zero = HostTensor::scalar(128u8);
            let zero = m.fixed(zero.into());
            let found = m.node("QuantizeLinear", &[Some(&x), Some(&scale), Some(&zero)], 1, vec![])?;
            m.node(
                "DequantizeLinear",
                &[Some(&found[0]), Some(&scale), Some(&zero)],
                1,
                vec![],
            )
            .map(drop)
        }
        _ => {
            let x = m.real_of_rank(4..=4)?;
            let op = m.draw.of(&["SpaceToDepth", "DepthToSpace"]);
            let fits = match op {
                "SpaceToDepth" => x.dims()[2] % 2 == 0 && x.dims()[3] % 2 == 0,
                _ => x.dims()[1] % 4 == 0,
            };
            fits.then_some(())?;
            m.node(op, &[Some(&x)], 1, vec![("blocksize", int(2))]).map(drop)
        }
    }
}
