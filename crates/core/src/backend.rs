//! The interface for engines that have tensors.

use std::fmt::{Debug, Display};

use crate::{
    Activation, AdamParams, ArgOp, Axes, BinaryOp, BlockScheme, Capabilities, CompareOp, Composite, ConvParams,
    CrossEntropyParams, DType, Distribution, Error, HostTensor, OpDesc, PoolParams, Prepack, RandomKey, ReduceOp,
    Result, Scalar, SgdParams, Shape, SliceRange, UnaryOp, decompose, for_each_op, op_parameter, op_results,
    random_host,
};

macro_rules! methods {
    ($($(#[$doc:meta])* $kind:ident $method:ident($($x:ident : $type:tt),* $(,)?) -> $count:ident
        as $variant:ident $fields:tt, named $name:tt, for $dtypes:tt gives $results:tt $(saves $saves:tt)? $(steps $steps:tt)?;)*) => { $(
        methods! { @$kind $(#[$doc])* $method($($x: $type),*) -> $count }
    )* };
    (@core $(#[$doc:meta])* $method:ident($($x:ident : $type:tt),*) -> $count:ident) => {
        $(#[$doc])*
        fn $method($($x: op_parameter!(Self::Tensor, $type)),*) -> Result<op_results!(Self::Tensor, $count)>;
    };
    (@$kind:ident $(#[$doc:meta])* $method:ident($($x:ident : $type:tt),*) -> $count:ident) => {
        $(#[$doc])*
        fn $method($($x: op_parameter!(Self::Tensor, $type)),*) -> Result<op_results!(Self::Tensor, $count)> {
            decompose::$method::<Self>($($x),*)
        }
    };
}

/// A computation that a device has recorded and can launch as a whole: the result of [`Backend::graph`].
pub trait DeviceGraph<T>: Send + Sync {
    /// The outputs for inputs of the shapes and dtypes that it was recorded with, on its device.
    ///
    /// # Errors
    /// When the device fails.
    fn run(&self, inputs: &[T]) -> Result<Vec<T>>;
}

/// What [`Backend::graph`] records: outputs from inputs.
pub type Computation<'a, T> = &'a mut dyn FnMut(&[T]) -> Result<Vec<T>>;

/// An engine that has tensors and computes on them.
///
/// A backend is a type without values of its own; its methods are static and are monomorphized. Every backend is also a
/// [`DynBackend`](crate::DynBackend), by a blanket impl, and can be chosen at run time through
/// [`AnyBackend`](crate::AnyBackend).
///
/// # Contract
///
/// **What callers guarantee**, so that backends need not check it again: all tensors of one call live on devices for
/// which [`Backend::same_device`] holds; operands have the dtypes and shapes that the method states; axes are in range
/// and distinct; a slice fits; a reshape keeps the number of elements; reductions without identity have elements.
/// `polygrad-tensor` is such a caller. Values of index tensors are *not* checked by callers.
///
/// **What backends guarantee:**
/// - A tensor is a value: no op changes a tensor through another handle. Updates in place ([`Backend::adam_step`] and
///   others that take `&mut` or by value) copy first when the memory is shared. A step that fails changes nothing.
/// - Views ([`Backend::reshape`], [`permute`](Backend::permute), [`expand`](Backend::expand),
///   [`slice`](Backend::slice)) are cheap, and every op accepts their results like any other tensor.
/// - At least f32, i64 and bool exist: positions are i64, and comparisons give bool. Every other dtype is either listed
///   by [`Backend::capabilities`], or making a tensor of it is an [`Unsupported`](crate::ErrorKind::Unsupported) error.
/// - NaN propagates through max, min and relu. Sums are accurate: pairwise, compensated or in a wider type.
/// - Elementary functions of f32 and f64 are within 2 units in the last place over their whole range; sine, cosine and
///   tangent of f32 within 4.
/// - f16 and bf16 are computed in f32 or better and rounded once.
/// - An index outside its axis is an [`OutOfRange`](crate::ErrorKind::OutOfRange) error.
/// - An op that cannot be computed is an [`Unsupported`](crate::ErrorKind::Unsupported) error, and
///   [`Backend::supports`] says the same. A failed allocation is an [`OutOfMemory`](crate::ErrorKind::OutOfMemory)
///   error. Nothing panics.
pub trait Backend: Copy + Default + Debug + Send + Sync + 'static {
    /// A tensor: cheap to clone.
    type Tensor: Clone + Send + Sync + 'static;
    /// A place where tensors live: cheap to clone.
    type Device: Clone + PartialEq + Debug + Display + Send + Sync + 'static;

    // The backend, its devices and its tensors.

    /// True only for [`AnyBackend`](crate::AnyBackend). A generic function is compiled in every crate that
    /// calls it. Large ones check this constant and continue in a function for `AnyBackend`, which is compiled
    /// once, with the library.
    #[doc(hidden)]
    const ERASED: bool = false;

    /// The backend's name, as in device strings.
    fn name() -> &'static str;

    /// What a device offers.
    fn capabilities(device: &Self::Device) -> Capabilities;

    /// Whether a device computes an op. By default every op that is defined for a dtype
    /// ([`Op::accepts`](crate::Op::accepts)) that the device has. Whether it has a kernel of its own for the op is not
    /// part of the answer; [`observe`](crate::observe::observe) finds that out.
    ///
    /// # Errors
    /// The error that computing the op would give, if it is not supported.
    fn supports(device: &Self::Device, op: &OpDesc<'_>) -> Result<()> {
        op.check(&Self::capabilities(device).dtypes)
            .map_err(|e| e.with_device(device))
    }

    /// Waits until all work given to a device is done.
    ///
    /// # Errors
    /// When work given earlier failed.
    fn synchronize(device: &Self::Device) -> Result<()>;

    /// A tensor's shape.
    fn shape(x: &Self::Tensor) -> Shape;

    /// A tensor's dtype.
    fn dtype(x: &Self::Tensor) -> DType;

    /// A tensor's device.
    fn device(x: &Self::Tensor) -> Self::Device;

    /// Whether two tensors can be operands of one op.
    #[inline]
    fn same_device(a: &Self::Tensor, b: &Self::Tensor) -> bool {
        Self::device(a) == Self::device(b)
    }

    // In and out.

    /// A tensor with the host's values. Shares the host's memory if the backend can, else copies it.
    fn from_host(host: HostTensor, device: &Self::Device) -> Result<Self::Tensor>;

    /// The values on the host. Waits until they are computed.
    fn to_host(x: &Self::Tensor) -> Result<HostTensor>;

    /// A tensor with all elements equal to `value`.
    fn full(shape: Shape, value: Scalar, dtype: DType, device: &Self::Device) -> Result<Self::Tensor>;

    /// `start + i * step` for `i` in `0..len`, rank 1. Computed from `i`, not by repeated addition.
    fn iota(len: usize, start: Scalar, step: Scalar, dtype: DType, device: &Self::Device) -> Result<Self::Tensor>;

    /// Random numbers, the same on every backend as those of [`random_host`].
    fn random(
        shape: Shape,
        distribution: Distribution,
        dtype: DType,
        key: RandomKey,
        device: &Self::Device,
    ) -> Result<Self::Tensor> {
        Self::from_host(random_host(shape, distribution, dtype, key)?, device)
    }

    // Ops: one method for each row of the table, `ops/table.rs`. A backend overrides a fused op if it is faster than
    // the decomposition.

    for_each_op! { methods }

    // Updates, in place where the memory is not shared.

    /// `acc + grad`, both of one shape and dtype.
    fn accumulate_grad(acc: Self::Tensor, grad: &Self::Tensor) -> Result<Self::Tensor> {
        decompose::accumulate_grad::<Self>(&acc, grad)
    }

    /// Replaces the `src.shape()[axis]` positions from `start` on along an axis by `src`, which has the other extents
    /// and the dtype of `x`. `x` does not change on failure.
    fn slice_scatter(x: &mut Self::Tensor, src: &Self::Tensor, axis: usize, start: usize) -> Result<()> {
        *x = decompose::slice_scatter::<Self>(x, src, axis, start)?;
        Ok(())
    }

    /// One step of SGD. With momentum, `momentum` is its buffer, of the parameter's shape.
    fn sgd_step(
        param: &mut Self::Tensor,
        grad: &Self::Tensor,
        momentum: Option<&mut Self::Tensor>,
        params: &SgdParams,
    ) -> Result<()> {
        decompose::sgd_step::<Self>(param, grad, momentum, params)
    }

    /// One step of Adam or AdamW. `max_second` holds the largest second moment so far, for AMSGrad.
    fn adam_step(
        param: &mut Self::Tensor,
        grad: &Self::Tensor,
        first: &mut Self::Tensor,
        second: &mut Self::Tensor,
        max_second: Option<&mut Self::Tensor>,
        params: &AdamParams,
    ) -> Result<()> {
        decompose::adam_step::<Self>(param, grad, first, second, max_second, params)
    }

    /// Records `f`, which computes outputs from `inputs`, so that the device can launch all of it at once. `f` is
    /// called more than once and must do the same each time; whatever it uses besides its inputs is frozen. `None` if
    /// recording gains nothing.
    ///
    /// # Errors
    /// Those of `f`; [`Unsupported`](crate::ErrorKind::Unsupported) if the device cannot record
    /// ([`Capabilities::graphs`]), or `f` does something that cannot be recorded, such as reading values on the host.
    fn graph(
        device: &Self::Device,
        inputs: &[Self::Tensor],
        f: Computation<'_, Self::Tensor>,
    ) -> Result<Option<Box<dyn DeviceGraph<Self::Tensor>>>> {
        let _ = (inputs, f);
        Err(Error::unsupported("the device does not record computations").with_device(device))
    }

    /// Computes, in one call, an op that the tensor layer otherwise composes of several. `None` if the backend has no
    /// form of its own for it, as a recorder for another engine may have. Not called if a gradient is needed.
    ///
    /// # Errors
    /// When memory runs out, or the backend's form cannot express the op.
    fn composite(op: &Composite<'_>, x: &Self::Tensor) -> Result<Option<Self::Tensor>> {
        let _ = (op, x);
        Ok(None)
    }

    // Named forms of the families, for readable decompositions.

    /// `a + b`.
    fn add(a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor> {
        Self::binary(BinaryOp::Add, a, b)
    }

    /// `a - b`.
    fn sub(a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor> {
        Self::binary(BinaryOp::Sub, a, b)
    }

    /// `a * b`.
    fn mul(a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor> {
        Self::binary(BinaryOp::Mul, a, b)
    }

    /// `a / b`.
    fn div(a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor> {
        Self::binary(BinaryOp::Div, a, b)
    }

    /// `x + scalar`.
    fn add_scalar(x: &Self::Tensor, scalar: f64) -> Result<Self::Tensor> {
        Self::binary_scalar(BinaryOp::Add, x, Scalar::Float(scalar), false)
    }

    /// `x * scalar`.
    fn mul_scalar(x: &Self::Tensor, scalar: f64) -> Result<Self::Tensor> {
        Self::binary_scalar(BinaryOp::Mul, x, Scalar::Float(scalar), false)
    }

    /// `scalar - x`.
    fn scalar_sub(scalar: f64, x: &Self::Tensor) -> Result<Self::Tensor> {
        Self::binary_scalar(BinaryOp::Sub, x, Scalar::Float(scalar), true)
    }

    /// `e^x`.
    fn exp(x: &Self::Tensor) -> Result<Self::Tensor> {
        Self::unary(UnaryOp::Exp, x)
    }

    /// Sum over axes, which are kept with extent 1.
    fn sum_keep(x: &Self::Tensor, axes: Axes) -> Result<Self::Tensor> {
        Self::reduce(ReduceOp::Sum, x, axes, true)
    }

    /// Mean over axes, which are kept with extent 1.
    fn mean_keep(x: &Self::Tensor, axes: Axes) -> Result<Self::Tensor> {
        Self::reduce(ReduceOp::Mean, x, axes, true)
    }

    /// Zeros.
    fn zeros(shape: Shape, dtype: DType, device: &Self::Device) -> Result<Self::Tensor> {
        Self::full(shape, Scalar::Float(0.0), dtype, device)
    }
}
