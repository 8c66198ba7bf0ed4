//! Ops on elements: functions, sums and products, comparisons, casts and choices.

use polygrad_onnx::graph::{Attribute, ElementType};

use super::{Attributes, float, int, scalar};
use crate::graphs::make::{Made, Maker};

pub(super) fn unary(m: &mut Maker<'_>) -> Option<()> {
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
        // Away from steep regions.
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

/// A real tensor, or a constant, that broadcasts with this one.
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

pub(super) fn binary(m: &mut Maker<'_>) -> Option<()> {
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

pub(super) fn compare(m: &mut Maker<'_>) -> Option<()> {
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

pub(super) fn cast(m: &mut Maker<'_>, x: &Made) -> Option<()> {
    let to = m.draw.of(&[ElementType::F32, ElementType::I64, ElementType::I32]);
    m.node("Cast", &[Some(x)], 1, vec![("to", int(to as i64))]).map(drop)
}

pub(super) fn choose(m: &mut Maker<'_>) -> Option<()> {
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
