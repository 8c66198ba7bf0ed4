//! New tensors.

use polygrad_core::{Backend, DType, Element, Error, HostTensor, IntoShape, Result, Scalar, Shape, bf16, f16};

use super::in_making;
use crate::{Device, Tensor};

impl<B: Backend> Tensor<B> {
    /// The host's values on a device.
    ///
    /// # Errors
    /// When the device lacks the dtype, or memory runs out.
    pub fn from_host(host: HostTensor, device: &Device<B>) -> Result<Self> {
        let (shape, dtype) = (*host.shape(), host.dtype());
        B::from_host(host, device.inner())
            .map(Self::from_inner)
            .map_err(|e| in_making(e, "from_host", shape, dtype, device))
    }

    /// A vector's values in row-major order.
    ///
    /// # Errors
    /// When their number does not fill the shape, or memory runs out.
    pub fn from_vec<T: Element>(values: Vec<T>, shape: impl IntoShape, device: &Device<B>) -> Result<Self> {
        let host = HostTensor::new(shape.into_shape()?, values).map_err(|e| e.with_op("from_vec"))?;
        Self::from_host(host, device)
    }

    /// A copy of a slice's values in row-major order.
    ///
    /// # Errors
    /// When their number does not fill the shape, or memory runs out.
    pub fn from_slice<T: Element>(values: &[T], shape: impl IntoShape, device: &Device<B>) -> Result<Self> {
        Self::from_vec(values.to_vec(), shape, device)
    }

    /// Values written out, as a number or as nested arrays: `Tensor::new([[1.0f32, 2.0], [3.0, 4.0]], &device)`. Numbers that do not say
    /// what they are are Rust's own: f64 with a point, i32 without.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn new<T: Element>(data: impl IntoData<T>, device: &Device<B>) -> Result<Self> {
        let mut values = Vec::new();
        let mut dims = Vec::new();
        data.collect(&mut values, &mut dims, 0);
        Self::from_vec(values, dims, device)
    }

    /// One value everywhere.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn full(shape: impl IntoShape, value: impl Into<Scalar>, dtype: DType, device: &Device<B>) -> Result<Self> {
        let shape = shape.into_shape()?;
        B::full(shape, value.into(), dtype, device.inner())
            .map(Self::from_inner)
            .map_err(|e| in_making(e, "full", shape, dtype, device))
    }

    /// f32 zeros.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn zeros(shape: impl IntoShape, device: &Device<B>) -> Result<Self> {
        Self::full(shape, 0.0, DType::F32, device)
    }

    /// f32 ones.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn ones(shape: impl IntoShape, device: &Device<B>) -> Result<Self> {
        Self::full(shape, 1.0, DType::F32, device)
    }

    /// One value everywhere, with this tensor's shape, dtype and device.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn full_like(&self, value: impl Into<Scalar>) -> Result<Self> {
        Self::full(self.shape(), value, self.dtype(), &self.device())
    }

    /// Zeros with this tensor's shape, dtype and device.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn zeros_like(&self) -> Result<Self> {
        self.full_like(0.0)
    }

    /// Ones with this tensor's shape, dtype and device.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn ones_like(&self) -> Result<Self> {
        self.full_like(1.0)
    }

    /// From `start` in steps of `step`, without reaching `end`; i64 if all three are integers, else f32.
    ///
    /// # Errors
    /// When the step is 0 or leads away from `end`, or a number is not finite.
    pub fn arange(
        start: impl Into<Scalar>,
        end: impl Into<Scalar>,
        step: impl Into<Scalar>,
        device: &Device<B>,
    ) -> Result<Self> {
        let (start, end, step) = (start.into(), end.into(), step.into());
        let (count, dtype) = match (start, end, step) {
            (Scalar::Int(start), Scalar::Int(end), Scalar::Int(step)) => (whole_steps(start, end, step), DType::I64),
            _ => {
                let count = ((end.to_f64() - start.to_f64()) / step.to_f64()).ceil();
                let possible = count.is_finite() && (0.0..=(1u64 << 53) as f64).contains(&count);
                (possible.then_some(count as usize), DType::F32)
            }
        };
        let count = count.ok_or_else(|| {
            Error::invalid(format!("no steps of {step} lead from {start} to {end}")).with_op("arange")
        })?;
        Self::iota("arange", count, (start, step), dtype, device)
    }

    /// f32, `steps` numbers from `start` to `end`, both included.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn linspace(start: f64, end: f64, steps: usize, device: &Device<B>) -> Result<Self> {
        let step = if steps > 1 {
            (end - start) / (steps - 1) as f64
        } else {
            0.0
        };
        Self::iota("linspace", steps, (start.into(), step.into()), DType::F32, device)
    }

    fn iota(
        op: &'static str,
        len: usize,
        (start, step): (Scalar, Scalar),
        dtype: DType,
        device: &Device<B>,
    ) -> Result<Self> {
        let shape = Shape::new(&[len]).map_err(|e| e.with_op(op))?;
        B::iota(len, start, step, dtype, device.inner())
            .map(Self::from_inner)
            .map_err(|e| in_making(e, op, shape, dtype, device))
    }

    /// f32, the identity matrix of size `n`.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn eye(n: usize, device: &Device<B>) -> Result<Self> {
        Self::ones([n, n], device)?.masked_by_diagonal(|below| below == 0)
    }

    /// The lower triangle of the last two axes, up to the `diagonal`-th above the main one; zeros elsewhere.
    ///
    /// # Errors
    /// When the rank is below 2.
    pub fn tril(&self, diagonal: isize) -> Result<Self> {
        self.masked_by_diagonal(|above| above <= diagonal)
            .map_err(|e| e.with_op("tril"))
    }

    /// The upper triangle of the last two axes, from the `diagonal`-th above the main one; zeros elsewhere.
    ///
    /// # Errors
    /// When the rank is below 2.
    pub fn triu(&self, diagonal: isize) -> Result<Self> {
        self.masked_by_diagonal(|above| above >= diagonal)
            .map_err(|e| e.with_op("triu"))
    }

    /// Zeros where the distance above the main diagonal is not kept.
    fn masked_by_diagonal(&self, keep: impl Fn(isize) -> bool) -> Result<Self> {
        let shape = self.shape();
        let &[.., rows, columns] = shape.dims() else {
            return Err(Error::shape(format!("shape {shape} has no two axes")));
        };
        let mask = (0..rows as isize)
            .flat_map(|row| (0..columns as isize).map(move |column| column - row))
            .map(keep)
            .collect();
        let mask = Self::from_vec::<bool>(mask, [rows, columns], &self.device())?;
        let zero = Self::full((), 0.0, self.dtype(), &self.device())?;
        Self::where_(&mask, self, &zero)
    }
}

