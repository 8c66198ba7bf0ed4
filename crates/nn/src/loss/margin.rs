//! Losses with a margin.

use polygrad_tensor::{Backend, Result, Tensor};

use super::common::{check_option, check_same_shape, elementwise, loss, misfit};
use super::nll::{Rows, check_class_weight};

elementwise! {
    /// `max(0, margin − y · (a − b))`, where the target `y` is 1 if `a` should be ranked above `b`, else −1.
    MarginRankingLoss, margin_ranking_loss(input1, input2, target);
    /// The required difference.
    margin: f64 = 0.0;
    |loss| (loss.margin - input1.sub(input2)?.mul(target)?)?.clamp(Some(0.0), None)
}

elementwise! {
    /// The distance `x` if the target is 1, `max(0, margin − x)` if it is −1.
    HingeEmbeddingLoss, hinge_embedding_loss(input, target);
    /// The required distance of dissimilar pairs.
    margin: f64 = 1.0;
    |loss| {
        let apart = (loss.margin - input)?.clamp(Some(0.0), None)?;
        // As in PyTorch, a target that is neither 1 nor −1 counts as both.
        apart.masked_fill(&target.eq(1.0)?, 0.0)? + input.masked_fill(&target.eq(-1.0)?, 0.0)?
    }
}

elementwise! {
    /// `ln(1 + e^(−y · x))` for targets `y` of 1 and −1, without overflow.
    SoftMarginLoss, soft_margin_loss(input, target);
    |loss| target.mul(input)?.neg()?.softplus(1.0, 40.0)
}

loss! {
    /// `max(0, d(a, p) − d(a, n) + margin)` for anchors, positives and negatives `[…, D]`. The distance `d` is the
    /// p-norm of the differences along the last axis, with `eps` added to each difference.
    ///
    /// Source: Balntas et al., "Learning local feature descriptors with triplets and shallow convolutional
    /// neural networks" (2016).
    #[derive(Clone, Copy, Debug)]
    TripletMarginLoss, triplet_margin_loss(anchor, positive, negative);
    /// How much farther away the negative should be than the positive, above 0.
    margin: f64 = 1.0;
    /// The order of the norm.
    p: f64 = 2.0;
    /// Added to each difference.
    eps: f64 = 1e-6;
    /// Whether the positive's distance from the negative is used instead of the anchor's if it is smaller.
    swap: bool = false;
}

impl TripletMarginLoss {
    /// The loss of inputs of one shape `[…, D]`, one for each `[…]`.
    ///
    /// # Errors
    /// When shapes differ or have no axis, an option is out of range, or dtype or device do not fit.
    pub fn forward<B: Backend>(
        &self,
        anchor: &Tensor<B>,
        positive: &Tensor<B>,
        negative: &Tensor<B>,
    ) -> Result<Tensor<B>> {
        let op = "triplet_margin_loss";
        check_same_shape(op, &[anchor, positive, negative])?;
        check_option(op, ("margin", self.margin), self.margin > 0.0, "above 0")?;
        Tensor::in_full([anchor, positive, negative], |[anchor, positive, negative]| {
            let distance = |a: &Tensor<B>, b: &Tensor<B>| (a.sub(b)? + self.eps)?.norm(self.p, -1);
            let mut apart = distance(anchor, negative)?;
            if self.swap {
                apart = apart.minimum(&distance(positive, negative)?)?;
            }
            let losses = (distance(anchor, positive)?.sub(&apart)? + self.margin)?;
            self.reduction.apply(losses.clamp(Some(0.0), None)?)
        })
        .map_err(|e| e.with_op(op))
    }
}

loss! {
    /// `1 − cos(a, b)` if the target is 1, `max(0, cos(a, b) − margin)` if it is −1, for inputs `[N, D]` or `[D]` and a
    /// target `[N]` or `[]`.
    #[derive(Clone, Copy, Debug)]
    CosineEmbeddingLoss, cosine_embedding_loss(input1, input2, target);
    /// The allowed similarity of dissimilar pairs.
    margin: f64 = 0.0;
}

impl CosineEmbeddingLoss {
    /// The loss of two inputs of one shape, one for each vector.
    ///
    /// # Errors
    /// When shapes, dtype or device do not fit.
    pub fn forward<B: Backend>(&self, input1: &Tensor<B>, input2: &Tensor<B>, target: &Tensor<B>) -> Result<Tensor<B>> {
        let op = "cosine_embedding_loss";
        check_same_shape(op, &[input1, input2])?;
        let dims = input1.dims();
        if !(1..=2).contains(&dims.len()) || target.dims() != dims[..dims.len() - 1] {
            let text = "takes inputs [N, D] or [D] and a target [N] or []";
            return Err(misfit(op, &[input1, input2, target], text));
        }
        Tensor::in_full([input1, input2, target], |[a, b, target]| {
            let length = |x: &Tensor<B>| (x.square()?.sum(-1)? + 1e-12)?.sqrt();
            let cosine = a.mul(b)?.sum(-1)?.div(&length(a)?.mul(&length(b)?)?)?;
            let like = (1.0 - &cosine)?.masked_fill(&target.ne(1.0)?, 0.0)?;
            let unlike = (cosine - self.margin)?.clamp(Some(0.0), None)?;
            let losses = like + unlike.masked_fill(&target.ne(-1.0)?, 0.0)?;
            self.reduction.apply(losses?)
        })
    }
}

