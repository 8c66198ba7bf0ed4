//! The recurrent layers and cells of `torch.nn`, and MinGRU. The second argument is the state, if there is one, and
//! `lengths` those of packed sequences; the rest is as for other layers. The answer is the output, which cells do not
//! have, and the parts of the state.

use polygrad_nn::{
    GRUCellConfig, GRUConfig, LSTMCellConfig, LSTMConfig, MinGRUConfig, Nonlinearity, RNNCellConfig, RNNConfig,
    Recurrence, RecurrentCellConfig, RecurrentConfig,
};
use polygrad_tensor::{Backend, Tensor};

use super::layer::{flag, number, prepare, size};
use crate::vectors::call::{Call, CaseError, CaseOutputs, CaseResult, NAMED, unsupported};

/// The form of a state in vectors: a tensor, or a list.
trait State<B: Backend>: Sized {
    fn read(call: &Call<'_, B>) -> CaseResult<Self>;

    fn into_parts(self) -> Vec<Tensor<B>>;
}

impl<B: Backend> State<B> for Tensor<B> {
    fn read(call: &Call<'_, B>) -> CaseResult<Self> {
        call.tensor(1, "hx").cloned()
    }

    fn into_parts(self) -> Vec<Tensor<B>> {
        vec![self]
    }
}

impl<B: Backend> State<B> for (Tensor<B>, Tensor<B>) {
    fn read(call: &Call<'_, B>) -> CaseResult<Self> {
        match call.tensors(1, "hx")?[..] {
            [hidden, cell] => Ok((hidden.clone(), cell.clone())),
            _ => unsupported("argument hx does not list two tensors"),
        }
    }

    fn into_parts(self) -> Vec<Tensor<B>> {
        vec![self.0, self.1]
    }
}

/// The state, if one is given.
fn state<S: State<B>, B: Backend>(call: &Call<'_, B>) -> CaseResult<Option<S>> {
    call.has(1, "hx").then(|| S::read(call)).transpose()
}

fn layer<K: Recurrence, B: Backend>(call: &Call<'_, B>, config: RecurrentConfig<K>) -> CaseOutputs<B>
where
    K::State<B>: State<B>,
{
    let x = call.tensor(0, "input")?;
    call.not_offered("proj_size")?;
    let config = config
        .num_layers(call.size(NAMED, "num_layers", 1)?)
        .bias(flag(call, "bias", true)?)
        .batch_first(flag(call, "batch_first", false)?)
        .dropout(number(call, "dropout", 0.0)?)
        .bidirectional(flag(call, "bidirectional", false)?);
    let layer = config.build(&x.device())?;
    prepare(&layer, call)?;
    let state = state(call)?;
    let (output, state) = match call.sizes(NAMED, "lengths")? {
        None => layer.forward(x, state)?,
        Some(lengths) => layer.forward_packed(x, &lengths, state)?,
    };
    let mut outputs = vec![output];
    outputs.extend(state.into_parts());
    Ok(outputs)
}

fn cell<K: Recurrence, B: Backend>(call: &Call<'_, B>, config: RecurrentCellConfig<K>) -> CaseOutputs<B>
where
    K::State<B>: State<B>,
{
    let x = call.tensor(0, "input")?;
    let cell = config.bias(flag(call, "bias", true)?).build(&x.device())?;
    prepare(&cell, call)?;
    Ok(cell.forward(x, state(call)?)?.into_parts())
}

fn min_gru<B: Backend>(call: &Call<'_, B>, sizes: (usize, usize)) -> CaseOutputs<B> {
    let x = call.tensor(0, "input")?;
    let config = MinGRUConfig::new(sizes.0, sizes.1).bias(flag(call, "bias", true)?);
    let layer = config.build(&x.device())?;
    prepare(&layer, call)?;
    let (output, state) = layer.forward(x, call.optional_tensor(1, "hx")?)?;
    Ok(vec![output, state])
}

fn nonlinearity<B: Backend>(call: &Call<'_, B>) -> CaseResult<Nonlinearity> {
    match call.text(NAMED, "nonlinearity")? {
        None | Some("tanh") => Ok(Nonlinearity::Tanh),
        Some("relu") => Ok(Nonlinearity::ReLU),
        Some(other) => unsupported(format!("argument nonlinearity={other}")),
    }
}

pub(super) fn answer<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let sizes = || Ok::<_, CaseError>((size(call, "input_size")?, size(call, "hidden_size")?));
    match call.op() {
        "nn.RNN" => {
            let config = RNNConfig::new(sizes()?.0, sizes()?.1).nonlinearity(nonlinearity(call)?);
            layer(call, config)
        }
        "nn.LSTM" => layer(call, LSTMConfig::new(sizes()?.0, sizes()?.1)),
        "nn.GRU" => layer(call, GRUConfig::new(sizes()?.0, sizes()?.1)),
        "nn.RNNCell" => {
            let config = RNNCellConfig::new(sizes()?.0, sizes()?.1).nonlinearity(nonlinearity(call)?);
            cell(call, config)
        }
        "nn.LSTMCell" => cell(call, LSTMCellConfig::new(sizes()?.0, sizes()?.1)),
        "nn.GRUCell" => cell(call, GRUCellConfig::new(sizes()?.0, sizes()?.1)),
        "nn.MinGRU" => min_gru(call, sizes()?),
        _ => Err(CaseError::OtherFamily),
    }
}
