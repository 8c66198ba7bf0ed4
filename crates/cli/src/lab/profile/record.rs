//! What a profile holds.

use std::sync::Arc;

use polygrad::{DType, Shape, tensor::Activity};

use crate::lab::trace::Span;

/// A part of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pass {
    /// And all that is none of the others: data that are brought in, values that are read.
    Forward,
    Backward,
    /// Updates of parameters.
    Optimizer,
}

impl Pass {
    pub(super) const ALL: [Self; 3] = [Self::Forward, Self::Backward, Self::Optimizer];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Optimizer => "optimizer",
        }
    }
}

/// One call of the device.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// The op's name, or the method's, such as `from_host`.
    pub(super) op: &'static str,
    pub(super) operands: Box<[(DType, Shape)]>,
    pub(super) span: Span,
    pub(super) activity: Activity,
    /// The path of the layer for whose sake it ran, empty for the model itself; nothing outside of the model.
    pub(super) module: Option<Arc<str>>,
    /// Operations of products, a multiplication with its addition as two.
    pub(super) flops: u64,
    /// The bytes of tensors that it had to copy, since somebody else holds what it was to update in place.
    pub(super) copied: u64,
}

impl Sample {
    pub(super) fn pass(&self) -> Pass {
        match self.activity {
            Activity::Backward(_) => Pass::Backward,
            Activity::Update(_) => Pass::Optimizer,
            _ => Pass::Forward,
        }
    }

    /// The operands' shapes, with their dtypes where these are not f32: `[64, 10] i64[64]`.
    pub(super) fn shapes(&self) -> String {
        let text = |(dtype, shape): &(DType, Shape)| match dtype {
            DType::F32 => shape.to_string(),
            dtype => format!("{dtype}{shape}"),
        };
        self.operands.iter().map(text).collect::<Vec<_>>().join(" ")
    }
}

/// One call of a layer's forward.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    pub(super) place: Arc<str>,
    /// Such as `Linear`.
    pub(super) kind: String,
    pub(super) span: Span,
}

/// Some steps, and all calls in them in the order of time, which begins with the first step.
#[derive(Clone, Debug, Default)]
pub(super) struct Profile {
    pub(super) steps: Vec<Span>,
    pub(super) samples: Vec<Sample>,
    /// Inner ones before outer ones.
    pub(super) layers: Vec<Layer>,
}

impl Profile {
    /// How a module is called, with its type where it is a layer: `fc1 (Linear)`, `(model)`, `(outside the model)`.
    pub(super) fn label(&self, module: Option<&str>) -> String {
        let path = match module {
            None => return "(outside the model)".to_owned(),
            Some("") => return "(model)".to_owned(),
            Some(path) => path,
        };
        match self.layers.iter().find(|layer| *layer.place == *path) {
            Some(layer) => format!("{path} ({})", layer.kind),
            None => path.to_owned(),
        }
    }
}
