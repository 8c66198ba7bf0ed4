//! A device that wraps another one and observes all of its calls.

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Device;
use polygrad_core::{
    AnyDevice, AnyTensor, Backend, Capabilities, DType, Distribution, DynBackend, Error, ErrorKind, HostTensor, Op,
    OpDesc, Outputs, RandomKey, Result, Scalar, Shape,
};

/// A call that does work. Queries (shapes, capabilities) are not calls in this sense.
#[derive(Clone, Copy, Debug)]
pub enum Call<'a> {
    /// [`DynBackend::from_host`].
    FromHost,
    /// [`DynBackend::to_host`].
    ToHost,
    /// [`DynBackend::full`].
    Full,
    /// [`DynBackend::iota`].
    Iota,
    /// [`DynBackend::random`].
    Random,
    /// [`DynBackend::synchronize`].
    Synchronize,
    /// [`DynBackend::execute`] or [`DynBackend::update`].
    Op(&'a Op),
}

impl Call<'_> {
    /// The method's name, or the op's.
    pub fn name(&self) -> &'static str {
        match self {
            Self::FromHost => "from_host",
            Self::ToHost => "to_host",
            Self::Full => "full",
            Self::Iota => "iota",
            Self::Random => "random",
            Self::Synchronize => "synchronize",
            Self::Op(op) => op.name(),
        }
    }
}

/// Hooks around each call. Tensors are those of the wrapped device.
pub trait Hooks: Send + Sync + 'static {
    /// Before a call.
    ///
    /// # Errors
    /// An error becomes that of the call, which is then not made.
    fn before(&self, _call: &Call<'_>) -> Result<()> {
        Ok(())
    }

    /// Makes the call with `run`, which only runs the wrapped device, so that it can be timed. `operands` are the
    /// dtypes and shapes of the call's operands; for an update, the changed tensors and then the gradient; for a call
    /// without operands, the tensor that it makes. By default calls [`Hooks::before`] and then `run`.
    ///
    /// # Errors
    /// An error becomes that of the call. Errors of the wrapped device stay inside `run`.
    fn around(&self, call: &Call<'_>, _operands: &[(DType, Shape)], run: &mut dyn FnMut()) -> Result<()> {
        self.before(call)?;
        run();
        Ok(())
    }

    /// Called after a successful call, for each tensor that it made or changed. The returned tensor replaces it.
    ///
    /// # Errors
    /// An error becomes that of the call.
    fn after(&self, _call: &Call<'_>, result: AnyTensor) -> Result<AnyTensor> {
        Ok(result)
    }
}

