//! Reductions, positions and softmax.

use polygrad::backend::HostTensor;
use polygrad_onnx::graph::Literal;

use super::elementwise::cast;
use super::int;
use crate::graphs::make::{Made, Maker};

/// Some axes of a tensor, counted from either end.
pub(super) fn axes(m: &mut Maker<'_>, rank: usize) -> Vec<i64> {
    let mut axes: Vec<i64> = (0..rank as i64).filter(|_| m.draw.one_in(2)).collect();
    if axes.is_empty() {
        axes.push(m.draw.below(rank) as i64);
    }
    if m.draw.one_in(3) {
        axes.iter_mut().for_each(|axis| *axis -= rank as i64);
    }
    axes
}

pub(super) fn reduce(m: &mut Maker<'_>) -> Option<()> {
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

pub(super) fn arg(m: &mut Maker<'_>) -> Option<()> {
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

pub(super) fn softmax(m: &mut Maker<'_>) -> Option<()> {
    let x = m.real_of_rank(1..=4)?;
    let op = m.draw.of(&["Softmax", "LogSoftmax", "Softmax", "Hardmax"]);
    let rank = x.rank() as i64;
    let axis = int(m.draw.between(-rank, rank - 1));
    m.node(op, &[Some(&x)], 1, vec![("axis", axis)]).map(drop)
}
