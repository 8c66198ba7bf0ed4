//! Padding, interpolation, pooling to a size or with a divisor, group norms, rounded division.

use polygrad_tensor::ErrorKind::{DType as WrongDType, InvalidArgument, OutOfRange, Shape};
use polygrad_tensor::{DType, InterpolateMode, PadMode, PoolParams, Resize, RoundingMode};

use super::{f32, fails, list, of};

#[test]
fn borders() {
    let x = f32(&[2, 3]);
    let pad = |first, second, mode| x.pad_with(&[first, second], mode);
    fails(
        x.pad_with(&[(0, 1)], PadMode::Reflect),
        Shape,
        &["pad", "1 borders for 2 axes"],
    );
    for mode in [PadMode::Constant(0.0.into()), PadMode::Replicate, PadMode::Circular] {
        for border in [
            (-2, -2),
            (-4, 9),
            (9, -4),
            (isize::MIN, 0),
            (isize::MAX, 1),
            (isize::MAX, isize::MAX),
        ] {
            fails(pad((0, 0), border, mode), Shape, &["pad"]);
        }
    }
    fails(
        pad((0, 0), (0, -4), PadMode::Replicate),
        Shape,
        &["pad", "(0, -4)", "axis 1 of extent 3"],
    );
    fails(
        pad((2, 0), (0, 0), PadMode::Reflect),
        Shape,
        &["pad", "axis 0 of extent 2", "Reflect border of 2"],
    );
    fails(
        pad((0, 0), (0, 4), PadMode::Circular),
        Shape,
        &["pad", "axis 1 of extent 3", "Circular border of 4"],
    );
    fails(
        pad((0, 0), (-1, 3), PadMode::Circular),
        Shape,
        &["pad", "Circular border of 3"],
    );
    fails(
        f32(&[0]).pad_with(&[(1, 0)], PadMode::Replicate),
        Shape,
        &["pad", "axis 0 of extent 0"],
    );
}

#[test]
fn interpolation() {
    let x = f32(&[1, 2, 3, 4]);
    let to = |sizes, mode| x.interpolate(Resize::Size(sizes), mode, false);
    fails(
        f32(&[2, 3]).interpolate(Resize::Size(&[]), InterpolateMode::Nearest, false),
        Shape,
        &["interpolate", "[N, C, spatial…]", "[2, 3]"],
    );
    fails(
        f32(&[1, 2, 3]).interpolate(Resize::Size(&[2]), InterpolateMode::Cubic, false),
        Shape,
        &["interpolate", "Cubic takes [N, C, H, W]"],
    );
    fails(
        to(&[2], InterpolateMode::Linear),
        Shape,
        &["interpolate", "1 extents or factors for 2 spatial axes"],
    );
    fails(
        to(&[2, 0], InterpolateMode::Linear),
        Shape,
        &["interpolate", "axis 3 would go from 4 to 0"],
    );
    fails(to(&[usize::MAX, 2], InterpolateMode::Nearest), Shape, &["interpolate"]);
    for factor in [0.0, -1.0, 0.1, f64::NAN, f64::INFINITY] {
        let result = x.interpolate(Resize::Scale(&[factor, 1.0]), InterpolateMode::Nearest, false);
        fails(result, Shape, &["interpolate"]);
    }
    fails(
        f32(&[1, 2, 0]).interpolate(Resize::Size(&[2]), InterpolateMode::Linear, false),
        Shape,
        &["interpolate", "from 0 to 2"],
    );
    for mode in [
        InterpolateMode::Nearest,
        InterpolateMode::NearestExact,
        InterpolateMode::Area,
    ] {
        let result = x.interpolate(Resize::Size(&[2, 2]), mode, true);
        fails(
            result,
            InvalidArgument,
            &["interpolate", "align_corners", &format!("{mode:?}")],
        );
    }
    fails(
        of(DType::I64, &[1, 1, 2]).interpolate(Resize::Size(&[2]), InterpolateMode::Nearest, false),
        WrongDType,
        &["interpolate", "i64 is no float", "to_dtype"],
    );
}

