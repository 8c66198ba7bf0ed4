//! Graphs as services: ONNX files, and exports of a run or a module.

use polygrad_core::{Error, Result};
use polygrad_onnx::graph::{Dim, ValueType};
use polygrad_onnx::{Engine, OnnxModel};
use smallvec::SmallVec;

use crate::{InputDefault, Model, Signature, TensorSpec, Value, rows};

/// A graph that is served, on any backend or engine.
pub struct OnnxService {
    model: OnnxModel,
    signature: Signature,
    apart: Option<String>,
}

impl OnnxService {
    /// Serves a graph. Rows of several requests are joined if the first extent of all inputs and outputs is open, or
    /// each has an extent of the same name. In addition, each node of the graph must be known to keep rows apart, which
    /// is also tested on a few numbers; otherwise [`Model::apart`] gives the reason. An output `next_NAME` is the state
    /// for an input `NAME`. An input with a default in the file may be left out.
    ///
    /// # Errors
    /// An input or output that is no tensor, or has a type that the protocol lacks.
    pub fn new(model: OnnxModel) -> Result<Self> {
        let specs = |values: Vec<(&str, Option<&ValueType>)>| {
            let specs = values.into_iter().map(|(name, ty)| spec(name, ty));
            specs.collect::<Result<Vec<_>>>()
        };
        let mut signature = Signature {
            inputs: specs(model.inputs().collect())?,
            outputs: specs(model.outputs().collect())?,
            states: Vec::new(),
        };
        for (name, ty, value) in model.optional_inputs() {
            // Values of a type that the protocol lacks cannot be sent.
            let Ok(mut spec) = spec(name, ty) else { continue };
            spec.default = Some(InputDefault::Value(Value::Tensor(value.clone())));
            signature.inputs.push(spec);
        }
        signature.states = signature.states_by_name();
        let classes = model.header().metadata.iter().find(|(name, _)| name == "classes");
        if let (Some((_, classes)), [output]) = (classes, &mut *signature.outputs) {
            let labels: Vec<String> = classes.split('\n').map(str::to_owned).collect();
            if output.dims.last() == Some(&Dim::Fixed(labels.len())) {
                output.labels = labels.into();
            }
        }
        let mut joined = signature.clone();
        joined.batch_by_name();
        let mut service = Self {
            model,
            signature,
            apart: None,
        };
        if joined.is_batched() {
            service.apart = rows::kept_apart(&service.model, &service, &joined);
            if service.apart.is_none() {
                service.signature = joined;
            }
        }
        // A served model is not trained.
        service.model = service.model.without_parameters();
        Ok(service)
    }

    /// Lets requests omit an input, which is then filled with a number: [`TensorSpec::default`].
    ///
    /// # Errors
    /// When there is no such input.
    pub fn with_default(mut self, input: &str, number: i64) -> Result<Self> {
        let found = self.signature.inputs.iter_mut().find(|spec| spec.name == input);
        let spec = found.ok_or_else(|| Error::invalid(format!("the model has no input {input:?}")))?;
        spec.default = Some(InputDefault::Number(number));
        Ok(self)
    }
}

impl Model for OnnxService {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, inputs: &[Value]) -> Result<Vec<Value>> {
        let mut literals: SmallVec<[polygrad_onnx::Value; 4]> = SmallVec::new();
        for input in inputs {
            literals.push(input.clone().into_graph()?);
        }
        let has_defaults = self.signature.inputs.iter().any(|spec| spec.default_value().is_some());
        let outputs = match has_defaults {
            true => {
                let names = self.signature.inputs.iter().map(|spec| spec.name.clone());
                self.model.run(names.zip(literals))?
            }
            false => self.model.run_ordered(literals.into_iter())?,
        };
        outputs
            .iter()
            .map(|(_, value)| Ok(Value::Tensor(value.literal()?)))
            .collect()
    }

    fn metadata(&self) -> &[(String, String)] {
        &self.model.header().metadata
    }

    fn apart(&self) -> Option<&str> {
        self.apart.as_deref()
    }

    fn platform(&self) -> &str {
        match self.model.engine() {
            Engine::Native => "polygrad",
            engine => engine.name(),
        }
    }
}

fn spec(name: &str, ty: Option<&ValueType>) -> Result<TensorSpec> {
    let unfit = |what: String| Error::unsupported(format!("{name:?} {what}, so the model cannot be served"));
    let Some(ty) = ty.and_then(ValueType::as_tensor) else {
        return Err(unfit("is no tensor, or of no known type".to_owned()));
    };
    if crate::datatype_name(ty.element).is_none() {
        return Err(unfit(format!(
            "is of elements of type {}, which the protocol lacks",
            ty.element
        )));
    }
    // The protocol has strings, which are not served.
    if let Err(error) = ty.element.dtype() {
        return Err(unfit(format!("is of elements of type {}: {error}", ty.element)));
    }
    let Some(dims) = &ty.shape else {
        return Err(unfit("is of unknown rank".to_owned()));
    };
    Ok(TensorSpec::new(
        name,
        ty.element,
        dims.iter().map(Dim::clone).collect::<Vec<_>>(),
    ))
}
