//! Optimizers whose state is sharded over the ranks.

use std::sync::Arc;

use polygrad_core::communicator::{Communicator, HostBuffer, HostSlice, HostSliceMut};
use polygrad_core::{DType, Error, HostTensor, Result, Shape};
use polygrad_nn::optim::Optimizer;
use polygrad_nn::{Param, StateDict};
use polygrad_tensor::{Gradients, Tensor, no_grad};

/// An optimizer whose moments are sharded over the ranks of a group: each rank keeps those of an equal piece of every
/// parameter, updates that piece, and receives the other pieces from the other ranks. The resulting parameters are the
/// same as without sharding, to the last bit or nearly so.
///
/// Gradients must be those of all ranks together, as from [`DataParallel`](crate::DataParallel).
/// [`Optimizer::state_dict`] assembles the whole state, so that checkpoints are ordinary ones and any number of ranks
/// can continue from them; every rank has to call it.
///
/// It is for optimizers that update each element independently, and not for Muon or LAMB.
///
/// If a rank is lost, so is its part of the moments: the remaining ranks divide the parameters anew, and take the
/// moments from the last checkpoint.
///
/// Source: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models" (2020), its first
/// stage.
pub struct ShardedOptimizer<O> {
    inner: O,
    build: Box<Build<O>>,
    communicator: Arc<dyn Communicator>,
    pieces: Vec<Piece>,
    /// The settings of the methods of the same names, for rebuilding the inner optimizer.
    allow_unused: Option<bool>,
    error_if_nonfinite: Option<bool>,
}

/// Builds the inner optimizer from pieces.
type Build<O> = dyn Fn(Vec<Param>) -> Result<O>;

/// This rank's part of a parameter. All ranks' parts have the same length, with zeros after the parameter's end.
struct Piece {
    name: String,
    whole: Param,
    own: Param,
    len: usize,
}

impl Piece {
    fn new(whole: Param, communicator: &dyn Communicator) -> Result<Self> {
        let len = whole.shape().numel().div_ceil(communicator.size());
        let own = Param::new(cut(&whole.tensor().detach(), len, communicator.rank())?)?;
        let name = whole.name().map_or_else(String::new, |name| name.to_string());
        own.set_name(&name);
        Ok(Self { name, whole, own, len })
    }
}

/// The `rank`-th part of a tensor divided into parts of `len` elements, padded with zeros.
fn cut(tensor: &Tensor, len: usize, rank: usize) -> Result<Tensor> {
    no_grad(|| {
        let count = tensor.shape().numel();
        let begin = (rank * len).min(count);
        let end = (begin + len).min(count);
        let part = tensor.reshape([count])?.narrow(0, begin, end - begin)?;
        part.pad(&[(0, len - (end - begin))], 0.0)
    })
}

/// This rank's parts of the parameters.
fn pieces(params: impl IntoIterator<Item = Param>, communicator: &dyn Communicator) -> Result<Vec<Piece>> {
    params
        .into_iter()
        .map(|param| Piece::new(param, communicator))
        .collect()
}

/// The parameters of the inner optimizer.
fn owned(pieces: &[Piece]) -> Vec<Param> {
    pieces.iter().map(|piece| piece.own.clone()).collect()
}

