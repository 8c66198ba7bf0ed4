//! The supported dtypes, and which op supports which of them.

use polygrad_core::{DType, Error};

use crate::BurnWgpuDevice;

/// The supported dtypes. WGSL has no u8 and no bf16; for f16 and f64 it has no elementary functions within the
/// contract's bounds.
pub(crate) const DTYPES: [DType; 4] = [DType::F32, DType::I64, DType::I32, DType::Bool];

/// The error for a dtype: the op is not defined for it, or the device does not have it.
pub(crate) fn refused(op: &'static str, dtype: DType, device: BurnWgpuDevice) -> Error {
    let error = if DTYPES.contains(&dtype) {
        Error::dtype(format!("not defined for {dtype}"))
    } else {
        missing(dtype, device)
    };
    error.with_op(op).with_device(device)
}

/// The error for a dtype that the device does not have.
pub(crate) fn missing(dtype: DType, device: BurnWgpuDevice) -> Error {
    Error::unsupported(format!("Burn's wgpu device {} has no {dtype}", device.adapter())).with_hint(
        "it has f32, i64, i32 and bool: convert with to_dtype(DType::F32) before moving there, or use backend burn, which is the CPU",
    )
}

/// The error for an op that is newer than this backend.
pub(crate) fn unknown(op: &'static str, device: BurnWgpuDevice) -> Error {
    Error::unsupported("the adapter to Burn's wgpu devices does not know this op")
        .with_op(op)
        .with_device(device)
        .with_hint("use backend burn, which is the CPU, for it")
}
