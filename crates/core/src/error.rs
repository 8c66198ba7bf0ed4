//! The one error type of Polygrad.

use std::backtrace::Backtrace;
use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

use crate::frames::{Frame, of_users};
use crate::{DType, Shape, printable};

/// `Result` with Polygrad's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The category of an error, for programs to branch on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Shapes that do not fit each other or the op.
    Shape,
    /// A dtype that the op, or the combination of operands, does not take.
    DType,
    /// An axis, index or range outside the tensor.
    OutOfRange,
    /// An argument with a value that makes no sense for the op.
    InvalidArgument,
    /// Operands on different devices, or a malformed device string.
    Device,
    /// A backend that is unknown, switched off, or lacks what it needs on this machine.
    BackendUnavailable,
    /// The backend cannot compute this, natively or by decomposition.
    Unsupported,
    /// An allocation failed.
    OutOfMemory,
    /// The device failed or went away in the middle of work.
    DeviceError,
    /// A driver was asked to work before it was initialized.
    NotInitialized,
    /// A gradient that does not exist was requested.
    NoGradient,
    /// Reading or writing a file failed.
    Io,
    /// A file or byte stream is truncated, corrupt, or not what it claims to be.
    Format,
    /// A state dict or checkpoint does not fit the model that it is loaded into.
    StateDict,
    /// Processes could not exchange values: a peer is gone, or did not answer in time.
    Communication,
    /// The user asked to stop.
    Interrupted,
}

impl ErrorKind {
    /// A short name in plain words, as shown to users.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shape => "shape mismatch",
            Self::DType => "wrong dtype",
            Self::OutOfRange => "out of range",
            Self::InvalidArgument => "invalid argument",
            Self::Device => "device mismatch",
            Self::BackendUnavailable => "backend unavailable",
            Self::Unsupported => "unsupported",
            Self::OutOfMemory => "out of memory",
            Self::DeviceError => "device error",
            Self::NotInitialized => "not initialized",
            Self::NoGradient => "no gradient",
            Self::Io => "input/output error",
            Self::Format => "malformed data",
            Self::StateDict => "state dict mismatch",
            Self::Communication => "communication failed",
            Self::Interrupted => "interrupted",
        }
    }
}

/// One tensor that took part in a failed op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Its shape.
    pub shape: Shape,
    /// Its dtype.
    pub dtype: DType,
}

/// An error that names what failed, where, and (where known) the fix.
///
/// It is one pointer wide, so that `Result` stays small on the hot path. Context is added on the way up
/// with [`Error::with_op`], [`Error::with_operands`], [`Error::in_module`] and [`Error::with_hint`].
///
/// With `RUST_BACKTRACE=1` (or `RUST_LIB_BACKTRACE=1`) it also says where in the program it arose: `{:?}` and `{:#}`
/// end with the innermost [frames](Error::frames) outside of this library, and [`Error::backtrace`] has all frames.
/// Without the variable, nothing is captured.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    ops: Vec<Cow<'static, str>>,
    operands: Vec<Operand>,
    device: Option<String>,
    module: Vec<String>,
    layer: Option<FailedLayer>,
    hint: Option<Cow<'static, str>>,
    source: Option<Box<dyn StdError + Send + Sync>>,
    backtrace: Backtrace,
}

/// The innermost layer in which an error arose, with its path as far as the enclosing modules know it.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedLayer {
    /// Its type, and its address at the time.
    pub id: (usize, &'static str),
    /// Its path in the outermost module that has seen the error; empty for that module itself.
    pub path: String,
    /// A description of that module, if its own path is not known: `the Linear made at src/main.rs:7:20`.
    pub root: Option<String>,
}

/// The number of frames that are printed.
const FRAMES: usize = 3;

