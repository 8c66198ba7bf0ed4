//! Transformer layers and stacks, as in PyTorch's `nn.Transformer*`.
//!
//! Source: Vaswani et al., "Attention is all you need" (2017); for norms before the blocks, Xiong et al., "On layer
//! normalization in the transformer architecture" (2020).

mod block;
mod config;
mod decoder;
mod encoder;
mod pair;

pub use config::{TransformerActivation, TransformerLayerConfig};
pub use decoder::{DecoderCache, TransformerDecoder, TransformerDecoderLayer};
pub use encoder::{TransformerEncoder, TransformerEncoderLayer};
pub use pair::{Transformer, TransformerConfig};
