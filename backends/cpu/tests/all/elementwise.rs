//! Element-wise ops against the reference, over dtypes and layouts.

use crate::common::{self, VIEWS, View, check, floats, tensor, viewed};
use polygrad_core::{
    Activation, AnyBackend, AnyDevice, Backend, BinaryOp, CompareOp, DType, HostTensor, Result, Scalar, Shape, UnaryOp,
};

const SHAPES: [&[usize]; 6] = [&[2, 3, 4], &[5], &[], &[0, 3], &[3, 70], &[40, 3, 2]];

/// Every pair of operands is given in every layout, and broadcast.
#[test]
fn binary_ops_agree_over_dtypes_and_layouts() {
    for &op in BinaryOp::ALL {
        for dtype in DType::ALL {
            for dims in SHAPES {
                for (i, view) in VIEWS.into_iter().enumerate() {
                    let other = VIEWS[(i * 2 + 1) % VIEWS.len()];
                    check(&format!("{op:?} {dtype} {dims:?} {view:?} {other:?}"), 4.0, &|d| {
                        let (a, b) = (viewed(d, dims, dtype, 1, view)?, viewed(d, dims, dtype, 2, other)?);
                        Ok(vec![AnyBackend::binary(op, &a, &b)?])
                    });
                }
            }
            check(&format!("{op:?} {dtype} broadcast"), 4.0, &|d| {
                let (a, b) = (tensor(d, &[4, 1, 5], dtype, 1)?, tensor(d, &[3, 1], dtype, 2)?);
                Ok(vec![AnyBackend::binary(op, &a, &b)?, AnyBackend::binary(op, &b, &a)?])
            });
            for scalar in [
                Scalar::Float(2.0),
                Scalar::Float(-1.5),
                Scalar::Int(3),
                Scalar::Bool(true),
            ] {
                check(&format!("{op:?} {dtype} {scalar:?}"), 4.0, &|d| {
                    let x = viewed(d, &[3, 5], dtype, 3, View::Permuted)?;
                    Ok(vec![
                        AnyBackend::binary_scalar(op, &x, scalar, false)?,
                        AnyBackend::binary_scalar(op, &x, scalar, true)?,
                    ])
                });
            }
        }
    }
}

#[test]
fn unary_ops_agree_over_dtypes_and_layouts() {
    for &op in UnaryOp::ALL {
        for dtype in DType::ALL {
            for dims in SHAPES {
                for view in VIEWS {
                    check(&format!("{op:?} {dtype} {dims:?} {view:?}"), 8.0, &|d| {
                        Ok(vec![AnyBackend::unary(op, &viewed(d, dims, dtype, 4, view)?)?])
                    });
                }
            }
        }
    }
}

#[test]
fn comparisons_and_choices_agree_over_dtypes_and_layouts() {
    for dtype in DType::ALL {
        for dims in SHAPES {
            for (i, view) in VIEWS.into_iter().enumerate() {
                let other = VIEWS[(i * 5 + 1) % VIEWS.len()];
                for &op in CompareOp::ALL {
                    check(&format!("{op:?} {dtype} {dims:?} {view:?}"), 0.0, &|d| {
                        let (a, b) = (viewed(d, dims, dtype, 5, view)?, viewed(d, dims, dtype, 6, other)?);
                        let scalar = Scalar::Float(1.0);
                        Ok(vec![
                            AnyBackend::compare(op, &a, &b)?,
                            AnyBackend::compare_scalar(op, &a, scalar)?,
                        ])
                    });
                }
                check(&format!("where {dtype} {dims:?} {view:?}"), 0.0, &|d| {
                    let condition = viewed(d, dims, DType::Bool, 7, other)?;
                    let (a, b) = (viewed(d, dims, dtype, 5, view)?, tensor(d, &[], dtype, 6)?);
                    Ok(vec![
                        AnyBackend::select(&condition, &a, &b)?,
                        AnyBackend::select(&condition, &b, &a)?,
                    ])
                });
            }
        }
        check("where without a condition", 0.0, &|d| {
            let x = tensor(d, &[2], dtype, 1)?;
            Ok(vec![AnyBackend::select(&tensor(d, &[2], DType::I64, 1)?, &x, &x)?])
        });
    }
}

