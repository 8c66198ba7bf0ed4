//! Labels of classes, and transforms of scores.

use std::sync::Arc;

use polygrad_core::{Activation, Result};
use polygrad_tensor::Tensor;
use smallvec::smallvec;

use crate::graph::{Literal, malformed};
use crate::import::call::{Call, Results};
use crate::import::value::Value;

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

/// The labels of the classes.
pub(super) enum Labels<'c> {
    Ints(&'c [i64]),
    Texts(&'c [String]),
}

impl<'c> Labels<'c> {
    /// From the attributes of a node, of which `ints` has labels that are integers.
    pub(super) fn read(c: &'c Call<'_>, ints: &str) -> Result<Self> {
        if let Some(texts) = c.texts("classlabels_strings")?.filter(|texts| !texts.is_empty()) {
            return Ok(Self::Texts(texts));
        }
        let list = c.int_list(ints)?.filter(|list| !list.is_empty());
        list.map(Self::Ints)
            .ok_or_else(|| malformed("the labels of the classes are missing"))
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Ints(list) => list.len(),
            Self::Texts(list) => list.len(),
        }
    }
}

/// Maps class numbers to labels, and returns the scores with them.
pub(super) fn classified(c: &Call<'_>, labels: &Labels<'_>, classes: &Tensor, scores: Tensor) -> Results {
    let found: Value = match labels {
        Labels::Ints(list) => c.make(list.to_vec(), &[list.len()])?.index_select(0, classes)?.into(),
        // Text is on the host, so the classes would be read there.
        Labels::Texts(_) if !c.wants(0) => classes.clone().into(),
        Labels::Texts(list) => {
            let texts: Vec<Arc<str>> = list.iter().map(|text| text.as_str().into()).collect();
            let host = c.off_device(classes)?;
            let text = |&class: &i64| texts[class as usize].clone();
            Literal::text(*host.shape(), host.as_slice::<i64>()?.iter().map(text).collect())?.into()
        }
    };
    Ok(smallvec![found, scores.into()])
}
