//! Normalisations.

use polygrad_core::Backend;

use crate::tools::{R, T, assert_close, assert_gradient, dims, normal, reals};

const EPS: f64 = 0.03;

/// `(mean, biased variance, mean of squares)` of each group.
fn moments(groups: &[Vec<f64>]) -> Vec<(f64, f64, f64)> {
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
    groups
        .iter()
        .map(|x| {
            let m = mean(x);
            let var = mean(&x.iter().map(|v| (v - m).powi(2)).collect::<Vec<_>>());
            (m, var, mean(&x.iter().map(|v| v * v).collect::<Vec<_>>()))
        })
        .collect()
}

#[test]
fn layer_norm_over_one_and_two_axes() {
    for axes in [1, 2] {
        let shape = [3, 2, 4];
        let inner: usize = shape[3 - axes..].iter().product();
        let (x, grad) = (normal(&shape, 1), normal(&shape, 2));
        let (weight, bias) = (normal(&shape[3 - axes..], 3), normal(&shape[3 - axes..], 4));
        let stats = moments(&reals(&x).chunks(inner).map(<[f64]>::to_vec).collect::<Vec<_>>());
        for (weight, bias) in [(Some(&weight), Some(&bias)), (Some(&weight), None), (None, None)] {
            let (y, mean, rstd) = R::layer_norm(&x, weight, bias, axes, EPS).unwrap();
            let mut kept = shape;
            kept[3 - axes..].fill(1);
            assert_eq!((dims(&mean), dims(&rstd)), (kept.to_vec(), kept.to_vec()));
            assert_close(&reals(&mean), &stats.iter().map(|s| s.0).collect::<Vec<_>>(), 1e-14);
            let expected_rstd: Vec<f64> = stats.iter().map(|s| 1.0 / (s.1 + EPS).sqrt()).collect();
            assert_close(&reals(&rstd), &expected_rstd, 1e-14);
            let (w, b) = (weight.map(reals), bias.map(reals));
            let expected: Vec<f64> = reals(&x)
                .iter()
                .enumerate()
                .map(|(i, v)| {
                    let normal = (v - stats[i / inner].0) * expected_rstd[i / inner];
                    normal * w.as_ref().map_or(1.0, |w| w[i % inner]) + b.as_ref().map_or(0.0, |b| b[i % inner])
                })
                .collect();
            assert_close(&reals(&y), &expected, 1e-13);

            let (to_x, to_weight, to_bias) = R::layer_norm_backward(&grad, &x, &mean, &rstd, weight, axes).unwrap();
            let forward = |x: &T, w: Option<&T>, b: Option<&T>| R::layer_norm(x, w, b, axes, EPS).unwrap().0;
            assert_gradient(|x| forward(x, weight, bias), &x, &grad, &to_x);
            // Without a weight the gradients are those of a weight of ones and a bias of zeros.
            let ones = R::full(R::shape(&to_weight), 1.0.into(), R::dtype(&x), &R::device(&x)).unwrap();
            assert_gradient(
                |w| forward(&x, Some(w), bias),
                weight.unwrap_or(&ones),
                &grad,
                &to_weight,
            );
            let at = bias.cloned().unwrap_or_else(|| R::mul_scalar(&ones, 0.0).unwrap());
            assert_gradient(
                |b| forward(&x, Some(weight.unwrap_or(&ones)), Some(b)),
                &at,
                &grad,
                &to_bias,
            );
        }
    }
}

#[test]
fn rms_norm_over_one_and_two_axes() {
    for axes in [1, 2] {
        let shape = [3, 2, 4];
        let inner: usize = shape[3 - axes..].iter().product();
        let (x, grad, weight) = (normal(&shape, 1), normal(&shape, 2), normal(&shape[3 - axes..], 3));
        let stats = moments(&reals(&x).chunks(inner).map(<[f64]>::to_vec).collect::<Vec<_>>());
        for weight in [Some(&weight), None] {
            let (y, rstd) = R::rms_norm(&x, weight, axes, EPS).unwrap();
            let scale: Vec<f64> = stats.iter().map(|s| 1.0 / (s.2 + EPS).sqrt()).collect();
            assert_close(&reals(&rstd), &scale, 1e-14);
            let w = weight.map(reals);
            let expected: Vec<f64> = reals(&x)
                .iter()
                .enumerate()
                .map(|(i, v)| v * scale[i / inner] * w.as_ref().map_or(1.0, |w| w[i % inner]))
                .collect();
            assert_close(&reals(&y), &expected, 1e-14);
            let (to_x, to_weight) = R::rms_norm_backward(&grad, &x, &rstd, weight, axes).unwrap();
            let forward = |x: &T, w: Option<&T>| R::rms_norm(x, w, axes, EPS).unwrap().0;
            assert_gradient(|x| forward(x, weight), &x, &grad, &to_x);
            let ones = R::full(R::shape(&to_weight), 1.0.into(), R::dtype(&x), &R::device(&x)).unwrap();
            assert_gradient(|w| forward(&x, Some(w)), weight.unwrap_or(&ones), &grad, &to_weight);
        }
    }
}

#[test]
fn batch_norm_of_rank_two_to_four() {
    for shape in [&[5, 3][..], &[2, 3, 4], &[2, 3, 2, 2]] {
        let (x, grad) = (normal(shape, 1), normal(shape, 2));
        let (weight, bias) = (normal(&[3], 3), normal(&[3], 4));
        let plane: usize = shape[2..].iter().product();
        let channel = |i: usize| i / plane % 3;
        let values = reals(&x);
        let of_channel = |c| {
            (0..values.len())
                .filter(|&i| channel(i) == c)
                .map(|i| values[i])
                .collect()
        };
        let stats = moments(&(0..3).map(of_channel).collect::<Vec<_>>());
        for (weight, bias) in [(Some(&weight), Some(&bias)), (Some(&weight), None), (None, None)] {
            let (y, mean, var) = R::batch_norm(&x, weight, bias, EPS).unwrap();
            assert_close(&reals(&mean), &stats.iter().map(|s| s.0).collect::<Vec<_>>(), 1e-14);
            assert_close(&reals(&var), &stats.iter().map(|s| s.1).collect::<Vec<_>>(), 1e-14);
            let (w, b) = (weight.map(reals), bias.map(reals));
            let expected: Vec<f64> = values
                .iter()
                .enumerate()
                .map(|(i, v)| {
                    let (m, var, _) = stats[channel(i)];
                    let normal = (v - m) / (var + EPS).sqrt();
                    normal * w.as_ref().map_or(1.0, |w| w[channel(i)]) + b.as_ref().map_or(0.0, |b| b[channel(i)])
                })
                .collect();
            assert_close(&reals(&y), &expected, 1e-13);
            let (to_x, to_weight, to_bias) = R::batch_norm_backward(&grad, &x, &mean, &var, weight, EPS).unwrap();
            let forward = |x: &T, w: Option<&T>, b: Option<&T>| R::batch_norm(x, w, b, EPS).unwrap().0;
            assert_gradient(|x| forward(x, weight, bias), &x, &grad, &to_x);
            let ones = crate::tools::vector(&[1.0; 3]);
            assert_gradient(
                |w| forward(&x, Some(w), bias),
                weight.unwrap_or(&ones),
                &grad,
                &to_weight,
            );
            let at = bias.cloned().unwrap_or_else(|| crate::tools::vector(&[0.0; 3]));
            assert_gradient(
                |b| forward(&x, Some(weight.unwrap_or(&ones)), Some(b)),
                &at,
                &grad,
                &to_bias,
            );
        }
    }
}