#[test]
fn casts_agree_between_all_dtypes() {
    let odd = [
        0.0,
        -0.0,
        0.4999,
        1.5,
        -1.5,
        2.5,
        255.9,
        256.0,
        300.7,
        -3.9,
        1e10,
        -1e20,
        65_504.0,
        65_520.0,
        1e-8,
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        16_777_217.0,
        1e-40,
    ];
    for from in DType::ALL {
        for to in DType::ALL {
            for view in VIEWS {
                check(&format!("{from} to {to} {view:?}"), 0.0, &|d| {
                    Ok(vec![AnyBackend::cast(&viewed(d, &[3, 50], from, 8, view)?, to)?])
                });
            }
            check(&format!("odd numbers as {from} to {to}"), 0.0, &|d| {
                Ok(vec![AnyBackend::cast(&AnyBackend::cast(&floats(d, &odd)?, from)?, to)?])
            });
        }
    }
}

/// The reference holds reals as f64, so that all but the last bit must agree even for the oddest numbers.
#[test]
fn odd_floats_agree() {
    let odd = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f32::MIN_POSITIVE,
        1e-45,
        -1e-45,
        f32::MAX,
        f32::MIN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        88.8,
        -103.9,
        -87.5,
        1e-8,
        3.0e38,
        1.5,
        2.5,
        -2.5,
        0.49999997,
        1e6,
        123_456.7,
    ];
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let numbers = |d: &AnyDevice| AnyBackend::cast(&floats(d, &odd)?, dtype);
        for &op in UnaryOp::ALL {
            check(&format!("{op:?} {dtype}"), 8.0, &|d| {
                Ok(vec![AnyBackend::unary(op, &numbers(d)?)?])
            });
        }
        let pairs = |d: &AnyDevice| -> Result<_> {
            let x = numbers(d)?;
            let column = AnyBackend::reshape(&x, Shape::from([odd.len(), 1]))?;
            Ok((column, x))
        };
        for &op in BinaryOp::ALL {
            // The power and remainder of huge numbers depend on their last bits.
            check(&format!("{op:?} {dtype}"), 8.0, &|d| {
                let (a, b) = pairs(d)?;
                Ok(vec![AnyBackend::binary(op, &a, &b)?])
            });
        }
        for &op in CompareOp::ALL {
            check(&format!("{op:?} {dtype}"), 0.0, &|d| {
                let (a, b) = pairs(d)?;
                Ok(vec![AnyBackend::compare(op, &a, &b)?])
            });
        }
    }
}

#[test]
fn odd_integers_agree() {
    let odd: Vec<i64> = vec![
        0,
        1,
        -1,
        2,
        -7,
        8,
        63,
        64,
        255,
        256,
        i64::from(i32::MIN),
        i64::from(i32::MAX),
        i64::MIN,
        i64::MAX,
    ];
    for dtype in [DType::U8, DType::I32, DType::I64] {
        for &op in BinaryOp::ALL {
            check(&format!("{op:?} {dtype}"), 0.0, &|d| {
                let x = AnyBackend::cast(&common::integers(d, &[odd.len()], odd.clone())?, dtype)?;
                let column = AnyBackend::reshape(&x, Shape::from([odd.len(), 1]))?;
                Ok(vec![AnyBackend::binary(op, &column, &x)?])
            });
        }
        for &op in UnaryOp::ALL {
            check(&format!("{op:?} {dtype}"), 0.0, &|d| {
                let x = AnyBackend::cast(&common::integers(d, &[odd.len()], odd.clone())?, dtype)?;
                Ok(vec![AnyBackend::unary(op, &x)?])
            });
        }
    }
}

