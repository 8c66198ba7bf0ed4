//! Calls on each element.

use polygrad_core::DType;

use super::{Draw, Way, Wish};
use crate::programs::calls::Arg;
use crate::programs::program::Kind;

pub(super) const WAYS: &[Way] = &[
    (14, smooth),
    (12, binary),
    (4, of_positive),
    (3, of_small),
    (5, with_number),
    (3, whole_binary),
    (2, of_exact),
    (3, comparison),
    (3, choice),
    (2, mask),
    (2, cast),
    (2, logical),
    (1, powers),
];

impl Draw {
    /// A value above a bound, which is computed from another one if there is none.
    pub(super) fn positive(&mut self) -> Option<usize> {
        let there = self.pick(|value| value.kind == Kind::Tested && value.low > 0.2 && value.numel() > 0);
        if there.is_some() && self.rng.chance(0.5) {
            return there;
        }
        let x = self.float()?;
        let name = self.one_of(&["abs", "square", "sigmoid", "softmax", "relu"]);
        let args = match name {
            "softmax" => vec![Arg::Int(-1)],
            _ => Vec::new(),
        };
        let x = self.step(name, vec![x], args)?;
        let number = self.number(0.25, 2.0);
        self.step("add_number", vec![x], vec![Arg::Number(number)])
    }
}

fn smooth(draw: &mut Draw) -> Wish {
    let x = draw.float()?;
    let name = draw.one_of(&[
        "neg",
        "abs",
        "sin",
        "cos",
        "tanh",
        "sigmoid",
        "erf",
        "relu",
        "gelu",
        "gelu_tanh",
        "silu",
        "softplus",
        "elu",
        "leaky_relu",
        "celu",
        "hardtanh",
        "square",
        "relu",
        "tanh",
    ]);
    let args = match name {
        "softplus" => vec![Arg::Number(draw.number(0.5, 2.0)), Arg::Number(20.0)],
        "elu" | "celu" => vec![Arg::Number(draw.number(0.5, 1.5))],
        "leaky_relu" => vec![Arg::Number(0.125)],
        "hardtanh" => vec![
            Arg::Number(draw.number(-1.5, -0.25)),
            Arg::Number(draw.number(0.25, 1.5)),
        ],
        _ => Vec::new(),
    };
    Some((name, vec![x], args))
}

fn binary(draw: &mut Draw) -> Wish {
    let x = draw.float()?;
    let y = if draw.rng.chance(0.08) { x } else { draw.beside(x) };
    let name = draw.one_of(&["add", "add", "sub", "mul", "mul", "maximum", "minimum", "logaddexp"]);
    let operands = if draw.rng.chance(0.5) { vec![x, y] } else { vec![y, x] };
    Some((name, operands, Vec::new()))
}

fn of_positive(draw: &mut Draw) -> Wish {
    let x = draw.positive()?;
    let name = draw.one_of(&["log", "sqrt", "rsqrt", "reciprocal", "log1p", "div", "atan2"]);
    if matches!(name, "div" | "atan2") {
        let y = draw.float()?;
        let fits = super::broadcasts(&draw.values[x].shape, &draw.values[y].shape);
        return fits.then_some((name, vec![y, x], Vec::new()));
    }
    Some((name, vec![x], Vec::new()))
}

fn of_small(draw: &mut Draw) -> Wish {
    let x = draw.pick(|value| value.kind == Kind::Tested && value.high < 4.0 && value.low > -20.0)?;
    Some((draw.one_of(&["exp", "expm1"]), vec![x], Vec::new()))
}

fn with_number(draw: &mut Draw) -> Wish {
    let x = draw.float()?;
    let name = draw.one_of(&[
        "add_number",
        "mul_number",
        "div_number",
        "number_sub",
        "maximum_number",
        "clamp",
    ]);
    let args = match name {
        "mul_number" => vec![Arg::Number(draw.number(-1.5, 1.5))],
        "div_number" => vec![Arg::Number(draw.number(1.0, 4.0))],
        "clamp" => vec![
            Arg::Number(draw.number(-2.0, -0.25)),
            Arg::Number(draw.number(0.25, 2.0)),
        ],
        _ => vec![Arg::Number(draw.number(-2.0, 2.0))],
    };
    Some((name, vec![x], args))
}

