//! What a profile holds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use polygrad_tensor::{Activity, DType, Shape};

/// From one moment to another, in time since the first step began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// When it began.
    pub begin: Duration,
    /// When it ended.
    pub end: Duration,
}

impl Span {
    /// From one moment to another, in time since a third.
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
    /// And all that is none of the others: data that are brought in, values that are read.
    Forward,
    /// Gradients.
    Backward,
    /// Updates of parameters.
    Optimizer,
    /// A step of what was [captured](crate::CapturedStep) or [compiled](crate::Compile), whose passes and
    /// modules are not told apart.
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

/// One call of the device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Sample {
    /// The op's name, or the method's, such as `from_host`.
    pub op: &'static str,
    /// The tensors that it took, or of one that takes none, those that it made.
    pub operands: Box<[(DType, Shape)]>,
    /// When it ran.
    pub span: Span,
    pub(super) activity: Activity,
    pub(super) replayed: bool,
    /// The path of the layer for whose sake it ran, empty for the model itself; nothing outside of the model.
    pub module: Option<Arc<str>>,
    /// Operations of products, a multiplication with its addition as two.
    pub flops: u64,
    /// The bytes of the tensors that it took and made.
    pub bytes: u64,
    /// The bytes of tensors that it had to copy, since somebody else holds what it was to update in place.
    pub copied: u64,
}

impl Sample {
    /// What it was for.
    pub fn pass(&self) -> Pass {
        match self.activity {
            _ if self.replayed => Pass::Replay,
            Activity::Backward(_) => Pass::Backward,
            Activity::Update(_) => Pass::Optimizer,
            _ => Pass::Forward,
        }
    }

    /// The operands' shapes, with their dtypes where these are not f32: `[64, 10] i64[64]`.
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
    /// Its path.
    pub place: Arc<str>,
    /// Such as `Linear`.
    pub kind: String,
    /// When it ran.
    pub span: Span,
}

/// Where the time of some steps went: what [`profile`](super::profile()) and [`Profiler`](super::Profiler) give. As
/// text it is three tables: of ops, of modules, and of all together.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Profile {
    /// The steps.
    pub steps: Vec<Span>,
    /// All calls in them, in the order of time.
    pub samples: Vec<Sample>,
    /// All calls of layers, inner ones before outer ones.
    pub layers: Vec<LayerCall>,
}

impl Profile {
    /// How a module is called, with its type where it is a layer: `fc1 (Linear)`, `(model)`, `(outside the model)`.
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
