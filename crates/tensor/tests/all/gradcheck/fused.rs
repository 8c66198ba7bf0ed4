//! Softmax, losses, normalisations, attention and recurrent cells.

use polygrad_tensor::{Attention, BlockScheme, CrossEntropyParams};

use super::case::{Cases, Tensor, between, device, integers, mixed, reals};

fn softmaxes(cases: &mut Cases) {
    for axis in [0, 1, -1] {
        cases.unary(format!("softmax {axis}"), mixed([2, 3, 2], 1), move |x| x.softmax(axis));
        cases.unary(format!("log_softmax {axis}"), mixed([2, 3, 2], 1), move |x| {
            x.log_softmax(axis)
        });
    }
    cases.unary("softmax of a scalar", mixed((), 1), |x| x.softmax(0));
    cases.unary("softmax of nothing", mixed([2, 0], 1), |x| x.softmax(1));
    for label_smoothing in [0.0, 0.2, 1.0] {
        for ignore_index in [-100, 1] {
            for mean in [false, true] {
                let params = CrossEntropyParams {
                    ignore_index,
                    label_smoothing,
                    mean,
                };
                cases.unary(format!("cross_entropy, {params:?}"), mixed([4, 3], 1), move |x| {
                    x.cross_entropy(&integers(&[2, 1, 0, 1], [4]), &params)
                });
            }
        }
    }
}

fn rotations(cases: &mut Cases) {
    let (x, cos, sin) = (|| mixed([2, 3, 4], 1), || mixed([3, 2], 2), || mixed([3, 2], 3));
    let (c, s) = (cos(), sin());
    cases.unary("rotary", x(), move |x| x.rotary(&c, &s));
    cases.add("rotary with angles", [x(), cos(), sin()], |x| x[0].rotary(&x[1], &x[2]));
}

fn norms(cases: &mut Cases) {
    for (axes, inner) in [(1, &[3][..]), (2, &[2, 3])] {
        let x = || mixed([2, 2, 3], 1);
        let (w, b) = (|| mixed(inner, 2), || mixed(inner, 3));
        cases.unary(format!("layer_norm {axes}"), x(), move |x| {
            x.layer_norm(None, None, axes, 1e-2)
        });
        cases.add(format!("layer_norm {axes} weight"), [x(), w()], move |x| {
            x[0].layer_norm(Some(&x[1]), None, axes, 1e-2)
        });
        cases.add(format!("layer_norm {axes} bias"), [x(), b()], move |x| {
            x[0].layer_norm(None, Some(&x[1]), axes, 1e-2)
        });
        cases.add(format!("layer_norm {axes} both"), [x(), w(), b()], move |x| {
            x[0].layer_norm(Some(&x[1]), Some(&x[2]), axes, 1e-2)
        });
        cases.unary(format!("rms_norm {axes}"), x(), move |x| x.rms_norm(None, axes, 1e-2));
        cases.add(format!("rms_norm {axes} weight"), [x(), w()], move |x| {
            x[0].rms_norm(Some(&x[1]), axes, 1e-2)
        });
    }
    for shape in [&[4, 2][..], &[2, 2, 3], &[2, 1, 2, 2]] {
        let channels = shape[1];
        let x = || mixed(shape, 1);
        let (w, b) = (|| mixed([channels], 2), || mixed([channels], 3));
        cases.unary(format!("batch_norm {shape:?}"), x(), |x| {
            Ok(x.batch_norm(None, None, 1e-2)?.0)
        });
        cases.add(format!("batch_norm {shape:?} weight"), [x(), w()], |x| {
            Ok(x[0].batch_norm(Some(&x[1]), None, 1e-2)?.0)
        });
        cases.add(format!("batch_norm {shape:?} bias"), [x(), b()], |x| {
            Ok(x[0].batch_norm(None, Some(&x[1]), 1e-2)?.0)
        });
        let running = || (between(-1.0, 1.0, [channels], 5), between(0.5, 2.0, [channels], 6));
        let (mean, var) = running();
        cases.unary(format!("batch_norm_running {shape:?}"), x(), move |x| {
            x.batch_norm_running(&mean, &var, None, None, 1e-2)
        });
        let (mean, var) = running();
        let inputs = [x(), mean, var, w(), b()];
        cases.add(format!("batch_norm_running {shape:?} of all"), inputs, |x| {
            x[0].batch_norm_running(&x[1], &x[2], Some(&x[3]), Some(&x[4]), 1e-2)
        });
        cases.add(format!("batch_norm {shape:?} both"), [x(), w(), b()], |x| {
            Ok(x[0].batch_norm(Some(&x[1]), Some(&x[2]), 1e-2)?.0)
        });
    }
}

