//! f16 and bf16: ops of several steps are computed in f32 and rounded once, and number operands are not rounded at all.

use polygrad_core::BinaryOp;
use polygrad_cpu::Cpu;
use polygrad_reference::Reference;
use polygrad_tensor::{
    Backend, BackwardOptions, Capture, CrossEntropyParams, DType, Device, InterpolateMode, PoolParams, Resize, Result,
    RoundingMode, Scalar, Tensor,
};

on_backends!(
    means_of_more_than_f16_counts,
    numbers_are_not_rounded,
    numbers_of_gradients_are_not_rounded,
    statistics_are_rounded_once,
    compositions_are_rounded_once,
    rules_of_several_steps_do_not_overflow,
    batch_statistics_are_wide,
    running_statistics_may_be_wide,
    logits_far_from_zero_keep_their_gradient,
    products_are_scaled_before_they_are_rounded,
    a_root_mean_square_may_be_small,
);

const NARROW: [DType; 2] = [DType::F16, DType::BF16];

/// Numbers of a given size and of both signs, not in order, the same in each run.
fn numbers(count: usize, size: f64) -> Vec<f64> {
    (0..count).map(|i| size * (i as f64 * 1.7 + 0.3).sin()).collect()
}

/// Other numbers like [`numbers`].
fn others(count: usize, size: f64) -> Vec<f64> {
    (0..count).map(|i| size * ((i * i) as f64 * 0.37 + 0.9).cos()).collect()
}

fn tensor<B: Backend>(values: &[f64], shape: &[usize], dtype: DType, device: &Device<B>) -> Result<Tensor<B>> {
    Tensor::from_slice(values, shape, device)?.to_dtype(dtype)
}

fn rounded(value: f64, dtype: DType) -> Result<f64> {
    tensor(&[value], &[1], dtype, &Device::<Reference>::default())?.item()
}

/// Checks that a number is the truth, with an error of f32, rounded once.
#[track_caller]
fn is_rounded(found: f64, truth: f64, dtype: DType, what: &str) {
    within(found, truth, truth.abs() * 4e-6, dtype, what);
}

#[track_caller]
fn within(found: f64, truth: f64, error: f64, dtype: DType, what: &str) {
    let (low, high) = (truth - error, truth + error);
    let within = rounded(low, dtype).unwrap() <= found && found <= rounded(high, dtype).unwrap();
    assert!(
        within || (found.is_nan() && truth.is_nan()),
        "{what} in {dtype}: {found:e}, not {truth:e}"
    );
}

/// A function's result in a narrow dtype, and the gradient of each input for an output gradient of a given size.
fn run<B: Backend>(
    f: impl Fn(&[Tensor<B>]) -> Result<Tensor<B>>,
    inputs: &[Tensor<B>],
    size: f64,
    dtype: DType,
) -> Result<Vec<Vec<f64>>> {
    let leaves = inputs
        .iter()
        .map(|x| x.clone().requires_grad())
        .collect::<Result<Vec<_>>>()?;
    let y = f(&leaves)?;
    assert_eq!(y.dtype(), inputs[0].dtype());
    let mut out = vec![y.to_f64_vec()?];
    if y.is_tracked() {
        let grad = tensor(&others(y.numel(), size), &y.dims(), dtype, &y.device())?.to_dtype(y.dtype())?;
        let gradients = y.backward_with(&BackwardOptions::default().gradient(&grad))?;
        for leaf in &leaves {
            assert_eq!(gradients.require(leaf)?.dtype(), leaf.dtype());
            out.push(gradients.require(leaf)?.to_f64_vec()?);
        }
    }
    Ok(out)
}

/// Checks that a function of narrow inputs and its gradient are those of f64, rounded once.
macro_rules! rounds_once {
    ($name:expr, $device:expr, $inputs:expr, $seed:expr, |$x:ident| $f:expr) => {
        for dtype in NARROW {
            let name = $name;
            let inputs: &[(Vec<f64>, &[usize])] = &$inputs;
            let narrow = inputs
                .iter()
                .map(|(values, shape)| tensor(values, shape, dtype, $device))
                .collect::<Result<Vec<_>>>()?;
            let exact = Device::<Reference>::default();
            let wide = narrow
                .iter()
                .map(|x| tensor(&x.to_f64_vec()?, &x.dims(), DType::F64, &exact))
                .collect::<Result<Vec<_>>>()?;
            let found = run(|$x| $f, &narrow, $seed, dtype)?;
            let truth = run(|$x| $f, &wide, $seed, dtype)?;
            for (i, (found, truth)) in found.iter().zip(&truth).enumerate() {
                let most = truth.iter().fold(0.0f64, |most, x| most.max(x.abs()));
                for (found, truth) in found.iter().zip(truth) {
                    // A sum that cancels is as precise as its terms.
                    let error = 4e-6 * truth.abs() + 1e-6 * most;
                    within(*found, *truth, error, dtype, &format!("{name}, result {i}"));
                }
            }
        }
    };
}

