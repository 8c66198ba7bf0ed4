//! The negative log likelihood, on which cross entropy is based.

use polygrad_tensor::{Backend, DType, Error, Result, Scalar, Tensor};

use super::Reduction;
use super::common::{self, loss};

loss! {
    /// Minus the log probability of each target class, from log probabilities `[N, C]`, `[N, C, …]` or `[C]` and i64
    /// class indices `[N]`, `[N, …]` or `[]`. The mean is weighted by the targets' class weights, and excludes ignored
    /// targets.
    NLLLoss<B> {
        /// A weight for each class, `[C]`.
        weight,
    }, nll_loss(input, target);
    /// The class index of targets to ignore.
    ignore_index: i64 = -100;
}

impl<B: Backend> NLLLoss<B> {
    /// The loss of log probabilities against class indices.
    ///
    /// # Errors
    /// When shapes or dtypes do not fit, or a class index is out of range.
    pub fn forward(&self, input: &Tensor<B>, target: &Tensor<B>) -> Result<Tensor<B>> {
        let weight = self.weight.as_ref();
        Tensor::in_full([input, weight.unwrap_or(input)], |[input, weight_of]| {
            let rows = Rows::new("nll_loss", input, target)?;
            let weights = Weights::new("nll_loss", &rows, weight.and(Some(weight_of)), self.ignore_index)?;
            let losses = weights.of_picked(&rows, &rows.input)?;
            weights.reduce(losses, &rows, self.reduction)
        })
    }
}

/// Classes last: input `[rows, C]` and target `[rows]`, whatever the axes were.
pub(super) struct Rows<B: Backend> {
    pub(super) input: Tensor<B>,
    pub(super) target: Tensor<B>,
    /// The original shape of the target.
    shape: Vec<usize>,
}

impl<B: Backend> Rows<B> {
    pub(super) fn new(op: &'static str, input: &Tensor<B>, target: &Tensor<B>) -> Result<Self> {
        let shape = input.shape();
        let expected: Vec<usize> = match shape.dims() {
            [_] => Vec::new(),
            [n, _, rest @ ..] => std::iter::once(*n).chain(rest.iter().copied()).collect(),
            [] => return Err(mismatch(op, input, target)),
        };
        if target.dims() != expected {
            return Err(mismatch(op, input, target));
        }
        if target.dtype() != DType::I64 {
            return Err(Error::dtype(format!("class indices are i64, not {}", target.dtype()))
                .with_op(op)
                .with_hint("convert the target with to_dtype(DType::I64)"));
        }
        Ok(Self {
            input: classes_last(input)?,
            target: target.reshape([target.numel()])?,
            shape: expected,
        })
    }

    pub(super) fn classes(&self) -> usize {
        self.input.shape()[1]
    }

    /// The entry of each row at its index, `[rows]`.
    pub(super) fn pick(&self, values: &Tensor<B>, index: &Tensor<B>) -> Result<Tensor<B>> {
        values.gather(1, &index.unsqueeze(1)?)?.squeeze(1)
    }

    /// Reshapes the losses of rows to the target's original shape.
    pub(super) fn unflatten(&self, losses: &Tensor<B>) -> Result<Tensor<B>> {
        losses.reshape(&self.shape)
    }
}

/// `[N, C, …]` as `[N · …, C]`.
pub(super) fn classes_last<B: Backend>(x: &Tensor<B>) -> Result<Tensor<B>> {
    let shape = x.shape();
    match shape.rank() {
        1 => x.unsqueeze(0),
        2 => Ok(x.clone()),
        rank => {
            let axes: Vec<isize> = std::iter::once(0).chain(2..rank as isize).chain([1]).collect();
            let rows = shape.numel() / shape[1].max(1);
            x.permute(&axes)?.reshape([rows, shape[1]])
        }
    }
}

pub(super) fn mismatch<B: Backend>(op: &'static str, input: &Tensor<B>, target: &Tensor<B>) -> Error {
    let text =
        "input is [N, C, …], the target [N, …] of class indices (or, for cross entropy, [N, C, …] of probabilities)";
    let error = common::misfit(op, &[input, target], text);
    let (rank, shape) = (input.shape().rank(), target.shape());
    match target.dtype().is_float() {
        true if shape.rank() + 1 == rank => error.with_hint("class indices are integers: make the target i64"),
        false if shape.rank() == rank && shape.dims().last() == Some(&1) => {
            error.with_hint("squeeze the last axis of the target away")
        }
        _ => error,
    }
}

/// The weight of each row: that of its target's class, or 0 if the target is ignored.
pub(super) struct Weights<B: Backend> {
    /// `[rows]`.
    of_rows: Tensor<B>,
    /// The targets, with ignored ones replaced by a valid class.
    index: Tensor<B>,
    /// Which targets are ignored, `[rows]`.
    pub(super) ignored: Tensor<B>,
}

impl<B: Backend> Weights<B> {
    pub(super) fn new(op: &'static str, rows: &Rows<B>, weight: Option<&Tensor<B>>, ignore_index: i64) -> Result<Self> {
        let ignored = rows.target.eq(ignore_index)?;
        let index = rows.target.masked_fill(&ignored, Scalar::Int(0))?;
        let of_rows = match weight {
            None => ignored.logical_not()?.to_dtype(rows.input.dtype())?,
            Some(weight) => {
                check_class_weight(op, weight, rows.classes())?;
                weight.index_select(0, &index)?.masked_fill(&ignored, 0.0)?
            }
        };
        Ok(Self {
            of_rows,
            index,
            ignored,
        })
    }

    /// Minus each row's entry at its target, weighted.
    pub(super) fn of_picked(&self, rows: &Rows<B>, log_p: &Tensor<B>) -> Result<Tensor<B>> {
        // Masked rather than multiplied by 0, so that no gradient passes here, even if all targets are ignored and the
        // mean is 0 / 0.
        let picked = rows.pick(log_p, &self.index)?.masked_fill(&self.ignored, 0.0)?;
        picked.neg()?.mul(&self.of_rows)
    }

    /// Reduces losses that are already weighted.
    pub(super) fn reduce(&self, losses: Tensor<B>, rows: &Rows<B>, reduction: Reduction) -> Result<Tensor<B>> {
        match reduction {
            Reduction::None => rows.unflatten(&losses),
            Reduction::Sum => losses.sum_all(),
            Reduction::Mean => losses.sum_all()?.div(&self.of_rows.sum_all()?),
        }
    }
}

pub(super) fn check_class_weight<B: Backend>(op: &'static str, weight: &Tensor<B>, classes: usize) -> Result<()> {
    if weight.dims() == [classes] {
        return Ok(());
    }
    Err(Error::shape(format!(
        "there are {classes} classes, and weights of shape {}",
        weight.shape()
    ))
    .with_op(op))
}
