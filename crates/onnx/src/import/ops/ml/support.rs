//! Support vector machines.

use polygrad_core::{Activation, DType, Error, Result};
use polygrad_tensor::Tensor;

use super::linear::rows_of;
use super::ml;
use super::scores::{Labels, Transform, classified};
use crate::graph::malformed;
use crate::import::call::{Call, List, Results, one, sizes};
use crate::import::ops::row::rows;

rows! {
    ml("SVMRegressor", 1, regressor);
    ml("SVMClassifier", 1, classifier);
}

/// The kernel function of rows `[N, F]` and vectors `[V, F]`: `[N, V]`.
fn kernel(c: &Call<'_>, x: &Tensor, vectors: &Tensor) -> Result<Tensor> {
    let params = c.float_list("kernel_params")?.unwrap_or(&[]);
    let param = |i: usize| params.get(i).copied().map_or(0.0, f64::from);
    let (gamma, coef, degree) = (param(0), param(1), param(2));
    c.reserve(&[x.shape()[0], vectors.shape()[0]], DType::F32)?;
    let dots = x.linear(vectors, None)?;
    match c.text("kernel_type", "LINEAR")? {
        "LINEAR" => Ok(dots),
        "POLY" => ((dots * gamma)? + coef)?.pow(degree),
        "SIGMOID" => ((dots * gamma)? + coef)?.activation(Activation::Tanh),
        "RBF" => {
            c.reserve(&[x.shape()[0], vectors.shape()[0], x.shape()[1]], DType::F32)?;
            let far = (x.unsqueeze(1)? - vectors.unsqueeze(0)?)?.square()?.sum([-1])?;
            (far * -gamma)?.exp()
        }
        other => Err(malformed(format!("there is no kernel_type {other:?}"))),
    }
}

/// A list attribute as a matrix with `rows` rows.
fn matrix(c: &Call<'_>, name: &str, rows: usize, columns: usize) -> Result<Tensor> {
    let list = c.float_list(name)?.unwrap_or(&[]);
    if Some(list.len()) != rows.checked_mul(columns) {
        return Err(malformed(format!(
            "{name} has {} numbers, not {rows} times {columns}",
            list.len()
        )));
    }
    c.make(list.to_vec(), &[rows, columns])
}

fn regressor(c: &Call<'_>) -> Results {
    let x = rows_of(c)?;
    let (count, features) = (c.count("n_supports", 0)?, x.shape()[1]);
    let y = match count {
        0 => kernel(c, &x, &matrix(c, "coefficients", 1, features)?)?,
        count => {
            let products = kernel(c, &x, &matrix(c, "support_vectors", count, features)?)?;
            products.linear(&matrix(c, "coefficients", 1, count)?, None)?
        }
    };
    let rho = c
        .float_list("rho")?
        .and_then(|list| list.first())
        .copied()
        .unwrap_or(0.0);
    let y = (y + f64::from(rho))?;
    if c.flag("one_class", false)? {
        let inside = y.gt(0.0)?.to_dtype(DType::F32)?;
        return one(((inside * 2.0)? - 1.0)?);
    }
    one(Transform::read(c)?.apply(&y)?)
}

fn classifier(c: &Call<'_>) -> Results {
    let x = rows_of(c)?;
    let labels = Labels::read(c, "classlabels_ints")?;
    let counts = sizes(c.int_list("vectors_per_class")?.unwrap_or(&[]))?;
    if counts.is_empty() {
        return linear(c, &x, &labels);
    }
    let classes = counts.len();
    if classes < 2 || labels.len() != classes {
        return Err(malformed(format!("{} labels for {classes} classes", labels.len())));
    }
    let pairs = Pairs::read(c, &x, &counts)?;
    let votes = pairs.votes()?;
    let winners = votes.argmax(-1)?;
    let scores = match pairs.chances(c)? {
        Some(chances) => chances,
        None if classes == 2 => Tensor::cat(&[&pairs.scores.neg()?, &pairs.scores], 1)?,
        None => pairs.scores,
    };
    classified(c, &labels, &winners, Transform::read(c)?.apply(&scores)?)
}

/// One score for each class, each from one list of coefficients.
fn linear(c: &Call<'_>, x: &Tensor, labels: &Labels<'_>) -> Results {
    let classes = labels.len();
    let scores = kernel(c, x, &matrix(c, "coefficients", classes, x.shape()[1])?)?;
    let rho = c
        .float_list("rho")?
        .and_then(|list| list.first())
        .copied()
        .unwrap_or(0.0);
    let scores = (scores + f64::from(rho))?;
    let winners = scores.argmax(-1)?;
    classified(c, labels, &winners, Transform::read(c)?.apply(&scores)?)
}

/// The scores of each class against each later one.
struct Pairs {
    /// `[N, pairs]`, for the pairs (0, 1), (0, 2) …; positive for the first of the pair.
    scores: Tensor,
    classes: usize,
}

