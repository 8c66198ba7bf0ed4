//! Activation functions, softmax and their gradients.

use polygrad_core::{Activation, Op};

use crate::generated::fill::Fill;
use crate::generated::sample::{Operand, Sample};

const ACTIVATIONS: [(Activation, &str); 13] = [
    (Activation::Relu, ""),
    (Activation::Tanh, ""),
    (Activation::Sigmoid, ""),
    (Activation::Gelu, ""),
    (Activation::GeluTanh, "tanh"),
    (Activation::Silu, ""),
    (
        Activation::Softplus {
            beta: 1.0,
            threshold: 20.0,
        },
        "",
    ),
    (
        Activation::Softplus {
            beta: 2.0,
            threshold: 1.0,
        },
        "beta 2",
    ),
    (Activation::Elu { alpha: 0.7 }, ""),
    (Activation::LeakyRelu { slope: 0.01 }, ""),
    (Activation::LeakyRelu { slope: -0.5 }, "negative slope"),
    (Activation::HardSwish { scale: 1.0, shift: 0.0 }, ""),
    (
        Activation::HardSwish {
            scale: 0.7,
            shift: -0.2,
        },
        "scale 0.7",
    ),
];

/// An activation of these numbers, and its gradient.
fn both_ways(samples: &mut Vec<Sample>, op: Activation, words: &str, shape: &[usize], fill: Fill) {
    let words = format!("activation {} {words}", op.name());
    let x = Operand::drawn(shape, fill);
    samples.push(Sample::new(Op::Activation(op), vec![x.clone()], &words));
    let grad = Operand::drawn(shape, Fill::Range(-2.0, 2.0)).fixed();
    let operands = if op.saves_output() {
        let saved = Operand::derived(shape, Op::Activation(op), &[1], 0);
        vec![grad, x.helper(), saved]
    } else {
        vec![grad, x]
    };
    samples.push(Sample::new(Op::ActivationBackward(op), operands, &words));
}

/// At arguments for which the exponential overflows in f32, but not those for which it is subnormal, which some devices
/// treat as 0.
pub(super) fn add_far(samples: &mut Vec<Sample>) {
    let softplus = Activation::Softplus {
        beta: 1.0,
        threshold: f64::INFINITY,
    };
    for (op, words) in ACTIVATIONS.into_iter().chain([(softplus, "no threshold")]) {
        both_ways(samples, op, words, &[67], Fill::Range(-80.0, 300.0));
    }
}

pub(super) fn add(samples: &mut Vec<Sample>) {
    for (op, words) in ACTIVATIONS {
        for shape in [&[][..], &[9], &[3, 5], &[0, 2], &[131]] {
            both_ways(samples, op, words, shape, Fill::Away(0.02, 5.0));
        }
    }
    for (shape, axis) in [
        (&[7][..], 0),
        (&[3, 5], 1),
        (&[3, 5], 0),
        (&[2, 3, 4], 1),
        (&[4, 67], 1),
        (&[0, 3], 1),
    ] {
        let words = format!("axis {axis}");
        let x = || Operand::drawn(shape, Fill::Range(-4.0, 4.0));
        let grad = || Operand::drawn(shape, Fill::Range(-2.0, 2.0)).fixed();
        for (forward, backward) in [
            (Op::Softmax { axis }, Op::SoftmaxBackward { axis }),
            (Op::LogSoftmax { axis }, Op::LogSoftmaxBackward { axis }),
        ] {
            samples.push(Sample::new(forward.clone(), vec![x()], &words));
            let output = Operand::derived(shape, forward, &[1], 0);
            samples.push(Sample::new(backward, vec![grad(), x().helper(), output], &words));
        }
    }
}
