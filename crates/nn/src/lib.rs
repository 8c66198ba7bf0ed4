//! Layers, losses, optimizers, schedules and checkpoints, on any backend.
//!
//! A model is a struct that derives [`Module`]; its parameters have PyTorch's names and layouts. An
//! [`Optimizer`](optim::Optimizer) updates them with the [`Gradients`](polygrad_tensor::Gradients) of a backward pass.

// The derive macro refers to this crate by its external name.
extern crate self as polygrad_nn;

mod compile;
pub mod distributions;
mod init;
mod io;
mod layers;
mod locate;
pub mod lora;
pub mod loss;
pub mod models;
mod module;
pub mod optim;
mod options;
pub mod profile;
pub mod qat;
mod sequential;
mod step;
mod store;
pub mod watch;

pub use compile::{Compile, CompiledModel};
pub use init::{Fan, Init, skip_init};
pub use io::{AtomicFile, Checkpoint, abandon_files, lies_at, open_file, open_own, replace_file};

/// For readers and writers of other tensor file formats: headers, number types, and errors that name their place.
pub mod files {
    pub use crate::io::{
        SafetensorsEntry, SafetensorsHeader, Stored, about_tensor, in_file, reserved, strided, unreadable,
    };
}

pub use layers::*;
pub(crate) use module::Target;
#[doc(hidden)]
pub use module::derive;
pub use module::{
    Buffer, Evaluation, Forward, Item, LoadReport, Mode, Module, ModuleId, Param, Served, StateDict, Summary,
    SummaryRow, Trained, Visit, Visitor,
};
pub use polygrad_derive::Module;
pub use polygrad_tensor::AnyBackend;
pub use profile::profile;
pub use sequential::Sequential;
pub use step::{CapturedStep, GradientSync, StepOutputs, TrainStep};
pub use store::VarStore;
