//! Reductions, scans and matrix products.

use polygrad_core::{Activation, ArgOp, DType, Op, Prepack, ReduceOp};

use super::{axes, shape};
use crate::generated::fill::Fill;
use crate::generated::sample::{Operand, Sample};

const INTEGERS: &[DType] = &[DType::I64, DType::I32, DType::U8];
/// Integers whose products overflow every width, and values whose differences are lost if they are summed in f64.
const WIDE: Fill = Fill::Listed(&[
    65_537.0,
    -3.0,
    9.0e18,
    1e10,
    -7e15,
    255.0,
    4_503_599_627_370_497.0,
    -1.0,
    2_147_483_647.0,
]);
const FLOATS: &[DType] = &[DType::F64, DType::F32, DType::F16, DType::BF16];

/// Values whose product over a few dozen stays in range.
fn fill(op: ReduceOp) -> Fill {
    match op {
        ReduceOp::Prod => Fill::Away(0.7, 1.4),
        ReduceOp::Any | ReduceOp::All => Fill::Below(2),
        _ => Fill::Range(-5.0, 5.0),
    }
}

fn reductions(samples: &mut Vec<Sample>) {
    let calls: [(&[usize], &[usize]); 9] = [
        (&[], &[]),
        (&[9], &[0]),
        (&[3, 5], &[0]),
        (&[3, 5], &[1]),
        (&[2, 3, 4], &[0, 2]),
        (&[2, 3, 4], &[1]),
        (&[2, 3, 4], &[]),
        (&[4, 70], &[0, 1]),
        (&[0, 3], &[1]),
    ];
    for &op in ReduceOp::ALL {
        for (dims, list) in calls {
            for keepdims in [false, true] {
                let call = Op::Reduce {
                    op,
                    axes: axes(list),
                    keepdims,
                };
                let words = format!("axes {list:?}{}", if keepdims { " keepdims" } else { "" });
                samples.push(Sample::new(
                    call,
                    vec![Operand::drawn(dims, fill(op))],
                    &words.replace(", ", ","),
                ));
            }
        }
        let call = |list: &[usize]| Op::Reduce {
            op,
            axes: axes(list),
            keepdims: false,
        };
        if !op.needs_elements() {
            samples.push(Sample::new(
                call(&[0]),
                vec![Operand::drawn(&[0, 3], fill(op))],
                "empty",
            ));
        }
        if !matches!(op, ReduceOp::Any | ReduceOp::All) {
            let special = Operand::drawn(&[5, 14], Fill::Special);
            samples.push(
                Sample::new(call(&[0]), vec![special], "special")
                    .contiguous()
                    .only(FLOATS),
            );
        }
    }
    for &op in ArgOp::ALL {
        for (dims, axis) in [
            (&[9][..], 0),
            (&[3, 5], 0),
            (&[3, 5], 1),
            (&[2, 3, 4], 1),
            (&[0, 3], 1),
            (&[2, 70], 1),
        ] {
            // Few different values, since the first of a tie wins.
            let x = Operand::drawn(dims, Fill::Range(-3.9, 3.9));
            let keepdims = axis == 0;
            samples.push(Sample::new(
                Op::ArgReduce { op, axis, keepdims },
                vec![x],
                &format!("axis {axis}"),
            ));
        }
        let special = Operand::drawn(&[5, 14], Fill::Special);
        let call = Op::ArgReduce {
            op,
            axis: 1,
            keepdims: false,
        };
        samples.push(Sample::new(call, vec![special], "special").contiguous().only(FLOATS));
    }
}

