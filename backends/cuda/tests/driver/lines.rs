//! Reductions and ops along lines and rows, compared with the reference.

use polygrad_core::compute::{
    ArgReduce, ComputeBackend, CumSum, DeviceView, LayerNorm, Reduce, ReduceAxes, Softmax, Sort,
};
use polygrad_core::{ArgOp, Axes, Backend, DType, ErrorKind, Layout, ReduceOp, Shape, SliceRange};
use polygrad_reference::Reference;

use crate::support::{close, each, empty, filled, numbers, read, reference, samples};

#[test]
fn every_reduction_of_every_dtype() {
    each(|driver| {
        for dtype in DType::ALL {
            let shape = Shape::from([3, 45, 2]);
            let mut x = samples(dtype, 270);
            for op in ReduceOp::ALL.iter().copied().filter(|op| op.accepts(dtype)) {
                if op == ReduceOp::Prod && dtype.is_float() {
                    x = (0..270).map(|i| [1.0, 0.5, 2.0, -1.0][i % 4]).collect();
                } else if matches!(op, ReduceOp::Sum | ReduceOp::Mean) && dtype.is_float() {
                    // Without values that would make all results NaN, or overflow f16.
                    x = x.iter().map(|&x| if x.is_finite() { x } else { 0.25 }).collect();
                }
                let input = filled(driver, dtype, &x);
                let output = empty(driver, dtype, 6);
                let call = Reduce {
                    op,
                    dtype,
                    outer: 3,
                    len: 45,
                    inner: 2,
                    input,
                    output,
                };
                driver.reduce(&call).unwrap();
                let wanted = Reference::reduce(op, &reference(dtype, shape, &x), Axes::one(1), false).unwrap();
                close(
                    dtype,
                    &read(driver, dtype, output, 6),
                    &numbers(&wanted),
                    2.0,
                    0.0,
                    op.name(),
                );
                driver.free(input).unwrap();
                driver.free(output).unwrap();
            }
        }
    });
}

#[test]
fn axes_of_any_layout_are_reduced() {
    each(|driver| {
        let dtype = DType::F32;
        let x: Vec<f64> = (0..1200).map(|i| f64::from((i * 7919) % 1000) / 8.0).collect();
        let input = filled(driver, dtype, &x);
        let base = Layout::contiguous(Shape::from([4, 5, 6, 10]));
        let layouts = [
            base,
            base.permute(Axes::new([2, 0, 3, 1]).unwrap()),
            base.slice(&[
                SliceRange::new(3, 4, -1),
                SliceRange::new(0, 3, 2),
                SliceRange::full(6),
                SliceRange::full(10),
            ]),
            Layout::contiguous(Shape::from([6, 1])).expand(Shape::from([3, 6, 7])),
        ];
        for layout in layouts {
            let rank = layout.shape().rank();
            for axes in [
                vec![0],
                vec![rank - 1],
                vec![0, rank - 1],
                vec![1, 2],
                (0..rank).collect(),
            ] {
                let axes = Axes::new(axes).unwrap();
                let kept = layout.shape().reduced(axes, false);
                let output = empty(driver, dtype, kept.numel());
                let view = DeviceView::new(input, dtype, layout);
                driver
                    .reduce_axes(&ReduceAxes {
                        op: ReduceOp::Sum,
                        input: view,
                        axes,
                        output,
                    })
                    .unwrap();
                // The same elements, gathered one by one.
                let mut all = Vec::new();
                let (dims, strides) = (layout.shape().dims(), layout.strides());
                for i in 0..layout.shape().numel() {
                    let (mut rest, mut at) = (i, layout.offset() as isize);
                    for axis in (0..rank).rev() {
                        at += (rest % dims[axis]) as isize * strides[axis];
                        rest /= dims[axis];
                    }
                    all.push(x[at as usize]);
                }
                let wanted =
                    Reference::reduce(ReduceOp::Sum, &reference(dtype, *layout.shape(), &all), axes, false).unwrap();
                close(
                    dtype,
                    &read(driver, dtype, output, kept.numel()),
                    &numbers(&wanted),
                    1.0,
                    0.0,
                    "sum",
                );
                driver.free(output).unwrap();
            }
        }
        let error = driver.reduce_axes(&ReduceAxes {
            op: ReduceOp::Max,
            input: DeviceView::contiguous(input, dtype, Shape::from([0, 3])),
            axes: Axes::one(0),
            output: input,
        });
        assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidArgument);
        driver.free(input).unwrap();
    });
}

