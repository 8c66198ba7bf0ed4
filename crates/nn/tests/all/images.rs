//! RMSNorm, convolutions, pooling, resizing of images, and bags, beyond the recorded vectors from PyTorch.

use crate::common::f64_of;
use polygrad_nn::*;
use polygrad_tensor::{Backend, DType, Device, ErrorKind, InterpolateMode, PadMode, Result, Tensor};

on_backends!(
    the_default_eps_is_that_of_the_dtype,
    shuffling_back_gives_the_same,
    errors_say_what_is_wrong,
);

/// Results of PyTorch 2.13 for inputs so small that eps matters.
fn the_default_eps_is_that_of_the_dtype<B: Backend>(device: &Device<B>) {
    let norm = RMSNorm::new(2, device).unwrap();
    for (dtype, expected, bound) in [
        (DType::F64, 0.999_999_988_897_77, 1e-12),
        (DType::F32, 0.278_197_437_524_795_53, 1e-6),
        (DType::F16, 0.2783203125, 2e-3),
    ] {
        norm.to_dtype(dtype).unwrap();
        let x = f64_of(vec![1e-4; 2], &[2], device).to_dtype(dtype).unwrap();
        for found in norm.forward(&x).unwrap().to_f64_vec().unwrap() {
            assert!((found - expected).abs() < bound, "{dtype}: {found}");
        }
    }
    // An explicit one is the same for all dtypes.
    let norm = RMSNormConfig::new([2]).eps(1.0).build(device).unwrap();
    let x = Tensor::ones([2], device).unwrap();
    assert_eq!(norm.forward(&x).unwrap().to_vec::<f32>().unwrap(), [0.5f32.sqrt(); 2]);
}

fn shuffling_back_gives_the_same<B: Backend>(device: &Device<B>) {
    for shape in [
        &[4, 1, 1][..],
        &[8, 2, 3],
        &[2, 3, 4, 5, 1],
        &[0, 4, 2, 2],
        &[2, 0, 3, 3],
    ] {
        let count = shape.iter().product();
        let x = f64_of((0..count).map(|i| i as f64).collect(), shape, device);
        let large = PixelShuffle(2).forward(&x).unwrap();
        let back = PixelUnshuffle(2).forward(&large).unwrap();
        assert_eq!(back.dims(), shape);
        assert_eq!(back.to_f64_vec().unwrap(), x.to_f64_vec().unwrap());
    }
    let doubled = Upsample::scale_factor(2.0).forward(&Tensor::ones([1, 2, 3, 4], device).unwrap());
    assert_eq!(doubled.unwrap().dims(), [1, 2, 6, 8]);
}

#[track_caller]
fn fails<T>(result: Result<T>, kind: ErrorKind, parts: &[&str]) {
    let Err(error) = result else {
        panic!("no error, but {kind:?} with {parts:?} was expected");
    };
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
}

