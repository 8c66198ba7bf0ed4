//! The tests of this crate that share a process, in one program.

#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod bench;
mod chargpt;
mod check;
mod commands;
mod convert;
#[cfg(feature = "text")]
mod finetune;
#[cfg(feature = "text")]
mod graphs;
#[cfg(unix)]
mod gym;
mod images;
mod imitation;
#[cfg(feature = "text")]
mod language;
mod onnx;
mod output;
mod plan;
mod profile;
#[cfg(feature = "text")]
mod qlora;
mod quantize;
mod resume;
mod rl;
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "serve")]
mod serve_engines;
#[cfg(feature = "serve")]
mod serve_spans;
#[cfg(feature = "serve")]
mod serve_tls;
#[cfg(feature = "sweep")]
mod sweep;
mod table;
#[cfg(feature = "text")]
mod texts;
mod tui;
