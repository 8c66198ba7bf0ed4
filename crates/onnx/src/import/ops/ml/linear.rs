//! Linear models.

use polygrad_core::{DType, Error, Result};
use polygrad_tensor::Tensor;

use super::ml;
use super::scores::{Labels, Transform, classified};
use crate::graph::malformed;
use crate::import::call::{Call, Results, one};
use crate::import::ops::row::rows;

rows! {
    ml("LinearRegressor", 1, regressor);
    ml("LinearClassifier", 1, classifier);
}

/// Rows of features as f32: `[N, F]`, or one row of `[F]`.
pub(super) fn rows_of(c: &Call<'_>) -> Result<Tensor> {
    let x = c.x(0)?.to_dtype(DType::F32)?;
    match *x.shape().dims() {
        [features] => x.reshape([1, features]),
        [_, _] => Ok(x),
        _ => Err(Error::shape(format!("{} is not [F] or [N, F]", x.shape()))),
    }
}

/// Products of rows with `targets` lists of coefficients, plus the intercepts.
fn product(c: &Call<'_>, x: &Tensor, targets: usize) -> Result<Tensor> {
    let list = c.float_list("coefficients")?.unwrap_or(&[]);
    let features = x.shape()[1];
    if targets == 0 || Some(list.len()) != targets.checked_mul(features) {
        return Err(malformed(format!(
            "{} coefficients for {features} features and {targets} targets",
            list.len()
        )));
    }
    c.reserve(&[x.shape()[0], targets], DType::F32)?;
    let weight = c.make(list.to_vec(), &[targets, features])?;
    let bias = match c.float_list("intercepts")? {
        None => None,
        Some(list) if list.len() == targets => Some(c.make(list.to_vec(), &[targets])?),
        Some(list) => return Err(malformed(format!("{} intercepts for {targets} targets", list.len()))),
    };
    x.linear(&weight, bias.as_ref())
}

fn regressor(c: &Call<'_>) -> Results {
    let x = rows_of(c)?;
    one(Transform::read(c)?.apply(&product(c, &x, c.count("targets", 1)?)?)?)
}

fn classifier(c: &Call<'_>) -> Results {
    let x = rows_of(c)?;
    let labels = Labels::read(c, "classlabels_ints")?;
    let targets = match c.float_list("intercepts")? {
        Some(list) => list.len(),
        None => labels.len(),
    };
    let (scores, transform) = (product(c, &x, targets)?, Transform::read(c)?);
    match (targets, labels.len()) {
        (1, 2) => {
            let classes = scores.gt(0.0)?.to_dtype(DType::I64)?.reshape([x.shape()[0]])?;
            let yes = match transform {
                Transform::Probit => {
                    return Err(
                        Error::unsupported("PROBIT of one score for two classes is not computed here")
                            .with_hint("write the coefficients of both classes to the file"),
                    );
                }
                Transform::Logistic => transform.apply(&scores)?,
                _ => scores,
            };
            let done = Tensor::cat(&[&(1.0 - &yes)?, &yes], 1)?;
            classified(c, &labels, &classes, done)
        }
        (targets, count) if targets == count => {
            let classes = scores.argmax(-1)?;
            classified(c, &labels, &classes, transform.apply(&scores)?)
        }
        (targets, count) => Err(malformed(format!("{count} labels for {targets} scores"))),
    }
}
