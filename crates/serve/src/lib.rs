//! Trained models as a service.
//!
//! A [`Model`] is whatever takes and gives named arrays: [`OnnxService`] is one from a graph, for any backend and engine. A [`Repository`] holds
//! models by name and version; they are loaded, replaced and unloaded while requests are answered. Requests that wait for the same model are
//! joined to batches, and each gets its own rows back.

mod failure;
mod files;
mod grpc;
mod http;
#[cfg(feature = "hub")]
pub mod hub;
mod model;
mod onnx;
mod repository;
mod request;
mod server;
mod service;
mod statistics;
mod value;

pub use failure::{Failure, Reason};
pub use files::Files;
pub use model::{Model, Signature, State, TensorSpec};
pub use onnx::OnnxService;
pub use repository::{ModelInfo, Repository, Source, VersionState};
pub use request::{InferRequest, InferResponse, NamedValue, SequenceId, SequenceStep};
pub use server::{Server, ServerOptions};
pub use service::{Pool, Settings};
pub use statistics::{Snapshot, Total};
pub use value::{DATATYPES, Strings, Value, datatype, datatype_name};
