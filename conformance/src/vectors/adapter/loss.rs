//! The losses of `torch.nn.functional`, and those of `torch.nn`, whose arguments have the same names.

use polygrad_nn::loss::{
    BCELoss, BCEWithLogitsLoss, CTCLoss, CosineEmbeddingLoss, CrossEntropyLoss, GaussianNLLLoss, HingeEmbeddingLoss,
    HuberLoss, KLDivLoss, L1Loss, MSELoss, MarginRankingLoss, MultiLabelMarginLoss, MultiLabelSoftMarginLoss,
    MultiMarginLoss, NLLLoss, PoissonNLLLoss, Reduction, SmoothL1Loss, SoftMarginLoss, TripletMarginLoss,
};
use polygrad_tensor::{Backend, Tensor};

use crate::vectors::call::{Call, CaseError, CaseOutputs, CaseResult, NAMED, one, unsupported};

/// Input and target.
type Pair<'a, B> = (&'a Tensor<B>, &'a Tensor<B>);

/// The reduction of the elements' losses; `reduce` and `size_average` are PyTorch's older names for it.
fn reduction<B: Backend>(
    call: &Call<'_, B>,
    size_average: usize,
    reduce: usize,
    position: usize,
) -> CaseResult<Reduction> {
    let old = [(size_average, "size_average"), (reduce, "reduce")];
    if old.iter().any(|&(position, name)| call.has(position, name)) {
        let [average, reduce] = old.map(|(position, name)| call.flag(position, name, true));
        call.ignore(position, "reduction");
        return Ok(match (reduce?, average?) {
            (false, _) => Reduction::None,
            (true, true) => Reduction::Mean,
            (true, false) => Reduction::Sum,
        });
    }
    match call.text(position, "reduction")? {
        None | Some("mean") => Ok(Reduction::Mean),
        Some("sum") => Ok(Reduction::Sum),
        Some("none") => Ok(Reduction::None),
        Some(other) => unsupported(format!("argument reduction={other}")),
    }
}

/// With the options at these positional indices: `weight`, `size_average`, `ignore_index`, `reduce`, `reduction` and
/// `label_smoothing`.
fn cross_entropy_loss<B: Backend>(
    call: &Call<'_, B>,
    [weight, average, ignored, reduce, reduced, smoothing]: [usize; 6],
) -> CaseResult<CrossEntropyLoss<B>> {
    let loss = CrossEntropyLoss::new()
        .ignore_index(call.int(ignored, "ignore_index", -100)? as i64)
        .label_smoothing(call.float(smoothing, "label_smoothing", 0.0)?)
        .reduction(reduction(call, average, reduce, reduced)?);
    Ok(match call.optional_tensor(weight, "weight")? {
        Some(weight) => loss.weight(weight.clone()),
        None => loss,
    })
}

/// Computed in chunks of two rows.
fn linear_cross_entropy<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let weight = call.tensor(1, "linear_weight")?.clone();
    let bias = call.optional_tensor(NAMED, "linear_bias")?.cloned();
    let loss = cross_entropy_loss(call, [NAMED; 6])?;
    one(
        loss.forward_chunked(call.tensor(0, "input")?, call.tensor(2, "target")?, 2, move |x| {
            x.linear(&weight, bias.as_ref())
        })?,
    )
}

fn nll<B: Backend>(call: &Call<'_, B>, (x, y): Pair<'_, B>) -> CaseOutputs<B> {
    let mut loss = NLLLoss::new()
        .ignore_index(call.int(4, "ignore_index", -100)? as i64)
        .reduction(reduction(call, 3, 5, 6)?);
    if let Some(weight) = call.optional_tensor(2, "weight")? {
        loss = loss.weight(weight.clone());
    }
    one(loss.forward(x, y)?)
}

fn bce<B: Backend>(call: &Call<'_, B>, (x, y): Pair<'_, B>) -> CaseOutputs<B> {
    let mut loss = BCELoss::new().reduction(reduction(call, 3, 4, 5)?);
    if let Some(weight) = call.optional_tensor(2, "weight")? {
        loss = loss.weight(weight.clone());
    }
    one(loss.forward(x, y)?)
}

fn bce_with_logits<B: Backend>(call: &Call<'_, B>, (x, y): Pair<'_, B>) -> CaseOutputs<B> {
    let mut loss = BCEWithLogitsLoss::new().reduction(reduction(call, 3, 4, 5)?);
    if let Some(weight) = call.optional_tensor(2, "weight")? {
        loss = loss.weight(weight.clone());
    }
    if let Some(weight) = call.optional_tensor(6, "pos_weight")? {
        loss = loss.pos_weight(weight.clone());
    }
    one(loss.forward(x, y)?)
}

fn kl_div<B: Backend>(call: &Call<'_, B>, (x, y): Pair<'_, B>) -> CaseOutputs<B> {
    let loss = KLDivLoss::new().log_target(call.flag(5, "log_target", false)?);
    let loss = match call.text(4, "reduction")? {
        Some("batchmean") => loss.batch_mean(true),
        _ => loss.reduction(reduction(call, 2, 3, 4)?),
    };
    one(loss.forward(x, y)?)
}

/// From logits, for labels that are aligned.
fn ctc<B: Backend>(call: &Call<'_, B>, how: Reduction) -> CaseOutputs<B> {
    let loss = CTCLoss::new()
        .blank(call.size(NAMED, "blank", 0)?)
        .zero_infinity(call.flag(NAMED, "zero_infinity", false)?)
        .reduction(how);
    let lengths = |position, name| -> CaseResult<Vec<usize>> {
        let lengths = call.tensor(position, name)?.to_vec::<i64>()?;
        Ok(lengths.into_iter().map(|length| length as usize).collect())
    };
    one(loss.forward(
        &call.tensor(0, "log_probs")?.log_softmax(-1)?,
        call.tensor(1, "targets")?,
        &lengths(2, "input_lengths")?,
        &lengths(3, "target_lengths")?,
    )?)
}

