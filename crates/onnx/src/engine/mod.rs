//! External engines that run a model: each is a [`Session`], opened by name.

mod name;
#[cfg(feature = "ort")]
mod ort;
#[cfg(feature = "rten")]
mod rten;

use std::path::Path;

use polygrad_core::{Error, ErrorKind, Result};

pub use name::Engine;

use crate::graph::{Body, Graph, Literal};
use crate::import::Options;

/// A model that an engine has loaded.
pub(crate) trait Session: Send + Sync {
    /// Returns the outputs in the model's order, given the inputs by name. Inputs with a default may be left out.
    fn run(&self, inputs: &[(String, Literal)]) -> Result<Vec<Literal>>;
}

/// Where an engine reads a model from.
#[cfg_attr(
    not(any(feature = "ort", feature = "rten")),
    expect(dead_code, reason = "no such engine in this build")
)]
pub(crate) enum Source<'a> {
    /// A file, with external data beside it.
    File(&'a Path),
    /// A file's content.
    Bytes(Vec<u8>),
}

/// Loads a model into an external engine.
///
/// # Errors
/// When this build has no such engine or its library is missing, or the engine cannot run the model.
pub(crate) fn open(source: Source<'_>, graph: &Graph, options: Options) -> Result<Box<dyn Session>> {
    check(&graph.body, options.engine)?;
    match options.engine {
        #[cfg(feature = "ort")]
        Engine::Ort => Ok(Box::new(ort::Loaded::open(source, graph, options)?)),
        #[cfg(feature = "rten")]
        Engine::Rten => Ok(Box::new(rten::Loaded::open(source, graph, options)?)),
        engine => {
            let _ = source;
            engine.available()?;
            Err(Error::unsupported(format!("the engine {engine} has no sessions")))
        }
    }
}

/// Hint for a graph with ops that the native engine lacks: names the engine that opens it, if there is one.
pub(crate) fn others<'a>(source: impl Fn() -> Result<Source<'a>>, graph: &Graph, options: Options) -> String {
    let others = Engine::ALL.into_iter().filter(|&engine| engine != Engine::Native);
    let mut missing = None;
    for engine in others {
        let options = Options { engine, ..options };
        match engine.available() {
            Ok(()) => {
                if source().and_then(|source| open(source, graph, options)).is_ok() {
                    return format!("take the engine {engine}, which opens the file (--engine {engine})");
                }
            }
            Err(error) => missing = missing.or(Some((engine, error))),
        }
    }
    match missing {
        Some((engine, error)) => {
            let hint = error.hint().map(|hint| format!(": {hint}")).unwrap_or_default();
            format!("{} may know more ops{hint}", engine.title())
        }
        None => "no engine of this build opens the file: export it with ops of ai.onnx alone".to_owned(),
    }
}

/// Fails if an input or output is not a tensor: external engines take and return only tensors.
fn check(body: &Body, engine: Engine) -> Result<()> {
    for &id in body.inputs.iter().chain(&body.outputs) {
        let value = body.value(id);
        if value.ty.as_ref().is_some_and(|ty| ty.as_tensor().is_none()) {
            return Err(Error::unsupported(format!(
                "{:?} is no tensor, and tensors are all that is handed to the engine {engine}",
                value.name
            ))
            .with_hint("take the engine native"));
        }
    }
    Ok(())
}

/// Turns a panic of an engine, or of its bindings, into an error.
#[cfg(any(feature = "ort", feature = "rten"))]
fn guarded<T>(engine: Engine, run: impl FnOnce() -> T) -> Result<T> {
    let panicked = |_| failed(engine, ErrorKind::Unsupported, "it gave up in the middle of its work");
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).map_err(panicked)
}

/// An error with the engine's own message, after its name.
#[cold]
#[cfg_attr(
    not(any(feature = "ort", feature = "rten")),
    expect(dead_code, reason = "no such engine in this build")
)]
fn failed(engine: Engine, kind: ErrorKind, words: impl std::fmt::Display) -> Error {
    let error = Error::new(kind, format!("{}: {words}", engine.title()));
    match kind {
        ErrorKind::Unsupported | ErrorKind::DType => error.with_hint(format!(
            "run the model with an engine other than {engine}, such as native"
        )),
        _ => error,
    }
}
