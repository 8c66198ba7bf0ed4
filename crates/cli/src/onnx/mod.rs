//! Models as ONNX files, and files of other kinds that hold one.

mod arrays;
pub(crate) mod export;
mod extents;
mod flops;
mod input;
mod npy;
pub(crate) mod run;
pub(crate) mod show;

use std::path::Path;

pub(crate) use input::Given;

use crate::failure::{Failure, Result};

/// Whether there is a file to begin with.
///
/// # Errors
/// When there is none.
fn must_exist(path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    Err(Failure::new(format!("there is no {}", path.display())).fix("check the path for a typing error"))
}

/// An error about a model's file, with what can be done about most of them where the library knows nothing better.
fn about_file(error: polygrad::Error) -> Failure {
    let known = error.hint().is_some();
    let failure = Failure::from(error);
    match known {
        true => failure,
        false => failure.fix("if the file came whole, export it anew with another program or op set"),
    }
}
