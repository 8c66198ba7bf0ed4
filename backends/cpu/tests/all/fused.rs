//! Fused ops against the reference's decompositions, over dtypes and layouts.

use crate::common::{self, View, check, floats, integers, tensor, viewed};
use polygrad_core::{
    AdamParams, AnyBackend, AnyDevice, AnyTensor, Axes, Backend, CrossEntropyParams, DType, Distribution, Prepack,
    RandomKey, Result, SgdParams, Shape,
};
use polygrad_cpu::{Cpu, CpuDevice, Kernels};

const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];
const FEW_VIEWS: [View; 3] = [View::Contiguous, View::Permuted, View::Stepped];

#[test]
fn softmax_and_its_relatives_agree() {
    for dtype in FLOATS {
        for dims in [&[5][..], &[3, 4], &[2, 33, 5], &[7, 1], &[0, 4], &[3, 1500]] {
            for axis in 0..dims.len() {
                for view in FEW_VIEWS {
                    check(&format!("softmax {dtype} {dims:?} {axis} {view:?}"), 10.0, &|d| {
                        let (x, g) = (viewed(d, dims, dtype, 1, view)?, viewed(d, dims, dtype, 2, view)?);
                        let (y, z) = (AnyBackend::softmax(&x, axis)?, AnyBackend::log_softmax(&x, axis)?);
                        let dy = AnyBackend::softmax_backward(&g, &y, axis)?;
                        let dz = AnyBackend::log_softmax_backward(&g, &z, axis)?;
                        Ok(vec![y, z, dy, dz])
                    });
                }
            }
        }
    }
    let infinity = f32::INFINITY;
    for odd in [
        [1000.0, -1000.0, 0.0],
        [-infinity, 1.0, 2.0],
        [-infinity; 3],
        [infinity, 1.0, 2.0],
        [f32::NAN, 1.0, 2.0],
        [2.0, 1.0, f32::NAN],
    ] {
        check(&format!("softmax of {odd:?}"), 10.0, &|d| {
            let x = floats(d, &odd)?;
            Ok(vec![AnyBackend::softmax(&x, 0)?, AnyBackend::log_softmax(&x, 0)?])
        });
    }
}

#[test]
fn cross_entropy_agrees() {
    for dtype in FLOATS {
        for (rows, classes) in [(1, 2), (4, 10), (33, 17), (5, 1), (3, 1200), (0, 4)] {
            for label_smoothing in [0.0, 0.1] {
                let params = CrossEntropyParams {
                    label_smoothing,
                    ..CrossEntropyParams::default()
                };
                for view in FEW_VIEWS {
                    check(
                        &format!("cross_entropy {dtype} {rows}x{classes} {params:?} {view:?}"),
                        10.0,
                        &|d| {
                            let x = viewed(d, &[rows, classes], dtype, 1, view)?;
                            let classes = (0..rows).map(|i| if i % 5 == 3 { -100 } else { (i * 7 % classes) as i64 });
                            let target = integers(d, &[rows], classes.collect())?;
                            let (loss, lse) = AnyBackend::cross_entropy(&x, &target, &params)?;
                            let grad = AnyBackend::expand(&tensor(d, &[1], dtype, 2)?, Shape::from([rows]))?;
                            let dx = AnyBackend::cross_entropy_backward(&grad, &x, &target, &lse, &params)?;
                            Ok(vec![loss, lse, dx])
                        },
                    );
                }
            }
        }
    }
    for class in [-1, 3, i64::MAX] {
        check(&format!("class {class}"), 0.0, &|d| {
            let (x, target) = (tensor(d, &[2, 3], DType::F32, 1)?, integers(d, &[2], vec![1, class])?);
            Ok(vec![
                AnyBackend::cross_entropy(&x, &target, &CrossEntropyParams::default())?.0,
            ])
        });
    }
}

#[test]
fn norms_agree() {
    for dtype in FLOATS {
        for (dims, axes) in [
            (&[3, 8][..], 1),
            (&[2, 5, 7], 1),
            (&[2, 5, 7], 2),
            (&[100, 33], 1),
            (&[4, 1], 1),
            (&[2, 1300], 1),
        ] {
            let inner = &dims[dims.len() - axes..];
            for view in FEW_VIEWS {
                for parameters in 0..3 {
                    check(
                        &format!("layer_norm {dtype} {dims:?} {axes} {view:?} {parameters}"),
                        30.0,
                        &|d| {
                            let (x, g) = (viewed(d, dims, dtype, 1, view)?, viewed(d, dims, dtype, 2, view)?);
                            let (w, b) = (viewed(d, inner, dtype, 3, view)?, viewed(d, inner, dtype, 4, view)?);
                            let (w, b) = ((parameters > 0).then_some(&w), (parameters > 1).then_some(&b));
                            let (y, mean, rstd) = AnyBackend::layer_norm(&x, w, b, axes, 1e-2)?;
                            let (dx, dw, db) = AnyBackend::layer_norm_backward(&g, &x, &mean, &rstd, w, axes)?;
                            let (z, r) = AnyBackend::rms_norm(&x, w, axes, 1e-2)?;
                            let (dz, dv) = AnyBackend::rms_norm_backward(&g, &x, &r, w, axes)?;
                            Ok(vec![y, mean, rstd, dx, dw, db, z, r, dz, dv])
                        },
                    );
                }
            }
        }
    }
}

