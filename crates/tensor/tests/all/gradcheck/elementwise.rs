//! Element-wise ops and selection.

use polygrad_core::{Activation, BinaryOp, UnaryOp};
use polygrad_tensor::manual_seed;

use super::case::{Cases, Tensor, between, device, mixed, reals};

fn unary(cases: &mut Cases) {
    for &op in UnaryOp::ALL.iter().filter(|op| !op.is_predicate()) {
        let x = match op {
            UnaryOp::Log | UnaryOp::Sqrt | UnaryOp::Rsqrt => between(0.3, 2.0, [2, 3], 1),
            UnaryOp::Log1p => between(-0.6, 1.5, [2, 3], 1),
            UnaryOp::Tan => between(-1.2, 1.2, [2, 3], 1),
            _ => mixed([2, 3], 1),
        };
        cases.unary(op.name(), x, move |x| x.unary(op));
    }
}

fn binary(cases: &mut Cases) {
    let shapes: [(&[usize], &[usize]); 7] = [
        (&[2, 3], &[2, 3]),
        (&[2, 3], &[3]),
        (&[3], &[2, 3]),
        (&[2, 1], &[1, 3]),
        (&[], &[2, 2]),
        (&[2, 2], &[]),
        (&[0, 3], &[1, 3]),
    ];
    let logic = [BinaryOp::And, BinaryOp::Or, BinaryOp::Xor];
    for &op in BinaryOp::ALL.iter().filter(|op| !logic.contains(op)) {
        for (left, right) in shapes {
            let (a, b) = match op {
                BinaryOp::Pow => (between(0.4, 2.0, left, 1), between(-1.5, 2.5, right, 2)),
                _ => (mixed(left, 1), mixed(right, 2)),
            };
            cases.add(format!("{} {left:?} {right:?}", op.name()), [a, b], move |x| {
                x[0].binary(op, &x[1])
            });
        }
        let twice = if op == BinaryOp::Pow {
            between(0.5, 2.0, [3], 4)
        } else {
            mixed([3], 4)
        };
        if !matches!(op, BinaryOp::Maximum | BinaryOp::Minimum | BinaryOp::Remainder) {
            cases.unary(format!("{} with itself", op.name()), twice, move |x| x.binary(op, x));
        }
        for scalar in [-1.25, 0.75, 2.0] {
            for reverse in [false, true] {
                // The power of a negative base, or a negative base of a power, is not real.
                let x = if op == BinaryOp::Pow {
                    between(0.3, 1.9, [4], 3)
                } else {
                    mixed([4], 3)
                };
                if op == BinaryOp::Pow && reverse && scalar < 0.0 {
                    continue;
                }
                let name = format!("{} with {scalar}, reverse: {reverse}", op.name());
                cases.unary(name, x, move |x| x.binary_scalar(op, scalar, reverse));
            }
        }
    }
    for exponent in [0.0, 1.0, 2.0, 3.0] {
        let x = reals(&[-1.5, 0.0, 0.8], [3]);
        cases.unary(format!("pow_scalar {exponent} at 0 and below"), x, move |x| {
            x.pow(exponent)
        });
    }
    cases.unary("1 ^ x", mixed([3], 1), |x| x.binary_scalar(BinaryOp::Pow, 1.0, true));
    cases.unary("0 ^ x", between(0.5, 2.0, [3], 1), |x| {
        x.binary_scalar(BinaryOp::Pow, 0.0, true)
    });
    let (base, exponent) = (reals(&[0.0, 0.0, 1.5], [3]), reals(&[2.0, 3.0, 0.0], [3]));
    cases.unary("0 ^ exponent", exponent.clone(), move |b| base.pow(b));
    cases.unary("base ^ 0", reals(&[0.7, -1.5], [2]), |a| a.pow(reals(&[0.0, 2.0], [2])));
    let both = [reals(&[0.7, 1.5], [2]), reals(&[0.0, 1.0], [2])];
    cases.add("base ^ 0, both ways", both, |x| x[0].pow(&x[1]));
    for (left, right) in [(&[2, 3][..], &[2, 3][..]), (&[2, 1], &[3]), (&[], &[2])] {
        let inputs = [between(-3.0, 3.0, left, 1), mixed(right, 2)];
        cases.add(format!("fmod {left:?} {right:?}"), inputs, |x| x[0].fmod(&x[1]));
    }
    cases.unary("fmod by a number", mixed([4], 1), |x| x.fmod(-0.4));
    cases.unary("square", mixed([4], 2), Tensor::square);
    cases.unary("int tensor with float", mixed([3], 1), |x| {
        Tensor::new([1i64, 2, 3], &device())?.mul(x)
    });
}

