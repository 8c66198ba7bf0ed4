//! Whose row the elements of a value are.

use std::rc::Rc;

use polygrad_core::Error;

use crate::import::value::Value;

/// Why rows do not stay apart.
#[derive(Debug)]
pub(super) enum Reason {
    /// Said of the node at hand.
    Here(&'static str),
    /// An error while it was looked at.
    Failed(Error),
}

impl From<Error> for Reason {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// What is known of a value.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// The same for each row, and for each number of rows.
    Free,
    /// Each element is of a row: that of place `i`, in row-major order, of row `i / below % rows`.
    Rows { below: usize },
    /// A few integers of which shapes are made.
    Counts(Vec<Count>),
    /// It depends on several rows or on how many there are, and why.
    Mixed(Rc<str>),
}

/// An integer of which shapes are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Count {
    /// The same for each number of rows.
    Free,
    /// So many times the number of rows.
    Rows(usize),
}

/// The axis with the rows: its places are so many of one row, then so many of the next, and after the last
/// row of the first again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    pub(super) axis: usize,
    pub(super) inner: usize,
}

impl Place {
    /// Where the rows are in a tensor; none where a row has no whole part of an axis.
    pub(super) fn of(dims: &[usize], below: usize, rows: usize) -> Option<Self> {
        let mut stride: usize = dims.iter().product();
        for (axis, &extent) in dims.iter().enumerate() {
            let around = stride;
            stride = stride.checked_div(extent)?;
            // Both the rows and what is within one of them lie within this axis.
            let fits = stride > 0 && below.is_multiple_of(stride) && around.is_multiple_of(below.checked_mul(rows)?);
            if fits {
                return Some(Self {
                    axis,
                    inner: below / stride,
                });
            }
        }
        None
    }

    /// [`State::Rows::below`] of a tensor with rows there.
    pub(super) fn below(self, dims: &[usize]) -> usize {
        self.inner * dims[self.axis + 1..].iter().product::<usize>()
    }
}

pub(super) fn dims(value: &Value) -> Option<Vec<usize>> {
    value.shape().map(|shape| shape.dims().to_vec())
}

impl State {
    /// A tensor with rows at a place.
    pub(super) fn along(value: &Value, place: Place, rows: usize) -> Self {
        match dims(value) {
            Some(dims)
                if dims
                    .get(place.axis)
                    .is_some_and(|extent| extent.is_multiple_of(rows * place.inner)) =>
            {
                Self::Rows {
                    below: place.below(&dims),
                }
            }
            _ => Self::Mixed("an axis is not as long as there are rows".into()),
        }
    }

    /// Of integers, each of which is known.
    pub(super) fn of_counts(counts: Vec<Count>) -> Self {
        match counts.iter().all(|count| *count == Count::Free) {
            true => Self::Free,
            false => Self::Counts(counts),
        }
    }

    /// The place of the rows, if it is not known to be mixed, and the extents as they are without them.
    pub(super) fn extents(&self, value: &Value, rows: usize) -> Option<(Option<Place>, Vec<usize>)> {
        let mut dims = dims(value)?;
        match self {
            Self::Free | Self::Counts(_) => Some((None, dims)),
            Self::Rows { below } => {
                let place = Place::of(&dims, *below, rows)?;
                dims[place.axis] /= rows;
                Some((Some(place), dims))
            }
            Self::Mixed(_) => None,
        }
    }

    /// Why an output does not have one row after the other along `axis`, if it does not.
    pub(super) fn is_not_along(&self, value: &Value, axis: usize, rows: usize) -> Option<String> {
        let dims = dims(value).unwrap_or_default();
        match self {
            Self::Mixed(reason) => Some(reason.to_string()),
            Self::Rows { below }
                if dims.get(axis) == Some(&rows)
                    && Place::of(&dims, *below, rows) == Some(Place { axis, inner: 1 }) =>
            {
                None
            }
            _ => Some(format!("an output does not have the rows along axis {axis}")),
        }
    }
}
