//! Convolution, pooling and their gradients.

use polygrad_core::{Activation, ConvParams, Op, PoolParams, Prepack};

use super::shape;
use crate::generated::fill::Fill;
use crate::generated::sample::{Operand, Sample};

fn reals(dims: &[usize]) -> Operand {
    Operand::drawn(dims, Fill::Range(-2.0, 2.0))
}

fn conv(samples: &mut Vec<Sample>) {
    let plain = ConvParams::default();
    let calls: [(&[usize], &[usize], ConvParams, &str); 8] = [
        (&[2, 3, 9], &[4, 3, 3], plain, ""),
        (
            &[1, 2, 7],
            &[2, 1, 3],
            ConvParams {
                stride: [2; 3],
                padding: [1; 3],
                groups: 2,
                ..plain
            },
            "stride 2 padding 1 groups 2",
        ),
        (&[2, 3, 6, 5], &[4, 3, 3, 2], plain, ""),
        (
            &[1, 4, 7, 7],
            &[6, 2, 3, 3],
            ConvParams {
                stride: [2, 1, 1],
                padding: [1, 2, 0],
                groups: 2,
                ..plain
            },
            "groups 2",
        ),
        (
            &[1, 2, 9, 8],
            &[3, 2, 3, 3],
            ConvParams {
                dilation: [2, 3, 1],
                padding: [2; 3],
                ..plain
            },
            "dilation",
        ),
        (
            &[2, 5, 4, 4],
            &[5, 1, 1, 1],
            ConvParams { groups: 5, ..plain },
            "depthwise 1x1",
        ),
        (
            &[1, 2, 4, 3, 5],
            &[3, 2, 2, 2, 3],
            ConvParams {
                padding: [1; 3],
                ..plain
            },
            "padding 1",
        ),
        (&[0, 2, 5], &[3, 2, 2], plain, "empty"),
    ];
    for (x, weight, params, words) in calls {
        let Ok(out) = params.output_shape(&shape(x), &shape(weight)) else {
            continue;
        };
        // Plain, with a bias, with an activation, and with everything.
        let (relu, silu) = (Some(Activation::Relu), Some(Activation::Silu));
        for (activation, more) in [(None, 0), (None, 1), (relu, 0), (silu, 2)] {
            let mut operands = vec![reals(x), reals(weight), reals(&weight[..1]), reals(out.dims())];
            operands.truncate(2 + more);
            let words = format!("{words} {}", activation.map_or("", Activation::name));
            samples.push(Sample::new(Op::Conv { activation, params }, operands, words.trim()));
        }
        let boxed = || Box::new(params);
        let call = Op::ConvInputGrad {
            input_shape: shape(x),
            params: boxed(),
        };
        samples.push(Sample::new(call, vec![reals(out.dims()), reals(weight)], words));
        let call = Op::ConvWeightGrad {
            weight_shape: shape(weight),
            params: boxed(),
        };
        samples.push(Sample::new(call, vec![reals(out.dims()), reals(x)], words));
    }
}

fn max_pool(params: PoolParams, positions: bool) -> Op {
    let params = Box::new(params);
    Op::MaxPool { params, positions }
}

fn pool(samples: &mut Vec<Sample>) {
    let two = PoolParams::new([2; 3]);
    let calls: [(&[usize], PoolParams, &str); 7] = [
        (&[2, 3, 8], two, "kernel 2"),
        (
            &[1, 2, 7],
            PoolParams {
                padding: [1; 3],
                stride: [2; 3],
                ..PoolParams::new([3; 3])
            },
            "kernel 3 stride 2 padding 1",
        ),
        (&[2, 2, 6, 5], two, "kernel 2"),
        (&[1, 2, 7, 6], PoolParams { ceil_mode: true, ..two }, "ceil mode"),
        (
            &[1, 2, 2, 3],
            PoolParams {
                stride: [4; 3],
                padding: [1; 3],
                ceil_mode: true,
                ..PoolParams::new([5, 6, 1])
            },
            "ceil mode, a window larger than its axis",
        ),
        (
            &[1, 1, 5, 6],
            PoolParams {
                stride: [1; 3],
                padding: [1; 3],
                count_include_pad: false,
                ..PoolParams::new([3, 2, 1])
            },
            "stride 1 padding 1",
        ),
        (&[1, 2, 4, 5, 3], two, "kernel 2"),
    ];
    for (x, params, words) in calls {
        let Ok(out) = params.output_shape(&shape(x)) else {
            continue;
        };
        for positions in [false, true] {
            let words = format!("{words}{}", if positions { "" } else { " values" });
            samples.push(Sample::new(max_pool(params, positions), vec![reals(x)], &words));
        }
        let indices = Operand::derived(out.dims(), max_pool(params, true), &[1], 1).of(polygrad_core::DType::I64);
        let call = Op::MaxPoolBackward { input_shape: shape(x) };
        samples.push(Sample::new(
            call,
            vec![reals(out.dims()), reals(x).fixed().helper(), indices],
            words,
        ));
        samples.push(Sample::new(Op::AvgPool(Box::new(params)), vec![reals(x)], words));
        let call = Op::AvgPoolBackward {
            input_shape: shape(x),
            params: Box::new(params),
        };
        samples.push(Sample::new(call, vec![reals(out.dims())], words));
    }
    let dilated = PoolParams {
        dilation: [2; 3],
        stride: [1; 3],
        ..two
    };
    for positions in [false, true] {
        let call = max_pool(dilated, positions);
        let words = if positions { "dilation 2" } else { "dilation 2 values" };
        samples.push(Sample::new(call, vec![reals(&[1, 2, 6, 7])], words));
    }
}

pub(super) fn add(samples: &mut Vec<Sample>) {
    samples.push(Sample::new(Op::Prepack(Prepack::Conv), vec![reals(&[4, 3, 2, 3])], ""));
    samples.push(Sample::new(
        Op::Prepack(Prepack::Memory),
        vec![reals(&[129, 130])],
        "memory",
    ));
    let operands = vec![
        reals(&[2, 3, 5, 6]),
        reals(&[4, 3, 2, 3]).fixed().helper(),
        Operand::derived(&[4, 3, 2, 3], Op::Prepack(Prepack::Conv), &[1], 0),
    ];
    let call = Op::Conv {
        activation: None,
        params: ConvParams::default(),
    };
    samples.push(Sample::new(call, operands, "prepacked"));
    conv(samples);
    pool(samples);
}
