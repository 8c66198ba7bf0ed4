//! Layers: modules without other modules inside.

mod activation;
mod adaptive;
mod batch_norm;
mod conv;
mod dropout;
mod embedding;
mod extent;
mod group_norm;
mod instance_norm;
mod layer_norm;
mod linear;
mod pool;
mod recurrent;
mod reshape;
mod stateless;

use polygrad_tensor::{Backend, Error};

use crate::Param;

pub use activation::{ELU, GELU, LeakyReLU, LogSoftmax, ReLU, SiLU, Sigmoid, Softmax, Softplus, Tanh};
pub use adaptive::{AdaptiveAvgPool, AdaptiveAvgPool1d, AdaptiveAvgPool2d};
pub use batch_norm::{BatchNorm, BatchNorm1d, BatchNorm1dConfig, BatchNorm2d, BatchNorm2dConfig, BatchNormConfig};
pub use conv::{Conv, Conv1d, Conv1dConfig, Conv2d, Conv2dConfig, ConvConfig};
pub use dropout::Dropout;
pub use embedding::{Embedding, EmbeddingConfig};
pub use extent::Extent;
pub use group_norm::{GroupNorm, GroupNormConfig};
pub use instance_norm::{
    InstanceNorm, InstanceNorm1d, InstanceNorm1dConfig, InstanceNorm2d, InstanceNorm2dConfig, InstanceNormConfig,
};
pub use layer_norm::{LayerNorm, LayerNormConfig};
pub use linear::{Linear, LinearConfig};
pub use pool::{AvgPool, AvgPool1d, AvgPool2d, MaxPool, MaxPool1d, MaxPool2d};
pub use recurrent::{
    GRU, GRUCell, GRUCellConfig, GRUConfig, GruGates, LSTM, LSTMCell, LSTMCellConfig, LSTMConfig, LstmGates, MinGRU,
    MinGRUConfig, Nonlinearity, RNN, RNNCell, RNNCellConfig, RNNConfig, Recurrence, Recurrent, RecurrentCell,
    RecurrentCellConfig, RecurrentConfig, RecurrentState, RecurrentWeights,
};
pub use reshape::{Flatten, Identity};

/// Adds to an error the place of the layer in its model, where its weight has been named.
#[cold]
fn in_layer<B: Backend>(error: Error, weight: Option<&Param<B>>) -> Error {
    match weight
        .and_then(Param::name)
        .as_deref()
        .and_then(|name| name.rsplit_once('.'))
    {
        Some((layer, _)) => error.in_module(layer),
        None => error,
    }
}
