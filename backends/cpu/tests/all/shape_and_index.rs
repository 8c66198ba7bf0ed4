//! Creation, movement, indexing, sorting, reductions and windows against the reference.

use crate::common::{self, VIEWS, View, check, floats, host, integers, noise, tensor, viewed};
use polygrad_core::{
    AnyBackend, ArgOp, Axes, Backend, ConvParams, DType, Distribution, PoolParams, RandomKey, ReduceOp, Scalar, Shape,
    SliceRange,
};

const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

#[test]
fn creation_agrees() {
    let distributions = [
        Distribution::Uniform { low: -1.0, high: 3.0 },
        Distribution::Normal { mean: 1.0, std: 2.0 },
        Distribution::Bernoulli { p: 0.3 },
        Distribution::Integers { low: 0, high: 200 },
        Distribution::Uniform { low: 1.0, high: 0.0 },
    ];
    for dtype in DType::ALL {
        for dims in [&[][..], &[0], &[3, 5], &[2000, 100]] {
            check(&format!("full {dtype} {dims:?}"), 0.0, &|d| {
                let shape = Shape::new(dims)?;
                Ok(vec![
                    AnyBackend::full(shape, Scalar::Float(1.7), dtype, d)?,
                    AnyBackend::full(shape, Scalar::Int(-300), dtype, d)?,
                    AnyBackend::full(shape, Scalar::Bool(true), dtype, d)?,
                ])
            });
        }
        check(&format!("iota {dtype}"), 0.0, &|d| {
            Ok(vec![
                AnyBackend::iota(300, Scalar::Int(-3), Scalar::Int(2), dtype, d)?,
                AnyBackend::iota(77, Scalar::Float(0.1), Scalar::Float(0.3), dtype, d)?,
                AnyBackend::iota(0, Scalar::Int(0), Scalar::Int(1), dtype, d)?,
            ])
        });
        for distribution in distributions {
            check(&format!("{distribution:?} {dtype}"), 0.0, &|d| {
                let key = RandomKey { seed: 7, offset: 5 };
                Ok(vec![AnyBackend::random(
                    Shape::from([9, 1000]),
                    distribution,
                    dtype,
                    key,
                    d,
                )?])
            });
        }
    }
}

#[test]
fn views_agree() {
    for dtype in [DType::U8, DType::F16, DType::F32, DType::I64] {
        for view in VIEWS {
            check(&format!("views {dtype} {view:?}"), 0.0, &|d| {
                let x = viewed(d, &[4, 1, 6], dtype, 1, view)?;
                Ok(vec![
                    AnyBackend::reshape(&x, Shape::from([2, 12]))?,
                    AnyBackend::reshape(&x, Shape::from([24]))?,
                    AnyBackend::reshape(&x, Shape::from([2, 2, 3, 1, 2]))?,
                    AnyBackend::permute(&x, Axes::new([2, 0, 1])?)?,
                    AnyBackend::expand(&x, Shape::from([2, 4, 3, 6]))?,
                    AnyBackend::slice(
                        &x,
                        &[SliceRange::new(3, 2, -2), SliceRange::full(1), SliceRange::new(1, 3, 2)],
                    )?,
                    AnyBackend::pad(&x, &[(1, 0), (0, 2), (3, 1)], Scalar::Float(5.0))?,
                    AnyBackend::pad(&x, &[(0, 0), (0, 0), (0, 0)], Scalar::Float(5.0))?,
                ])
            });
        }
    }
}

#[test]
fn joining_agrees() {
    for dtype in DType::ALL {
        for (axis, a, b, c) in [(0, [2, 3], [1, 3], [0, 3]), (1, [2, 3], [2, 1], [2, 40])] {
            for view in VIEWS {
                check(&format!("cat {dtype} {axis} {view:?}"), 0.0, &|d| {
                    let a = viewed(d, &a, dtype, 1, view)?;
                    let (b, c) = (
                        viewed(d, &b, dtype, 2, View::Backwards)?,
                        viewed(d, &c, dtype, 3, view)?,
                    );
                    Ok(vec![AnyBackend::concat(&[&a, &b, &c], axis)?])
                });
            }
        }
    }
}

