//! Printing: the expected strings are those of PyTorch 2.13, except for the names of dtypes.

use polygrad_reference::Reference;
use polygrad_tensor::{DType, Device, Result};

type Tensor = polygrad_tensor::Tensor<Reference>;

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;

fn device() -> Device<Reference> {
    Device::default()
}

/// Multiples of a step, from 0 up.
fn counted(shape: &[usize], step: f32) -> Result<Tensor> {
    let numel: usize = shape.iter().product();
    Tensor::from_vec((0..numel).map(|i| i as f32 * step).collect(), shape, &device())
}

#[track_caller]
fn prints(tensor: Tensor, expected: &str) {
    assert_eq!(tensor.to_string(), expected);
}

#[test]
fn scalars() -> Result<()> {
    let d = &device();
    prints(Tensor::new(1.5f32, d)?, "tensor(1.5000)");
    prints(Tensor::new(7i64, d)?, "tensor(7)");
    prints(Tensor::new(true, d)?, "tensor(True)");
    prints(Tensor::new(f32::NAN, d)?, "tensor(nan)");
    prints(Tensor::new(f32::NEG_INFINITY, d)?, "tensor(-inf)");
    prints(Tensor::new(1e10f32, d)?, "tensor(1.0000e+10)");
    prints(Tensor::new(0.1f32, d)?, "tensor(0.1000)");
    prints(Tensor::new(123_456.79f32, d)?, "tensor(123456.7891)");
    Ok(())
}

#[test]
fn one_to_four_dimensions() -> Result<()> {
    let d = &device();
    prints(
        Tensor::new([1.5f32, -2.25, 3.0], d)?,
        "tensor([ 1.5000, -2.2500,  3.0000])",
    );
    prints(Tensor::new([1.0f32, 2.0, -3.0], d)?, "tensor([ 1.,  2., -3.])");
    prints(
        Tensor::new([[1.0f32, 2.5], [-3.0, 10.25]], d)?,
        concat!("tensor([[ 1.0000,  2.5000],\n", "        [-3.0000, 10.2500]])",),
    );
    prints(
        counted(&[2, 2, 3], 1.0)?,
        concat!(
            "tensor([[[ 0.,  1.,  2.],\n",
            "         [ 3.,  4.,  5.]],\n",
            "\n",
            "        [[ 6.,  7.,  8.],\n",
            "         [ 9., 10., 11.]]])",
        ),
    );
    prints(
        counted(&[2, 1, 2, 1], 1.0)?,
        concat!(
            "tensor([[[[0.],\n",
            "          [1.]]],\n",
            "\n",
            "\n",
            "        [[[2.],\n",
            "          [3.]]]])",
        ),
    );
    prints(
        Tensor::new([[1i64, -20], [300, 4]], d)?,
        concat!("tensor([[  1, -20],\n", "        [300,   4]])",),
    );
    prints(
        Tensor::new([[true, false], [false, false]], d)?,
        concat!("tensor([[ True, False],\n", "        [False, False]])",),
    );
    prints(
        Tensor::new([9_007_199_254_740_993i64, -1], d)?,
        "tensor([9007199254740993,               -1])",
    );
    Ok(())
}

#[test]
fn infinities_and_nan() -> Result<()> {
    let d = &device();
    prints(
        Tensor::new([1.0f32, INF, -INF, NAN], d)?,
        "tensor([1., inf, -inf, nan])",
    );
    prints(
        Tensor::new([1.5f32, INF, -INF, NAN], d)?,
        "tensor([1.5000,    inf,   -inf,    nan])",
    );
    prints(Tensor::new([NAN, INF], d)?, "tensor([nan, inf])");
    prints(Tensor::new([0.0f32], d)?, "tensor([0.])");
    prints(Tensor::new([-0.0f32, 1.5], d)?, "tensor([-0.0000, 1.5000])");
    Ok(())
}

#[test]
fn very_different_numbers() -> Result<()> {
    let d = &device();
    prints(Tensor::new([1e10f32, 1.0], d)?, "tensor([1.0000e+10, 1.0000e+00])");
    prints(Tensor::new([1e-5f32, 1.0], d)?, "tensor([1.0000e-05, 1.0000e+00])");
    prints(Tensor::new([0.001f32, 123.456], d)?, "tensor([1.0000e-03, 1.2346e+02])");
    prints(Tensor::new([0.5f32, 400.25], d)?, "tensor([  0.5000, 400.2500])");
    prints(Tensor::new([1e8f32, 1.0], d)?, "tensor([1.0000e+08, 1.0000e+00])");
    prints(Tensor::new([100_000.0f32, 1.0], d)?, "tensor([1.0000e+05, 1.0000e+00])");
    prints(
        Tensor::new([-1e-10f32, 2.5e10], d)?,
        "tensor([-1.0000e-10,  2.5000e+10])",
    );
    prints(Tensor::new([1e-5f32, 2e-5], d)?, "tensor([1.0000e-05, 2.0000e-05])");
    prints(Tensor::new([1e-38f32], d)?, "tensor([1.0000e-38])");
    prints(Tensor::new([12_345_678.5f32], d)?, "tensor([12345678.])");
    Ok(())
}

