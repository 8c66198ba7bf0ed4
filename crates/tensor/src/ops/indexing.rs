//! `x.i(…)` and `x.set_i(…)`: indexing and assignment, as with brackets in Python.

use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use polygrad_core::{Backend, DType, Error, ErrorKind, Result, SliceRange};

use super::context;
use crate::graph::is_grad_enabled;
use crate::{AnyBackend, Operand, Tensor};

/// What to take from one axis.
///
/// Integers of every type, ranges of them, and tensors convert to it.
#[derive(Clone, Debug)]
pub enum Index<B: Backend = AnyBackend> {
    /// One position; the axis is removed. Negative positions count from the back.
    At(isize),
    /// From start (default: the beginning) to end (default: the end), in steps of a positive number; negative bounds
    /// count from the back. As with Rust's slices, and unlike in Python, a bound beyond the axis and an end before the
    /// start are errors.
    Range(Option<isize>, Option<isize>, usize),
    /// The positions in a tensor of integers, whose shape replaces the axis; or the positions where a tensor of bool is
    /// true, which indexes as many axes as it has. Several such tensors are broadcast and used together, as in PyTorch.
    Tensor(Tensor<B>),
    /// All axes that are not indexed otherwise: Python's `...`.
    Ellipsis,
    /// A new axis of extent 1: Python's `None`.
    NewAxis,
}

/// Converts an integer to a position. An integer that does not fit an `isize` becomes a position outside every axis.
fn position<T: TryInto<isize>>(at: T) -> isize {
    at.try_into().unwrap_or(isize::MAX)
}

macro_rules! from_integers {
    ($($type:ty)*) => {$(
        impl<B: Backend> From<$type> for Index<B> {
            fn from(at: $type) -> Self {
                Self::At(position(at))
            }
        }

        impl<B: Backend> From<Range<$type>> for Index<B> {
            fn from(range: Range<$type>) -> Self {
                Self::Range(Some(position(range.start)), Some(position(range.end)), 1)
            }
        }

        impl<B: Backend> From<RangeFrom<$type>> for Index<B> {
            fn from(range: RangeFrom<$type>) -> Self {
                Self::Range(Some(position(range.start)), None, 1)
            }
        }

        impl<B: Backend> From<RangeTo<$type>> for Index<B> {
            fn from(range: RangeTo<$type>) -> Self {
                Self::Range(None, Some(position(range.end)), 1)
            }
        }

        impl<B: Backend> From<RangeInclusive<$type>> for Index<B> {
            fn from(range: RangeInclusive<$type>) -> Self {
                Self::Range(Some(position(*range.start())), after(position(*range.end())), 1)
            }
        }

        impl<B: Backend> From<RangeToInclusive<$type>> for Index<B> {
            fn from(range: RangeToInclusive<$type>) -> Self {
                Self::Range(None, after(position(range.end)), 1)
            }
        }
    )*};
}

from_integers! { i8 i16 i32 i64 isize u8 u16 u32 u64 usize }

/// The exclusive bound after an inclusive one; `None` after -1, the last position.
fn after(last: isize) -> Option<isize> {
    last.checked_add(1).filter(|&end| end != 0)
}

impl<B: Backend> From<RangeFull> for Index<B> {
    fn from(_: RangeFull) -> Self {
        Self::Range(None, None, 1)
    }
}

impl<B: Backend> From<&Tensor<B>> for Index<B> {
    fn from(tensor: &Tensor<B>) -> Self {
        Self::Tensor(tensor.clone())
    }
}

impl<B: Backend> From<Tensor<B>> for Index<B> {
    fn from(tensor: Tensor<B>) -> Self {
        Self::Tensor(tensor)
    }
}

impl<B: Backend> Index<B> {
    /// Every `step`-th element of a range.
    #[must_use]
    pub fn step_by(self, step: usize) -> Self {
        match self {
            Self::Range(start, end, _) => Self::Range(start, end, step),
            other => other,
        }
    }

