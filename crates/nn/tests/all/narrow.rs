//! Losses and running statistics in f16 and bf16 whose intermediate values do not fit into these dtypes.

use polygrad_nn::loss::*;
use polygrad_nn::{BatchNorm1d, BatchNorm1dConfig, InstanceNorm1dConfig, Module};
use polygrad_tensor::{Backend, DType, Device, Result, Tensor};

use crate::common::f64_of;

on_backends!(
    losses_of_more_than_f16_counts,
    weighted_losses_are_rounded_once,
    cross_entropy_of_many_rows,
    running_statistics_stay_finite,
    running_statistics_of_instances_stay_finite,
);

const NARROW: [DType; 2] = [DType::F16, DType::BF16];

fn numbers(count: usize, size: f64) -> Vec<f64> {
    (0..count)
        .map(|i| size * ((i * i % 1009) as f64 * 0.37 + 0.9).cos())
        .collect()
}

/// Compares value and gradient of a loss of narrow tensors with those of the same numbers in f64.
#[track_caller]
fn agrees<B: Backend>(
    name: &str,
    loss: impl Fn(&Tensor<B>, &Tensor<B>) -> Result<Tensor<B>>,
    input: &Tensor<B>,
    target: &Tensor<B>,
) {
    let run = |dtype: DType| -> Result<(f64, Vec<f64>)> {
        let x = input.to_dtype(dtype)?.detach().requires_grad()?;
        let target = if target.dtype().is_float() {
            target.to_dtype(dtype)?
        } else {
            target.clone()
        };
        let y = loss(&x, &target)?;
        assert_eq!(y.dtype(), dtype, "{name}");
        Ok((y.item()?, y.backward()?.require(&x)?.to_f64_vec()?))
    };
    let (found, truth) = (run(input.dtype()).unwrap(), run(DType::F64).unwrap());
    let ulp = if input.dtype() == DType::F16 {
        2f64.powi(-11)
    } else {
        2f64.powi(-8)
    };
    // The subnormal numbers of f16 are multiples of 2⁻²⁴.
    let close = |found: f64, truth: f64| (found - truth).abs() <= 1.01 * ulp * truth.abs() + 2f64.powi(-25) * 1.01;
    assert!(close(found.0, truth.0), "{name}: {} and not {}", found.0, truth.0);
    for (found, truth) in found.1.iter().zip(&truth.1) {
        assert!(close(*found, *truth), "gradient of {name}: {found:e} and not {truth:e}");
    }
}

fn losses_of_more_than_f16_counts<B: Backend>(device: &Device<B>) {
    let count = 70_000;
    for dtype in NARROW {
        let of = |values: Vec<f64>| f64_of(values, &[count], device).to_dtype(dtype).unwrap();
        let (x, y) = (of(numbers(count, 300.0)), of(numbers(count + 5, 200.0)[5..].to_vec()));
        let mean = Reduction::Mean;
        agrees("mse_loss", |x, y| MSELoss::new().reduction(mean).forward(x, y), &x, &y);
        agrees("l1_loss", |x, y| L1Loss::new().reduction(mean).forward(x, y), &x, &y);
        agrees(
            "huber_loss",
            |x, y| HuberLoss::new().delta(0.1).reduction(mean).forward(x, y),
            &x,
            &y,
        );
        agrees(
            "smooth_l1_loss",
            |x, y| SmoothL1Loss::new().beta(0.3).reduction(mean).forward(x, y),
            &x,
            &y,
        );
        let shares: Vec<f64> = numbers(count, 0.45).iter().map(|x| x + 0.5).collect();
        let others: Vec<f64> = numbers(count + 3, 0.4)[3..].iter().map(|x| x + 0.5).collect();
        let (p, q, logits) = (of(shares), of(others), of(numbers(count, 5.0)));
        agrees("bce", |x, y| BCELoss::new().reduction(mean).forward(x, y), &p, &q);
        agrees(
            "bce_with_logits",
            |x, y| BCEWithLogitsLoss::new().reduction(mean).forward(x, y),
            &logits,
            &q,
        );
        agrees(
            "kl_div",
            |x, y| KLDivLoss::new().reduction(mean).forward(x, y),
            &logits,
            &q,
        );
    }
}

fn weighted_losses_are_rounded_once<B: Backend>(device: &Device<B>) {
    for dtype in NARROW {
        let of = |values: Vec<f64>, shape: &[usize]| f64_of(values, shape, device).to_dtype(dtype).unwrap();
        let logits = of(numbers(6 * 5, 6.0), &[6, 5]);
        let weight = of(vec![0.3, 1.7, 2.0, 0.01, 5.0], &[5]);
        let classes = Tensor::from_vec(vec![0i64, 4, 2, -100, 1, 3], [6], device).unwrap();
        let shares = logits.softmax(1).unwrap();
        let weighted = |x: &Tensor<B>| {
            let loss = CrossEntropyLoss::new().weight(weight.to_dtype(x.dtype())?);
            Ok::<_, polygrad_tensor::Error>(loss.label_smoothing(0.1))
        };
        agrees(
            "weighted cross entropy",
            |x, y| weighted(x)?.forward(x, y),
            &logits,
            &classes,
        );
        agrees(
            "cross entropy of probabilities",
            |x, y| weighted(x)?.forward(x, y),
            &logits,
            &shares,
        );
        let summed = |x: &Tensor<B>, y: &Tensor<B>| CrossEntropyLoss::new().reduction(Reduction::Sum).forward(x, y);
        agrees("summed cross entropy", summed, &logits, &classes);
        let nll = |x: &Tensor<B>, y: &Tensor<B>| NLLLoss::new().weight(weight.to_dtype(x.dtype())?).forward(x, y);
        agrees("nll_loss", nll, &logits, &classes);
        let bce = |x: &Tensor<B>, y: &Tensor<B>| {
            let weight = weight.to_dtype(x.dtype())?;
            BCEWithLogitsLoss::new()
                .weight(weight.clone())
                .pos_weight(weight)
                .forward(x, y)
        };
        agrees("weighted bce_with_logits", bce, &logits, &shares);
    }
}