fn choices(cases: &mut Cases) {
    let condition = || Tensor::new([[true], [false]], &device());
    cases.add("where", [mixed([3], 1), mixed([2, 3], 2)], move |x| {
        Tensor::where_(&condition()?, &x[0], &x[1])
    });
    cases.add("where of scalars", [mixed((), 1), mixed((), 2)], move |x| {
        Tensor::where_(&condition()?, &x[0], &x[1])
    });
    cases.unary("masked_fill", mixed([2, 3], 1), move |x| {
        x.masked_fill(&condition()?, 2.5)
    });
    cases.unary("masked_fill to a larger shape", mixed([3], 1), move |x| {
        x.masked_fill(&condition()?, 2.5)
    });
    for (min, max) in [
        (Some(-0.5), Some(0.5)),
        (Some(0.1), None),
        (None, Some(0.1)),
        (Some(1.0), Some(-1.0)),
    ] {
        cases.unary(format!("clamp {min:?} {max:?}"), mixed([6], 1), move |x| {
            x.clamp(min, max)
        });
    }
    let bounds = || {
        [
            mixed([2, 3], 1),
            between(-0.6, 0.1, [3], 2),
            between(0.3, 0.9, [2, 1], 3),
        ]
    };
    cases.add("clamp by tensors", bounds(), |x| x[0].clamp(Some(&x[1]), Some(&x[2])));
    cases.add("clamp by tensors in the wrong order", bounds(), |x| {
        x[0].clamp(Some(&x[2]), Some(&x[1]))
    });
    cases.add("clamp from below by a tensor", bounds(), |x| {
        x[0].clamp(Some(&x[1]), None)
    });
    cases.add("clamp from above by a tensor", bounds(), |x| {
        x[0].clamp(None, Some(&x[2]))
    });
    cases.unary("dropout", mixed([8], 1), |x| {
        manual_seed(3);
        x.dropout(0.4)
    });
    cases.unary("dropout of all", mixed([3], 1), |x| x.dropout(1.0));
    for diagonal in [-1, 0, 2] {
        cases.unary(format!("tril {diagonal}"), mixed([2, 3, 4], 1), move |x| {
            x.tril(diagonal)
        });
        cases.unary(format!("triu {diagonal}"), mixed([3, 3], 1), move |x| x.triu(diagonal));
    }
}

fn activations(cases: &mut Cases) {
    let ops = [
        Activation::Relu,
        Activation::Tanh,
        Activation::Sigmoid,
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Silu,
        Activation::Softplus {
            beta: 1.0,
            threshold: 20.0,
        },
        Activation::Softplus {
            beta: 2.0,
            threshold: 1.0,
        },
        Activation::Elu { alpha: 1.0 },
        Activation::Elu { alpha: 0.6 },
        Activation::LeakyRelu { slope: 0.01 },
        Activation::LeakyRelu { slope: -0.5 },
        Activation::HardSwish { scale: 1.0, shift: 0.0 },
        Activation::HardSwish {
            scale: 0.7,
            shift: -0.2,
        },
    ];
    for op in ops {
        cases.unary(format!("{op:?}"), mixed([2, 4], 3), move |x| x.activation(op));
        cases.unary(
            format!("{op:?} far out"),
            reals(&[-30.0, -8.0, 9.0, 25.0], [4]),
            move |x| x.activation(op),
        );
    }
}

/// Activations composed of other ops.
fn composed_activations(cases: &mut Cases) {
    type Function = fn(&Tensor) -> polygrad_tensor::Result<Tensor>;
    let functions: [(&str, Function); 9] = [
        ("mish", Tensor::mish),
        ("relu6", Tensor::relu6),
        ("hardsigmoid", Tensor::hardsigmoid),
        ("selu", Tensor::selu),
        ("logsigmoid", Tensor::logsigmoid),
        ("softsign", Tensor::softsign),
        ("hardtanh", |x| x.hardtanh(-0.5, 0.9)),
        ("celu", |x| x.celu(0.6)),
        ("glu", |x| x.glu(-1)),
    ];
    for (name, function) in functions {
        cases.unary(name, mixed([2, 4], 3), function);
        let far = reals(&[-30.0, -8.0, 9.0, 25.0], [4]);
        cases.unary(format!("{name} far out"), far, function);
    }
    cases.unary("celu of a negative alpha", mixed([4], 1), |x| x.celu(-1.5));
    cases.unary("glu along the first axis", mixed([4, 3], 1), |x| x.glu(0));
    for (shape, weights) in [(&[2, 3, 2][..], 3), (&[2, 3], 1), (&[4], 1), (&[], 1)] {
        let inputs = [mixed(shape, 1), mixed([weights], 2)];
        cases.add(format!("prelu {shape:?} {weights}"), inputs, |x| x[0].prelu(&x[1]));
    }
}

/// The rule is the derivative of the function only where values are clamped. Elsewhere it ignores the rounding.
fn rounding(cases: &mut Cases) {
    let far = || reals(&[-30.0, 40.0, 25.0, -50.0, 60.0, -70.0], [2, 3]);
    for (count, axis) in [(1, None), (2, Some(0)), (3, Some(-1))] {
        let scale = between(0.5, 1.5, [count], 2);
        let zero = reals(&[1.0, -2.0, 3.0][..count], [count]);
        cases.add(format!("fake_quantize {axis:?}"), [far(), scale, zero], move |x| {
            x[0].fake_quantize(&x[1], &x[2], [-8, 7], axis)
        });
    }
}

pub(crate) fn cases() -> Cases {
    let mut cases = Cases::default();
    unary(&mut cases);
    binary(&mut cases);
    choices(&mut cases);
    activations(&mut cases);
    composed_activations(&mut cases);
    rounding(&mut cases);
    cases
}
