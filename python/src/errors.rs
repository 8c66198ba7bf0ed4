//! Errors of Polygrad as exceptions.

use polygrad::{Error, ErrorKind, Result};
use pyo3::prelude::*;
use serde::de::DeserializeOwned;

/// Settings from JSON; the error names the one that is wrong.
pub(crate) fn settings<T: DeserializeOwned>(json: &str) -> Result<T> {
    serde_json::from_str(json).map_err(|error| {
        // Only the place of the fault is known; at the end it is that of a field that was read last.
        let name = json
            .get(..error.column())
            .filter(|read| read.len() < json.len())
            .and_then(|read| read.rsplit_once("\": ")?.0.rsplit_once('"'))
            .map_or("a setting".to_owned(), |(_, name)| format!("the setting {name}"));
        let place = format!(" at line {} column {}", error.line(), error.column());
        let text = error.to_string();
        let what = match text.strip_suffix(&*place).unwrap_or(&text) {
            // Python writes NaN and Infinity, which JSON does not have.
            "expected value" => "a finite number is expected",
            // As in [28, 28, 1] for two numbers.
            "trailing characters" => "there are more values than it has",
            what => what,
        };
        Error::invalid(format!("{name} is wrong: {what}"))
    })
}

/// The exception for an error, with its whole text.
pub(crate) fn raised(error: Error) -> PyErr {
    let text = error.to_string();
    Python::attach(|py| {
        let name = match error.kind() {
            ErrorKind::Shape
            | ErrorKind::DType
            | ErrorKind::OutOfRange
            | ErrorKind::InvalidArgument
            | ErrorKind::Format
            | ErrorKind::StateDict => "ArgumentError",
            _ => "Error",
        };
        let made = || {
            py.import("polygrad._errors")?
                .getattr(name)?
                .call1((text, error.kind().as_str()))
        };
        made().map_or_else(|error| error, PyErr::from_value)
    })
}
