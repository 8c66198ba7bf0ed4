//! Ensembles of decision trees. They are evaluated on the host, row by row.

mod read;

use polygrad_core::{DType, Error, Result};
use polygrad_tensor::Tensor;

use super::ml;
use super::scores::{Labels, Transform, classified};
use crate::import::call::{Call, Results, one};
use crate::import::ops::row::rows;

rows! {
    ml("TreeEnsembleRegressor", 1, |c| Forest::read(c)?.run(c));
    ml("TreeEnsembleClassifier", 1, |c| Forest::read(c)?.run(c));
    ml("TreeEnsemble", 5, |c| Forest::read(c)?.run(c));
}

/// How a branch compares a feature with its value.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Mode {
    Leq,
    Lt,
    Gte,
    Gt,
    Eq,
    Neq,
    /// Whether the feature is in the set of this index.
    Member(u32),
}

/// Where a branch leads.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Next {
    Branch(u32),
    Leaf(u32),
}

/// Kept small, since walking a tree is bound by memory.
struct Branch {
    feature: u32,
    mode: Mode,
    value: f64,
    /// Whether NaN takes the true branch.
    missing: bool,
    yes: Next,
    no: Next,
}

/// How the leaves of one row are combined, for each target.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Aggregate {
    Sum,
    Average,
    Min,
    Max,
}

/// The trees given by a node's attributes.
pub(crate) struct Forest {
    branches: Vec<Branch>,
    /// The range of the weights of each leaf.
    leaves: Vec<(u32, u32)>,
    /// Targets and weights.
    weights: Vec<(u32, f64)>,
    /// The smallest number of features that a row must have.
    features: usize,
    sets: Vec<Vec<f64>>,
    roots: Vec<Next>,
    targets: usize,
    aggregate: Aggregate,
    base: Vec<f64>,
    transform: Transform,
    /// For a classifier of two classes whose leaves all have weights for the same class: that class, and whether no
    /// weight is negative.
    binary: Option<(usize, bool)>,
    /// Whether sums are rounded to f32, as ONNX Runtime does unless the trees' numbers are f64.
    narrow: bool,
}

/// The score of one target; `None` until a leaf has a weight for it.
type Score = Option<f64>;

impl Forest {
    /// The trees of a node's attributes.
    pub(crate) fn read(c: &Call<'_>) -> Result<Self> {
        match c.node.op_type.as_str() {
            "TreeEnsembleClassifier" => Self::classifier(c),
            "TreeEnsembleRegressor" => Self::regressor(c),
            _ => Self::ensemble(c),
        }
    }

    pub(crate) fn run(&self, c: &Call<'_>) -> Results {
        match c.node.op_type.as_str() {
            "TreeEnsembleClassifier" => self.classify(c),
            _ => self.regress(c),
        }
    }

    /// The weights of the leaf that a row ends at. There are no cycles, since reading checks for them.
    fn leaf(&self, root: Next, row: &[f64]) -> &[(u32, f64)] {
        let mut at = root;
        loop {
            match at {
                Next::Leaf(leaf) => {
                    let (start, end) = self.leaves[leaf as usize];
                    return &self.weights[start as usize..end as usize];
                }
                Next::Branch(i) => {
                    let branch = &self.branches[i as usize];
                    let x = row[branch.feature as usize];
                    let holds = match branch.mode {
                        _ if x.is_nan() && branch.missing => true,
                        Mode::Leq => x <= branch.value,
                        Mode::Lt => x < branch.value,
                        Mode::Gte => x >= branch.value,
                        Mode::Gt => x > branch.value,
                        Mode::Eq => x == branch.value,
                        Mode::Neq => x != branch.value,
                        Mode::Member(set) => self.sets[set as usize].contains(&x),
                    };
                    at = if holds { branch.yes } else { branch.no };
                }
            }
        }
    }

    fn sum(&self, a: f64, b: f64) -> f64 {
        match self.narrow {
            true => f64::from((a + b) as f32),
            false => a + b,
        }
    }

    /// Adds the weights that a tree gives a row to the scores.
    fn add(&self, root: Next, row: &[f64], scores: &mut [Score]) {
        for &(target, weight) in self.leaf(root, row) {
            let score = &mut scores[target as usize];
            *score = Some(match (*score, self.aggregate) {
                (None, _) => weight,
                (Some(so_far), Aggregate::Sum | Aggregate::Average) => self.sum(so_far, weight),
                (Some(so_far), Aggregate::Min) => so_far.min(weight),
                (Some(so_far), Aggregate::Max) => so_far.max(weight),
            });
        }
    }

