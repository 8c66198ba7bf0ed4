//! Collectives on tensors of any device.

use std::sync::Arc;

use super::{Communicator, HostBuffer, HostSlice, HostSliceMut, Reduction};
use crate::{AnyBackend, AnyTensor, Backend, HostTensor, Result, Shape};

impl dyn Communicator + '_ {
    /// The element-wise reduction of the tensors of all ranks, on the tensor's device. It goes through host memory.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`]; those of the device.
    pub fn all_reduce_tensor(&self, tensor: &AnyTensor, op: Reduction) -> Result<AnyTensor> {
        on_host(tensor, tensor.shape(), |own, mut all| {
            all.bytes_mut().copy_from_slice(own.bytes());
            self.all_reduce(all, op)
        })
    }

    /// The tensors of all ranks joined along the first axis, which becomes `size` times as long. It goes through host
    /// memory.
    ///
    /// # Errors
    /// A tensor of rank 0; as [`Communicator::all_gather`]; those of the device.
    pub fn all_gather_tensor(&self, tensor: &AnyTensor) -> Result<AnyTensor> {
        let shape = tensor.shape();
        let Some(first) = shape.dims().first() else {
            return Err(crate::Error::shape("a tensor of rank 0 has no axis to gather along").with_op("all_gather"));
        };
        let whole = shape.with_dim(0, first * self.size());
        on_host(tensor, whole, |own, all| self.all_gather(own, all))
    }

    /// The tensor of rank `root`, on this rank's device. `tensor` gives the device, the shape and the dtype. It goes
    /// through host memory.
    ///
    /// # Errors
    /// As [`Communicator::broadcast`]; those of the device.
    pub fn broadcast_tensor(&self, tensor: &AnyTensor, root: usize) -> Result<AnyTensor> {
        on_host(tensor, tensor.shape(), |own, mut all| {
            all.bytes_mut().copy_from_slice(own.bytes());
            self.broadcast(all, root)
        })
    }
}

/// A new tensor of `shape` on the device of `tensor`, whose values `f` computes on the host from those of `tensor`.
fn on_host(
    tensor: &AnyTensor,
    shape: Shape,
    f: impl FnOnce(HostSlice<'_>, HostSliceMut<'_>) -> Result<()>,
) -> Result<AnyTensor> {
    let own = AnyBackend::to_host(tensor)?;
    let dtype = own.dtype();
    let mut buffer = HostBuffer::new(shape.numel() * dtype.size())?;
    f(
        HostSlice::from_bytes(dtype, own.bytes())?,
        HostSliceMut::from_bytes(dtype, buffer.bytes_mut())?,
    )?;
    let made = HostTensor::from_shared(dtype, shape, Arc::new(buffer))?;
    AnyBackend::from_host(made, &AnyBackend::device(tensor))
}
