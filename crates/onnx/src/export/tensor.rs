//! A tensor of a recording.

use polygrad_core::{DType, HostTensor, Result, Shape};

use super::call::Call;
use super::extent::Extent;
use super::recording::Recording;
use crate::graph::ValueId;

/// A value of a [`Recording`]: it has a shape and a dtype, and its elements are known only when the model runs.
#[derive(Clone, Debug)]
pub struct OnnxTensor {
    pub(super) id: ValueId,
    pub(super) shape: Shape,
    pub(super) dtype: DType,
    pub(super) recording: Recording,
}

impl OnnxTensor {
    /// Its content, if known now.
    pub(super) fn constant(&self) -> Option<HostTensor> {
        self.recording.state().values[self.id.index()].constant.clone()
    }

    /// Its content, if known now and not a parameter or buffer of the model.
    pub(super) fn anonymous_constant(&self) -> Option<HostTensor> {
        let state = self.recording.state();
        let value = &state.values[self.id.index()];
        value.constant.clone().filter(|_| value.name.is_none())
    }

    /// The name of a parameter, buffer or input.
    pub(super) fn name(&self) -> Option<String> {
        self.recording.state().values[self.id.index()].name.clone()
    }

    /// The shape in terms of the symbols.
    pub(super) fn extents(&self) -> Vec<Extent> {
        self.recording.state().values[self.id.index()].extents.clone()
    }

    /// Records a call whose output is like this tensor.
    pub(super) fn like(&self, call: Call) -> Result<Self> {
        self.recording.one(call.gives(self.shape, self.dtype))
    }

    /// The result of an op with this tensor as the only operand.
    pub(super) fn map(&self, op: &'static str) -> Result<Self> {
        self.like(Call::of(op, [self]))
    }

    /// A constant scalar of this tensor's dtype.
    pub(super) fn number(&self, value: f64) -> Self {
        let host = HostTensor::scalar(value).cast(self.dtype);
        self.recording.constant(host)
    }
}
