//! Elementwise ops, and selections.

use polygrad_core::{BinaryOp, CompareOp, DType, Op, Scalar, UnaryOp};

use crate::generated::fill::Fill;
use crate::generated::sample::{Operand, Sample};

/// Arguments for which a function is defined, and not so steep that rounding of the argument dominates.
fn domain(op: UnaryOp) -> Fill {
    match op {
        UnaryOp::Log | UnaryOp::Sqrt | UnaryOp::Rsqrt => Fill::Range(0.1, 9.0),
        UnaryOp::Log1p => Fill::Range(-0.7, 6.0),
        UnaryOp::Tan => Fill::Range(-1.3, 1.3),
        UnaryOp::Reciprocal => Fill::Away(0.2, 5.0),
        UnaryOp::LogicalNot => Fill::Range(-1.9, 1.9),
        _ => Fill::Range(-5.0, 5.0),
    }
}

fn unary(samples: &mut Vec<Sample>) {
    for &op in UnaryOp::ALL {
        for shape in [&[][..], &[7], &[3, 5], &[2, 3, 4], &[0, 3], &[130]] {
            samples.push(Sample::new(Op::Unary(op), vec![Operand::drawn(shape, domain(op))], ""));
        }
        let special = Operand::drawn(&[15], Fill::Special);
        samples.push(
            Sample::new(Op::Unary(op), vec![special], "special")
                .contiguous()
                .only(FLOATS),
        );
    }
}

/// The dtypes with NaN and infinities.
const FLOATS: &[DType] = &[DType::F64, DType::F32, DType::F16, DType::BF16];

/// Shapes that broadcast.
const PAIRS: [(&[usize], &[usize]); 8] = [
    (&[], &[]),
    (&[6], &[6]),
    (&[3, 5], &[3, 5]),
    (&[2, 3, 4], &[4]),
    (&[3, 1], &[1, 5]),
    (&[], &[2, 3]),
    (&[0, 3], &[1, 3]),
    (&[4, 33], &[4, 33]),
];

fn operands(op: BinaryOp) -> (Fill, Fill) {
    match op {
        BinaryOp::Pow => (Fill::Range(0.3, 3.9), Fill::Range(-2.0, 3.9)),
        BinaryOp::Div | BinaryOp::Remainder => (Fill::Range(-9.0, 9.0), Fill::Away(1.0, 4.0)),
        _ => (Fill::Range(-6.0, 6.0), Fill::Range(-6.0, 6.0)),
    }
}

/// An integer that f64 cannot represent, and others around it.
const ODD: i64 = (1 << 53) + 1;
const AROUND: Fill = Fill::Listed(&[
    9_007_199_254_740_992.0,
    9_007_199_254_740_994.0,
    -9_007_199_254_740_992.0,
    4e18,
    -7.0,
]);

fn binary(samples: &mut Vec<Sample>) {
    for &op in BinaryOp::ALL {
        let (left, right) = operands(op);
        for (a, b) in PAIRS {
            let operands = vec![Operand::drawn(a, left.clone()), Operand::drawn(b, right.clone())];
            samples.push(Sample::new(Op::Binary(op), operands, ""));
        }
        // Each special value meets every other one.
        let operands = vec![
            Operand::drawn(&[14, 1], Fill::Special),
            Operand::drawn(&[14], Fill::Special),
        ];
        if op != BinaryOp::Remainder {
            samples.push(
                Sample::new(Op::Binary(op), operands, "special")
                    .contiguous()
                    .only(FLOATS),
            );
        }
        let zeros = vec![
            Operand::drawn(&[5], Fill::Range(-6.0, 6.0)),
            Operand::drawn(&[5], Fill::Below(1)),
        ];
        let integers = [DType::I32, DType::I64, DType::U8];
        samples.push(Sample::new(Op::Binary(op), zeros, "zero").contiguous().only(&integers));
        for scalar in [Scalar::Float(1.5), Scalar::Int(2), Scalar::Int(3)] {
            for reverse in [false, true] {
                let fill = if reverse { right.clone() } else { left.clone() };
                let call = Op::BinaryScalar { op, scalar, reverse };
                let side = if reverse { "left" } else { "right" };
                let words = format!("scalar {scalar} {side}");
                samples.push(Sample::new(call, vec![Operand::drawn(&[3, 7], fill)], &words));
            }
        }
        if op != BinaryOp::Pow {
            let scalar = Scalar::Int(ODD);
            let call = Op::BinaryScalar {
                op,
                scalar,
                reverse: false,
            };
            let operand = Operand::drawn(&[5], AROUND);
            samples.push(
                Sample::new(call, vec![operand], "beyond f64")
                    .contiguous()
                    .only(&[DType::I64]),
            );
        }
    }
}

fn comparisons(samples: &mut Vec<Sample>) {
    let close = Fill::Listed(&[-2.0, 0.0, 1.0, 3.0, 1.5]);
    for &op in CompareOp::ALL {
        for (a, b) in PAIRS {
            let operands = vec![
                Operand::drawn(a, close.clone()),
                Operand::drawn(b, Fill::Range(-2.0, 3.0)),
            ];
            samples.push(Sample::new(Op::Compare(op), operands, ""));
        }
        let operands = vec![
            Operand::drawn(&[14, 1], Fill::Special),
            Operand::drawn(&[14], Fill::Special),
        ];
        samples.push(
            Sample::new(Op::Compare(op), operands, "special")
                .contiguous()
                .only(FLOATS),
        );
        let call = Op::CompareScalar {
            op,
            scalar: Scalar::Int(ODD),
        };
        let operand = Operand::drawn(&[5], AROUND);
        samples.push(
            Sample::new(call, vec![operand], "beyond f64")
                .contiguous()
                .only(&[DType::I64]),
        );
        for scalar in [Scalar::Float(1.5), Scalar::Int(0), Scalar::Int(3)] {
            let operand = Operand::drawn(&[3, 7], close.clone());
            let words = format!("scalar {scalar}");
            samples.push(Sample::new(Op::CompareScalar { op, scalar }, vec![operand], &words));
        }
    }
}

pub(super) fn add(samples: &mut Vec<Sample>) {
    unary(samples);
    binary(samples);
    comparisons(samples);
    for (mask, a, b) in [
        (&[3, 5][..], &[3, 5][..], &[3, 5][..]),
        (&[3, 1], &[5], &[]),
        (&[], &[2, 3], &[3]),
        (&[0, 2], &[0, 2], &[2]),
    ] {
        let one = |shape| Operand::drawn(shape, Fill::Range(-6.0, 6.0));
        samples.push(Sample::new(Op::Select, vec![Operand::mask(mask), one(a), one(b)], ""));
    }
    for to in DType::ALL {
        for shape in [&[][..], &[3, 5], &[0]] {
            let words = format!("to {}", to.name());
            samples.push(Sample::new(
                Op::Cast(to),
                vec![Operand::drawn(shape, Fill::Range(0.0, 90.0))],
                &words,
            ));
        }
        let special = Operand::drawn(&[14], Fill::Special);
        let words = format!("special to {}", to.name());
        samples.push(
            Sample::new(Op::Cast(to), vec![special], &words)
                .contiguous()
                .only(FLOATS),
        );
    }
}
