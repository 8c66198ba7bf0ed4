//! Variance and norms where rounding or an infinite slope would make them wrong.

use polygrad_tensor::{Backend, BackwardOptions, DType, Device, Result, Tensor};

on_backends!(
    equal_values_have_no_slope,
    zeros_have_no_slope_in_a_norm,
    values_far_from_zero_keep_their_variance,
    a_variance_that_overflows_is_infinite,
);

const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

fn leaf<B: Backend>(values: &[f64], shape: &[usize], dtype: DType, device: &Device<B>) -> Result<Tensor<B>> {
    Tensor::from_slice(values, shape, device)?
        .to_dtype(dtype)?
        .requires_grad()
}

fn gradient<B: Backend>(y: &Tensor<B>, x: &Tensor<B>) -> Result<Vec<f64>> {
    y.sum_all()?.backward()?.require(x)?.to_f64_vec()
}

#[track_caller]
fn near(found: &[f64], truth: &[f64], bound: f64) {
    assert_eq!(found.len(), truth.len());
    for (found, truth) in found.iter().zip(truth) {
        assert!((found - truth).abs() <= bound, "{found:e}, not {truth:e}");
    }
}

fn equal_values_have_no_slope<B: Backend>(device: &Device<B>) -> Result<()> {
    for dtype in FLOATS {
        for (value, count) in [(0.1, 10), (0.0, 3), (1.0, 4), (-7.3, 7), (3e4, 11)] {
            let x = leaf(&vec![value; count], &[count], dtype, device)?;
            for correction in [0, 1] {
                let y = x.std((), correction)?;
                assert_eq!(y.item()?, 0.0, "{dtype}, {count} times {value}");
                assert_eq!(gradient(&y, &x)?, vec![0.0; count], "{dtype}, {count} times {value}");
            }
        }
        // One element: 0 divided by 0, and by 1.
        let x = leaf(&[2.5], &[1], dtype, device)?;
        assert!(x.std((), 1)?.item()?.is_nan());
        assert_eq!(gradient(&x.std((), 0)?, &x)?, [0.0]);
        // A row of two values, and a row of equal values.
        let x = leaf(&[1.0, 3.0, 2.0, 2.0], &[2, 2], dtype, device)?;
        let y = x.std(1, 0)?;
        assert_eq!(y.to_f64_vec()?, [1.0, 0.0]);
        assert_eq!(gradient(&y, &x)?, [-0.5, 0.5, 0.0, 0.0]);
        let scaled = x.sub(&x.mean_keepdim(1)?)?.div(&(x.std_keepdim(1, 0)? + 1e-2)?)?;
        assert!(gradient(&scaled.square()?, &x)?.iter().all(|g| g.is_finite()));
        // NaN stays NaN.
        let x = leaf(
            &[f64::NAN, f64::NAN, f64::INFINITY, f64::INFINITY],
            &[2, 2],
            dtype,
            device,
        )?;
        assert!(x.std(1, 0)?.to_f64_vec()?.iter().all(|y| y.is_nan()));
    }
    // Its second derivative is 0, too.
    let x = leaf(&[0.1; 3], &[3], DType::F64, device)?;
    let options = BackwardOptions::default().create_graph(true);
    let slope = x.std((), 1)?.backward_with(&options)?.require(&x)?.clone();
    assert_eq!(gradient(&slope, &x)?, [0.0; 3]);
    Ok(())
}

fn zeros_have_no_slope_in_a_norm<B: Backend>(device: &Device<B>) -> Result<()> {
    let values = [3.0, 0.0, -4.0];
    for p in [0.3, 0.5, 0.9, 1.5] {
        let x = leaf(&values, &[3], DType::F64, device)?;
        let y = x.norm(p, ())?;
        let truth = (3f64.powf(p) + 4f64.powf(p)).powf(1.0 / p);
        near(&[y.item()?], &[truth], 1e-12 * truth);
        let slope = |x: f64| x.signum() * (x.abs() / truth).powf(p - 1.0);
        near(&gradient(&y, &x)?, &[slope(3.0), 0.0, slope(-4.0)], 1e-12 * truth);
        let options = BackwardOptions::default().create_graph(true);
        let first = y.backward_with(&options)?.require(&x)?.clone();
        assert!(gradient(&first, &x)?.iter().all(|g| g.is_finite()), "{p}");
    }
    for p in [-0.5, -1.0, -2.0] {
        // With a zero among the elements, the norm of a negative order is 0, whatever the others are.
        let x = leaf(&values, &[3], DType::F64, device)?;
        let y = x.norm(p, ())?;
        assert_eq!(y.item()?, 0.0);
        assert_eq!(gradient(&y, &x)?, [0.0; 3], "{p}");
    }
    for p in [-1.0, 0.5, 1.0, 2.0, 3.0] {
        for dtype in FLOATS {
            let x = leaf(&[0.0; 4], &[4], dtype, device)?;
            let y = x.norm(p, ())?;
            assert_eq!((y.item()?, gradient(&y, &x)?), (0.0, vec![0.0; 4]), "{p} in {dtype}");
        }
    }
    Ok(())
}

fn values_far_from_zero_keep_their_variance<B: Backend>(device: &Device<B>) -> Result<()> {
    let values: Vec<f64> = (0..64).map(|i| 1e6 + (i as f64 * 1.7).sin()).collect();
    for (dtype, bound) in [(DType::F32, 1e-6), (DType::F64, 1e-14)] {
        let x = leaf(&values, &[64], dtype, device)?;
        let held = x.to_f64_vec()?;
        // Values near 1e6 are exact in f64 after 1e6 is subtracted.
        let off: Vec<f64> = held.iter().map(|x| x - 1e6).collect();
        let mean = off.iter().sum::<f64>() / 64.0;
        let truth = off.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 63.0;
        let y = x.variance((), 1)?;
        near(&[y.item()?], &[truth], bound * truth);
        let slopes: Vec<f64> = off.iter().map(|x| 2.0 * (x - mean) / 63.0).collect();
        near(&gradient(&y, &x)?, &slopes, bound);
        near(&[x.std((), 1)?.item()?], &[truth.sqrt()], bound);
    }
    Ok(())
}

fn a_variance_that_overflows_is_infinite<B: Backend>(device: &Device<B>) -> Result<()> {
    let x = leaf(&[3e38, -3e38, 0.0, 1e38], &[4], DType::F32, device)?;
    assert_eq!(x.variance((), 1)?.item()?, f64::INFINITY);
    assert!(leaf(&[], &[0], DType::F32, device)?.variance((), 1)?.item()?.is_nan());
    Ok(())
}