fn errors_say_what_is_wrong<B: Backend>(device: &Device<B>) {
    use ErrorKind::{InvalidArgument, Shape};
    let ones = |shape: &[usize]| Tensor::ones(shape, device).unwrap();
    fails(
        RMSNormConfig::new([]).build(device),
        InvalidArgument,
        &["rms_norm", "no axes"],
    );
    let norm = RMSNorm::new(4, device).unwrap();
    fails(
        norm.forward(&ones(&[2, 3])),
        Shape,
        &["rms_norm", "normalised shape [4]", "f32[2, 3]"],
    );

    let config = ConvTranspose2dConfig::new(4, 6, 3);
    let build = |config: ConvTranspose2dConfig| config.build(device);
    fails(
        build(config.groups(4)),
        InvalidArgument,
        &["ConvTranspose2d", "4 groups", "4 input and 6 output"],
    );
    fails(
        build(config.groups(0)),
        InvalidArgument,
        &["ConvTranspose2d", "0 groups"],
    );
    fails(
        build(config.stride([1, 0])),
        InvalidArgument,
        &["ConvTranspose2d", "stride [1, 0]"],
    );
    let larger = config.stride(2).output_padding([1, 2]);
    fails(
        build(larger),
        InvalidArgument,
        &["ConvTranspose2d", "output_padding [1, 2]", "stride [2, 2]"],
    );
    build(larger.dilation(3)).unwrap();
    let conv = build(config).unwrap();
    fails(
        conv.forward(&ones(&[5, 5])),
        Shape,
        &["ConvTranspose2d", "[N, C, H, W], or [C, H, W]", "f32[5, 5]"],
    );
    fails(
        conv.forward(&ones(&[1, 3, 5, 5])),
        Shape,
        &["conv_transpose", "f32[1, 3, 5, 5]"],
    );

    #[derive(Module)]
    struct Model<B: Backend> {
        up: ConvTranspose2d<B>,
    }
    let model = Model { up: conv };
    assert_eq!(model.parameters().len(), 2);
    let error = model.up.forward(&ones(&[1, 3, 5, 5])).unwrap_err();
    assert_eq!(error.module_path().as_deref(), Some("up"));

    fails(
        PixelShuffle(2).forward(&ones(&[6, 2, 2])),
        Shape,
        &["PixelShuffle", "6 channels", "2²"],
    );
    fails(
        PixelShuffle(0).forward(&ones(&[6, 2, 2])),
        Shape,
        &["PixelShuffle", "0²"],
    );
    fails(
        PixelShuffle(usize::MAX).forward(&ones(&[6, 2, 2])),
        Shape,
        &["PixelShuffle"],
    );
    fails(
        PixelShuffle(2).forward(&ones(&[4, 2])),
        Shape,
        &["PixelShuffle", "[…, C, H, W]", "f32[4, 2]"],
    );
    fails(
        PixelUnshuffle(2).forward(&ones(&[1, 4, 3])),
        Shape,
        &["PixelUnshuffle", "4 × 3", "by 2"],
    );
    fails(
        PixelUnshuffle(0).forward(&ones(&[1, 4, 4])),
        Shape,
        &["PixelUnshuffle", "by 0"],
    );

    let bags = EmbeddingBagConfig::new(5, 2).padding_idx(-1).build(device).unwrap();
    let index = Tensor::new([1i64, 2, 3], device).unwrap();
    for offsets in [&[1, 2][..], &[0, 2, 1], &[0, 4]] {
        fails(
            bags.forward(&index, Some(offsets), None),
            ErrorKind::OutOfRange,
            &["EmbeddingBag", "begin with 0", "3 indices"],
        );
    }
    fails(
        bags.forward(&index, None, None),
        Shape,
        &["EmbeddingBag", "[bags, length]", "offsets", "i64[3]"],
    );
    fails(
        bags.forward(&index, Some(&[0]), Some(&ones(&[3]))),
        InvalidArgument,
        &["EmbeddingBag", "mode Sum, not Mean"],
    );
    let sums = EmbeddingBagConfig::new(5, 2)
        .mode(EmbeddingBagMode::Sum)
        .build(device)
        .unwrap();
    fails(
        sums.forward(&index, Some(&[0]), Some(&index)),
        Shape,
        &["EmbeddingBag", "per_sample_weights are i64[3], not f32[3]"],
    );
    fails(
        EmbeddingBagConfig::new(5, 2).padding_idx(5).build(device),
        ErrorKind::OutOfRange,
        &["EmbeddingBag", "padding_idx 5", "5 embeddings"],
    );
    // No bags, and empty bags.
    assert_eq!(bags.forward(&index, Some(&[]), None).unwrap().dims(), [0, 2]);
    let none = Tensor::full([2, 0], 0i64, (device, DType::I64)).unwrap();
    for mode in [EmbeddingBagMode::Sum, EmbeddingBagMode::Mean, EmbeddingBagMode::Max] {
        let bags = EmbeddingBagConfig::new(5, 2).mode(mode).build(device).unwrap();
        assert_eq!(
            bags.forward(&none, None, None).unwrap().to_vec::<f32>().unwrap(),
            [0.0; 4]
        );
    }

    fails(
        Conv3d::new(2, 3, 1, device).unwrap().forward(&ones(&[2, 3])),
        Shape,
        &["Conv3d", "[N, C, D, H, W], or [C, D, H, W]", "f32[2, 3]"],
    );
    let padded = Conv1dConfig::new(2, 3, 3).padding(4).padding_mode(PadMode::Reflect);
    fails(
        padded.build(device).unwrap().forward(&ones(&[2, 4])),
        Shape,
        &["axis 2 of extent 4", "Reflect border of 4"],
    );
    fails(
        InstanceNorm3d::new(2, device).unwrap().forward(&ones(&[3, 2, 2, 2])),
        Shape,
        &["instance_norm", "2 channels", "f32[3, 2, 2, 2]"],
    );
    fails(
        AdaptiveMaxPool2d::new(2).forward(&ones(&[4])),
        Shape,
        &["AdaptiveMaxPool2d", "[N, C, H, W]"],
    );
    fails(
        AvgPool1d::new(2).divisor_override(0).forward(&ones(&[1, 4])),
        InvalidArgument,
        &["divisor_override"],
    );

    let x = ones(&[1, 2, 3, 4]);
    fails(
        Upsample::size([1, 2, 3]).forward(&x),
        Shape,
        &["Upsample", "3 extents", "2 spatial axes"],
    );
    fails(Upsample::size([]).forward(&x), Shape, &["Upsample", "0 extents"]);
    fails(Upsample::scale_factor(-1.0).forward(&x), Shape, &["Upsample", "axis 2"]);
    fails(
        Upsample::scale_factor(2.0).forward(&ones(&[4])),
        Shape,
        &["Upsample", "[N, C, spatial…]"],
    );
    let aligned = Upsample::size([6]).align_corners(true);
    fails(
        aligned.clone().forward(&x),
        InvalidArgument,
        &["Upsample", "align_corners", "Nearest"],
    );
    aligned.mode(InterpolateMode::Linear).forward(&x).unwrap();
}
