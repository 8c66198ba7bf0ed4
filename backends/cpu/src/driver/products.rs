//! Matrix products, written directly to the destination.

use polygrad_core::compute::{Batch, Gemm};
use polygrad_core::{DType, Element, Layout, Result, Shape};

use super::claims::Claims;
use super::memory::Place;
use crate::Pointer;
use crate::gemm::{self, Dims, Mat, MatMut, Real, Update};
use crate::ops::convert;
use crate::{CpuDevice, CpuTensor};

/// Rows, columns, and the distances in elements between rows and between matrices.
#[derive(Clone, Copy)]
struct Matrix {
    ld: usize,
    stride: usize,
    swapped: bool,
}

impl Matrix {
    /// Strides that are never used may be any number; they are set to 0.
    fn new((rows, columns): (usize, usize), ld: usize, swapped: bool, stride: usize, count: usize) -> Self {
        let touched = rows > 0 && columns > 0;
        Self {
            ld: if touched && rows > 1 { ld } else { columns },
            stride: if touched && count > 1 { stride } else { 0 },
            swapped,
        }
    }

    fn of<T>(&self, ptr: *const T) -> Mat<T> {
        let lying = Mat::new(ptr, self.ld.cast_signed(), 1);
        if self.swapped { lying.transposed() } else { lying }
    }
}

/// See [`polygrad_core::compute::ComputeBackend::batched_gemm`].
pub(super) fn gemm(memory: &Claims<'_>, call: &Gemm, batch: &Batch, device: CpuDevice) -> Result<()> {
    let spans = batch.spans(call)?;
    if call.is_empty() || batch.count == 0 {
        return Ok(());
    }
    let (m, n, k, count) = (call.m, call.n, call.k, batch.count);
    let lying = |rows, columns, swapped: bool| if swapped { (columns, rows) } else { (rows, columns) };
    let (swap_a, swap_b) = (call.trans_a.swaps(), call.trans_b.swaps());
    let a = Matrix::new(lying(m, k, swap_a), call.lda, swap_a, batch.stride_a, count);
    let b = Matrix::new(lying(k, n, swap_b), call.ldb, swap_b, batch.stride_b, count);
    let c = Matrix::new((m, n), call.ldc, false, batch.stride_c, count);
    let len = |dtype: DType, bytes: usize| [bytes / dtype.size()];
    let target = memory.output(call.c, call.dtype_c, &len(call.dtype_c, spans[2]))?;
    let [a_place, b_place] = [(call.a, spans[0]), (call.b, spans[1])]
        .map(|(ptr, bytes)| memory.input(ptr, call.dtype, &len(call.dtype, bytes)));
    let (a_place, b_place) = (a_place?, b_place?);
    memory.found();
    let read = |place: Place| -> Result<CpuTensor> {
        let x = place.raw(device);
        // Threads write C while others read A and B, so an operand that overlaps C is copied.
        if place.meets(&target) { x.copied() } else { Ok(x) }
    };
    let (left, right) = (read(a_place)?, read(b_place)?);
    let run = Run {
        call,
        count,
        a,
        b,
        c,
        device,
    };
    match (call.dtype, call.dtype_c) {
        (DType::F64, _) => run.product::<f64>(&left, &right, target.first().cast()),
        (DType::F32, _) => run.product::<f32>(&left, &right, target.first().cast()),
        (_, DType::F32) => {
            let wide = |x: &CpuTensor| convert::cast(x, DType::F32);
            run.product::<f32>(&wide(&left)?, &wide(&right)?, target.first().cast())
        }
        (_, narrow) => {
            let wide = |x: &CpuTensor| convert::cast(x, DType::F32);
            let mut sums = match call.beta == 0.0 {
                true => CpuTensor::empty(*target.layout().shape(), DType::F32, device)?,
                false => wide(&target.raw(device))?,
            };
            run.product::<f32>(&wide(&left)?, &wide(&right)?, sums.ptr_mut().cast())?;
            // The memory between the rows does not belong to C, and is left as it is.
            let strides = [c.stride, c.ld, 1].map(usize::cast_signed);
            let layout = Layout::strided(Shape::new(&[count, m, n])?, &strides, 0);
            let rounded = convert::cast(&sums.with_layout(layout), narrow)?;
            target.part(layout).write(&rounded)
        }
    }
}

/// A call whose matrices have been looked up.
struct Run<'a> {
    call: &'a Gemm,
    count: usize,
    a: Matrix,
    b: Matrix,
    c: Matrix,
    device: CpuDevice,
}

impl Run<'_> {
    fn product<T: Real + Element>(&self, a: &CpuTensor, b: &CpuTensor, c: *mut T) -> Result<()> {
        let dims = Dims {
            m: self.call.m,
            n: self.call.n,
            k: self.call.k,
        };
        let update = Update {
            alpha: T::rounded(self.call.alpha),
            beta: T::rounded(self.call.beta),
            ..Update::set()
        };
        let (left, right, to) = (self.a.of(a.typed::<T>()?), self.b.of(b.typed::<T>()?), Pointer(c));
        let cost = gemm::cost(dims, self.device.level());
        self.device.try_each(self.count, cost, |i| {
            let a = left.moved((i * self.a.stride).cast_signed());
            let b = right.moved((i * self.b.stride).cast_signed());
            let c = MatMut::new(to.at(i * self.c.stride), self.c.ld.cast_signed(), 1);
            // SAFETY: the call's spans were found inside their allocations; A and B do not overlap C, or are copies;
            // and each product writes a part of its own.
            unsafe { gemm::gemm(self.device, dims, a, b, c, update) }
        })
    }
}
