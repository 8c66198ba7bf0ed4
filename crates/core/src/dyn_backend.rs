//! The object-safe form of [`Backend`].

use std::any::TypeId;
use std::fmt::{self, Debug, Display};

use crate::ops::malformed;
use crate::program::{Program, Replay};
use crate::{
    AnyDevice, AnyTensor, Backend, Capabilities, Composite, DType, Distribution, Error, ErrorKind, HostTensor, Op,
    OpDesc, RandomKey, Result, Scalar, Shape, dispatch, program,
};

/// A backend as an object: implemented for every [`Backend`] by a blanket impl, and by hand for wrappers that observe
/// or alter the calls of another backend.
///
/// Ops are passed as values of [`Op`], so that a wrapper implements one method, [`DynBackend::execute`], instead of one
/// for each op. Methods that take an [`AnyTensor`] or [`AnyDevice`] of another backend fail with [`ErrorKind::Device`].
pub trait DynBackend: Send + Sync + 'static {
    /// The backend's name, as in device strings.
    fn name(&self) -> &'static str;

    /// Identifies the backend.
    fn id(&self) -> TypeId;

    /// See [`Backend::capabilities`].
    fn capabilities(&self, device: &AnyDevice) -> Result<Capabilities>;

    /// See [`Backend::supports`].
    fn supports(&self, device: &AnyDevice, op: &OpDesc<'_>) -> Result<()>;

    /// See [`Backend::synchronize`].
    fn synchronize(&self, device: &AnyDevice) -> Result<()>;

    /// See [`Backend::device`].
    fn device(&self, x: &AnyTensor) -> Result<AnyDevice>;

    /// See [`Backend::same_device`].
    fn same_device(&self, a: &AnyTensor, b: &AnyTensor) -> bool;

    /// See [`Backend::from_host`].
    #[allow(clippy::wrong_self_convention, reason = "named as in Backend")]
    fn from_host(&self, host: HostTensor, device: &AnyDevice) -> Result<AnyTensor>;

    /// See [`Backend::to_host`].
    fn to_host(&self, x: &AnyTensor) -> Result<HostTensor>;

    /// See [`Backend::full`].
    fn full(&self, shape: Shape, value: Scalar, dtype: DType, device: &AnyDevice) -> Result<AnyTensor>;

    /// See [`Backend::iota`].
    fn iota(&self, len: usize, start: Scalar, step: Scalar, dtype: DType, device: &AnyDevice) -> Result<AnyTensor>;

    /// See [`Backend::random`].
    fn random(
        &self,
        shape: Shape,
        distribution: Distribution,
        dtype: DType,
        key: RandomKey,
        device: &AnyDevice,
    ) -> Result<AnyTensor>;

    /// Computes an op on its tensors, which are in the order of the [`Backend`] method's parameters, without absent
    /// optional ones.
    fn execute(&self, op: &Op, inputs: &[&AnyTensor]) -> Result<Outputs>;

    /// See [`Backend::composite`].
    ///
    /// # Errors
    /// Those of the backend.
    fn composite(&self, op: &Composite<'_>, x: &AnyTensor) -> Result<Option<AnyTensor>> {
        let _ = (op, x);
        Ok(None)
    }

    /// Prepares a program to run on this backend.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] by default, since wrappers must see each call separately.
    fn compile(&self, program: Program) -> Result<Box<dyn Replay>> {
        drop(program);
        Err(
            Error::unsupported(format!("{} does not run recorded programs", self.name()))
                .with_hint("run the step without captured()"),
        )
    }

    /// Computes an op that changes its first tensors: [`Op::AccumulateGrad`], [`Op::SliceScatter`], [`Op::SgdStep`] and
    /// [`Op::AdamStep`]. `targets` are the tensors that change, in the order of the [`Backend`] method's parameters;
    /// `grad` is the gradient or the source.
    fn update(&self, op: &Op, targets: &mut [&mut AnyTensor], grad: &AnyTensor) -> Result<()>;
}

/// The one to three results of an op.
pub struct Outputs<T = AnyTensor>([Option<T>; 3]);

impl<T> Default for Outputs<T> {
    fn default() -> Self {
        Self([None, None, None])
    }
}

impl<T> Outputs<T> {
    /// One result.
    #[inline]
    pub fn one(a: T) -> Self {
        Self([Some(a), None, None])
    }

    /// Two results.
    pub fn two(a: T, b: T) -> Self {
        Self([Some(a), Some(b), None])
    }

    /// One result, and an optional second one.
    pub fn one_or_two(a: T, b: Option<T>) -> Self {
        Self([Some(a), b, None])
    }

    /// Three results.
    pub fn three(a: T, b: T, c: T) -> Self {
        Self([Some(a), Some(b), Some(c)])
    }

    /// Takes the `i`-th result out.
    ///
    /// # Errors
    /// When the op gave fewer.
    #[inline]
    pub fn take(&mut self, i: usize) -> Result<T> {
        self.take_optional(i)
            .ok_or_else(|| Error::invalid(format!("the backend gave no result number {i}")))
    }

    /// Takes the `i`-th result out, if there is one.
    #[inline]
    pub fn take_optional(&mut self, i: usize) -> Option<T> {
        self.0.get_mut(i).and_then(Option::take)
    }

    /// Converts each result.
    ///
    /// # Errors
    /// Those of `f`; the results before are dropped.
    pub fn try_map<U>(self, mut f: impl FnMut(T) -> Result<U>) -> Result<Outputs<U>> {
        let mut mapped = Outputs::default();
        for (to, from) in mapped.0.iter_mut().zip(self.0) {
            *to = from.map(&mut f).transpose()?;
        }
        Ok(mapped)
    }