    /// Calls `each` with the scores of each row.
    fn walk(&self, c: &Call<'_>, mut each: impl FnMut(&mut [Score])) -> Result<usize> {
        let shape = c.shape(0)?;
        let (count, features) = match *shape.dims() {
            [features] => (1, features),
            [count, features] => (count, features),
            _ => return Err(Error::shape(format!("{shape} is not [F] or [N, F]"))),
        };
        let needed = self.features;
        if features < needed {
            return Err(Error::shape(format!(
                "{features} features of {needed} that the trees look at"
            )));
        }
        let values = c.floats(0)?;
        let mut scores: Vec<Score> = c.list(count.saturating_mul(self.targets))?;
        scores.resize(count * self.targets, None);
        // Tree by tree, since a single tree fits the caches.
        for &root in &self.roots {
            c.limits.step()?;
            for (row, scores) in scores.chunks_exact_mut(self.targets).enumerate() {
                self.add(root, &values[row * features..][..features], scores);
            }
        }
        scores.chunks_exact_mut(self.targets).for_each(&mut each);
        Ok(count)
    }

    /// Real numbers for each target.
    fn regress(&self, c: &Call<'_>) -> Results {
        let mut made = Vec::new();
        let trees = match self.aggregate {
            Aggregate::Average => self.roots.len() as f64,
            _ => 1.0,
        };
        let count = self.walk(c, |scores| {
            made.extend(scores.iter().enumerate().map(|(target, score)| {
                let base = self
                    .base
                    .get(target)
                    .or(self.base.first().filter(|_| self.base.len() == 1));
                match score {
                    // With several targets, one without a leaf is 0, whatever its base value.
                    None if self.targets > 1 => 0.0,
                    score => self.sum(score.unwrap_or(0.0) / trees, base.copied().unwrap_or(0.0)),
                }
            }));
        })?;
        let dtype = match (c.node.op_type.as_str(), c.need(0)?.dtype()) {
            ("TreeEnsemble", Some(dtype)) if dtype.is_float() => dtype,
            _ => DType::F32,
        };
        let scores = c.make_as(made, &[count, self.targets], dtype)?;
        one(self.transform.apply(&scores)?)
    }

    /// The label of the class with the largest score, and all scores.
    fn classify(&self, c: &Call<'_>) -> Results {
        let labels = Labels::read(c, "classlabels_int64s")?;
        let (mut classes, mut made) = (Vec::new(), Vec::new());
        let count = self.walk(c, |scores| {
            classes.push(match self.targets {
                2 => self.of_two(scores),
                _ => self.largest(scores),
            });
            made.extend(scores.iter().map(|score| score.unwrap_or(0.0)));
        })?;
        let classes = c.make(classes, &[count])?;
        let scores = c.make_as(made, &[count, self.targets], DType::F32)?;
        classified(c, &labels, &classes, self.transformed(&scores)?)
    }

    /// Adds the base values. Returns the first class with the largest score.
    fn largest(&self, scores: &mut [Score]) -> i64 {
        for (score, base) in scores.iter_mut().zip(&self.base) {
            *score = Some(self.sum(score.unwrap_or(0.0), *base));
        }
        let mut best: Option<(usize, f64)> = None;
        for (i, score) in scores.iter().enumerate() {
            if let Some(score) = *score
                && best.is_none_or(|(_, most)| score > most)
            {
                best = Some((i, score));
            }
        }
        best.map_or(0, |(i, _)| i as i64)
    }

    /// Both scores of two classes, and the class. If all leaves have weights for the first class, their sum is the
    /// score of the second, as in gradient boosting; the score of the first is one minus it, or its negative if some
    /// weight is negative.
    fn of_two(&self, scores: &mut [Score]) -> i64 {
        let Some((class, positive)) = self.binary else {
            return self.largest(scores);
        };
        let base = self.base.get(1).or(self.base.first()).copied().unwrap_or(0.0);
        let score = self.sum(scores[class].unwrap_or(0.0), base);
        let other = match (class, positive) {
            (1, _) => 0.0,
            (_, true) => self.sum(1.0, -score),
            (_, false) => -score,
        };
        scores.copy_from_slice(&[Some(other), Some(score)]);
        i64::from(score > if positive { 0.5 } else { 0.0 })
    }

    /// If both scores follow from one, the transform is applied to that one.
    fn transformed(&self, scores: &Tensor) -> Result<Tensor> {
        match (self.binary, self.transform) {
            (None | Some((1, _)), transform) | (Some((_, false)), transform @ Transform::Logistic) => {
                transform.apply(scores)
            }
            _ => Ok(scores.clone()),
        }
    }
}