    /// The number of axes that it indexes.
    fn axes(&self) -> usize {
        match self {
            Self::At(_) | Self::Range(..) => 1,
            Self::Tensor(mask) if mask.dtype() == DType::Bool => mask.rank(),
            Self::Tensor(_) => 1,
            Self::Ellipsis | Self::NewAxis => 0,
        }
    }
}

/// Resolves a position on an axis, which may count from the back.
fn resolve_at(at: isize, axis: usize, dim: usize) -> Result<SliceRange> {
    let from_front = if at < 0 { at.saturating_add_unsigned(dim) } else { at };
    if from_front < 0 || from_front as usize >= dim {
        return Err(Error::out_of_range(format!(
            "index {at} is outside axis {axis} of extent {dim}"
        )));
    }
    Ok(SliceRange::new(from_front as usize, 1, 1))
}

fn resolve_range(
    (start, end, step): (Option<isize>, Option<isize>, usize),
    axis: usize,
    dim: usize,
) -> Result<SliceRange> {
    if step == 0 {
        return Err(Error::invalid(format!("a step of 0 on axis {axis}")));
    }
    let shown = |bound: Option<isize>| bound.map_or_else(String::new, |bound| bound.to_string());
    let wrong = |what: &str| {
        let range = format!("{}..{}", shown(start), shown(end));
        Error::out_of_range(format!("range {range} {what} axis {axis} of extent {dim}"))
    };
    let bound = |bound: isize| {
        let from_front = if bound < 0 {
            bound.saturating_add_unsigned(dim)
        } else {
            bound
        };
        let inside = usize::try_from(from_front).ok().filter(|&at| at <= dim);
        inside.ok_or_else(|| wrong("is not within").with_hint("cut it to the axis first, as with end.min(extent)"))
    };
    let (first, behind) = (start.map_or(Ok(0), bound)?, end.map_or(Ok(dim), bound)?);
    let len = behind
        .checked_sub(first)
        .ok_or_else(|| wrong("ends before it begins on"))?
        .div_ceil(step);
    let start = first;
    Ok(SliceRange::new(start, len, isize::try_from(step).unwrap_or(isize::MAX)))
}

/// One to eight values that convert to [`Index`]: `x.i(1)`, `x.i((0, 2..5))`, `x.i((.., -1))`,
/// `x.i((&rows, &columns))`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no index of a tensor on the backend `{B}`",
    label = "takes integers, ranges, tensors of i64 or bool, and tuples of these",
    note = "the result of an op is a `Result`: put `?` behind it"
)]
pub trait IntoIndex<B: Backend = AnyBackend> {
    /// One entry for each of the leading axes.
    fn into_index(self) -> Vec<Index<B>>;
}

// Without this, the compiler's error would list every type that converts to an `Index`.
#[diagnostic::do_not_recommend]
impl<B: Backend, I: Into<Index<B>>> IntoIndex<B> for I {
    fn into_index(self) -> Vec<Index<B>> {
        vec![self.into()]
    }
}

impl<B: Backend> IntoIndex<B> for &[Index<B>] {
    fn into_index(self) -> Vec<Index<B>> {
        self.to_vec()
    }
}

macro_rules! tuple_index {
    ($(($($name:ident)*))*) => {$(
        #[allow(non_snake_case, reason = "a type parameter names its value")]
        impl<Own: Backend, $($name: Into<Index<Own>>),*> IntoIndex<Own> for ($($name,)*) {
            fn into_index(self) -> Vec<Index<Own>> {
                let ($($name,)*) = self;
                vec![$($name.into()),*]
            }
        }
    )*};
}

tuple_index! { (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H) }

/// An index, resolved for one tensor.
struct Selection<B: Backend> {
    /// The range of each axis, sliced before index tensors are applied.
    ranges: Vec<SliceRange>,
    /// Axes that are removed, since one position is taken.
    gone: Vec<usize>,
    /// The axes after slicing, without the removed ones.
    axes: Vec<Axis<B>>,
}