#[test]
fn long_sums_are_accurate() {
    each(|driver| {
        // Chunks, whose states are merged by a second launch; and many columns, one thread each.
        for (outer, len, inner) in [(1, 30_000, 1), (1, 40, 5000)] {
            let x: Vec<f64> = (0..len * inner)
                .map(|i| if i % 3 == 0 { 1e7 } else { 0.1 + (i % 7) as f64 })
                .collect();
            for op in [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Min] {
                let input = filled(driver, DType::F32, &x);
                let output = empty(driver, DType::F32, inner);
                driver
                    .reduce(&Reduce {
                        op,
                        dtype: DType::F32,
                        outer,
                        len,
                        inner,
                        input,
                        output,
                    })
                    .unwrap();
                let tensor = reference(DType::F32, Shape::from([len, inner]), &x);
                let wanted = numbers(&Reference::reduce(op, &tensor, Axes::one(0), false).unwrap());
                close(
                    DType::F32,
                    &read(driver, DType::F32, output, inner),
                    &wanted,
                    1.0,
                    0.0,
                    op.name(),
                );
                driver.free(input).unwrap();
                driver.free(output).unwrap();
            }
        }
    });
}

#[test]
fn positions_running_sums_and_sorting() {
    each(|driver| {
        for dtype in DType::ALL {
            let (shape, x) = (Shape::from([3, 37, 2]), samples(dtype, 222));
            let order = Axes::new([2, 1, 0]).unwrap();
            let input = filled(driver, dtype, &x);
            let layout = Layout::contiguous(shape).permute(order);
            let view = DeviceView::new(input, dtype, layout);
            let tensor = Reference::permute(&reference(dtype, shape, &x), order).unwrap();
            let (values, positions) = (empty(driver, dtype, 222), empty(driver, DType::I64, 222));
            for &op in ArgOp::ALL {
                driver
                    .arg_reduce(&ArgReduce {
                        op,
                        input: view,
                        axis: 1,
                        output: positions,
                    })
                    .unwrap();
                let wanted = numbers(&Reference::arg_reduce(op, &tensor, 1, false).unwrap());
                assert_eq!(read(driver, DType::I64, positions, 6), wanted, "{} {dtype}", op.name());
            }
            for (axis, descending) in [(0, true), (1, false), (1, true), (2, false)] {
                driver
                    .sort(&Sort {
                        input: view,
                        axis,
                        descending,
                        values,
                        positions,
                    })
                    .unwrap();
                let (sorted, from) = Reference::sort(&tensor, axis, descending).unwrap();
                assert_eq!(read(driver, DType::I64, positions, 222), numbers(&from), "sort {dtype}");
                close(
                    dtype,
                    &read(driver, dtype, values, 222),
                    &numbers(&sorted),
                    0.0,
                    0.0,
                    "sort",
                );
            }
            if dtype != DType::Bool {
                let x: Vec<f64> = x.iter().map(|&x| if x.is_finite() { x } else { 2.0 }).collect();
                let input = filled(driver, dtype, &x);
                let view = DeviceView::new(input, dtype, layout);
                let tensor = Reference::permute(&reference(dtype, shape, &x), order).unwrap();
                for axis in [0, 1] {
                    driver
                        .cumsum(&CumSum {
                            input: view,
                            axis,
                            output: values,
                        })
                        .unwrap();
                    let wanted = numbers(&Reference::cumsum(&tensor, axis).unwrap());
                    close(dtype, &read(driver, dtype, values, 222), &wanted, 2.0, 1e-6, "cumsum");
                }
                driver.free(input).unwrap();
            }
            for ptr in [input, values, positions] {
                driver.free(ptr).unwrap();
            }
        }
    });
}

