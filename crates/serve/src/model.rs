//! Models, and their inputs and outputs.

use std::sync::Arc;

use polygrad_core::{Error, Result, Shape};
use polygrad_onnx::graph::{Dim, ElementType};

use crate::value::shown;
use crate::{Encoder, Language, Value};

/// Anything with named arrays as inputs and outputs. All threads share one instance.
pub trait Model: Send + Sync + 'static {
    /// The inputs and outputs.
    fn signature(&self) -> &Signature;

    /// Computes the outputs in the signature's order, from inputs in its order. Inputs fit their types. Both include
    /// states.
    ///
    /// # Errors
    /// Invalid values, as one of the kinds `InvalidArgument`, `OutOfRange`, `Shape` or `DType`; all others count as
    /// faults of the server.
    fn run(&self, inputs: &[Value]) -> Result<Vec<Value>>;

    /// Why requests are computed one by one although their extents would allow joining them. `None` if they are joined,
    /// or if their extents do not allow it.
    fn apart(&self) -> Option<&str> {
        None
    }

    /// Returns memory that is cached for later runs to the system. Called after states of sequences were freed.
    fn trim(&self) {}

    /// The engine's name, for the protocol's metadata.
    fn platform(&self) -> &str {
        "polygrad"
    }

    /// The model as one that generates text, if it is one.
    fn language(&self) -> Option<&dyn Language> {
        None
    }

    /// The model as one that computes vectors of texts, if it is one.
    fn encoder(&self) -> Option<&dyn Encoder> {
        None
    }

    /// Further facts by name, which are returned with the model's configuration: for a training run the `mean` and
    /// `std` of pixels, the `classes`, one a line, or the `encoder` of a table's columns.
    fn metadata(&self) -> &[(String, String)] {
        &[]
    }
}

/// The inputs and outputs of a model.
#[derive(Clone, Debug, Default)]
pub struct Signature {
    /// The inputs.
    pub inputs: Vec<TensorSpec>,
    /// The outputs.
    pub outputs: Vec<TensorSpec>,
    /// Outputs of one step that are inputs of the next.
    pub states: Vec<State>,
}

/// The value of an input that a request leaves out.
#[derive(Clone, Debug)]
pub enum InputDefault {
    /// A tensor filled with this number, whose extents are those of other inputs with the same names. Not for strings.
    Number(i64),
    /// This value. A request with another value is not joined with others.
    Value(Value),
}

/// An input or output.
#[derive(Clone, Debug)]
pub struct TensorSpec {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub element: ElementType,
    /// Its extents; equal names are equal extents.
    pub dims: Vec<Dim>,
    /// The axis along which rows of several requests are joined; `None` if requests are computed one by one.
    pub batch: Option<usize>,
    /// The value of an input that a request leaves out; `None` if it is required.
    pub default: Option<InputDefault>,
    /// The labels along an output's last axis, which the extension `classification` returns; empty
    /// if they are not known.
    pub labels: Arc<[String]>,
}

/// An output that is an input of the next step of the same sequence. In the first step the input is zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The index of the input.
    pub input: usize,
    /// The index of the output.
    pub output: usize,
}

impl Signature {
    /// Whether rows of several requests may be joined: every input and output has an axis for them, except inputs with
    /// a default value, which is the same for all joined requests.
    pub fn is_batched(&self) -> bool {
        let is_kept_state = |place| self.is_state_input(place) && self.inputs[place].default_value().is_some();
        let has_input = self.inputs.iter().any(|spec| spec.batch.is_some());
        has_input && self.with_rows().all(|spec| spec.batch.is_some()) && !(0..self.inputs.len()).any(is_kept_state)
    }

    /// The inputs and outputs that may have rows.
    fn with_rows(&self) -> impl Iterator<Item = &TensorSpec> {
        let inputs = self.inputs.iter().filter(|spec| spec.default_value().is_none());
        inputs.chain(&self.outputs)
    }

    /// Whether rows are along the first axis of all inputs and outputs. That is what Triton calls a batch, whose axis
    /// it does not list among the extents.
    pub(crate) fn is_batched_first(&self) -> bool {
        let mut all = self.inputs.iter().chain(&self.outputs);
        self.is_batched() && all.all(|spec| spec.batch == Some(0))
    }

    /// Whether the input is a state, which the server keeps for sequences.
    pub fn is_state_input(&self, place: usize) -> bool {
        self.states.iter().any(|state| state.input == place)
    }

    /// Whether requests may leave the input out.
    pub fn is_optional(&self, place: usize) -> bool {
        self.is_state_input(place) || self.inputs.get(place).is_some_and(|spec| spec.default.is_some())
    }

