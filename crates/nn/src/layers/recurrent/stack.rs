//! Stacked recurrent layers.

use polygrad_tensor::{AnyBackend, Backend, Device, Error, Result, Tensor};

use super::config::RecurrentConfig;
use super::lengths::Lengths;
use super::recurrence::{GruGates, LstmGates, Nonlinearity, Recurrence};
use super::scan::scan;
use super::state::RecurrentState;
use super::weights::RecurrentWeights;
use crate::locate::located;
use crate::watch::named_layer;
use crate::{Item, Mode, Module, ModuleId, Visit, Visitor};

/// A recurrent network of one or more layers, in one direction or in both, as [`RNN`], [`LSTM`] and [`GRU`]. Parameter
/// names, shapes and order are PyTorch's: `weight_ih_l0`, `weight_hh_l0`, `bias_ih_l0`, `bias_hh_l0`,
/// `weight_ih_l0_reverse`, …
///
/// With `C` the input size, `H` the hidden size, `L` layers and `D` directions: from `[T, N, C]` (`[N, T, C]` if
/// `batch_first`; `[T, C]` for one sequence) and states `[L · D, N, H]` (`[L · D, H]`) to outputs `[T, N, D · H]` (`[N,
/// T, D · H]`; `[T, D · H]`) and the last states. The state of an LSTM is `(h, c)`, that of the others `h`. States of
/// layers come one after the other, the forward direction before the reverse one.
///
/// ```
/// use polygrad_nn::{LSTM, LSTMConfig};
/// use polygrad_reference::Reference;
/// use polygrad_tensor::{Device, Tensor};
///
/// # fn main() -> polygrad_tensor::Result<()> {
/// let device = Device::<Reference>::default();
/// let lstm: LSTM<_> = LSTMConfig::new(3, 4).batch_first(true).build(&device)?;
/// let x = Tensor::ones([2, 5, 3], &device)?;
/// let (y, state) = lstm.forward(&x, None)?;
/// assert_eq!(y.dims(), [2, 5, 4]);
/// // The same in two parts: the state carries over.
/// let (_, state_there) = lstm.forward(&x.narrow(1, 0, 2)?, None)?;
/// let (_, (h, c)) = lstm.forward(&x.narrow(1, 2, 3)?, Some(state_there))?;
/// assert_eq!((h.to_vec::<f32>()?, c.to_vec::<f32>()?), (state.0.to_vec()?, state.1.to_vec()?));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Recurrent<K: Recurrence, B: Backend = AnyBackend> {
    /// Layer after layer, the forward direction before the reverse one. At least one.
    pub(super) weights: Vec<RecurrentWeights<B>>,
    pub(super) config: RecurrentConfig<K>,
    pub(super) mode: Mode,
}

/// An Elman network: `h' = tanh(W_ih x + b_ih + W_hh h + b_hh)`, or with ReLU. [`RNNConfig`](super::RNNConfig) has the
/// options.
pub type RNN<B = AnyBackend> = Recurrent<Nonlinearity, B>;
/// A network of long short-term memory: [`Tensor::lstm_cell`] has the formulas, [`LSTMConfig`](super::LSTMConfig) the
/// options.
pub type LSTM<B = AnyBackend> = Recurrent<LstmGates, B>;
/// A network of gated recurrent units: [`Tensor::gru_cell`] has the formulas, [`GRUConfig`](super::GRUConfig) the
/// options.
pub type GRU<B = AnyBackend> = Recurrent<GruGates, B>;

impl<K: Recurrence, B: Backend> Recurrent<K, B> {
    /// One layer in one direction, with biases; [`RecurrentConfig`] has the other options.
    ///
    /// # Errors
    /// As [`RecurrentConfig::build`].
    #[track_caller]
    pub fn new(input_size: usize, hidden_size: usize, device: &Device<B>) -> Result<Self> {
        RecurrentConfig::new(input_size, hidden_size).build(device)
    }

