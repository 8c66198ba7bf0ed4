//! Convolution with its gradients, and pooling.

use polygrad_core::compute::{Conv2d, DevicePtr, Kernel, Pool2d};
use polygrad_core::{Backend, ConvParams, DType, HostTensor, PoolParams, Result, Shape};
use polygrad_reference::Reference;

use super::super::case::Cases;
use super::super::fixture::Fixture;
use super::super::numbers::{drawn, host, precise};
use super::super::outcome::{CaseResult, wrong};
use crate::tolerance::{Bounds, tolerance};

pub(super) fn cases(all: &mut Cases) {
    for dtype in DType::ALL {
        if dtype.is_float() {
            for part in [Kernel::Conv2dForward, Kernel::Conv2dInputGrad, Kernel::Conv2dWeightGrad] {
                all.add(format!("{} {dtype}", part.name()), move |fixture| {
                    conv(fixture, part, dtype)
                });
            }
            all.add(format!("avg_pool2d {dtype}"), move |fixture| avg_pool(fixture, dtype));
        }
        if dtype != DType::Bool {
            all.add(format!("max_pool2d {dtype}"), move |fixture| max_pool(fixture, dtype));
        }
    }
    all.add("conv2d: what does not fit", misfits);
    all.add("conv2d: no batch", no_batch);
}

struct Windows {
    input: [usize; 4],
    weight: [usize; 4],
    params: ConvParams,
}

fn windows() -> Vec<Windows> {
    let params = |stride: [usize; 2], padding: [usize; 2], dilation: [usize; 2], groups| ConvParams {
        stride: [stride[0], stride[1], 1],
        padding: [padding[0], padding[1], 0],
        dilation: [dilation[0], dilation[1], 1],
        groups,
    };
    let of = |input, weight, params| Windows { input, weight, params };
    vec![
        of([1, 1, 3, 3], [1, 1, 3, 3], params([1, 1], [0, 0], [1, 1], 1)),
        of([2, 3, 7, 6], [4, 3, 3, 2], params([1, 1], [0, 0], [1, 1], 1)),
        of([2, 3, 7, 6], [4, 3, 1, 1], params([1, 1], [0, 0], [1, 1], 1)),
        of([2, 3, 8, 9], [4, 3, 3, 3], params([2, 1], [1, 1], [1, 1], 1)),
        of([1, 2, 9, 8], [3, 2, 3, 2], params([2, 3], [2, 1], [1, 2], 1)),
        of([2, 4, 6, 6], [6, 2, 3, 3], params([1, 1], [1, 1], [1, 1], 2)),
        of([2, 4, 6, 6], [4, 1, 3, 3], params([1, 2], [1, 0], [2, 1], 4)),
        of([3, 8, 12, 12], [16, 8, 3, 3], params([1, 1], [1, 1], [1, 1], 1)),
    ]
}

fn conv(fixture: &Fixture<'_>, part: Kernel, dtype: DType) -> CaseResult {
    fixture.needs(part, dtype)?;
    for Windows { input, weight, params } in windows() {
        let mut call = Conv2d {
            dtype,
            input_shape: input,
            weight_shape: weight,
            params,
            input: DevicePtr::NULL,
            weight: DevicePtr::NULL,
            output: DevicePtr::NULL,
        };
        let output = call.output_shape()?;
        let (x, w, y) = (
            drawn(dtype, &input, 1)?,
            drawn(dtype, &weight, 2)?,
            drawn(dtype, &output, 3)?,
        );
        let (px, pw, py) = (precise(&x)?, precise(&w)?, precise(&y)?);
        let place = |host: &HostTensor, written: bool| match written {
            true => fixture.out(dtype, host.shape()),
            false => fixture.put(host),
        };
        let blocks = [
            place(&x, part == Kernel::Conv2dInputGrad)?,
            place(&w, part == Kernel::Conv2dWeightGrad)?,
            place(&y, part == Kernel::Conv2dForward)?,
        ];
        [call.input, call.weight, call.output] = blocks.map(|block| block.ptr);
        let (to, truth) = match part {
            Kernel::Conv2dInputGrad => {
                fixture.driver.conv2d_input_grad(&call)?;
                let shape = Shape::new(&input)?;
                (0, Reference::conv_input_grad(&py, &pw, shape, &params)?)
            }
            Kernel::Conv2dWeightGrad => {
                fixture.driver.conv2d_weight_grad(&call)?;
                let shape = Shape::new(&weight)?;
                (1, Reference::conv_weight_grad(&py, &px, shape, &params)?)
            }
            _ => {
                fixture.driver.conv2d_forward(&call)?;
                (2, Reference::conv(&px, &pw, None, None, None, &params)?)
            }
        };
        let what = format!("{input:?} {weight:?} {params:?}");
        fixture.check(
            &what,
            &blocks[to],
            &host(&truth)?,
            tolerance(dtype, "nn.functional.conv2d"),
        )?;
    }
    Ok(())
}

fn pools() -> Vec<([usize; 4], PoolParams)> {
    let plain = PoolParams::new([2, 2, 1]);
    vec![
        ([2, 3, 6, 8], plain),
        (
            [2, 3, 7, 9],
            PoolParams {
                kernel: [3, 2, 1],
                stride: [2, 1, 1],
                ..plain
            },
        ),
        (
            [1, 2, 7, 7],
            PoolParams {
                kernel: [3, 3, 1],
                stride: [2, 2, 1],
                padding: [1, 1, 0],
                ..plain
            },
        ),
        (
            [1, 2, 8, 7],
            PoolParams {
                kernel: [3, 3, 1],
                stride: [2, 2, 1],
                ceil_mode: true,
                ..plain
            },
        ),
        (
            [1, 1, 5, 5],
            PoolParams {
                kernel: [5, 5, 1],
                stride: [1, 1, 1],
                ..plain
            },
        ),
    ]
}