impl<O: Optimizer> ShardedOptimizer<O> {
    /// An optimizer that `build` makes from pieces of the parameters, and again from other pieces when a rank is lost.
    /// Pieces have the parameters' order and names, and one axis each. Each rank must pass the same parameters with the
    /// same values.
    ///
    /// ```
    /// use std::sync::Arc;
    /// # use std::time::Duration;
    ///
    /// # use polygrad_threads::Threads;
    /// use polygrad_nn::{Linear, Module, optim::AdamConfig};
    /// use polygrad_tensor::{Device, Result};
    /// use polygrad_train::ShardedOptimizer;
    ///
    /// # fn main() -> Result<()> {
    /// # let device = Device::<polygrad_cpu::Cpu>::default().into_any();
    /// # let group = Arc::new(Threads::group(1, Duration::from_secs(60))?.remove(0));
    /// let model = Linear::new(8, 2, &device)?;
    /// let optimizer = ShardedOptimizer::new(group, model.parameters(), |pieces| {
    ///     AdamConfig::adamw(1e-3).build(pieces)
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of `build`; an optimizer that needs whole parameters; when memory runs out.
    pub fn new(
        communicator: Arc<dyn Communicator>,
        params: impl IntoIterator<Item = Param>,
        build: impl Fn(Vec<Param>) -> Result<O> + 'static,
    ) -> Result<Self> {
        let pieces = pieces(params, &*communicator)?;
        let inner = build(owned(&pieces))?;
        if !inner.is_elementwise() {
            return Err(
                Error::unsupported("this optimizer needs whole parameters, and cannot be spread over ranks")
                    .with_op("ShardedOptimizer")
                    .with_hint("take one that changes each element by itself, such as Adam or SGD"),
            );
        }
        Ok(Self {
            inner,
            build: Box::new(build),
            communicator,
            pieces,
            allow_unused: None,
            error_if_nonfinite: None,
        })
    }

    /// The optimizer of this rank's pieces.
    pub fn inner(&self) -> &O {
        &self.inner
    }

    /// Fills the parameters of one dtype with the pieces of all ranks.
    fn gather(&self, dtype: DType) -> Result<()> {
        let pieces = || {
            self.pieces
                .iter()
                .filter(|piece| piece.own.dtype() == dtype && piece.own.is_trainable())
        };
        let Some(first) = pieces().next() else { return Ok(()) };
        let device = first.own.device();
        let own: Vec<HostTensor> = pieces()
            .map(|piece| piece.own.tensor().detach().to_host())
            .collect::<Result<_>>()?;
        let all = self.gathered(dtype, &own)?;
        let per_rank: usize = pieces().map(|piece| piece.len).sum();
        let size = self.communicator.size();
        let all = Tensor::from_host(all.reshape(Shape::from([size, per_rank]))?, &device)?;
        let mut start = 0;
        for piece in pieces() {
            let count = piece.whole.shape().numel();
            let parts = all.narrow(1, start, piece.len)?.reshape([size * piece.len])?;
            piece
                .whole
                .set(&parts.narrow(0, 0, count)?.reshape(piece.whole.shape())?)?;
            start += piece.len;
        }
        Ok(())
    }

    /// The tensors of all ranks, concatenated by rank.
    fn gathered(&self, dtype: DType, own: &[HostTensor]) -> Result<HostTensor> {
        let bytes = own.iter().map(HostTensor::bytes).collect::<Vec<_>>().concat();
        let own = HostBuffer::copied(&bytes)?;
        let mut all = HostBuffer::new(bytes.len() * self.communicator.size())?;
        self.communicator.all_gather(
            HostSlice::from_bytes(dtype, own.bytes())?,
            HostSliceMut::from_bytes(dtype, all.bytes_mut())?,
        )?;
        let shape = Shape::from([all.bytes().len() / dtype.size()]);
        HostTensor::from_shared(dtype, shape, Arc::new(all))
    }

    /// The piece that an entry of a state dict belongs to, if the entry is elementwise state.
    fn piece_of(&self, entry: &str, is_fitting: impl Fn(&Piece) -> bool) -> Option<&Piece> {
        let (name, _) = entry.rsplit_once('.')?;
        self.pieces.iter().find(|piece| piece.name == name && is_fitting(piece))
    }
}