#[test]
fn reductions_agree_over_dtypes_layouts_and_axes() {
    let shapes: [&[usize]; 7] = [&[], &[1], &[7], &[3, 4, 5], &[2, 70, 33], &[0, 3], &[65, 1, 66]];
    for &op in ReduceOp::ALL {
        for dtype in DType::ALL {
            for dims in shapes {
                let rank = dims.len();
                for set in 0..1 << rank {
                    let axes = Axes::new((0..rank).filter(|axis| set >> axis & 1 == 1)).unwrap();
                    // A reduction without identity over nothing must not be asked for.
                    let empty = op.needs_elements() && dims.contains(&0);
                    for view in VIEWS.into_iter().filter(|_| !empty) {
                        check(&format!("{op:?} {dtype} {dims:?} {axes:?} {view:?}"), 30.0, &|d| {
                            let x = viewed(d, dims, dtype, 1, view)?;
                            Ok(vec![
                                AnyBackend::reduce(op, &x, axes, false)?,
                                AnyBackend::reduce(op, &x, axes, true)?,
                            ])
                        });
                    }
                }
            }
        }
    }
}

#[test]
fn large_reductions_agree_whatever_the_threads() {
    for (dims, axes) in [
        (&[300_000][..], &[0][..]),
        (&[100_000, 3], &[0]),
        (&[3, 100_000], &[1]),
        (&[64, 5, 33, 33], &[0, 2, 3]),
        (&[700, 700], &[0]),
        (&[700, 700], &[1]),
    ] {
        for op in [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max] {
            for view in [View::Contiguous, View::Permuted, View::Stepped] {
                check(&format!("{op:?} {dims:?} {axes:?} {view:?}"), 400.0, &|d| {
                    let x = viewed(d, dims, DType::F32, 1, view)?;
                    Ok(vec![AnyBackend::reduce(
                        op,
                        &x,
                        Axes::new(axes.iter().copied())?,
                        false,
                    )?])
                });
            }
        }
    }
}

#[test]
fn sums_are_accurate() {
    let device = common::cpu(2, polygrad_cpu::Kernels::Simd);
    let tenth = AnyBackend::full(Shape::from([20_000_000]), Scalar::Float(0.1), DType::F32, &device).unwrap();
    for (dims, axes) in [
        (vec![20_000_000], vec![0]),
        (vec![5_000_000, 4], vec![0, 1]),
        (vec![20_000_000, 1], vec![0]),
    ] {
        let x = AnyBackend::reshape(&tenth, Shape::new(&dims).unwrap()).unwrap();
        let sum = AnyBackend::reduce(ReduceOp::Sum, &x, Axes::new(axes).unwrap(), false).unwrap();
        let sum = AnyBackend::to_host(&sum).unwrap().to_f64_vec();
        assert!((sum[0] / 2e6 - 1.0).abs() < 1e-6, "{sum:?}");
    }
    let across = AnyBackend::reshape(&tenth, Shape::from([2_500_000, 8])).unwrap();
    let sums = AnyBackend::reduce(ReduceOp::Sum, &across, Axes::one(0), false).unwrap();
    for sum in AnyBackend::to_host(&sums).unwrap().to_f64_vec() {
        assert!((sum / 2.5e5 - 1.0).abs() < 1e-6, "{sum}");
    }
}