struct Axis<B: Backend> {
    extent: usize,
    /// The tensor's axis that it comes from, or the last of several; `None` for a new axis.
    source: Option<usize>,
    picks: Option<Tensor<B>>,
}

impl<B: Backend> Axis<B> {
    fn kept(axis: usize, ranges: &[SliceRange]) -> Self {
        Self {
            extent: ranges[axis].len,
            source: Some(axis),
            picks: None,
        }
    }
}

impl<B: Backend> Selection<B> {
    fn new(tensor: &Tensor<B>, index: Vec<Index<B>>) -> Result<Self> {
        let shape = tensor.shape();
        let taken: usize = index.iter().map(Index::axes).sum();
        let Some(rest) = shape.rank().checked_sub(taken) else {
            return Err(Error::out_of_range(format!(
                "{taken} indices for {} axes",
                shape.rank()
            )));
        };
        let mut ranges: Vec<_> = shape.iter().map(|&dim| SliceRange::full(dim)).collect();
        let (mut gone, mut axes) = (Vec::new(), Vec::with_capacity(shape.rank()));
        let (mut axis, mut rest) = (0, Some(rest));
        for entry in index {
            let next = axis + entry.axes();
            match entry {
                Index::At(at) => {
                    ranges[axis] = resolve_at(at, axis, shape[axis])?;
                    gone.push(axis);
                }
                Index::Range(start, end, step) => {
                    ranges[axis] = resolve_range((start, end, step), axis, shape[axis])?;
                    axes.push(Axis::kept(axis, &ranges));
                }
                Index::NewAxis => axes.push(Axis {
                    extent: 1,
                    source: None,
                    picks: None,
                }),
                Index::Ellipsis => {
                    let Some(rest) = rest.take() else {
                        return Err(Error::invalid("an index holds more than one ellipsis"));
                    };
                    axes.extend((axis..axis + rest).map(|axis| Axis::kept(axis, &ranges)));
                    axis += rest;
                    continue;
                }
                Index::Tensor(picks) => {
                    let extent = shape[axis..next].iter().product();
                    let picks = positions_of(&picks, tensor, &shape[axis..next])?;
                    let source = (next > axis).then(|| next - 1);
                    axes.push(Axis {
                        extent,
                        source,
                        picks: Some(picks),
                    });
                }
            }
            axis = next;
        }
        axes.extend((axis..shape.rank()).map(|axis| Axis::kept(axis, &ranges)));
        Ok(Self { ranges, gone, axes })
    }

    fn extents(&self) -> Vec<usize> {
        self.axes.iter().map(|axis| axis.extent).collect()
    }

    /// The axes that index tensors index, and the position of the result's axes: in place if those axes are adjacent,
    /// else at the front.
    fn picked(&self) -> (Vec<usize>, usize) {
        let picked: Vec<_> = (0..self.axes.len()).filter(|&i| self.axes[i].picks.is_some()).collect();
        let neighbours = picked.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        let front = if neighbours {
            picked.first().copied().unwrap_or(0)
        } else {
            0
        };
        (picked, front)
    }

    /// The linear positions that the index tensors name, for the given strides of their axes. An index that is out of
    /// range becomes `outside`, if given.
    fn linear(&self, picked: &[usize], strides: &[i64], outside: Option<i64>) -> Result<Option<Tensor<B>>> {
        let mut linear: Option<Tensor<B>> = None;
        let mut wrong: Option<Tensor<B>> = None;
        for (&axis, &stride) in picked.iter().zip(strides) {
            let Axis {
                extent,
                picks: Some(picks),
                ..
            } = &self.axes[axis]
            else {
                continue;
            };
            let extent = *extent as i64;
            let from_front = Tensor::where_(&picks.lt(0)?, &picks.add(extent)?, picks)?;
            if outside.is_some() {
                let beyond = from_front.lt(0)?.logical_or(&from_front.ge(extent)?)?;
                wrong = Some(match wrong {
                    Some(wrong) => wrong.logical_or(&beyond)?,
                    None => beyond,
                });
            }
            let steps = if stride == 1 {
                from_front
            } else {
                from_front.mul(stride)?
            };
            linear = Some(match linear {
                Some(linear) => linear.add(&steps)?,
                None => steps,
            });
        }
        match (linear, wrong, outside) {
            (Some(linear), Some(wrong), Some(outside)) => linear.masked_fill(&wrong, outside).map(Some),
            (linear, ..) => Ok(linear),
        }
    }

