//! Joining and padding.

use polygrad_core::{Error, Layout, Result, Scalar, SliceRange, decompose};

use super::{axis_in, create, same_dtype};
use crate::CpuTensor;
use crate::loops::copy_into;

/// See [`polygrad_core::Backend::concat`].
pub(crate) fn concat(xs: &[&CpuTensor], axis: usize) -> Result<CpuTensor> {
    let Some(&first) = xs.first() else {
        return Err(Error::invalid("nothing to join").with_op("cat"));
    };
    axis_in("cat", first, axis)?;
    let mut total = 0;
    for x in xs {
        same_dtype("cat", first, x)?;
        if x.shape().rank() != first.shape().rank() || x.shape().with_dim(axis, 0) != first.shape().with_dim(axis, 0) {
            return Err(
                Error::shape(format!("{} and {} differ beyond axis {axis}", first.shape(), x.shape()))
                    .with_op("cat")
                    .with_operands(xs.iter().map(|x| (*x.shape(), x.dtype()))),
            );
        }
        total += x.shape()[axis];
    }
    let shape = polygrad_core::Shape::new(&first.shape().with_dim(axis, total))?;
    let mut out = CpuTensor::empty(shape, first.dtype(), first.device())?;
    let mut start = 0;
    for x in xs {
        let len = x.shape()[axis];
        let place = out.layout().slice_axis(axis, SliceRange::new(start, len, 1));
        // SAFETY: `place` is a part of `out`, which is new, and has the shape of `x`.
        unsafe { write_part(x, &mut out, &place) };
        start += len;
    }
    Ok(out)
}

/// See [`polygrad_core::Backend::pad`].
pub(crate) fn pad(x: &CpuTensor, padding: &[(usize, usize)], value: Scalar) -> Result<CpuTensor> {
    if padding.len() != x.shape().rank() {
        return Err(Error::invalid(format!("{} pairs for shape {}", padding.len(), x.shape())).with_op("pad"));
    }
    if padding.iter().all(|&pair| pair == (0, 0)) {
        return Ok(x.clone());
    }
    let too_large = || Error::shape(format!("a border of {padding:?} is too large")).with_op("pad");
    let mut dims = x.shape().to_vec();
    for (dim, &(before, after)) in dims.iter_mut().zip(padding) {
        *dim = dim
            .checked_add(before)
            .and_then(|d| d.checked_add(after))
            .ok_or_else(too_large)?;
    }
    let shape = polygrad_core::Shape::new(&dims)?;
    let mut out = create::full(shape, value, x.dtype(), x.device())?;
    let ranges: Vec<_> = padding
        .iter()
        .zip(x.shape().iter())
        .map(|(&(before, _), &dim)| SliceRange::new(before, dim, 1))
        .collect();
    let place = out.layout().slice(&ranges);
    // SAFETY: `place` is a part of `out`, which is new, and has the shape of `x`.
    unsafe { write_part(x, &mut out, &place) };
    Ok(out)
}

/// See [`polygrad_core::Backend::slice_scatter`].
pub(crate) fn slice_scatter(x: &mut CpuTensor, src: &CpuTensor, axis: usize, start: usize) -> Result<()> {
    decompose::check_slice_scatter((x.shape(), x.dtype()), (src.shape(), src.dtype()), axis, start)?;
    x.make_writable()?;
    // The layout starts at 0, since `x` may be the end of a larger tensor that has been dropped.
    let place = Layout::contiguous(*x.shape()).slice_axis(axis, SliceRange::new(start, src.shape()[axis], 1));
    // SAFETY: `place` is a part of `x`, with the shape of `src`; `x` is not shared, so `src` lies elsewhere.
    unsafe { write_part(src, x, &place) };
    Ok(())
}

/// # Safety
/// `place` must be a part of `out`'s contiguous layout with the shape of `x`; `out` must not be shared.
unsafe fn write_part(x: &CpuTensor, out: &mut CpuTensor, place: &Layout) {
    let to = out.ptr_mut().wrapping_add(place.offset() * x.dtype().size());
    // SAFETY: by the caller.
    unsafe { copy_into(x, to, place) };
}