#[test]
fn nan_comes_through_reductions() {
    let values: Vec<f32> = (0..100).map(|i| if i == 37 { f32::NAN } else { i as f32 }).collect();
    for op in [ReduceOp::Max, ReduceOp::Min, ReduceOp::Sum, ReduceOp::Prod] {
        check(&format!("{op:?}"), 1.0, &|d| {
            let x = floats(d, &values)?;
            let rows = AnyBackend::reshape(&x, Shape::from([4, 25]))?;
            Ok(vec![
                AnyBackend::reduce(op, &x, Axes::one(0), false)?,
                AnyBackend::reduce(op, &rows, Axes::one(0), false)?,
                AnyBackend::reduce(op, &rows, Axes::one(1), false)?,
            ])
        });
    }
    for op in [ArgOp::Max, ArgOp::Min] {
        check(&format!("{op:?}"), 0.0, &|d| {
            Ok(vec![AnyBackend::arg_reduce(op, &floats(d, &values)?, 0, false)?])
        });
    }
}

#[test]
fn lines_agree() {
    for dtype in DType::ALL {
        for dims in [&[6][..], &[3, 4, 5], &[2, 33], &[3, 1], &[0, 2]] {
            for axis in 0..dims.len() {
                for view in VIEWS {
                    check(&format!("cumsum {dtype} {dims:?} {axis} {view:?}"), 10.0, &|d| {
                        Ok(vec![AnyBackend::cumsum(&viewed(d, dims, dtype, 1, view)?, axis)?])
                    });
                    for descending in [false, true] {
                        check(&format!("sort {dtype} {dims:?} {axis} {view:?}"), 0.0, &|d| {
                            let (values, indices) =
                                AnyBackend::sort(&viewed(d, dims, dtype, 1, view)?, axis, descending)?;
                            Ok(vec![values, indices])
                        });
                    }
                    for op in [ArgOp::Max, ArgOp::Min] {
                        if dims[axis] > 0 {
                            check(&format!("{op:?} {dtype} {dims:?} {axis} {view:?}"), 0.0, &|d| {
                                let x = viewed(d, dims, dtype, 1, view)?;
                                Ok(vec![
                                    AnyBackend::arg_reduce(op, &x, axis, false)?,
                                    AnyBackend::arg_reduce(op, &x, axis, true)?,
                                ])
                            });
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn indexing_agrees() {
    let dims = [4, 3, 5];
    for dtype in DType::ALL {
        for axis in 0..3 {
            for view in VIEWS {
                let mut index_dims = dims;
                index_dims[axis] = 7;
                let index = |d: &polygrad_core::AnyDevice| {
                    let count: usize = index_dims.iter().product();
                    let values = (0..count)
                        .map(|i| ((noise(i, 3) + 2.0) / 4.0 * dims[axis] as f64) as i64)
                        .collect();
                    let wide = integers(d, &index_dims, values)?;
                    // Not contiguous either.
                    AnyBackend::slice(&wide, &index_dims.map(|dim| SliceRange::new(dim - 1, dim, -1)))
                };
                check(&format!("gather {dtype} {axis} {view:?}"), 0.0, &|d| {
                    Ok(vec![AnyBackend::gather(
                        &viewed(d, &dims, dtype, 1, view)?,
                        axis,
                        &index(d)?,
                    )?])
                });
                check(&format!("scatter_add {dtype} {axis} {view:?}"), 4.0, &|d| {
                    let mut larger = index_dims;
                    larger[(axis + 1) % 3] += 1;
                    let src = viewed(d, &larger, dtype, 2, view)?;
                    Ok(vec![AnyBackend::scatter_add(
                        &viewed(d, &dims, dtype, 1, view)?,
                        axis,
                        &index(d)?,
                        &src,
                    )?])
                });
                check(&format!("index_select {dtype} {axis} {view:?}"), 0.0, &|d| {
                    let rows = integers(d, &[4], vec![2, 0, 2, 1])?;
                    Ok(vec![AnyBackend::index_select(
                        &viewed(d, &dims, dtype, 1, view)?,
                        axis,
                        &rows,
                    )?])
                });
                check(&format!("index_add {dtype} {axis} {view:?}"), 4.0, &|d| {
                    let mut src = dims;
                    src[axis] = 4;
                    let rows = integers(d, &[4], vec![2, 0, 2, 1])?;
                    let src = viewed(d, &src, dtype, 2, view)?;
                    Ok(vec![AnyBackend::index_add(
                        &viewed(d, &dims, dtype, 1, view)?,
                        axis,
                        &rows,
                        &src,
                    )?])
                });
            }
        }
        check(&format!("scatter {dtype}"), 0.0, &|d| {
            let index = integers(d, &[2, 3], vec![3, 0, 1, 0, 2, 3])?;
            let (x, src) = (tensor(d, &[4, 3], dtype, 1)?, tensor(d, &[2, 4], dtype, 2)?);
            Ok(vec![AnyBackend::scatter(&x, 0, &index, &src)?])
        });
    }
    for bad in [-1, 4, i64::MAX, i64::MIN] {
        check(&format!("index {bad}"), 0.0, &|d| {
            let x = tensor(d, &[4, 3], DType::F32, 1)?;
            Ok(vec![AnyBackend::gather(
                &x,
                0,
                &integers(d, &[1, 3], vec![0, bad, 1])?,
            )?])
        });
        check(&format!("select {bad}"), 0.0, &|d| {
            let x = tensor(d, &[4, 3], DType::F32, 1)?;
            Ok(vec![AnyBackend::index_select(
                &x,
                0,
                &integers(d, &[2], vec![0, bad])?,
            )?])
        });
        check(&format!("scatter {bad}"), 0.0, &|d| {
            let x = tensor(d, &[4, 3], DType::F32, 1)?;
            Ok(vec![AnyBackend::scatter(
                &x,
                0,
                &integers(d, &[1, 3], vec![0, bad, 1])?,
                &x,
            )?])
        });
        check(&format!("embedding {bad}"), 0.0, &|d| {
            let x = tensor(d, &[4, 3], DType::F32, 1)?;
            Ok(vec![AnyBackend::embedding(
                &x,
                &integers(d, &[2, 1], vec![0, bad])?,
                None,
            )?])
        });
    }
}

#[test]
fn products_agree() {
    for dtype in DType::ALL {
        for (a, b) in [
            (vec![3, 4], vec![4, 5]),
            (vec![1, 70], vec![70, 1]),
            (vec![2, 1, 3, 4], vec![5, 4, 2]),
            (vec![6, 3, 8], vec![8, 17]),
            (vec![0, 3], vec![3, 2]),
            (vec![2, 0], vec![0, 2]),
            (vec![2, 3, 4], vec![2, 3, 4]),
            (vec![40, 33, 65], vec![65, 34]),
        ] {
            for view in VIEWS {
                check(&format!("matmul {dtype} {a:?} {b:?} {view:?}"), 60.0, &|d| {
                    let (x, y) = (
                        viewed(d, &a, dtype, 1, view)?,
                        viewed(d, &b, dtype, 2, View::Contiguous)?,
                    );
                    let z = viewed(d, &b, dtype, 2, View::Permuted)?;
                    if a.last() != b.get(b.len() - 2) {
                        return Ok(vec![]);
                    }
                    Ok(vec![AnyBackend::matmul(&x, &y)?, AnyBackend::matmul(&x, &z)?])
                });
            }
        }
    }
    for dtype in FLOATS {
        for dims in [&[6][..], &[4, 6], &[2, 3, 6], &[0, 6], &[100, 6]] {
            for view in VIEWS {
                check(&format!("linear {dtype} {dims:?} {view:?}"), 20.0, &|d| {
                    let x = viewed(d, dims, dtype, 1, view)?;
                    let (weight, bias) = (viewed(d, &[7, 6], dtype, 2, view)?, viewed(d, &[7], dtype, 3, view)?);
                    Ok(vec![
                        AnyBackend::linear(&x, &weight, Some(&bias), None)?,
                        AnyBackend::linear(&x, &weight, None, None)?,
                    ])
                });
            }
        }
    }
}

/// Input, weight, stride, padding, dilation, groups.
type Window = (&'static [usize], &'static [usize], usize, usize, usize, usize);

const WINDOWS: [Window; 16] = [
    (&[2, 3, 8, 9], &[4, 3, 3, 3], 1, 1, 1, 1),
    (&[2, 3, 8, 9], &[4, 3, 3, 3], 1, 0, 1, 1),
    (&[2, 3, 9, 8], &[7, 3, 3, 2], 2, 1, 1, 1),
    (&[1, 3, 11, 12], &[4, 3, 3, 3], 1, 2, 2, 1),
    (&[1, 2, 11, 12], &[4, 2, 3, 3], 3, 2, 2, 1),
    (&[3, 4, 6, 20], &[6, 2, 3, 3], 1, 1, 1, 2),
    (&[2, 6, 7, 7], &[6, 1, 3, 3], 1, 1, 1, 6),
    (&[2, 6, 7, 7], &[12, 1, 3, 3], 2, 1, 1, 6),
    (&[2, 5, 6, 6], &[9, 5, 1, 1], 1, 0, 1, 1),
    (&[2, 5, 6, 6], &[9, 5, 1, 1], 2, 0, 1, 1),
    (&[2, 3, 17], &[5, 3, 4], 1, 2, 1, 1),
    (&[2, 3, 17], &[5, 3, 4], 2, 0, 2, 1),
    (&[1, 2, 5, 6, 7], &[3, 2, 2, 3, 3], 1, 1, 1, 1),
    (&[1, 2, 5, 6, 7], &[4, 1, 2, 3, 3], 2, 1, 1, 2),
    (&[2, 3, 5, 5], &[4, 3, 5, 5], 1, 0, 1, 1),
    (&[1, 1, 2, 2], &[1, 1, 3, 3], 1, 3, 1, 1),
];

#[test]
fn convolutions_and_their_gradients_agree() {
    for dtype in FLOATS {
        for (input, weight, stride, padding, dilation, groups) in WINDOWS {
            let params = ConvParams {
                stride: [stride; 3],
                padding: [padding; 3],
                dilation: [dilation; 3],
                groups,
            };
            for view in [View::Contiguous, View::Permuted, View::Stepped] {
                let name = format!("{dtype} {input:?} {weight:?} {params:?} {view:?}");
                check(&format!("conv {name}"), 60.0, &|d| {
                    let (x, w) = (viewed(d, input, dtype, 1, view)?, viewed(d, weight, dtype, 2, view)?);
                    Ok(vec![AnyBackend::conv(&x, &w, None, None, None, &params)?])
                });
                let (input, weight) = (Shape::new(input).unwrap(), Shape::new(weight).unwrap());
                let output = params.output_shape(&input, &weight).unwrap();
                check(&format!("conv_input_grad {name}"), 60.0, &|d| {
                    let (g, w) = (viewed(d, &output, dtype, 3, view)?, viewed(d, &weight, dtype, 2, view)?);
                    Ok(vec![AnyBackend::conv_input_grad(&g, &w, input, &params)?])
                });
                check(&format!("conv_weight_grad {name}"), 200.0, &|d| {
                    let (g, x) = (viewed(d, &output, dtype, 3, view)?, viewed(d, &input, dtype, 1, view)?);
                    Ok(vec![AnyBackend::conv_weight_grad(&g, &x, weight, &params)?])
                });
            }
        }
    }
    check("conv of nothing", 0.0, &|d| {
        let (x, w) = (
            tensor(d, &[0, 3, 5, 5], DType::F32, 1)?,
            tensor(d, &[2, 3, 3, 3], DType::F32, 2)?,
        );
        let params = ConvParams::default();
        Ok(vec![AnyBackend::conv(&x, &w, None, None, None, &params)?])
    });
    check("conv that does not fit", 0.0, &|d| {
        let (x, w) = (
            tensor(d, &[1, 2, 5, 5], DType::F32, 1)?,
            tensor(d, &[2, 3, 3, 3], DType::F32, 2)?,
        );
        let params = ConvParams::default();
        Ok(vec![AnyBackend::conv(&x, &w, None, None, None, &params)?])
    });
}

#[test]
fn large_convolutions_agree_whatever_the_threads() {
    for (input, weight) in [(&[9, 1, 28, 28], &[32, 1, 3, 3]), (&[5, 32, 14, 14], &[64, 32, 3, 3])] {
        let params = ConvParams {
            padding: [1; 3],
            ..ConvParams::default()
        };
        let (input, weight) = (Shape::new(input).unwrap(), Shape::new(weight).unwrap());
        let output = params.output_shape(&input, &weight).unwrap();
        check(&format!("large conv {input} {weight}"), 300.0, &|d| {
            let (x, w) = (tensor(d, &input, DType::F32, 1)?, tensor(d, &weight, DType::F32, 2)?);
            let g = tensor(d, &output, DType::F32, 3)?;
            Ok(vec![
                AnyBackend::conv(&x, &w, None, None, None, &params)?,
                AnyBackend::conv_input_grad(&g, &w, input, &params)?,
                AnyBackend::conv_weight_grad(&g, &x, weight, &params)?,
            ])
        });
    }
}

#[test]
fn pools_and_their_gradients_agree() {
    let pools = [
        (2, 2, 0, 1, false),
        (3, 2, 1, 1, false),
        (3, 1, 1, 1, false),
        (2, 2, 0, 2, false),
        (3, 2, 1, 1, true),
        (2, 3, 1, 1, true),
    ];
    let inputs: [&[usize]; 7] = [
        &[2, 3, 8, 9],
        &[2, 21, 5, 6],
        &[1, 2, 7],
        &[1, 2, 3, 45],
        &[2, 1, 6, 6, 6],
        &[0, 2, 6, 6],
        &[3, 5, 28, 28],
    ];
    for dtype in DType::ALL {
        for input in inputs {
            for (kernel, stride, padding, dilation, ceil_mode) in pools {
                let mut params = PoolParams {
                    stride: [stride; 3],
                    padding: [padding; 3],
                    dilation: [dilation; 3],
                    ceil_mode,
                    ..PoolParams::new([kernel; 3])
                };
                for view in [View::Contiguous, View::Permuted] {
                    check(&format!("max_pool {dtype} {input:?} {params:?} {view:?}"), 4.0, &|d| {
                        let x = viewed(d, input, dtype, 1, view)?;
                        let (y, at) = AnyBackend::max_pool(&x, &params, true)?;
                        let at = at.unwrap();
                        let grad = AnyBackend::max_pool_backward(&y, &at, *host(input, dtype, 1).shape())?;
                        // Other kernels find the values where positions are not wanted.
                        let (alone, _) = AnyBackend::max_pool(&x, &params, false)?;
                        Ok(vec![y, at, grad, alone])
                    });
                    for count_include_pad in [true, false] {
                        params.count_include_pad = count_include_pad;
                        check(&format!("avg_pool {dtype} {input:?} {params:?} {view:?}"), 4.0, &|d| {
                            let x = viewed(d, input, dtype, 1, view)?;
                            let y = AnyBackend::avg_pool(&x, &params)?;
                            let grad = AnyBackend::avg_pool_backward(&y, *host(input, dtype, 1).shape(), &params)?;
                            Ok(vec![y, grad])
                        });
                    }
                }
            }
        }
    }
    check("max_pool of NaN and ties", 0.0, &|d| {
        let x = floats(
            d,
            &[1.0, 1.0, f32::NAN, 5.0, f32::NEG_INFINITY, f32::NEG_INFINITY, 2.0, 3.0],
        )?;
        let x = AnyBackend::reshape(&x, Shape::from([1, 1, 8]))?;
        let (y, at) = AnyBackend::max_pool(&x, &PoolParams::new([2; 3]), true)?;
        let (alone, _) = AnyBackend::max_pool(&x, &PoolParams::new([2; 3]), false)?;
        Ok(vec![y, at.unwrap(), alone])
    });
}
