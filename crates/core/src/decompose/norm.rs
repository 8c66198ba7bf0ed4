//! Normalisations and their gradients.

use super::wide::{is_narrow, narrow2, narrow3, widen, widen_option};
use crate::{Axes, Backend, Result, Shape, UnaryOp};

/// See [`Backend::layer_norm`].
pub(super) fn layer_norm<B: Backend>(
    x: &B::Tensor,
    weight: Option<&B::Tensor>,
    bias: Option<&B::Tensor>,
    axes: usize,
    eps: f64,
) -> Result<(B::Tensor, B::Tensor, B::Tensor)> {
    if is_narrow::<B>(x) {
        let (weight, bias) = (widen_option::<B>(weight)?, widen_option::<B>(bias)?);
        let wide = B::layer_norm(&widen::<B>(x)?, weight.as_ref(), bias.as_ref(), axes, eps)?;
        return narrow3::<B>(wide, B::dtype(x));
    }
    let axes = last_axes(B::shape(x).rank(), axes)?;
    let mean = B::mean_keep(x, axes)?;
    let centred = B::sub(x, &mean)?;
    let var = B::mean_keep(&B::mul(&centred, &centred)?, axes)?;
    let rstd = B::unary(UnaryOp::Rsqrt, &B::add_scalar(&var, eps)?)?;
    let y = affine::<B>(B::mul(&centred, &rstd)?, weight, bias)?;
    Ok((y, mean, rstd))
}

/// See [`Backend::layer_norm_backward`].
pub(super) fn layer_norm_backward<B: Backend>(
    grad: &B::Tensor,
    x: &B::Tensor,
    mean: &B::Tensor,
    rstd: &B::Tensor,
    weight: Option<&B::Tensor>,
    axes: usize,
) -> Result<(B::Tensor, B::Tensor, B::Tensor)> {
    if is_narrow::<B>(x) {
        let (grad, wide, weight) = (widen::<B>(grad)?, widen::<B>(x)?, widen_option::<B>(weight)?);
        let (mean, rstd) = (widen::<B>(mean)?, widen::<B>(rstd)?);
        let wide = B::layer_norm_backward(&grad, &wide, &mean, &rstd, weight.as_ref(), axes)?;
        return narrow3::<B>(wide, B::dtype(x));
    }
    let shape = B::shape(x);
    let inner = Shape::new(&shape[shape.rank() - axes..])?;
    let axes = last_axes(shape.rank(), axes)?;
    let normal = B::mul(&B::sub(x, mean)?, rstd)?;
    let grad_weight = B::sum_to(&B::mul(grad, &normal)?, inner)?;
    let grad_bias = B::sum_to(grad, inner)?;
    let scaled = affine::<B>(grad.clone(), weight, None)?;
    let grad_x = normalized_backward::<B>(&scaled, &normal, rstd, axes)?;
    Ok((grad_x, grad_weight, grad_bias))
}

/// See [`Backend::rms_norm`].
pub(super) fn rms_norm<B: Backend>(
    x: &B::Tensor,
    weight: Option<&B::Tensor>,
    axes: usize,
    eps: f64,
) -> Result<(B::Tensor, B::Tensor)> {
    if is_narrow::<B>(x) {
        let wide = B::rms_norm(&widen::<B>(x)?, widen_option::<B>(weight)?.as_ref(), axes, eps)?;
        return narrow2::<B>(wide, B::dtype(x));
    }
    let axes = last_axes(B::shape(x).rank(), axes)?;
    let square = B::mean_keep(&B::mul(x, x)?, axes)?;
    let rstd = B::unary(UnaryOp::Rsqrt, &B::add_scalar(&square, eps)?)?;
    Ok((affine::<B>(B::mul(x, &rstd)?, weight, None)?, rstd))
}

