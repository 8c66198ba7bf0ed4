//! Convolution and its gradients against the reference backend, over strides, paddings, dilations, groups
//! and one to three axes.

use polygrad_core::{Activation, Backend, ConvParams, DType, Distribution, Prepack, RandomKey, Shape, random_host};
use polygrad_cpu::{Cpu, CpuDevice, Kernels};
use polygrad_reference::{Reference, ReferenceDevice};

fn close<B: Backend>(what: &str, ours: &<Cpu as Backend>::Tensor, theirs: &B::Tensor, tolerance: f64) {
    let (ours, theirs) = (Cpu::to_host(ours).unwrap(), B::to_host(theirs).unwrap());
    assert_eq!(ours.shape(), theirs.shape(), "{what}");
    for (i, (a, b)) in ours.to_f64_vec().iter().zip(theirs.to_f64_vec()).enumerate() {
        assert!(
            (a - b).abs() <= tolerance * (1.0 + b.abs()),
            "{what}: element {i} is {a}, not {b}"
        );
    }
}

fn check(device: CpuDevice, x: &[usize], weight: &[usize], params: ConvParams, dtype: DType) {
    let what = format!("{device} {dtype} {x:?} {weight:?} {params:?}");
    let (x, weight) = (Shape::new(x).unwrap(), Shape::new(weight).unwrap());
    let Ok(out) = params.output_shape(&x, &weight) else {
        return;
    };
    let of_filters = weight.numel() / weight[0].min(weight[1] * params.groups);
    let terms = of_filters.max(out.numel() / out[1]);
    let tolerance = match dtype {
        DType::F64 => 1e-12,
        // Of numbers with a mean square of 1; long sums are as much larger as their rounding errors.
        DType::F32 => 2e-5_f64.max(1e-6 * (terms as f64).sqrt()),
        _ => 2e-2,
    };
    let host = |shape, seed| {
        let normal = Distribution::Normal { mean: 0.0, std: 1.0 };
        random_host(shape, normal, dtype, RandomKey { seed, offset: 0 }).unwrap()
    };
    let (hx, hw, hg) = (host(x, 1), host(weight, 2), host(out, 3));
    let ours = |h: &polygrad_core::HostTensor| Cpu::from_host(h.clone(), &device).unwrap();
    let theirs = |h: &polygrad_core::HostTensor| Reference::from_host(h.clone(), &ReferenceDevice).unwrap();
    let (cx, cw, cg) = (ours(&hx), ours(&hw), ours(&hg));
    let (rx, rw, rg) = (theirs(&hx), theirs(&hw), theirs(&hg));
    close::<Reference>(
        &what,
        &Cpu::conv(&cx, &cw, None, None, None, &params).unwrap(),
        &Reference::conv(&rx, &rw, None, None, None, &params).unwrap(),
        tolerance,
    );
    close::<Reference>(
        &format!("input gradient, {what}"),
        &Cpu::conv_input_grad(&cg, &cw, x, &params).unwrap(),
        &Reference::conv_input_grad(&rg, &rw, x, &params).unwrap(),
        tolerance,
    );
    close::<Reference>(
        &format!("weight gradient, {what}"),
        &Cpu::conv_weight_grad(&cg, &cx, weight, &params).unwrap(),
        &Reference::conv_weight_grad(&rg, &rx, weight, &params).unwrap(),
        tolerance,
    );
}