impl<O: Optimizer> Optimizer for ShardedOptimizer<O> {
    fn step(&mut self, gradients: &Gradients) -> Result<()> {
        let rank = self.communicator.rank();
        let mut own = Vec::with_capacity(self.pieces.len());
        for piece in &self.pieces {
            piece.own.set_trainable(piece.whole.is_trainable());
            // The parameter may have changed since the last step, by a checkpoint or a moving average.
            piece.own.set(&cut(&piece.whole.tensor().detach(), piece.len, rank)?)?;
            if let Some(gradient) = gradients.get(&piece.whole) {
                own.push((&piece.own, cut(gradient, piece.len, rank)?));
            }
        }
        self.inner.step(&Gradients::new(own))?;
        let mut dtypes: Vec<DType> = self.pieces.iter().map(|piece| piece.own.dtype()).collect();
        dtypes.sort_unstable();
        dtypes.dedup();
        dtypes.into_iter().try_for_each(|dtype| self.gather(dtype))
    }

    fn allow_unused(&mut self, allow: bool) {
        self.allow_unused = Some(allow);
        self.inner.allow_unused(allow);
    }

    fn error_if_nonfinite(&mut self, error: bool) {
        self.error_if_nonfinite = Some(error);
        self.inner.error_if_nonfinite(error);
    }

    fn is_elementwise(&self) -> bool {
        true
    }

    fn lr(&self) -> f64 {
        self.inner.lr()
    }

    fn set_lr(&mut self, lr: f64) {
        self.inner.set_lr(lr);
    }

    fn lrs(&self) -> Vec<f64> {
        self.inner.lrs()
    }

    fn set_lrs(&mut self, lrs: &[f64]) -> Result<()> {
        self.inner.set_lrs(lrs)
    }

    fn base_lrs(&self) -> Vec<f64> {
        self.inner.base_lrs()
    }

    fn state_dict(&self) -> Result<StateDict> {
        let mut whole = StateDict::new();
        for (name, value) in self.inner.state_dict()?.iter() {
            let is_its = |piece: &Piece| value.shape().dims() == [piece.len];
            let value = match self.piece_of(name, is_its) {
                Some(piece) => {
                    let all = self.gathered(value.dtype(), std::slice::from_ref(value))?;
                    let shape = piece.whole.shape();
                    let bytes = &all.bytes()[..shape.numel() * value.dtype().size()];
                    HostTensor::from_bytes(value.dtype(), shape, bytes)?
                }
                None => value.clone(),
            };
            whole.insert(name, value);
        }
        Ok(whole)
    }

    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let mut own = StateDict::new();
        for (name, value) in state.iter() {
            let is_its = |piece: &Piece| *value.shape() == piece.whole.shape() && value.dtype().is_float();
            let value = match self.piece_of(name, is_its) {
                Some(piece) => {
                    let size = value.dtype().size();
                    let begin = (self.communicator.rank() * piece.len * size).min(value.bytes().len());
                    let end = (begin + piece.len * size).min(value.bytes().len());
                    let mut bytes = value.bytes()[begin..end].to_vec();
                    bytes.resize(piece.len * size, 0);
                    HostTensor::from_bytes(value.dtype(), Shape::from([piece.len]), &bytes)?
                }
                None => value.clone(),
            };
            own.insert(name, value);
        }
        self.inner.load_state_dict(&own)
    }

    fn rejoin(&mut self, group: &Arc<dyn Communicator>) -> Result<bool> {
        let pieces = pieces(self.pieces.iter().map(|piece| piece.whole.clone()), &**group)?;
        let mut inner = (self.build)(owned(&pieces))?;
        if let Some(allow) = self.allow_unused {
            inner.allow_unused(allow);
        }
        if let Some(error) = self.error_if_nonfinite {
            inner.error_if_nonfinite(error);
        }
        (self.inner, self.pieces, self.communicator) = (inner, pieces, Arc::clone(group));
        Ok(false)
    }
}

impl<O> std::fmt::Debug for ShardedOptimizer<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardedOptimizer")
            .field("communicator", &self.communicator)
            .field("params", &self.pieces.len())
            .finish_non_exhaustive()
    }
}
