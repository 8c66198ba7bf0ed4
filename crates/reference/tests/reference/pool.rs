//! Pooling against loops that follow the definition, and its gradients against finite differences.

use polygrad_core::{Backend, PoolParams, Shape};

use crate::tools::{R, assert_close, assert_gradient, elements, normal, reals};

/// All small settings for one axis that fit, each with an extent.
fn settings() -> Vec<(usize, PoolParams)> {
    let mut out = Vec::new();
    for dim in 1..=7 {
        for kernel in 1..=4 {
            for stride in 1..=4 {
                for padding in 0..=kernel / 2 {
                    for flags in 0..4 {
                        let mut params = PoolParams::new([kernel, 9, 9]);
                        params.stride[0] = stride;
                        params.padding = [padding, 0, 0];
                        params.ceil_mode = flags & 1 == 1;
                        params.count_include_pad = flags & 2 == 2;
                        if dim + 2 * padding >= kernel {
                            out.push((dim, params));
                        }
                    }
                }
            }
        }
    }
    assert_eq!(out.len(), 784);
    out
}

/// Mean of the window at `position`, by PyTorch's rule for the elements that count.
fn mean(x: &[f64], position: usize, params: &PoolParams) -> f64 {
    let (dim, padding) = (x.len() as isize, params.padding[0] as isize);
    let start = (position * params.stride[0]) as isize - padding;
    let end = (start + params.kernel[0] as isize).min(dim + padding);
    let (first, last) = (start.max(0), end.min(dim));
    let sum: f64 = (first..last).map(|i| x[i as usize]).sum();
    let count = if params.count_include_pad {
        end - start
    } else {
        last - first
    };
    sum / count as f64
}

#[test]
fn means_and_their_gradients_in_every_combination() {
    for (dim, params) in settings() {
        let x = normal(&[1, 2, dim], 1);
        let y = R::avg_pool(&x, &params).unwrap();
        let positions = R::shape(&y)[2];
        let values = reals(&x);
        let of_channel = |x: &[f64]| (0..positions).map(|p| mean(x, p, &params)).collect::<Vec<_>>();
        let expected: Vec<f64> = values.chunks(dim).flat_map(of_channel).collect();
        assert_close(&reals(&y), &expected, 1e-14);
        let grad = normal(&R::shape(&y), 2);
        let analytic = R::avg_pool_backward(&grad, R::shape(&x), &params).unwrap();
        assert_gradient(|x| R::avg_pool(x, &params).unwrap(), &x, &grad, &analytic);
    }
}

#[test]
fn largest_and_their_gradients_in_every_combination() {
    for (dim, params) in settings() {
        let x = normal(&[1, 2, dim], 3);
        let (y, indices) = R::max_pool(&x, &params, true).unwrap();
        let indices = indices.unwrap();
        let positions = R::shape(&y)[2];
        let (values, found, at) = (reals(&x), reals(&y), elements::<i64>(&indices));
        for (i, (&value, &index)) in found.iter().zip(&at).enumerate() {
            let channel = &values[i / positions * dim..][..dim];
            let start = (i % positions * params.stride[0]) as isize - params.padding[0] as isize;
            let window = (start.max(0)..(start + params.kernel[0] as isize).min(dim as isize)).map(|i| i as usize);
            let largest = window.clone().map(|i| channel[i]).fold(f64::NEG_INFINITY, f64::max);
            assert_eq!(value, largest, "{dim} {params:?}");
            assert_eq!(channel[index as usize], largest);
            assert!(window.clone().any(|i| i == index as usize));
        }
        let grad = normal(&R::shape(&y), 4);
        let analytic = R::max_pool_backward(&grad, &indices, R::shape(&x)).unwrap();
        assert_gradient(|x| R::max_pool(x, &params, true).unwrap().0, &x, &grad, &analytic);
    }
}

#[test]
fn two_and_three_axes_with_settings_of_their_own() {
    for flags in 0..4 {
        let params = PoolParams {
            kernel: [3, 2, 4],
            stride: [2, 3, 1],
            padding: [1, 0, 2],
            dilation: [1; 3],
            ceil_mode: flags & 1 == 1,
            count_include_pad: flags & 2 == 2,
        };
        for dims in [&[2, 3, 5, 6][..], &[1, 2, 4, 3, 3]] {
            let x = normal(dims, 5);
            let shape = params.output_shape(&R::shape(&x)).unwrap();
            let grad = normal(&shape, 6);
            let analytic = R::avg_pool_backward(&grad, R::shape(&x), &params).unwrap();
            assert_gradient(|x| R::avg_pool(x, &params).unwrap(), &x, &grad, &analytic);
            let dilated = PoolParams {
                dilation: [1, 2, 1],
                ..params
            };
            let (y, indices) = R::max_pool(&x, &dilated, true).unwrap();
            let indices = indices.unwrap();
            let grad = normal(&R::shape(&y), 7);
            let analytic = R::max_pool_backward(&grad, &indices, R::shape(&x)).unwrap();
            assert_gradient(|x| R::max_pool(x, &dilated, true).unwrap().0, &x, &grad, &analytic);
        }
    }
    // Without a border, the mean over two axes is the mean of means.
    let x = normal(&[1, 1, 4, 6], 8);
    let both = R::avg_pool(&x, &PoolParams::new([2, 3, 1])).unwrap();
    let rows = R::avg_pool(&x, &PoolParams::new([2, 1, 1])).unwrap();
    assert_close(
        &reals(&both),
        &reals(&R::avg_pool(&rows, &PoolParams::new([1, 3, 1])).unwrap()),
        1e-15,
    );
}

#[test]
fn empty_batches() {
    let x = normal(&[0, 2, 4], 1);
    let params = PoolParams::new([2; 3]);
    let y = R::avg_pool(&x, &params).unwrap();
    assert_eq!(R::shape(&y), Shape::from([0, 2, 2]));
    assert_eq!(
        R::shape(&R::avg_pool_backward(&y, R::shape(&x), &params).unwrap()),
        R::shape(&x)
    );
    let (y, indices) = R::max_pool(&x, &params, true).unwrap();
    let indices = indices.unwrap();
    assert_eq!(
        R::shape(&R::max_pool_backward(&y, &indices, R::shape(&x)).unwrap()),
        R::shape(&x)
    );
}
