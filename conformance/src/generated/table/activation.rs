//! Activation functions, softmax and their gradients.

use polygrad_core::{Activation, Op};

use crate::generated::fill::Fill;
use crate::generated::sample::{Operand, Sample};

const ACTIVATIONS: [(Activation, &str); 12] = [
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
    (
        Activation::Softplus {
            beta: 1.0,
            threshold: f64::INFINITY,
        },
        "no threshold",
    ),
    (Activation::Elu { alpha: 0.7 }, ""),
    (Activation::LeakyRelu { slope: 0.01 }, ""),
    (Activation::LeakyRelu { slope: -0.5 }, "negative slope"),
];

pub(super) fn add(samples: &mut Vec<Sample>) {
    for (op, words) in ACTIVATIONS {
        let words = format!("activation {} {words}", op.name());
        let near = [&[][..], &[9], &[3, 5], &[0, 2], &[131]].map(|shape| (shape, 5.0));
        // Behind where the exponential overflows in f32.
        for (shape, most) in near.into_iter().chain([(&[67][..], 300.0)]) {
            let x = Operand::drawn(shape, Fill::Away(0.02, most));
            samples.push(Sample::new(Op::Activation(op), vec![x.clone()], &words));
            let grad = Operand::drawn(shape, Fill::Range(-2.0, 2.0)).fixed();
            let saved = if op.saves_output() {
                Operand::derived(shape, Op::Activation(op), &[1], 0)
            } else {
                x.clone()
            };
            let operands = if op.saves_output() {
                vec![grad, x.helper(), saved]
            } else {
                vec![grad, saved]
            };
            samples.push(Sample::new(Op::ActivationBackward(op), operands, &words));
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