fn whole_binary(draw: &mut Draw) -> Wish {
    let x = draw.pick(|value| !value.is_float())?;
    let y = draw.beside(x);
    let is_bool = draw.values[x].is(DType::Bool);
    let name = match is_bool {
        true => draw.one_of(&["bitwise_and", "bitwise_or", "bitwise_xor", "maximum"]),
        false => draw.one_of(&[
            "add",
            "sub",
            "mul",
            "maximum",
            "minimum",
            "bitwise_and",
            "bitwise_xor",
            "remainder",
        ]),
    };
    Some((name, vec![x, y], Vec::new()))
}

/// Discontinuous ops, on floats that are integers.
fn of_exact(draw: &mut Draw) -> Wish {
    let x = draw.pick(|value| value.is_float() && value.exact)?;
    let name = draw.one_of(&["sign", "floor", "ceil", "round", "trunc", "remainder"]);
    if name == "remainder" {
        let y = draw.beside(x);
        let zero = draw.values[y].low <= 0.0 && draw.values[y].high >= 0.0;
        return (!zero).then_some((name, vec![x, y], Vec::new()));
    }
    Some((name, vec![x], Vec::new()))
}

fn comparison(draw: &mut Draw) -> Wish {
    let x = draw.pick(|value| value.exact && !value.is(DType::Bool))?;
    if draw.values[x].is_float() && draw.rng.chance(0.3) {
        let number = draw.number(-2.0, 2.0);
        return Some(("gt_number", vec![x], vec![Arg::Number(number)]));
    }
    let y = draw.beside(x);
    Some((draw.one_of(&["lt", "ge", "eq", "ne"]), vec![x, y], Vec::new()))
}

fn choice(draw: &mut Draw) -> Wish {
    let condition = draw.pick(|value| value.is(DType::Bool))?;
    let shape = draw.values[condition].shape.clone();
    let x = draw.pick(|value| value.is_float() && super::broadcasts(&value.shape, &shape))?;
    let y = draw.beside(x);
    Some(("where_", vec![condition, x, y], Vec::new()))
}

fn mask(draw: &mut Draw) -> Wish {
    let mask = draw.pick(|value| value.is(DType::Bool))?;
    let shape = draw.values[mask].shape.clone();
    let x = draw.pick(|value| value.is_float() && super::broadcasts(&value.shape, &shape))?;
    let number = draw.number(-1.0, 1.0);
    Some(("masked_fill", vec![x, mask], vec![Arg::Number(number)]))
}

fn cast(draw: &mut Draw) -> Wish {
    let x = draw.pick(|_| true)?;
    let value = &draw.values[x];
    let to = match (value.is_float(), value.exact) {
        (true, true) => draw.one_of(&[DType::I64, DType::I32, DType::F32]),
        (true, false) if value.kind == Kind::Tested => {
            // F16 and BF16 leave little precision of a program in f64.
            let narrow = draw.rng.chance(0.15);
            let to = if narrow {
                draw.one_of(&[DType::F16, DType::BF16])
            } else {
                DType::F32
            };
            return Some(("to_dtype", vec![x], vec![Arg::Kind(Kind::Fixed(to))]));
        }
        (true, false) => return Some(("to_dtype", vec![x], vec![Arg::Kind(Kind::Tested)])),
        (false, _) => {
            let float = draw.rng.chance(0.7);
            let kind = if float {
                Kind::Tested
            } else {
                Kind::Fixed(draw.one_of(&[DType::I64, DType::I32, DType::Bool]))
            };
            return Some(("to_dtype", vec![x], vec![Arg::Kind(kind)]));
        }
    };
    Some(("to_dtype", vec![x], vec![Arg::Kind(Kind::Fixed(to))]))
}

fn logical(draw: &mut Draw) -> Wish {
    let x = draw.pick(|value| value.exact)?;
    let name = if draw.values[x].is_float() && draw.rng.chance(0.3) {
        "isfinite"
    } else {
        "logical_not"
    };
    Some((name, vec![x], Vec::new()))
}

fn powers(draw: &mut Draw) -> Wish {
    if draw.rng.chance(0.5) {
        let x = draw.float()?;
        let number = draw.one_of(&[2.0, 3.0]);
        return Some(("pow_number", vec![x], vec![Arg::Number(number)]));
    }
    let x = draw.positive()?;
    let y = draw.beside(x);
    Some(("pow", vec![x, y], Vec::new()))
}