fn means_of_more_than_f16_counts<B: Backend>(device: &Device<B>) -> Result<()> {
    let count = 100_000;
    for dtype in NARROW {
        let x = Tensor::full([count], 1.0, (device, dtype))?.requires_grad()?;
        let mean = x.mean_all()?;
        assert_eq!(mean.item()?, 1.0);
        let gradient = mean.backward()?.require(&x)?.to_f64_vec()?;
        is_rounded(gradient[0], 1e-5, dtype, "mean");
        assert!(gradient.iter().all(|g| *g == gradient[0]));
    }
    Ok(())
}

fn numbers_are_not_rounded<B: Backend>(device: &Device<B>) -> Result<()> {
    let of = |value: f64| tensor(&[value], &[1], DType::F16, device);
    assert_eq!((of(0.5)? * 65_536.0)?.item()?, 32_768.0);
    assert_eq!((65_536 * of(0.5)?)?.item()?, 32_768.0);
    assert_eq!((of(0.5)? * 1e5)?.item()?, 49_984.0);
    assert_eq!((of(50.0)? / 1e5)?.item()?, rounded(5e-4, DType::F16)?);
    assert_eq!((of(1000.0)? * 1e-8)?.item()?, rounded(1e-5, DType::F16)?);
    assert_eq!((1e5 / of(50.0)?)?.item()?, 2000.0);
    assert_eq!((of(-60_000.0)? + 70_000.0)?.item()?, 10_000.0);
    // A large bound overflows if it is the result, and comparisons use the rounded number.
    assert_eq!(of(2.0)?.clamp(Some(1e5), None)?.item()?, f64::INFINITY);
    assert_eq!(of(2.0)?.clamp(None, Some(1e5))?.item()?, 2.0);
    assert_eq!(of(0.1)?.eq(0.1)?.item()?, 1.0);
    assert_eq!(
        of(2.0)?.masked_fill(&of(1.0)?.gt(0.0)?, 0.1)?.item()?,
        rounded(0.1, DType::F16)?
    );

    let ops = [
        BinaryOp::Add,
        BinaryOp::Sub,
        BinaryOp::Mul,
        BinaryOp::Div,
        BinaryOp::Pow,
        BinaryOp::Atan2,
    ];
    let values: Vec<f64> = numbers(64, 3.0).iter().map(|x| x.abs() + 0.1).collect();
    for dtype in NARROW {
        let x = tensor(&values, &[64], dtype, device)?;
        for op in ops {
            for number in [0.1, -3.3, 1e-7, 7e4, 2.0, 0.5, 1.0 / 3.0] {
                for reverse in [false, true] {
                    if op == BinaryOp::Pow && (reverse || number > 100.0) {
                        continue;
                    }
                    let found = x.binary_scalar(op, number, reverse)?;
                    assert_eq!(found.dtype(), dtype);
                    for (found, x) in found.to_f64_vec()?.into_iter().zip(x.to_f64_vec()?) {
                        let (a, b) = if reverse { (number, x) } else { (x, number) };
                        let truth = match op {
                            BinaryOp::Add => a + b,
                            BinaryOp::Sub => a - b,
                            BinaryOp::Mul => a * b,
                            BinaryOp::Div => a / b,
                            BinaryOp::Pow => a.powf(b),
                            _ => a.atan2(b),
                        };
                        is_rounded(found, truth, dtype, &format!("{op:?} of {a} and {b}"));
                    }
                }
            }
        }
        // The same with integers.
        assert_eq!(
            (tensor(&[1.0], &[1], dtype, device)? * 2049i64)?.item()?,
            rounded(2049.0, dtype)?
        );
        let found = tensor(&[0.5], &[1], dtype, device)?.binary_scalar(BinaryOp::Mul, Scalar::Int(100_001), false)?;
        assert_eq!(found.item()?, rounded(50_000.5, dtype)?);
    }
    Ok(())
}

