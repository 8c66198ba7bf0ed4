//! Batched matrix products.
#![allow(clippy::needless_range_loop, reason = "an axis names entries of several arrays")]

use std::borrow::Cow;

use polygrad_core::{Activation, DType, Element, Error, Result, Shape, bf16};

use super::half::{Half, Wide};
use super::{activation, convert, floats, integer_matmul, mismatch, numbers, same_dtype};
use crate::Pointer;
use crate::gemm::{self, Dims, Mat, MatMut, Prepacked, Real, Update};
use crate::math::Pointwise;
use crate::{CpuDevice, CpuTensor, Level};

/// See [`polygrad_core::Backend::matmul`].
pub(crate) fn matmul(a: &CpuTensor, b: &CpuTensor) -> Result<CpuTensor> {
    let dtype = same_dtype("matmul", a, b)?;
    numbers("matmul", dtype)?;
    if Half::of(dtype).is_some() {
        if dtype == DType::BF16
            && let Some(product) = matmul_bf16(a, b)?
        {
            return Ok(product);
        }
        let (a, b) = (convert::cast(a, DType::F32)?, convert::cast(b, DType::F32)?);
        return convert::cast(&matmul(&a, &b)?, dtype);
    }
    let (rank_a, rank_b) = (a.shape().rank(), b.shape().rank());
    if rank_a < 2 || rank_b < 2 || a.shape()[rank_a - 1] != b.shape()[rank_b - 2] {
        let error = Error::shape("takes matrices […, m, k] and […, k, n]");
        return Err(mismatch(error, "matmul", a, b));
    }
    let dims = Dims {
        m: a.shape()[rank_a - 2],
        n: b.shape()[rank_b - 1],
        k: a.shape()[rank_a - 1],
    };
    if rank_a == 2 && rank_b == 2 && dtype.is_float() {
        let mut out = CpuTensor::empty(Shape::from([dims.m, dims.n]), dtype, a.device())?;
        match dtype {
            DType::F32 => single::<f32>(a, b, &mut out, dims)?,
            _ => single::<f64>(a, b, &mut out, dims)?,
        }
        return Ok(out);
    }
    let lead = |x: &CpuTensor| Shape::new(&x.shape()[..x.shape().rank() - 2]);
    let batch = lead(a)?.broadcast(&lead(b)?).map_err(|error| error.with_op("matmul"))?;
    let mut shape = batch.to_vec();
    shape.extend([dims.m, dims.n]);
    let mut out = CpuTensor::empty(Shape::new(&shape)?, dtype, a.device())?;
    match dtype {
        DType::F32 => batched::<f32>(a, b, &mut out, &batch, dims)?,
        DType::F64 => batched::<f64>(a, b, &mut out, &batch, dims)?,
        DType::U8 => integer_matmul::matmul::<u8>(a, b, &mut out, &batch, dims)?,
        DType::I32 => integer_matmul::matmul::<i32>(a, b, &mut out, &batch, dims)?,
        _ => integer_matmul::matmul::<i64>(a, b, &mut out, &batch, dims)?,
    }
    Ok(out)
}

/// A tensor of rank 2 as a matrix.
#[inline]
fn mat<T: Element>(x: &CpuTensor) -> Result<Mat<T>> {
    let [rows, cols] = x.matrix_strides();
    Ok(Mat::new(x.typed::<T>()?, rows, cols))
}

/// A product of two single matrices, without the work that stacks need, which small products cannot afford.
fn single<T: Real + Element>(a: &CpuTensor, b: &CpuTensor, out: &mut CpuTensor, dims: Dims) -> Result<()> {
    let c = MatMut::new(out.ptr_mut().cast::<T>(), dims.n.cast_signed(), 1);
    // SAFETY: the matrices are the tensors, and the output is new.
    unsafe { gemm::gemm(out.device(), dims, mat(a)?, mat(b)?, c, Update::set()) }
}

