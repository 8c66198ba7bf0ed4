//! Conversion between Burn's memory and host tensors, which share memory in both directions.

use std::ops::Range;
use std::sync::Arc;

use burn_flex::{FlexTensor, Layout};
use burn_std::{AllocationProperty, Bytes};
use polygrad_core::{HostBytes, HostTensor, Result, Scalar};

use crate::flex::tensor::{BurnTensor, burn_dtype, burn_shape};

/// A host tensor's memory, borrowed by Burn. Burn's `Bytes` copies it before writing.
struct Lent(Arc<dyn HostBytes>);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// Burn's memory, borrowed by a host tensor. Meanwhile Burn considers the memory shared, and does not write it.
struct Borrowed {
    flex: FlexTensor,
    range: Range<usize>,
}

impl HostBytes for Borrowed {
    fn bytes(&self) -> &[u8] {
        &self.flex.bytes()[self.range.clone()]
    }
}

pub(crate) fn from_host(host: &HostTensor) -> Result<BurnTensor> {
    let (shape, dtype) = (*host.shape(), host.dtype());
    if shape.numel() == 0 {
        return BurnTensor::full(shape, Scalar::Int(0), dtype);
    }
    let bytes = bytes::Bytes::from_owner(Lent(Arc::clone(host.shared())));
    let bytes = Bytes::from_shared(bytes, AllocationProperty::Native);
    Ok(BurnTensor::new(FlexTensor::new(
        bytes,
        Layout::contiguous(burn_shape(&shape)),
        burn_dtype(dtype),
    )))
}

pub(crate) fn to_host(x: &BurnTensor) -> Result<HostTensor> {
    let x = x.contiguous()?;
    let (shape, dtype) = (x.shape(), x.dtype());
    let start = x.flex().layout().start_offset() * dtype.size();
    let range = if shape.numel() == 0 {
        0..0
    } else {
        start..start + shape.numel() * dtype.size()
    };
    HostTensor::from_shared(dtype, shape, Arc::new(Borrowed { flex: x.into(), range }))
}
