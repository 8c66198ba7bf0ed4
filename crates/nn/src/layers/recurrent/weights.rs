//! The parameters of one layer in one direction.

use polygrad_tensor::{AnyBackend, Backend, DType, Device, Error, Result, Tensor, autocast_dtype};

use super::recurrence::{Recurrence, Sequence};
use super::state::RecurrentState;
use crate::{Init, Param, Visitor};

/// The parameters of one layer in one direction, or of a cell. The gates are stacked in PyTorch's order: `GATES` is 1
/// for RNN, 4 for LSTM (i, f, g, o) and 3 for GRU (r, z, n).
#[derive(Debug)]
pub struct RecurrentWeights<B: Backend = AnyBackend> {
    /// For the input: `[GATES · hidden_size, input_size]`.
    pub weight_ih: Param<B>,
    /// For the hidden state: `[GATES · hidden_size, hidden_size]`.
    pub weight_hh: Param<B>,
    /// `[GATES · hidden_size]`.
    pub bias_ih: Option<Param<B>>,
    /// `[GATES · hidden_size]`.
    pub bias_hh: Option<Param<B>>,
}

/// Sizes and initial values of the parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) input: usize,
    pub(super) hidden: usize,
    pub(super) bias: bool,
    pub(super) init: Option<Init>,
    pub(super) bias_init: Option<Init>,
}

impl Sizes {
    /// # Errors
    /// When a size is 0, or memory runs out.
    #[track_caller]
    pub(super) fn build<K: Recurrence, B: Backend>(self, device: &Device<B>) -> Result<RecurrentWeights<B>> {
        let rows = match self.hidden.checked_mul(K::GATES) {
            Some(rows) if rows > 0 && self.input > 0 => rows,
            _ => {
                let (input, hidden) = (self.input, self.hidden);
                return Err(Error::invalid(format!(
                    "input_size = {input} and hidden_size = {hidden} must each be at least 1, and fit in memory"
                )));
            }
        };
        let bound = 1.0 / (self.hidden as f64).sqrt();
        let uniform = Init::Uniform {
            low: -bound,
            high: bound,
        };
        let (weight, bias) = (self.init.unwrap_or(uniform), self.bias_init.unwrap_or(uniform));
        Ok(RecurrentWeights {
            weight_ih: weight.param([rows, self.input], device)?,
            weight_hh: weight.param([rows, self.hidden], device)?,
            bias_ih: bias.param_if(self.bias, [rows], device)?,
            bias_hh: bias.param_if(self.bias, [rows], device)?,
        })
    }
}

/// One step, from the input's gates and a state to the next state.
pub(super) trait Step<B: Backend, S>: Fn(&Tensor<B>, &S) -> Result<S> {}

impl<B: Backend, S, F: Fn(&Tensor<B>, &S) -> Result<S>> Step<B, S> for F {}

impl<B: Backend> RecurrentWeights<B> {
    /// Visits the parameters under PyTorch's names, with a suffix such as `_l0_reverse`, or none for a cell.
    pub(super) fn visit_as(&self, suffix: &str, visitor: &mut Visitor<'_, B>) {
        visitor.field(&format!("weight_ih{suffix}"), &self.weight_ih);
        visitor.field(&format!("weight_hh{suffix}"), &self.weight_hh);
        for (name, bias) in [("bias_ih", &self.bias_ih), ("bias_hh", &self.bias_hh)] {
            if let Some(bias) = bias {
                visitor.field(&format!("{name}{suffix}"), bias);
            }
        }
    }

    /// The gates' input term for any number of steps: `[…, input_size]` to `[…, GATES · hidden_size]`.
    pub(super) fn input_gates<K: Recurrence>(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let bias = match (&self.bias_ih, &self.bias_hh) {
            (Some(input), Some(hidden)) if !K::SEPARATE_BIAS => Some(input.tensor().add(hidden.tensor())?),
            (input, _) => input.as_ref().map(Param::tensor),
        };
        x.linear(&self.weight_ih.tensor(), bias.as_ref())
    }

    /// The function that computes one step, from the input's gates and a state to the next state.
    pub(super) fn stepper<K: Recurrence>(&self, kind: K) -> Result<impl Step<B, K::State<B>> + use<K, B>> {
        // Cast once for all steps.
        let weight = self.weight_hh.tensor().autocast()?;
        let bias = self.bias_hh.as_ref().filter(|_| K::SEPARATE_BIAS).map(Param::tensor);
        let bias = bias.map(|bias| bias.autocast()).transpose()?;
        Ok(move |gates: &Tensor<B>, state: &K::State<B>| kind.step(gates, state, &weight, bias.as_ref()))
    }

    /// [`Recurrence::sequence`] with these weights.
    pub(super) fn sequence<K: Recurrence>(
        &self,
        kind: K,
        x: &Tensor<B>,
        state: &K::State<B>,
        reverse: bool,
    ) -> Result<Option<Sequence<K, B>>> {
        if autocast_dtype().is_some() {
            return self.sequence_in_16_bits(kind, x, state, reverse);
        }
        let biases = (self.bias_ih.as_ref().map(Param::tensor)).zip(self.bias_hh.as_ref().map(Param::tensor));
        let biases = biases.as_ref().map(|(input, hidden)| [input, hidden]);
        let weights = [&self.weight_ih.tensor(), &self.weight_hh.tensor()];
        kind.sequence(x, state, weights, biases, reverse)
    }

    /// [`RecurrentWeights::sequence`] under autocast, with everything in its dtype. `None` for a network whose steps
    /// keep an f32 state.
    fn sequence_in_16_bits<K: Recurrence>(
        &self,
        kind: K,
        x: &Tensor<B>,
        state: &K::State<B>,
        reverse: bool,
    ) -> Result<Option<Sequence<K, B>>> {
        if state.hidden().autocast()?.dtype() != state.hidden().dtype() {
            return Ok(None);
        }
        let cast = |param: &Param<B>| param.tensor().autocast();
        let biases = match (&self.bias_ih, &self.bias_hh) {
            (Some(input), Some(hidden)) => Some([cast(input)?, cast(hidden)?]),
            _ => None,
        };
        let weights = [cast(&self.weight_ih)?, cast(&self.weight_hh)?];
        kind.sequence(
            &x.autocast()?,
            state,
            weights.each_ref(),
            biases.as_ref().map(|both| both.each_ref()),
            reverse,
        )
    }

    /// Checks that input and state have the parameters' dtype.
    pub(super) fn check_dtype(&self, operand: &str, x: &Tensor<B>) -> Result<()> {
        let dtype = self.weight_ih.dtype();
        // Autocast converts both to one dtype, but never f64.
        let cast = autocast_dtype().is_some() && [x.dtype(), dtype].iter().all(|dtype| dtype.wide() == DType::F32);
        if x.dtype() == dtype || cast {
            return Ok(());
        }
        Err(
            Error::dtype(format!("{operand} is {}, the parameters are {dtype}", x.dtype()))
                .with_hint("convert one of them with to_dtype"),
        )
    }
}
