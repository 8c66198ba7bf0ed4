//! Losses where PyTorch's samples do not go: bad input, and the edges of what is allowed.

use crate::common::f64_of;
use polygrad_nn::loss::*;
use polygrad_tensor::{Backend, DType, Device, ErrorKind, Result, Tensor};

on_backends!(
    bad_input_is_named,
    a_target_of_zero_costs_nothing,
    certain_and_wrong_stays_finite,
);

#[track_caller]
fn fails<T>(result: Result<T>, kind: ErrorKind, parts: &[&str]) {
    let Err(error) = result else {
        panic!("no error, but {kind:?} with {parts:?} was expected");
    };
    assert_eq!(error.kind(), kind, "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "{part:?} is missing in: {error}");
    }
}

fn bad_input_is_named<B: Backend>(device: &Device<B>) {
    let (x, y) = (
        f64_of(vec![0.5; 3], &[3], device),
        f64_of(vec![0.5; 3], &[3, 1], device),
    );
    let how = Reduction::Mean;
    let shapes = [
        ("binary_cross_entropy", binary_cross_entropy(&x, &y, how)),
        ("kl_div", kl_div(&x, &y, how)),
        ("smooth_l1_loss", smooth_l1_loss(&x, &y, 1.0, how)),
    ];
    for (op, result) in shapes {
        fails(result, ErrorKind::Shape, &[op, "f64[3]", "f64[3, 1]", "reshape"]);
    }
    let narrow = x.to_dtype(DType::F32).unwrap();
    fails(
        binary_cross_entropy(&x, &narrow, how),
        ErrorKind::DType,
        &["binary_cross_entropy", "one float dtype", "to_dtype"],
    );
    fails(
        smooth_l1_loss(&x, &x, -1.0, how),
        ErrorKind::InvalidArgument,
        &["smooth_l1_loss", "beta = -1"],
    );
    let scalar = f64_of(vec![0.5], &[], device);
    let empty = f64_of(Vec::new(), &[0, 2], device);
    for x in [scalar, empty] {
        fails(
            KLDivLoss::new().batch_mean().forward(&x, &x),
            ErrorKind::Shape,
            &["kl_div", "no batch"],
        );
    }
}

/// The limit of y ln y; PyTorch agrees on the value, though its gradient wrt such a target is NaN.
fn a_target_of_zero_costs_nothing<B: Backend>(device: &Device<B>) {
    let x = f64_of(vec![-1.0, -2.0], &[2], device).requires_grad().unwrap();
    let y = f64_of(vec![0.0, 1.0], &[2], device);
    let loss = kl_div(&x, &y, Reduction::None).unwrap();
    assert_eq!(loss.to_f64_vec().unwrap(), [0.0, 2.0]);
    let gradients = loss.sum_all().unwrap().backward().unwrap();
    assert_eq!(gradients.require(&x).unwrap().to_f64_vec().unwrap(), [0.0, -1.0]);
}

/// A logarithm is limited to −100 and the slope's denominator to 1e-12, as in PyTorch.
fn certain_and_wrong_stays_finite<B: Backend>(device: &Device<B>) {
    let x = f64_of(vec![0.0, 1.0, 2.0], &[3], device).requires_grad().unwrap();
    let y: Tensor<B> = f64_of(vec![1.0, 0.0, 0.0], &[3], device);
    let loss = binary_cross_entropy(&x, &y, Reduction::None).unwrap();
    let values = loss.to_f64_vec().unwrap();
    assert_eq!(values[..2], [100.0, 100.0]);
    assert!(values[2].is_nan(), "2 is no probability");
    let gradients = loss.sum_all().unwrap().backward().unwrap();
    let slopes = gradients.require(&x).unwrap().to_f64_vec().unwrap();
    let steepest = 1.0 / f64::from(1e-12f32);
    assert_eq!(slopes[..2], [-steepest, steepest]);
}
