//! The contents of a profile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use polygrad_tensor::{Activity, DType, Shape};

/// An interval, in time since the first step began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// When it began.
    pub begin: Duration,
    /// When it ended.
    pub end: Duration,
}

impl Span {
    /// The interval from `begin` to `end`, in time since `origin`.
    pub fn since(origin: Instant, begin: Instant, end: Instant) -> Self {
        let since = |at: Instant| at.saturating_duration_since(origin);
        Self {
            begin: since(begin),
            end: since(end),
        }
    }

    /// How long it took.
    pub fn duration(&self) -> Duration {
        self.end.saturating_sub(self.begin)
    }
}

/// A part of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Pass {
    /// The forward pass, and everything that is none of the others: loading data, reading values.
    Forward,
    /// Gradients.
    Backward,
    /// Updates of parameters.
    Optimizer,
    /// A replayed step of something [captured](crate::CapturedStep) or [compiled](crate::Compile), in which passes and
    /// modules cannot be told apart.
    Replay,
}

impl Pass {
    pub(super) const ALL: [Self; 4] = [Self::Forward, Self::Backward, Self::Optimizer, Self::Replay];

    /// Its name, such as `forward`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Optimizer => "optimizer",
            Self::Replay => "replay",
        }
    }
}

/// One call to the device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Sample {
    /// The name of the op, or of the device method, such as `from_host`.
    pub op: &'static str,
    /// The tensors that it took or, if it takes none, those that it made.
    pub operands: Box<[(DType, Shape)]>,
    /// When it ran.
    pub span: Span,
    pub(super) activity: Activity,
    pub(super) replayed: bool,
    /// The path of the layer that it ran for, empty for the model itself; `None` outside of the model.
    pub module: Option<Arc<str>>,
    /// Floating-point operations of products; a multiplication with its addition counts as two.
    pub flops: u64,
    /// The bytes of the tensors that it took and made.
    pub bytes: u64,
    /// The bytes of tensors that it had to copy instead of updating them in place, since they had another owner.
    pub copied: u64,
}

impl Sample {
    /// The pass it belongs to.
    pub fn pass(&self) -> Pass {
        match self.activity {
            _ if self.replayed => Pass::Replay,
            Activity::Backward(_) => Pass::Backward,
            Activity::Update(_) => Pass::Optimizer,
            _ => Pass::Forward,
        }
    }

    /// The operands' shapes, with their dtypes if these are not f32: `[64, 10] i64[64]`.
    pub fn shapes(&self) -> String {
        let text = |(dtype, shape): &(DType, Shape)| match dtype {
            DType::F32 => shape.to_string(),
            dtype => format!("{dtype}{shape}"),
        };
        self.operands.iter().map(text).collect::<Vec<_>>().join(" ")
    }
}

/// One call of a layer's forward.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LayerCall {
    /// The layer's path.
    pub place: Arc<str>,
    /// The layer's type, such as `Linear`.
    pub kind: String,
    /// When it ran.
    pub span: Span,
}

/// Time spent in some steps: the result of [`profile`](super::profile()) and [`Profiler`](super::Profiler). Displays as
/// three tables: of ops, of modules, and of totals.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Profile {
    /// The steps.
    pub steps: Vec<Span>,
    /// All calls in them, in chronological order.
    pub samples: Vec<Sample>,
    /// All calls of layers, inner ones before outer ones.
    pub layers: Vec<LayerCall>,
}

impl Profile {
    /// The label of a module, with its type if it is a layer: `fc1 (Linear)`, `(model)`, `(outside the model)`.
    pub fn label(&self, module: Option<&str>) -> String {
        let path = match module {
            None => return "(outside the model)".to_owned(),
            Some("") => return "(model)".to_owned(),
            Some(path) => path,
        };
        match self.layers.iter().find(|layer| *layer.place == *path) {
            Some(layer) if !path.starts_with('(') => format!("{path} ({})", layer.kind),
            _ => path.to_owned(),
        }
    }
}