/// See [`Backend::rms_norm_backward`].
pub(super) fn rms_norm_backward<B: Backend>(
    grad: &B::Tensor,
    x: &B::Tensor,
    rstd: &B::Tensor,
    weight: Option<&B::Tensor>,
    axes: usize,
) -> Result<(B::Tensor, B::Tensor)> {
    if is_narrow::<B>(x) {
        let (grad, wide, weight) = (widen::<B>(grad)?, widen::<B>(x)?, widen_option::<B>(weight)?);
        let wide = B::rms_norm_backward(&grad, &wide, &widen::<B>(rstd)?, weight.as_ref(), axes)?;
        return narrow2::<B>(wide, B::dtype(x));
    }
    let shape = B::shape(x);
    let inner = Shape::new(&shape[shape.rank() - axes..])?;
    let axes = last_axes(shape.rank(), axes)?;
    let normal = B::mul(x, rstd)?;
    let grad_weight = B::sum_to(&B::mul(grad, &normal)?, inner)?;
    let scaled = affine::<B>(grad.clone(), weight, None)?;
    let along = B::mean_keep(&B::mul(&scaled, &normal)?, axes)?;
    let grad_x = B::mul(&B::sub(&scaled, &B::mul(&normal, &along)?)?, rstd)?;
    Ok((grad_x, grad_weight))
}

/// See [`Backend::batch_norm`].
pub(super) fn batch_norm<B: Backend>(
    x: &B::Tensor,
    weight: Option<&B::Tensor>,
    bias: Option<&B::Tensor>,
    eps: f64,
) -> Result<(B::Tensor, B::Tensor, B::Tensor)> {
    if is_narrow::<B>(x) {
        let (weight, bias) = (widen_option::<B>(weight)?, widen_option::<B>(bias)?);
        let (y, mean, var) = B::batch_norm(&widen::<B>(x)?, weight.as_ref(), bias.as_ref(), eps)?;
        return Ok((B::cast(&y, B::dtype(x))?, mean, var));
    }
    let shape = B::shape(x);
    let channels = Shape::from([shape[1]]);
    let axes = all_but_channels(shape.rank())?;
    let mean = B::mean_keep(x, axes)?;
    let centred = B::sub(x, &mean)?;
    let var = B::mean_keep(&B::mul(&centred, &centred)?, axes)?;
    let rstd = B::unary(UnaryOp::Rsqrt, &B::add_scalar(&var, eps)?)?;
    let (weight, bias) = (column::<B>(weight, &shape)?, column::<B>(bias, &shape)?);
    let y = affine::<B>(B::mul(&centred, &rstd)?, weight.as_ref(), bias.as_ref())?;
    Ok((y, B::reshape(&mean, channels)?, B::reshape(&var, channels)?))
}

/// See [`Backend::batch_norm_backward`].
pub(super) fn batch_norm_backward<B: Backend>(
    grad: &B::Tensor,
    x: &B::Tensor,
    mean: &B::Tensor,
    var: &B::Tensor,
    weight: Option<&B::Tensor>,
    eps: f64,
) -> Result<(B::Tensor, B::Tensor, B::Tensor)> {
    if is_narrow::<B>(x) {
        let (grad, wide, weight) = (widen::<B>(grad)?, widen::<B>(x)?, widen_option::<B>(weight)?);
        let (mean, var) = (widen::<B>(mean)?, widen::<B>(var)?);
        let wide = B::batch_norm_backward(&grad, &wide, &mean, &var, weight.as_ref(), eps)?;
        return narrow3::<B>(wide, B::dtype(x));
    }
    let shape = B::shape(x);
    let channels = Shape::from([shape[1]]);
    let axes = all_but_channels(shape.rank())?;
    let column_shape = column_shape(&shape);
    let rstd = B::unary(UnaryOp::Rsqrt, &B::add_scalar(var, eps)?)?;
    let rstd = B::reshape(&rstd, column_shape)?;
    let normal = B::mul(&B::sub(x, &B::reshape(mean, column_shape)?)?, &rstd)?;
    let grad_weight = B::reshape(&B::sum_keep(&B::mul(grad, &normal)?, axes)?, channels)?;
    let grad_bias = B::reshape(&B::sum_keep(grad, axes)?, channels)?;
    let scaled = affine::<B>(grad.clone(), column::<B>(weight, &shape)?.as_ref(), None)?;
    let grad_x = normalized_backward::<B>(&scaled, &normal, &rstd, axes)?;
    Ok((grad_x, grad_weight, grad_bias))
}

