//! Batches of sequences of different lengths.

use polygrad_tensor::{Backend, Device, Error, Result, Tensor};

use super::state::RecurrentState;

/// Which steps belong to which sequence of a batch.
pub(super) struct Lengths<B: Backend> {
    /// Number of steps of the longest sequence.
    pub(super) longest: usize,
    /// `[longest, N, 1]`: whether a step lies within a sequence.
    inside: Tensor<B>,
    /// The rows of `inside`; `None` for a step that lies within all sequences.
    steps: Vec<Option<Tensor<B>>>,
}

impl<B: Backend> Lengths<B> {
    /// # Errors
    /// When there is not one length for each of `batch` sequences, or one is 0 or above `steps`.
    pub(super) fn new(lengths: &[usize], steps: usize, batch: usize, device: &Device<B>) -> Result<Self> {
        if lengths.len() != batch {
            return Err(Error::shape(format!(
                "{} lengths for a batch of {batch} sequences",
                lengths.len()
            )));
        }
        if let Some((i, length)) = lengths.iter().enumerate().find(|(_, l)| !(1..=steps).contains(*l)) {
            return Err(Error::out_of_range(format!(
                "sequence {i} has length {length}, which is outside 1..={steps}"
            )));
        }
        let longest = lengths.iter().copied().max().unwrap_or(steps);
        let flags = (0..longest).flat_map(|t| lengths.iter().map(move |&length| t < length));
        let inside = Tensor::from_vec::<bool>(flags.collect(), [longest, batch, 1], device)?;
        let shortest = lengths.iter().copied().min().unwrap_or(longest);
        let rows = inside.unbind(0)?.into_iter().enumerate();
        let steps = rows.map(|(t, row)| (t >= shortest).then_some(row)).collect();
        Ok(Self { longest, inside, steps })
    }

    /// An input `[T, N, C]` with its padding set to 0: no value of the padding, not even NaN, may get into a gradient.
    pub(super) fn cut(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let x = x.narrow(0, 0, self.longest)?;
        if self.steps.iter().all(Option::is_none) {
            return Ok(x);
        }
        Tensor::where_(&self.inside, &x, &blank(&x)?)
    }

    /// The state after step `t`, and its output. Sequences that ended before this step keep their state and output 0.
    ///
    /// Thus a forward pass stops at each sequence's own end, and a reverse one begins there, with the initial state.
    pub(super) fn keep<S: RecurrentState<B>>(&self, t: usize, old: &S, new: S) -> Result<(S, Tensor<B>)> {
        let Some(Some(inside)) = self.steps.get(t) else {
            let output = new.hidden().clone();
            return Ok((new, output));
        };
        let output = Tensor::where_(inside, new.hidden(), &blank(new.hidden())?)?;
        let state = S::merge(&[&new, old], |parts| Tensor::where_(inside, parts[0], parts[1]))?;
        Ok((state, output))
    }
}

fn blank<B: Backend>(x: &Tensor<B>) -> Result<Tensor<B>> {
    Tensor::full((), 0.0, (&x.device(), x.dtype()))
}
