//! Losses, normalisations, attention and recurrent cells, with their gradients.

use polygrad_core::{Activation, CrossEntropyParams, Op};

use crate::generated::fill::Fill;
use crate::generated::sample::{Operand, Sample};

fn reals(dims: &[usize]) -> Operand {
    Operand::drawn(dims, Fill::Range(-2.0, 2.0))
}

/// Values of which no two slices along an axis are alike, so that no variance vanishes.
fn spread(dims: &[usize]) -> Operand {
    reals(dims).fixed()
}

fn cross_entropy(samples: &mut Vec<Sample>) {
    for (rows, classes, label_smoothing) in [(4, 5, 0.0), (3, 7, 0.1), (0, 3, 0.0), (1, 1, 0.0)] {
        for mean in [false, true] {
            let params = CrossEntropyParams {
                ignore_index: 0,
                label_smoothing,
                mean,
            };
            let logits = || reals(&[rows, classes]);
            let target = || Operand::index(&[rows], classes);
            let words = format!("smoothing {label_smoothing}{}", if mean { " mean" } else { "" });
            let forward = Op::CrossEntropy(params);
            samples.push(Sample::new(forward.clone(), vec![logits(), target()], &words));
            let lse = Operand::derived(&[rows], forward, &[1, 2], 1);
            let grad = if mean { reals(&[]) } else { reals(&[rows]) };
            let operands = vec![grad, logits(), target(), lse];
            samples.push(Sample::new(Op::CrossEntropyBackward(params), operands, &words));
        }
    }
}

fn layer_norm(samples: &mut Vec<Sample>) {
    for (dims, axes) in [(&[4, 6][..], 1), (&[2, 3, 5], 2), (&[2, 3, 4], 1), (&[3, 70], 1)] {
        let inner = &dims[dims.len() - axes..];
        let kept: Vec<usize> = (0..dims.len())
            .map(|i| if i < dims.len() - axes { dims[i] } else { 1 })
            .collect();
        let words = format!("axes {axes}");
        let (layer, rms) = (Op::LayerNorm { axes, eps: 1e-5 }, Op::RmsNorm { axes, eps: 1e-5 });
        for affine in [0, 1, 2] {
            let mut operands = vec![spread(dims)];
            operands.extend((0..affine).map(|_| reals(inner)));
            if affine < 2 {
                samples.push(Sample::new(rms.clone(), operands.clone(), &words));
            }
            samples.push(Sample::new(layer.clone(), operands, &words));
        }
        for weighted in [false, true] {
            let weight = weighted.then(|| reals(inner));
            let saved = |op: &Op, output| Operand::derived(&kept, op.clone(), &[1], output);
            let mut operands = vec![reals(dims).fixed(), spread(dims), saved(&layer, 1), saved(&layer, 2)];
            operands.extend(weight.clone());
            samples.push(Sample::new(Op::LayerNormBackward { axes }, operands, &words));
            let mut operands = vec![reals(dims).fixed(), spread(dims), saved(&rms, 1)];
            operands.extend(weight);
            samples.push(Sample::new(Op::RmsNormBackward { axes }, operands, &words));
        }
    }
}

fn batch_norm(samples: &mut Vec<Sample>) {
    for dims in [&[6, 3][..], &[3, 2, 5], &[2, 3, 4, 3]] {
        let channels = [dims[1]];
        let forward = Op::BatchNorm { eps: 1e-5 };
        for affine in [0, 1, 2] {
            let mut operands = vec![spread(dims)];
            operands.extend((0..affine).map(|_| reals(&channels)));
            samples.push(Sample::new(forward.clone(), operands, ""));
        }
        for affine in [0, 1, 2] {
            let positive = Operand::drawn(&channels, Fill::Range(0.1, 2.0));
            let mut operands = vec![spread(dims), reals(&channels), positive];
            operands.extend((0..affine).map(|_| reals(&channels)));
            samples.push(Sample::new(Op::BatchNormRunning { eps: 1e-5 }, operands, ""));
        }
        for weighted in [false, true] {
            let saved = |output| Operand::derived(&channels, forward.clone(), &[1], output);
            let mut operands = vec![reals(dims).fixed(), spread(dims), saved(1), saved(2)];
            operands.extend(weighted.then(|| reals(&channels)));
            samples.push(Sample::new(Op::BatchNormBackward { eps: 1e-5 }, operands, ""));
        }
    }
}

