//! Windows, normalisations, attention.

use polygrad_tensor::ErrorKind::{DType as WrongDType, InvalidArgument, OutOfRange, Shape};
use polygrad_tensor::{Attention, ConvParams, CrossEntropyParams, DType, PoolParams};

use super::{Tensor, f32, fails, list, of};

#[test]
fn windows() {
    let (x, w) = (f32(&[1, 2, 5, 5]), f32(&[4, 2, 3, 3]));
    let conv = |params: ConvParams| x.conv(&w, None, &params);
    fails(
        f32(&[2, 5]).conv(&w, None, &ConvParams::default()),
        Shape,
        &["conv", "[N, C, spatial…]", "[2, 5]"],
    );
    fails(
        f32(&[1, 3, 5, 5]).conv(&w, None, &ConvParams::default()),
        Shape,
        &["conv", "3 input channels", "groups"],
    );
    fails(
        f32(&[8, 5, 5, 2]).conv(&w, None, &ConvParams::default()),
        Shape,
        &[
            "conv",
            "is to be [N, C, H, W]",
            "if [8, 5, 5, 2] has its channels last, permute",
        ],
    );
    fails(
        conv(ConvParams {
            groups: 0,
            ..ConvParams::default()
        }),
        Shape,
        &["conv", "0 groups"],
    );
    fails(
        conv(ConvParams {
            groups: 2,
            ..ConvParams::default()
        }),
        Shape,
        &["conv", "2 groups"],
    );
    fails(
        conv(ConvParams {
            stride: [0; 3],
            ..ConvParams::default()
        }),
        InvalidArgument,
        &["conv", "stride 0"],
    );
    fails(
        conv(ConvParams {
            dilation: [0; 3],
            ..ConvParams::default()
        }),
        InvalidArgument,
        &["conv", "dilation 0"],
    );
    fails(
        conv(ConvParams {
            dilation: [3; 3],
            ..ConvParams::default()
        }),
        Shape,
        &["conv", "does not fit an extent of 5"],
    );
    fails(
        conv(ConvParams {
            padding: [1 << 40; 3],
            ..ConvParams::default()
        }),
        Shape,
        &["conv"],
    );
    fails(
        conv(ConvParams {
            padding: [usize::MAX; 3],
            ..ConvParams::default()
        }),
        Shape,
        &["conv", "does not fit"],
    );
    let transpose = |params: ConvParams, extra| f32(&[1, 4, 5, 5]).conv_transpose(&w, &params, extra);
    fails(
        x.conv_transpose(&w, &ConvParams::default(), [0; 3]),
        Shape,
        &["conv_transpose", "[C, O / groups, kernel…]"],
    );
    fails(
        transpose(ConvParams::default(), [1; 3]),
        Shape,
        &["conv_transpose", "output_padding"],
    );
    fails(
        transpose(
            ConvParams {
                padding: [9; 3],
                ..ConvParams::default()
            },
            [0; 3],
        ),
        Shape,
        &["conv_transpose", "no extent"],
    );
    fails(
        transpose(
            ConvParams {
                padding: [usize::MAX; 3],
                ..ConvParams::default()
            },
            [0; 3],
        ),
        Shape,
        &["conv_transpose"],
    );
    fails(
        transpose(
            ConvParams {
                stride: [0; 3],
                ..ConvParams::default()
            },
            [0; 3],
        ),
        InvalidArgument,
        &["conv_transpose", "stride 0"],
    );
    fails(
        transpose(
            ConvParams {
                dilation: [0; 3],
                ..ConvParams::default()
            },
            [0; 3],
        ),
        InvalidArgument,
        &["conv_transpose", "dilation 0"],
    );
    fails(
        transpose(
            ConvParams {
                groups: 3,
                ..ConvParams::default()
            },
            [0; 3],
        ),
        Shape,
        &["conv_transpose", "3 groups"],
    );
    fails(
        transpose(
            ConvParams {
                groups: usize::MAX,
                ..ConvParams::default()
            },
            [0; 3],
        ),
        Shape,
        &["conv_transpose"],
    );
    let pool = PoolParams::new([2; 3]);
    fails(f32(&[2, 5, 5]).max_pool2d(2), Shape, &["max_pool2d", "[N, C, H, W]"]);
    fails(f32(&[2, 5, 5]).avg_pool2d(2), Shape, &["avg_pool2d", "[N, C, H, W]"]);
    fails(f32(&[2, 5]).max_pool(&pool), Shape, &["max_pool", "[N, C, spatial…]"]);
    fails(
        x.max_pool(&PoolParams::new([6; 3])),
        Shape,
        &["max_pool", "window of 6"],
    );
    fails(
        x.max_pool(&PoolParams::new([0; 3])),
        InvalidArgument,
        &["max_pool", "window 0"],
    );
    fails(
        x.avg_pool(&PoolParams {
            padding: [2; 3],
            ..pool
        }),
        InvalidArgument,
        &["avg_pool", "padding 2"],
    );
    fails(
        x.avg_pool(&PoolParams {
            dilation: [2; 3],
            ..pool
        }),
        InvalidArgument,
        &["avg_pool", "dilation"],
    );
    fails(f32(&[5]).avg_pool(&pool), Shape, &["avg_pool"]);
}