/// The losses of `torch.nn` whose functions are not recorded.
fn of_class<B: Backend>(name: &str, call: &Call<'_, B>) -> CaseOutputs<B> {
    let how = || reduction(call, NAMED, NAMED, NAMED);
    let x = |position| call.tensor(position, "input");
    let margin = |default| call.float(NAMED, "margin", default);
    one(match name {
        "MarginRankingLoss" => {
            let loss = MarginRankingLoss::new().margin(margin(0.0)?).reduction(how()?);
            loss.forward(x(0)?, x(1)?, x(2)?)?
        }
        "HingeEmbeddingLoss" => {
            let loss = HingeEmbeddingLoss::new().margin(margin(1.0)?).reduction(how()?);
            loss.forward(x(0)?, x(1)?)?
        }
        "SoftMarginLoss" => SoftMarginLoss::new().reduction(how()?).forward(x(0)?, x(1)?)?,
        "TripletMarginLoss" => {
            let loss = TripletMarginLoss::new()
                .margin(margin(1.0)?)
                .p(call.float(NAMED, "p", 2.0)?)
                .eps(call.float(NAMED, "eps", 1e-6)?)
                .swap(call.flag(NAMED, "swap", false)?)
                .reduction(how()?);
            loss.forward(x(0)?, x(1)?, x(2)?)?
        }
        "CosineEmbeddingLoss" => {
            let loss = CosineEmbeddingLoss::new().margin(margin(0.0)?).reduction(how()?);
            loss.forward(x(0)?, x(1)?, x(2)?)?
        }
        "MultiMarginLoss" => {
            let p = call.size(NAMED, "p", 1)? as u8;
            let mut loss = MultiMarginLoss::new().p(p).margin(margin(1.0)?).reduction(how()?);
            if let Some(weight) = call.optional_tensor(NAMED, "weight")? {
                loss = loss.weight(weight.clone());
            }
            loss.forward(x(0)?, x(1)?)?
        }
        "MultiLabelMarginLoss" => MultiLabelMarginLoss::new().reduction(how()?).forward(x(0)?, x(1)?)?,
        "MultiLabelSoftMarginLoss" => {
            let mut loss = MultiLabelSoftMarginLoss::new().reduction(how()?);
            if let Some(weight) = call.optional_tensor(NAMED, "weight")? {
                loss = loss.weight(weight.clone());
            }
            loss.forward(x(0)?, x(1)?)?
        }
        "PoissonNLLLoss" => {
            let loss = PoissonNLLLoss::new()
                .log_input(call.flag(NAMED, "log_input", true)?)
                .full(call.flag(NAMED, "full", false)?)
                .eps(call.float(NAMED, "eps", 1e-8)?)
                .reduction(how()?);
            loss.forward(x(0)?, x(1)?)?
        }
        "GaussianNLLLoss" => {
            let loss = GaussianNLLLoss::new()
                .full(call.flag(NAMED, "full", false)?)
                .eps(call.float(NAMED, "eps", 1e-6)?)
                .reduction(how()?);
            loss.forward(x(0)?, x(1)?, x(2)?)?
        }
        "CTCLoss" => return ctc(call, how()?),
        _ => return Err(CaseError::OtherFamily),
    })
}

pub(super) fn answer<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let Some(name) = call.op().strip_prefix("nn.") else {
        return Err(CaseError::OtherFamily);
    };
    let pair = || Ok::<_, CaseError>((call.tensor(0, "input")?, call.tensor(1, "target")?));
    match name.strip_prefix("functional.").unwrap_or(name) {
        "cross_entropy" | "CrossEntropyLoss" => {
            let (x, y) = pair()?;
            one(cross_entropy_loss(call, [2, 3, 4, 5, 6, 7])?.forward(x, y)?)
        }
        "linear_cross_entropy" => linear_cross_entropy(call),
        "nll_loss" | "NLLLoss" => nll(call, pair()?),
        "binary_cross_entropy" | "BCELoss" => bce(call, pair()?),
        "binary_cross_entropy_with_logits" | "BCEWithLogitsLoss" => bce_with_logits(call, pair()?),
        "kl_div" | "KLDivLoss" => kl_div(call, pair()?),
        "mse_loss" | "MSELoss" => one(MSELoss::new()
            .reduction(reduction(call, 2, 3, 4)?)
            .forward(pair()?.0, pair()?.1)?),
        "l1_loss" | "L1Loss" => one(L1Loss::new()
            .reduction(reduction(call, 2, 3, 4)?)
            .forward(pair()?.0, pair()?.1)?),
        "smooth_l1_loss" | "SmoothL1Loss" => {
            let beta = call.float(5, "beta", 1.0)?;
            one(SmoothL1Loss::new()
                .beta(beta)
                .reduction(reduction(call, 2, 3, 4)?)
                .forward(pair()?.0, pair()?.1)?)
        }
        "huber_loss" | "HuberLoss" => {
            let delta = call.float(3, "delta", 1.0)?;
            one(HuberLoss::new()
                .delta(delta)
                .reduction(reduction(call, 9, 9, 2)?)
                .forward(pair()?.0, pair()?.1)?)
        }
        name => of_class(name, call),
    }
}
