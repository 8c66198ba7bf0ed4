//! The tests of this crate in one program, so that generic code is compiled once for all of them.

mod common;
#[path = "../running/mod.rs"]
mod running;
#[path = "../support/mod.rs"]
mod support;

mod batching;
mod codec;
mod crowds;
mod grpc;
mod grpc_calls;
mod http;
#[cfg(feature = "hub")]
mod hub;
#[cfg(feature = "hub")]
mod hub_writing;
mod listen;
mod mlserver;
mod onnx;
mod openai;
mod page;
mod rows;
mod sequences;
#[cfg(feature = "tls")]
mod tls;