    /// Turns an error about linear positions into one about the first index that is out of range.
    #[cold]
    fn blame(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::OutOfRange {
            return error;
        }
        for axis in &self.axes {
            let (Some(picks), Some(source), extent) = (&axis.picks, axis.source, axis.extent as i64) else {
                continue;
            };
            let positions = picks.to_vec::<i64>().unwrap_or_default();
            if let Some(at) = positions.into_iter().find(|at| !(-extent..extent).contains(at)) {
                let text = format!("index {at} is outside axis {source} of extent {extent}");
                return Error::out_of_range(text);
            }
        }
        error
    }
}

/// The positions, as i64, that an index tensor names on the axes that it indexes.
fn positions_of<B: Backend>(picks: &Tensor<B>, indexed: &Tensor<B>, dims: &[usize]) -> Result<Tensor<B>> {
    if picks.dtype() != DType::Bool {
        return picks.checked_index(indexed);
    }
    indexed.check_device(picks)?;
    if picks.shape().dims() != dims {
        return Err(Error::shape(format!(
            "a mask of shape {} does not fit axes of extents {dims:?}",
            picks.shape()
        )));
    }
    picks.flatten(0, -1)?.nonzero()?.flatten(0, -1)
}

impl<B: Backend> Tensor<B> {
    /// Indexes the leading axes, as Python's `x[0, 2:5]`: by integers and ranges, which give a view, and by tensors
    /// of integers or bool.
    ///
    /// ```
    /// # use polygrad_reference::Reference;
    /// # use polygrad_tensor::{Device, Index, Tensor};
    /// # fn main() -> polygrad_tensor::Result<()> {
    /// # let device = Device::<Reference>::default();
    /// let x = Tensor::new([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], &device)?;
    /// assert_eq!(x.i((.., -1))?.to_vec::<f32>()?, [3.0, 6.0]);
    /// assert_eq!(x.i((1, ..2))?.to_vec::<f32>()?, [4.0, 5.0]);
    /// assert_eq!(x.i((Index::Ellipsis, 0))?.to_vec::<f32>()?, [1.0, 4.0]);
    /// assert_eq!(x.i(&x.gt(4.0)?)?.to_vec::<f32>()?, [5.0, 6.0]);
    /// let (rows, columns) = (Tensor::new([0, 1], &device)?, Tensor::new([2, 0], &device)?);
    /// assert_eq!(x.i((&rows, &columns))?.to_vec::<f32>()?, [3.0, 4.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When there are more entries than axes, a position or a bound is out of range, a range ends before it begins, a
    /// step is 0, a mask has another shape than its axes, or index tensors do not broadcast.
    pub fn i(&self, index: impl IntoIndex<B>) -> Result<Self> {
        self.indexed(index.into_index())
            .map_err(|e| context(e, "index", &[self]))
    }

