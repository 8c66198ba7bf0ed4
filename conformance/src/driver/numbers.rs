//! Numbers for cases, and correct results from the reference backend.

use polygrad_core::{Backend, DType, HostTensor, Layout, Result, Shape, dispatch_dtype};
use polygrad_reference::{Reference, ReferenceDevice, ReferenceTensor};

/// Pseudorandom numbers, the same for the same seed: floats between −2 and 2, integers between −5 and 5 (0 and 10 if
/// unsigned).
pub(super) fn drawn(dtype: DType, dims: &[usize], seed: u64) -> Result<HostTensor> {
    let shape = Shape::new(dims)?;
    let mut state = seed
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(0x1234_5678_9abc_def1);
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let values: Vec<f64> = (0..shape.numel())
        .map(|_| match dtype {
            DType::Bool => (next() % 2) as f64,
            DType::U8 => (next() % 11) as f64,
            DType::I32 | DType::I64 => (next() % 11) as f64 - 5.0,
            _ => (next() % 4001) as f64 / 1000.0 - 2.0,
        })
        .collect();
    Ok(HostTensor::new(shape, values)?.cast(dtype))
}

/// i64 indices below `below`.
pub(super) fn positions(dims: &[usize], below: usize, seed: u64) -> Result<HostTensor> {
    let base = drawn(DType::F64, dims, seed)?;
    let values: Vec<i64> = (base.to_f64_vec().iter())
        .map(|x| ((x * 1000.0) as i64 + 2000).rem_euclid(below.max(1) as i64))
        .collect();
    HostTensor::new(Shape::new(dims)?, values)
}

/// These values as a vector.
pub(super) fn listed(dtype: DType, values: &[f64]) -> Result<HostTensor> {
    Ok(HostTensor::new(Shape::new(&[values.len()])?, values.to_vec())?.cast(dtype))
}

/// Special numbers of a dtype: extremes, zeros, and for floats infinities and NaN.
pub(super) fn special(dtype: DType) -> Result<HostTensor> {
    let ints = |values: &[i64]| HostTensor::new(Shape::new(&[values.len()])?, values.to_vec());
    match dtype {
        DType::Bool => listed(dtype, &[0.0, 1.0, 1.0, 0.0]),
        DType::U8 => listed(dtype, &[0.0, 1.0, 2.0, 3.0, 7.0, 100.0, 200.0, 255.0]),
        DType::I32 => {
            let (low, high) = (i32::MIN.into(), i32::MAX.into());
            Ok(ints(&[0, 1, -1, 2, -3, 7, 100, -100, low, high])?.cast(dtype))
        }
        DType::I64 => ints(&[0, 1, -1, 2, -3, 7, 100, -100, i64::MIN, i64::MAX]),
        _ => {
            let (nan, inf) = (f64::NAN, f64::INFINITY);
            let moderate = [
                0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 1.5, 3.25, -3.25, 7.0, 20.0, -20.0, 0.1, 1e-3,
            ];
            listed(dtype, &[&[nan, inf, -inf][..], &moderate].concat())
        }
    }
}

/// The elements that a layout selects from a host tensor, in row-major order.
pub(super) fn walked(base: &HostTensor, layout: &Layout) -> Result<HostTensor> {
    let shape = *layout.shape();
    dispatch_dtype!(base.dtype(), T => {
        let values = base.as_slice::<T>()?;
        let picked: Vec<T> = places(layout).into_iter().map(|at| values[at]).collect();
        HostTensor::new(shape, picked)
    })
}

/// The memory offsets of a layout's elements, in row-major order.
pub(super) fn places(layout: &Layout) -> Vec<usize> {
    let shape = *layout.shape();
    let place = |mut i: usize| {
        let mut at = layout.offset().cast_signed();
        for axis in (0..shape.rank()).rev() {
            at += (i % shape[axis]).cast_signed() * layout.strides()[axis];
            i /= shape[axis];
        }
        at.cast_unsigned()
    };
    (0..shape.numel()).map(place).collect()
}

/// A tensor of the reference: in f64 for floats, so that results are not rounded.
pub(super) fn precise(x: &HostTensor) -> Result<ReferenceTensor> {
    let wide = if x.dtype().is_float() {
        x.cast(DType::F64)
    } else {
        x.clone()
    };
    Reference::from_host(wide, &ReferenceDevice)
}

/// A tensor of the reference in its own dtype.
pub(super) fn rounded(x: &HostTensor) -> Result<ReferenceTensor> {
    Reference::from_host(x.clone(), &ReferenceDevice)
}

/// Copies a tensor from the reference to the host.
pub(super) fn host(x: &ReferenceTensor) -> Result<HostTensor> {
    Reference::to_host(x)
}
