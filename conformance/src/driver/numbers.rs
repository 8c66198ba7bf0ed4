//! Numbers for cases, and right answers by the reference backend.

use polygrad_core::{Backend, DType, HostTensor, Layout, Result, Shape, dispatch_dtype};
use polygrad_reference::{Reference, ReferenceDevice, ReferenceTensor};

/// Numbers that look drawn, the same for the same seed: floats between −2 and 2, integers between −5 and 5 (0
/// and 10 if unsigned).
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

/// i64 positions below `below`.
pub(super) fn positions(dims: &[usize], below: usize, seed: u64) -> Result<HostTensor> {
    let base = drawn(DType::F64, dims, seed)?;
    let values: Vec<i64> = (base.to_f64_vec().iter())
        .map(|x| ((x * 1000.0) as i64 + 2000).rem_euclid(below.max(1) as i64))
        .collect();
    HostTensor::new(Shape::new(dims)?, values)
}

/// All of these as a row.
pub(super) fn listed(dtype: DType, values: &[f64]) -> Result<HostTensor> {
    Ok(HostTensor::new(Shape::new(&[values.len()])?, values.to_vec())?.cast(dtype))
}

/// Numbers at which ops go wrong, for a dtype: extremes, zeros, and for floats what is no number.
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

/// The elements of a layout over a host tensor's memory, in row-major order.
pub(super) fn walked(base: &HostTensor, layout: &Layout) -> Result<HostTensor> {
    let shape = *layout.shape();
    dispatch_dtype!(base.dtype(), T => {
        let values = base.as_slice::<T>()?;
        let picked: Vec<T> = places(layout).into_iter().map(|at| values[at]).collect();
        HostTensor::new(shape, picked)
    })
}

/// Where the elements of a layout lie, in row-major order.
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

/// The reference's tensor: in f64 for floats, so that answers are not rounded on the way.
pub(super) fn precise(x: &HostTensor) -> Result<ReferenceTensor> {
    let wide = if x.dtype().is_float() {
        x.cast(DType::F64)
    } else {
        x.clone()
    };
    Reference::from_host(wide, &ReferenceDevice)
}

/// The reference's tensor, in its own dtype.
pub(super) fn rounded(x: &HostTensor) -> Result<ReferenceTensor> {
    Reference::from_host(x.clone(), &ReferenceDevice)
}

/// Out of the reference.
pub(super) fn host(x: &ReferenceTensor) -> Result<HostTensor> {
    Reference::to_host(x)
}
