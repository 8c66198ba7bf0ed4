//! Cells: one step of one layer.

use polygrad_tensor::{AnyBackend, Backend, Device, Error, Result, Tensor};

use super::recurrence::{GruGates, LstmGates, Nonlinearity, Recurrence};
use super::state::RecurrentState;
use super::weights::{RecurrentWeights, Sizes};
use crate::options::options;
use crate::watch::named_layer;
use crate::{Init, Item, Module, ModuleId, Visit, Visitor};

/// One step of a recurrent layer, as [`RNNCell`], [`LSTMCell`] and [`GRUCell`]: from an input `[N, input_size]` and a
/// state of `[N, hidden_size]` (or without `N`) to the next state, which is `(h, c)` for LSTM and `h` for the others.
/// Parameters have PyTorch's names: `weight_ih`, `weight_hh`, `bias_ih`, `bias_hh`.
#[derive(Debug)]
pub struct RecurrentCell<K: Recurrence, B: Backend = AnyBackend> {
    /// The parameters.
    pub weights: RecurrentWeights<B>,
    config: RecurrentCellConfig<K>,
}

/// One step of an [`RNN`](super::RNN).
pub type RNNCell<B = AnyBackend> = RecurrentCell<Nonlinearity, B>;
/// One step of an [`LSTM`](super::LSTM).
pub type LSTMCell<B = AnyBackend> = RecurrentCell<LstmGates, B>;
/// One step of a [`GRU`](super::GRU).
pub type GRUCell<B = AnyBackend> = RecurrentCell<GruGates, B>;

/// Options of an [`RNNCell`].
pub type RNNCellConfig = RecurrentCellConfig<Nonlinearity>;
/// Options of an [`LSTMCell`].
pub type LSTMCellConfig = RecurrentCellConfig<LstmGates>;
/// Options of a [`GRUCell`].
pub type GRUCellConfig = RecurrentCellConfig<GruGates>;

options! {
    /// Options of a cell.
    #[derive(Clone, Copy, Debug)]
    pub struct RecurrentCellConfig<K: Recurrence> {
        /// A cell with biases, from `input_size` to `hidden_size`.
        pub fn new(input_size: usize, hidden_size: usize; kind: K = K::default());
        /// Whether there are biases.
        bias: bool = true;
        /// Initial weights. Default, as in PyTorch: uniform on `±1 / √hidden_size`.
        init: Option<Init> = None, from |init: Init| Some(init);
        /// Initial biases. Default, as in PyTorch: uniform on `±1 / √hidden_size`.
        bias_init: Option<Init> = None, from |init: Init| Some(init);
    }
}

impl<K: Recurrence> RecurrentCellConfig<K> {
    /// The cell, on a device.
    ///
    /// # Errors
    /// When a size is 0, or memory runs out.
    #[track_caller]
    pub fn build<B: Backend>(self, device: &Device<B>) -> Result<RecurrentCell<K, B>> {
        let sizes = Sizes {
            input: self.input_size,
            hidden: self.hidden_size,
            bias: self.bias,
            init: self.init,
            bias_init: self.bias_init,
        };
        Ok(RecurrentCell {
            weights: sizes.build::<K, B>(device).map_err(|e| e.with_op(K::CELL))?,
            config: self,
        })
    }
}

impl RecurrentCellConfig<Nonlinearity> {
    /// The activation. Default: tanh.
    #[must_use]
    pub fn nonlinearity(mut self, nonlinearity: Nonlinearity) -> Self {
        self.kind = nonlinearity;
        self
    }
}

impl<K: Recurrence, B: Backend> RecurrentCell<K, B> {
    /// A cell with biases; [`RecurrentCellConfig`] has the other options.
    ///
    /// # Errors
    /// As [`RecurrentCellConfig::build`].
    #[track_caller]
    pub fn new(input_size: usize, hidden_size: usize, device: &Device<B>) -> Result<Self> {
        RecurrentCellConfig::new(input_size, hidden_size).build(device)
    }

    /// The next state. Without a given state, the cell begins with zeros.
    ///
    /// # Errors
    /// When ranks or extents do not fit, or dtype or device differ from the parameters'.
    pub fn forward(&self, x: &Tensor<B>, state: Option<K::State<B>>) -> Result<K::State<B>> {
        named_layer(self, self.id(), x, || self.compute(x, state)).map_err(|e| e.with_op(K::CELL))
    }

    fn id(&self) -> ModuleId {
        ModuleId::of(self).named(K::CELL)
    }

    fn compute(&self, x: &Tensor<B>, state: Option<K::State<B>>) -> Result<K::State<B>> {
        let operand = |e: Error| e.with_operands([(x.shape(), x.dtype())]);
        let (width, hidden) = (self.config.input_size, self.config.hidden_size);
        let wanted = match x.dims()[..] {
            [found] if found == width => vec![hidden],
            [batch, found] if found == width => vec![batch, hidden],
            _ => {
                let form = format!("takes [N, {width}], or [{width}] for one input");
                return Err(operand(Error::shape(form)));
            }
        };
        self.weights.check_dtype("the input", x).map_err(operand)?;
        let state = match state {
            None => K::State::filled(&Tensor::full(&wanted[..], 0.0, (&x.device(), x.dtype()))?),
            Some(state) => state,
        };
        let rows = |x: &Tensor<B>| if x.rank() == 1 { x.unsqueeze(0) } else { Ok(x.clone()) };
        let state = K::State::merge(&[&state], |parts| {
            let part = parts[0];
            let operands = |e: Error| e.with_operands([(x.shape(), x.dtype()), (part.shape(), part.dtype())]);
            if part.dims() != wanted {
                let found = part.shape();
                return Err(operands(Error::shape(format!(
                    "a state has shape {found}, it must be {wanted:?}"
                ))));
            }
            self.weights.check_dtype("a state", part).map_err(operands)?;
            rows(part)
        })?;
        let gates = self.weights.input_gates::<K>(&rows(x)?)?;
        let next = self.weights.stepper(self.config.kind)?(&gates, &state)?;
        match x.rank() {
            1 => K::State::merge(&[&next], |parts| parts[0].squeeze(0)),
            _ => Ok(next),
        }
    }
}

impl<K: Recurrence, B: Backend> Visit<B> for RecurrentCell<K, B> {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        visitor.item(Item::Module(self.id()));
        self.weights.visit_as("", visitor);
    }
}

impl<K: Recurrence, B: Backend> Module<B> for RecurrentCell<K, B> {}