/// The product by the processor's bf16 instructions, or `None` if it has none or the shapes do not fit.
fn matmul_bf16(a: &CpuTensor, b: &CpuTensor) -> Result<Option<CpuTensor>> {
    let device = a.device();
    let (rank_a, rank_b) = (a.shape().rank(), b.shape().rank());
    if !gemm::multiplies_bf16(device) || rank_a < 2 || rank_b < 2 || a.shape()[rank_a - 1] != b.shape()[rank_b - 2] {
        return Ok(None);
    }
    let dims = Dims {
        m: a.shape()[rank_a - 2],
        n: b.shape()[rank_b - 1],
        k: a.shape()[rank_a - 1],
    };
    let lead = |x: &CpuTensor| Shape::new(&x.shape()[..x.shape().rank() - 2]);
    let batch = lead(a)?.broadcast(&lead(b)?).map_err(|error| error.with_op("matmul"))?;
    let mut shape = batch.to_vec();
    shape.extend([dims.m, dims.n]);
    let mut out = CpuTensor::empty(Shape::new(&shape)?, DType::BF16, device)?;
    let (left, right) = (Stack::new(a, &batch), Stack::new(b, &batch));
    let bits = |x: &CpuTensor| x.typed::<bf16>().map(<*const bf16>::cast::<u16>);
    let (pa, pb) = (
        Mat::new(bits(a)?, left.rows, left.cols),
        Mat::new(bits(b)?, right.rows, right.cols),
    );
    let to = Pointer(out.ptr_mut().cast::<u16>());
    let one = |i: usize| {
        let a = pa.moved(left.offset(&batch, i));
        let b = pb.moved(right.offset(&batch, i));
        let c = MatMut::new(to.at(i * dims.m * dims.n), dims.n.cast_signed(), 1);
        // SAFETY: the matrices are parts of the tensors, and the output is new; each product writes a part of its own.
        unsafe { gemm::gemm_bf16(device, dims, a, b, c, std::ptr::null()) }
    };
    device.try_each(batch.numel(), gemm::cost(dims, device.level()), one)?;
    Ok(Some(out))
}

/// [`matmul_bf16`] for [`linear`], whose operands are known to fit.
fn linear_bf16(x: &CpuTensor, weight: &CpuTensor, bias: Option<&CpuTensor>) -> Result<Option<CpuTensor>> {
    let (device, shape, rank) = (x.device(), *x.shape(), x.shape().rank());
    if !gemm::multiplies_bf16(device) {
        return Ok(None);
    }
    let dims = Dims {
        m: shape[..rank - 1].iter().product(),
        n: weight.shape()[0],
        k: shape[rank - 1],
    };
    let flat = if rank == 2 {
        x.clone()
    } else {
        x.reshaped(Shape::from([dims.m, dims.k]))?
    };
    let bias = bias.map(CpuTensor::contiguous).transpose()?;
    let mut out = CpuTensor::empty(Shape::new(&shape.with_dim(rank - 1, dims.n))?, DType::BF16, device)?;
    let mat = |x: &CpuTensor| -> Result<Mat<u16>> {
        let layout = x.layout();
        Ok(Mat::new(
            x.typed::<bf16>()?.cast(),
            layout.strides()[0],
            layout.strides()[1],
        ))
    };
    let bias = match &bias {
        Some(bias) => bias.typed::<bf16>()?.cast(),
        None => std::ptr::null(),
    };
    let c = MatMut::new(out.ptr_mut().cast::<u16>(), dims.n.cast_signed(), 1);
    // SAFETY: the matrices are the tensors, the bias has `n` contiguous elements, and the output is new.
    unsafe { gemm::gemm_bf16(device, dims, mat(&flat)?, mat(weight)?.transposed(), c, bias)? };
    Ok(Some(out))
}

/// How the matrices of a batch lie in memory.
pub(crate) struct Stack {
    /// Elements from matrix to matrix, for each batch axis.
    strides: [isize; 8],
    pub(crate) rows: isize,
    pub(crate) cols: isize,
}

impl Stack {
    pub(crate) fn new(x: &CpuTensor, batch: &Shape) -> Self {
        let rank = x.shape().rank();
        let layout = x.layout();
        let strides = layout.strides();
        let mut out = Self {
            strides: [0; 8],
            rows: strides[rank - 2],
            cols: strides[rank - 1],
        };
        let skip = batch.rank() + 2 - rank;
        for axis in 0..rank - 2 {
            if x.shape()[axis] != 1 {
                out.strides[axis + skip] = strides[axis];
            }
        }
        out
    }