fn numbers_of_gradients_are_not_rounded<B: Backend>(device: &Device<B>) -> Result<()> {
    let x = || vec![(numbers(12, 2.0).iter().map(|x| x.abs() + 0.5).collect(), &[12][..])];
    rounds_once!("mul", device, x(), 1e-4, |x| &x[0] * 1e5);
    rounds_once!("div", device, x(), 50.0, |x| &x[0] / 1e5);
    rounds_once!("pow", device, x(), 1.0, |x| x[0].pow(2.3));
    rounds_once!("rdiv", device, x(), 0.1, |x| 1e5 / &x[0]);
    rounds_once!("atan2", device, x(), 1.0, |x| x[0].binary_scalar(
        BinaryOp::Atan2,
        0.3,
        true
    ));
    Ok(())
}

fn statistics_are_rounded_once<B: Backend>(device: &Device<B>) -> Result<()> {
    let dtype = DType::F16;
    let x = tensor(&[200.0, 200.0], &[2], dtype, device)?;
    assert_eq!(x.norm(2.0, ())?.item()?, 282.75);
    let x = tensor(&[300.0, 400.0], &[2], dtype, device)?.requires_grad()?;
    let gradient = x.norm(2.0, ())?.backward()?.require(&x)?.to_f64_vec()?;
    assert_eq!(gradient, [rounded(0.6, dtype)?, rounded(0.8, dtype)?]);
    let large = || vec![(numbers(1000, 300.0), &[1000][..])];
    let small = || vec![(numbers(40, 1e-4), &[40][..])];
    for p in [-1.0, 0.5, 1.0, 1.5, 2.0, 3.0] {
        rounds_once!(format!("norm {p}"), device, large(), 1.0, |x| x[0].norm(p, ()));
    }
    rounds_once!("norm of small", device, small(), 1.0, |x| x[0].norm(2.0, ()));
    rounds_once!("std", device, large(), 1.0, |x| x[0].std((), 1));
    rounds_once!("variance", device, [(numbers(60, 300.0), &[2, 30][..])], 0.1, |x| {
        x[0].variance_keepdim(1, 0)
    });
    let many: Vec<f64> = (0..100_000).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
    rounds_once!("variance of many", device, [(many.clone(), &[100_000][..])], 1.0, |x| {
        x[0].variance((), 1)
    });
    rounds_once!("logsumexp", device, [(numbers(60, 9.0), &[3, 20][..])], 1.0, |x| {
        x[0].logsumexp(1)
    });
    let pair = || vec![(numbers(300, 300.0), &[1, 300][..]), (others(300, 200.0), &[300][..])];
    rounds_once!("cosine", device, pair(), 1.0, |x| x[0]
        .cosine_similarity(&x[1], -1, 1e-8));
    Ok(())
}

fn compositions_are_rounded_once<B: Backend>(device: &Device<B>) -> Result<()> {
    let image = || vec![(numbers(2 * 2 * 7 * 5, 100.0), &[2, 2, 7, 5][..])];
    rounds_once!("adaptive_avg_pool", device, image(), 1.0, |x| x[0]
        .adaptive_avg_pool(&[3, 2]));
    rounds_once!("avg_pool_with_divisor", device, image(), 1.0, |x| {
        x[0].avg_pool_with_divisor(&PoolParams::new([3, 3, 1]), 7)
    });
    for mode in [InterpolateMode::Linear, InterpolateMode::Cubic] {
        rounds_once!(format!("{mode:?}"), device, image(), 1.0, |x| {
            x[0].interpolate(Resize::Size(&[9, 11]), mode, false)
        });
    }
    let groups = vec![
        (numbers(2 * 4 * 6, 200.0), &[2, 4, 6][..]),
        (numbers(4, 1.0), &[4][..]),
        (numbers(4, 5.0), &[4][..]),
    ];
    rounds_once!("group_norm", device, groups.clone(), 1.0, |x| {
        x[0].group_norm(2, Some(&x[1]), Some(&x[2]), 1e-5)
    });
    let three = vec![
        (numbers(12, 300.0), &[3, 4][..]),
        (numbers(20, 300.0), &[4, 5][..]),
        (numbers(10, 1e-3), &[5, 2][..]),
    ];
    rounds_once!("einsum", device, three.clone(), 1.0, |x| {
        Tensor::einsum("ij,jk,kl->il", &[&x[0], &x[1], &x[2]])
    });
    let sums = vec![(vec![300.0; 1200], &[300, 4][..]), (numbers(8, 1e-3), &[4, 2][..])];
    rounds_once!("einsum with a sum before", device, sums.clone(), 0.01, |x| {
        Tensor::einsum("ij,jk->k", &[&x[0], &x[1]])
    });
    let matrix = vec![(others(12, 300.0), &[3, 4][..])];
    rounds_once!("nuclear_norm", device, matrix.clone(), 1.0, |x| x[0]
        .nuclear_norm([0, 1]));
    let pair = vec![(numbers(50, 90.0), &[50][..]), (numbers(50, 7.0), &[50][..])];
    for mode in [RoundingMode::Trunc, RoundingMode::Floor] {
        rounds_once!(format!("div {mode:?}"), device, pair.clone(), 1.0, |x| x[0]
            .div_rounded(&x[1], mode));
    }
    let broadcast = vec![(numbers(300, 30.0), &[100, 3][..]), (numbers(3, 20.0), &[3][..])];
    rounds_once!("a broadcast product", device, broadcast.clone(), 0.1, |x| x[0]
        .mul(&x[1]));
    Ok(())
}