impl Error {
    /// An error of a kind, with a message that says what is wrong in terms of the values at hand.
    #[cold]
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            ops: Vec::new(),
            operands: Vec::new(),
            device: None,
            module: Vec::new(),
            layer: None,
            hint: None,
            source: None,
            backtrace: Backtrace::capture(),
        }))
    }

    /// [`ErrorKind::Shape`].
    #[cold]
    pub fn shape(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Shape, message)
    }

    /// [`ErrorKind::DType`].
    #[cold]
    pub fn dtype(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::DType, message)
    }

    /// [`ErrorKind::OutOfRange`].
    #[cold]
    pub fn out_of_range(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::OutOfRange, message)
    }

    /// [`ErrorKind::InvalidArgument`].
    #[cold]
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    /// [`ErrorKind::Unsupported`].
    #[cold]
    pub fn unsupported(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// [`ErrorKind::Io`] about a path, with the operating system's reason as its source.
    #[cold]
    pub fn io(action: &str, path: &std::path::Path, source: std::io::Error) -> Self {
        let hint = match source.kind() {
            std::io::ErrorKind::NotFound => Some("check that the path exists"),
            std::io::ErrorKind::PermissionDenied => Some("check the permissions, or choose another folder"),
            std::io::ErrorKind::ReadOnlyFilesystem => Some("the file system is read-only: choose another folder"),
            std::io::ErrorKind::StorageFull => Some("the disk is full: free some space, or choose another folder"),
            _ => None,
        };
        let message = format!("cannot {action} {}: {source}", printable(&path.to_string_lossy()));
        let error = Self::new(ErrorKind::Io, message).with_source(source);
        match hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }

    /// Names the op. Called by each layer on the way up: the outermost op is the one that the user called, and the
    /// innermost is the part of it that failed.
    #[must_use]
    pub fn with_op(mut self, op: impl Into<Cow<'static, str>>) -> Self {
        let op = op.into();
        if self.0.ops.last() != Some(&op) {
            self.0.ops.push(op);
        }
        self
    }

    /// Lists the operands of the op that was named last. On the way up the outermost op's operands win.
    #[must_use]
    pub fn with_operands(mut self, operands: impl IntoIterator<Item = (Shape, DType)>) -> Self {
        self.0.operands = operands
            .into_iter()
            .map(|(shape, dtype)| Operand { shape, dtype })
            .collect();
        self
    }

    /// Names the device on which it happened, unless an inner layer already has.
    #[must_use]
    pub fn with_device(mut self, device: impl fmt::Display) -> Self {
        self.0.device.get_or_insert_with(|| device.to_string());
        self
    }

    /// Prefixes the module path: called by each enclosing module on the way up.
    #[must_use]
    pub fn in_module(mut self, name: impl Into<String>) -> Self {
        self.0.module.push(name.into());
        self
    }

    /// Records in which layer the error arose. Called by layers, for the modules around them.
    #[doc(hidden)]
    #[must_use]
    pub fn with_layer(mut self, layer: FailedLayer) -> Self {
        self.0.layer = Some(layer);
        self
    }

    /// The layer in which it arose.
    #[doc(hidden)]
    pub fn layer(&self) -> Option<&FailedLayer> {
        self.0.layer.as_ref()
    }

    /// Says how to fix it, unless an inner layer already has.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.0.hint.get_or_insert_with(|| hint.into());
        self
    }

    /// Keeps the error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The message alone, without op, operands, module path and hint.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The op that the user called.
    pub fn op(&self) -> Option<&str> {
        self.0.ops.last().map(AsRef::as_ref)
    }

    /// The part of [`Error::op`] that failed, if that is an op of another name.
    pub fn inner_op(&self) -> Option<&str> {
        match self.0.ops.as_slice() {
            [inner, .., _] => Some(inner),
            _ => None,
        }
    }

    /// The operands of the op that the user called.
    pub fn operands(&self) -> &[Operand] {
        &self.0.operands
    }

    /// The device on which it failed.
    pub fn device(&self) -> Option<&str> {
        self.0.device.as_deref()
    }

    /// The path of the module in which it failed, such as `layers.0.fc1`.
    pub fn module_path(&self) -> Option<String> {
        let layer = self.0.layer.iter().map(|layer| layer.path.as_str());
        let parts = self.0.module.iter().rev().map(String::as_str).chain(layer);
        let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
        (!parts.is_empty()).then(|| parts.join("."))
    }

    /// The stack frames of the program, innermost first, without those of this library and the standard library.
    /// Empty without `RUST_BACKTRACE=1`; without line numbers if the program has no debug information. Resolving
    /// them takes milliseconds.
    pub fn frames(&self) -> Vec<Frame> {
        of_users(&self.0.backtrace)
    }

    /// All stack frames. Disabled without `RUST_BACKTRACE=1`.
    pub fn backtrace(&self) -> &Backtrace {
        &self.0.backtrace
    }

    /// How to fix it.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.op(), self.inner_op()) {
            (Some(op), Some(inner)) => write!(f, "{op} (in {inner}): ")?,
            (Some(op), None) => write!(f, "{op}: ")?,
            (None, _) => {}
        }
        f.write_str(self.message())?;
        if !self.0.operands.is_empty() {
            f.write_str(" (operands: ")?;
            for (i, operand) in self.0.operands.iter().enumerate() {
                let comma = if i == 0 { "" } else { ", " };
                write!(f, "{comma}{}{}", operand.dtype, operand.shape)?;
            }
            f.write_str(")")?;
        }
        if let Some(device) = self.device() {
            write!(f, " on {device}")?;
        }
        if let Some(path) = self.module_path() {
            // Parts of the message may be names from files.
            write!(f, " in module {}", printable(&path))?;
        }
        if let Some(layer) = &self.0.layer
            && let Some(root) = layer.root.as_deref().filter(|_| self.0.module.is_empty())
        {
            let of = if layer.path.is_empty() { "in" } else { "of" };
            write!(f, " {of} {root}")?;
        }
        if let Some(hint) = self.hint() {
            write!(f, "; {hint}")?;
        }
        if f.alternate() {
            self.write_frames(f)?;
        }
        Ok(())
    }
}

impl Error {
    fn write_frames(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frames = self.frames();
        frames
            .iter()
            .take(FRAMES)
            .try_for_each(|frame| write!(f, "\n  at {frame}"))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self, self.kind().as_str())?;
        self.write_frames(f)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_where_and_the_fix() {
        let error = Error::shape("inner dimensions 3 and 4 differ")
            .with_op("matmul")
            .with_op("linear")
            .with_operands([(Shape::from([2, 3]), DType::F32), (Shape::from([4, 5]), DType::F32)])
            .with_device("cpu")
            .in_module("fc1")
            .in_module("layers.0")
            .with_hint("transpose the weight");
        assert_eq!(
            error.to_string(),
            "linear (in matmul): inner dimensions 3 and 4 differ (operands: f32[2, 3], f32[4, 5]) on cpu \
             in module layers.0.fc1; transpose the weight"
        );
        assert_eq!(size_of::<Result<(), Error>>(), size_of::<usize>());
    }
}
