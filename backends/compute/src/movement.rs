//! Views, and copies for the cases that a view cannot express.

use polygrad_core::compute::{Elementwise, ElementwiseProgram, Fill};
use polygrad_core::{Axes, Backend, Error, Layout, Result, Scalar, Shape, SliceRange};
use polygrad_reference::Reference;

use crate::array::Array;
use crate::host::one_on_host;

/// A row-major tensor with any offset: itself, or a copy.
pub(crate) fn contiguous(x: &Array) -> Result<Array> {
    if x.layout.is_contiguous() {
        return Ok(x.clone());
    }
    if !x.context().runs_programs(x.dtype()) {
        return Array::from_host(x.context(), &x.to_host()?);
    }
    let out = Array::empty(x.context(), *x.shape(), x.dtype())?;
    write(&out, &[(x, out.layout)])?;
    Ok(out)
}

/// Copies tensors of one shape, and of the target's dtype, into parts of the target, by one program.
fn write(target: &Array, parts: &[(&Array, Layout)]) -> Result<()> {
    let (shape, dtype) = (*parts[0].0.shape(), target.dtype());
    if shape.numel() == 0 {
        return Ok(());
    }
    let (mut program, mut inputs, mut outputs) = (ElementwiseProgram::default(), Vec::new(), Vec::new());
    for (x, part) in parts {
        let value = program.input(dtype);
        program.output(value);
        inputs.push(x.view()?);
        outputs.push(target.with_layout(*part).view()?);
    }
    let call = Elementwise {
        program: &program,
        shape,
        inputs: &inputs,
        scalars: &[],
        outputs: &outputs,
    };
    target.context().launch("copy", |driver| driver.elementwise(&call))
}

/// Gathers strided elements from raw bytes, in row-major order.
pub(crate) fn gather_bytes(bytes: &[u8], layout: &Layout, size: usize, out: &mut [u8]) {
    let (dims, strides) = (layout.shape().dims(), layout.strides());
    let mut index = [0usize; polygrad_core::MAX_RANK];
    let mut at = layout.offset() as isize;
    for element in out.chunks_exact_mut(size) {
        let from = at as usize * size;
        element.copy_from_slice(&bytes[from..from + size]);
        for axis in (0..dims.len()).rev() {
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < dims[axis] {
                break;
            }
            at -= strides[axis] * dims[axis] as isize;
            index[axis] = 0;
        }
    }
}

pub(crate) fn reshape(x: &Array, shape: Shape) -> Result<Array> {
    if let Some(layout) = x.layout.reshape(shape) {
        return Ok(x.with_layout(layout));
    }
    let copy = contiguous(x)?;
    Ok(copy.with_layout(Layout::contiguous(shape)))
}

pub(crate) fn permute(x: &Array, axes: Axes) -> Array {
    x.with_layout(x.layout.permute(axes))
}

pub(crate) fn expand(x: &Array, shape: Shape) -> Array {
    x.with_layout(x.layout.expand(shape))
}

pub(crate) fn slice(x: &Array, ranges: &[SliceRange]) -> Array {
    x.with_layout(x.layout.slice(ranges))
}

pub(crate) fn pad(x: &Array, padding: &[(usize, usize)], value: Scalar) -> Result<Array> {
    if !x.context().runs_programs(x.dtype()) {
        return one_on_host(x.context(), &[x], |x| Reference::pad(&x[0], padding, value));
    }
    let dims: Vec<usize> = (x.shape().dims().iter().zip(padding))
        .map(|(&dim, &(before, after))| dim.saturating_add(before).saturating_add(after))
        .collect();
    let out = Array::empty(x.context(), Shape::new(&dims)?, x.dtype())?;
    if out.shape().numel() == 0 {
        return Ok(out);
    }
    let fill = Fill {
        dtype: x.dtype(),
        len: out.shape().numel(),
        value,
        output: out.start()?,
    };
    x.context().launch("pad", |driver| driver.fill(&fill))?;
    let part: Vec<_> = (x.shape().dims().iter().zip(padding))
        .map(|(&dim, &(before, _))| SliceRange::new(before, dim, 1))
        .collect();
    write(&out, &[(x, out.layout.slice(&part))])?;
    Ok(out)
}

pub(crate) fn concat(xs: &[&Array], axis: usize) -> Result<Array> {
    let Some(first) = xs.first() else {
        return Err(Error::invalid("there is nothing to join").with_op("cat"));
    };
    if !first.context().runs_programs(first.dtype()) {
        return one_on_host(first.context(), xs, |xs| {
            Reference::concat(&xs.iter().collect::<Vec<_>>(), axis)
        });
    }
    let mut dims = first.shape().to_vec();
    dims[axis] = xs.iter().map(|x| x.shape()[axis]).sum();
    let out = Array::empty(first.context(), Shape::new(&dims)?, first.dtype())?;
    let mut part: Vec<_> = dims.iter().map(|&dim| SliceRange::full(dim)).collect();
    let mut start = 0;
    // Elements narrower than a word may share one with another part; a program must not write a word for two parts.
    let most = match first.dtype().size() {
        4.. => first.context().capabilities.max_elementwise_views / 2,
        _ => 1,
    };
    for same in xs.chunk_by(|a, b| a.shape() == b.shape()) {
        for some in same.chunks(most.max(1)) {
            let mut copies = Vec::with_capacity(some.len());
            for x in some {
                part[axis] = SliceRange::new(start, x.shape()[axis], 1);
                copies.push((*x, out.layout.slice(&part)));
                start += x.shape()[axis];
            }
            write(&out, &copies)?;
        }
    }
    Ok(out)
}

/// A tensor with the same values in memory of its own.
pub(crate) fn copy(x: &Array) -> Result<Array> {
    if let Some(out) = x.computed_apart()? {
        return Ok(out);
    }
    let out = Array::empty(x.context(), *x.shape(), x.dtype())?;
    if x.context().runs_programs(x.dtype()) {
        write(&out, &[(x, out.layout)])?;
    } else if x.shape().numel() > 0 {
        let (ordered, bytes) = (contiguous(x)?, x.shape().numel() * x.dtype().size());
        let (dst, src) = (out.start()?, ordered.start()?);
        x.context().launch("copy", |driver| driver.copy_dtod(dst, src, bytes))?;
    }
    Ok(out)
}
