//! New tensors.

use polygrad_tensor::{DType, Result};

use super::{Tensor, counted, device, same};

#[test]
fn sequences_are_pytorchs() -> Result<()> {
    let d = &device();
    same(Tensor::arange(1, 10, 3, d)?, &[3], &[1, 4, 7]);
    same(Tensor::arange(5, 0, -2, d)?, &[3], &[5, 3, 1]);
    same(Tensor::arange(3, 3, 1, d)?, &[0], &[]);
    assert_eq!(Tensor::arange(0, 1, 0.3, d)?.to_vec::<f32>()?, [0.0, 0.3, 0.6, 0.9]);
    assert_eq!(
        Tensor::linspace(0.0, 1.0, 5, d)?.to_vec::<f32>()?,
        [0.0, 0.25, 0.5, 0.75, 1.0]
    );
    assert_eq!(Tensor::linspace(3.0, -1.0, 3, d)?.to_vec::<f32>()?, [3.0, 1.0, -1.0]);
    assert_eq!(Tensor::linspace(2.0, 7.0, 1, d)?.to_vec::<f32>()?, [2.0]);
    assert_eq!(Tensor::linspace(2.0, 7.0, 0, d)?.dims(), [0]);
    for steps in 2..200 {
        let last = *Tensor::linspace(-0.3, 1.7, steps, d)?.to_vec::<f32>()?.last().unwrap();
        assert_eq!(last, 1.7, "{steps}");
    }
    // Exact for integers: 7 · 7 / 49 is 1.
    let whole = |start, end, steps| Tensor::linspace(start, end, steps, (d, DType::I64));
    for steps in 2..300 {
        let wanted: Vec<i64> = (0..steps as i64).map(|i| 7 * i / (steps as i64 - 1)).collect();
        same(whole(0.0, 7.0, steps)?, &[steps], &wanted);
    }
    same(whole(10.0, -10.0, 9)?, &[9], &[10, 7, 5, 2, 0, -2, -5, -7, -10]);
    same(whole(40.0, -35.0, 37)?.narrow(0, 12, 1)?, &[1], &[15]);
    Ok(())
}

#[test]
fn triangles_and_diagonals() -> Result<()> {
    let x = counted(&[3, 4]);
    same(x.tril(0)?, &[3, 4], &[0, 0, 0, 0, 4, 5, 0, 0, 8, 9, 10, 0]);
    same(x.tril(-1)?, &[3, 4], &[0, 0, 0, 0, 4, 0, 0, 0, 8, 9, 0, 0]);
    same(x.triu(1)?, &[3, 4], &[0, 1, 2, 3, 0, 0, 6, 7, 0, 0, 0, 11]);
    same(x.triu(-9)?, &[3, 4], &x.to_vec::<i64>()?);
    same(x.diagonal(0, 0, 1)?, &[3], &[0, 5, 10]);
    same(x.diagonal(2, 0, 1)?, &[2], &[2, 7]);
    same(x.diagonal(-1, 0, 1)?, &[2], &[4, 9]);
    same(x.diagonal(1, 1, 0)?, &[2], &[4, 9]);
    same(Tensor::eye(2, &device())?.to_dtype(DType::I64)?, &[2, 2], &[1, 0, 0, 1]);
    same(counted(&[2, 2, 2]).tril(0)?, &[2, 2, 2], &[0, 0, 2, 3, 4, 0, 6, 7]);
    Ok(())
}

#[test]
fn values_and_likenesses() -> Result<()> {
    let d = &device();
    same(Tensor::new([[1i64, 2], [3, 4]], d)?, &[2, 2], &[1, 2, 3, 4]);
    same(Tensor::new(7i64, d)?, &[], &[7]);
    assert_eq!(Tensor::new([[[1.5]]], d)?.dims(), [1, 1, 1]);
    // Literals without a type suffix.
    assert_eq!(Tensor::new([1.0, 2.0], d)?.dtype(), DType::F32);
    assert_eq!(Tensor::new([1, 2], d)?.dtype(), DType::I64);
    let precise = Tensor::new([0.1], (d, DType::F64))?;
    assert_eq!(precise.to_vec::<f64>()?, [0.1]);
    assert_eq!(Tensor::new([1, 2], (d, DType::I32))?.dtype(), DType::I32);
    assert_eq!(Tensor::new([1u8, 2], d)?.dtype(), DType::U8);
    // Nested vectors and slices.
    same(Tensor::new(vec![vec![1i64, 2], vec![3, 4]], d)?, &[2, 2], &[1, 2, 3, 4]);
    same(Tensor::new(&[[1i64, 2], [3, 4]][..], d)?, &[2, 2], &[1, 2, 3, 4]);
    same(Tensor::new(vec![[1i64], [2]], d)?, &[2, 1], &[1, 2]);
    // Also if the number of values fits the first row.
    for ragged in [
        vec![vec![1.0, 2.0], vec![3.0]],
        vec![vec![1.0, 2.0], vec![3.0], vec![4.0, 5.0, 6.0]],
    ] {
        let error = Tensor::new(ragged, d).unwrap_err();
        assert_eq!(error.kind(), polygrad_tensor::ErrorKind::Shape, "{error}");
        assert!(error.to_string().contains("a row of 1 along axis 1"), "{error}");
    }
    let x = Tensor::full([2, 1], 3, (d, DType::U8))?;
    assert_eq!((x.ones_like()?.dtype(), x.ones_like()?.dims()), (DType::U8, vec![2, 1]));
    assert_eq!(x.full_like(9)?.to_vec::<u8>()?, [9, 9]);
    assert_eq!(Tensor::zeros((), d)?.to_vec::<f32>()?, [0.0]);
    same(counted(&[3]).one_hot(3)?, &[3, 3], &[1, 0, 0, 0, 1, 0, 0, 0, 1]);
    Ok(())
}