    /// Distance in elements of matrix `i` of the batch from the first one.
    pub(crate) fn offset(&self, batch: &Shape, mut i: usize) -> isize {
        let mut offset = 0;
        for axis in (0..batch.rank()).rev() {
            offset += (i % batch[axis]).cast_signed() * self.strides[axis];
            i /= batch[axis];
        }
        offset
    }
}

fn batched<T: Real + Element>(
    a: &CpuTensor,
    b: &CpuTensor,
    out: &mut CpuTensor,
    batch: &Shape,
    dims: Dims,
) -> Result<()> {
    let Dims { m, n, k } = dims;
    let device = out.device();
    let (left, right) = (Stack::new(a, batch), Stack::new(b, batch));
    let (a, b) = (a.typed::<T>()?, b.typed::<T>()?);
    let to = Pointer(out.ptr_mut().cast::<T>());
    let (pa, pb) = (Mat::new(a, left.rows, left.cols), Mat::new(b, right.rows, right.cols));
    let one = |i: usize| {
        let a = pa.moved(left.offset(batch, i));
        let b = pb.moved(right.offset(batch, i));
        let c = MatMut::new(to.at(i * m * n), n.cast_signed(), 1);
        // SAFETY: the matrices are parts of the tensors, and the output is new; each product writes a part of its own.
        unsafe { gemm::gemm(device, dims, a, b, c, Update::set()) }
    };
    device.try_each(batch.numel(), gemm::cost(Dims { m, n, k }, device.level()), one)
}

/// Rows whose product is still in the cache when the activation is applied.
const BAND: usize = 96;

/// See [`polygrad_core::Backend::linear`].
pub(crate) fn linear(
    x: &CpuTensor,
    weight: &CpuTensor,
    bias: Option<&CpuTensor>,
    then: Option<Activation>,
) -> Result<CpuTensor> {
    let fused = |op| x.dtype() == DType::F32 && x.device().vectors().is_some() && Pointwise::knows(op);
    match then {
        Some(op) if !fused(op) => activation::activation(op, &linear_then(x, weight, bias, None)?),
        then => linear_then(x, weight, bias, then),
    }
}

/// [`linear`], with an activation only for f32 with vector kernels.
fn linear_then(
    x: &CpuTensor,
    weight: &CpuTensor,
    bias: Option<&CpuTensor>,
    then: Option<Activation>,
) -> Result<CpuTensor> {
    let dtype = same_dtype("linear", x, weight)?;
    floats("linear", dtype)?;
    let (shape, rank) = (*x.shape(), x.shape().rank());
    let fits = rank >= 1
        && weight.shape().rank() == 2
        && shape[rank - 1] == weight.shape()[1]
        && bias.is_none_or(|bias| bias.shape().rank() == 1 && bias.shape()[0] == weight.shape()[0]);
    if !fits {
        return Err(
            Error::shape("takes an input […, in], a weight [out, in] and a bias [out]")
                .with_op("linear")
                .with_operands([x, weight].into_iter().chain(bias).map(|t| (*t.shape(), t.dtype()))),
        );
    }
    if let Some(bias) = bias {
        same_dtype("linear", x, bias)?;
    }
    if Half::of(dtype).is_some() {
        if dtype == DType::BF16
            && let Some(y) = linear_bf16(x, weight, bias)?
        {
            return Ok(y);
        }
        let wide = |t: &CpuTensor| convert::cast(t, DType::F32);
        let bias = bias.map(wide).transpose()?;
        return convert::cast(&linear_then(&wide(x)?, &wide(weight)?, bias.as_ref(), None)?, dtype);
    }
    let (inputs, outputs) = (shape[rank - 1], weight.shape()[0]);
    let rows = shape[..rank - 1].iter().product();
    let flat = match rank {
        2 => Cow::Borrowed(x),
        _ => Cow::Owned(x.reshaped(Shape::from([rows, inputs]))?),
    };
    let mut out = CpuTensor::empty(Shape::new(&shape.with_dim(rank - 1, outputs))?, dtype, x.device())?;
    let dims = Dims {
        m: rows,
        n: outputs,
        k: inputs,
    };
    let bias = match bias {
        Some(bias) if !bias.is_contiguous() => Some(Cow::Owned(bias.copied()?)),
        bias => bias.map(Cow::Borrowed),
    };
    let bias = bias.as_deref();
    if dtype == DType::F32 {
        let product = Linear::<f32>::new(&flat, weight, bias, &mut out, dims, weight.packed())?;
        match (then, out.device().vectors()) {
            (Some(op), Some(level)) => product.with_activation(Pointwise::of(op), level)?,
            _ => product.rows(0, rows)?,
        }
    } else {
        Linear::<f64>::new(&flat, weight, bias, &mut out, dims, None)?.rows(0, rows)?;
    }
    Ok(out)
}

