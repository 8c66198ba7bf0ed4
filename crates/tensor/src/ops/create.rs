//! New tensors.

use polygrad_core::{Backend, DType, Element, Error, HostTensor, IntoShape, Result, Scalar, Shape, bf16, f16};

use super::{collected, in_making};
use crate::{Device, Place, Tensor};

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

    /// A vector's values in row-major order, in the dtype of its elements unless another is given. One extent of the
    /// shape may be -1.
    ///
    /// # Errors
    /// When their number does not fill the shape, or memory runs out.
    pub fn from_vec<T: Element>(values: Vec<T>, shape: impl IntoShape, place: impl Place<B>) -> Result<Self> {
        let shape = shape.into_shape_of(values.len());
        let host = shape.and_then(|shape| HostTensor::new(shape, values));
        let host = host.map_err(|e| e.with_op("from_vec"))?;
        let dtype = place.dtype().unwrap_or(host.dtype());
        Self::from_host(host.cast(dtype), place.device())
    }

    /// A copy of a slice's values in row-major order.
    ///
    /// # Errors
    /// When their number does not fill the shape, or memory runs out.
    pub fn from_slice<T: Element>(values: &[T], shape: impl IntoShape, place: impl Place<B>) -> Result<Self> {
        Self::from_vec(values.to_vec(), shape, place)
    }

    /// Literal values: a number, or nested arrays, slices and vectors of numbers, one level for each axis. Numbers with
    /// a decimal point become f32, and integers i64, as in PyTorch, unless a dtype is given:
    /// `Tensor::new([[1.0, 2.0], [3.0, 4.0]], (&device, DType::F64))`. To Rust such literals are f64 and i32, so
    /// numbers of these types become f32 and i64, too; all others keep their type. [`Tensor::from_vec`] keeps every
    /// type.
    ///
    /// # Errors
    /// When rows differ in length, or memory runs out.
    pub fn new<D: IntoData>(data: D, place: impl Place<B>) -> Result<Self> {
        let mut values = Vec::new();
        let mut dims = Vec::new();
        data.collect(&mut values, &mut dims, 0).map_err(|e| e.with_op("new"))?;
        let usual = match <D::Element as Element>::DTYPE {
            DType::F64 => DType::F32,
            DType::I32 => DType::I64,
            dtype => dtype,
        };
        let dtype = place.dtype().unwrap_or(usual);
        Self::from_vec(values, dims, (place.device(), dtype)).map_err(|e| e.with_op("new"))
    }

    /// A tensor of one value; f32 for a real number, i64 for an integer, unless a dtype is given.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn full(shape: impl IntoShape, value: impl Into<Scalar>, place: impl Place<B>) -> Result<Self> {
        let (shape, value) = (shape.into_shape()?, value.into());
        let (device, dtype) = (place.device(), place.dtype().unwrap_or(value.default_dtype()));
        B::full(shape, value, dtype, device.inner())
            .map(Self::from_inner)
            .map_err(|e| in_making(e, "full", shape, dtype, device))
    }

    /// Zeros; f32 unless a dtype is given: `Tensor::zeros([2, 3], (&device, DType::F16))`.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn zeros(shape: impl IntoShape, place: impl Place<B>) -> Result<Self> {
        Self::full(shape, 0.0, place)
    }

    /// Ones; f32 unless a dtype is given.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn ones(shape: impl IntoShape, place: impl Place<B>) -> Result<Self> {
        Self::full(shape, 1.0, place)
    }

    /// A tensor of one value, with this tensor's shape, dtype and device.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn full_like(&self, value: impl Into<Scalar>) -> Result<Self> {
        Self::full(self.shape(), value, (&self.device(), self.dtype()))
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

    /// From `start` in steps of `step`, without reaching `end`; i64 if all three are integers, else f32,
    /// unless a dtype is given.
    ///
    /// # Errors
    /// When the step is 0 or leads away from `end`, or a number is not finite.
    pub fn arange(
        start: impl Into<Scalar>,
        end: impl Into<Scalar>,
        step: impl Into<Scalar>,
        place: impl Place<B>,
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
        Self::iota("arange", count, (start, step), dtype, place)
    }

    /// `steps` numbers from `start` to `end`, which are both included exactly. Each half is computed from its own end,
    /// as in PyTorch. f32 unless a dtype is given; an integer dtype truncates towards 0.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn linspace(start: f64, end: f64, steps: usize, place: impl Place<B>) -> Result<Self> {
        let (device, dtype) = (place.device(), place.dtype().unwrap_or(DType::F32));
        let fail = |e: Error| e.with_op("linspace");
        let last = steps.saturating_sub(1);
        let part = |i: usize| match (end - start) * i as f64 {
            product if product.is_finite() => product / last as f64,
            _ => (end - start) / last as f64 * i as f64,
        };
        let values = collected(steps, |i| match i {
            0 => start,
            _ if i < steps / 2 => start + part(i),
            _ => end - part(last - i),
        });
        let shape = Shape::new(&[steps]).map_err(fail)?;
        let values = HostTensor::new(shape, values.map_err(fail)?).and_then(|values| values.try_cast(dtype));
        Self::from_host(values.map_err(fail)?, device).map_err(fail)
    }

    pub(super) fn iota(
        op: &'static str,
        len: usize,
        (start, step): (Scalar, Scalar),
        default: DType,
        place: impl Place<B>,
    ) -> Result<Self> {
        let (device, dtype) = (place.device(), place.dtype().unwrap_or(default));
        let shape = Shape::new(&[len]).map_err(|e| e.with_op(op))?;
        B::iota(len, start, step, dtype, device.inner())
            .map(Self::from_inner)
            .map_err(|e| in_making(e, op, shape, dtype, device))
    }

    /// The identity matrix of size `n`; f32 unless a dtype is given.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn eye(n: usize, place: impl Place<B>) -> Result<Self> {
        Self::ones([n, n], place)?.masked_by_diagonal(|above| above.eq(0i64))
    }

    /// The lower triangle of the last two axes, up to the `diagonal`-th above the main one; zeros elsewhere.
    ///
    /// # Errors
    /// When the rank is below 2.
    pub fn tril(&self, diagonal: isize) -> Result<Self> {
        self.masked_by_diagonal(|above| above.le(diagonal as i64))
            .map_err(|e| e.with_op("tril"))
    }

    /// The upper triangle of the last two axes, from the `diagonal`-th above the main one; zeros elsewhere.
    ///
    /// # Errors
    /// When the rank is below 2.
    pub fn triu(&self, diagonal: isize) -> Result<Self> {
        self.masked_by_diagonal(|above| above.ge(diagonal as i64))
            .map_err(|e| e.with_op("triu"))
    }

    /// Zeros the elements whose distance above the main diagonal does not satisfy `keep`.
    fn masked_by_diagonal(&self, keep: impl Fn(&Self) -> Result<Self>) -> Result<Self> {
        let shape = self.shape();
        let &[.., rows, columns] = shape.dims() else {
            return Err(Error::shape(format!("shape {shape} has no two axes")));
        };
        let device = self.device();
        // Made by ops on the device, so that a recording depends on the extents.
        let places = |count: usize| Self::arange(0i64, count as i64, 1i64, &device);
        let above = places(columns)?.sub(&places(rows)?.unsqueeze(1)?)?;
        let zero = Self::full((), 0.0, (&device, self.dtype()))?;
        Self::where_(&keep(&above)?, self, &zero)
    }
}

