//! Tokenizers, chat templates, text written by language models, and vectors of texts.
//!
//! ```
//! use polygrad_nn::Module;
//! use polygrad_nn::models::{GenerateConfig, Gpt2, Gpt2Config};
//! use polygrad_tensor::Device;
//! use polygrad_text::{Tokenizer, Writer};
//! # use polygrad_cpu::Cpu;
//! # fn main() -> polygrad_tensor::Result<()> {
//! # let device = Device::<Cpu>::default();
//! let tokenizer = Tokenizer::characters("a small text");
//! let config = Gpt2Config {
//!     vocab_size: tokenizer.vocab_size(),
//!     n_positions: 32,
//!     n_embd: 8,
//!     n_layer: 1,
//!     n_head: 2,
//!     ..Gpt2Config::default()
//! };
//! let model = Gpt2::new(&config, &device)?;
//! model.eval();
//! let writer = Writer::new(&model, &tokenizer).stop("xt");
//! let texts = writer.write(&["a sm", "te"], 10, &GenerateConfig::greedy())?;
//! assert!(texts[0].starts_with("a sm"));
//! # Ok(())
//! # }
//! ```

mod batch;
mod batch_config;
mod chat;
mod decode;
mod format;
mod gguf;
mod model;
mod pooling;
mod stopping;
mod tokenizer;
mod writer;

pub use batch::{Batch, TextInput};
pub use batch_config::{BatchConfig, Padding, Side, Truncation};
pub use chat::ChatTemplate;
pub use decode::DecodeStream;
pub use format::TextFormat;
pub use model::LanguageModel;
pub use pooling::Pooling;
pub use stopping::TextStream;
pub use tokenizer::Tokenizer;
pub use writer::{End, Writer, Written};
