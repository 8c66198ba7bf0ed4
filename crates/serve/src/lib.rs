//! Trained models as a service.
//!
//! A [`Model`] is anything with named arrays as inputs and outputs: [`OnnxService`] is one from a graph, for any
//! backend and engine. A [`Repository`] holds models by name and version; they are loaded, replaced and unloaded while
//! requests are answered. Requests that wait for the same model are joined into batches, and each gets its own rows
//! back. A model that is a [`Language`] also writes texts for clients of OpenAI's API, piece by piece.

mod connection;
mod direct;
mod failure;
mod files;
mod front;
mod grpc;
mod http;
#[cfg(feature = "hub")]
pub mod hub;
mod language;
mod listen;
mod metrics;
mod model;
mod onnx;
mod origin;
mod places;
mod protocol;
mod repository;
mod request;
mod rows;
mod server;
mod service;
mod statistics;
#[cfg(feature = "otel")]
mod telemetry;
#[cfg(feature = "tls")]
mod tls;
mod tokens;
mod unread;
mod value;
mod watched;

pub use failure::{Failure, Reason};
pub use files::Files;
pub use language::{Encoder, Finish, Language, Piece, Prompt, Style, Writing};
pub use listen::Limits;
pub use model::{InputDefault, Model, Signature, State, TensorSpec};
pub use onnx::OnnxService;
pub use repository::{ModelInfo, Repository, Source, VersionState};
pub use request::{InferRequest, InferResponse, NamedValue, SequenceId, SequenceStep};
pub use server::{Server, ServerOptions};
pub use service::{Pool, Settings};
pub use statistics::{BOUNDS_US, Snapshot, Total};
#[cfg(feature = "otel")]
pub use telemetry::{Exporter, otlp};
#[cfg(feature = "tls")]
pub use tls::Tls;
pub use tokens::Tokens;
pub use value::{DATATYPES, Strings, Value, datatype, datatype_name};
