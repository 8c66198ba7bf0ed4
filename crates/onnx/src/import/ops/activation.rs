//! Activation functions.

use polygrad_core::{Activation, DType, Result};
use polygrad_tensor::Tensor;

use super::elementwise::fits;
use super::row::{Row, rows};
use crate::graph::malformed;
use crate::import::call::{Call, Results, axis, one};

rows! {
    Row::new("Relu", 6, |c| act(c, Activation::Relu)).like(0);
    Row::new("Tanh", 6, |c| act(c, Activation::Tanh));
    Row::new("Sigmoid", 6, |c| act(c, Activation::Sigmoid));
    Row::new("Softplus", 1, |c| one(softplus(&c.x(0)?)?)).wide();
    Row::new("Softsign", 1, |c| one(c.x(0)?.softsign()?)).wide();
    Row::new("Elu", 6, |c| act(c, Activation::Elu { alpha: c.float("alpha", 1.0)? }));
    Row::new("LeakyRelu", 6, |c| act(c, Activation::LeakyRelu { slope: c.float("alpha", 0.01)? }));
    Row::new("Celu", 12, |c| one(c.x(0)?.celu(c.float("alpha", 1.0)?)?)).wide();
    Row::new("Selu", 6, selu).wide();
    Row::new("HardSigmoid", 6, |c| one(hard_sigmoid(&c.x(0)?, c.float("alpha", 0.2)?, c.float("beta", 0.5)?)?)).wide();
    Row::new("HardSwish", 14, |c| one(c.x(0)?.hardswish()?)).wide();
    Row::new("ThresholdedRelu", 10, |c| one(thresholded(&c.x(0)?, c.float("alpha", 1.0)?)?));
    Row::new("Mish", 18, |c| one(c.x(0)?.mish()?)).wide();
    Row::new("Gelu", 20, gelu);
    Row::new("Swish", 24, |c| one(swish(&c.x(0)?, c.float("alpha", 1.0)?)?)).wide();
    Row::new("Shrink", 9, shrink).like(0);
    Row::new("PRelu", 7, prelu).like(0);
    Row::new("Softmax", 1, |c| normalized(c, Tensor::softmax));
    Row::new("LogSoftmax", 1, |c| normalized(c, Tensor::log_softmax));
    Row::new("Hardmax", 1, |c| normalized(c, hardmax));
}

/// An activation function named by an attribute, with its parameters.
#[derive(Clone)]
pub(super) struct Function {
    name: String,
    alpha: f64,
    beta: f64,
}

impl Function {
    pub(super) fn new(name: &str, alpha: Option<f64>, beta: Option<f64>) -> Result<Self> {
        let name = name.to_lowercase();
        let (a, b) = match name.as_str() {
            "relu" | "tanh" | "sigmoid" | "softsign" | "softplus" => (0.0, 0.0),
            "affine" => (1.0, 0.0),
            "leakyrelu" => (0.01, 0.0),
            "thresholdedrelu" | "elu" => (1.0, 0.0),
            "scaledtanh" => (1.0, 1.0),
            "hardsigmoid" => (0.2, 0.5),
            "hardswish" => (1.0 / 6.0, 0.5),
            "clip" => (f64::NEG_INFINITY, f64::INFINITY),
            _ => return Err(malformed(format!("there is no activation function {name:?}"))),
        };
        Ok(Self {
            name,
            alpha: alpha.unwrap_or(a),
            beta: beta.unwrap_or(b),
        })
    }

    pub(super) fn takes_alpha(&self) -> bool {
        !matches!(
            self.name.as_str(),
            "relu" | "tanh" | "sigmoid" | "softsign" | "softplus"
        )
    }

    pub(super) fn takes_beta(&self) -> bool {
        matches!(self.name.as_str(), "affine" | "scaledtanh" | "hardsigmoid")
    }

    pub(super) fn apply(&self, x: &Tensor) -> Result<Tensor> {
        let (alpha, beta) = (self.alpha, self.beta);
        match self.name.as_str() {
            "relu" => x.activation(Activation::Relu),
            "tanh" => x.activation(Activation::Tanh),
            "sigmoid" => x.activation(Activation::Sigmoid),
            "softsign" => x.softsign(),
            "softplus" => softplus(x),
            "affine" => (x * alpha)? + beta,
            "leakyrelu" => x.activation(Activation::LeakyRelu { slope: alpha }),
            "thresholdedrelu" => thresholded(x, alpha),
            "elu" => x.activation(Activation::Elu { alpha }),
            "scaledtanh" => (x * beta)?.activation(Activation::Tanh)? * alpha,
            "hardswish" => x * hard_sigmoid(x, alpha, beta)?,
            "clip" => x.clamp(Some(alpha), Some(beta)),
            _ => hard_sigmoid(x, alpha, beta),
        }
    }
}

