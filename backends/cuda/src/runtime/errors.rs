//! Conversion of CUDA's errors.

use cudarc::cublas::{result as blas, sys as blas_sys};
use cudarc::driver::{DriverError, sys};
use polygrad_core::{Error, ErrorKind};

/// CUDA's name of an error.
pub(super) fn driver_error_name(error: DriverError) -> String {
    match error.error_name() {
        Ok(name) => name.to_string_lossy().into_owned(),
        Err(_) => format!("error {}", error.0 as u32),
    }
}

pub(crate) fn failed(error: DriverError) -> Error {
    if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
        return Error::new(ErrorKind::OutOfMemory, "the device has no such memory left")
            .with_hint("free tensors, or use smaller batches");
    }
    Error::new(
        ErrorKind::DeviceError,
        format!("CUDA failed: {}", driver_error_name(error)),
    )
    .with_hint("an earlier call may have caused it; a device that was lost works again in a new process")
}

pub(super) fn blas_failed(error: blas::CublasError) -> Error {
    match error.0 {
        blas_sys::cublasStatus_t::CUBLAS_STATUS_ALLOC_FAILED => {
            Error::new(ErrorKind::OutOfMemory, "cuBLAS has no memory left")
        }
        status => Error::new(ErrorKind::DeviceError, format!("cuBLAS failed: {status:?}")),
    }
}