impl Pairs {
    fn read(c: &Call<'_>, x: &Tensor, counts: &[usize]) -> Result<Self> {
        let (classes, vectors) = (counts.len(), counts.iter().copied().fold(0, usize::saturating_add));
        let products = kernel(c, x, &matrix(c, "support_vectors", vectors, x.shape()[1])?)?;
        let coefficients = matrix(c, "coefficients", classes - 1, vectors)?;
        let rho = c.float_list("rho")?.unwrap_or(&[]);
        if rho.len() != classes * (classes - 1) / 2 {
            return Err(malformed(format!("{} numbers in rho for {classes} classes", rho.len())));
        }
        let starts: List<usize> = (0..classes).map(|i| counts[..i].iter().sum()).collect();
        // The contribution of a class's vectors to the score of a pair.
        let part = |class: usize, row: usize| -> Result<Tensor> {
            let of_class = products.narrow(1, starts[class], counts[class])?;
            let weights = coefficients
                .narrow(0, row, 1)?
                .narrow(1, starts[class], counts[class])?;
            of_class.linear(&weights, None)
        };
        let mut scores = Vec::with_capacity(rho.len());
        for i in 0..classes {
            for j in i + 1..classes {
                let sum = (part(i, j - 1)? + part(j, i)?)?;
                scores.push((sum + f64::from(rho[scores.len()]))?);
            }
        }
        Ok(Self {
            scores: Tensor::cat(&scores.iter().collect::<Vec<_>>(), 1)?,
            classes,
        })
    }

    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        let classes = self.classes;
        (0..classes).flat_map(move |i| (i + 1..classes).map(move |j| (i, j)))
    }

    /// How many pairs each class wins: `[N, classes]`.
    fn votes(&self) -> Result<Tensor> {
        let won = self.scores.gt(0.0)?.to_dtype(DType::F32)?;
        let lost = (1.0 - &won)?;
        let mut votes = Vec::with_capacity(self.classes);
        for class in 0..self.classes {
            let mut sum: Option<Tensor> = None;
            for (pair, (i, j)) in self.pairs().enumerate() {
                let of_pair = match (i == class, j == class) {
                    (true, _) => won.narrow(1, pair, 1)?,
                    (_, true) => lost.narrow(1, pair, 1)?,
                    _ => continue,
                };
                sum = Some(match sum {
                    Some(sum) => (sum + of_pair)?,
                    None => of_pair,
                });
            }
            votes.extend(sum);
        }
        Tensor::cat(&votes.iter().collect::<Vec<_>>(), 1)
    }

    /// The probability of each class, from those of the pairs, if the node has the needed attributes.
    fn chances(&self, c: &Call<'_>) -> Result<Option<Tensor>> {
        let (Some(a), Some(b)) = (c.float_list("prob_a")?, c.float_list("prob_b")?) else {
            return Ok(None);
        };
        let pairs = self.pairs().count();
        if a.is_empty() && b.is_empty() {
            return Ok(None);
        }
        if a.len() != pairs || b.len() != pairs {
            return Err(malformed(format!(
                "{} and {} numbers in prob_a and prob_b for {pairs} pairs",
                a.len(),
                b.len()
            )));
        }
        let (a, b) = (c.make(a.to_vec(), &[pairs])?, c.make(b.to_vec(), &[pairs])?);
        let first = ((&self.scores * a)? + b)?.neg()?.activation(Activation::Sigmoid)?;
        let first = first.clamp(Some(1e-7), Some(1.0 - 1e-7))?;
        let host = c.off_device(&first)?;
        let (values, rows) = (host.try_to_f64_vec()?, first.shape()[0]);
        let mut all = c.list(rows * self.classes)?;
        for row in values.chunks(pairs) {
            c.limits.step()?;
            all.extend(self.coupled(row)?);
        }
        c.make_as(all, &[rows, self.classes], DType::F32).map(Some)
    }

    /// Probabilities of classes from those of pairs: the second method of Wu, Lin and Weng, "Probability estimates for
    /// multi-class classification by pairwise coupling" (2004), with libsvm's stopping rule.
    fn coupled(&self, first: &[f64]) -> Result<Vec<f64>> {
        let n = self.classes;
        let mut r = vec![0.0; n * n];
        for (pair, (i, j)) in self.pairs().enumerate() {
            (r[i * n + j], r[j * n + i]) = (first[pair], 1.0 - first[pair]);
        }
        let mut q = vec![0.0; n * n];
        for t in 0..n {
            for j in (0..n).filter(|&j| j != t) {
                q[t * n + t] += r[j * n + t] * r[j * n + t];
                q[t * n + j] = -r[j * n + t] * r[t * n + j];
            }
        }
        let mut p = vec![1.0 / n as f64; n];
        let near = 0.005 / n as f64;
        for _ in 0..100.max(n) {
            let mut qp: Vec<f64> = (0..n).map(|t| (0..n).map(|j| q[t * n + j] * p[j]).sum()).collect();
            let mut whole: f64 = (0..n).map(|t| p[t] * qp[t]).sum();
            if qp.iter().all(|value| (value - whole).abs() < near) {
                return Ok(p);
            }
            for t in 0..n {
                let step = (whole - qp[t]) / q[t * n + t];
                p[t] += step;
                let scale = 1.0 + step;
                whole = (whole + step * (step * q[t * n + t] + 2.0 * qp[t])) / (scale * scale);
                for j in 0..n {
                    qp[j] = (qp[j] + step * q[t * n + j]) / scale;
                    p[j] /= scale;
                }
            }
        }
        match p.iter().all(|value| value.is_finite()) {
            true => Ok(p),
            false => Err(Error::invalid("the chances of the classes are no numbers")),
        }
    }
}
