//! [`AnyBackend`]: a backend chosen at run time, as a [`Backend`].

use super::{AnyDevice, AnyTensor};
use crate::program::{self, Action};
use crate::timing::{self, timed, types};
use crate::{
    Activation, AdamParams, ArgOp, Axes, Backend, BinaryOp, BlockScheme, Capabilities, CompareOp, Composite,
    ConvParams, CrossEntropyParams, DType, Distribution, HostTensor, Op, OpDesc, Outputs, PoolParams, Prepack,
    RandomKey, ReduceOp, Result, Scalar, SgdParams, Shape, SliceRange, UnaryOp,
};

/// The backend of tensors whose real backend is known only at run time.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyBackend;

type T = AnyTensor;

impl AnyBackend {
    #[inline]
    fn call(op: Op, tensors: &[&T]) -> Result<Outputs> {
        let outputs = match timing::is_on() {
            false => tensors[0].backend().execute(&op, tensors)?,
            true => timed_call(&op, tensors)?,
        };
        if program::is_recording() {
            program::note(Action::Op(op), tensors, outputs.iter());
        }
        Ok(outputs)
    }
}

#[cold]
fn timed_call(op: &Op, tensors: &[&T]) -> Result<Outputs> {
    timed(
        (op.name(), false),
        || types(tensors.iter().copied()),
        || tensors[0].backend().execute(op, tensors),
        |outputs| types(outputs.iter()),
        || wait(tensors[0]),
    )
}

/// Waits for the device of a tensor.
fn wait(x: &T) -> Result<()> {
    let device = x.backend().device(x)?;
    x.backend().synchronize(&device)
}

/// Makes a tensor on a device with `run`, timed.
fn make(name: &'static str, device: &AnyDevice, run: impl FnOnce(&AnyDevice) -> Result<T>) -> Result<T> {
    let results = |x: &T| types([x]);
    timed(
        (name, false),
        Vec::new,
        || run(device),
        results,
        || device.backend().synchronize(device),
    )
}

/// Updates tensors in place, timed.
fn update(op: &Op, targets: &mut [&mut T], grad: &T) -> Result<()> {
    let backend = targets.first().map_or(grad.backend(), |target| target.backend());
    let operands = match timing::is_on() {
        true => types(targets.iter().map(|x| &**x).chain([grad])),
        false => Vec::new(),
    };
    timed(
        (op.name(), false),
        || operands,
        || backend.update(op, targets, grad),
        |()| Vec::new(),
        || wait(grad),
    )
}

impl Backend for AnyBackend {
    type Tensor = AnyTensor;
    type Device = AnyDevice;

    const ERASED: bool = true;

    fn name() -> &'static str {
        "any"
    }

    fn capabilities(device: &AnyDevice) -> Capabilities {
        device
            .backend()
            .capabilities(device)
            .unwrap_or_else(|_| Capabilities::host([]))
    }

    fn supports(device: &AnyDevice, op: &OpDesc<'_>) -> Result<()> {
        device.backend().supports(device, op)
    }

    fn synchronize(device: &AnyDevice) -> Result<()> {
        let run = || device.backend().synchronize(device);
        timed(("synchronize", false), Vec::new, run, |()| Vec::new(), || Ok(()))
    }

    #[inline]
    fn shape(x: &T) -> Shape {
        x.shape()
    }

    #[inline]
    fn dtype(x: &T) -> DType {
        x.dtype()
    }

    fn device(x: &T) -> AnyDevice {
        match x.backend().device(x) {
            Ok(device) => device,
            Err(_) => unreachable!("an AnyTensor is paired with its own backend when it is made"),
        }
    }

    #[inline]
    fn same_device(a: &T, b: &T) -> bool {
        a.backend().same_device(a, b)
    }

    fn from_host(host: HostTensor, device: &AnyDevice) -> Result<T> {
        make("from_host", device, |device| device.backend().from_host(host, device))
    }

    fn to_host(x: &T) -> Result<HostTensor> {
        program::refuse("it reads values on the host");
        timed(
            ("to_host", false),
            || types([x]),
            || x.backend().to_host(x),
            |_| Vec::new(),
            || Ok(()),
        )
    }

    fn full(shape: Shape, value: Scalar, dtype: DType, device: &AnyDevice) -> Result<T> {
        let x = make("full", device, |device| {
            device.backend().full(shape, value, dtype, device)
        })?;
        if program::is_recording() {
            program::note(Action::Full { shape, value, dtype }, &[], std::iter::once(&x));
        }
        Ok(x)
    }

    fn iota(len: usize, start: Scalar, step: Scalar, dtype: DType, device: &AnyDevice) -> Result<T> {
        let x = make("iota", device, |device| {
            device.backend().iota(len, start, step, dtype, device)
        })?;
        if program::is_recording() {
            let action = Action::Iota {
                len,
                start,
                step,
                dtype,
            };
            program::note(action, &[], std::iter::once(&x));
        }
        Ok(x)
    }

    fn random(shape: Shape, distribution: Distribution, dtype: DType, key: RandomKey, device: &AnyDevice) -> Result<T> {
        let x = make("random", device, |device| {
            device.backend().random(shape, distribution, dtype, key, device)
        })?;
        if program::is_recording() {
            let action = Action::Random {
                shape,
                distribution,
                dtype,
            };
            program::note_draw(action, key, &x);
        }
        Ok(x)
    }

    crate::call_methods! {}

    fn composite(op: &Composite<'_>, x: &T) -> Result<Option<T>> {
        // A recorded program contains only ops that every backend has.
        match program::is_recording() {
            true => Ok(None),
            false => x.backend().composite(op, x),
        }
    }

    fn accumulate_grad(mut acc: T, grad: &T) -> Result<T> {
        if program::is_recording() {
            let old = acc.clone();
            update(&Op::AccumulateGrad, &mut [&mut acc], grad)?;
            program::note(Action::Op(Op::AccumulateGrad), &[&old, grad], std::iter::once(&acc));
            return Ok(acc);
        }
        update(&Op::AccumulateGrad, &mut [&mut acc], grad)?;
        Ok(acc)
    }

    fn slice_scatter(x: &mut T, src: &T, axis: usize, start: usize) -> Result<()> {
        let op = Op::SliceScatter { axis, start };
        if program::is_recording() {
            let old = x.clone();
            update(&op, &mut [x], src)?;
            program::note(Action::Op(op), &[&old, src], std::iter::once(&*x));
            return Ok(());
        }
        update(&op, &mut [x], src)
    }

    fn sgd_step(param: &mut T, grad: &T, momentum: Option<&mut T>, params: &SgdParams) -> Result<()> {
        program::refuse("an optimizer takes a step inside of it");
        let op = Op::SgdStep(*params);
        match momentum {
            None => update(&op, &mut [param], grad),
            Some(momentum) => update(&op, &mut [param, momentum], grad),
        }
    }

    fn adam_step(
        param: &mut T,
        grad: &T,
        first: &mut T,
        second: &mut T,
        max_second: Option<&mut T>,
        params: &AdamParams,
    ) -> Result<()> {
        program::refuse("an optimizer takes a step inside of it");
        let op = Op::AdamStep(*params);
        match max_second {
            None => update(&op, &mut [param, first, second], grad),
            Some(largest) => update(&op, &mut [param, first, second, largest], grad),
        }
    }
}