    pub(super) fn indexed(&self, index: Vec<Index<B>>) -> Result<Self> {
        let selection = Selection::new(self, index)?;
        let extents = selection.extents();
        let mut cut = self.slice(&selection.ranges)?;
        if cut.shape().dims() != extents {
            cut = cut.reshape(extents.as_slice())?;
        }
        let (picked, front) = selection.picked();
        let Some((&first, &last)) = picked.first().zip(picked.last()) else {
            return Ok(cut);
        };
        let of_picked: Vec<_> = picked.iter().map(|&axis| extents[axis]).collect();
        let strides = row_major(&of_picked);
        let total: usize = of_picked.iter().product();
        // A single index tensor is checked by the op itself.
        let outside = (picked.len() > 1).then_some(total as i64);
        let Some(linear) = selection.linear(&picked, &strides, outside)? else {
            return Ok(cut);
        };
        if last - first >= picked.len() {
            let others = (0..extents.len()).filter(|axis| !picked.contains(axis));
            let order: Vec<_> = picked.iter().copied().chain(others).map(|axis| axis as isize).collect();
            cut = cut.permute(&order)?;
        }
        let dims = cut.dims();
        let (before, behind) = (&dims[..front], &dims[front + picked.len()..]);
        let lines = cut.reshape([before, &[total], behind].concat())?;
        lines
            .index_select(front as isize, &linear.flatten(0, -1)?)
            .map_err(|e| selection.blame(e))?
            .reshape([before, linear.shape().dims(), behind].concat())
    }

    /// This tensor with the elements that [`Tensor::i`] would take replaced by `value`, which is broadcast and
    /// converted to this tensor's dtype. Gradients flow to both. If an index names an element twice, any of the values
    /// may win, and gradients are then undefined.
    ///
    /// # Errors
    /// As [`Tensor::i`]; when the value cannot be broadcast to the indexed part, or is on another device.
    pub fn index_put(&self, index: impl IntoIndex<B>, value: impl Operand<B>) -> Result<Self> {
        self.put(index.into_index(), value, Self::scatter)
            .map_err(|e| context(e, "index_put", &[self]))
    }

    /// [`Tensor::index_put`] that adds to the elements. If several values are added to the same element, all count.
    ///
    /// # Errors
    /// As [`Tensor::index_put`].
    pub fn index_put_accumulate(&self, index: impl IntoIndex<B>, value: impl Operand<B>) -> Result<Self> {
        self.put(index.into_index(), value, Self::scatter_add)
            .map_err(|e| context(e, "index_put_accumulate", &[self]))
    }

    /// Assigns to a part of this tensor, as Python's `x[0, 2:5] = value`. Other tensors that share its values keep
    /// them. Gradients flow as with [`Tensor::index_put`]. If no gradient is needed and the part is a range along one
    /// axis, the backend may write in place, provided that the memory is not shared.
    ///
    /// ```
    /// # use polygrad_reference::Reference;
    /// # use polygrad_tensor::{Device, Tensor};
    /// # fn main() -> polygrad_tensor::Result<()> {
    /// # let device = Device::<Reference>::default();
    /// let mut x = Tensor::zeros([2, 3], &device)?;
    /// x.set_i((0, 1..), 1.0)?;
    /// x.set_i((.., 0), &Tensor::new([5.0, 6.0], &device)?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [5.0, 1.0, 1.0, 6.0, 0.0, 0.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::index_put`]; for a leaf that requires a gradient, unless gradients are off (`no_grad`).
    pub fn set_i(&mut self, index: impl IntoIndex<B>, value: impl Operand<B>) -> Result<()> {
        if self.is_leaf() && is_grad_enabled() {
            let error = Error::invalid("a leaf that requires a gradient cannot be changed in place");
            let error = error.with_hint("change it in no_grad, or take index_put, which gives a new tensor");
            return Err(context(error, "set_i", &[self]));
        }
        let fail = |e, x: &Self| context(e, "set_i", &[x]);
        let index = index.into_index();
        let value = value.beside(self).map_err(|e| fail(e, self))?;
        if self.write_stretch(&index, &value).map_err(|e| fail(e, self))? {
            return Ok(());
        }
        let changed = self.put(index, &value, Self::scatter).map_err(|e| fail(e, self))?;
        if self.is_leaf() {
            return self.set(&changed);
        }
        *self = changed;
        Ok(())
    }