fn act(c: &Call<'_>, activation: Activation) -> Results {
    one(c.x(0)?.activation(activation)?)
}

pub(super) fn softplus(x: &Tensor) -> Result<Tensor> {
    x.activation(Activation::Softplus {
        beta: 1.0,
        threshold: f64::INFINITY,
    })
}

pub(super) fn hard_sigmoid(x: &Tensor, alpha: f64, beta: f64) -> Result<Tensor> {
    ((x * alpha)? + beta)?.clamp(Some(0.0), Some(1.0))
}

/// NaN gives 0, as does any value not above alpha.
pub(super) fn thresholded(x: &Tensor, alpha: f64) -> Result<Tensor> {
    x.masked_fill(&x.gt(alpha)?.logical_not()?, 0.0)
}

fn swish(x: &Tensor, alpha: f64) -> Result<Tensor> {
    x * (x * alpha)?.activation(Activation::Sigmoid)?
}

fn selu(c: &Call<'_>) -> Results {
    let alpha = c.float("alpha", 1.673_263_192_176_818_8)?;
    let gamma = c.float("gamma", 1.050_701_022_148_132_3)?;
    one((c.x(0)?.activation(Activation::Elu { alpha })? * gamma)?)
}

fn gelu(c: &Call<'_>) -> Results {
    match c.text("approximate", "none")? {
        "none" => act(c, Activation::Gelu),
        "tanh" => act(c, Activation::GeluTanh),
        other => Err(malformed(format!("Gelu has no approximation {other:?}"))),
    }
}

fn shrink(c: &Call<'_>) -> Results {
    let (lambda, bias) = (c.float("lambd", 0.5)?, c.float("bias", 0.0)?);
    let x = c.x(0)?;
    let dtype = x.dtype();
    let zero = x.zeros_like()?;
    let above = Tensor::where_(&x.gt(lambda)?, &(&x - bias)?.to_dtype(dtype)?, &zero)?;
    one(Tensor::where_(&x.lt(-lambda)?, &(&x + bias)?.to_dtype(dtype)?, &above)?)
}

fn prelu(c: &Call<'_>) -> Results {
    let (x, slope) = (c.x(0)?, c.x(1)?);
    // As in ONNX Runtime, the slope may have axes that the operand lacks.
    fits(c, &[&x, &slope])?;
    let below = (&x * &slope)?;
    one(Tensor::where_(&x.lt(0.0)?, &below, &x)?)
}

/// Softmax and the like: along one axis since version 13; before, along all axes from this one on, taken as one.
fn normalized(c: &Call<'_>, along: fn(&Tensor, isize) -> Result<Tensor>) -> Results {
    let x = c.x(0)?;
    if c.version >= 13 {
        let axis = c.axis("axis", -1, x.rank())?;
        c.reserve(&[x.shape()[axis]], DType::I64)?;
        return one(along(&x, axis as isize)?);
    }
    let shape = x.shape();
    let axis = match c.int("axis", 1)? {
        number if number == shape.rank() as i64 => shape.rank(),
        number => axis(number, shape.rank())?,
    };
    let rows: usize = shape[..axis].iter().product();
    let columns: usize = shape[axis..].iter().product();
    c.reserve(&[columns], DType::I64)?;
    one(along(&x.reshape([rows, columns])?, 1)?.reshape(shape)?)
}

fn hardmax(x: &Tensor, axis: isize) -> Result<Tensor> {
    let shape = x.shape();
    let at = shape.axis(axis)?;
    let extent = shape[at];
    if shape.numel() == 0 {
        return Ok(x.clone());
    }
    let mut dims = vec![1; shape.rank()];
    dims[at] = extent;
    let positions = Tensor::from_vec((0..extent as i64).collect::<Vec<_>>(), dims, &x.device())?;
    x.argmax_keepdim(axis)?
        .eq(&positions)?
        .to_dtype(if x.dtype().is_float() { x.dtype() } else { DType::F32 })
}