    /// Fills in the defaults of inputs that a request left out.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub fn fill(&self, inputs: &mut [Option<Value>]) -> Result<()> {
        for (place, spec) in self.inputs.iter().enumerate() {
            let number = match (&spec.default, &inputs[place]) {
                (Some(InputDefault::Number(number)), None) => *number,
                (Some(InputDefault::Value(value)), None) => {
                    inputs[place] = Some(value.clone());
                    continue;
                }
                _ => continue,
            };
            let like = |wanted: &Dim| {
                let given = self.inputs.iter().zip(&*inputs);
                let mut given = given.filter_map(|(spec, value)| Some((&spec.dims, value.as_ref()?.shape())));
                given.find_map(|(dims, shape)| Some(shape[dims.iter().position(|dim| dim == wanted)?]))
            };
            let extents = spec.dims.iter().map(|dim| match dim {
                Dim::Fixed(extent) => Some(*extent),
                Dim::Named(_) => like(dim),
                Dim::Unknown => None,
            });
            if let Some(extents) = extents.collect::<Option<Vec<_>>>() {
                inputs[place] = Some(Value::full(spec.element, Shape::new(&extents)?, number)?);
            }
        }
        Ok(())
    }

    /// Whether the output is a state.
    pub fn is_state_output(&self, place: usize) -> bool {
        self.states.iter().any(|state| state.output == place)
    }

    /// The states given by an input `NAME` and an output `next_NAME`.
    pub fn states_by_name(&self) -> Vec<State> {
        let inputs = self.inputs.iter().enumerate();
        let states = inputs.filter_map(|(input, spec)| {
            let next = format!("next_{}", spec.name);
            let output = self.outputs.iter().position(|output| output.name == next)?;
            Some(State { input, output })
        });
        states.collect()
    }

    /// Joins requests along the extent named by the first axis of the first input, if each input and output has an
    /// extent of this name; else along their first axes, if all of those are open.
    pub fn batch_by_name(&mut self) {
        let Some(first @ (Dim::Named(_) | Dim::Unknown)) = self.inputs.first().and_then(|spec| spec.dims.first())
        else {
            return;
        };
        let first = first.clone();
        let all = || self.with_rows();
        let by_name = |spec: &TensorSpec| spec.dims.iter().position(|dim| *dim == first);
        let is_open = |spec: &TensorSpec| matches!(spec.dims.first(), Some(Dim::Named(_) | Dim::Unknown));
        let axes: Vec<usize> = match first {
            Dim::Named(_) if all().all(|spec| by_name(spec).is_some()) => all().filter_map(by_name).collect(),
            _ if all().all(is_open) => all().map(|_| 0).collect(),
            _ => return,
        };
        let inputs = self.inputs.iter_mut().filter(|spec| spec.default_value().is_none());
        for (spec, axis) in inputs.chain(&mut self.outputs).zip(axes) {
            spec.batch = Some(axis);
        }
    }
}

impl TensorSpec {
    /// An input or output whose rows are not joined.
    pub fn new(name: impl Into<String>, element: impl Into<ElementType>, dims: impl Into<Vec<Dim>>) -> Self {
        Self {
            name: name.into(),
            element: element.into(),
            dims: dims.into(),
            batch: None,
            default: None,
            labels: Arc::default(),
        }
    }

    /// Lets requests omit the input, which is then filled with this number.
    #[must_use]
    pub fn with_default(mut self, number: i64) -> Self {
        self.default = Some(InputDefault::Number(number));
        self
    }

    /// The default value of the input, if it has one.
    pub(crate) fn default_value(&self) -> Option<&Value> {
        match &self.default {
            Some(InputDefault::Value(value)) => Some(value),
            _ => None,
        }
    }

    /// The extents in the protocol's form: −1 if they are unknown.
    pub fn wire_dims(&self) -> Vec<i64> {
        let extent = |dim: &Dim| match dim {
            Dim::Fixed(extent) => i64::try_from(*extent).unwrap_or(i64::MAX),
            Dim::Named(_) | Dim::Unknown => -1,
        };
        self.dims.iter().map(extent).collect()
    }

    /// Fails unless a value is of this type.
    pub(crate) fn check(&self, value: &Value) -> Result<()> {
        if value.element() != self.element {
            return Err(Error::dtype(format!(
                "the input {:?} is of datatype {}, and this is {}",
                self.name,
                shown(self.element),
                shown(value.element())
            )));
        }
        let fits = |(dim, &extent): (&Dim, &usize)| !matches!(dim, Dim::Fixed(wanted) if *wanted != extent);
        let shape = value.shape();
        if shape.rank() != self.dims.len() || !self.dims.iter().zip(shape.iter()).all(fits) {
            return Err(Error::shape(format!(
                "the input {:?} is of shape {:?}, and this is {shape}",
                self.name,
                self.wire_dims()
            )));
        }
        Ok(())
    }

    /// The shape for this many rows.
    ///
    /// # Errors
    /// When another extent is not known.
    pub(crate) fn shape(&self, rows: usize) -> Result<Shape> {
        let extents = self.dims.iter().enumerate().map(|(axis, dim)| match dim {
            _ if self.batch == Some(axis) => Ok(rows),
            Dim::Fixed(extent) => Ok(*extent),
            dim => Err(Error::invalid(format!(
                "the extent {dim} of {:?} is not known",
                self.name
            ))),
        });
        Shape::new(&extents.collect::<Result<Vec<_>>>()?)
    }
}