/// See [`Backend::batch_norm_running`].
pub(super) fn batch_norm_running<B: Backend>(
    x: &B::Tensor,
    mean: &B::Tensor,
    var: &B::Tensor,
    weight: Option<&B::Tensor>,
    bias: Option<&B::Tensor>,
    eps: f64,
) -> Result<B::Tensor> {
    if is_narrow::<B>(x) {
        let (mean, var) = (widen::<B>(mean)?, widen::<B>(var)?);
        let (weight, bias) = (widen_option::<B>(weight)?, widen_option::<B>(bias)?);
        let wide = B::batch_norm_running(&widen::<B>(x)?, &mean, &var, weight.as_ref(), bias.as_ref(), eps)?;
        return B::cast(&wide, B::dtype(x));
    }
    // One factor and one shift for each channel take two passes over `x` instead of four.
    let mut scale = B::unary(UnaryOp::Rsqrt, &B::add_scalar(var, eps)?)?;
    if let Some(weight) = weight {
        scale = B::mul(&scale, weight)?;
    }
    let mut shift = B::unary(UnaryOp::Neg, &B::mul(mean, &scale)?)?;
    if let Some(bias) = bias {
        shift = B::add(&shift, bias)?;
    }
    let column = column_shape(&B::shape(x));
    affine::<B>(
        x.clone(),
        Some(&B::reshape(&scale, column)?),
        Some(&B::reshape(&shift, column)?),
    )
}

/// Folds a normalisation ([`Backend::batch_norm_running`]) into the convolution before it: returns the convolution's
/// new weight `[O, …]` and bias `[O]`. `scale` and `shift` are the normalisation's optional weight and bias. All have
/// one dtype.
///
/// # Errors
/// When memory runs out.
pub fn fold_batch_norm<B: Backend>(
    [weight, bias]: [&B::Tensor; 2],
    [mean, var]: [&B::Tensor; 2],
    [scale, shift]: [Option<&B::Tensor>; 2],
    eps: f64,
) -> Result<[B::Tensor; 2]> {
    // (W x + b − mean) · scale / √(var + eps) + shift.
    let spread = B::unary(UnaryOp::Sqrt, &B::add_scalar(var, eps)?)?;
    let factor = match scale {
        Some(scale) => B::div(scale, &spread)?,
        None => B::unary(UnaryOp::Reciprocal, &spread)?,
    };
    let mut dims = vec![1; B::shape(weight).rank()];
    dims[0] = B::shape(&factor).numel();
    let weight = B::mul(weight, &B::reshape(&factor, Shape::new(&dims)?)?)?;
    let bias = affine::<B>(B::sub(bias, mean)?, Some(&factor), shift)?;
    Ok([weight, bias])
}

/// Gradient through `(x - mean) * rstd`, whose result is `normal`.
fn normalized_backward<B: Backend>(
    grad: &B::Tensor,
    normal: &B::Tensor,
    rstd: &B::Tensor,
    axes: Axes,
) -> Result<B::Tensor> {
    let centred = B::sub(grad, &B::mean_keep(grad, axes)?)?;
    let along = B::mean_keep(&B::mul(grad, normal)?, axes)?;
    B::mul(&B::sub(&centred, &B::mul(normal, &along)?)?, rstd)
}

fn affine<B: Backend>(x: B::Tensor, weight: Option<&B::Tensor>, bias: Option<&B::Tensor>) -> Result<B::Tensor> {
    let x = match weight {
        Some(weight) => B::mul(&x, weight)?,
        None => x,
    };
    match bias {
        Some(bias) => B::add(&x, bias),
        None => Ok(x),
    }
}

fn last_axes(rank: usize, axes: usize) -> Result<Axes> {
    Axes::new(rank - axes..rank)
}

fn all_but_channels(rank: usize) -> Result<Axes> {
    Axes::new((0..rank).filter(|&axis| axis != 1))
}

/// `[1, C, 1, …]`, with which `[C]` broadcasts to `[N, C, …]`.
fn column_shape(shape: &Shape) -> Shape {
    let mut out = *shape;
    for (axis, dim) in out.dims_mut().iter_mut().enumerate() {
        if axis != 1 {
            *dim = 1;
        }
    }
    out
}

fn column<B: Backend>(x: Option<&B::Tensor>, shape: &Shape) -> Result<Option<B::Tensor>> {
    x.map(|x| B::reshape(x, column_shape(shape))).transpose()
}