    /// The results in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }

    /// The results in order, mutably.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().flatten()
    }
}

impl<B: Backend> DynBackend for B {
    fn name(&self) -> &'static str {
        <B as Backend>::name()
    }

    fn id(&self) -> TypeId {
        TypeId::of::<B>()
    }

    fn capabilities(&self, device: &AnyDevice) -> Result<Capabilities> {
        Ok(<B as Backend>::capabilities(place::<B>(device)?))
    }

    fn supports(&self, device: &AnyDevice, op: &OpDesc<'_>) -> Result<()> {
        <B as Backend>::supports(place::<B>(device)?, op)
    }

    fn synchronize(&self, device: &AnyDevice) -> Result<()> {
        <B as Backend>::synchronize(place::<B>(device)?)
    }

    fn device(&self, x: &AnyTensor) -> Result<AnyDevice> {
        Ok(AnyDevice::new::<B>(<B as Backend>::device(typed::<B>(x)?)))
    }

    fn same_device(&self, a: &AnyTensor, b: &AnyTensor) -> bool {
        match (a.downcast_ref::<B>(), b.downcast_ref::<B>()) {
            (Some(a), Some(b)) => <B as Backend>::same_device(a, b),
            _ => false,
        }
    }

    fn from_host(&self, host: HostTensor, device: &AnyDevice) -> Result<AnyTensor> {
        <B as Backend>::from_host(host, place::<B>(device)?).map(AnyTensor::new::<B>)
    }

    fn to_host(&self, x: &AnyTensor) -> Result<HostTensor> {
        <B as Backend>::to_host(typed::<B>(x)?)
    }

    fn full(&self, shape: Shape, value: Scalar, dtype: DType, device: &AnyDevice) -> Result<AnyTensor> {
        <B as Backend>::full(shape, value, dtype, place::<B>(device)?).map(AnyTensor::new::<B>)
    }

    fn iota(&self, len: usize, start: Scalar, step: Scalar, dtype: DType, device: &AnyDevice) -> Result<AnyTensor> {
        <B as Backend>::iota(len, start, step, dtype, place::<B>(device)?).map(AnyTensor::new::<B>)
    }

    fn random(
        &self,
        shape: Shape,
        distribution: Distribution,
        dtype: DType,
        key: RandomKey,
        device: &AnyDevice,
    ) -> Result<AnyTensor> {
        <B as Backend>::random(shape, distribution, dtype, key, place::<B>(device)?).map(AnyTensor::new::<B>)
    }

    fn execute(&self, op: &Op, inputs: &[&AnyTensor]) -> Result<Outputs> {
        let input = |i: usize| typed::<B>(inputs[i]);
        dispatch::call::<B, _>(op, inputs.len(), input, AnyTensor::new::<B>)
    }

    fn composite(&self, op: &Composite<'_>, x: &AnyTensor) -> Result<Option<AnyTensor>> {
        let made = <B as Backend>::composite(op, typed::<B>(x)?)?;
        Ok(made.map(AnyTensor::new::<B>))
    }

    fn compile(&self, program: Program) -> Result<Box<dyn Replay>> {
        program::compile::<B>(program)
    }

    fn update(&self, op: &Op, targets: &mut [&mut AnyTensor], grad: &AnyTensor) -> Result<()> {
        let grad = typed::<B>(grad)?;
        match (op, targets) {
            (Op::AccumulateGrad, [acc]) => {
                let taken = acc.take::<B>()?;
                **acc = AnyTensor::new::<B>(B::accumulate_grad(taken, grad)?);
                Ok(())
            }
            (Op::SliceScatter { axis, start }, [x]) => B::slice_scatter(x.typed_mut::<B>()?, grad, *axis, *start),
            (Op::SgdStep(params), [param]) => B::sgd_step(param.typed_mut::<B>()?, grad, None, params),
            (Op::SgdStep(params), [param, momentum]) => {
                B::sgd_step(param.typed_mut::<B>()?, grad, Some(momentum.typed_mut::<B>()?), params)
            }
            (Op::AdamStep(params), [param, first, second, rest @ ..]) => B::adam_step(
                param.typed_mut::<B>()?,
                grad,
                first.typed_mut::<B>()?,
                second.typed_mut::<B>()?,
                match rest {
                    [] => None,
                    [largest, ..] => Some(largest.typed_mut::<B>()?),
                },
                params,
            ),
            (op, targets) => Err(malformed(op, targets.len() + 1)),
        }
    }
}

pub(crate) fn typed<B: Backend>(x: &AnyTensor) -> Result<&B::Tensor> {
    x.downcast_ref::<B>().ok_or_else(|| foreign::<B>(x.backend()))
}

pub(crate) fn place<B: Backend>(device: &AnyDevice) -> Result<&B::Device> {
    device.downcast_ref::<B>().ok_or_else(|| foreign::<B>(device.backend()))
}

#[cold]
pub(crate) fn foreign<B: Backend>(found: &dyn DynBackend) -> Error {
    Error::new(
        ErrorKind::Device,
        format!(
            "backend {} was given a tensor or device of backend {}",
            <B as Backend>::name(),
            found.name()
        ),
    )
    .with_hint("move it with to_device or to_backend first")
}

impl Debug for dyn DynBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DynBackend({})", self.name())
    }
}

impl Display for dyn DynBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
