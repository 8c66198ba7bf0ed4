//! Convolution and pooling against cases computed by hand. For convolution in general see `conv`.

use polygrad_core::{Backend, ConvParams, ErrorKind, PoolParams};

use crate::tools::{R, assert_close, assert_fails, dims, elements, reals, tensor};

#[test]
fn convolves_without_mirroring() {
    let x = tensor([1, 1, 4], &[1.0, 2.0, 3.0, 4.0]);
    let weight = tensor([1, 1, 2], &[10.0, 1.0]);
    let y = R::conv(&x, &weight, None, None, None, &ConvParams::default()).unwrap();
    assert_eq!(reals(&y), [12.0, 23.0, 34.0]);
    let params = ConvParams {
        stride: [2; 3],
        padding: [1; 3],
        dilation: [2; 3],
        groups: 1,
    };
    let y = R::conv(&x, &weight, None, None, None, &params).unwrap();
    assert_eq!(reals(&y), [2.0, 24.0]);
    let grouped = ConvParams {
        groups: 2,
        ..ConvParams::default()
    };
    let x = tensor([1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let weight = tensor([4, 1, 1], &[1.0, 10.0, 100.0, 1000.0]);
    let y = R::conv(&x, &weight, None, None, None, &grouped).unwrap();
    assert_eq!(reals(&y), [1.0, 2.0, 10.0, 20.0, 300.0, 400.0, 3000.0, 4000.0]);
    let refused = R::conv(
        &tensor([1, 1, 1], &[1i64]),
        &tensor([1, 1, 1], &[1i64]),
        None,
        None,
        None,
        &ConvParams::default(),
    );
    assert_fails(refused, ErrorKind::DType, "conv: not defined for i64");
    let unfit = R::conv(&x, &weight, None, None, None, &ConvParams::default());
    assert_fails(unfit, ErrorKind::Shape, "conv");
}

#[test]
fn largest_of_windows() {
    let nan = f64::NAN;
    let x = tensor([1, 1, 3, 3], &[1.0, 5.0, 5.0, 5.0, 0.0, 1.0, nan, 2.0, nan]);
    let mut params = PoolParams::new([2; 3]);
    params.stride = [1; 3];
    let (y, at) = R::max_pool(&x, &params, true).unwrap();
    assert_eq!(dims(&y), [1, 1, 2, 2]);
    assert_close(&reals(&y), &[5.0, 5.0, nan, nan], 0.0);
    assert_eq!(elements::<i64>(&at.unwrap()), [1, 1, 6, 8]);
    params.padding = [1; 3];
    params.stride = [2; 3];
    let (y, at) = R::max_pool(&tensor([1, 1, 2, 2], &[-4i32, -3, -2, -1]), &params, true).unwrap();
    assert_eq!(elements::<i32>(&y), [-4, -3, -2, -1]);
    assert_eq!(elements::<i64>(&at.unwrap()), [0, 1, 2, 3]);
    let channels = tensor([1, 2, 2], &[1.0, 2.0, 4.0, 3.0]);
    let (y, at) = R::max_pool(&channels, &PoolParams::new([2; 3]), true).unwrap();
    assert_eq!((reals(&y), elements::<i64>(&at.unwrap())), (vec![2.0, 4.0], vec![1, 0]));
    let mut far = PoolParams::new([2; 3]);
    far.padding = [1; 3];
    far.dilation = [5; 3];
    let blind = R::max_pool(&tensor([1, 1, 4], &[1.0; 4]), &far, true);
    assert_fails(blind, ErrorKind::InvalidArgument, "wholly in the border");
}

#[test]
fn means_of_windows() {
    let x = tensor([1, 1, 5], &[1.0, 2.0, 3.0, 4.0, 6.0]);
    let mut params = PoolParams::new([2; 3]);
    assert_eq!(reals(&R::avg_pool(&x, &params).unwrap()), [1.5, 3.5]);
    params.ceil_mode = true;
    assert_eq!(reals(&R::avg_pool(&x, &params).unwrap()), [1.5, 3.5, 6.0]);
    // Windows of 3 from −1, with a border of 1: [0 1 2] [3 4 6]. Ceil mode adds none, since no window may begin in the
    // border after the end.
    let mut wide = PoolParams::new([3; 3]);
    wide.padding = [1; 3];
    assert_close(&reals(&R::avg_pool(&x, &wide).unwrap()), &[1.0, 13.0 / 3.0], 1e-15);
    wide.count_include_pad = false;
    assert_close(&reals(&R::avg_pool(&x, &wide).unwrap()), &[1.5, 13.0 / 3.0], 1e-15);
    // Windows of 4 from −1 with stride 4: [0 1 2 3] and [4 6 0 ·], whose last element is beyond the border and does not
    // count.
    let mut four = PoolParams::new([4; 3]);
    four.padding = [1; 3];
    four.ceil_mode = true;
    assert_close(&reals(&R::avg_pool(&x, &four).unwrap()), &[1.5, 10.0 / 3.0], 1e-15);
    four.count_include_pad = false;
    assert_close(&reals(&R::avg_pool(&x, &four).unwrap()), &[2.0, 5.0], 1e-15);
    let ints = R::avg_pool(&tensor([1, 1, 2], &[1i32, 2]), &PoolParams::new([2; 3]));
    assert_fails(ints, ErrorKind::DType, "avg_pool: not defined for i32");
}
