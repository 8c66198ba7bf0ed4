//! Layers: the building blocks of models.

mod activation;
mod adaptive;
mod attention;
mod batch_norm;
mod conv;
mod conv_transpose;
mod dropout;
mod embedding;
mod embedding_bag;
mod extent;
mod group_norm;
mod instance_norm;
mod lambda;
mod layer_norm;
mod linear;
mod pixel_shuffle;
mod pool;
mod positions;
mod prelu;
mod quantized;
mod recurrent;
mod reshape;
mod rms_norm;
mod slot;
mod stateless;
mod sync_batch_norm;
mod transformer;
mod upsample;

pub use activation::{
    CELU, ELU, GELU, GLU, Hardsigmoid, Hardswish, Hardtanh, LeakyReLU, LogSigmoid, LogSoftmax, Mish, ReLU, ReLU6, SELU,
    SiLU, Sigmoid, Softmax, Softplus, Softsign, Tanh,
};
pub use adaptive::{
    AdaptiveAvgPool, AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveMaxPool, AdaptiveMaxPool1d,
    AdaptiveMaxPool2d, AdaptiveMaxPool3d,
};
pub(crate) use attention::{Attend, Caches, all_or_nothing, merge_heads, split_heads};
pub use attention::{KvCache, Masks, MultiheadAttention, MultiheadAttentionConfig};
pub use batch_norm::{
    BatchNorm, BatchNorm1d, BatchNorm1dConfig, BatchNorm2d, BatchNorm2dConfig, BatchNorm3d, BatchNorm3dConfig,
    BatchNormConfig,
};
pub use conv::{Conv, Conv1d, Conv1dConfig, Conv2d, Conv2dConfig, Conv3d, Conv3dConfig, ConvConfig};
pub use conv_transpose::{
    ConvTranspose, ConvTranspose1d, ConvTranspose1dConfig, ConvTranspose2d, ConvTranspose2dConfig, ConvTranspose3d,
    ConvTranspose3dConfig, ConvTransposeConfig,
};
pub use dropout::Dropout;
pub use embedding::{Embedding, EmbeddingConfig};
pub use embedding_bag::{EmbeddingBag, EmbeddingBagConfig, EmbeddingBagMode};
pub use extent::Extent;
pub use group_norm::{GroupNorm, GroupNormConfig};
pub use instance_norm::{
    InstanceNorm, InstanceNorm1d, InstanceNorm1dConfig, InstanceNorm2d, InstanceNorm2dConfig, InstanceNorm3d,
    InstanceNorm3dConfig, InstanceNormConfig,
};
pub use lambda::Lambda;
pub use layer_norm::{LayerNorm, LayerNormConfig};
pub(crate) use linear::default_weight;
pub use linear::{Linear, LinearConfig};
pub use pixel_shuffle::{PixelShuffle, PixelUnshuffle};
pub use pool::{AvgPool, AvgPool1d, AvgPool2d, AvgPool3d, MaxPool, MaxPool1d, MaxPool2d, MaxPool3d};
pub use positions::{
    LearnedPositions, RotaryConfig, RotaryEmbedding, RotaryPairs, SinusoidalPositions, alibi_bias, alibi_slopes,
};
pub use prelu::{PReLU, PReLUConfig};
pub use quantized::{HostBlocks, QuantizedEmbedding, QuantizedLinear, QuantizedWeight};
pub(crate) use quantized::{packed_in, put_packed};
pub use recurrent::{
    GRU, GRUCell, GRUCellConfig, GRUConfig, GruGates, LSTM, LSTMCell, LSTMCellConfig, LSTMConfig, LstmGates, MinGRU,
    MinGRUConfig, Nonlinearity, RNN, RNNCell, RNNCellConfig, RNNConfig, Recurrence, Recurrent, RecurrentCell,
    RecurrentCellConfig, RecurrentConfig, RecurrentState, RecurrentWeights,
};
pub use reshape::{Flatten, Identity};
pub use rms_norm::{RMSNorm, RMSNormConfig};
pub use slot::Slot;
pub(crate) use stateless::layer_of_tensors;
pub use sync_batch_norm::{SyncGroup, SyncSlot, sync_batch_norm};
pub use transformer::{
    DecoderCache, Transformer, TransformerActivation, TransformerConfig, TransformerDecoder, TransformerDecoderLayer,
    TransformerEncoder, TransformerEncoderLayer, TransformerLayerConfig,
};
pub use upsample::Upsample;
