//! Products of bytes.

use polygrad_core::{BinaryOp, BlockScheme, ConvParams, DType, Op, Prepack};

use crate::generated::fill::Fill;
use crate::generated::sample::{Operand, Sample};

fn bytes(dims: &[usize]) -> Operand {
    Operand::drawn(dims, Fill::Below(256))
}

/// The ends of the range, for which, among others, sums of two products exceed 16 bits.
fn extremes(dims: &[usize]) -> Operand {
    Operand::drawn(dims, Fill::Listed(&[255.0, 0.0, 255.0, 255.0, 128.0, 0.0, 0.0]))
}

fn zero(value: &'static [f64]) -> Operand {
    Operand::drawn(&[1], Fill::Listed(value))
}

/// A zero point beside sums of another dtype.
fn byte(value: &'static [f64]) -> Operand {
    zero(value).of(DType::U8)
}

fn products(samples: &mut Vec<Sample>) {
    // Numbers of terms that do and do not fill words of two and four bytes; one row and more than a tile; one column
    // and more than a panel; leading axes that broadcast; empty operands.
    let calls: [(&[usize], &[usize]); 10] = [
        (&[1, 1], &[1, 1]),
        (&[3, 4], &[4, 5]),
        (&[1, 7], &[7, 40]),
        (&[2, 3], &[3, 33]),
        (&[29, 131], &[131, 70]),
        (&[2, 3, 5], &[5, 6]),
        (&[2, 1, 3, 4], &[3, 4, 2]),
        (&[5, 4], &[3, 4, 2]),
        (&[0, 3], &[3, 2]),
        (&[2, 0], &[0, 3]),
    ];
    for (a, b) in calls {
        let (m, n) = (a[a.len() - 2], b[b.len() - 1]);
        let each = vec![bytes(a), bytes(b), bytes(&[m]), bytes(&[n])];
        samples.push(Sample::new(Op::MatmulU8, each, ""));
        for (left, right, words) in [
            (&[0.0][..], &[128.0][..], "zero 128"),
            (&[0.0], &[0.0], "zero 0"),
            (&[255.0], &[3.0], "zero 255"),
        ] {
            let all = vec![extremes(a), extremes(b), zero(left), zero(right)];
            samples.push(Sample::new(Op::MatmulU8, all, words));
        }
    }
    for (m, k, n) in [(1, 9, 33), (5, 64, 20), (30, 7, 5)] {
        let weight = || bytes(&[k, n]).fixed();
        let operands = vec![
            bytes(&[m, k]),
            weight().helper(),
            Operand::derived(&[k, n], Op::Prepack(Prepack::MatmulU8), &[1], 0),
            zero(&[7.0]),
            bytes(&[n]),
        ];
        samples.push(Sample::new(Op::MatmulU8, operands, "prepacked"));
        samples.push(Sample::new(Op::Prepack(Prepack::MatmulU8), vec![weight()], ""));
    }
}