fn cross_entropy_of_many_rows<B: Backend>(device: &Device<B>) {
    let rows = 70_000;
    let classes: Vec<i64> = (0..rows as i64).map(|i| i * i % 3).collect();
    let classes = Tensor::from_vec(classes, [rows], device).unwrap();
    for dtype in NARROW {
        let logits = f64_of(numbers(rows * 3, 2.0), &[rows, 3], device)
            .to_dtype(dtype)
            .unwrap();
        let found = {
            let x = logits.clone().requires_grad().unwrap();
            let loss = cross_entropy(&x, &classes).unwrap();
            (
                loss.item().unwrap(),
                loss.backward().unwrap().require(&x).unwrap().to_f64_vec().unwrap(),
            )
        };
        let x = logits.to_dtype(DType::F64).unwrap().requires_grad().unwrap();
        let loss = cross_entropy(&x, &classes).unwrap();
        let truth = loss.backward().unwrap().require(&x).unwrap().to_f64_vec().unwrap();
        assert!((found.0 / loss.item().unwrap() - 1.0).abs() < 4e-3);
        // The saved logarithms, up to 3.1, are in the narrow dtype, and the gradients are subnormal in f16.
        let bound = if dtype == DType::F16 { 6e-8 } else { 1.8e-7 };
        for (found, truth) in found.1.iter().zip(&truth) {
            assert!((found - truth).abs() < bound, "{found:e} and not {truth:e}");
        }
    }
}

fn running_statistics_stay_finite<B: Backend>(device: &Device<B>) {
    let x = f64_of(numbers(64 * 2, 500.0), &[64, 2], device)
        .to_dtype(DType::F16)
        .unwrap();
    // A deviation whose square does not fit into f16, but a tenth of it does.
    let exact = x.to_dtype(DType::F64).unwrap();
    let (mean, var) = (exact.mean(0).unwrap(), exact.variance(0, 1).unwrap());
    assert!(var.to_f64_vec().unwrap().iter().all(|&var| var > 65_504.0));
    let layer = BatchNorm1d::<B>::new(2, device).unwrap();
    layer.to_dtype(DType::F16).unwrap();
    let y = layer.forward(&x).unwrap();
    assert_eq!(y.dtype(), DType::F16);
    let running = |buffer: &Option<polygrad_nn::Buffer<B>>| buffer.as_ref().unwrap().tensor();
    let close = |found: Tensor<B>, truth: Tensor<B>| {
        assert_eq!(found.dtype(), DType::F16);
        for (found, truth) in found.to_f64_vec().unwrap().into_iter().zip(truth.to_f64_vec().unwrap()) {
            assert!((found - truth).abs() <= 5e-4 * truth.abs(), "{found} and not {truth}");
        }
    };
    close(running(&layer.running_mean), (&mean * 0.1).unwrap());
    close(running(&layer.running_var), ((&var * 0.1).unwrap() + 0.9).unwrap());
    // f32 statistics are not narrowed for an f16 input.
    let layer = BatchNorm1dConfig::new(2)
        .affine(false)
        .momentum(Some(1.0))
        .build::<B>(device)
        .unwrap();
    layer.forward(&x.to_dtype(DType::F32).unwrap()).unwrap();
    layer.eval();
    let y = layer.forward(&x).unwrap();
    assert_eq!(y.dtype(), DType::F16);
    let spread = y.to_dtype(DType::F64).unwrap().std(0, 1).unwrap().to_f64_vec().unwrap();
    assert!(spread.iter().all(|s| (s - 1.0).abs() < 1e-3), "{spread:?}");
}

fn running_statistics_of_instances_stay_finite<B: Backend>(device: &Device<B>) {
    let x = f64_of(numbers(3 * 2 * 40, 500.0), &[3, 2, 40], device)
        .to_dtype(DType::F16)
        .unwrap();
    let exact = x.to_dtype(DType::F64).unwrap();
    let var = exact.variance(2, 1).unwrap().mean(0).unwrap().to_f64_vec().unwrap();
    let layer = InstanceNorm1dConfig::new(2)
        .track_running_stats(true)
        .build::<B>(device)
        .unwrap();
    layer.to_dtype(DType::F16).unwrap();
    layer.forward(&x).unwrap();
    let found = layer.running_var.as_ref().unwrap().tensor().to_f64_vec().unwrap();
    for (found, var) in found.iter().zip(&var) {
        let truth = 0.9 + 0.1 * var;
        assert!((found - truth).abs() <= 5e-4 * truth, "{found} and not {truth}");
    }
}
