//! Errors of Polygrad as exceptions.

use polygrad::{Error, ErrorKind};
use pyo3::prelude::*;

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