#[test]
fn pools() {
    let x = f32(&[1, 2, 4, 4]);
    let pool = PoolParams::new([2; 3]);
    fails(
        x.avg_pool_with_divisor(&pool, 0),
        InvalidArgument,
        &["avg_pool", "divisor_override"],
    );
    fails(
        f32(&[2, 4]).avg_pool_with_divisor(&pool, 2),
        Shape,
        &["avg_pool", "[N, C, spatial…]"],
    );
    fails(
        x.adaptive_avg_pool(&[2]),
        Shape,
        &["adaptive_avg_pool", "1 (1 to 3) spatial axes", "[1, 2, 4, 4]"],
    );
    fails(f32(&[2, 3]).adaptive_avg_pool(&[]), Shape, &["adaptive_avg_pool"]);
    fails(
        f32(&[1, 2, 0]).adaptive_avg_pool(&[2]),
        Shape,
        &["adaptive_avg_pool", "that have elements"],
    );
    fails(x.adaptive_avg_pool(&[usize::MAX, 3]), Shape, &["adaptive_avg_pool"]);
    fails(
        x.adaptive_max_pool(&[2]),
        Shape,
        &["adaptive_max_pool", "1 (1 to 3) spatial axes", "[1, 2, 4, 4]"],
    );
    fails(x.adaptive_max_pool(&[usize::MAX, 3]), Shape, &["adaptive_max_pool"]);
    fails(
        f32(&[0, 2, 1 << 40]).adaptive_max_pool(&[(1 << 40) + 1]),
        Shape,
        &["adaptive_max_pool", "an extent of 1099511627776"],
    );
    fails(
        of(DType::I64, &[1, 1, 2]).adaptive_avg_pool(&[1]),
        WrongDType,
        &["adaptive_avg_pool", "i64 is no float"],
    );
}

#[test]
fn norms() {
    let x = f32(&[2, 4, 3]);
    fails(
        f32(&[4]).group_norm(2, None, None, 1e-5),
        Shape,
        &["group_norm", "[N, C, …]"],
    );
    for groups in [0, 3, usize::MAX] {
        fails(
            x.group_norm(groups, None, None, 1e-5),
            Shape,
            &["group_norm", "groups do not divide 4 channels"],
        );
    }
    fails(
        x.group_norm(2, Some(&f32(&[3])), None, 1e-5),
        Shape,
        &["group_norm", "weight must be f32[4], not f32[3]"],
    );
    fails(
        of(DType::I64, &[2, 4]).group_norm(2, None, None, 1e-5),
        WrongDType,
        &["group_norm", "i64"],
    );
    fails(f32(&[2, 4, 0]).group_norm(2, None, None, 1e-5), Shape, &["no values"]);
    fails(
        f32(&[2, 4]).instance_norm(None, None, 1e-5),
        Shape,
        &["instance_norm", "[N, C, spatial…]"],
    );
    fails(
        x.instance_norm(None, Some(&f32(&[2])), 1e-5),
        Shape,
        &["instance_norm", "bias must be f32[4]"],
    );
    let (good, bad) = (f32(&[4]), f32(&[3]));
    fails(
        x.batch_norm_running(&bad, &good, None, None, 1e-5),
        Shape,
        &["batch_norm", "mean must be f32[4], not f32[3]"],
    );
    fails(
        x.batch_norm_running(&good, &bad, None, None, 1e-5),
        Shape,
        &["batch_norm", "variance must be f32[4]"],
    );
    fails(
        f32(&[4]).batch_norm_running(&good, &good, None, None, 1e-5),
        Shape,
        &["batch_norm", "[N, C, …]"],
    );
}

#[test]
fn nuclear_norms() {
    let x = f32(&[2, 3]);
    fails(
        x.nuclear_norm([0, 2]),
        OutOfRange,
        &["nuclear_norm", "axis 2", "[2, 3]"],
    );
    fails(x.nuclear_norm([1, -1]), InvalidArgument, &["nuclear_norm"]);
    fails(f32(&[]).nuclear_norm([0, -1]), Shape, &["nuclear_norm", "no two axes"]);
    fails(
        of(DType::I64, &[2, 3]).nuclear_norm([0, 1]),
        WrongDType,
        &["nuclear_norm", "i64"],
    );
}

#[test]
fn pairs() {
    let x = f32(&[2, 3]);
    fails(
        x.cosine_similarity(&f32(&[2]), 0, 1e-8),
        Shape,
        &["cosine_similarity", "[2, 3]", "[2]"],
    );
    fails(
        list(&[1]).cosine_similarity(&list(&[1]), 0, 1e-8),
        WrongDType,
        &["cosine_similarity", "i64 is no float"],
    );
    fails(
        x.div_rounded(&f32(&[2]), RoundingMode::Floor),
        Shape,
        &["div", "[2, 3]", "[2]"],
    );
    let truth = of(DType::Bool, &[2]);
    fails(
        truth.div_rounded(&truth, RoundingMode::Trunc),
        WrongDType,
        &["div", "bool", "to_dtype"],
    );
    fails(
        x.scatter_mul(1, &list(&[0]), &x),
        Shape,
        &["scatter_mul", "index of shape [1]"],
    );
}