fn grouped_norms(cases: &mut Cases) {
    for (shape, groups) in [(&[3, 4][..], 2), (&[2, 4, 3], 1), (&[2, 4, 1, 2], 4)] {
        let x = || mixed(shape, 1);
        let (w, b) = (|| mixed([4], 2), || mixed([4], 3));
        let name = format!("group_norm {shape:?} in {groups}");
        cases.unary(name.clone(), x(), move |x| x.group_norm(groups, None, None, 1e-2));
        cases.add(format!("{name} with a weight"), [x(), w()], move |x| {
            x[0].group_norm(groups, Some(&x[1]), None, 1e-2)
        });
        cases.add(format!("{name} with a bias"), [x(), b()], move |x| {
            x[0].group_norm(groups, None, Some(&x[1]), 1e-2)
        });
        cases.add(format!("{name} with both"), [x(), w(), b()], move |x| {
            x[0].group_norm(groups, Some(&x[1]), Some(&x[2]), 1e-2)
        });
        if shape.len() > 2 {
            cases.add(format!("instance_norm {shape:?}"), [x(), w(), b()], |x| {
                x[0].instance_norm(Some(&x[1]), Some(&x[2]), 1e-2)
            });
        }
    }
}

fn attention(cases: &mut Cases) {
    let inputs = || [mixed([2, 2, 3], 1), mixed([2, 4, 3], 2), mixed([2, 4, 2], 3)];
    for causal in [false, true] {
        for scale in [None, Some(0.4)] {
            cases.add(
                format!("attention, causal: {causal}, scale {scale:?}"),
                inputs(),
                move |x| x[0].scaled_dot_product_attention(&x[1], &x[2], Attention::new().causal(causal).scale(scale)),
            );
        }
        let name = format!("attention with a mask, causal: {causal}");
        cases.add(name, inputs(), move |x| {
            let mask = Tensor::new([[true, false, true, true], [false, false, false, false]], &device())?;
            x[0].scaled_dot_product_attention(&x[1], &x[2], Attention::new().mask(&mask).causal(causal))
        });
        let name = format!("attention with a fixed bias, causal: {causal}");
        cases.add(name, inputs(), move |x| {
            let hidden = f64::NEG_INFINITY;
            let mask = reals(&[0.3, hidden, -0.7, 0.2, hidden, hidden, hidden, hidden], [2, 4]);
            x[0].scaled_dot_product_attention(&x[1], &x[2], Attention::new().mask(&mask).causal(causal))
        });
        let [q, k, v] = inputs();
        let name = format!("attention with a bias, causal: {causal}");
        cases.add(name, [q, k, v, mixed([2, 4], 4)], move |x| {
            x[0].scaled_dot_product_attention(&x[1], &x[2], Attention::new().mask(&x[3]).causal(causal))
        });
    }
    // The first two queries see no key.
    let inputs = [mixed([4, 3], 1), mixed([2, 3], 2), mixed([2, 2], 3)];
    cases.add("attention with fewer keys than queries", inputs, |x| {
        x[0].scaled_dot_product_attention(&x[1], &x[2], Attention::new().causal(true))
    });
}

/// Keys and values that all heads share.
fn shared_keys(cases: &mut Cases) {
    let inputs = [mixed([2, 2, 3], 1), mixed([2, 1, 2, 3], 2), mixed([2, 2], 3)];
    cases.add("attention of several ranks", inputs, |x| {
        x[0].scaled_dot_product_attention(&x[1], &x[2], Attention::new().causal(true))
    });
    let inputs = [mixed([2, 2, 2, 3], 1), mixed([2, 1, 2, 3], 2), mixed([1, 1, 2, 2], 3)];
    cases.add("attention with broadcast keys", inputs, |x| {
        x[0].scaled_dot_product_attention(&x[1], &x[2], Attention::new().causal(true))
    });
    // Four heads of queries for two heads of keys.
    for mask in [[1, 4, 2, 3], [1, 1, 2, 3]] {
        let inputs = [
            mixed([1, 4, 2, 2], 1),
            mixed([1, 2, 3, 2], 2),
            mixed([1, 2, 3, 2], 3),
            mixed(mask, 4),
        ];
        cases.add(format!("grouped attention with a mask {mask:?}"), inputs, |x| {
            x[0].scaled_dot_product_attention(&x[1], &x[2], Attention::new().mask(&x[3]).causal(true))
        });
    }
    let inputs = || [mixed([1, 4, 1, 2], 1), mixed([1, 2, 3, 2], 2), mixed([1, 2, 3, 3], 3)];
    cases.add("grouped attention of a single query", inputs(), |x| {
        x[0].scaled_dot_product_attention(&x[1], &x[2], Attention::new().causal(true))
    });
    for mask in [[1, 4, 1, 3], [1, 1, 1, 3]] {
        let [q, k, v] = inputs();
        let name = format!("grouped attention of a single query with a mask {mask:?}");
        cases.add(name, [q, k, v, mixed(mask, 4)], |x| {
            x[0].scaled_dot_product_attention(&x[1], &x[2], Attention::new().mask(&x[3]))
        });
    }
    let inputs = [mixed([4, 2, 2], 1), mixed([2, 3, 2], 2), mixed([2, 3], 3)];
    cases.add("attention weights", inputs, |x| {
        x[0].attention_weights(&x[1], Attention::new().mask(&x[2]).scale(0.7))
    });
}