/// How many integers there are from `start` in steps of `step` before `end`.
fn whole_steps(start: i64, end: i64, step: i64) -> Option<usize> {
    let (way, step) = (i128::from(end) - i128::from(start), i128::from(step));
    let (steps, rest) = (way.checked_div(step)?, way.checked_rem(step)?);
    // Those that were cut off towards 0 fall short where the way goes on.
    let beyond = rest != 0 && (way < 0) == (step < 0);
    usize::try_from(steps + i128::from(beyond)).ok()
}

/// Numbers and nested arrays of them, as accepted by [`Tensor::new`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no number, and no array of numbers",
    label = "`Tensor::new` takes numbers and nested arrays of them",
    note = "`Tensor::from_vec(values, shape, &device)` takes a `Vec`, `Tensor::from_slice(&values, shape, &device)` a slice"
)]
pub trait IntoData<T: Element> {
    /// Appends the values in row-major order, and writes the extents from axis `depth` on.
    fn collect(self, values: &mut Vec<T>, dims: &mut Vec<usize>, depth: usize);
}

macro_rules! number {
    ($($type:ty)*) => {$(
        impl IntoData<$type> for $type {
            fn collect(self, values: &mut Vec<$type>, _: &mut Vec<usize>, _: usize) {
                values.push(self);
            }
        }
    )*};
}

number! { bool u8 i32 i64 f16 bf16 f32 f64 }

impl<T: Element, D: IntoData<T>, const N: usize> IntoData<T> for [D; N] {
    fn collect(self, values: &mut Vec<T>, dims: &mut Vec<usize>, depth: usize) {
        if dims.len() == depth {
            dims.push(N);
        }
        for inner in self {
            inner.collect(values, dims, depth + 1);
        }
    }
}