#[test]
fn batch_norm_agrees() {
    for dtype in FLOATS {
        for dims in [
            &[6, 3][..],
            &[4, 3, 9],
            &[5, 4, 6, 7],
            &[2, 2, 3, 4, 5],
            &[9, 2, 40, 40],
        ] {
            let channels = &dims[1..2];
            for view in FEW_VIEWS {
                for parameters in 0..3 {
                    check(
                        &format!("batch_norm {dtype} {dims:?} {view:?} {parameters}"),
                        40.0,
                        &|d| {
                            let (x, g) = (viewed(d, dims, dtype, 1, view)?, viewed(d, dims, dtype, 2, view)?);
                            let (w, b) = (
                                viewed(d, channels, dtype, 3, view)?,
                                viewed(d, channels, dtype, 4, view)?,
                            );
                            let (w, b) = ((parameters > 0).then_some(&w), (parameters > 1).then_some(&b));
                            let (y, mean, var) = AnyBackend::batch_norm(&x, w, b, 1e-2)?;
                            let (dx, dw, db) = AnyBackend::batch_norm_backward(&g, &x, &mean, &var, w, 1e-2)?;
                            // The sums are as large as there are elements.
                            let scale = 1.0 / (dims.iter().product::<usize>() as f64);
                            Ok(vec![
                                y,
                                mean,
                                var,
                                dx,
                                AnyBackend::mul_scalar(&dw, scale)?,
                                AnyBackend::mul_scalar(&db, scale)?,
                            ])
                        },
                    );
                }
            }
        }
    }
}

#[test]
fn embeddings_agree() {
    for dtype in FLOATS {
        for padding_idx in [None, Some(0), Some(4)] {
            check(&format!("embedding {dtype} {padding_idx:?}"), 4.0, &|d| {
                let weight = viewed(d, &[5, 70], dtype, 1, View::Permuted)?;
                let index = integers(d, &[2, 3], vec![4, 0, 1, 4, 4, 2])?;
                let y = AnyBackend::embedding(&weight, &index, padding_idx)?;
                let grad = AnyBackend::embedding_backward(&y, &index, 5, padding_idx)?;
                Ok(vec![y, grad])
            });
        }
    }
}

#[test]
fn recurrent_cells_agree() {
    for dtype in FLOATS {
        check(&format!("cells {dtype}"), 10.0, &|d| {
            let (gates, cell) = (tensor(d, &[3, 20], dtype, 1)?, tensor(d, &[3, 5], dtype, 2)?);
            let (hidden, new) = AnyBackend::lstm_cell(&gates, &cell)?;
            let gates = tensor(d, &[3, 15], dtype, 3)?;
            Ok(vec![
                hidden,
                new,
                AnyBackend::gru_cell(&gates, &tensor(d, &[3, 15], dtype, 4)?, &cell)?,
            ])
        });
    }
}

/// Three steps of an optimizer, with the parameter shared by somebody else at first.
fn steps(
    d: &AnyDevice,
    dtype: DType,
    states: usize,
    step: impl Fn(&mut AnyTensor, &AnyTensor, &mut [AnyTensor], u64) -> Result<()>,
) -> Result<Vec<AnyTensor>> {
    let start = viewed(d, &[3, 50], dtype, 1, View::Permuted)?;
    let mut param = start.clone();
    let mut state = vec![AnyBackend::zeros(Shape::from([3, 50]), dtype, d)?; states];
    for i in 0..3 {
        step(
            &mut param,
            &viewed(d, &[3, 50], dtype, 2 + i, View::Stepped)?,
            &mut state,
            i,
        )?;
    }
    Ok([vec![start, param], state].concat())
}

#[test]
fn optimizer_steps_agree() {
    for dtype in FLOATS {
        for (momentum, nesterov, dampening, weight_decay) in [
            (0.0, false, 0.0, 0.0),
            (0.0, false, 0.0, 0.1),
            (0.9, false, 0.1, 0.0),
            (0.9, true, 0.0, 0.1),
        ] {
            check(
                &format!("sgd {dtype} {momentum} {nesterov} {weight_decay}"),
                10.0,
                &|d| {
                    steps(d, dtype, usize::from(momentum > 0.0), |param, grad, state, i| {
                        let params = SgdParams {
                            lr: 0.1,
                            momentum,
                            dampening,
                            weight_decay,
                            nesterov,
                            first: i == 0,
                        };
                        AnyBackend::sgd_step(param, grad, state.first_mut(), &params)
                    })
                },
            );
        }
        for (decoupled, weight_decay, largest) in [
            (false, 0.0, false),
            (false, 0.1, true),
            (true, 0.1, false),
            (true, 0.1, true),
        ] {
            check(
                &format!("adam {dtype} {decoupled} {weight_decay} {largest}"),
                10.0,
                &|d| {
                    steps(d, dtype, if largest { 3 } else { 2 }, |param, grad, state, i| {
                        let params = AdamParams {
                            lr: 0.1,
                            beta1: 0.9,
                            beta2: 0.99,
                            eps: 1e-3,
                            weight_decay,
                            decoupled,
                            step: i + 1,
                        };
                        let [first, second, rest @ ..] = state else {
                            unreachable!("two states or three")
                        };
                        AnyBackend::adam_step(param, grad, first, second, rest.first_mut(), &params)
                    })
                },
            );
        }
    }
}

