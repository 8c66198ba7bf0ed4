//! Ops that update their tensors: the operands are the updated tensors, followed by the gradient, or the values to
//! write.

use polygrad_core::{AdamParams, Op, SgdParams};

use crate::generated::fill::Fill;
use crate::generated::sample::{Operand, Sample};

fn reals(dims: &[usize]) -> Operand {
    Operand::drawn(dims, Fill::Range(-2.0, 2.0))
}

fn moment(dims: &[usize]) -> Operand {
    Operand::drawn(dims, Fill::Range(0.1, 2.0))
}

pub(super) fn add(samples: &mut Vec<Sample>) {
    let sgd = SgdParams {
        lr: 0.1,
        momentum: 0.0,
        dampening: 0.0,
        weight_decay: 0.0,
        nesterov: false,
        first: false,
    };
    let adam = AdamParams {
        lr: 0.01,
        beta1: 0.9,
        beta2: 0.99,
        eps: 1e-3,
        weight_decay: 0.0,
        decoupled: false,
        step: 3,
    };
    for (dims, part, axis, start) in [
        (&[7][..], &[3][..], 0, 2),
        (&[3, 5], &[3, 1], 1, 4),
        (&[2, 3, 4], &[2, 3, 4], 1, 0),
        (&[2, 3, 4], &[1, 3, 4], 0, 0),
        (&[2, 5, 70], &[2, 2, 70], 1, 1),
        (&[0, 2], &[0, 1], 1, 1),
        (&[4], &[0], 0, 4),
    ] {
        let op = Op::SliceScatter { axis, start };
        samples.push(Sample::new(
            op,
            vec![reals(dims), reals(part)],
            &format!("{axis}, {start}"),
        ));
    }
    for dims in [&[][..], &[7], &[3, 5], &[0, 2], &[140]] {
        samples.push(Sample::new(Op::AccumulateGrad, vec![reals(dims), reals(dims)], ""));
        for (params, words) in [
            (sgd, "plain"),
            (
                SgdParams {
                    weight_decay: 0.05,
                    ..sgd
                },
                "weight decay",
            ),
        ] {
            samples.push(Sample::new(Op::SgdStep(params), vec![reals(dims), reals(dims)], words));
        }
        let momentum = SgdParams { momentum: 0.9, ..sgd };
        for (params, words) in [
            (momentum, "momentum"),
            (
                SgdParams {
                    first: true,
                    ..momentum
                },
                "momentum first",
            ),
            (
                SgdParams {
                    nesterov: true,
                    weight_decay: 0.05,
                    ..momentum
                },
                "nesterov",
            ),
            (
                SgdParams {
                    dampening: 0.3,
                    ..momentum
                },
                "dampening",
            ),
        ] {
            let operands = vec![reals(dims), reals(dims), reals(dims)];
            samples.push(Sample::new(Op::SgdStep(params), operands, words));
        }
        for (params, words) in [
            (adam, "adam"),
            (
                AdamParams {
                    weight_decay: 0.1,
                    ..adam
                },
                "adam weight decay",
            ),
            (
                AdamParams {
                    weight_decay: 0.1,
                    decoupled: true,
                    step: 1,
                    ..adam
                },
                "adamw",
            ),
        ] {
            let mut operands = vec![reals(dims), reals(dims), moment(dims), reals(dims)];
            samples.push(Sample::new(Op::AdamStep(params), operands.clone(), words));
            operands.insert(3, moment(dims));
            samples.push(Sample::new(Op::AdamStep(params), operands, &format!("{words} amsgrad")));
        }
    }
}
