//! Products, norms, Resize and recurrent layers.

use polygrad::DType;
use polygrad::backend::HostTensor;
use polygrad_onnx::graph::{Attribute, ElementType};

use super::{float, int};
use crate::graphs::make::{Made, Maker};

pub(super) fn matmul(m: &mut Maker<'_>) -> Option<()> {
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

pub(super) fn gemm(m: &mut Maker<'_>) -> Option<()> {
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

pub(in crate::graphs) fn batch_norm(m: &mut Maker<'_>, x: &Made) -> Option<()> {
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

/// Whether all elements are near 0: ONNX Runtime subtracts products of elements, which leaves the rounding errors of
/// large ones.
fn is_small(x: &Made) -> bool {
    x.value.host().to_f64_vec().iter().all(|v| v.abs() <= 2.0)
}

pub(super) fn norm(m: &mut Maker<'_>) -> Option<()> {
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
                // If an axis has equal numbers, the rounding error of their mean is divided by the root of this.
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

pub(super) fn resize(m: &mut Maker<'_>) -> Option<()> {
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

pub(super) fn recurrent(m: &mut Maker<'_>) -> Option<()> {
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
