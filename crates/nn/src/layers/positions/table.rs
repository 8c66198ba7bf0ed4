//! Tables of numbers for each position, in the dtype and on the device of the input.

use std::fmt;
use std::sync::{PoisonError, RwLock};

use polygrad_tensor::{Backend, Error, HostTensor, Result, Shape, Tensor};

/// A table `[positions, width]`. It is kept in f64 on the host, so that it is exact for every dtype; a copy in the
/// dtype and on the device of the last use is cached.
pub(super) struct Table<B: Backend> {
    exact: HostTensor,
    last: RwLock<Option<Tensor<B>>>,
}

impl<B: Backend> Table<B> {
    /// The table of `f(position, column)`.
    pub(super) fn new(places: usize, width: usize, f: impl Fn(usize, usize) -> f64) -> Result<Self> {
        let shape = Shape::new(&[places, width])?;
        let mut values = super::room(shape)?;
        for place in 0..places {
            values.extend((0..width).map(|column| f(place, column)));
        }
        Ok(Self {
            exact: HostTensor::new(shape, values)?,
            last: RwLock::new(None),
        })
    }

    pub(super) fn width(&self) -> usize {
        self.exact.shape()[1]
    }

    /// The rows from position `offset` on, one for each of `x […, S, E]`.
    pub(super) fn rows(&self, x: &Tensor<B>, offset: usize) -> Result<Tensor<B>> {
        if !x.dtype().is_float() {
            return Err(Error::dtype(format!("{} is no float", x.dtype())).with_hint("convert it with to_dtype"));
        }
        let last = self.last.read().unwrap_or_else(PoisonError::into_inner).clone();
        let table = match last.filter(|last| last.dtype() == x.dtype() && last.device() == x.device()) {
            Some(table) => table,
            None => {
                let table = Tensor::from_host(self.exact.cast(x.dtype()), &x.device())?;
                *self.last.write().unwrap_or_else(PoisonError::into_inner) = Some(table.clone());
                table
            }
        };
        super::rows(&table, x, offset)
    }
}

impl<B: Backend> fmt::Debug for Table<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({})", self.exact.shape())
    }
}