#[test]
fn nothing() -> Result<()> {
    let d = &device();
    prints(Tensor::zeros([0], d)?, "tensor([])");
    prints(Tensor::zeros([2, 0], d)?, "tensor([], size=(2, 0))");
    prints(Tensor::zeros([0, 3, 2], d)?, "tensor([], size=(0, 3, 2))");
    prints(Tensor::full([0], 0, (d, DType::I64))?, "tensor([], dtype=i64)");
    Ok(())
}

#[test]
fn other_dtypes() -> Result<()> {
    let d = &device();
    prints(
        Tensor::new([1.5, 2.5], (d, DType::F64))?,
        "tensor([1.5000, 2.5000], dtype=f64)",
    );
    prints(Tensor::new(1.0 / 3.0, (d, DType::F64))?, "tensor(0.3333, dtype=f64)");
    prints(
        Tensor::new([1.5f32], d)?.to_dtype(DType::F16)?,
        "tensor([1.5000], dtype=f16)",
    );
    prints(
        Tensor::new([0.1f32], d)?.to_dtype(DType::BF16)?,
        "tensor([0.1001], dtype=bf16)",
    );
    prints(Tensor::new([1], (d, DType::I32))?, "tensor([1], dtype=i32)");
    prints(Tensor::new([255u8], d)?, "tensor([255], dtype=u8)");
    prints(
        Tensor::new([1.0f32, 2.0], d)?.requires_grad()?,
        "tensor([1., 2.], requires_grad=True)",
    );
    Ok(())
}

#[test]
fn long_axes() -> Result<()> {
    let d = &device();
    prints(
        counted(&[30], 0.25)?,
        concat!(
            "tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000, 1.2500, 1.5000, 1.7500, 2.0000,\n",
            "        2.2500, 2.5000, 2.7500, 3.0000, 3.2500, 3.5000, 3.7500, 4.0000, 4.2500,\n",
            "        4.5000, 4.7500, 5.0000, 5.2500, 5.5000, 5.7500, 6.0000, 6.2500, 6.5000,\n",
            "        6.7500, 7.0000, 7.2500])",
        ),
    );
    prints(
        Tensor::arange(0, 40, 1, d)?,
        concat!(
            "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n",
            "        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35,\n",
            "        36, 37, 38, 39])",
        ),
    );
    prints(
        counted(&[2, 2, 30], 0.125)?,
        concat!(
            "tensor([[[ 0.0000,  0.1250,  0.2500,  0.3750,  0.5000,  0.6250,  0.7500,\n",
            "           0.8750,  1.0000,  1.1250,  1.2500,  1.3750,  1.5000,  1.6250,\n",
            "           1.7500,  1.8750,  2.0000,  2.1250,  2.2500,  2.3750,  2.5000,\n",
            "           2.6250,  2.7500,  2.8750,  3.0000,  3.1250,  3.2500,  3.3750,\n",
            "           3.5000,  3.6250],\n",
            "         [ 3.7500,  3.8750,  4.0000,  4.1250,  4.2500,  4.3750,  4.5000,\n",
            "           4.6250,  4.7500,  4.8750,  5.0000,  5.1250,  5.2500,  5.3750,\n",
            "           5.5000,  5.6250,  5.7500,  5.8750,  6.0000,  6.1250,  6.2500,\n",
            "           6.3750,  6.5000,  6.6250,  6.7500,  6.8750,  7.0000,  7.1250,\n",
            "           7.2500,  7.3750]],\n",
            "\n",
            "        [[ 7.5000,  7.6250,  7.7500,  7.8750,  8.0000,  8.1250,  8.2500,\n",
            "           8.3750,  8.5000,  8.6250,  8.7500,  8.8750,  9.0000,  9.1250,\n",
            "           9.2500,  9.3750,  9.5000,  9.6250,  9.7500,  9.8750, 10.0000,\n",
            "          10.1250, 10.2500, 10.3750, 10.5000, 10.6250, 10.7500, 10.8750,\n",
            "          11.0000, 11.1250],\n",
            "         [11.2500, 11.3750, 11.5000, 11.6250, 11.7500, 11.8750, 12.0000,\n",
            "          12.1250, 12.2500, 12.3750, 12.5000, 12.6250, 12.7500, 12.8750,\n",
            "          13.0000, 13.1250, 13.2500, 13.3750, 13.5000, 13.6250, 13.7500,\n",
            "          13.8750, 14.0000, 14.1250, 14.2500, 14.3750, 14.5000, 14.6250,\n",
            "          14.7500, 14.8750]]])",
        ),
    );
    Ok(())
}