/// A device that wraps another one. Its tensors cannot be mixed with those of other devices; clones are the same
/// device.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// # use polygrad_reference::Reference;
/// use polygrad_tensor::wrapped::{Call, Hooks, Wrapped};
/// use polygrad_tensor::{Device, Result, Tensor};
///
/// #[derive(Default)]
/// struct Count(AtomicU64);
///
/// impl Hooks for Count {
///     fn before(&self, _: &Call<'_>) -> Result<()> {
///         self.0.fetch_add(1, Ordering::Relaxed);
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<()> {
/// let count = Arc::new(Count::default());
/// let wrapped = Wrapped::new(&Device::<Reference>::default(), Arc::clone(&count));
/// let x = Tensor::ones([2, 3], &wrapped.device())?;
/// assert_eq!((&x + &x)?.sum_all()?.item()?, 12.0);
/// // full, add, sum, to_host
/// assert_eq!(count.0.load(Ordering::Relaxed), 4);
/// assert_eq!(wrapped.live_tensors(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Wrapped(Arc<State>);

struct State {
    inner: AnyDevice,
    hooks: Arc<dyn Hooks>,
    live: AtomicUsize,
}

impl Wrapped {
    /// A device that wraps `device` and passes its calls to `hooks`.
    pub fn new<B: Backend>(device: &Device<B>, hooks: Arc<impl Hooks>) -> Self {
        Self(Arc::new(State {
            inner: device.clone().into_any().inner().clone(),
            hooks,
            live: AtomicUsize::new(0),
        }))
    }

    /// The device, to make tensors on.
    pub fn device(&self) -> Device {
        Device::from_inner(self.any())
    }

    /// The number of its live tensors. Clones of a tensor count once.
    pub fn live_tensors(&self) -> usize {
        self.0.live.load(Ordering::SeqCst)
    }

    fn any(&self) -> AnyDevice {
        AnyDevice::from_parts(&Wrapper, Arc::new(self.clone()))
    }

    fn below(&self) -> &'static dyn DynBackend {
        self.0.inner.backend()
    }

    fn wrap(&self, inner: AnyTensor) -> AnyTensor {
        self.0.live.fetch_add(1, Ordering::SeqCst);
        let (shape, dtype) = (inner.shape(), inner.dtype());
        let place = self.clone();
        AnyTensor::from_parts(&Wrapper, WrappedTensor { inner, place }, shape, dtype)
    }

    /// Makes a call of the wrapped device.
    fn call<T>(
        &self,
        call: &Call<'_>,
        operands: &[(DType, Shape)],
        work: impl FnOnce(&'static dyn DynBackend) -> Result<T>,
    ) -> Result<T> {
        let (mut work, mut outcome) = (Some(work), None);
        let below = self.below();
        let mut run = || outcome = work.take().map(|work| work(below));
        self.0.hooks.around(call, operands, &mut run)?;
        outcome.unwrap_or_else(|| {
            let error = Error::invalid("the hooks of the wrapped device did not make the call exactly once");
            Err(error.with_op(call.name()).with_hint("call run in Hooks::around"))
        })
    }

    /// Makes a call that creates one tensor.
    fn make(
        &self,
        call: Call<'_>,
        operand: (DType, Shape),
        make: impl FnOnce(&'static dyn DynBackend, &AnyDevice) -> Result<AnyTensor>,
    ) -> Result<AnyTensor> {
        let made = self.call(&call, &[operand], |below| make(below, &self.0.inner))?;
        self.0.hooks.after(&call, made).map(|made| self.wrap(made))
    }
}

impl PartialEq for Wrapped {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Display for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wrapped {}", self.0.inner)
    }
}

impl fmt::Debug for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wrapped({}, {} live tensors)", self.0.inner, self.live_tensors())
    }
}

struct WrappedTensor {
    inner: AnyTensor,
    place: Wrapped,
}

impl Drop for WrappedTensor {
    fn drop(&mut self) {
        self.place.0.live.fetch_sub(1, Ordering::SeqCst);
    }
}

fn operand(x: &AnyTensor) -> (DType, Shape) {
    (x.dtype(), x.shape())
}

fn tensor(x: &AnyTensor) -> Result<&WrappedTensor> {
    x.inner().ok_or_else(|| foreign(x.backend()))
}

fn place(device: &AnyDevice) -> Result<&Wrapped> {
    let device_itself = device.inner().as_any().downcast_ref();
    device_itself.ok_or_else(|| foreign(device.backend()))
}

#[cold]
fn foreign(found: &dyn DynBackend) -> Error {
    let message = format!("a wrapped device was given a tensor or device of backend {found}");
    Error::new(ErrorKind::Device, message).with_hint("move it with to_device or to_backend first")
}

/// The backend of all wrapped devices, which differ only in their hooks.
struct Wrapper;

