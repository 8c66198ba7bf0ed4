//! Ops with an index tensor.

use polygrad_core::{DType, Error, Layout, Result, Shape, bf16, dispatch_dtype, f16};

use super::{axis_in, numbers, same_dtype};
use crate::CpuTensor;
use crate::Pointer;
use crate::loops::Lines;

/// The error for an index outside its axis.
#[cold]
fn outside(op: &'static str, index: i64, axis: usize, dim: usize) -> Error {
    Error::out_of_range(format!("index {index} is outside 0..{dim} of axis {axis}")).with_op(op)
}

fn check_index(op: &'static str, x: &CpuTensor, axis: usize, index: &CpuTensor) -> Result<()> {
    axis_in(op, x, axis)?;
    if index.dtype() == DType::I64 {
        return Ok(());
    }
    Err(Error::dtype(format!("the index must be i64, got {}", index.dtype()))
        .with_op(op)
        .with_hint("cast it with to_dtype"))
}

/// Checks every index against the axis, so that the ops below may trust them.
fn check_values(op: &'static str, index: &CpuTensor, axis: usize, dim: usize) -> Result<()> {
    let bad = index
        .slice::<i64>()?
        .iter()
        .find(|&&i| usize::try_from(i).map_or(true, |i| i >= dim));
    match bad {
        None => Ok(()),
        Some(&i) => Err(outside(op, i, axis, dim)),
    }
}

/// Checks that `a` has the rank of `b`, and that no axis of `a` except `but` is larger.
fn check_extents(op: &'static str, a: &Shape, b: &Shape, but: Option<usize>) -> Result<()> {
    let fits = a.rank() == b.rank() && (0..a.rank()).all(|axis| Some(axis) == but || a[axis] <= b[axis]);
    if fits {
        return Ok(());
    }
    Err(Error::shape(format!("index or source of shape {a} is larger than {b}")).with_op(op))
}

/// See [`polygrad_core::Backend::gather`].
pub(crate) fn gather(x: &CpuTensor, axis: usize, index: &CpuTensor) -> Result<CpuTensor> {
    check_index("gather", x, axis, index)?;
    check_extents("gather", index.shape(), x.shape(), Some(axis))?;
    let index = index.contiguous()?;
    check_values("gather", &index, axis, x.shape()[axis])?;
    let shape = *index.shape();
    let out = CpuTensor::empty(shape, x.dtype(), x.device())?;
    let lines = Lines::new(&shape, axis, [x, &index, &out]);
    let n = shape[axis].cast_signed();
    dispatch_dtype!(x.dtype(), T => x.device().each(lines.count(), n as f32 * 1.5 + 2.0, |line| {
        let [from, index, to] = lines.starts(line);
        for i in 0..n {
            // SAFETY: the index has been checked, the other two tensors are walked over the index's own shape, and
            // lines of the output do not overlap.
            unsafe {
                let at = index.offset(i * lines.step(1)).cast::<i64>().read() as isize;
                let value = from.offset(at * lines.step(0)).cast::<T>().read();
                to.offset(i * lines.step(2)).cast_mut().cast::<T>().write(value);
            }
        }
    }));
    Ok(out)
}

/// See [`polygrad_core::Backend::scatter`].
pub(crate) fn scatter(x: &CpuTensor, axis: usize, index: &CpuTensor, src: &CpuTensor) -> Result<CpuTensor> {
    let mut out = prepare("scatter", x, axis, index, src)?;
    let index = index.contiguous()?;
    dispatch_dtype!(x.dtype(), T => route::<T>(&mut out, axis, &index, src, |to, value| *to = value));
    Ok(out)
}

/// See [`polygrad_core::Backend::scatter_add`].
pub(crate) fn scatter_add(x: &CpuTensor, axis: usize, index: &CpuTensor, src: &CpuTensor) -> Result<CpuTensor> {
    numbers("scatter_add", x.dtype())?;
    // Contributions are added up in f32, and rounded once.
    if matches!(x.dtype(), DType::F16 | DType::BF16) {
        let wide = super::convert::cast(x, DType::F32)?;
        let src = super::convert::cast(src, DType::F32)?;
        return super::convert::cast(&scatter_add(&wide, axis, index, &src)?, x.dtype());
    }
    let mut out = prepare("scatter_add", x, axis, index, src)?;
    let index = index.contiguous()?;
    dispatch_dtype!(x.dtype(), T => route::<T>(&mut out, axis, &index, src, |to, value| *to = to.plus(value)));
    Ok(out)
}

/// Checks the operands, and copies `x`.
fn prepare(op: &'static str, x: &CpuTensor, axis: usize, index: &CpuTensor, src: &CpuTensor) -> Result<CpuTensor> {
    same_dtype(op, x, src)?;
    check_index(op, x, axis, index)?;
    check_extents(op, index.shape(), x.shape(), Some(axis))?;
    check_extents(op, index.shape(), src.shape(), None)?;
    check_values(op, &index.contiguous()?, axis, x.shape()[axis])?;
    x.copied()
}

