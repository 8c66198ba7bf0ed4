//! Which dtypes there are, which op takes which of them, and who computes it.

use polygrad_core::{DType, Error};

use crate::BurnWgpuDevice;

/// What tensors can hold. Shaders in WGSL have no u8 and no bf16 at all; f16 and f64 have no elementary functions there
/// that hold the contract.
pub(crate) const DTYPES: [DType; 4] = [DType::F32, DType::I64, DType::I32, DType::Bool];

/// Why an op does not take a dtype: it is not defined for it, or the device does not have it.
pub(crate) fn refused(op: &'static str, dtype: DType, device: BurnWgpuDevice) -> Error {
    let error = if DTYPES.contains(&dtype) {
        Error::dtype(format!("not defined for {dtype}"))
    } else {
        missing(dtype, device)
    };
    error.with_op(op).with_device(device)
}

/// Why there are no tensors of a dtype.
pub(crate) fn missing(dtype: DType, device: BurnWgpuDevice) -> Error {
    Error::unsupported(format!("Burn's wgpu device {} has no {dtype}", device.adapter())).with_hint(
        "it has f32, i64, i32 and bool: convert with to_dtype(DType::F32) before moving there, or use backend burn, which is the CPU",
    )
}

/// An op that Polygrad learned after this backend was written.
pub(crate) fn unknown(op: &'static str, device: BurnWgpuDevice) -> Error {
    Error::unsupported("the adapter to Burn's wgpu devices does not know this op")
        .with_op(op)
        .with_device(device)
        .with_hint("use backend burn, which is the CPU, for it")
}
