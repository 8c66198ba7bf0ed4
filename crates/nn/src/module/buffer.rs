//! Buffers.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use polygrad_core::decompose;
use polygrad_tensor::inference::prepacked;
use polygrad_tensor::{AnyBackend, Backend, BlockScheme, Prepack, Result, Shape, Tensor};

use super::{Item, Visit, Visitor};

/// A tensor that belongs to a module's state and is not trained, such as running statistics. Cloning gives a
/// second handle to it.
pub struct Buffer<B: Backend = AnyBackend>(Arc<Inner<B>>);

struct Inner<B: Backend> {
    value: RwLock<Tensor<B>>,
    kind: Kind,
}

/// What a buffer is to its module.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    State,
    /// A part of a weight that is not trained.
    Weight,
    /// The same with a row for each row of the weight, which [`Buffer::settle`] may interleave: of each row, as many
    /// elements stay together.
    Rows(usize),
}

impl<B: Backend> Buffer<B> {
    /// A buffer with these values.
    pub fn new(value: &Tensor<B>) -> Self {
        Self::of(value, Kind::State)
    }

    /// A part of a weight that is not trained, which [`Trained`](crate::Trained) hides.
    pub(crate) fn weight(value: &Tensor<B>) -> Self {
        Self::of(value, Kind::Weight)
    }

    /// A part of a weight in blocks, `[rows, columns]`, which may be [interleaved](BlockScheme) with `word` elements of
    /// each row together.
    pub(crate) fn rows(value: &Tensor<B>, word: usize) -> Self {
        Self::of(value, Kind::Rows(word))
    }

    fn of(value: &Tensor<B>, kind: Kind) -> Self {
        Self(Arc::new(Inner {
            value: RwLock::new(value.detach()),
            kind,
        }))
    }

    pub(super) fn is_weight(&self) -> bool {
        self.0.kind != Kind::State
    }

    /// The values: a constant in the gradient graph. After [`Module::settle`](crate::Module::settle), a part of a
    /// packed weight may be [interleaved](BlockScheme); a state dict has its rows one after another.
    pub fn tensor(&self) -> Tensor<B> {
        self.read().clone()
    }

    /// The values as a state dict has them.
    pub(crate) fn plain(&self) -> Result<Tensor<B>> {
        match self.0.kind {
            Kind::Rows(_) => decompose::deinterleaved::<B>(self.read().inner()).map(Tensor::from_inner),
            _ => Ok(self.tensor()),
        }
    }

    /// The shape that the values have in a state dict.
    pub(super) fn shape(&self) -> Shape {
        let shape = self.read().shape();
        match (self.0.kind, shape.dims()) {
            (Kind::Rows(word), &[groups, columns, _]) => Shape::from([groups * BlockScheme::ROWS, columns * word]),
            _ => shape,
        }
    }

    /// Moves the values to memory from which their device reads weights fastest, interleaved if it multiplies them
    /// faster so.
    pub(super) fn settle(&self) -> Result<()> {
        let value = self.tensor();
        let moved = match self.0.kind {
            Kind::Rows(word) if value.rank() == 2 && value.device().capabilities().interleaves_blocks => {
                interleaved(&value, word)?
            }
            _ => prepacked(&value, Prepack::Memory)?,
        };
        self.replace(&moved);
        Ok(())
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Tensor<B>> {
        self.0.value.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets new values, as a state dict has them.
    ///
    /// # Errors
    /// When shape or dtype differ; the buffer then keeps its values.
    pub fn set(&self, value: &Tensor<B>) -> Result<()> {
        let mut tensor = self.0.value.write().unwrap_or_else(PoisonError::into_inner);
        let lanes;
        let shape = value.shape();
        let value = match (self.0.kind, shape.dims()) {
            (Kind::Rows(word), &[rows, _]) if tensor.rank() == 3 && rows.is_multiple_of(BlockScheme::ROWS) => {
                lanes = interleaved(value, word)?;
                &lanes
            }
            _ => value,
        };
        tensor.update(|inner| {
            *inner = value.inner().clone();
            Ok(())
        })
    }

    /// Sets values of any shape and dtype, on any device.
    pub(crate) fn replace(&self, value: &Tensor<B>) {
        *self.0.value.write().unwrap_or_else(PoisonError::into_inner) = value.detach();
    }
}

/// Interleaves rows, of each of which `word` elements stay together, in memory as [`Buffer::settle`] chooses it.
fn interleaved<B: Backend>(rows: &Tensor<B>, word: usize) -> Result<Tensor<B>> {
    let shape = rows.shape();
    let (groups, columns) = (shape[0] / BlockScheme::ROWS, shape[1] / word);
    let apart = rows.reshape([groups, BlockScheme::ROWS, columns, word])?;
    let beside = prepacked(&apart.permute([0, 2, 1, 3])?, Prepack::Memory)?;
    beside.reshape([groups, columns, BlockScheme::ROWS * word])
}

impl<B: Backend> Clone for Buffer<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B: Backend> Visit<B> for Buffer<B> {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        visitor.item(Item::Buffer(self));
    }
}

impl<B: Backend> fmt::Debug for Buffer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tensor = self.tensor();
        write!(f, "Buffer({}{})", tensor.dtype(), tensor.shape())
    }
}