impl DynBackend for Wrapper {
    fn name(&self) -> &'static str {
        "wrapped"
    }

    fn id(&self) -> TypeId {
        TypeId::of::<Self>()
    }

    fn capabilities(&self, device: &AnyDevice) -> Result<Capabilities> {
        let place = place(device)?;
        place.below().capabilities(&place.0.inner)
    }

    fn supports(&self, device: &AnyDevice, op: &OpDesc<'_>) -> Result<()> {
        let place = place(device)?;
        place.below().supports(&place.0.inner, op)
    }

    fn synchronize(&self, device: &AnyDevice) -> Result<()> {
        let place = place(device)?;
        place.call(&Call::Synchronize, &[], |below| below.synchronize(&place.0.inner))
    }

    fn device(&self, x: &AnyTensor) -> Result<AnyDevice> {
        tensor(x).map(|x| x.place.any())
    }

    fn same_device(&self, a: &AnyTensor, b: &AnyTensor) -> bool {
        matches!((tensor(a), tensor(b)), (Ok(a), Ok(b)) if a.place == b.place)
    }

    fn from_host(&self, host: HostTensor, device: &AnyDevice) -> Result<AnyTensor> {
        let place = place(device)?;
        let operand = (host.dtype(), *host.shape());
        place.make(Call::FromHost, operand, |below, inner| below.from_host(host, inner))
    }

    fn to_host(&self, x: &AnyTensor) -> Result<HostTensor> {
        let WrappedTensor { inner, place } = tensor(x)?;
        place.call(&Call::ToHost, &[operand(inner)], |below| below.to_host(inner))
    }

    fn full(&self, shape: Shape, value: Scalar, dtype: DType, device: &AnyDevice) -> Result<AnyTensor> {
        let place = place(device)?;
        place.make(Call::Full, (dtype, shape), |below, inner| {
            below.full(shape, value, dtype, inner)
        })
    }

    fn iota(&self, len: usize, start: Scalar, step: Scalar, dtype: DType, device: &AnyDevice) -> Result<AnyTensor> {
        let place = place(device)?;
        place.make(Call::Iota, (dtype, Shape::from([len])), |below, inner| {
            below.iota(len, start, step, dtype, inner)
        })
    }

    fn random(
        &self,
        shape: Shape,
        distribution: Distribution,
        dtype: DType,
        key: RandomKey,
        device: &AnyDevice,
    ) -> Result<AnyTensor> {
        let place = place(device)?;
        place.make(Call::Random, (dtype, shape), |below, inner| {
            below.random(shape, distribution, dtype, key, inner)
        })
    }

    fn execute(&self, op: &Op, inputs: &[&AnyTensor]) -> Result<Outputs> {
        let inputs = inputs.iter().map(|x| tensor(x)).collect::<Result<Vec<_>>>()?;
        let Some(place) = inputs.first().map(|x| &x.place) else {
            return Err(Error::invalid("an op on no tensors").with_op(op.name()));
        };
        let call = Call::Op(op);
        let bare: Vec<&AnyTensor> = inputs.iter().map(|x| &x.inner).collect();
        let operands: Vec<_> = bare.iter().map(|x| operand(x)).collect();
        let mut outputs = place.call(&call, &operands, |below| below.execute(op, &bare))?;
        for output in outputs.iter_mut() {
            *output = place.wrap(place.0.hooks.after(&call, output.clone())?);
        }
        Ok(outputs)
    }

    fn update(&self, op: &Op, targets: &mut [&mut AnyTensor], grad: &AnyTensor) -> Result<()> {
        let WrappedTensor { inner: grad, place } = tensor(grad)?;
        let bare = targets.iter().map(|x| Ok(tensor(x)?.inner.clone()));
        let bare = bare.collect::<Result<Vec<_>>>()?;
        let operands: Vec<_> = bare.iter().chain([grad]).map(operand).collect();
        let call = Call::Op(op);
        // Tensors are unwrapped for the call, so that the wrapped device has the only handles and can work in place.
        for (target, bare) in targets.iter_mut().zip(bare) {
            **target = bare;
        }
        let mut outcome = place.call(&call, &operands, |below| below.update(op, targets, grad));
        for target in targets {
            let mut result = target.clone();
            if outcome.is_ok() {
                match place.0.hooks.after(&call, result.clone()) {
                    Ok(replaced) => result = replaced,
                    Err(error) => outcome = Err(error),
                }
            }
            **target = place.wrap(result);
        }
        outcome
    }
}
