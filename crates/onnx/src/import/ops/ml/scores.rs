//! Labels of classes, and transforms of scores.

use polygrad_core::{Activation, Error, Result};
use polygrad_tensor::Tensor;
use smallvec::smallvec;

use crate::graph::malformed;
use crate::import::call::{Call, Results};

/// The attribute `post_transform`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Transform {
    None,
    Logistic,
    Softmax,
    SoftmaxZero,
    Probit,
}

impl Transform {
    pub(super) fn read(c: &Call<'_>) -> Result<Self> {
        Ok(match c.text("post_transform", "NONE")? {
            "NONE" => Self::None,
            "LOGISTIC" => Self::Logistic,
            "SOFTMAX" => Self::Softmax,
            "SOFTMAX_ZERO" => Self::SoftmaxZero,
            "PROBIT" => Self::Probit,
            other => return Err(malformed(format!("there is no post_transform {other:?}"))),
        })
    }

    /// The value of the number that TreeEnsemble uses.
    pub(super) fn numbered(number: i64) -> Result<Self> {
        let all = [
            Self::None,
            Self::Softmax,
            Self::Logistic,
            Self::SoftmaxZero,
            Self::Probit,
        ];
        let found = usize::try_from(number).ok().and_then(|i| all.get(i));
        found
            .copied()
            .ok_or_else(|| malformed(format!("there is no post_transform {number}")))
    }

    /// Applies it to scores `[N, classes]`.
    pub(super) fn apply(self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::None => Ok(x.clone()),
            Self::Logistic => x.activation(Activation::Sigmoid),
            Self::Softmax => x.softmax(-1),
            Self::SoftmaxZero => softmax_zero(x),
            Self::Probit => probit(x),
        }
    }
}

/// A softmax over the nonzero scores, and 0 elsewhere.
fn softmax_zero(x: &Tensor) -> Result<Tensor> {
    let none = x.abs()?.le(1e-7)?;
    let powers = (x - x.amax_keepdim([-1])?)?.exp()?.masked_fill(&none, 0.0)?;
    let sum = powers.sum_keepdim([-1])?;
    powers / sum.masked_fill(&sum.eq(0.0)?, 1.0)?
}

/// The quantile of the normal distribution, by S. Winitzki's approximation of the inverse of erf (2008), as ONNX
/// Runtime has it.
fn probit(x: &Tensor) -> Result<Tensor> {
    const A: f64 = 0.147;
    let x = ((x * 2.0)? - 1.0)?;
    let log = ((1.0 - &x)? * (&x + 1.0)?)?.log()?;
    let half = ((&log * 0.5)? + 2.0 / (std::f64::consts::PI * A))?;
    let inner = ((half.square()? - (log / A)?)?.sqrt()? - half)?;
    (inner.sqrt()? * x.sign()?)? * std::f64::consts::SQRT_2
}

/// The labels of classes, which must be integers. Labels that are text are an error if the output is used.
pub(super) fn labels(c: &Call<'_>, name: &str) -> Result<Vec<i64>> {
    if let Some(texts) = c.texts("classlabels_strings")?.filter(|texts| !texts.is_empty()) {
        if c.wants(0) {
            return Err(
                Error::unsupported("the labels of the classes are text, which is not held here")
                    .with_hint("fit the model on labels that are integers, and keep their names beside it"),
            );
        }
        return Ok((0..texts.len() as i64).collect());
    }
    let list = c.int_list(name)?.filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| malformed("the labels of the classes are missing"))?;
    Ok(list.to_vec())
}

/// Maps class numbers to labels, and returns the scores with them.
pub(super) fn classified(c: &Call<'_>, labels: Vec<i64>, classes: &Tensor, scores: Tensor) -> Results {
    let count = labels.len();
    let labels = c.make(labels, &[count])?.index_select(0, classes)?;
    Ok(smallvec![labels.into(), scores.into()])
}