#[test]
fn more_than_a_thousand_elements() -> Result<()> {
    let d = &device();
    prints(
        counted(&[1001], 1.0)?,
        "tensor([   0.,    1.,    2.,  ...,  998.,  999., 1000.])",
    );
    prints(
        counted(&[30, 40], 1.0)?,
        concat!(
            "tensor([[0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 3.7000e+01, 3.8000e+01,\n",
            "         3.9000e+01],\n",
            "        [4.0000e+01, 4.1000e+01, 4.2000e+01,  ..., 7.7000e+01, 7.8000e+01,\n",
            "         7.9000e+01],\n",
            "        [8.0000e+01, 8.1000e+01, 8.2000e+01,  ..., 1.1700e+02, 1.1800e+02,\n",
            "         1.1900e+02],\n",
            "        ...,\n",
            "        [1.0800e+03, 1.0810e+03, 1.0820e+03,  ..., 1.1170e+03, 1.1180e+03,\n",
            "         1.1190e+03],\n",
            "        [1.1200e+03, 1.1210e+03, 1.1220e+03,  ..., 1.1570e+03, 1.1580e+03,\n",
            "         1.1590e+03],\n",
            "        [1.1600e+03, 1.1610e+03, 1.1620e+03,  ..., 1.1970e+03, 1.1980e+03,\n",
            "         1.1990e+03]])",
        ),
    );
    prints(
        Tensor::arange(0, 1001, 1, d)?,
        "tensor([   0,    1,    2,  ...,  998,  999, 1000])",
    );
    prints(
        counted(&[1001, 2], 1.0)?,
        concat!(
            "tensor([[0.0000e+00, 1.0000e+00],\n",
            "        [2.0000e+00, 3.0000e+00],\n",
            "        [4.0000e+00, 5.0000e+00],\n",
            "        ...,\n",
            "        [1.9960e+03, 1.9970e+03],\n",
            "        [1.9980e+03, 1.9990e+03],\n",
            "        [2.0000e+03, 2.0010e+03]])",
        ),
    );
    prints(
        counted(&[2, 30, 40], 1.0)?,
        concat!(
            "tensor([[[0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 3.7000e+01,\n",
            "          3.8000e+01, 3.9000e+01],\n",
            "         [4.0000e+01, 4.1000e+01, 4.2000e+01,  ..., 7.7000e+01,\n",
            "          7.8000e+01, 7.9000e+01],\n",
            "         [8.0000e+01, 8.1000e+01, 8.2000e+01,  ..., 1.1700e+02,\n",
            "          1.1800e+02, 1.1900e+02],\n",
            "         ...,\n",
            "         [1.0800e+03, 1.0810e+03, 1.0820e+03,  ..., 1.1170e+03,\n",
            "          1.1180e+03, 1.1190e+03],\n",
            "         [1.1200e+03, 1.1210e+03, 1.1220e+03,  ..., 1.1570e+03,\n",
            "          1.1580e+03, 1.1590e+03],\n",
            "         [1.1600e+03, 1.1610e+03, 1.1620e+03,  ..., 1.1970e+03,\n",
            "          1.1980e+03, 1.1990e+03]],\n",
            "\n",
            "        [[1.2000e+03, 1.2010e+03, 1.2020e+03,  ..., 1.2370e+03,\n",
            "          1.2380e+03, 1.2390e+03],\n",
            "         [1.2400e+03, 1.2410e+03, 1.2420e+03,  ..., 1.2770e+03,\n",
            "          1.2780e+03, 1.2790e+03],\n",
            "         [1.2800e+03, 1.2810e+03, 1.2820e+03,  ..., 1.3170e+03,\n",
            "          1.3180e+03, 1.3190e+03],\n",
            "         ...,\n",
            "         [2.2800e+03, 2.2810e+03, 2.2820e+03,  ..., 2.3170e+03,\n",
            "          2.3180e+03, 2.3190e+03],\n",
            "         [2.3200e+03, 2.3210e+03, 2.3220e+03,  ..., 2.3570e+03,\n",
            "          2.3580e+03, 2.3590e+03],\n",
            "         [2.3600e+03, 2.3610e+03, 2.3620e+03,  ..., 2.3970e+03,\n",
            "          2.3980e+03, 2.3990e+03]]])",
        ),
    );
    Ok(())
}

#[test]
fn what_only_this_library_has() -> Result<()> {
    let x = Tensor::new([1.25f32, 2.0], &device())?;
    assert_eq!(format!("{x:.1}"), "tensor([1.2, 2.0])");
    assert_eq!(
        format!("{:?}", x.clone().requires_grad()?.exp()?),
        "tensor([3.4903, 7.3891], tracked)"
    );
    // Notes that do not fit the line go to the next one.
    let long = counted(&[9], 0.25)?.to_dtype(DType::F64)?;
    prints(
        long,
        "tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000, 1.2500, 1.5000, 1.7500, 2.0000],\n       dtype=f64)",
    );
    Ok(())
}
