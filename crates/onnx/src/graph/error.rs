//! Errors about files.

use std::borrow::Cow;

use polygrad_core::{Error, ErrorKind};

/// [`ErrorKind::Format`].
#[cold]
pub(crate) fn malformed(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Format, message)
}