#[test]
fn fused_ops() {
    let x = f32(&[2, 3]);
    fails(
        x.layer_norm(None, None, 3, 1e-5),
        Shape,
        &["layer_norm", "last 3 axes", "[2, 3]"],
    );
    fails(x.layer_norm(None, None, 0, 1e-5), Shape, &["layer_norm", "last 0 axes"]);
    fails(
        x.layer_norm(Some(&f32(&[2])), None, 1, 1e-5),
        Shape,
        &["layer_norm", "weight must be f32[3], not f32[2]"],
    );
    fails(
        x.layer_norm(None, Some(&of(DType::F64, &[3])), 1, 1e-5),
        Shape,
        &["layer_norm", "must be f32[3], not f64[3]"],
    );
    fails(x.rms_norm(Some(&f32(&[2])), 1, 1e-5), Shape, &["rms_norm", "weight"]);
    fails(x.rotary(&x, &x), Shape, &["rotary", "an even number"]);
    let rows = f32(&[2, 4]);
    fails(
        rows.rotary(&f32(&[3, 2]), &f32(&[2])),
        Shape,
        &["rotary", "broadcast to [2, 2]"],
    );
    let double = of(DType::F64, &[2]);
    fails(
        rows.rotary(&double, &double),
        WrongDType,
        &["rotary", "one float dtype"],
    );
    fails(
        x.batch_norm(Some(&f32(&[2])), None, 1e-5),
        Shape,
        &["batch_norm", "weight must be f32[3]"],
    );
    fails(
        f32(&[3]).batch_norm(None, None, 1e-5),
        Shape,
        &["batch_norm", "[N, C, …]"],
    );
    fails(
        x.cross_entropy(&list(&[0]), &CrossEntropyParams::default()),
        Shape,
        &["cross_entropy", "[N, C]", "i64[1]"],
    );
    let params = CrossEntropyParams {
        label_smoothing: 1.5,
        ..CrossEntropyParams::default()
    };
    fails(
        x.cross_entropy(&list(&[0, 1]), &params),
        InvalidArgument,
        &["cross_entropy", "label_smoothing 1.5"],
    );
    fails(x.dropout(1.5), InvalidArgument, &["dropout", "1.5 is no probability"]);
    fails(x.dropout(f64::NAN), InvalidArgument, &["dropout", "NaN"]);
    fails(of(DType::I64, &[3]).dropout(0.5), WrongDType, &["dropout", "i64"]);
    fails(
        x.clamp(None::<f64>, None),
        InvalidArgument,
        &["clamp", "at least one bound"],
    );
    let bytes = of(DType::U8, &[3]);
    fails(
        bytes.clamp(None, Some(-1)),
        OutOfRange,
        &["clamp", "u8[3]", "no u8 reaches the bound -1"],
    );
    fails(x.clamp(Some(&f32(&[7])), None), Shape, &["clamp", "do not broadcast"]);
    fails(x.norm(f64::NAN, 0), InvalidArgument, &["norm", "NaN"]);
    let attend =
        |q: &Tensor, k: &Tensor, v: &Tensor, mask| q.scaled_dot_product_attention(k, v, Attention::new().mask(mask));
    let name = "scaled_dot_product_attention";
    let (small, ints) = (f32(&[3, 3]), list(&[1; 4]));
    fails(
        attend(&x, &f32(&[4, 2]), &f32(&[4, 2]), None),
        Shape,
        &[name, "keys […, T, D]", "f32[4, 2]"],
    );
    fails(attend(&x, &f32(&[4, 3]), &f32(&[5, 3]), None), Shape, &[name]);
    fails(
        attend(&x, &of(DType::F64, &[4, 3]), &f32(&[4, 3]), None),
        WrongDType,
        &[name, "one float dtype"],
    );
    fails(
        attend(&x, &f32(&[4, 3]), &f32(&[4, 3]), Some(&small)),
        Shape,
        &[name, "mask", "[3, 3]"],
    );
    fails(
        attend(&x, &f32(&[4, 3]), &f32(&[4, 3]), Some(&ints)),
        WrongDType,
        &[name, "mask", "i64"],
    );
    let batched = f32(&[2, 4, 3]);
    fails(
        attend(&f32(&[3, 2, 3]), &batched, &batched, None),
        Shape,
        &[name, "do not broadcast"],
    );
}

#[test]
fn activations() {
    let x = f32(&[2, 3, 4]);
    fails(
        x.prelu(&f32(&[2])),
        Shape,
        &["prelu", "axis 1", "f32[2, 3, 4]", "f32[2]"],
    );
    fails(f32(&[3]).prelu(&f32(&[3])), Shape, &["prelu", "one weight"]);
    fails(x.glu(1), Shape, &["glu", "axis 1 has no halves", "3"]);
    fails(x.glu(3), OutOfRange, &["glu"]);
    fails(
        x.hardtanh(1.0, -1.0),
        InvalidArgument,
        &["hardtanh", "min = 1", "max = -1"],
    );
    fails(x.hardtanh(f64::NAN, 1.0), InvalidArgument, &["hardtanh", "NaN"]);
    fails(x.celu(0.0), InvalidArgument, &["celu", "alpha = 0"]);
}

#[test]
fn medians_products_and_remainders() {
    let x = f32(&[2, 0]);
    fails(x.median(1), Shape, &["median", "axis 1 has no elements", "[2, 0]"]);
    fails(x.median(2), OutOfRange, &["median"]);
    fails(x.median_all(), Shape, &["median"]);
    fails(x.cumprod(2), OutOfRange, &["cumprod"]);
    fails(f32(&[2]).fmod(f32(&[3])), Shape, &["fmod", "f32[2]", "f32[3]"]);
    fails(
        of(DType::Bool, &[2]).fmod(true),
        WrongDType,
        &["fmod", "bool", "to_dtype"],
    );
}