#[test]
fn agrees_with_the_reference() {
    for kernels in [Kernels::Scalar, Kernels::Simd] {
        for threads in [1, 2] {
            let device = CpuDevice::new(threads, kernels).unwrap();
            for stride in 1..=3 {
                for padding in [0, 1, 4] {
                    for dilation in 1..=2 {
                        for groups in [1, 2] {
                            let params = ConvParams {
                                stride: [stride; 3],
                                padding: [padding; 3],
                                dilation: [dilation; 3],
                                groups,
                            };
                            for dtype in [DType::F32, DType::F64] {
                                check(device, &[3, 4, 9], &[6, 4 / groups, 3], params, dtype);
                                check(device, &[2, 4, 6, 7], &[2, 4 / groups, 3, 2], params, dtype);
                                check(device, &[1, 2, 3, 4, 5], &[2, 2 / groups, 1, 3, 2], params, dtype);
                                check(device, &[9, 4, 5, 5], &[4, 4 / groups, 1, 1], params, dtype);
                                // Channels enough for patches that are read where they lie.
                                check(device, &[3, 18, 9], &[20, 18 / groups, 3], params, dtype);
                                check(device, &[2, 16, 6, 7], &[24, 16 / groups, 3, 2], params, dtype);
                                check(device, &[1, 16, 3, 4, 5], &[18, 16 / groups, 1, 3, 2], params, dtype);
                            }
                        }
                    }
                }
            }
            check(
                device,
                &[2, 6, 8, 8],
                &[6, 1, 3, 3],
                ConvParams {
                    groups: 6,
                    padding: [1; 3],
                    ..Default::default()
                },
                DType::F32,
            );
            // Many panels, places and positions, none of them a multiple of a tile.
            let params = ConvParams {
                padding: [1; 3],
                ..Default::default()
            };
            check(device, &[3, 21, 19, 17], &[37, 21, 3, 3], params, DType::F32);
            check(
                device,
                &[2, 37, 21, 5],
                &[9, 37, 1, 1],
                ConvParams::default(),
                DType::F32,
            );
            check(device, &[2, 3, 8, 8], &[4, 3, 3, 3], ConvParams::default(), DType::F16);
            check(device, &[0, 3, 8, 8], &[4, 3, 3, 3], ConvParams::default(), DType::F32);
        }
    }
}

/// Channels and tiles enough for Winograd's form: odd sizes, lines shorter and longer than a register,
/// several chunks of channels.
#[test]
fn windows_of_three_by_three_agree_with_the_reference() {
    for threads in [1, 2] {
        let device = CpuDevice::new(threads, Kernels::Simd).unwrap();
        for padding in 0..=3 {
            for groups in [1, 2] {
                let params = ConvParams {
                    padding: [padding; 3],
                    groups,
                    ..Default::default()
                };
                check(device, &[3, 34, 9, 7], &[38, 34 / groups, 3, 3], params, DType::F32);
                check(device, &[9, 64, 4, 4], &[40, 64 / groups, 3, 3], params, DType::F32);
                check(device, &[1, 32, 6, 41], &[150, 32 / groups, 3, 3], params, DType::F32);
            }
        }
        let params = ConvParams {
            padding: [1; 3],
            ..Default::default()
        };
        check(device, &[3, 209, 8, 7], &[17, 209, 3, 3], params, DType::F32);
    }
}

