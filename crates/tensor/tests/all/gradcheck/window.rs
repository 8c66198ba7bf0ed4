//! Convolution and pooling.

use polygrad_tensor::{Activation, ConvParams, InterpolateMode, PoolParams, Resize, inference};

use super::case::{Cases, mixed};

fn convolutions(cases: &mut Cases) {
    for groups in [1, 2] {
        for stride in [1, 2, 3] {
            for padding in [0, 1, 2] {
                for dilation in [1, 2] {
                    let params = ConvParams {
                        stride: [stride; 3],
                        padding: [padding; 3],
                        dilation: [dilation; 3],
                        groups,
                    };
                    let name = format!("stride {stride}, padding {padding}, dilation {dilation}, groups {groups}");
                    let inputs = [mixed([1, 2, 5], 1), mixed([2, 2 / groups, 2], 2)];
                    cases.add(format!("conv {name}"), inputs, move |x| x[0].conv(&x[1], None, &params));
                    // A short output has more padding than it can lose.
                    if padding < 2 {
                        let extra = (stride.max(dilation) - 1).min(stride - 1);
                        let inputs = [mixed([1, 2, 3], 1), mixed([2, 2 / groups, 2], 2)];
                        cases.add(
                            format!("conv_transpose {name}, output_padding {extra}"),
                            inputs,
                            move |x| x[0].conv_transpose(&x[1], &params, [extra; 3]),
                        );
                    }
                }
            }
        }
    }
    let params = ConvParams {
        stride: [2, 1, 1],
        padding: [1, 0, 1],
        dilation: [1, 2, 1],
        groups: 1,
    };
    let shapes: [(&[usize], &[usize]); 4] = [
        (&[2, 1, 4, 3], &[2, 1, 3, 2]),
        (&[1, 2, 3, 4], &[1, 2, 2, 2]),
        (&[1, 1, 3, 3, 2], &[1, 1, 2, 2, 3]),
        (&[0, 1, 4, 3], &[1, 1, 2, 2]),
    ];
    let inputs = [
        mixed([1, 2, 4], 1),
        mixed([2, 2, 2], 2),
        mixed([2], 3),
        mixed([1, 2, 3], 4),
    ];
    cases.add("conv with all", inputs, |x| {
        inference::conv(
            &x[0],
            &x[1],
            Some(&x[2]),
            Some(&x[3]),
            Some(Activation::Tanh),
            &ConvParams::default(),
        )
    });
    for (x, w) in shapes {
        cases.add(format!("conv {x:?} {w:?}"), [mixed(x, 1), mixed(w, 2)], move |x| {
            x[0].conv(&x[1], None, &params)
        });
        let inputs = [mixed(x, 1), mixed(w, 2), mixed([w[0]], 3)];
        cases.add(format!("conv with a bias {x:?} {w:?}"), inputs, move |x| {
            x[0].conv(&x[1], Some(&x[2]), &params)
        });
    }
    // With dilation, output_padding may be a stride or more.
    let wide = ConvParams {
        padding: [1, 2, 0],
        dilation: [4; 3],
        ..params
    };
    cases.add(
        "conv_transpose with much output_padding",
        [mixed([1, 1, 2, 2], 1), mixed([1, 1, 2, 2], 2)],
        move |x| x[0].conv_transpose(&x[1], &wide, [3, 2, 0]),
    );
    for shape in [&[1, 1, 2, 2][..], &[1, 1, 2, 1, 2]] {
        let kernel = [&[1, 1][..], &[3, 2, 2][..shape.len() - 2]].concat();
        cases.add(
            format!("conv_transpose {shape:?}"),
            [mixed(shape, 1), mixed(kernel, 2)],
            move |x| x[0].conv_transpose(&x[1], &params, [1, 0, 0]),
        );
    }
}

