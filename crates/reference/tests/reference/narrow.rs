//! f16 and bf16: the fused ops compute in f32 and round once.

use polygrad_core::{Activation, AdamParams, Backend, CrossEntropyParams, DType, PoolParams, SgdParams};

use crate::tools::{R, T, normal, reals, vector, vector_of};

const NARROW: [DType; 2] = [DType::F16, DType::BF16];

/// Numbers large enough to overflow f16 when they are squared.
fn large(dims: &[usize], seed: u64, dtype: DType) -> T {
    R::cast(&R::mul_scalar(&normal(dims, seed), 300.0).unwrap(), dtype).unwrap()
}

fn small(dims: &[usize], seed: u64, dtype: DType) -> T {
    R::cast(&normal(dims, seed), dtype).unwrap()
}

/// Runs an op on tensors, and on the same tensors in f32, and compares each result.
#[track_caller]
fn assert_rounded_once<const N: usize>(inputs: [&T; N], f: impl Fn([&T; N]) -> Vec<T>) {
    let dtype = R::dtype(inputs[0]);
    let wide = inputs.map(|x| {
        if R::dtype(x).is_float() {
            R::cast(x, DType::F32).unwrap()
        } else {
            x.clone()
        }
    });
    let (found, expected) = (f(inputs), f(wide.each_ref()));
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(R::dtype(found), dtype, "output {i}");
        let expected = reals(&R::cast(expected, dtype).unwrap());
        assert_eq!(reals(found), expected, "output {i} in {dtype}");
    }
}

#[test]
fn activations() {
    for dtype in NARROW {
        let (x, grad) = (large(&[40], 1, dtype), small(&[40], 2, dtype));
        for op in [
            Activation::Gelu,
            Activation::GeluTanh,
            Activation::Silu,
            Activation::Softplus {
                beta: 0.7,
                threshold: 20.0,
            },
            Activation::Elu { alpha: 0.3 },
            Activation::LeakyRelu { slope: 0.01 },
            Activation::HardSwish {
                scale: 0.7,
                shift: -0.2,
            },
            Activation::Tanh,
            Activation::Sigmoid,
        ] {
            for x in [&x, &small(&[40], 3, dtype)] {
                assert_rounded_once([x], |[x]| vec![R::activation(op, x).unwrap()]);
                let saved = if op.saves_output() {
                    R::activation(op, x).unwrap()
                } else {
                    x.clone()
                };
                assert_rounded_once([&grad, &saved], |[g, x]| {
                    vec![R::activation_backward(op, g, x).unwrap()]
                });
            }
        }
    }
}

#[test]
fn softmax_and_cross_entropy() {
    for dtype in NARROW {
        let (x, grad) = (small(&[6, 50], 1, dtype), small(&[6, 50], 2, dtype));
        let y = R::softmax(&x, 1).unwrap();
        assert_rounded_once([&x], |[x]| {
            vec![R::softmax(x, 1).unwrap(), R::log_softmax(x, 1).unwrap()]
        });
        assert_rounded_once([&grad, &y], |[g, y]| vec![R::softmax_backward(g, y, 1).unwrap()]);
        let logs = R::log_softmax(&x, 1).unwrap();
        assert_rounded_once([&grad, &logs], |[g, y]| vec![R::log_softmax_backward(g, y, 1).unwrap()]);
        let params = CrossEntropyParams {
            label_smoothing: 0.1,
            ..CrossEntropyParams::default()
        };
        let target = vector(&[1i64, 0, 49, -100, 7, 3]);
        assert_rounded_once([&x], |[x]| {
            let (loss, logsumexp) = R::cross_entropy(x, &target, &params).unwrap();
            vec![loss, logsumexp]
        });
        let (loss, logsumexp) = R::cross_entropy(&x, &target, &params).unwrap();
        assert_rounded_once([&loss, &x, &logsumexp], |[g, x, l]| {
            vec![R::cross_entropy_backward(g, x, &target, l, &params).unwrap()]
        });
    }
}

