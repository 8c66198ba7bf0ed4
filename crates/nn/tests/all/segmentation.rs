//! Losses of segmentation: scripts/make_segmentation_losses.py records their values and gradients.

use polygrad_nn::loss::*;
use polygrad_tensor::{Backend, DType, Device, Tensor};
use serde_json::Value;

use crate::common;

on_backends!(
    losses_and_gradients_are_those_of_their_sources,
    what_does_not_fit_is_said
);

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn extents(value: &Value) -> Vec<usize> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|x| x.as_u64().unwrap() as usize)
        .collect()
}

fn loss_of<B: Backend>(case: &Value, x: &Tensor<B>, target: &Tensor<B>, reduction: Reduction) -> Tensor<B> {
    let number = |name: &str, default: f64| case["options"][name].as_f64().unwrap_or(default);
    let from_logits = case["options"]["from_logits"].as_bool().unwrap_or(true);
    let ignored = case["options"]["ignore_index"].as_i64().unwrap_or(-100);
    macro_rules! overlap {
        ($loss:expr) => {
            $loss
                .smooth(number("smooth", 0.0))
                .eps(number("eps", 1e-7))
                .from_logits(from_logits)
                .ignore_index(ignored)
                .reduction(reduction)
                .forward(x, target)
        };
    }
    match case["kind"].as_str().unwrap() {
        "focal" => SigmoidFocalLoss::new()
            .alpha(number("alpha", 0.25))
            .gamma(number("gamma", 2.0))
            .reduction(reduction)
            .forward(x, target),
        "dice" => overlap!(DiceLoss::new()),
        "jaccard" => overlap!(JaccardLoss::new()),
        "tversky" => overlap!(TverskyLoss::new().alpha(number("alpha", 0.5)).beta(number("beta", 0.5))),
        other => panic!("{other}"),
    }
    .unwrap()
}

fn losses_and_gradients_are_those_of_their_sources<B: Backend>(device: &Device<B>) {
    let cases = common::json(&common::data("segmentation_losses.json"));
    for case in cases.as_array().unwrap() {
        let x = common::f64_of(numbers(&case["x"]), &extents(&case["shape"]), device)
            .requires_grad()
            .unwrap();
        let target = common::f64_of(numbers(&case["target"]), &extents(&case["target_shape"]), device);
        let target = match case["classes"].as_bool().unwrap() {
            true => target.to_dtype(DType::I64).unwrap(),
            false => target,
        };
        let what = format!("{} {}", case["kind"], case["options"]);
        let close = |ours: Vec<f64>, theirs: &Value| {
            let theirs = numbers(theirs);
            assert_eq!(ours.len(), theirs.len(), "{what}");
            for (a, b) in ours.iter().zip(&theirs) {
                assert!((a - b).abs() <= 1e-12 * (1.0 + b.abs()), "{what}: {a} {b}");
            }
        };
        let losses = loss_of(case, &x, &target, Reduction::None);
        close(losses.to_f64_vec().unwrap(), &case["losses"]);
        let count = losses.shape().numel();
        let upstream = |i: usize| {
            if count > 1 {
                0.5 + i as f64 / (count - 1) as f64
            } else {
                0.5
            }
        };
        let upstream = common::f64_of((0..count).map(upstream).collect(), &losses.dims(), device);
        let gradients = losses.mul(&upstream).unwrap().sum_all().unwrap().backward().unwrap();
        close(gradients.get(&x).unwrap().to_f64_vec().unwrap(), &case["gradient"]);
        // For half precision, sums are in single precision: over many pixels they would overflow.
        let mean = loss_of(case, &x, &target, Reduction::Mean).to_f64_vec().unwrap()[0];
        let narrow = x.detach().to_dtype(DType::BF16).unwrap();
        let half = match target.dtype().is_float() {
            true => target.to_dtype(DType::BF16).unwrap(),
            false => target.clone(),
        };
        let half = loss_of(case, &narrow, &half, Reduction::Mean);
        assert_eq!(half.dtype(), DType::BF16);
        let half = half.to_f64_vec().unwrap()[0];
        assert!(
            (half - mean).abs() <= 0.05 * (1.0 + mean.abs()),
            "{what}: {half} {mean}"
        );
    }
}

fn what_does_not_fit_is_said<B: Backend>(device: &Device<B>) {
    let x = common::randn(&[2, 3, 4], device);
    let ids = |rows: [usize; 2], value: i64| Tensor::full(rows, value, (device, DType::I64)).unwrap();
    for (error, part) in [
        (dice_loss(&x, &ids([2, 3], 0)).unwrap_err(), "takes classes [N, …]"),
        (
            jaccard_loss(&x, &common::randn(&[2, 4], device)).unwrap_err(),
            "the shapes differ",
        ),
        (tversky_loss(&x, &ids([2, 4], 3)).unwrap_err(), "tversky_loss"),
        (
            dice_loss(&common::randn(&[4], device), &common::randn(&[4], device)).unwrap_err(),
            "[N, C, …]",
        ),
        (DiceLoss::new().smooth(-1.0).forward(&x, &x).unwrap_err(), "smooth = -1"),
        (
            TverskyLoss::new().beta(f64::NAN).forward(&x, &x).unwrap_err(),
            "beta = NaN",
        ),
        (
            sigmoid_focal_loss(&x, &common::randn(&[2, 3], device)).unwrap_err(),
            "different shapes",
        ),
        (
            SigmoidFocalLoss::new().alpha(1.5).forward(&x, &x).unwrap_err(),
            "alpha = 1.5",
        ),
        (
            SigmoidFocalLoss::new().gamma(-1.0).forward(&x, &x).unwrap_err(),
            "gamma = -1",
        ),
    ] {
        assert!(error.to_string().contains(part), "{error}");
    }
    // If everything is ignored, there is no loss, and no gradient is NaN.
    let input = x.requires_grad().unwrap();
    let loss = dice_loss(&input, &ids([2, 4], -100)).unwrap();
    assert_eq!(loss.to_f64_vec().unwrap(), [0.0]);
    let gradients = loss.backward().unwrap();
    assert!(
        gradients
            .get(&input)
            .unwrap()
            .to_f64_vec()
            .unwrap()
            .iter()
            .all(|&g| g == 0.0)
    );
}