fn products(samples: &mut Vec<Sample>) {
    let calls: [(&[usize], &[usize]); 10] = [
        (&[1, 1], &[1, 1]),
        (&[3, 4], &[4, 5]),
        (&[1, 7], &[7, 3]),
        (&[6, 2], &[2, 1]),
        (&[17, 33], &[33, 19]),
        (&[2, 3, 4], &[2, 4, 5]),
        (&[2, 1, 3, 4], &[3, 4, 2]),
        (&[0, 3], &[3, 2]),
        (&[2, 0], &[0, 3]),
        (&[5, 4], &[3, 4, 2]),
    ];
    for (a, b) in calls {
        let operands = [a, b].map(|dims| Operand::drawn(dims, Fill::Range(-2.0, 2.0)));
        samples.push(Sample::new(Op::Matmul, operands.to_vec(), ""));
        let wide = [a, b].map(|dims| Operand::drawn(dims, WIDE));
        samples.push(Sample::new(Op::Matmul, wide.to_vec(), "wrapping").only(INTEGERS));
    }
    for (x, weight, bias) in [
        (&[4, 3][..], &[5, 3][..], true),
        (&[4, 3], &[5, 3], false),
        (&[3], &[2, 3], true),
        (&[2, 3, 9], &[1, 9], true),
        (&[0, 3], &[2, 3], true),
    ] {
        let mut operands = [x, weight]
            .map(|dims| Operand::drawn(dims, Fill::Range(-2.0, 2.0)))
            .to_vec();
        if bias {
            operands.push(Operand::drawn(&weight[..1], Fill::Range(-2.0, 2.0)));
        }
        let leaky = Activation::LeakyRelu { slope: 0.1 };
        for activation in [None, Some(Activation::Relu), Some(Activation::Gelu), Some(leaky)] {
            let words = activation.map_or("", Activation::name);
            samples.push(Sample::new(Op::Linear { activation }, operands.clone(), words));
        }
    }
    // Leading axes, none, no rows, registers that are full and partial, and more rows than are summed at once. Those of
    // the latter are positive, since a sum near 0 shows the rounding errors of its terms.
    for (lead, outputs, inputs, least) in [
        (&[4][..], 5, 3, -2.0),
        (&[], 2, 3, -2.0),
        (&[2, 3], 1, 9, -2.0),
        (&[0], 2, 3, -2.0),
        (&[70], 83, 20, -2.0),
        (&[1100], 9, 5, 0.0),
    ] {
        let rows = |last| Operand::drawn(&[lead, &[last]].concat(), Fill::Range(least, 2.0));
        samples.push(Sample::new(Op::LinearWeightGrad, vec![rows(outputs), rows(inputs)], ""));
    }
    // Few rows, some, and more than one band; widths that do not fill a register, and more than one block of columns or
    // rows.
    for (rows, inputs, outputs) in [(1, 7, 5), (4, 33, 35), (200, 20, 70), (5, 800, 9), (6, 10, 1100)] {
        let real = |dims: &[usize]| Operand::drawn(dims, Fill::Range(-2.0, 2.0));
        // Small, as weights are if there are so many of them, since tanh shows the rounding errors of sums in the tens.
        let weight = || Operand::drawn(&[outputs, inputs], Fill::Range(-0.2, 0.2));
        let operands = vec![
            real(&[rows, inputs]),
            weight().fixed().helper(),
            Operand::derived(&[outputs, inputs], Op::Prepack(Prepack::Linear), &[1], 0),
            real(&[outputs]),
        ];
        for activation in [None, Some(Activation::Tanh)] {
            let words = format!("prepacked {}", activation.map_or("", Activation::name));
            samples.push(Sample::new(Op::Linear { activation }, operands.clone(), words.trim()));
        }
        samples.push(Sample::new(Op::Prepack(Prepack::Linear), vec![weight()], ""));
    }
}

pub(super) fn add(samples: &mut Vec<Sample>) {
    reductions(samples);
    products(samples);
    for (dims, axis) in [
        (&[9][..], 0),
        (&[3, 5], 0),
        (&[3, 5], 1),
        (&[2, 3, 4], 1),
        (&[0, 3], 0),
        (&[2, 130], 1),
    ] {
        let x = Operand::drawn(dims, Fill::Range(-2.0, 3.0));
        samples.push(Sample::new(Op::CumSum { axis }, vec![x], &format!("axis {axis}")));
    }
    for (from, to) in [
        (&[2, 3][..], &[3][..]),
        (&[2, 3], &[2, 1]),
        (&[2, 3, 4], &[3, 1]),
        (&[4], &[]),
        (&[3, 5], &[3, 5]),
        (&[0, 3], &[3]),
    ] {
        let x = Operand::drawn(from, Fill::Range(-3.0, 3.0));
        let words = format!("to {to:?}").replace(", ", ",");
        samples.push(Sample::new(Op::SumTo(shape(to)), vec![x], &words));
    }
    for parts in [&[&[3, 5][..]][..], &[&[], &[0, 3], &[130]], &[&[2, 3, 4], &[4]]] {
        let operands = parts.iter().map(|dims| Operand::drawn(dims, Fill::Range(-2.0, 2.0)));
        samples.push(Sample::new(Op::SquareSum, operands.collect(), ""));
    }
}
