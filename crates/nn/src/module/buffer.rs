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
    /// The same with a row for each row of the weight, which [`Buffer::settled`] may interleave: of each row, as many
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
    /// packed weight may be [interleaved](BlockScheme); [`Buffer::plain`] has its rows one after another.
    pub fn tensor(&self) -> Tensor<B> {
        self.read().clone()
    }

    /// The values as a state dict has them: they are the same whether the module is settled or not.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn plain(&self) -> Result<Tensor<B>> {
        match self.0.kind {
            Kind::Rows(_) => deinterleaved(&self.read()),
            _ => Ok(self.tensor()),
        }
    }

    /// The shape that the values have in a state dict.
    pub fn shape(&self) -> Shape {
        let shape = self.read().shape();
        match (self.0.kind, shape.dims()) {
            (Kind::Rows(word), &[groups, columns, _]) => Shape::from([groups * BlockScheme::ROWS, columns * word]),
            _ => shape,
        }
    }

    /// Whether it has a row for each row of a weight in blocks.
    pub(super) fn has_rows(&self) -> bool {
        matches!(self.0.kind, Kind::Rows(_))
    }

    /// The values in memory from which their device reads weights fastest, interleaved if it multiplies them faster so.
    pub(super) fn settled(&self) -> Result<Tensor<B>> {
        let value = self.tensor();
        match self.0.kind {
            Kind::Rows(word) if value.rank() == 2 && value.device().capabilities().interleaves_blocks => {
                interleaved(&value, word)
            }
            _ => prepacked(&value, Prepack::Memory),
        }
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Tensor<B>> {
        self.0.value.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets new values, as [`Buffer::plain`] or [`Buffer::tensor`] has them; a settled buffer stays settled.
    ///
    /// # Errors
    /// When shape or dtype differ; the buffer then keeps its values.
    pub fn set(&self, value: &Tensor<B>) -> Result<()> {
        let mut tensor = self.0.value.write().unwrap_or_else(PoisonError::into_inner);
        let other;
        let shape = value.shape();
        let value = match (self.0.kind, shape.dims()) {
            (Kind::Rows(word), &[rows, _]) if tensor.rank() == 3 && rows.is_multiple_of(BlockScheme::ROWS) => {
                other = interleaved(value, word)?;
                &other
            }
            (Kind::Rows(word), &[_, _, wide]) if tensor.rank() == 2 && wide == BlockScheme::ROWS * word => {
                other = deinterleaved(value)?;
                &other
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

/// Interleaves rows, of each of which `word` elements stay together, in memory as [`Buffer::settled`] chooses it.
fn interleaved<B: Backend>(rows: &Tensor<B>, word: usize) -> Result<Tensor<B>> {
    let shape = rows.shape();
    let (groups, columns) = (shape[0] / BlockScheme::ROWS, shape[1] / word);
    let apart = rows.reshape([groups, BlockScheme::ROWS, columns, word])?;
    let beside = prepacked(&apart.permute([0, 2, 1, 3])?, Prepack::Memory)?;
    beside.reshape([groups, columns, BlockScheme::ROWS * word])
}

/// A part of a weight in blocks with one row after another, outside the graph.
pub(crate) fn deinterleaved<B: Backend>(part: &Tensor<B>) -> Result<Tensor<B>> {
    decompose::deinterleaved::<B>(part.inner()).map(Tensor::from_inner)
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
