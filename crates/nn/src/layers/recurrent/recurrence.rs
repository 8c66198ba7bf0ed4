//! The kinds of recurrent networks: how one step is computed.

use std::fmt::Debug;

use polygrad_tensor::{Activation, Backend, Result, Tensor};

use super::state::RecurrentState;

/// The outputs of all steps, and the last state.
pub(super) type Sequence<K, B> = (Tensor<B>, <K as Recurrence>::State<B>);

/// How a recurrent network goes from one state to the next: [`Nonlinearity`] for RNN, [`LstmGates`] for LSTM,
/// [`GruGates`] for GRU.
///
/// This trait covers the differences between [`Recurrent`](super::Recurrent) layers and
/// [`RecurrentCell`](super::RecurrentCell)s of each kind; everything else is shared. It cannot be implemented outside
/// this crate.
pub trait Recurrence: sealed::Sealed + Copy + Debug + Default + Send + Sync + 'static {
    /// The state carried from step to step.
    type State<B: Backend>: RecurrentState<B>;

    /// PyTorch's name of the layer.
    const LAYER: &'static str;
    /// PyTorch's name of the cell.
    const CELL: &'static str;
    /// Rows of the weights for each element of the hidden state.
    const GATES: usize;
    /// Whether the hidden state's bias must stay apart from the input's; otherwise their sum is added once for all
    /// steps.
    const SEPARATE_BIAS: bool;
    /// Whether a layer keeps an f32 state under autocast, as PyTorch's does; otherwise all states have autocast's
    /// dtype.
    const KEEPS_F32: bool;

    /// One step: from the input's gates `[N, GATES · H]`, including all biases that need not stay apart, and a state of
    /// `[N, H]` to the next state.
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit.
    fn step<B: Backend>(
        self,
        input_gates: &Tensor<B>,
        state: &Self::State<B>,
        weight_hh: &Tensor<B>,
        bias_hh: Option<&Tensor<B>>,
    ) -> Result<Self::State<B>>;

    /// All steps as one op: from an input `[T, N, C]` and a state of `[N, H]` to the outputs `[T, N, H]` and the last
    /// state. Weights and biases are those of the input and of the hidden state. `None` if there is no such op for what
    /// is needed.
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit.
    fn sequence<B: Backend>(
        self,
        x: &Tensor<B>,
        state: &Self::State<B>,
        weights: [&Tensor<B>; 2],
        biases: Option<[&Tensor<B>; 2]>,
        reverse: bool,
    ) -> Result<Option<Sequence<Self, B>>>;
}

/// The activation of an RNN, whose step is `h' = f(W_ih x + b_ih + W_hh h + b_hh)`.
///
/// Source: Elman, "Finding structure in time" (1990), as PyTorch's RNN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nonlinearity {
    /// The hyperbolic tangent.
    #[default]
    Tanh,
    /// `max(x, 0)`.
    ReLU,
}

/// The gates of an LSTM, i, f, g and o: see [`Tensor::lstm_cell`].
#[derive(Clone, Copy, Debug, Default)]
pub struct LstmGates;

/// The gates of a GRU, r, z and n: see [`Tensor::gru_cell`].
#[derive(Clone, Copy, Debug, Default)]
pub struct GruGates;

impl Recurrence for Nonlinearity {
    type State<B: Backend> = Tensor<B>;
    const LAYER: &'static str = "RNN";
    const CELL: &'static str = "RNNCell";
    const GATES: usize = 1;
    const SEPARATE_BIAS: bool = false;
    const KEEPS_F32: bool = false;

    fn step<B: Backend>(
        self,
        input_gates: &Tensor<B>,
        state: &Tensor<B>,
        weight_hh: &Tensor<B>,
        bias_hh: Option<&Tensor<B>>,
    ) -> Result<Tensor<B>> {
        let sum = state.linear(weight_hh, bias_hh)?.add(input_gates)?;
        match self {
            Self::Tanh => sum.tanh(),
            Self::ReLU => sum.relu(),
        }
    }

    fn sequence<B: Backend>(
        self,
        x: &Tensor<B>,
        state: &Self::State<B>,
        weights: [&Tensor<B>; 2],
        biases: Option<[&Tensor<B>; 2]>,
        reverse: bool,
    ) -> Result<Option<Sequence<Self, B>>> {
        let activation = match self {
            Self::Tanh => Activation::Tanh,
            Self::ReLU => Activation::Relu,
        };
        x.rnn_sequence(state, weights, biases, activation, reverse)
    }
}

impl Recurrence for LstmGates {
    type State<B: Backend> = (Tensor<B>, Tensor<B>);
    const LAYER: &'static str = "LSTM";
    const CELL: &'static str = "LSTMCell";
    const GATES: usize = 4;
    const SEPARATE_BIAS: bool = false;
    const KEEPS_F32: bool = false;

    fn step<B: Backend>(
        self,
        input_gates: &Tensor<B>,
        (hidden, cell): &(Tensor<B>, Tensor<B>),
        weight_hh: &Tensor<B>,
        bias_hh: Option<&Tensor<B>>,
    ) -> Result<(Tensor<B>, Tensor<B>)> {
        hidden.linear(weight_hh, bias_hh)?.add(input_gates)?.lstm_cell(cell)
    }

    fn sequence<B: Backend>(
        self,
        x: &Tensor<B>,
        state: &Self::State<B>,
        weights: [&Tensor<B>; 2],
        biases: Option<[&Tensor<B>; 2]>,
        reverse: bool,
    ) -> Result<Option<Sequence<Self, B>>> {
        let (hidden, cell) = state;
        let done = x.lstm_sequence((hidden, cell), weights, biases, reverse)?;
        Ok(done.map(|(outputs, hidden, cell)| (outputs, (hidden, cell))))
    }
}

impl Recurrence for GruGates {
    type State<B: Backend> = Tensor<B>;
    const LAYER: &'static str = "GRU";
    const CELL: &'static str = "GRUCell";
    const GATES: usize = 3;
    const SEPARATE_BIAS: bool = true;
    const KEEPS_F32: bool = true;

    fn step<B: Backend>(
        self,
        input_gates: &Tensor<B>,
        state: &Tensor<B>,
        weight_hh: &Tensor<B>,
        bias_hh: Option<&Tensor<B>>,
    ) -> Result<Tensor<B>> {
        input_gates.gru_cell(&state.linear(weight_hh, bias_hh)?, state)
    }

    fn sequence<B: Backend>(
        self,
        x: &Tensor<B>,
        state: &Self::State<B>,
        weights: [&Tensor<B>; 2],
        biases: Option<[&Tensor<B>; 2]>,
        reverse: bool,
    ) -> Result<Option<Sequence<Self, B>>> {
        x.gru_sequence(state, weights, biases, true, reverse)
    }
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for super::Nonlinearity {}
    impl Sealed for super::LstmGates {}
    impl Sealed for super::GruGates {}
}