#[test]
fn softmax_and_its_gradient() {
    each(|driver| {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            for columns in [1, 5, 90] {
                let (rows, shape) = (3, Shape::from([3, columns]));
                let x: Vec<f64> = (0..rows * columns)
                    .map(|i| ((i * 29) % 17) as f64 / 2.0 - 4.0)
                    .collect();
                let [input, saved, output] = [&x, &x, &x].map(|x| filled(driver, dtype, x));
                for log in [false, true] {
                    let call = Softmax {
                        dtype,
                        rows,
                        columns,
                        log,
                        input,
                        saved,
                        output,
                    };
                    driver.softmax(&call).unwrap();
                    let tensor = reference(dtype, shape, &x);
                    let wanted = match log {
                        false => Reference::softmax(&tensor, 1),
                        true => Reference::log_softmax(&tensor, 1),
                    };
                    let wanted = wanted.unwrap();
                    close(
                        dtype,
                        &read(driver, dtype, output, rows * columns),
                        &numbers(&wanted),
                        8.0,
                        1e-6,
                        "softmax",
                    );
                    let saved = filled(driver, dtype, &numbers(&wanted));
                    driver.softmax_backward(&Softmax { saved, ..call }).unwrap();
                    let wanted = match log {
                        false => Reference::softmax_backward(&tensor, &wanted, 1),
                        true => Reference::log_softmax_backward(&tensor, &wanted, 1),
                    };
                    let got = read(driver, dtype, output, rows * columns);
                    let slack = if dtype == DType::F64 {
                        1e-12
                    } else if dtype == DType::F32 {
                        1e-5
                    } else {
                        0.03
                    };
                    close(dtype, &got, &numbers(&wanted.unwrap()), 16.0, slack, "softmax_backward");
                    driver.free(saved).unwrap();
                }
                for ptr in [input, saved, output] {
                    driver.free(ptr).unwrap();
                }
            }
        }
    });
}

#[test]
fn layer_norm() {
    each(|driver| {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            let (rows, columns) = (4, 45);
            let x: Vec<f64> = (0..rows * columns)
                .map(|i| ((i * 29) % 23) as f64 / 2.0 + 3.0)
                .collect();
            let scale: Vec<f64> = (0..columns).map(|i| 0.5 + (i % 5) as f64).collect();
            let [input, weight, bias, output] = [&x, &scale, &scale, &x].map(|x| filled(driver, dtype, x));
            let [mean, rstd] = [0; 2].map(|_| empty(driver, dtype, rows));
            let tensor = reference(dtype, Shape::from([rows, columns]), &x);
            let factor = reference(dtype, Shape::from([columns]), &scale);
            for (has_weight, has_bias) in [(false, false), (true, false), (true, true)] {
                let call = LayerNorm {
                    dtype,
                    rows,
                    columns,
                    eps: 1e-5,
                    input,
                    weight: has_weight.then_some(weight),
                    bias: has_bias.then_some(bias),
                    output,
                    mean,
                    rstd,
                };
                driver.layer_norm(&call).unwrap();
                let (y, mu, r) = Reference::layer_norm(
                    &tensor,
                    has_weight.then_some(&factor),
                    has_bias.then_some(&factor),
                    1,
                    1e-5,
                )
                .unwrap();
                // The reference rounds each step to the dtype.
                let slack = if dtype == DType::F64 {
                    1e-12
                } else if dtype == DType::F32 {
                    1e-5
                } else {
                    0.1
                };
                close(
                    dtype,
                    &read(driver, dtype, output, rows * columns),
                    &numbers(&y),
                    8.0,
                    slack,
                    "layer_norm",
                );
                close(dtype, &read(driver, dtype, mean, rows), &numbers(&mu), 2.0, 0.0, "mean");
                close(
                    dtype,
                    &read(driver, dtype, rstd, rows),
                    &numbers(&r),
                    4.0,
                    slack,
                    "rstd",
                );
            }
            for ptr in [input, weight, bias, output, mean, rstd] {
                driver.free(ptr).unwrap();
            }
        }
    });
}
