//! Models as ONNX files, and other files that contain a model.

pub(crate) mod args;
mod arrays;
mod eval;
pub(crate) mod export;
mod extents;
mod flops;
mod input;
mod predict;
pub(crate) mod quantize;
mod rows;
pub(crate) mod run;
mod score;
pub(crate) mod show;

use std::path::Path;

pub(crate) use eval::command as eval;
pub(crate) use input::Given;
use polygrad::{ErrorKind, Tensor};
use polygrad_onnx::Export;
use polygrad_onnx::graph::Dim;
pub(crate) use predict::command as predict;
pub(crate) use quantize::QuantizeFile;

use crate::failure::{Failure, Result};
use crate::kind::Kind;
use crate::task::Task;

/// The kinds of runs whose models can be exported as graphs.
pub(crate) const EXPORTED: [Kind; 4] = [Kind::Images, Kind::Table, Kind::Chargpt, Kind::Rl];

/// Runs whose model is a graph from one input to one output, each with the batch as its first extent.
pub(crate) trait Exported: Task {
    /// The name of the network.
    fn network(&self) -> String;

    /// The input, with this batch extent, and the name of the output.
    ///
    /// # Errors
    /// Settings that do not define them.
    fn export(&self, batch: Dim) -> Result<Export>;

    /// The output for a batch.
    ///
    /// # Errors
    /// Errors of the device.
    fn answer(&self, model: &Self::Model, x: &Tensor) -> polygrad::Result<Tensor>;

    /// The targets of a batch, in the form of [`Exported::answer`].
    ///
    /// # Errors
    /// Errors of the device.
    fn target(&self, y: Tensor) -> polygrad::Result<Tensor> {
        Ok(y)
    }

    /// The metadata needed to run the file.
    ///
    /// # Errors
    /// Metadata that cannot be written.
    fn metadata(&self) -> Result<Vec<(&'static str, String)>>;

    /// The model and its task in one line.
    fn summary(&self) -> String;
}

/// Fails unless the file exists.
///
/// # Errors
/// If it does not exist.
fn must_exist(path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    Err(Failure::new(format!("there is no {}", path.display())).fix("check the path for a typing error"))
}

/// An error about a model's file, with a hint if the library has no better one.
fn about_file(error: polygrad::Error) -> Failure {
    let fix = match error.kind() {
        ErrorKind::Io => "check that the file and those beside it are there and may be read",
        ErrorKind::OutOfMemory => "free some memory, or raise the limit with --max-memory SIZE",
        _ => "if the file came whole, export it anew with another program or op set",
    };
    told(error, fix)
}

/// An error of the library, with a hint for the command line: the library's hints may only apply to programs.
fn told(error: polygrad::Error, fix: &str) -> Failure {
    let fix = match error.hint() {
        None => fix,
        Some(hint) if hint.contains("max_memory_bytes") || hint.contains("max_tensor_bytes") => {
            "if this is meant, raise the limit with --max-memory SIZE, such as --max-memory 64GB"
        }
        Some(hint) if hint.contains("max_steps") => {
            "look for a Loop that never ends, or raise the limit with --max-steps N"
        }
        Some(hint) if hint.contains("to_dtype") => "convert it first, as with numpy's astype",
        Some(hint) if hint.contains("StateDict::") => "check that the file came whole, or write it anew",
        Some(_) => return error.into(),
    };
    Failure::from(error).fix(fix)
}
