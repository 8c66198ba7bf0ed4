//! Gradients that are the sum of several contributions.

use polygrad_core::{Backend, Result};

use crate::Tensor;
use crate::ops::context;

/// The gradient of one node: a sum, plus slices that are zero outside a range of one axis.
pub(crate) struct Accumulated<B: Backend> {
    whole: Option<Tensor<B>>,
    stretches: Option<Stretches<B>>,
}

/// Slices along one axis, joined once all have arrived. Padding and adding each one would cost as much per slice as
/// joining costs for all.
struct Stretches<B: Backend> {
    axis: usize,
    /// The whole extent of the axis.
    dim: usize,
    /// The start of each slice, and the slice.
    parts: Vec<(usize, Tensor<B>)>,
    /// The sum of their lengths; an empty slice counts as 1.
    held: usize,
}

/// Slices are joined once their total length exceeds this many times the whole extent: otherwise overlapping slices
/// could take any amount of memory.
const MAX_WHOLES: usize = 2;

impl<B: Backend> Accumulated<B> {
    pub(crate) fn whole(gradient: Tensor<B>) -> Self {
        Self {
            whole: Some(gradient),
            stretches: None,
        }
    }

    /// `part` from `start` on along an axis of extent `dim`, and zeros elsewhere.
    pub(crate) fn stretch(axis: usize, dim: usize, start: usize, part: Tensor<B>) -> Self {
        let held = part.shape()[axis].max(1);
        let parts = vec![(start, part)];
        Self {
            whole: None,
            stretches: Some(Stretches { axis, dim, parts, held }),
        }
    }

    pub(crate) fn add(&mut self, other: Self) -> Result<()> {
        if let Some(gradient) = other.whole {
            self.add_whole(gradient)?;
        }
        let Some(new) = other.stretches else {
            return Ok(());
        };
        match self.stretches.take() {
            Some(known) if known.axis != new.axis || known.held > MAX_WHOLES * known.dim => {
                self.add_joined(known)?;
                self.stretches = Some(new);
            }
            Some(mut known) => {
                known.parts.extend(new.parts);
                known.held += new.held;
                self.stretches = Some(known);
            }
            None => self.stretches = Some(new),
        }
        Ok(())
    }

    /// The sum of all contributions.
    pub(crate) fn complete(mut self) -> Result<Tensor<B>> {
        if let Some(stretches) = self.stretches.take() {
            self.add_joined(stretches)?;
        }
        Ok(self.whole.expect("there is a contribution"))
    }

    fn add_whole(&mut self, gradient: Tensor<B>) -> Result<()> {
        match &mut self.whole {
            Some(sum) => add_to(sum, gradient),
            none => {
                *none = Some(gradient);
                Ok(())
            }
        }
    }

    fn add_joined(&mut self, mut stretches: Stretches<B>) -> Result<()> {
        stretches.parts.sort_by_key(|&(start, _)| start);
        while !stretches.parts.is_empty() {
            let gradient = stretches.join().map_err(|e| e.with_op("backward of slice"))?;
            self.add_whole(gradient)?;
        }
        Ok(())
    }
}

impl<B: Backend> Stretches<B> {
    /// Joins slices that do not overlap, with zeros between them; the others stay.
    fn join(&mut self) -> Result<Tensor<B>> {
        let (axis, dim) = (self.axis, self.dim);
        let (mut row, mut others, mut end) = (Vec::with_capacity(self.parts.len()), Vec::new(), 0);
        for (start, part) in self.parts.drain(..) {
            if start < end {
                others.push((start, part));
            } else {
                end = start + part.shape()[axis];
                row.push((start, part));
            }
        }
        self.parts = others;
        if let [(start, part)] = &row[..] {
            let mut padding = vec![(0, 0); part.rank()];
            padding[axis] = (*start, dim - end);
            return part.pad(&padding, 0.0);
        }
        let (mut joined, mut reached) = (Vec::with_capacity(row.len() + 1), 0);
        for (start, part) in row {
            joined.extend(zeros(&part, axis, start - reached)?);
            reached = start + part.shape()[axis];
            joined.push(part);
        }
        joined.extend(zeros(&joined[0], axis, dim - end)?);
        Tensor::cat(&joined.iter().collect::<Vec<_>>(), axis as isize)
    }
}

/// Zeros with extent `len` along an axis, and otherwise like `like`; `None` if `len` is 0.
fn zeros<B: Backend>(like: &Tensor<B>, axis: usize, len: usize) -> Result<Option<Tensor<B>>> {
    let shape = like.shape().with_dim(axis, len);
    let zeros = || Tensor::full(shape, 0.0, (&like.device(), like.dtype()));
    (len > 0).then(zeros).transpose()
}

/// Adds in place, unless one of the two is tracked.
pub(crate) fn add_to<B: Backend>(sum: &mut Tensor<B>, gradient: Tensor<B>) -> Result<()> {
    if sum.is_tracked() || gradient.is_tracked() {
        *sum = sum.add(&gradient)?;
    } else {
        // The backend adds in place if the memory has no other owner, so the old handle is dropped first.
        let old = std::mem::replace(&mut sum.value, gradient.value.clone());
        sum.value =
            B::accumulate_grad(old, &gradient.value).map_err(|e| context(e, "accumulate_grad", &[&gradient]))?;
    }
    Ok(())
}