fn pools(cases: &mut Cases) {
    for (kernel, stride, padding) in [(2, 2, 0), (3, 2, 1), (3, 1, 0), (2, 3, 1)] {
        for ceil_mode in [false, true] {
            let params = PoolParams {
                stride: [stride; 3],
                padding: [padding; 3],
                ceil_mode,
                ..PoolParams::new([kernel; 3])
            };
            let name = format!("kernel {kernel}, stride {stride}, padding {padding}, ceil_mode {ceil_mode}");
            for shape in [&[1, 2, 6][..], &[1, 1, 4, 5], &[1, 1, 3, 3, 3]] {
                cases.unary(format!("max_pool {shape:?} {name}"), mixed(shape, 1), move |x| {
                    Ok(x.max_pool(&params)?.0)
                });
                for count_include_pad in [false, true] {
                    let params = PoolParams {
                        count_include_pad,
                        ..params
                    };
                    let name = format!("avg_pool {shape:?} {name}, count_include_pad {count_include_pad}");
                    cases.unary(name, mixed(shape, 1), move |x| x.avg_pool(&params));
                }
            }
        }
    }
    let large = PoolParams {
        stride: [4; 3],
        padding: [1; 3],
        ceil_mode: true,
        ..PoolParams::new([5, 6, 1])
    };
    cases.unary(
        "max_pool with a window larger than its axis",
        mixed([1, 2, 2, 3], 1),
        move |x| Ok(x.max_pool(&large)?.0),
    );
    cases.unary(
        "avg_pool with a window larger than its axis",
        mixed([1, 2, 2, 3], 1),
        move |x| x.avg_pool(&large),
    );
    for ceil_mode in [false, true] {
        let params = PoolParams {
            stride: [2; 3],
            padding: [1; 3],
            ceil_mode,
            ..PoolParams::new([3; 3])
        };
        for divisor in [2, -5] {
            let name = format!("avg_pool, ceil_mode {ceil_mode}, divisor {divisor}");
            cases.unary(name, mixed([1, 2, 4, 5], 1), move |x| {
                x.avg_pool_with_divisor(&params, divisor)
            });
        }
    }
    let sizes: [&[usize]; 4] = [&[2, 5], &[3, 3], &[4, 7], &[1, 0]];
    for size in sizes {
        cases.unary(
            format!("adaptive_avg_pool {size:?}"),
            mixed([1, 2, 4, 5], 1),
            move |x| x.adaptive_avg_pool(size),
        );
        cases.unary(
            format!("adaptive_max_pool {size:?}"),
            mixed([1, 2, 4, 5], 1),
            move |x| Ok(x.adaptive_max_pool(size)?.0),
        );
    }
    let dilated = PoolParams {
        dilation: [2; 3],
        stride: [1; 3],
        ..PoolParams::new([2; 3])
    };
    cases.unary("max_pool2d", mixed([1, 2, 5, 4], 1), |x| x.max_pool2d(2));
    cases.unary("avg_pool2d", mixed([1, 2, 5, 4], 1), |x| x.avg_pool2d(2));
    cases.unary("max_pool with dilation", mixed([1, 1, 4, 4], 1), move |x| {
        Ok(x.max_pool(&dilated)?.0)
    });
}

fn interpolations(cases: &mut Cases) {
    let modes = [
        InterpolateMode::Nearest,
        InterpolateMode::NearestExact,
        InterpolateMode::Linear,
        InterpolateMode::Cubic,
        InterpolateMode::Area,
    ];
    for mode in modes {
        let corners = matches!(mode, InterpolateMode::Linear | InterpolateMode::Cubic);
        for align_corners in [false, true].into_iter().take(1 + usize::from(corners)) {
            for to in [Resize::Size(&[1, 6]), Resize::Size(&[5, 2]), Resize::Scale(&[0.7, 1.6])] {
                let name = format!("interpolate {mode:?} {to:?}, align_corners {align_corners}");
                cases.unary(name, mixed([1, 2, 3, 4], 1), move |x| {
                    x.interpolate(to, mode, align_corners)
                });
            }
        }
    }
    for shape in [&[2, 1, 4][..], &[1, 1, 2, 3, 2]] {
        let sizes = &[5, 2, 3][..shape.len() - 2];
        cases.unary(format!("interpolate {shape:?} linearly"), mixed(shape, 1), move |x| {
            x.interpolate(Resize::Size(sizes), InterpolateMode::Linear, false)
        });
    }
}

pub(crate) fn cases() -> Cases {
    let mut cases = Cases::default();
    interpolations(&mut cases);
    convolutions(&mut cases);
    pools(&mut cases);
    cases
}