    /// Assigns in place if the index is a contiguous range of one axis and all of the others, and no gradient is
    /// needed. Returns whether it did.
    fn write_stretch(&mut self, index: &[Index<B>], value: &Self) -> Result<bool> {
        let picks = index.iter().any(|index| matches!(index, Index::Tensor(_)));
        if picks || self.node.is_some() || value.node.is_some() {
            return Ok(false);
        }
        self.check_device(value)?;
        let selection = Selection::new(self, index.to_vec())?;
        let shape = self.shape();
        let mut parts =
            (selection.ranges.iter().enumerate()).filter(|&(axis, range)| *range != SliceRange::new(0, shape[axis], 1));
        let (axis, start) = match (parts.next(), parts.next()) {
            (None, _) if shape.rank() > 0 => (0, 0),
            (Some((axis, range)), None) if range.step == 1 => (axis, range.start),
            _ => return Ok(false),
        };
        let lens: Vec<usize> = selection.ranges.iter().map(|range| range.len).collect();
        let value = value.to_dtype(self.dtype())?.expand(selection.extents())?;
        let value = value.reshape(lens)?.value;
        self.update_in_place(|own| B::slice_scatter(own, &value, axis, start))?;
        Ok(true)
    }

    fn put(
        &self,
        index: Vec<Index<B>>,
        value: impl Operand<B>,
        scatter: impl FnOnce(&Self, isize, &Self, &Self) -> Result<Self>,
    ) -> Result<Self> {
        let value = value.beside(self)?.to_dtype(self.dtype())?;
        let selection = Selection::new(self, index)?;
        let places = self.places(&selection)?;
        let value = value.expand(places.shape())?.flatten(0, -1)?;
        scatter(&self.flatten(0, -1)?, 0, &places.flatten(0, -1)?, &value)
            .map_err(|e| selection.blame(e))?
            .reshape(self.shape())
    }

    /// The linear row-major positions of the elements of a selection, in its shape.
    fn places(&self, selection: &Selection<B>) -> Result<Self> {
        let device = self.device();
        let strides = row_major(&self.dims());
        let (picked, front) = selection.picked();
        let of_picked: Vec<_> = picked
            .iter()
            .map(|&axis| selection.axes[axis].source.map_or(1, |last| strides[last]))
            .collect();
        let linear = selection.linear(&picked, &of_picked, Some(self.numel() as i64))?;
        // The extents of the result, and the source in this tensor of each axis without an index tensor.
        let (mut extents, mut sources) = (Vec::new(), Vec::new());
        for (i, axis) in selection
            .axes
            .iter()
            .enumerate()
            .filter(|(_, axis)| axis.picks.is_none())
        {
            let behind = picked.first().is_some_and(|_| i >= front);
            sources.push((extents.len(), behind, axis.source));
            extents.push(axis.extent);
        }
        let picked_dims = linear.as_ref().map_or_else(Vec::new, Self::dims);
        extents.splice(front..front, picked_dims.iter().copied());
        let rank = extents.len();
        let along = |axis: usize, dims: &[usize], part: Self| {
            let mut shape = vec![1; rank];
            shape[axis..axis + dims.len()].copy_from_slice(dims);
            part.reshape(shape)
        };
        let gone = selection.gone.iter();
        let offset: i64 = gone
            .map(|&axis| selection.ranges[axis].start as i64 * strides[axis])
            .sum();
        let mut places = Self::full((), offset, &device)?;
        for (at, behind, source) in sources {
            let Some(axis) = source else { continue };
            let SliceRange { start, len, step, .. } = selection.ranges[axis];
            let steps = Self::iota(
                "arange",
                len,
                (
                    (start as i64 * strides[axis]).into(),
                    (step as i64 * strides[axis]).into(),
                ),
                DType::I64,
                &device,
            )?;
            let at = if behind { at + picked_dims.len() } else { at };
            places = places.add(along(at, &[len], steps)?)?;
        }
        if let Some(linear) = linear {
            places = places.add(along(front, &picked_dims, linear)?)?;
        }
        places.expand(extents)
    }
}

/// The row-major strides of a shape.
pub(super) fn row_major(dims: &[usize]) -> Vec<i64> {
    let mut strides = vec![1; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis] * dims[axis] as i64;
    }
    strides
}