/// Combines each element of `src` with the element of `out` that the index selects, line by line.
fn route<T: Copy>(
    out: &mut CpuTensor,
    axis: usize,
    index: &CpuTensor,
    src: &CpuTensor,
    put: impl Fn(&mut T, T) + Sync,
) {
    let shape = *index.shape();
    let lines = Lines::new(&shape, axis, [out, index, src]);
    let n = shape[axis].cast_signed();
    out.device().each(lines.count(), n as f32 * 1.5 + 2.0, |line| {
        let [to, index, from] = lines.starts(line);
        for i in 0..n {
            // SAFETY: the index has been checked, the other tensors are at least as large as its shape. Lines of the
            // output do not overlap, so each is changed by one task, in order.
            unsafe {
                let at = index.offset(i * lines.step(1)).cast::<i64>().read() as isize;
                let value = from.offset(i * lines.step(2)).cast::<T>().read();
                put(&mut *to.offset(at * lines.step(0)).cast_mut().cast::<T>(), value);
            }
        }
    });
}

/// Addition for scatters. 16-bit floats and bool never get here, but the dispatch macro needs an implementation.
trait Plus: Copy {
    fn plus(self, other: Self) -> Self;
}

macro_rules! plus {
    ($($type:ty => $f:expr;)*) => {$(
        impl Plus for $type {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                let f: fn($type, $type) -> $type = $f;
                f(self, other)
            }
        }
    )*};
}

plus! {
    bool => |a, b| a | b;
    u8 => u8::wrapping_add;
    i32 => i32::wrapping_add;
    i64 => i64::wrapping_add;
    f16 => |a, b| a + b;
    bf16 => |a, b| a + b;
    f32 => |a, b| a + b;
    f64 => |a, b| a + b;
}

/// See [`polygrad_core::Backend::index_select`].
pub(crate) fn index_select(x: &CpuTensor, axis: usize, index: &CpuTensor) -> Result<CpuTensor> {
    check_index("index_select", x, axis, index)?;
    if index.shape().rank() != 1 {
        return Err(Error::shape(format!("the index must have rank 1, got {}", index.shape())).with_op("index_select"));
    }
    let index = index.contiguous()?;
    check_values("index_select", &index, axis, x.shape()[axis])?;
    // Contiguous slices are copied whole.
    let x = x.contiguous()?;
    let count = index.numel();
    let shape = Shape::new(&x.shape().with_dim(axis, count))?;
    let mut out = CpuTensor::empty(shape, x.dtype(), x.device())?;
    let inner: usize = x.shape()[axis + 1..].iter().product();
    let outer: usize = x.shape()[..axis].iter().product();
    let bytes = inner * x.dtype().size();
    let dim = x.shape()[axis];
    let (from, to) = (x.ptr(), Pointer(out.ptr_mut()));
    let (from, chosen) = (Pointer(from.cast_mut()), index.slice::<i64>()?);
    if inner == 1 {
        // Single elements: calling a copy function for each would take longer than finding it.
        dispatch_dtype!(x.dtype(), T => x.device().each(outer, count as f32 * 0.5, |i| {
            let (from, to) = (from.at(0).cast::<T>(), to.at(0).cast::<T>());
            for (j, &at) in chosen.iter().enumerate() {
                // SAFETY: as below.
                unsafe { to.add(i * count + j).write(from.add(i * dim + at as usize).read()) };
            }
        }));
        return Ok(out);
    }
    x.device().each(outer * count, bytes as f32 * 0.05 + 3.0, |i| {
        let source = i / count * dim + chosen[i % count] as usize;
        // SAFETY: the index has been checked, so that both slices are inside their tensors.
        unsafe { std::ptr::copy_nonoverlapping(from.at(source * bytes), to.at(i * bytes), bytes) };
    });
    Ok(out)
}

/// See [`polygrad_core::Backend::index_add`].
pub(crate) fn index_add(x: &CpuTensor, axis: usize, index: &CpuTensor, src: &CpuTensor) -> Result<CpuTensor> {
    if index.shape().rank() != 1 || axis >= src.shape().rank() || index.numel() != src.shape()[axis] {
        return Err(Error::shape(format!(
            "an index of shape {} does not name the slices of {} along axis {axis}",
            index.shape(),
            src.shape()
        ))
        .with_op("index_add"));
    }
    // One index per slice, broadcast to all its elements.
    let mut strides = [0; polygrad_core::MAX_RANK];
    strides[axis] = index.layout().strides()[0];
    let layout = Layout::strided(*src.shape(), &strides, index.layout().offset());
    scatter_add(x, axis, &index.with_layout(layout), src)
}
