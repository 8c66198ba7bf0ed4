//! Convolution and pooling.

mod geometry;
mod patches;
mod pool;

pub(crate) use pool::{avg_pool, avg_pool_backward, max_pool, max_pool_backward};

use polygrad_core::{ConvParams, DType, Element, Result, Shape};

use crate::gemm::{Dims, Mat, MatMut, Real, Update};
use crate::loops::Pointer;
use crate::ops::half::Half;
use crate::ops::{convert, floats, same_dtype};
use crate::{CpuTensor, gemm};
use geometry::Geometry;

/// See [`polygrad_core::Backend::conv`].
pub(crate) fn conv(x: &CpuTensor, weight: &CpuTensor, params: &ConvParams) -> Result<CpuTensor> {
    let dtype = same_dtype("conv", x, weight)?;
    floats("conv", dtype)?;
    let operands = || [(*x.shape(), x.dtype()), (*weight.shape(), weight.dtype())];
    let shape = params
        .output_shape(x.shape(), weight.shape())
        .map_err(|error| error.with_op("conv").with_operands(operands()))?;
    if Half::of(dtype).is_some() {
        let (x, weight) = (convert::cast(x, DType::F32)?, convert::cast(weight, DType::F32)?);
        return convert::cast(&conv(&x, &weight, params)?, dtype);
    }
    let mut out = CpuTensor::empty(shape, dtype, x.device())?;
    if shape.numel() == 0 {
        return Ok(out);
    }
    let (x, weight) = (x.contiguous()?, weight.contiguous()?);
    let geometry = Geometry::of_conv(x.shape(), weight.shape(), &shape, params);
    if dtype == DType::F32 {
        patches::conv::<f32>(&x, &weight, &mut out, &geometry)?;
    } else {
        patches::conv::<f64>(&x, &weight, &mut out, &geometry)?;
    }
    Ok(out)
}