const ACTIVATIONS: [Activation; 11] = [
    Activation::Relu,
    Activation::Tanh,
    Activation::Sigmoid,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Silu,
    Activation::Softplus {
        beta: 1.0,
        threshold: 20.0,
    },
    Activation::Softplus {
        beta: 2.5,
        threshold: 1.5,
    },
    Activation::Elu { alpha: 0.7 },
    Activation::LeakyRelu { slope: 0.1 },
    Activation::HardSwish {
        scale: 0.7,
        shift: -0.2,
    },
];

#[test]
fn activations_agree_with_their_decompositions() {
    for op in ACTIVATIONS {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64, DType::I32] {
            for dims in SHAPES {
                for view in VIEWS {
                    check(&format!("{op:?} {dtype} {dims:?} {view:?}"), 8.0, &|d| {
                        let x = viewed(d, dims, dtype, 9, view)?;
                        let grad = viewed(d, dims, dtype, 10, View::Stepped)?;
                        Ok(vec![
                            AnyBackend::activation(op, &x)?,
                            AnyBackend::activation_backward(op, &grad, &x)?,
                        ])
                    });
                }
            }
        }
        // Far from 0 as well; the decomposition loses the tails of GELU, which are below the tolerance.
        check(&format!("{op:?} far out"), 8.0, &|d| {
            let x = floats(d, &[-100.0, -20.0, -9.0, -6.0, -4.0, 4.0, 9.0, 20.0, 100.0, f32::NAN])?;
            Ok(vec![
                AnyBackend::activation(op, &x)?,
                AnyBackend::activation_backward(op, &x, &x)?,
            ])
        });
    }
}

#[test]
fn large_tensors_agree_whatever_the_threads() {
    let dims: &[usize] = &[70, 1001, 3];
    for dtype in [DType::F32, DType::I64, DType::BF16] {
        for view in [View::Contiguous, View::Permuted, View::Stepped] {
            check(&format!("large {dtype} {view:?}"), 8.0, &|d| {
                let x = viewed(d, dims, dtype, 11, view)?;
                let row = tensor(d, &[1001, 1], dtype, 12)?;
                Ok(vec![
                    AnyBackend::binary(BinaryOp::Add, &x, &row)?,
                    AnyBackend::binary(BinaryOp::Mul, &x, &x)?,
                    AnyBackend::unary(UnaryOp::Neg, &x)?,
                    AnyBackend::cast(&x, DType::F32)?,
                    AnyBackend::compare(CompareOp::Lt, &x, &row)?,
                ])
            });
        }
    }
    check("large exp", 8.0, &|d| {
        Ok(vec![AnyBackend::unary(
            UnaryOp::Exp,
            &tensor(d, &[300_000], DType::F32, 13)?,
        )?])
    });
}

#[test]
fn values_come_back_as_they_went_in() {
    for dtype in DType::ALL {
        for dims in SHAPES {
            let device = common::cpu(1, polygrad_cpu::Kernels::Simd);
            let there = common::host(dims, dtype, 14);
            let back = AnyBackend::to_host(&AnyBackend::from_host(there.clone(), &device).unwrap()).unwrap();
            assert_eq!(
                (there.shape(), there.dtype(), there.bytes()),
                (back.shape(), back.dtype(), back.bytes())
            );
        }
    }
    // What went in is shared, and never written to.
    let device = common::cpu(1, polygrad_cpu::Kernels::Simd);
    let host = HostTensor::new(Shape::from([2]), vec![1f32, 2.0]).unwrap();
    let x = AnyBackend::from_host(host.clone(), &device).unwrap();
    let sum = AnyBackend::accumulate_grad(x.clone(), &x).unwrap();
    assert_eq!(host.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    assert_eq!(AnyBackend::to_host(&x).unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0]);
    assert_eq!(AnyBackend::to_host(&sum).unwrap().to_vec::<f32>().unwrap(), [2.0, 4.0]);
}
