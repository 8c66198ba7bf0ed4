//! The rows that the elements of a value belong to.

use std::rc::Rc;

use polygrad_core::Error;

use crate::import::value::Value;

/// Why rows do not stay apart.
#[derive(Debug)]
pub(super) enum Reason {
    /// A property of the current node.
    Here(&'static str),
    /// An error while the node was examined.
    Failed(Error),
}

impl From<Error> for Reason {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The relation of a value to the rows.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// The same for every row and every number of rows.
    Free,
    /// Each element belongs to a row: element `i`, in row-major order, to row `i / below % rows`.
    Rows { below: usize },
    /// A few integers that shapes are computed from.
    Counts(Vec<Count>),
    /// Depends on several rows or on their number; with the reason.
    Mixed(Rc<str>),
}

/// An integer that shapes are computed from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Count {
    /// The same for every number of rows.
    Free,
    /// This multiple of the number of rows.
    Rows(usize),
}

/// The axis with the rows: `inner` positions of one row, then as many of the next, and after the last row the first
/// again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    pub(super) axis: usize,
    pub(super) inner: usize,
}

impl Place {
    /// The position of the rows in a tensor; `None` if a row is not a whole part of an axis.
    pub(super) fn of(dims: &[usize], below: usize, rows: usize) -> Option<Self> {
        let mut stride: usize = dims.iter().product();
        for (axis, &extent) in dims.iter().enumerate() {
            let around = stride;
            stride = stride.checked_div(extent)?;
            // Both the rows and the elements within a row lie within this axis.
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

    /// [`State::Rows::below`] of a tensor with its rows at this position.
    pub(super) fn below(self, dims: &[usize]) -> usize {
        self.inner * dims[self.axis + 1..].iter().product::<usize>()
    }
}

pub(super) fn dims(value: &Value) -> Option<Vec<usize>> {
    value.shape().map(|shape| shape.dims().to_vec())
}

impl State {
    /// The state of a tensor with its rows at `place`.
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

    /// The state of integers with known counts.
    pub(super) fn of_counts(counts: Vec<Count>) -> Self {
        match counts.iter().all(|count| *count == Count::Free) {
            true => Self::Free,
            false => Self::Counts(counts),
        }
    }

    /// The position of the rows and the extents without them; `None` if the value is mixed.
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

    /// The reason why an output does not have its rows in order along `axis`, if it does not.
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