/// Rows go through the steps in parts, one for each thread.
#[test]
fn the_number_of_threads_changes_no_bit_of_an_lstm() {
    let (steps, rows, inputs, width) = (11, 35, 6, 18);
    let results: Vec<Vec<Vec<f32>>> = [1, 2, 3]
        .into_iter()
        .map(|threads| {
            let d = common::cpu(threads, Kernels::Simd);
            let random = |dims: &[usize], seed| viewed(&d, dims, DType::F32, seed, View::Contiguous).unwrap();
            let (x, hidden, cell) = (
                random(&[steps, rows, inputs], 1),
                random(&[rows, width], 2),
                random(&[rows, width], 3),
            );
            let weights = [random(&[4 * width, inputs], 4), random(&[4 * width, width], 5)];
            let grad = random(&[steps, rows, 2 * width], 6);
            let weights = [&weights[0], &weights[1]];
            let (states, activations) = AnyBackend::lstm_steps(&x, &hidden, &cell, weights, None, false).unwrap();
            let (gates, to_hidden, to_cell) =
                AnyBackend::lstm_steps_backward(&grad, &cell, weights[1], &states, &activations, false).unwrap();
            [states, activations, gates, to_hidden, to_cell]
                .map(|y| AnyBackend::to_host(&y).unwrap().to_vec::<f32>().unwrap())
                .to_vec()
        })
        .collect();
    assert!(results[0] == results[1] && results[0] == results[2]);
}

#[test]
fn a_weight_that_is_packed_for_rows_multiplies_as_it_does_otherwise() {
    for kernels in [Kernels::Scalar, Kernels::Simd] {
        let device = CpuDevice::new(1, kernels).unwrap();
        let random = |dims: &[usize], seed| {
            let normal = Distribution::Normal { mean: 0.0, std: 1.0 };
            let key = RandomKey { seed, offset: 0 };
            Cpu::random(Shape::new(dims).unwrap(), normal, DType::F32, key, &device).unwrap()
        };
        let values = |x: &<Cpu as Backend>::Tensor| Cpu::to_host(x).unwrap().to_vec::<f32>().unwrap();
        let turned = Cpu::permute(&random(&[33, 70], 1), Axes::new([1, 0]).unwrap()).unwrap();
        for weight in [random(&[70, 33], 2), turned] {
            let packed = Cpu::prepack(&weight, Prepack::LinearRows).unwrap();
            assert_eq!(values(&packed), values(&weight));
            // As single rows, as tiles, and as more than one band of them.
            for rows in [1, 3, 5, 200] {
                let x = random(&[rows, 33], 3);
                let wanted = values(&Cpu::linear(&x, &weight, None, None).unwrap());
                let found = values(&Cpu::linear(&x, &packed, None, None).unwrap());
                let differs = |(a, b): (&f32, &f32)| (a - b).abs() > 1e-5 * a.abs().max(1.0);
                assert!(!wanted.iter().zip(&found).any(differs), "{device} {rows}");
            }
        }
    }
}

#[test]
fn tensors_in_huge_pages_keep_their_values() {
    let device = CpuDevice::new(1, Kernels::Simd).unwrap();
    let bytes = |x: &<Cpu as Backend>::Tensor| Cpu::to_host(x).unwrap().bytes().to_vec();
    let normal = Distribution::Normal { mean: 0.0, std: 9.0 };
    let mut kept = Vec::new();
    // One that stays where it is, two that share a block, one with a block of its own.
    for (seed, rows) in [3, 300, 301, 9000].into_iter().enumerate() {
        let key = RandomKey {
            seed: seed as u64,
            offset: 0,
        };
        let x = Cpu::random(Shape::from([rows, 256]), normal, DType::F32, key, &device).unwrap();
        let turned = Cpu::permute(&x, Axes::new([1, 0]).unwrap()).unwrap();
        for x in [x, turned] {
            for dtype in [DType::F32, DType::F16, DType::U8] {
                let x = Cpu::cast(&x, dtype).unwrap();
                let moved = Cpu::prepack(&x, Prepack::Memory).unwrap();
                // Host tensors and their tensors share the memory.
                let again = Cpu::from_host(Cpu::to_host(&moved).unwrap(), &device).unwrap();
                kept.push((bytes(&x), moved, again));
            }
        }
    }
    for (wanted, moved, again) in &kept {
        assert_eq!(&bytes(moved), wanted);
        assert_eq!(&bytes(again), wanted);
    }
}