/// The number of integers from `start` in steps of `step` before `end`.
fn whole_steps(start: i64, end: i64, step: i64) -> Option<usize> {
    let (way, step) = (i128::from(end) - i128::from(start), i128::from(step));
    let (steps, rest) = (way.checked_div(step)?, way.checked_rem(step)?);
    // Integer division truncates; a remainder in the direction of `step` means one more element.
    let beyond = rest != 0 && (way < 0) == (step < 0);
    usize::try_from(steps + i128::from(beyond)).ok()
}

/// Numbers, and arrays, slices and vectors of them, as accepted by [`Tensor::new`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no number, and no array of numbers",
    label = "`Tensor::new` takes numbers, and arrays, slices and vectors of them",
    note = "`Tensor::from_vec(values, shape, &device)` takes the values of all axes in one `Vec`"
)]
pub trait IntoData {
    /// The type of the numbers.
    type Element: Element;

    /// Appends the values in row-major order, and writes the extents from axis `depth` on.
    ///
    /// # Errors
    /// When rows differ in length.
    fn collect(self, values: &mut Vec<Self::Element>, dims: &mut Vec<usize>, depth: usize) -> Result<()>;
}

macro_rules! number {
    ($($type:ty)*) => {$(
        impl IntoData for $type {
            type Element = $type;

            fn collect(self, values: &mut Vec<$type>, _: &mut Vec<usize>, _: usize) -> Result<()> {
                values.push(self);
                Ok(())
            }
        }
    )*};
}

number! { bool u8 i32 i64 f16 bf16 f32 f64 }

/// Collects the parts along one axis.
fn along<D: IntoData>(
    parts: impl ExactSizeIterator<Item = D>,
    values: &mut Vec<D::Element>,
    dims: &mut Vec<usize>,
    depth: usize,
) -> Result<()> {
    match dims.get(depth) {
        None => dims.push(parts.len()),
        Some(&extent) if extent == parts.len() => {}
        Some(extent) => {
            return Err(Error::shape(format!(
                "a row of {} along axis {depth} stands beside one of {extent}",
                parts.len()
            )));
        }
    }
    parts
        .into_iter()
        .try_for_each(|part| part.collect(values, dims, depth + 1))
}

impl<D: IntoData, const N: usize> IntoData for [D; N] {
    type Element = D::Element;

    fn collect(self, values: &mut Vec<D::Element>, dims: &mut Vec<usize>, depth: usize) -> Result<()> {
        along(self.into_iter(), values, dims, depth)
    }
}

impl<D: IntoData> IntoData for Vec<D> {
    type Element = D::Element;

    fn collect(self, values: &mut Vec<D::Element>, dims: &mut Vec<usize>, depth: usize) -> Result<()> {
        along(self.into_iter(), values, dims, depth)
    }
}

impl<D: IntoData + Clone> IntoData for &[D] {
    type Element = D::Element;

    fn collect(self, values: &mut Vec<D::Element>, dims: &mut Vec<usize>, depth: usize) -> Result<()> {
        along(self.iter().cloned(), values, dims, depth)
    }
}

impl<D: IntoData + Clone> IntoData for &Vec<D> {
    type Element = D::Element;

    fn collect(self, values: &mut Vec<D::Element>, dims: &mut Vec<usize>, depth: usize) -> Result<()> {
        self.as_slice().collect(values, dims, depth)
    }
}
