//! The tensor, and the three ways in which a call creates or changes one.

use std::sync::Arc;

use polygrad_core::{DType, Layout, Outputs, Result, Shape, TensorType};

use crate::NullDevice;

/// A layout and a dtype on a device. Cloning shares it.
#[derive(Clone, Debug)]
pub struct NullTensor(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    layout: Layout,
    dtype: DType,
    device: NullDevice,
    /// Its bytes; 0 for a view.
    bytes: usize,
    /// The tensor that a view refers to, which it keeps alive.
    base: Option<NullTensor>,
}

impl NullTensor {
    /// The results of a call, created one after the other: if there is no room for one, those created before are
    /// dropped again.
    pub(crate) fn results(device: &NullDevice, of: Outputs<TensorType>) -> Result<Outputs<Self>> {
        device.called();
        of.try_map(|x| Self::make(device, Layout::contiguous(x.shape), x.dtype, None))
    }

    /// The result of a call.
    pub(crate) fn result(device: &NullDevice, shape: Shape, dtype: DType) -> Result<Self> {
        Self::results(device, Outputs::one(TensorType { shape, dtype }))?.take(0)
    }

    /// Another view of this tensor's memory.
    pub(crate) fn view(&self, layout: Layout) -> Result<Self> {
        self.device().called();
        let base = self.0.base.as_ref().unwrap_or(self).clone();
        Self::make(self.device(), layout, self.dtype(), Some(base))
    }

    /// The result of a call that writes to these tensors: in place, or in new memory if the old memory is shared.
    pub(crate) fn write<const N: usize>(targets: [Option<&mut Self>; N]) -> Result<()> {
        let mut targets: Vec<&mut Self> = targets.into_iter().flatten().collect();
        if let Some(first) = targets.first() {
            first.device().called();
        }
        let copies: Vec<Option<Self>> = targets.iter_mut().map(|x| x.copy_if_shared()).collect::<Result<_>>()?;
        for (target, copy) in targets.into_iter().zip(copies) {
            if let Some(copy) = copy {
                *target = copy;
            }
        }
        Ok(())
    }

    fn copy_if_shared(&mut self) -> Result<Option<Self>> {
        match Arc::get_mut(&mut self.0) {
            Some(Inner { base: None, .. }) => Ok(None),
            _ => Self::make(self.device(), Layout::contiguous(self.shape()), self.dtype(), None).map(Some),
        }
    }

    fn make(device: &NullDevice, layout: Layout, dtype: DType, base: Option<Self>) -> Result<Self> {
        let bytes = match base {
            None => layout.shape().numel() * dtype.size(),
            Some(_) => 0,
        };
        device.made(bytes)?;
        Ok(Self(Arc::new(Inner {
            layout,
            dtype,
            device: device.clone(),
            bytes,
            base,
        })))
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        *self.0.layout.shape()
    }

    pub(crate) fn tensor_type(&self) -> TensorType {
        TensorType {
            shape: self.shape(),
            dtype: self.dtype(),
        }
    }

    /// The layout that its elements would have.
    pub fn layout(&self) -> &Layout {
        &self.0.layout
    }

    /// The dtype.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// The device.
    pub fn device(&self) -> &NullDevice {
        &self.0.device
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.device.dropped(self.bytes);
    }
}