/// All outputs of an LSTM layer, each with its own weight; for one step, several steps, and in reverse.
fn sequences(cases: &mut Cases) {
    for (steps, reverse, biased) in [(3, false, true), (2, true, false), (1, true, true)] {
        let inputs = [
            mixed([steps, 2, 3], 1),
            mixed([2, 2], 2),
            mixed([2, 2], 3),
            mixed([8, 3], 4),
            mixed([8, 2], 5),
            mixed([8], 6),
            mixed([8], 7),
        ];
        cases.add(format!("lstm_sequence of {steps}"), inputs, move |x| {
            let biases = biased.then(|| [&x[5], &x[6]]);
            let done = x[0].lstm_sequence((&x[1], &x[2]), [&x[3], &x[4]], biases, reverse)?;
            let (outputs, hidden, cell) = done.expect("the backend computes it");
            (outputs.sum([0])? * 0.5)?.add(&(hidden * 0.25)?)?.add(&(cell * 2.0)?)
        });
    }
}

fn cells(cases: &mut Cases) {
    let inputs = || [mixed([2, 8], 1), mixed([2, 2], 2)];
    cases.add("lstm_cell, hidden state", inputs(), |x| Ok(x[0].lstm_cell(&x[1])?.0));
    cases.add("lstm_cell, cell state", inputs(), |x| Ok(x[0].lstm_cell(&x[1])?.1));
    cases.add("lstm_cell twice", inputs(), |x| {
        let (hidden, cell) = x[0].lstm_cell(&x[1])?;
        let (hidden, cell) = (&x[0] * &hidden.repeat(&[1, 4])?)?.lstm_cell(&cell)?;
        hidden.add(&cell)
    });
    let inputs = [mixed([2, 6], 1), mixed([2, 6], 2), mixed([2, 2], 3)];
    cases.add("gru_cell", inputs, |x| x[0].gru_cell(&x[1], &x[2]));
    cases.add("cells of nothing", [mixed([0, 8], 1), mixed([0, 2], 2)], |x| {
        x[0].lstm_cell(&x[1])?
            .0
            .add(&x[0].narrow(1, 0, 6)?.gru_cell(&x[0].narrow(1, 1, 6)?, &x[1])?)
    });
}

pub(crate) fn cases() -> Cases {
    let mut cases = Cases::default();
    softmaxes(&mut cases);
    rotations(&mut cases);
    norms(&mut cases);
    grouped_norms(&mut cases);
    attention(&mut cases);
    shared_keys(&mut cases);
    cells(&mut cases);
    sequences(&mut cases);
    blocks(&mut cases);
    cases
}

fn blocks(cases: &mut Cases) {
    for (bits, size, zero) in [(4, 16, false), (4, 32, true), (8, 16, true)] {
        let scheme = BlockScheme::new(bits, size).unwrap();
        let count = 2 * scheme.bytes();
        let bytes: Vec<u8> = (0..3 * count).map(|i| (i * 37 % 256) as u8).collect();
        let weight = polygrad_tensor::Tensor::from_vec(bytes, [3, count], &device()).unwrap();
        let scales = between(0.01, 0.05, [3, 2], 4);
        let zeros = match zero {
            true => between(3.0, 9.0, [3, 2], 5),
            false => polygrad_tensor::Tensor::from_vec(vec![8u8], [1], &device()).unwrap(),
        };
        cases.unary(
            format!("quantized_linear, {scheme:?}"),
            mixed([2, 2 * size], 1),
            move |x| x.quantized_linear([&weight, &scales, &zeros], scheme),
        );
    }
}
