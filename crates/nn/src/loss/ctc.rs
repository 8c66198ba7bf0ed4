//! Connectionist temporal classification.

use polygrad_tensor::{Backend, DType, Device, Error, Result, Shape, Tensor};

use super::Reduction;
use super::common::{loss, misfit};

const OP: &str = "ctc_loss";

/// The logarithm of a probability of 0. Unlike minus infinity, it can be multiplied by 0 and subtracted from itself.
/// Even a sum of many logarithms of real probabilities stays far above it.
const NEVER: f64 = -1e30;

loss! {
    /// Minus the log probability of a sequence of labels, over all its alignments to the time steps. A step emits a
    /// label or the blank, a label may be repeated over several steps, and a blank separates two equal labels. As in
    /// PyTorch, the mean is of losses divided by the number of labels (by 1 if there are none). Labels that no
    /// alignment fits have an infinite loss, with a gradient of 0 (PyTorch: NaN).
    ///
    /// The gradient is with respect to the log probabilities. PyTorch's is with respect to the logits before a log
    /// softmax; behind a log softmax the two agree.
    ///
    /// Source: Graves et al., "Connectionist temporal classification: labelling unsegmented sequence data with
    /// recurrent neural networks" (2006).
    #[derive(Clone, Copy, Debug)]
    CTCLoss, ctc_loss(log_probs, targets, input_lengths: &[usize], target_lengths: &[usize]);
    /// The class of the blank.
    blank: usize = 0;
    /// Whether an infinite loss counts as 0.
    zero_infinity: bool = false;
}

impl CTCLoss {
    /// The loss of log probabilities `[T, N, C]` against padded i64 labels `[N, S]`. The lengths say how many steps and
    /// labels each of the N sequences has; anything after them is ignored. Labels without padding are concatenated
    /// along one axis. A single sequence may omit the batch axis: `[T, C]` against `[S]`.
    ///
    /// # Errors
    /// When shapes or dtypes do not fit, a length is too large, or a label is out of range.
    pub fn forward<B: Backend>(
        &self,
        log_probs: &Tensor<B>,
        targets: &Tensor<B>,
        input_lengths: &[usize],
        target_lengths: &[usize],
    ) -> Result<Tensor<B>> {
        if (log_probs.rank(), targets.rank()) == (2, 1) {
            let (log_probs, targets) = (log_probs.unsqueeze(1)?, targets.unsqueeze(0)?);
            let loss = self.forward(&log_probs, &targets, input_lengths, target_lengths)?;
            return loss.reshape(Shape::SCALAR);
        }
        if (log_probs.rank(), targets.rank()) == (3, 1) {
            let targets = padded(targets, target_lengths)?;
            return self.forward(log_probs, &targets, input_lengths, target_lengths);
        }
        let (&[steps, batch, classes], &[rows, labels]) = (&log_probs.dims()[..], &targets.dims()[..]) else {
            let text = "takes log probabilities [T, N, C] and targets [N, S] or in a row, or [T, C] and [S]";
            return Err(misfit(OP, &[log_probs, targets], text));
        };
        let fits = |lengths: &[usize], most| lengths.len() == batch && lengths.iter().all(|&length| length <= most);
        if rows != batch || !fits(input_lengths, steps) || !fits(target_lengths, labels) {
            let text = format!(
                "there are {batch} sequences of {steps} steps, targets for {rows} of {labels} labels, input lengths \
                 {input_lengths:?} and target lengths {target_lengths:?}"
            );
            return Err(misfit(OP, &[log_probs, targets], text));
        }
        if self.blank >= classes {
            let text = format!("the blank is {} of {classes} classes", self.blank);
            return Err(Error::out_of_range(text).with_op(OP));
        }
        if targets.dtype() != DType::I64 {
            return Err(Error::dtype(format!("labels are i64, not {}", targets.dtype()))
                .with_op(OP)
                .with_hint("convert the targets with to_dtype(DType::I64)"));
        }
        Tensor::in_full([log_probs], |[log_probs]| {
            let log_p = self.log_likelihoods(log_probs, targets, input_lengths, target_lengths)?;
            let impossible = log_p.lt(NEVER / 2.0)?;
            let none = if self.zero_infinity { 0.0 } else { f64::INFINITY };
            let losses = log_p.neg()?.masked_fill(&impossible, none)?;
            if self.reduction != Reduction::Mean {
                return self.reduction.apply(losses);
            }
            let counts: Vec<f64> = target_lengths.iter().map(|&length| length.max(1) as f64).collect();
            let counts = Tensor::from_vec(counts, [batch], &losses.device())?.to_dtype(losses.dtype())?;
            losses.div(&counts)?.mean_all()
        })
        .map_err(|e| e.with_op(OP))
    }

