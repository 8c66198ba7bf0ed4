//! Convolutions with their gradients, and pooling, compared with the reference.

use polygrad_core::compute::{ComputeBackend, Conv2d, Pool2d};
use polygrad_core::{Backend, ConvParams, DType, ErrorKind, PoolParams, Shape};
use polygrad_reference::Reference;

use crate::support::{close, each, empty, filled, numbers, read, reference, samples};

fn values(len: usize, by: usize) -> Vec<f64> {
    (0..len).map(|i| ((i * by) % 13) as f64 / 4.0 - 1.5).collect()
}

#[test]
fn convolutions_and_their_gradients() {
    let params = |stride, padding, dilation, groups| ConvParams {
        stride,
        padding,
        dilation,
        groups,
    };
    let cases = [
        ([2, 3, 7, 6], [4, 3, 3, 2], params([1; 3], [0; 3], [1; 3], 1)),
        ([2, 4, 8, 9], [6, 2, 3, 3], params([2, 1, 1], [1, 2, 0], [1, 2, 1], 2)),
        ([1, 3, 5, 5], [3, 1, 1, 1], params([1; 3], [0; 3], [1; 3], 3)),
        // Too large for all images at a time: one by one, and four plus one.
        ([3, 1, 34, 33], [2, 1, 3, 3], params([1; 3], [1; 3], [1; 3], 1)),
        ([5, 4, 7, 6], [4, 2, 3, 2], params([1; 3], [0; 3], [1; 3], 2)),
        ([0, 2, 5, 5], [3, 2, 3, 3], params([1; 3], [0; 3], [1; 3], 1)),
    ];
    each(|driver| {
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            for (input_shape, weight_shape, params) in cases {
                let mut call = Conv2d {
                    dtype,
                    input_shape,
                    weight_shape,
                    params,
                    input: Default::default(),
                    weight: Default::default(),
                    output: Default::default(),
                };
                let output_shape = call.output_shape().unwrap();
                let lens = [input_shape, weight_shape, output_shape].map(|shape| shape.iter().product::<usize>());
                let [x, w, g] = [(lens[0], 5), (lens[1], 7), (lens[2], 3)].map(|(len, by)| values(len, by));
                let tensor = |shape: [usize; 4], x: &[f64]| reference(DType::F64, Shape::from(shape), x);
                let (tx, tw, tg) = (
                    tensor(input_shape, &x),
                    tensor(weight_shape, &w),
                    tensor(output_shape, &g),
                );
                let slack = if dtype == DType::F64 { 1e-10 } else { 1e-4 };
                let mut run = |which: usize, wanted: Vec<f64>, name: &str| {
                    let ptrs = [&x, &w, &g].map(|values| filled(driver, dtype, values));
                    let out = empty(driver, dtype, lens[which]);
                    [call.input, call.weight, call.output] = ptrs;
                    *[&mut call.input, &mut call.weight, &mut call.output][which] = out;
                    match which {
                        0 => driver.conv2d_input_grad(&call),
                        1 => driver.conv2d_weight_grad(&call),
                        _ => driver.conv2d_forward(&call),
                    }
                    .unwrap();
                    let what = format!("{name} {input_shape:?} {weight_shape:?}");
                    close(
                        dtype,
                        &read(driver, dtype, out, lens[which]),
                        &wanted,
                        2.0,
                        slack,
                        &what,
                    );
                    ptrs.into_iter().chain([out]).for_each(|ptr| driver.free(ptr).unwrap());
                };
                run(
                    2,
                    numbers(&Reference::conv(&tx, &tw, None, None, None, &params).unwrap()),
                    "conv",
                );
                let wanted = Reference::conv_input_grad(&tg, &tw, Shape::from(input_shape), &params).unwrap();
                run(0, numbers(&wanted), "conv_input_grad");
                let wanted = Reference::conv_weight_grad(&tg, &tx, Shape::from(weight_shape), &params).unwrap();
                run(1, numbers(&wanted), "conv_weight_grad");
            }
        }
    });
}

#[test]
fn pooling() {
    let mut wide = PoolParams::new([3, 2, 1]);
    wide.stride = [2, 1, 1];
    wide.padding = [1, 1, 0];
    wide.ceil_mode = true;
    let bare = PoolParams {
        count_include_pad: false,
        ..wide
    };
    let dilated = PoolParams {
        dilation: [2, 3, 1],
        ..wide
    };
    each(|driver| {
        for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != DType::Bool) {
            for params in [PoolParams::new([2, 2, 1]), wide, bare, dilated] {
                let input_shape = [2, 3, 8, 7];
                let shape = Shape::from(input_shape);
                let x = samples(dtype, shape.numel());
                let out = params.output_shape(&shape).unwrap().numel();
                let (input, output, positions) = (
                    filled(driver, dtype, &x),
                    empty(driver, dtype, out),
                    empty(driver, DType::I64, out),
                );
                let call = Pool2d {
                    dtype,
                    input_shape,
                    params,
                    input,
                    output,
                    positions,
                };
                driver.max_pool2d(&call).unwrap();
                let (wanted, from) = Reference::max_pool(&reference(dtype, shape, &x), &params, true).unwrap();
                close(
                    dtype,
                    &read(driver, dtype, output, out),
                    &numbers(&wanted),
                    0.0,
                    0.0,
                    "max_pool2d",
                );
                assert_eq!(
                    read(driver, DType::I64, positions, out),
                    numbers(&from.unwrap()),
                    "{dtype}"
                );
                if dtype.is_float() && params.dilation == [1; 3] {
                    driver.avg_pool2d(&call).unwrap();
                    let wanted = Reference::avg_pool(&reference(dtype, shape, &x), &params).unwrap();
                    close(
                        dtype,
                        &read(driver, dtype, output, out),
                        &numbers(&wanted),
                        1.0,
                        1e-7,
                        "avg_pool2d",
                    );
                }
                for ptr in [input, output, positions] {
                    driver.free(ptr).unwrap();
                }
            }
        }
        let dtype = DType::F32;
        let ptr = empty(driver, dtype, 4);
        let params = PoolParams {
            dilation: [5, 1, 1],
            padding: [1, 0, 0],
            ..PoolParams::new([2, 1, 1])
        };
        let call = Pool2d {
            dtype,
            input_shape: [1, 1, 4, 1],
            params,
            input: ptr,
            output: ptr,
            positions: ptr,
        };
        assert_eq!(driver.max_pool2d(&call).unwrap_err().kind(), ErrorKind::InvalidArgument);
        driver.free(ptr).unwrap();
    });
}