/// Attention and its gradient. In the third shape the first queries see no key if it is causal; in the last one all
/// heads share keys.
fn attention(samples: &mut Vec<Sample>) {
    for (q, k, v) in [
        ([1, 2, 4, 3], [1, 2, 4, 3], [1, 2, 4, 5]),
        ([2, 1, 2, 4], [2, 1, 5, 4], [2, 1, 5, 4]),
        ([1, 1, 5, 4], [1, 1, 3, 4], [1, 1, 3, 2]),
        ([2, 3, 2, 4], [2, 1, 3, 4], [2, 1, 3, 3]),
    ] {
        let (rows, columns) = (q[2], k[2]);
        let masks = [
            (None, ""),
            (Some(Operand::mask(&[rows, columns])), "bool mask"),
            (Some(reals(&[rows, columns])), "float mask"),
        ];
        for (mask, words) in masks {
            for causal in [false, true] {
                let words = [words, if causal { "causal" } else { "" }].join(" ");
                let (scale, words) = (0.5, words.trim());
                let operands = || [reals(&q), reals(&k), reals(&v)].into_iter().chain(mask.clone());
                let forward = Op::Attention { scale, causal };
                samples.push(Sample::new(forward, operands().collect(), words));
                let grad = reals(&[q[0], q[1], rows, v[3]]);
                let backward = Op::AttentionBackward { scale, causal };
                samples.push(Sample::new(
                    backward,
                    [grad].into_iter().chain(operands()).collect(),
                    words,
                ));
            }
        }
    }
}

/// Rotary positions; the last shape has pairs that fill a register and some that do not.
fn rotary(samples: &mut Vec<Sample>) {
    for (x, angles) in [
        (&[4][..], &[2][..]),
        (&[2, 3, 5, 4], &[5, 2]),
        (&[2, 2, 3, 6], &[2, 1, 3, 3]),
        (&[0, 3, 2], &[3, 1]),
        (&[2, 3, 42], &[3, 21]),
    ] {
        let operands = vec![reals(x), reals(angles), reals(angles)];
        samples.push(Sample::new(Op::Rotary, operands, ""));
    }
}

/// The steps of an LSTM, and their gradient.
fn lstm_steps(samples: &mut Vec<Sample>) {
    for ([steps, rows, inputs, width], reverse, biased) in [
        ([3, 2, 4, 3], false, true),
        ([10, 1, 1, 2], true, false),
        ([1, 2, 3, 17], false, true),
    ] {
        let forward = Op::LstmSteps { reverse };
        let words = if reverse { "reverse" } else { "" };
        let mut operands = vec![
            reals(&[steps, rows, inputs]),
            reals(&[rows, width]),
            reals(&[rows, width]),
            reals(&[4 * width, inputs]),
            reals(&[4 * width, width]),
        ];
        operands.extend(biased.then(|| reals(&[4 * width])));
        samples.push(Sample::new(forward, operands, words));
        let share = |dims: &[usize]| Operand::drawn(dims, Fill::Range(0.1, 0.9));
        let operands = vec![
            reals(&[steps, rows, 2 * width]),
            reals(&[rows, width]),
            reals(&[4 * width, width]),
            reals(&[steps, rows, 2 * width]),
            share(&[steps, rows, 4 * width]),
        ];
        samples.push(Sample::new(Op::LstmStepsBackward { reverse }, operands, words));
    }
}

/// Layers over sequences, with an activation for the Elman network.
fn sequences(samples: &mut Vec<Sample>) {
    let layers = |reverse: bool, activation: Activation| {
        [
            (Op::Rnn { activation, reverse }, 1, 1),
            (Op::Lstm { reverse }, 4, 2),
            (
                Op::Gru {
                    reset_after: true,
                    reverse,
                },
                3,
                1,
            ),
            (
                Op::Gru {
                    reset_after: false,
                    reverse,
                },
                3,
                1,
            ),
        ]
    };
    for ([steps, rows, inputs, width], reverse, activation, biased) in [
        ([3, 2, 4, 3], false, Activation::Tanh, true),
        ([2, 1, 3, 2], true, Activation::Relu, false),
        ([1, 2, 2, 3], true, Activation::Tanh, true),
    ] {
        for (op, gates, states) in layers(reverse, activation) {
            let mut operands = vec![reals(&[steps, rows, inputs])];
            operands.extend((0..states).map(|_| reals(&[rows, width])));
            operands.extend([reals(&[gates * width, inputs]), reals(&[gates * width, width])]);
            operands.extend((0..if biased { 2 } else { 0 }).map(|_| reals(&[gates * width])));
            let resets_before = matches!(op, Op::Gru { reset_after: false, .. });
            let form = match (resets_before, reverse) {
                (false, false) => "",
                (false, true) => "reverse",
                (true, false) => "reset before",
                (true, true) => "reset before, reverse",
            };
            samples.push(Sample::new(op, operands, form));
        }
    }
}

pub(super) fn add(samples: &mut Vec<Sample>) {
    cross_entropy(samples);
    layer_norm(samples);
    batch_norm(samples);
    attention(samples);
    rotary(samples);
    sequences(samples);
    lstm_steps(samples);
    for (rows, width) in [(2, 3), (1, 9), (0, 2)] {
        let operands = vec![reals(&[rows, 4 * width]), reals(&[rows, width])];
        samples.push(Sample::new(Op::LstmCell, operands, ""));
        let operands = vec![
            reals(&[rows, 3 * width]),
            reals(&[rows, 3 * width]),
            reals(&[rows, width]),
        ];
        samples.push(Sample::new(Op::GruCell, operands, ""));
    }
}