fn rules_of_several_steps_do_not_overflow<B: Backend>(device: &Device<B>) -> Result<()> {
    let gradient = |x: f64, seed: f64, f: &dyn Fn(&Tensor<B>) -> Result<Tensor<B>>| -> Result<f64> {
        let x = tensor(&[x], &[1], DType::F16, device)?;
        let x = x.requires_grad()?;
        let seed = tensor(&[seed], &[1], DType::F16, device)?;
        f(&x)?
            .backward_with(&BackwardOptions::default().gradient(&seed))?
            .require(&x)?
            .item()
    };
    let near = |found: f64, truth: f64| assert!((found / truth - 1.0).abs() < 4e-3, "{found}, not {truth}");
    // The intermediate results are 2e5, 1.1e5 and 9e4.
    near(gradient(3e-4, 0.01, &|x| x.rsqrt())?, -0.5 * 0.01 * 3e-4f64.powf(-1.5));
    near(gradient(3e-3, 0.01, &|x| x.reciprocal())?, -0.01 / (3e-3 * 3e-3));
    let ties = Tensor::full([70_000], 1.0, (device, DType::F16))?.requires_grad()?;
    let found = ties.amax(())?.backward()?.require(&ties)?.to_f64_vec()?;
    is_rounded(found[0], 1.0 / 70_000.0, DType::F16, "amax of ties");
    let pair = vec![(vec![300.0, 2.0], &[2][..]), (vec![400.0, 2e-3], &[2][..])];
    rounds_once!("atan2", device, pair.clone(), 1.0, |x| x[0].atan2(&x[1]));
    rounds_once!("div", device, pair.clone(), 0.1, |x| x[0].div(&x[1]));
    rounds_once!("sin", device, pair.clone(), 1.0, |x| x[0].sin()?.add(&x[1].cos()?));
    Ok(())
}

fn batch_statistics_are_wide<B: Backend>(device: &Device<B>) -> Result<()> {
    for dtype in NARROW {
        let x = tensor(&numbers(2 * 64, 1000.0), &[64, 2], dtype, device)?;
        let exact = tensor(&x.to_f64_vec()?, &[64, 2], DType::F64, &Device::<Reference>::default())?;
        let (_, mean, var) = x.batch_norm(None, None, 1e-5)?;
        let (_, true_mean, true_var) = exact.batch_norm(None, None, 1e-5)?;
        for (found, truth) in [(mean, true_mean), (var, true_var)] {
            assert_eq!(found.dtype(), DType::F32);
            for (found, truth) in found.to_f64_vec()?.into_iter().zip(truth.to_f64_vec()?) {
                assert!(
                    (found - truth).abs() <= 1e-5 * (truth.abs() + 1.0),
                    "{found}, not {truth}"
                );
            }
        }
    }
    let inputs = vec![
        (numbers(2 * 64, 1000.0), &[64, 2][..]),
        (vec![1.5, 0.5], &[2][..]),
        (vec![0.25, 1.0], &[2][..]),
    ];
    rounds_once!("batch_norm", device, inputs.clone(), 100.0, |x| {
        Ok(x[0].batch_norm(Some(&x[1]), Some(&x[2]), 1e-5)?.0)
    });
    Ok(())
}

