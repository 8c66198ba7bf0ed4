//! The kinds of nodes in graphs.

mod elementwise;
mod layers;
mod movement;
mod reduce;

use polygrad::backend::HostTensor;
use polygrad_onnx::graph::{Attribute, ElementType};

use super::make::{Made, Maker};
use super::windows::{conv, pool};

use elementwise::{binary, cast, choose, compare, unary};
use layers::{gemm, matmul, norm, recurrent, resize};
use movement::{concat, expand, gather, pad, reshape, scatter, slice, split, transpose};
use reduce::{arg, reduce, softmax};

pub(super) use layers::batch_norm;

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

fn scalar(m: &mut Maker<'_>, value: f32) -> Made {
    m.fixed(HostTensor::scalar(value).into())
}

/// Integer ops and others that fit nowhere else.
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