    /// The log probability of each sequence's labels, `[N]`, by the forward variables of Graves et al., section 4.1.
    fn log_likelihoods<B: Backend>(
        &self,
        log_probs: &Tensor<B>,
        targets: &Tensor<B>,
        input_lengths: &[usize],
        target_lengths: &[usize],
    ) -> Result<Tensor<B>> {
        let (device, dtype) = (log_probs.device(), log_probs.dtype());
        let (steps, batch, labels) = (log_probs.dims()[0], targets.dims()[0], targets.dims()[1]);
        let states = 2 * labels + 1;
        // Inserts a blank before each label and at the end.
        let behind = mask(batch, labels, &device, |row, at| at >= target_lengths[row])?;
        let blank = self.blank as i64;
        let targets = targets.masked_fill(&behind, blank)?.unsqueeze(2)?;
        let path = Tensor::cat(&[&targets.full_like(blank)?, &targets], 2)?.reshape([batch, 2 * labels])?;
        let path = Tensor::cat(&[&path, &Tensor::full([batch, 1], blank, &device)?], 1)?;
        let told = log_probs.gather(2, &path.unsqueeze(0)?.expand([steps, batch, states])?)?;
        let told = told.clamp(Some(NEVER), None)?;
        // A path may skip the blank between two different labels, but not between equal ones.
        let before = path.pad(&[(0, 0), (2, 0)], blank)?.narrow(1, 0, states)?;
        let stays = path.eq(blank)?.logical_or(&path.eq(&before)?)?;
        // The start state before the first step: from it a path may go on to its first blank or its first label.
        let start = mask(batch, states, &device, |_, state| state > 0)?;
        let mut alpha = Tensor::zeros([batch, states], (&device, dtype))?.masked_fill(&start, NEVER)?;
        for step in 0..steps {
            let padded = alpha.pad(&[(0, 0), (2, 0)], NEVER)?;
            let skipped = padded.narrow(1, 0, states)?.masked_fill(&stays, NEVER)?;
            let moved = alpha.logaddexp(&padded.narrow(1, 1, states)?)?.logaddexp(&skipped)?;
            let next = moved.add(&told.select(0, step as isize)?)?;
            alpha = if input_lengths.iter().all(|&length| step < length) {
                next
            } else {
                let over = mask(batch, 1, &device, |row, _| step >= input_lengths[row])?;
                Tensor::where_(&over, &alpha, &next)?
            };
        }
        // A path ends with the last label or with the blank after it.
        let end = |back: usize| {
            let ends = target_lengths
                .iter()
                .map(|&length| (2 * length).saturating_sub(back) as i64);
            alpha
                .gather(1, &Tensor::from_vec(ends.collect::<Vec<_>>(), [batch, 1], &device)?)?
                .squeeze(1)
        };
        let empty = mask(batch, 1, &device, |row, _| target_lengths[row] == 0)?.squeeze(1)?;
        end(0)?.logaddexp(&end(1)?.masked_fill(&empty, NEVER)?)
    }
}

/// The concatenated labels of all sequences as rows of equal length.
fn padded<B: Backend>(targets: &Tensor<B>, lengths: &[usize]) -> Result<Tensor<B>> {
    let total = targets.dims()[0];
    let sum = lengths.iter().try_fold(0_usize, |sum, &length| sum.checked_add(length));
    if sum != Some(total) {
        let text = format!("there are {total} labels, and target lengths {lengths:?}");
        return Err(misfit(OP, &[targets], &text));
    }
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let begins = lengths.iter().scan(0, |next, length| {
        let begin = *next;
        *next += length;
        Some(begin)
    });
    // The end of a shorter row is filled with arbitrary labels.
    let places = begins.flat_map(|begin| (begin..begin + longest).map(|place| place.min(total - 1) as i64));
    let places = Tensor::from_vec(places.collect::<Vec<_>>(), [lengths.len() * longest], &targets.device())?;
    targets.gather(0, &places)?.reshape([lengths.len(), longest])
}

/// A bool mask `[rows, columns]` of a condition on the row and the column.
fn mask<B: Backend>(
    rows: usize,
    columns: usize,
    device: &Device<B>,
    holds: impl Fn(usize, usize) -> bool,
) -> Result<Tensor<B>> {
    let holds = &holds;
    let values = (0..rows).flat_map(|row| (0..columns).map(move |column| holds(row, column)));
    Tensor::from_vec(values.collect::<Vec<_>>(), [rows, columns], device)
}