loss! {
    /// `w · Σ max(0, margin − x_y + x_i)^p / C` over the classes `i` other than the target `y`, whose weight is `w`,
    /// for scores `[N, C]` or `[C]` and i64 class indices `[N]` or `[]`.
    MultiMarginLoss<B> {
        /// A weight for each class, `[C]`.
        weight,
    }, multi_margin_loss(input, target);
    /// The power, 1 or 2.
    p: u8 = 1;
    /// How far the target's score should be above the others.
    margin: f64 = 1.0;
}

impl<B: Backend> MultiMarginLoss<B> {
    /// The loss of scores against class indices.
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit, a class index is out of range, or `p` is neither 1 nor 2.
    pub fn forward(&self, input: &Tensor<B>, target: &Tensor<B>) -> Result<Tensor<B>> {
        let op = "multi_margin_loss";
        check_option(op, ("p", self.p.into()), matches!(self.p, 1 | 2), "1 or 2")?;
        if input.rank() > 2 {
            return Err(misfit(op, &[input, target], "takes scores [N, C] or [C]"));
        }
        let weight = self.weight.as_ref();
        Tensor::in_full([input, weight.unwrap_or(input)], |[input, weight_of]| {
            let rows = Rows::new(op, input, target)?;
            let own = rows.target.one_hot(rows.classes())?.ne(0)?;
            let picked = rows.pick(&rows.input, &rows.target)?.unsqueeze(1)?;
            let short = (rows.input.sub(&picked)? + self.margin)?
                .relu()?
                .masked_fill(&own, 0.0)?;
            let mut losses = if self.p == 1 { short } else { short.square()? }.mean(1)?;
            if weight.is_some() {
                check_class_weight(op, weight_of, rows.classes())?;
                losses = losses.mul(&weight_of.index_select(0, &rows.target)?)?;
            }
            self.reduction.apply(rows.unflatten(&losses)?)
        })
    }
}

loss! {
    /// `Σ max(0, 1 − (x_j − x_i)) / C` over the target's classes `j` and the others `i`, for scores `[N, C]` or `[C]`
    /// and i64 targets of the same shape, which list classes up to the first −1.
    #[derive(Clone, Copy, Debug)]
    MultiLabelMarginLoss, multilabel_margin_loss(input, target);
}

impl MultiLabelMarginLoss {
    /// The loss of scores against lists of classes.
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit, or a class index is out of range.
    pub fn forward<B: Backend>(&self, input: &Tensor<B>, target: &Tensor<B>) -> Result<Tensor<B>> {
        let op = "multilabel_margin_loss";
        check_same_shape(op, &[input, target])?;
        if !(1..=2).contains(&input.rank()) {
            return Err(misfit(op, &[input, target], "takes scores [N, C] or [C]"));
        }
        Tensor::in_full([input], |[x]| {
            let is_end = target.lt(0)?;
            let listed = is_end.cumsum(-1)?.eq(0)?;
            let index = target.masked_fill(&listed.logical_not()?, 0)?;
            let counts = index
                .zeros_like()?
                .scatter_add(-1, &index, &listed.to_dtype(index.dtype())?)?;
            let others = counts.eq(0)?.unsqueeze(-2)?;
            let pairs = listed.unsqueeze(-1)?.logical_and(&others)?;
            let apart = x.gather(-1, &index)?.unsqueeze(-1)?.sub(&x.unsqueeze(-2)?)?;
            let short = (1.0 - apart)?.relu()?.masked_fill(&pairs.logical_not()?, 0.0)?;
            self.reduction.apply(short.sum(-1)?.mean(-1)?)
        })
        .map_err(|e| e.with_op(op))
    }
}

loss! {
    /// The mean over the classes of `−w · (y · ln σ(x) + (1 − y) · ln σ(−x))`, for logits `x` `[…, C]` and targets `y`
    /// in `[0, 1]`: the binary cross entropy of each class separately.
    MultiLabelSoftMarginLoss<B> {
        /// A weight for each class, `[C]`.
        weight,
    }, multilabel_soft_margin_loss(input, target);
}

impl<B: Backend> MultiLabelSoftMarginLoss<B> {
    /// The loss of logits against targets of the same shape, one for each `[…]`.
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit.
    pub fn forward(&self, input: &Tensor<B>, target: &Tensor<B>) -> Result<Tensor<B>> {
        let op = "multilabel_soft_margin_loss";
        check_same_shape(op, &[input, target])?;
        let weight = self.weight.as_ref();
        Tensor::in_wide([input, target, weight.unwrap_or(target)], |[x, y, weight_of]| {
            let classes = *input.dims().last().unwrap_or(&1);
            let others = (1.0 - y)?.mul(&x.neg()?.logsigmoid()?)?;
            let mut logs = y.mul(&x.logsigmoid()?)?.add(&others)?;
            if weight.is_some() {
                check_class_weight(op, weight_of, classes)?;
                logs = logs.mul(weight_of)?;
            }
            self.reduction.apply(logs.mean(-1)?.neg()?)
        })
        .map_err(|e| e.with_op(op))
    }
}
