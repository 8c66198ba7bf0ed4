//! Gradients at kinks of functions and at NaN, as PyTorch defines them.

use polygrad_reference::Reference;
use polygrad_tensor::{BackwardOptions, DType, Device, Result};

type Tensor = polygrad_tensor::Tensor<Reference>;

const NAN: f64 = f64::NAN;

fn device() -> Device<Reference> {
    Device::default()
}

fn leaf(values: &[f64], shape: &[usize]) -> Result<Tensor> {
    Tensor::from_slice(values, shape, &device())?.requires_grad()
}

/// The gradient of a sum.
fn gradient(y: &Tensor, x: &Tensor) -> Result<Vec<f64>> {
    y.sum_all()?.backward()?.require(x)?.to_f64_vec()
}

#[test]
fn at_the_origin_an_angle_has_gradient_zero() -> Result<()> {
    let (a, b) = (leaf(&[0.0, 1.0, 0.0], &[3])?, leaf(&[0.0, 1.0, 2.0], &[3])?);
    let y = a.atan2(&b)?;
    assert_eq!(gradient(&y, &a)?, [0.0, 0.5, 0.5]);
    assert_eq!(gradient(&y, &b)?, [0.0, -0.5, 0.0]);
    let first = y
        .sum_all()?
        .backward_with(&BackwardOptions::default().create_graph(true))?;
    let second = gradient(first.require(&a)?, &a)?;
    assert!(second.iter().all(|g| g.is_finite()), "{second:?}");
    for reverse in [false, true] {
        let y = a.binary_scalar(polygrad_core::BinaryOp::Atan2, 0.0, reverse)?;
        assert_eq!(gradient(&y, &a)?, [0.0; 3], "reverse: {reverse}");
    }
    Ok(())
}

#[test]
fn limits_pass_no_gradient_at_nan() -> Result<()> {
    let x = leaf(&[NAN, -2.0, -1.0, 0.0, 1.0, 2.0, f64::INFINITY], &[7])?;
    let inside = [0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0];
    assert_eq!(gradient(&x.clamp(Some(-1.0), Some(1.0))?, &x)?, inside);
    assert_eq!(
        gradient(&x.clamp(Some(-1.0), None)?, &x)?,
        [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    );
    assert_eq!(
        gradient(&x.clamp(None, Some(1.0))?, &x)?,
        [0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0]
    );
    assert_eq!(gradient(&x.clamp(Some(NAN), None)?, &x)?, [0.0; 7]);
    let (low, high) = (leaf(&[-1.0], &[1])?, leaf(&[1.0; 7], &[7])?);
    let y = x.clamp(Some(&low), Some(&high))?;
    assert!(y.to_f64_vec()?[0].is_nan());
    assert_eq!(y.to_f64_vec()?[1..], [-1.0, -1.0, 0.0, 1.0, 1.0, 1.0]);
    assert_eq!(gradient(&y, &x)?, inside);
    assert_eq!(gradient(&y, &low)?, [1.0]);
    assert_eq!(gradient(&y, &high)?, [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
    // If the bounds are in the wrong order, the upper one is the result, and gets the whole gradient.
    let (low, high) = (leaf(&[3.0, 3.0], &[2])?, leaf(&[1.0, NAN], &[2])?);
    let x = leaf(&[2.0, 2.0], &[2])?;
    let y = x.clamp(Some(&low), Some(&high))?;
    assert_eq!(y.to_f64_vec()?[0], 1.0);
    assert!(y.to_f64_vec()?[1].is_nan());
    assert_eq!(gradient(&y, &x)?, [0.0, 0.0]);
    assert_eq!(gradient(&y, &low)?, [0.0, 0.0]);
    assert_eq!(gradient(&y, &high)?, [1.0, 0.0]);
    Ok(())
}

#[test]
fn extremes_that_are_nan_give_the_gradient_to_the_nans() -> Result<()> {
    let x = leaf(&[NAN, 1.0, 2.0, 3.0, 3.0, 0.0, NAN, f64::INFINITY, NAN], &[3, 3])?;
    let all = [1.0 / 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0 / 3.0, 0.0, 1.0 / 3.0];
    assert_eq!(gradient(&x.amax(())?, &x)?, all);
    assert_eq!(gradient(&x.amin(())?, &x)?, all);
    let rows = [1.0, 0.0, 0.0, 0.5, 0.5, 0.0, 0.5, 0.0, 0.5];
    assert_eq!(gradient(&x.amax(1)?, &x)?, rows);
    let rows = [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.5, 0.0, 0.5];
    assert_eq!(gradient(&x.amin_keepdim(1)?, &x)?, rows);
    // More ties than f16 can count.
    let many = Tensor::full([70_000], 1.0, (&device(), DType::F16))?.requires_grad()?;
    let share = gradient(&many.amax(())?, &many)?;
    assert!(share.iter().all(|&g| (g * 70_000.0 - 1.0).abs() < 1e-2), "{}", share[0]);
    Ok(())
}

#[test]
fn what_is_scaled_by_zero_is_ignored() -> Result<()> {
    let (a, b) = (leaf(&[1.0, 2.0], &[1, 2])?, leaf(&[3.0, 4.0], &[2, 1])?);
    for bad in [NAN, f64::INFINITY] {
        let bias = leaf(&[bad], &[1])?;
        let y = bias.addmm(&a, &b, 0.0, 2.0)?;
        assert_eq!(y.to_f64_vec()?, [22.0]);
        assert_eq!(gradient(&y, &bias)?, [0.0]);
        assert_eq!(gradient(&y, &a)?, [6.0, 8.0]);
        assert_eq!(bias.detach().addmm(&a, &b, 0, 1)?.to_f64_vec()?, [11.0]);
        assert!(bias.addmm(&a, &b, 0.0, 1.0)?.dtype() == DType::F64);
    }
    Ok(())
}

#[test]
fn quotients_have_gradients_where_the_square_of_the_divisor_has_no_room() -> Result<()> {
    let x = Tensor::from_slice(&[300.0f32], [1], &device())?
        .to_dtype(DType::F16)?
        .requires_grad()?;
    let slope = gradient(&x.binary_scalar(polygrad_core::BinaryOp::Div, 2.0, true)?, &x)?;
    assert!((slope[0] * 45_000.0 + 1.0).abs() < 1e-2, "{slope:?}");
    Ok(())
}
