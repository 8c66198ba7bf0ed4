//! A backend over another one, with a deliberate fault.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use polygrad_core::{
    Activation, AnyDevice, AnyTensor, ArgOp, Axes, Backend, BinaryOp, BlockScheme, Capabilities, CompareOp,
    Computation, ConvParams, CrossEntropyParams, DType, DeviceGraph, Distribution, Error, HostTensor, Op, Outputs,
    PoolParams, Prepack, RandomKey, ReduceOp, Result, Scalar, Shape, SliceRange, UnaryOp, call_methods, decompose,
};

/// The fault of the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// The activation that was fused with a product or a convolution is left out.
    DroppedEpilogue,
    /// A product reads a permuted operand as if it were stored in that order.
    WrongStrides,
    /// An element-wise op writes to its operand's memory, though that is still shared.
    ReusedBuffer,
    /// A contribution to a gradient is added twice.
    AddedTwice,
    /// A replay of a device's own recording reads the inputs from when it was recorded.
    StaleInput,
}

/// The backend of all mutants; the devices differ.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mutant;

/// A device, and its fault.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) below: AnyDevice,
    pub(crate) fault: Fault,
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.fault == other.fault
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {:?}", self.below, self.fault)
    }
}

/// A tensor.
#[derive(Clone)]
pub(crate) struct Value(Arc<Held>);

struct Held {
    tensor: Mutex<AnyTensor>,
    /// The tensor that it is a permutation of.
    source: Option<AnyTensor>,
    shape: Shape,
    dtype: DType,
    place: Place,
}

impl Value {
    fn new(tensor: AnyTensor, source: Option<AnyTensor>, place: &Place) -> Self {
        Self(Arc::new(Held {
            shape: tensor.shape(),
            dtype: tensor.dtype(),
            tensor: Mutex::new(tensor),
            source,
            place: place.clone(),
        }))
    }

    fn tensor(&self) -> AnyTensor {
        self.0.tensor.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn overwrite(&self, tensor: AnyTensor) {
        *self.0.tensor.lock().unwrap_or_else(PoisonError::into_inner) = tensor;
    }

    /// The tensor, misread as if its memory were in the order of its axes.
    fn misread(&self) -> Result<AnyTensor> {
        match &self.0.source {
            None => Ok(self.tensor()),
            Some(source) => execute(&Op::Reshape(self.0.shape), std::slice::from_ref(source))?.take(0),
        }
    }
}

fn execute(op: &Op, inputs: &[AnyTensor]) -> Result<Outputs> {
    let inputs: Vec<&AnyTensor> = inputs.iter().collect();
    inputs[0].backend().execute(op, &inputs)
}

impl Mutant {
    fn call(op: Op, tensors: &[&Value]) -> Result<Outputs<Value>> {
        let place = &tensors[0].0.place;
        let mut inputs: Vec<AnyTensor> = tensors.iter().map(|x| x.tensor()).collect();
        let mut done = op.clone();
        match (place.fault, &mut done) {
            (Fault::DroppedEpilogue, Op::Linear { activation } | Op::Conv { activation, .. }) => *activation = None,
            (Fault::WrongStrides, Op::Matmul) => inputs[1] = tensors[1].misread()?,
            _ => {}
        }
        let outputs = execute(&done, &inputs)?;
        let is_elementwise = matches!(op, Op::Activation(_) | Op::Unary(_));
        if place.fault == Fault::ReusedBuffer && is_elementwise {
            let result = outputs
                .iter()
                .next()
                .filter(|result| result.dtype() == tensors[0].0.dtype);
            if let Some(result) = result {
                tensors[0].overwrite(result.clone());
            }
        }
        let source = matches!(op, Op::Permute(_)).then(|| inputs[0].clone());
        outputs.try_map(|output| Ok(Value::new(output, source.clone(), place)))
    }

    fn make(place: &Place, make: impl FnOnce(&AnyDevice) -> Result<AnyTensor>) -> Result<Value> {
        Ok(Value::new(make(&place.below)?, None, place))
    }
}

/// The results of a recording when it was made.
struct Stale(Vec<Value>);

impl DeviceGraph<Value> for Stale {
    fn run(&self, _: &[Value]) -> Result<Vec<Value>> {
        Ok(self.0.clone())
    }
}

impl Backend for Mutant {
    type Tensor = Value;
    type Device = Place;

    fn name() -> &'static str {
        "mutant"
    }

    fn capabilities(place: &Place) -> Capabilities {
        let mut capabilities = place
            .below
            .backend()
            .capabilities(&place.below)
            .unwrap_or_else(|_| Capabilities::host([]));
        capabilities.graphs = place.fault == Fault::StaleInput;
        capabilities
    }

    fn synchronize(place: &Place) -> Result<()> {
        place.below.backend().synchronize(&place.below)
    }

    fn shape(x: &Value) -> Shape {
        x.0.shape
    }

    fn dtype(x: &Value) -> DType {
        x.0.dtype
    }

    fn device(x: &Value) -> Place {
        x.0.place.clone()
    }

    fn from_host(host: HostTensor, place: &Place) -> Result<Value> {
        Self::make(place, |below| below.backend().from_host(host, below))
    }

    fn to_host(x: &Value) -> Result<HostTensor> {
        let tensor = x.tensor();
        tensor.backend().to_host(&tensor)
    }

    fn full(shape: Shape, value: Scalar, dtype: DType, place: &Place) -> Result<Value> {
        Self::make(place, |below| below.backend().full(shape, value, dtype, below))
    }

    fn iota(len: usize, start: Scalar, step: Scalar, dtype: DType, place: &Place) -> Result<Value> {
        Self::make(place, |below| below.backend().iota(len, start, step, dtype, below))
    }

    fn random(shape: Shape, distribution: Distribution, dtype: DType, key: RandomKey, place: &Place) -> Result<Value> {
        Self::make(place, |below| {
            below.backend().random(shape, distribution, dtype, key, below)
        })
    }

    call_methods! {}

    fn accumulate_grad(acc: Value, grad: &Value) -> Result<Value> {
        let sum = decompose::accumulate_grad::<Self>(&acc, grad)?;
        match acc.0.place.fault {
            Fault::AddedTwice => decompose::accumulate_grad::<Self>(&sum, grad),
            _ => Ok(sum),
        }
    }

    fn graph(
        place: &Place,
        inputs: &[Value],
        f: Computation<'_, Value>,
    ) -> Result<Option<Box<dyn DeviceGraph<Value>>>> {
        if place.fault != Fault::StaleInput {
            return Err(Error::unsupported("the device does not record computations"));
        }
        Ok(Some(Box::new(Stale(f(inputs)?))))
    }
}