fn convolutions(samples: &mut Vec<Sample>) {
    let plain = ConvParams::default();
    let spread = ConvParams {
        stride: [2, 1, 1],
        padding: [1, 2, 0],
        groups: 2,
        ..plain
    };
    let wide = ConvParams {
        dilation: [2, 3, 1],
        padding: [2; 3],
        ..plain
    };
    let calls: [(&[usize], &[usize], ConvParams, &str); 9] = [
        (&[2, 3, 9], &[4, 3, 3], plain, ""),
        (&[2, 3, 16, 15], &[5, 3, 3, 2], plain, ""),
        (&[1, 4, 7, 7], &[6, 2, 3, 3], spread, "groups 2"),
        (&[1, 2, 9, 8], &[3, 2, 3, 3], wide, "dilation"),
        (&[2, 5, 6, 7], &[13, 5, 1, 1], plain, "pointwise"),
        (
            &[2, 5, 6, 7],
            &[5, 1, 3, 3],
            ConvParams {
                groups: 5,
                padding: [1; 3],
                ..plain
            },
            "depthwise",
        ),
        (
            &[1, 3, 9, 9],
            &[6, 1, 3, 3],
            ConvParams {
                groups: 3,
                stride: [2; 3],
                padding: [1; 3],
                ..plain
            },
            "depthwise stride 2",
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
        let call = || Op::ConvU8(Box::new(params));
        let each = vec![bytes(x), bytes(weight), zero(&[131.0]), bytes(&weight[..1])];
        samples.push(Sample::new(call(), each, words));
        let weights = || bytes(weight).fixed();
        let packed = Operand::derived(weight, Op::Prepack(Prepack::ConvU8), &[1], 0);
        let all = vec![
            bytes(x),
            weights().helper(),
            packed,
            zero(&[131.0]),
            bytes(&weight[..1]),
        ];
        samples.push(Sample::new(call(), all, format!("{words} prepacked").trim()));
        samples.push(Sample::new(Op::Prepack(Prepack::ConvU8), vec![weights()], ""));
        let words = format!("{words} zero 128");
        let all = vec![extremes(x), extremes(weight), zero(&[0.0]), zero(&[128.0])];
        samples.push(Sample::new(call(), all, words.trim()));
        for count in [1, weight[0]] {
            let of = |low: f64, high: f64| Operand::drawn(&[count], Fill::Range(low, high));
            let mut all = vec![bytes(x), bytes(weight), zero(&[131.0]), bytes(&weight[..1])];
            all.extend([of(1e-4, 2e-3).of(DType::F32), byte(&[90.0])]);
            if count > 1 {
                all.push(of(-3e4, 3e4).of(DType::I32));
            }
            samples.push(Sample::new(Op::ConvRequantizeU8(Box::new(params)), all, &words));
        }
    }
}

/// Scales whose products with sums are exact in f32, so that no float is next to a half by rounding alone.
const SCALES: &[f64] = &[9.765625e-4, 1.46484375e-3, 4.8828125e-4, 1.220703125e-4];

/// Products whose sums become bytes or floats at once.
fn rescaled_products(samples: &mut Vec<Sample>) {
    let of = |count: usize, low: f64, high: f64| Operand::drawn(&[count], Fill::Range(low, high));
    // A row where it lies, and packed; more columns than a block has, more rows than a tile; nothing.
    let calls: [(&[usize], &[usize]); 7] = [
        (&[1, 7], &[7, 40]),
        (&[3, 4], &[4, 5]),
        (&[29, 131], &[131, 70]),
        (&[14, 9], &[9, 523]),
        (&[2, 3, 5], &[5, 6]),
        (&[2, 1, 3, 4], &[3, 4, 2]),
        (&[0, 3], &[3, 2]),
    ];
    for (a, b) in calls {
        let (k, n) = (b[b.len() - 2], b[b.len() - 1]);
        let packs = b.len() == 2;
        for (packed, scales, biases, words) in [
            (false, 1, None, ""),
            (packs, n, Some(1), "bias"),
            (false, n, Some(n), "bias"),
            (packs, 1, Some(n), "bias"),
        ] {
            let mut all = vec![bytes(a)];
            if packed {
                let kind = Op::Prepack(Prepack::MatmulU8);
                all.extend([bytes(b).fixed().helper(), Operand::derived(&[k, n], kind, &[1], 0)]);
            } else {
                all.push(bytes(b));
            }
            let scale = Operand::drawn(&[scales], Fill::Listed(SCALES)).of(DType::F32);
            all.extend([zero(&[131.0]), bytes(&[n]), scale]);
            let mut requantized = all.clone();
            requantized.push(byte(&[90.0]));
            if let Some(count) = biases {
                let mut summed = all.clone();
                summed.push(of(count, -3e4, 3e4).of(DType::I32));
                samples.push(Sample::new(Op::MatmulRescaleU8, summed, "bias of sums"));
                all.push(of(count, -2.0, 2.0).of(DType::F32));
                requantized.push(of(count, -3e4, 3e4).of(DType::I32));
            }
            samples.push(Sample::new(Op::MatmulRescaleU8, all, words));
            samples.push(Sample::new(Op::MatmulRequantizeU8, requantized, words));
        }
    }
    // Halves, which go to even, and numbers that are cut off.
    let listed = |dims: &[usize], values: &'static [f64]| Operand::drawn(dims, Fill::Listed(values));
    let halves = listed(&[9, 1], &[1.0, 3.0, 5.0, 7.0, 9.0, 251.0, 253.0, 255.0, 0.0]);
    let scale = listed(&[4], &[0.5, -0.5, 2.5, -2.5]).of(DType::F32);
    let all = vec![
        halves,
        listed(&[1, 4], &[1.0]),
        zero(&[0.0]),
        zero(&[0.0]),
        scale,
        byte(&[2.0]),
    ];
    samples.push(Sample::new(Op::MatmulRequantizeU8, all, "halves"));
}

/// Conversions between floats and bytes.
fn conversions(samples: &mut Vec<Sample>) {
    let scale = || Operand::drawn(&[1], Fill::Listed(&[0.0173])).of(DType::F32);
    for dims in [&[3, 70][..], &[2, 3, 4, 7], &[], &[0, 3]] {
        let reals = Operand::drawn(dims, Fill::Range(-3.0, 3.0));
        samples.push(Sample::new(Op::QuantizeU8, vec![reals, scale(), byte(&[121.0])], ""));
        let all = vec![bytes(dims), scale(), byte(&[121.0])];
        samples.push(Sample::new(Op::DequantizeU8, all, ""));
        for (dtype, words) in [(DType::U8, "of bytes"), (DType::F32, "of floats")] {
            let table = Operand::drawn(&[256], Fill::Range(0.0, 255.0)).of(dtype);
            samples.push(Sample::new(Op::LookupU8, vec![bytes(dims), table], words));
        }
    }
    // Of equal shapes, one number for each of some rows, for each column, and for all; sums that are cut off. Products
    // by these scales are exact.
    for (a, b) in [
        (&[3, 70][..], &[3, 70][..]),
        (&[2, 3, 5, 7], &[2, 3, 1, 1]),
        (&[2, 1, 1], &[2, 3, 35]),
        (&[4, 70], &[70]),
        (&[3, 1], &[1, 5]),
        (&[3, 40], &[1]),
        (&[], &[2]),
        (&[0, 3], &[3]),
        (&[0, 3], &[1]),
    ] {
        for (op, scales, words) in [
            (BinaryOp::Add, [&[0.75][..], &[0.4375][..]], "sum"),
            (BinaryOp::Mul, [&[0.011_718_75], &[1.0]], "product"),
        ] {
            let [left, right] = scales.map(|scale| Operand::drawn(&[1], Fill::Listed(scale)).of(DType::F32));
            let all = vec![
                bytes(a),
                bytes(b),
                byte(&[121.0]),
                byte(&[7.0]),
                left,
                right,
                byte(&[90.0]),
            ];
            samples.push(Sample::new(Op::BinaryRequantizeU8 { op }, all, words));
        }
    }
    // Of both signs and of one, all 0, NaN and infinities, more than a task's share.
    let drawn = |dims: &[usize], low, high| Operand::drawn(dims, Fill::Range(low, high));
    for x in [
        drawn(&[3, 70], -3.0, 5.0),
        drawn(&[], 0.5, 3.0),
        drawn(&[2, 40_000], -4.0, -1.0),
        Operand::drawn(&[2, 3], Fill::Listed(&[0.0])),
        Operand::drawn(&[40], Fill::Special),
    ] {
        samples.push(Sample::new(Op::DynamicQuantizeU8, vec![x], ""));
    }
    // Halves, which go to even, and numbers that are cut off.
    let halves = Fill::Listed(&[0.5, 1.5, 2.5, -0.5, -1.5, 254.5, 255.5, 6e4, -6e4]);
    let one = Operand::drawn(&[1], Fill::Listed(&[1.0])).of(DType::F32);
    let all = vec![Operand::drawn(&[2, 9], halves), one, byte(&[2.0])];
    samples.push(Sample::new(Op::QuantizeU8, all, "halves"));
    let special = Operand::drawn(&[40], Fill::Special);
    samples.push(Sample::new(
        Op::QuantizeU8,
        vec![special, scale(), byte(&[7.0])],
        "special",
    ));
}

/// Weights of few bits in blocks.
fn blocks(samples: &mut Vec<Sample>) {
    // One row, some, and more than a band; rows that do not fill a register, and blocks that fill several; empty
    // operands.
    let calls: [(&[usize], usize, usize, usize, usize); 13] = [
        (&[1], 5, 2, 4, 32),
        (&[], 33, 3, 4, 32),
        (&[1], 70, 9, 4, 16),
        (&[1], 6, 3, 4, 256),
        (&[3], 9, 5, 4, 64),
        (&[2, 5], 37, 18, 4, 32),
        (&[130], 35, 3, 4, 16),
        (&[1], 7, 3, 8, 32),
        (&[4], 9, 5, 8, 16),
        (&[1, 6], 34, 3, 8, 128),
        (&[0], 3, 1, 4, 32),
        (&[2], 0, 1, 8, 32),
        // Interleaved rows.
        (&[3], 32, 3, 4, 32),
    ];
    for (lead, n, count, bits, size) in calls {
        let scheme = BlockScheme::new(bits, size).expect("bits and sizes of the list above are schemes");
        let k = count * size;
        let call = |transposed| Op::QuantizedLinear { scheme, transposed };
        let (words, factors) = match n {
            32 => (vec![n / 16, k / 32 * bits, 64], vec![n / 16, count, 16]),
            _ => (vec![n, k / 8 * bits], vec![n, count]),
        };
        for (each, zeros, floats) in [
            (false, DType::U8, DType::F32),
            (true, DType::U8, DType::F16),
            (true, DType::F32, DType::F32),
        ] {
            let most = 1 << bits;
            let zero = match each {
                true => Operand::drawn(&factors, Fill::Below(most)),
                false => Operand::drawn(&[1], Fill::Listed(if bits == 4 { &[8.0] } else { &[128.0] })),
            };
            let scales = Operand::drawn(&factors, Fill::Range(-1.0 / most as f64, 2.0 / most as f64));
            for transposed in [false, true] {
                let x = [lead, &[if transposed { n } else { k }]].concat();
                let operands = vec![
                    Operand::drawn(&x, Fill::Range(-2.0, 2.0)),
                    bytes(&words).of(DType::U8),
                    scales.clone().of(floats),
                    zero.clone().of(zeros),
                ];
                let words = format!(
                    "{bits} bits {size} {zeros} {floats}{}",
                    if transposed { " transposed" } else { "" }
                );
                let sample = Sample::new(call(transposed), operands, &words);
                samples.push(if floats == DType::F16 {
                    sample
                } else {
                    sample.contiguous()
                });
            }
        }
    }
}

/// Numbers quantized to integers and back; each is exact in every dtype, and none is near the middle between two
/// integers.
fn fake(samples: &mut Vec<Sample>) {
    let listed = |dims: &[usize], values: &'static [f64]| Operand::drawn(dims, Fill::Listed(values));
    const NUMBERS: &[f64] = &[-2.0625, 0.3125, 9.0, 0.8125, 0.0, -0.1875, 1.0625, -9.0];
    for (dims, axis, count) in [
        (&[3, 7][..], 0, 1),
        (&[3, 7], 0, 3),
        (&[3, 7], 1, 7),
        (&[2, 3, 4, 5], 1, 3),
        (&[], 0, 1),
        (&[0, 3], 1, 3),
    ] {
        let bounds = [-8, 7];
        let operands = vec![
            listed(dims, NUMBERS),
            listed(&[count], &[0.25, 0.5, 0.125]),
            listed(&[count], &[2.0, 0.0, -3.0]),
        ];
        samples.push(Sample::new(
            Op::FakeQuantize { bounds, axis },
            operands,
            &format!("axis {axis}"),
        ));
    }
}

pub(super) fn add(samples: &mut Vec<Sample>) {
    products(samples);
    convolutions(samples);
    rescaled_products(samples);
    conversions(samples);
    blocks(samples);
    fake(samples);
}