fn running_statistics_may_be_wide<B: Backend>(device: &Device<B>) -> Result<()> {
    let x = tensor(&numbers(12, 1000.0), &[6, 2], DType::F16, device)?;
    let (mean, var) = ([10.0, -3.0], [5e5f64, 1e6]);
    let (mean32, var32) = (
        tensor(&mean, &[2], DType::F32, device)?,
        tensor(&var, &[2], DType::F32, device)?,
    );
    let found = x.batch_norm_running(&mean32, &var32, None, None, 1e-5)?;
    assert_eq!(found.dtype(), DType::F16);
    for (i, (found, x)) in found.to_f64_vec()?.into_iter().zip(x.to_f64_vec()?).enumerate() {
        is_rounded(
            found,
            (x - mean[i % 2]) / var[i % 2].sqrt(),
            DType::F16,
            "batch_norm_running",
        );
    }
    let (narrow, wide) = (mean32.to_dtype(DType::F16)?, mean32.to_dtype(DType::F64)?);
    assert!(x.batch_norm_running(&narrow, &narrow, None, None, 1e-5).is_ok());
    assert!(x.batch_norm_running(&narrow, &var32, None, None, 1e-5).is_err());
    assert!(x.batch_norm_running(&wide, &wide, None, None, 1e-5).is_err());
    Ok(())
}

#[test]
fn a_replay_does_not_round_numbers_either() -> Result<()> {
    let device = Device::<Cpu>::default().into_any();
    let mut capture = Capture::new();
    for value in [0.5, 0.25, 0.125, 0.0625] {
        let x = tensor(&[value], &[1], DType::F16, &device)?;
        let (outputs, ()) = capture.run(0, vec![x.clone()], || Ok((vec![(&x * 1e5)?, x.norm(2.0, ())?], ())))?;
        assert_eq!(outputs[0].item()?, rounded(value * 1e5, DType::F16)?);
        assert_eq!(outputs[1].item()?, value);
    }
    assert_eq!(capture.refusal(), None);
    Ok(())
}

fn logits_far_from_zero_keep_their_gradient<B: Backend>(device: &Device<B>) -> Result<()> {
    for (dtype, offset) in [(DType::BF16, -100.0), (DType::F16, 1000.0)] {
        let logits: Vec<f64> = numbers(6 * 20, 3.0).into_iter().map(|x| x + offset).collect();
        let logits = tensor(&logits, &[6, 20], dtype, device)?;
        let target = Tensor::from_vec(vec![3i64, 1, 4, 15, 9, 2], [6], device)?;
        let gradient = |logits: Tensor<B>| {
            let logits = logits.requires_grad()?;
            let loss = logits.cross_entropy_mean(&target, &CrossEntropyParams::default())?;
            loss.backward()?.require(&logits)?.to_f64_vec()
        };
        let (found, right) = (gradient(logits.clone())?, gradient(logits.to_dtype(DType::F64)?)?);
        let largest = right.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
        for (found, right) in found.iter().zip(&right) {
            assert!((found - right).abs() < 0.01 * largest, "{found} for {right} in {dtype}");
        }
    }
    Ok(())
}

fn products_are_scaled_before_they_are_rounded<B: Backend>(device: &Device<B>) -> Result<()> {
    let of = |shape: &[usize]| Tensor::full(shape, 300.0, (device, DType::F16));
    let y = of(&[1, 1])?.addmm(&of(&[1, 3])?, &of(&[3, 1])?, 1.0, 0.1)?;
    assert_eq!(y.to_f64_vec()?, [27296.0]);
    Ok(())
}

fn a_root_mean_square_may_be_small<B: Backend>(device: &Device<B>) -> Result<()> {
    let x = tensor(&numbers(8, 1e-5), &[2, 4], DType::F16, device)?.requires_grad()?;
    let weight = Tensor::ones([4], device)?.to_dtype(DType::F16)?.requires_grad()?;
    let gradients = x.rms_norm(Some(&weight), 1, 1e-12)?.sum_all()?.backward()?;
    assert!(gradients.require(&weight)?.to_f64_vec()?.iter().all(|g| g.is_finite()));
    Ok(())
}
