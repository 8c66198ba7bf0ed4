//! Ops of `ai.onnx` fused with ops before or after them.

use polygrad_core::{Activation, Error, Result};
use polygrad_tensor::Tensor;

use super::ms;
use crate::graph::malformed;
use crate::import::call::{Call, one};
use crate::import::ops::activation::Function;
use crate::import::ops::conv::{biased, convolve};
use crate::import::ops::elementwise::fits;
use crate::import::ops::matmul::{gemm, product, scaled};
use crate::import::ops::row::rows;

rows! {
    ms("Gelu", |c| one(c.x(0)?.activation(Activation::Gelu)?));
    ms("BiasGelu", |c| one(shifted(c)?.activation(Activation::Gelu)?)).wide();
    ms("FastGelu", |c| one(shifted(c)?.activation(Activation::GeluTanh)?)).wide();
    ms("QuickGelu", |c| {
        let (x, alpha) = (c.x(0)?, c.float("alpha", 1.702)?);
        one(match alpha {
            1.0 => x.activation(Activation::Silu)?,
            _ => (&x * (&x * alpha)?.activation(Activation::Sigmoid)?)?,
        })
    }).wide();
    ms("FusedMatMul", |c| one(matmul(c)?));
    ms("TransposeMatMul", |c| one(matmul(c)?));
    ms("FusedGemm", |c| {
        let name = c.text("activation", "")?;
        let number = |name: &str| c.opt_float(name);
        let function = Function::new(name, number("activation_alpha")?, number("activation_beta")?)?;
        let made = gemm(c)?;
        let value = made.first().ok_or_else(|| malformed("Gemm gives nothing"))?;
        one(function.apply(&value.tensor(c.device)?)?)
    }).wide();
    ms("FusedConv", |c| one(conv(c)?));
    ms("CDist", |c| one(distances(c)?));
}

/// Operand 0, plus operand 1 if it is given.
fn shifted(c: &Call<'_>) -> Result<Tensor> {
    let x = c.x(0)?;
    match c.opt(1)? {
        None => Ok(x),
        Some(bias) => {
            fits(c, &[&x, &bias])?;
            x + bias
        }
    }
}

/// Distances of rows `[M, K]` to rows `[N, K]`: `[M, N]`. From products, as ONNX Runtime finds them, since the
/// differences would take K times the memory.
fn distances(c: &Call<'_>) -> Result<Tensor> {
    let (a, b) = (c.x(0)?, c.x(1)?);
    if a.rank() != 2 || b.rank() != 2 || a.shape()[1] != b.shape()[1] {
        return Err(Error::shape(format!(
            "rows {} and {}, not [M, K] and [N, K]",
            a.shape(),
            b.shape()
        )));
    }
    c.reserve(&[a.shape()[0], b.shape()[0]], a.dtype())?;
    let squares = |x: &Tensor| x.square()?.sum_keepdim([1]);
    let squared = ((squares(&a)? + squares(&b)?.transpose(0, 1)?)? - (a.linear(&b, None)? * 2.0)?)?;
    let squared = squared.clamp(Some(0.0), None)?;
    match c.text("metric", "sqeuclidean")? {
        "sqeuclidean" => Ok(squared),
        "euclidean" => squared.sqrt(),
        other => Err(Error::unsupported(format!("the metric {other:?} of CDist"))),
    }
}

/// An operand of FusedMatMul. With `batch`, its first axis is that of the rows, which is moved behind the batch axes;
/// `turn` transposes the last two. Vectors are unchanged.
fn turned(c: &Call<'_>, i: usize, batch: &str, turn: &str) -> Result<Tensor> {
    let mut x = c.x(i)?;
    let rank = x.rank();
    if rank < 2 {
        return Ok(x);
    }
    if c.flag(batch, false)? {
        let mut order: Vec<isize> = (0..rank as isize).collect();
        order[..rank - 1].rotate_left(1);
        x = x.permute(order.as_slice())?;
    }
    match c.flag(turn, false)? {
        true => x.t(),
        false => Ok(x),
    }
}

fn matmul(c: &Call<'_>) -> Result<Tensor> {
    let a = turned(c, 0, "transBatchA", "transA")?;
    let b = turned(c, 1, "transBatchB", "transB")?;
    let (alpha, dtype) = (c.float("alpha", 1.0)?, a.dtype());
    if alpha == 1.0 {
        return product(c, &a, &b);
    }
    // The product without the factor may exceed the range of f16.
    let wide = |x: &Tensor| x.to_dtype(x.dtype().wide());
    scaled(c, product(c, &wide(&a)?, &wide(&b)?)?, alpha)?.to_dtype(dtype)
}

/// A convolution with a bias, an operand that is added, and an activation.
fn conv(c: &Call<'_>) -> Result<Tensor> {
    let function = match c.text("activation", "")? {
        "" => None,
        name => {
            let params = c.float_list("activation_params")?.unwrap_or(&[]);
            let number = |i: usize| params.get(i).copied().map(f64::from);
            Some(Function::new(name, number(0), number(1))?)
        }
    };
    let mut y = biased(convolve(c, &c.x(0)?, &c.x(1)?)?, c.opt(2)?)?;
    if let Some(rest) = c.opt(3)? {
        if rest.shape() != y.shape() {
            return Err(Error::shape(format!("{} is added to {}", rest.shape(), y.shape())));
        }
        y = (y + rest)?;
    }
    function.map_or(Ok(y.clone()), |function| function.apply(&y))
}
