//! Products with block-quantized weights of few bits.

use polygrad_core::{BlockScheme, DType, Error, Result, Shape, decompose};

use super::convert;
use super::half::Half;
use crate::gemm::quantized::{Factors, Weight};
use crate::{Cpu, CpuTensor};

/// See [`polygrad_core::Backend::quantized_linear`].
pub(crate) fn quantized_linear(
    x: &CpuTensor,
    weight: &CpuTensor,
    scales: &CpuTensor,
    zeros: &CpuTensor,
    scheme: BlockScheme,
    transposed: bool,
) -> Result<CpuTensor> {
    let fail = |error: Error| {
        let operands = [x, weight, scales, zeros].map(|x| (*x.shape(), x.dtype()));
        error.with_op("quantized_linear").with_operands(operands)
    };
    let dtypes = [weight, scales, zeros].map(CpuTensor::dtype);
    scheme.check_dtypes(dtypes).map_err(fail)?;
    let [n, k] = scheme
        .shape(weight.shape(), scales.shape(), zeros.shape())
        .map_err(fail)?;
    let (inner, outer) = if transposed { (n, k) } else { (k, n) };
    let (shape, rank) = (*x.shape(), x.shape().rank());
    if shape.last() != Some(&inner) || !x.dtype().is_float() {
        return Err(fail(Error::shape(format!("takes floats […, {inner}]"))));
    }
    if Half::of(x.dtype()).is_some() {
        let wide = convert::cast(x, DType::F32)?;
        let y = quantized_linear(&wide, weight, scales, zeros, scheme, transposed)?;
        return convert::cast(&y, x.dtype());
    }
    let interleaved = weight.shape().rank() == 3;
    if interleaved && (transposed || !scheme.rounds_input()) {
        let [weight, scales, zeros] = [
            decompose::deinterleaved::<Cpu>(weight)?,
            decompose::deinterleaved::<Cpu>(scales)?,
            decompose::deinterleaved::<Cpu>(zeros)?,
        ];
        return quantized_linear(x, &weight, &scales, &zeros, scheme, transposed);
    }
    let (x, weight) = (x.contiguous()?, aligned(weight)?);
    let (scales, zeros) = (scales.contiguous()?, zeros.contiguous()?);
    let kinds = (factors(&scales), factors(&zeros));
    let (Some(level), DType::F32, (Some(kept_scales), Some(kept_zeros))) = (x.device().vectors(), x.dtype(), kinds)
    else {
        return decompose::quantized_linear::<Cpu>(&x, &weight, &scales, &zeros, scheme, transposed);
    };
    let mut out = CpuTensor::empty(Shape::new(&shape.with_dim(rank - 1, outer))?, DType::F32, x.device())?;
    let rows = shape[..rank - 1].iter().product();
    let of = Weight {
        bytes: weight.ptr(),
        n,
        k,
        interleaved,
        scheme,
        scales: kept_scales,
        zeros: kept_zeros,
    };
    // SAFETY: the matrices are the tensors, which outlive the product and have these shapes; the output is new.
    unsafe {
        of.product(x.device(), level, (rows, transposed), x.typed()?, out.ptr_mut().cast())?;
    }
    Ok(out)
}

/// The factors of a contiguous tensor: one number per block, or one number for all.
fn factors(x: &CpuTensor) -> Option<Factors> {
    Factors::new(x.dtype(), x.ptr(), x.shape().rank() == 1)
}

/// The weight, contiguous and aligned for 32-bit words.
fn aligned(weight: &CpuTensor) -> Result<CpuTensor> {
    let weight = weight.contiguous()?;
    match weight.ptr().addr().is_multiple_of(align_of::<u32>()) {
        true => Ok(weight),
        false => weight.copied(),
    }
}
