//! Calls into candle: conversion of its errors and panics, and checks for memory before candle allocates it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use candle_core::Error as CandleError;
use polygrad_core::{DType, Error, ErrorKind, Result, room};

/// Smaller allocations are not checked beforehand.
const SMALL: usize = 1 << 26;

/// Calls candle. Errors and panics in it become an error that names the op.
pub(crate) fn engine<T>(op: &'static str, call: impl FnOnce() -> candle_core::Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(translated(error).with_op(op)),
        Err(panic) => {
            Err(Error::new(ErrorKind::DeviceError, format!("candle panicked: {}", text(&*panic))).with_op(op))
        }
    }
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}

fn translated(error: CandleError) -> Error {
    let text = error.to_string();
    let kind = match &error {
        CandleError::UnsupportedDTypeForOp(..) | CandleError::NotCompiledWithCudaSupport => ErrorKind::Unsupported,
        CandleError::InvalidIndex { .. } => ErrorKind::OutOfRange,
        // Errors of a driver are only texts.
        _ if text.contains("no cuda implementation") => ErrorKind::Unsupported,
        _ if text.to_lowercase().contains("out of memory") => ErrorKind::OutOfMemory,
        _ => ErrorKind::InvalidArgument,
    };
    Error::new(kind, format!("candle: {text}")).with_source(error)
}

/// Fails if there is no memory for this many elements: candle allocates with `vec!`, which would end the process.
pub(crate) fn afford(elements: usize, dtype: DType) -> Result<()> {
    match elements.checked_mul(dtype.size()) {
        Some(bytes) if bytes < SMALL => Ok(()),
        Some(bytes) => room::<u8>(bytes).map(drop),
        None => Err(Error::new(
            ErrorKind::OutOfMemory,
            format!("no memory for {elements} elements"),
        )),
    }
}

/// A vector that repeats one value.
pub(crate) fn filled<T: Clone>(count: usize, value: T) -> Result<Vec<T>> {
    let mut out = room(count)?;
    out.resize(count, value);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_and_an_error_of_candle_are_errors_that_name_the_op() {
        let error = engine::<()>("add", || panic!("no unary function for u8")).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("add") && text.contains("no unary function for u8"),
            "{text}"
        );
        let error = engine("sub", || {
            candle_core::Tensor::new(&[1u8], &candle_core::Device::Cpu)?.reshape(2)
        })
        .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("sub"), "{error}");
    }
}