    /// The parameters of a layer in the forward or the reverse direction; `None` if there is no such layer or
    /// direction.
    pub fn weights(&self, layer: usize, reverse: bool) -> Option<&RecurrentWeights<B>> {
        let directions = self.config.directions();
        let direction = usize::from(reverse);
        let index = layer.checked_mul(directions)?.checked_add(direction)?;
        self.weights.get(index).filter(|_| direction < directions)
    }

    /// The state before the first step for a batch: zeros, `[L · D, batch, hidden_size]`, of the parameters' dtype.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn initial_state(&self, batch: usize) -> Result<K::State<B>> {
        let shape = [self.weights.len(), batch, self.config.hidden_size];
        let weight = &self.weights[0].weight_ih;
        // Each part is a separate tensor, so that a recording can tell them apart.
        K::State::merge(&[], |_| Tensor::full(shape, 0.0, (&weight.device(), weight.dtype())))
            .map_err(|e| located(self, self.id(), e.with_op(K::LAYER)))
    }

    /// The outputs of all steps of the last layer, and the states of all layers after their last step. Without a given
    /// state, it begins with zeros.
    ///
    /// # Errors
    /// When ranks or extents do not fit, there is no step, or dtype or device differ from the parameters'.
    pub fn forward(&self, x: &Tensor<B>, state: Option<K::State<B>>) -> Result<(Tensor<B>, K::State<B>)> {
        named_layer(self, self.id(), x, || self.run(x, None, state)).map_err(|e| e.with_op(K::LAYER))
    }

    /// [`Recurrent::forward`] for a padded batch of sequences of different lengths, in any order. Padding has no
    /// influence: outputs beyond a sequence's length are 0, its last state is the one after its own last step, and the
    /// reverse direction begins there.
    ///
    /// PyTorch does this by `pad_packed_sequence(rnn(pack_padded_sequence(x, lengths, enforce_sorted=False)),
    /// total_length=T)`.
    ///
    /// # Errors
    /// As [`Recurrent::forward`]; and when the input is not a batch, the number of lengths is not the number of
    /// sequences, or a length is not in `1..=T`.
    pub fn forward_packed(
        &self,
        x: &Tensor<B>,
        lengths: &[usize],
        state: Option<K::State<B>>,
    ) -> Result<(Tensor<B>, K::State<B>)> {
        named_layer(self, self.id(), x, || self.run(x, Some(lengths), state)).map_err(|e| e.with_op(K::LAYER))
    }

    fn id(&self) -> ModuleId {
        ModuleId::of(self).named(K::LAYER)
    }

    fn run(
        &self,
        x: &Tensor<B>,
        lengths: Option<&[usize]>,
        state: Option<K::State<B>>,
    ) -> Result<(Tensor<B>, K::State<B>)> {
        let is_batch = self.check_input(x, lengths.is_some())?;
        let mut x = match (is_batch, self.config.batch_first) {
            (false, _) => x.unsqueeze(1)?,
            (true, true) => x.transpose(0, 1)?,
            (true, false) => x.clone(),
        };
        let (steps, batch) = (x.shape()[0], x.shape()[1]);
        let lengths = match lengths {
            None => None,
            Some(lengths) => Some(Lengths::new(lengths, steps, batch, &x.device())?),
        };
        let initial = self.initial_states(state, batch, is_batch, &x)?;
        if let Some(lengths) = &lengths {
            x = lengths.cut(&x)?;
        }
        let (x, state) = self.layers(x, &initial, lengths.as_ref())?;
        let x = match &lengths {
            Some(lengths) if lengths.longest < steps => x.pad(&[(0, steps - lengths.longest), (0, 0), (0, 0)], 0.0)?,
            _ => x,
        };
        match (is_batch, self.config.batch_first) {
            (false, _) => Ok((x.squeeze(1)?, K::State::merge(&[&state], |parts| parts[0].squeeze(1))?)),
            (true, true) => Ok((x.transpose(0, 1)?, state)),
            (true, false) => Ok((x, state)),
        }
    }

    /// All layers over `[T, N, C]`: the outputs of the last, and the last states of all.
    fn layers(
        &self,
        mut x: Tensor<B>,
        initial: &[K::State<B>],
        lengths: Option<&Lengths<B>>,
    ) -> Result<(Tensor<B>, K::State<B>)> {
        let config = &self.config;
        let mut states = Vec::with_capacity(initial.len());
        let mut parts = self.weights.iter().zip(initial);
        for layer in 0..config.num_layers {
            if layer > 0 && config.dropout > 0.0 && self.mode.is_training() {
                x = x.dropout(config.dropout)?;
            }
            let mut outputs = Vec::with_capacity(config.directions());
            for (direction, (weights, initial)) in parts.by_ref().take(config.directions()).enumerate() {
                let reverse = direction == 1;
                let (output, state) = scan(config.kind, weights, &x, initial.clone(), lengths, reverse)?;
                outputs.push(output);
                states.push(state);
            }
            x = match &outputs[..] {
                [one] => one.clone(),
                both => Tensor::cat(both, 2)?,
            };
        }
        let states: Vec<_> = states.iter().collect();
        Ok((x, K::State::merge(&states, |parts| Tensor::stack(parts, 0))?))
    }

    /// Whether the input is a batch.
    fn check_input(&self, x: &Tensor<B>, packed: bool) -> Result<bool> {
        let operand = |e: Error| e.with_operands([(x.shape(), x.dtype())]);
        let form = if self.config.batch_first {
            "[N, T, C]"
        } else {
            "[T, N, C]"
        };
        let (is_batch, time) = match (x.rank(), packed) {
            (3, _) => (true, usize::from(self.config.batch_first)),
            (2, false) => (false, 0),
            (_, false) => {
                return Err(operand(Error::shape(format!(
                    "takes {form}, or [T, C] for one sequence"
                ))));
            }
            (_, true) => return Err(operand(Error::shape(format!("takes {form} where there are lengths")))),
        };
        let (width, expected) = (x.shape()[x.rank() - 1], self.config.input_size);
        if width != expected {
            let error = Error::shape(format!("the input has {width} features, input_size is {expected}"));
            return Err(operand(error));
        }
        if x.shape()[time] == 0 {
            return Err(operand(Error::shape("the input has no steps")));
        }
        self.weights[0].check_dtype("the input", x).map_err(operand)?;
        Ok(is_batch)
    }

    /// The initial state of each layer and direction, `[N, H]`.
    fn initial_states(
        &self,
        given: Option<K::State<B>>,
        batch: usize,
        is_batch: bool,
        x: &Tensor<B>,
    ) -> Result<Vec<K::State<B>>> {
        let (count, hidden) = (self.weights.len(), self.config.hidden_size);
        let Some(state) = given else {
            let zeros = Tensor::full([batch, hidden], 0.0, (&x.device(), x.dtype()))?;
            return Ok(vec![K::State::filled(&zeros); count]);
        };
        let (form, wanted) = match is_batch {
            true => ("[layers · directions, N, hidden_size]", vec![count, batch, hidden]),
            false => ("[layers · directions, hidden_size]", vec![count, hidden]),
        };
        let state = K::State::merge(&[&state], |parts| {
            let part = parts[0];
            let operands = |e: Error| e.with_operands([(x.shape(), x.dtype()), (part.shape(), part.dtype())]);
            if part.dims() != wanted {
                return Err(operands(Error::shape(format!(
                    "a state has shape {}, it must be {form} = {wanted:?}",
                    part.shape()
                ))));
            }
            self.weights[0].check_dtype("a state", part).map_err(operands)?;
            if is_batch { Ok(part.clone()) } else { part.unsqueeze(1) }
        })?;
        let at = |i| K::State::merge(&[&state], |parts| parts[0].narrow(0, i, 1)?.squeeze(0));
        (0..count).map(at).collect()
    }
}

impl<K: Recurrence, B: Backend> Visit<B> for Recurrent<K, B> {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        visitor.item(Item::Module(self.id()));
        let directions = self.config.directions();
        for (i, weights) in self.weights.iter().enumerate() {
            let reverse = ["", "_reverse"][i % directions];
            weights.visit_as(&format!("_l{}{reverse}", i / directions), visitor);
        }
        self.mode.visit(visitor);
    }
}

impl<K: Recurrence, B: Backend> Module<B> for Recurrent<K, B> {}