/// A product of an input's rows with a weight.
struct Linear<'a, T> {
    device: CpuDevice,
    dims: Dims,
    a: Mat<T>,
    b: Mat<T>,
    c: MatMut<T>,
    update: Update<T>,
    packed: Option<&'a Prepacked<T>>,
}

impl<'a, T: Real + Element> Linear<'a, T> {
    #[inline]
    fn new(
        x: &CpuTensor,
        weight: &CpuTensor,
        bias: Option<&CpuTensor>,
        out: &mut CpuTensor,
        dims: Dims,
        packed: Option<&'a Prepacked<T>>,
    ) -> Result<Self> {
        let bias = match bias {
            Some(bias) => bias.typed::<T>()?,
            None => std::ptr::null(),
        };
        Ok(Self {
            device: out.device(),
            dims,
            a: mat(x)?,
            b: mat(weight)?.transposed(),
            c: MatMut::new(out.ptr_mut().cast::<T>(), dims.n.cast_signed(), 1),
            update: Update { bias, ..Update::set() },
            packed,
        })
    }

    /// Some rows of the result.
    fn rows(&self, start: usize, end: usize) -> Result<()> {
        let dims = Dims {
            m: end - start,
            ..self.dims
        };
        let a = Mat::new(self.a.at(start, 0), self.a.rows, self.a.cols);
        let c = MatMut::new(self.c.at(start, 0), self.c.rows, self.c.cols);
        // SAFETY: the matrices have the shapes of `dims`, the bias has `n` contiguous elements, the output is new.
        unsafe {
            match self.packed {
                Some(packed) => packed.gemm(self.device, dims, a, self.b, c, self.update),
                None => gemm::gemm(self.device, dims, a, self.b, c, self.update),
            }
        }
    }
}

impl Linear<'_, f32> {
    /// All rows and their activation, band by band if the weight is packed already, since else each band would pack it
    /// again.
    fn with_activation(&self, then: Pointwise, level: Level) -> Result<()> {
        let Dims { m, n, k } = self.dims;
        let bands = if self.packed.is_some() {
            m.div_ceil(BAND).max(1)
        } else {
            1
        };
        if bands == 1 {
            self.rows(0, m)?;
            self.device.split(m * n, 0.8, 64, |start, end| {
                // SAFETY: the output is new, and each stretch of it belongs to one task.
                unsafe { then.run(level, self.c.ptr.wrapping_add(start), end - start) };
            });
            return Ok(());
        }
        let ns = gemm::cost(Dims { m: BAND, n, k }, level);
        self.device.try_each(bands, ns, |band| {
            let (start, end) = (band * m / bands, (band + 1) * m / bands);
            self.rows(start, end)?;
            // SAFETY: the output is new, and each band of it belongs to one task.
            unsafe { then.run(level, self.c.at(start, 0), (end - start) * n) };
            Ok(())
        })
    }
}

/// See [`polygrad_core::Backend::prepack`]: adds the panels of a weight as the right-hand side of a product. Weights of
/// 16 bits that are multiplied in f32 get their f32 form with its panels.
pub(crate) fn prepack(weight: &CpuTensor) -> Result<CpuTensor> {
    let dtype = weight.dtype();
    if Half::of(dtype).is_some() && !(dtype == DType::BF16 && gemm::multiplies_bf16(weight.device())) {
        let wide = prepack(&convert::cast(weight, DType::F32)?)?;
        return Ok(weight.with_packed(Wide(wide)));
    }
    if weight.dtype() != DType::F32 || weight.shape().rank() != 2 {
        return Ok(weight.clone());
    }
    let (n, k) = (weight.shape()[0], weight.shape()[1]);
    let b = mat::<f32>(weight)?.transposed();
    // SAFETY: the matrix is the tensor.
    let packed = unsafe { Prepacked::new(weight.device(), n, k, b)? };
    Ok(match packed {
        Some(packed) => weight.with_packed(packed),
        None => weight.clone(),
    })
}