#[test]
fn normalisations() {
    let three = |(a, b, c): (T, T, T)| vec![a, b, c];
    let two = |(a, b): (T, T)| vec![a, b];
    for dtype in NARROW {
        let (x, grad) = (large(&[4, 3, 9], 1, dtype), small(&[4, 3, 9], 2, dtype));
        let (w, b) = (small(&[9], 3, dtype), small(&[9], 4, dtype));
        assert_rounded_once([&x, &w, &b], |[x, w, b]| {
            three(R::layer_norm(x, Some(w), Some(b), 1, 1e-5).unwrap())
        });
        let (y, mean, rstd) = R::layer_norm(&x, Some(&w), None, 1, 1e-5).unwrap();
        assert!(reals(&y).iter().all(|y| y.is_finite()) && reals(&rstd).iter().all(|&r| r > 0.0));
        assert_rounded_once([&grad, &x, &mean, &rstd, &w], |[g, x, m, r, w]| {
            three(R::layer_norm_backward(g, x, m, r, Some(w), 1).unwrap())
        });
        assert_rounded_once([&x, &w], |[x, w]| two(R::rms_norm(x, Some(w), 1, 1e-5).unwrap()));
        let rstd = R::rms_norm(&x, None, 1, 1e-5).unwrap().1;
        assert_rounded_once([&grad, &x, &rstd], |[g, x, r]| {
            two(R::rms_norm_backward(g, x, r, None, 1).unwrap())
        });
        let (w, b) = (small(&[3], 3, dtype), small(&[3], 4, dtype));
        assert_rounded_once([&x, &w, &b], |[x, w, b]| {
            vec![R::batch_norm(x, Some(w), Some(b), 1e-5).unwrap().0]
        });
        // The statistics stay f32: the variance overflows f16.
        let (_, mean, var) = R::batch_norm(&x, None, None, 1e-5).unwrap();
        let (_, wide_mean, wide_var) = R::batch_norm(&R::cast(&x, DType::F32).unwrap(), None, None, 1e-5).unwrap();
        for (found, wide) in [(&mean, wide_mean), (&var, wide_var)] {
            assert_eq!((R::dtype(found), reals(found)), (DType::F32, reals(&wide)));
        }
        assert!(reals(&var).iter().all(|&var| var > 60_000.0));
        assert_rounded_once([&grad, &x, &mean, &var, &w], |[g, x, m, v, w]| {
            three(R::batch_norm_backward(g, x, m, v, Some(w), 1e-5).unwrap())
        });
    }
}

#[test]
fn attention_and_cells() {
    for dtype in NARROW {
        let (q, k, v) = (
            large(&[2, 5, 8], 1, dtype),
            large(&[2, 5, 8], 2, dtype),
            small(&[2, 5, 3], 3, dtype),
        );
        let mask = small(&[5, 5], 4, dtype);
        for scale in [1e-5, 0.3] {
            assert_rounded_once([&q, &k, &v, &mask], |[q, k, v, mask]| {
                vec![
                    R::attention(q, k, v, None, scale, true).unwrap(),
                    R::attention(q, k, v, Some(mask), scale, false).unwrap(),
                ]
            });
        }
        let grad = small(&[2, 5, 3], 9, dtype);
        assert_rounded_once([&grad, &q, &k, &v, &mask], |[g, q, k, v, mask]| {
            let (to_q, to_k, to_v) = R::attention_backward(g, q, k, v, Some(mask), 1e-5, true).unwrap();
            vec![to_q, to_k, to_v]
        });
        let (gates, cell) = (small(&[3, 16], 5, dtype), small(&[3, 4], 6, dtype));
        assert_rounded_once([&gates, &cell], |[g, c]| {
            let (h, c) = R::lstm_cell(g, c).unwrap();
            vec![h, c]
        });
        let (a, b) = (small(&[3, 12], 7, dtype), small(&[3, 12], 8, dtype));
        assert_rounded_once([&a, &b, &cell], |[a, b, h]| vec![R::gru_cell(a, b, h).unwrap()]);
    }
}

#[test]
fn means_of_windows_backwards() {
    let params = PoolParams::new([3; 3]);
    for dtype in NARROW {
        let shape = polygrad_core::Shape::from([1, 1, 9, 9]);
        let grad = small(&[1, 1, 3, 3], 1, dtype);
        assert_rounded_once([&grad], |[g]| vec![R::avg_pool_backward(g, shape, &params).unwrap()]);
    }
}

#[test]
fn steps() {
    for dtype in NARROW {
        let (param, grad) = (small(&[20], 1, dtype), small(&[20], 2, dtype));
        let (first, second) = (small(&[20], 3, dtype), vector_of(dtype, &[1e-3; 20]));
        let sgd = SgdParams {
            lr: 0.1,
            momentum: 0.9,
            dampening: 0.1,
            weight_decay: 0.01,
            nesterov: true,
            first: false,
        };
        assert_rounded_once([&param, &grad, &first], |[param, grad, buffer]| {
            let (mut param, mut buffer) = (param.clone(), buffer.clone());
            R::sgd_step(&mut param, grad, Some(&mut buffer), &sgd).unwrap();
            vec![param, buffer]
        });
        let adam = AdamParams {
            lr: 0.01,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.01,
            decoupled: true,
            step: 3,
        };
        assert_rounded_once([&param, &grad, &first, &second], |[param, grad, first, second]| {
            let (mut param, mut first, mut second, mut top) =
                (param.clone(), first.clone(), second.clone(), second.clone());
            R::adam_step(&mut param, grad, &mut first, &mut second, Some(&mut top), &adam).unwrap();
            vec![param, first, second, top]
        });
    }
}