fn max_pool(fixture: &Fixture<'_>, dtype: DType) -> CaseResult {
    fixture.needs(Kernel::MaxPool2d, dtype)?;
    let dilated = PoolParams {
        kernel: [2, 2, 1],
        stride: [1, 1, 1],
        dilation: [2, 2, 1],
        ..PoolParams::new([2, 2, 1])
    };
    for (input_shape, params) in pools().into_iter().chain([([1, 2, 6, 6], dilated)]) {
        // Few different values, so that there are ties, and NaN.
        let base = drawn(dtype, &input_shape, 1)?;
        let mut values: Vec<f64> = base.to_f64_vec().iter().map(|x| x.round()).collect();
        if dtype.is_float() {
            values[7] = f64::NAN;
        }
        let x = HostTensor::new(*base.shape(), values)?.cast(dtype);
        let (values, Some(positions)) = Reference::max_pool(&precise(&x)?, &params, true)? else {
            return wrong("the reference gives no positions");
        };
        let (values, positions) = (host(&values)?, host(&positions)?);
        let from = fixture.put(&x)?;
        let (to, to_positions) = (
            fixture.out(dtype, values.shape())?,
            fixture.out(DType::I64, values.shape())?,
        );
        let (input, output) = (from.ptr, to.ptr);
        fixture.driver.max_pool2d(&Pool2d {
            dtype,
            input_shape,
            params,
            input,
            output,
            positions: to_positions.ptr,
        })?;
        fixture.check("max_pool2d", &to, &values, Bounds::EXACT)?;
        fixture.check("positions", &to_positions, &positions, Bounds::EXACT)?;
    }
    Ok(())
}

fn avg_pool(fixture: &Fixture<'_>, dtype: DType) -> CaseResult {
    fixture.needs(Kernel::AvgPool2d, dtype)?;
    for (input_shape, params) in pools() {
        for count_include_pad in [true, false] {
            let params = PoolParams {
                count_include_pad,
                ..params
            };
            let x = drawn(dtype, &input_shape, 1)?;
            let truth = host(&Reference::avg_pool(&precise(&x)?, &params)?)?;
            let (from, to) = (fixture.put(&x)?, fixture.out(dtype, truth.shape())?);
            let (input, output, positions) = (from.ptr, to.ptr, DevicePtr::NULL);
            fixture.driver.avg_pool2d(&Pool2d {
                dtype,
                input_shape,
                params,
                input,
                output,
                positions,
            })?;
            fixture.check_op("avg_pool2d", &to, &truth)?;
        }
    }
    Ok(())
}

fn misfits(fixture: &Fixture<'_>) -> CaseResult {
    let dtype = DType::F32;
    fixture.needs(Kernel::Conv2dForward, dtype)?;
    let x = fixture.out(dtype, &[1000])?;
    let good = Conv2d {
        dtype,
        input_shape: [1, 2, 4, 4],
        weight_shape: [3, 2, 3, 3],
        params: ConvParams::default(),
        input: x.ptr,
        weight: x.ptr,
        output: x.ptr,
    };
    let refused = |what: &str, result: Result<()>| match result {
        Ok(()) => wrong(format!("{what} goes well")),
        Err(_) => Ok(()),
    };
    let of = |params| Conv2d { params, ..good };
    let plain = ConvParams::default();
    for (what, call) in [
        (
            "other channels",
            Conv2d {
                weight_shape: [3, 1, 3, 3],
                ..good
            },
        ),
        (
            "a window larger than the input",
            Conv2d {
                weight_shape: [3, 2, 5, 3],
                ..good
            },
        ),
        ("no groups", of(ConvParams { groups: 0, ..plain })),
        (
            "a stride of 0",
            of(ConvParams {
                stride: [0, 1, 1],
                ..plain
            }),
        ),
        (
            "a dilation of 0",
            of(ConvParams {
                dilation: [1, 0, 1],
                ..plain
            }),
        ),
        (
            "more than there can be",
            Conv2d {
                input_shape: [usize::MAX, 2, 4, 4],
                ..good
            },
        ),
        (
            "padding beyond counting",
            of(ConvParams {
                padding: [usize::MAX, 0, 0],
                ..plain
            }),
        ),
    ] {
        refused(what, fixture.driver.conv2d_forward(&call))?;
    }
    Ok(())
}

fn no_batch(fixture: &Fixture<'_>) -> CaseResult {
    let dtype = DType::F32;
    fixture.needs(Kernel::Conv2dForward, dtype)?;
    let nowhere = DevicePtr::NULL;
    let weight = fixture.put(&drawn(dtype, &[3, 2, 3, 3], 1)?)?;
    let call = Conv2d {
        dtype,
        input_shape: [0, 2, 4, 4],
        weight_shape: [3, 2, 3, 3],
        params: ConvParams::default(),
        input: nowhere,
        weight: weight.ptr,
        output: nowhere,
    };
    fixture.driver.conv2d_forward(&call)?;
    if fixture.driver.supports(Kernel::Conv2dWeightGrad, dtype) {
        let grad = fixture.out(dtype, &[3, 2, 3, 3])?;
        fixture.driver.conv2d_weight_grad(&Conv2d {
            weight: grad.ptr,
            ..call
        })?;
        let zeros = HostTensor::new(Shape::new(&[3, 2, 3, 3])?, vec![0f64; 54])?;
        fixture.check("a gradient of no batch", &grad, &zeros, Bounds::EXACT)?;
    }
    Ok(())
}
