//! Conversion between the adapter's memory and the host's, with one copy in each direction.

use polygrad_core::{DType, Error, ErrorKind, HostTensor, Result, Scalar};

use burn_wgpu::CubeTensor;

use crate::BurnWgpuDevice;
use crate::wgpu::support::{DTYPES, missing};
use crate::wgpu::tensor::{BurnWgpuTensor, burn_dtype, burn_shape, ensure_room};

pub(crate) fn from_host(host: &HostTensor, device: BurnWgpuDevice) -> Result<BurnWgpuTensor> {
    let (shape, dtype) = (*host.shape(), host.dtype());
    if !DTYPES.contains(&dtype) {
        return Err(missing(dtype, device).with_device(device));
    }
    if shape.numel() == 0 {
        return BurnWgpuTensor::full(shape, Scalar::Int(0), dtype, device);
    }
    ensure_room(&shape, dtype, device)?;
    let cube = device.cube();
    let client = cube.client();
    let handle = if dtype == DType::Bool {
        let words: Vec<u32> = host.bytes().iter().map(|&byte| byte.into()).collect();
        client.create_from_slice(bytemuck::cast_slice(&words))
    } else {
        client.create_from_slice(host.bytes())
    };
    let tensor = CubeTensor::new_contiguous(client, cube, burn_shape(&shape), handle, burn_dtype(dtype));
    Ok(BurnWgpuTensor::new(tensor, shape, dtype, device))
}

pub(crate) fn to_host(x: &BurnWgpuTensor) -> Result<HostTensor> {
    let (shape, dtype) = (x.shape(), x.dtype());
    if x.is_empty() {
        return HostTensor::from_bytes(dtype, shape, &[]);
    }
    ensure_room(&shape, dtype, x.device())?;
    let bytes = read(&x.contiguous())?;
    if dtype != DType::Bool {
        let bytes = bytes.get(..shape.numel() * dtype.size()).ok_or_else(|| short(x))?;
        return HostTensor::from_bytes(dtype, shape, bytes);
    }
    let words = bytes.get(..shape.numel() * 4).ok_or_else(|| short(x))?;
    HostTensor::new(
        shape,
        words.chunks_exact(4).map(|word| word != [0; 4]).collect::<Vec<bool>>(),
    )
}

fn short(x: &BurnWgpuTensor) -> Error {
    Error::new(ErrorKind::DeviceError, "fewer bytes came back than the tensor has").with_device(x.device())
}

/// Reads the memory of a tensor in row-major order; waits for it.
fn read(x: &BurnWgpuTensor) -> Result<burn_std::Bytes> {
    let cube = x.cube();
    cube.client
        .read_one(cube.handle.clone())
        .map_err(|error| failed(&error.to_string(), x.device()))
}

/// The error for CubeCL's message about work that failed earlier.
pub(crate) fn failed(cause: &str, device: BurnWgpuDevice) -> Error {
    let kind = if cause.to_lowercase().contains("memory") {
        ErrorKind::OutOfMemory
    } else {
        ErrorKind::DeviceError
    };
    Error::new(kind, format!("work given to the adapter failed: {cause}")).with_device(device)
}
