//! Chains of ops: tensors, references and numbers as right operands, extents of -1, and places with a dtype.

use polygrad_tensor::{DType, ErrorKind, Result, Scalar};

use super::{Tensor, counted, device, same};

#[test]
fn methods_take_tensors_references_and_numbers() -> Result<()> {
    let (x, y) = (counted(&[3]), counted(&[3]));
    same(x.mul(3)?.sub(1)?.add(&y)?, &[3], &[-1, 3, 7]);
    same(x.add(y.clone())?.add(&y)?, &[3], &[0, 3, 6]);
    let rows: usize = x.dims()[0];
    same(x.mul(rows)?, &[3], &[0, 3, 6]);
    same(x.maximum(1)?.minimum(Scalar::Int(1))?, &[3], &[1, 1, 1]);
    assert_eq!(x.div(2.0)?.to_vec::<f32>()?, [0.0, 0.5, 1.0]);
    assert_eq!(x.pow(0.5f32)?.dtype(), DType::F32);
    assert_eq!(x.gt(0)?.to_vec::<bool>()?, [false, true, true]);
    assert_eq!(x.eq(&y)?.to_vec::<bool>()?, [true; 3]);
    assert_eq!(x.ne(rows)?.to_vec::<bool>()?, [true; 3]);
    let w = Tensor::new([1.0, 2.0], &device())?.requires_grad()?;
    let gradients = w.mul(3.0)?.sub(1.0)?.mul(&w)?.sum(0)?.backward()?;
    assert_eq!(gradients.require(&w)?.to_vec::<f32>()?, [5.0, 11.0]);
    Ok(())
}

#[test]
fn one_extent_is_found_out() -> Result<()> {
    let x = counted(&[2, 6]);
    let batch = x.dims()[0];
    assert_eq!(x.reshape([-1, 4])?.dims(), [3, 4]);
    assert_eq!(x.reshape(-1)?.dims(), [12]);
    assert_eq!(x.reshape((batch, -1, 2))?.dims(), [2, 3, 2]);
    assert_eq!(x.reshape(vec![3i64, -1])?.dims(), [3, 4]);
    assert_eq!(counted(&[0, 3]).reshape([-1, 3])?.dims(), [0, 3]);
    assert_eq!(Tensor::from_vec(vec![1.0f32; 6], [-1, 2], &device())?.dims(), [3, 2]);
    let fails = |result: Result<Tensor>, part: &str| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Shape, "{error}");
        assert!(error.to_string().contains(part), "{part:?} is missing in: {error}");
    };
    fails(x.reshape([-1, 5]), "12 elements do not fill");
    fails(x.reshape([-1, -1]), "axis 1 is -1, too");
    fails(x.reshape([-2, 6]), "axis 0 is negative");
    fails(counted(&[0]).reshape([-1, 0]), "0 elements do not fill");
    fails(Tensor::zeros([-1, 2], &device()), "reshape");
    Ok(())
}

#[test]
fn constructors_take_a_dtype_beside_the_device() -> Result<()> {
    let d = &device();
    assert_eq!(Tensor::zeros([2], d)?.dtype(), DType::F32);
    assert_eq!(Tensor::zeros([2], (d, DType::I64))?.to_vec::<i64>()?, [0, 0]);
    assert_eq!(Tensor::ones((1, 2), (d, DType::F64))?.to_vec::<f64>()?, [1.0, 1.0]);
    assert_eq!(Tensor::full([1], 2, d)?.dtype(), DType::I64);
    assert_eq!(Tensor::full([1], 2.5, d)?.dtype(), DType::F32);
    assert_eq!(Tensor::full([1], true, d)?.dtype(), DType::Bool);
    assert_eq!(Tensor::full([1], 2, (d, DType::F16))?.dtype(), DType::F16);
    assert_eq!(
        Tensor::arange(0, 3, 1, (d, DType::F64))?.to_vec::<f64>()?,
        [0.0, 1.0, 2.0]
    );
    assert_eq!(
        Tensor::linspace(0.0, 1.0, 3, (d, DType::F64))?.to_vec::<f64>()?,
        [0.0, 0.5, 1.0]
    );
    assert_eq!(Tensor::eye(2, (d, DType::U8))?.to_vec::<u8>()?, [1, 0, 0, 1]);
    assert_eq!(Tensor::randn([2], (d, DType::F64))?.dtype(), DType::F64);
    assert_eq!(Tensor::randint(0, 9, [2], (d, DType::I32))?.dtype(), DType::I32);
    assert_eq!(
        Tensor::from_slice(&[1.0f32, 2.0], [2], (d, DType::I64))?.to_vec::<i64>()?,
        [1, 2]
    );
    Ok(())
}

#[test]
fn reductions_keep_their_axes_or_not() -> Result<()> {
    let x = counted(&[2, 3]);
    same(x.sum(1)?, &[2], &[3, 12]);
    same(x.sum_keepdim(1)?, &[2, 1], &[3, 12]);
    same(x.sum_keepdim(())?, &[1, 1], &[15]);
    same(x.sum((0, -1))?, &[], &[15]);
    same(x.argmax(1)?, &[2], &[2, 2]);
    same(x.argmin_keepdim(0)?, &[1, 3], &[0, 0, 0]);
    same(x.max(0)?.0, &[3], &[3, 4, 5]);
    same(x.max_keepdim(0)?.0, &[1, 3], &[3, 4, 5]);
    let x = x.to_dtype(DType::F32)?;
    assert_eq!(x.std_keepdim([0, 1], 0)?.dims(), [1, 1]);
    assert_eq!(x.norm(1.0, -1)?.to_vec::<f32>()?, [3.0, 12.0]);
    Ok(())
}

#[test]
fn a_leaf_takes_the_values_of_another_tensor() -> Result<()> {
    let mut x = Tensor::new([1.0, 2.0], &device())?.requires_grad()?;
    x.set(&x.detach().mul(2.0)?)?;
    assert_eq!(x.to_vec::<f32>()?, [2.0, 4.0]);
    let error = x.set(&Tensor::zeros([3], &device())?).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape, "{error}");
    assert_eq!(x.to_vec::<f32>()?, [2.0, 4.0]);
    Ok(())
}