/// Planes that are transposed, so that channels are in the lanes: some more than registers hold, and some fewer.
#[test]
fn depthwise_convolutions_of_small_planes_agree_with_the_reference() {
    let device = CpuDevice::new(2, Kernels::Simd).unwrap();
    for channels in [3, 24, 41] {
        for (stride, padding, dilation) in [(1, 2, 1), (2, 2, 1), (1, 0, 1), (3, 1, 1), (1, 2, 2)] {
            let params = ConvParams {
                stride: [stride; 3],
                padding: [padding; 3],
                dilation: [dilation; 3],
                groups: channels,
            };
            for (image, window) in [([4, 4], [5, 5]), ([7, 9], [3, 3]), ([1, 6], [1, 4]), ([30, 5], [3, 2])] {
                let (x, weight) = ([3, channels, image[0], image[1]], [channels, 1, window[0], window[1]]);
                check(device, &x, &weight, params, DType::F32);
            }
            check(device, &[2, channels, 11], &[channels, 1, 5], params, DType::F32);
            check(
                device,
                &[2, channels, 3, 4, 5],
                &[channels, 1, 2, 3, 3],
                params,
                DType::F32,
            );
            check(device, &[2, channels, 4, 4], &[channels, 1, 3, 3], params, DType::F16);
        }
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for (x, weight) in [
        ([33, 8, 14, 14], [16, 8, 3, 3]),
        ([33, 20, 14, 14], [24, 20, 3, 3]),
        ([8, 20, 5, 4], [200, 20, 3, 3]),
    ] {
        threads_change_no_bit(Shape::from(x), Shape::from(weight));
    }
}

fn threads_change_no_bit(shape: Shape, weight: Shape) {
    let params = ConvParams {
        padding: [1; 3],
        ..Default::default()
    };
    let out = params.output_shape(&shape, &weight).unwrap();
    let results: Vec<_> = [1, 2, 3]
        .into_iter()
        .map(|threads| {
            let device = CpuDevice::new(threads, Kernels::Simd).unwrap();
            let random = |shape, seed| {
                let normal = Distribution::Normal { mean: 0.0, std: 1.0 };
                Cpu::random(shape, normal, DType::F32, RandomKey { seed, offset: 0 }, &device).unwrap()
            };
            let (x, w, g) = (random(shape, 1), random(weight, 2), random(out, 3));
            [
                Cpu::conv(&x, &w, None, None, None, &params).unwrap(),
                Cpu::conv_input_grad(&g, &w, shape, &params).unwrap(),
                Cpu::conv_weight_grad(&g, &x, weight, &params).unwrap(),
            ]
            .map(|y| Cpu::to_host(&y).unwrap().to_vec::<f32>().unwrap())
        })
        .collect();
    assert!(results[0] == results[1] && results[0] == results[2]);
}

#[test]
fn packed_filters_and_what_follows_change_no_bit() {
    // Weights, groups: of few channels, of panels that end within a group, of groups that fill theirs.
    let cases: [(&[usize], usize); 8] = [
        (&[4, 16, 3, 3], 1),
        (&[20, 16, 3, 3], 1),
        (&[20, 8, 3, 3], 2),
        (&[64, 8, 3, 3], 2),
        (&[64, 16, 1, 1], 1),
        (&[16, 1, 3, 3], 16),
        (&[37, 1, 3, 3], 37),
        (&[37, 16, 2, 3], 1),
    ];
    for kernels in [Kernels::Scalar, Kernels::Simd] {
        for threads in [1, 2] {
            let device = CpuDevice::new(threads, kernels).unwrap();
            let random = |dims: &[usize], seed| {
                let normal = Distribution::Normal { mean: 0.0, std: 1.0 };
                let key = RandomKey { seed, offset: 0 };
                Cpu::random(Shape::new(dims).unwrap(), normal, DType::F32, key, &device).unwrap()
            };
            for (dims, groups) in cases {
                // The small image has fewer positions than a panel has channels.
                for (stride, [images, height, width]) in [(1, [5, 12, 13]), (2, [5, 12, 13]), (1, [1, 2, 1])] {
                    let params = ConvParams {
                        stride: [stride; 3],
                        padding: [1; 3],
                        groups,
                        ..ConvParams::default()
                    };
                    let what = format!("{device} {dims:?} {params:?} {height}");
                    let (x, weight) = (random(&[images, dims[1] * groups, height, width], 1), random(dims, 2));
                    let packed = Cpu::prepack(&weight, Prepack::Conv).unwrap();
                    let values = |x: &<Cpu as Backend>::Tensor| Cpu::to_host(x).unwrap().to_vec::<f32>().unwrap();
                    assert_eq!(values(&packed), values(&weight), "{what}");
                    let plain = Cpu::conv(&x, &weight, None, None, None, &params).unwrap();
                    assert!(
                        values(&plain) == values(&Cpu::conv(&x, &packed, None, None, None, &params).unwrap()),
                        "{what}"
                    );
                    // A residual that does not lie in order.
                    let shape = *plain.shape();
                    let turned = random(&[shape[0], shape[1], shape[3], shape[2]], 3);
                    let residual = Cpu::permute(&turned, polygrad_core::Axes::new([0, 1, 3, 2]).unwrap()).unwrap();
                    let bias = random(&[dims[0]], 4);
                    let rows = Cpu::reshape(&bias, Shape::from([dims[0], 1, 1])).unwrap();
                    for residual in [None, Some(&residual)] {
                        for activation in [None, Some(Activation::Relu), Some(Activation::Sigmoid)] {
                            let mut wanted = Cpu::add(&plain, &rows).unwrap();
                            if let Some(residual) = residual {
                                wanted = Cpu::add(&wanted, residual).unwrap();
                            }
                            if let Some(activation) = activation {
                                wanted = Cpu::activation(activation, &wanted).unwrap();
                            }
                            let found = Cpu::conv(&x, &packed, Some(&bias), residual, activation, &params);
                            let (found, wanted) = (values(&found.unwrap()), values(&wanted));
                            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                            assert!(bits(&found) == bits(&wanted), "{what} {activation:?}");
                        }
                    }
                }
            }
        }
    }
}
