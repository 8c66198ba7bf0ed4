//! Graphs as services: ONNX files, and what was exported from a run or a module.

use polygrad_core::{Error, Result};
use polygrad_onnx::graph::{Dim, ValueType};
use polygrad_onnx::{Engine, OnnxModel};
use smallvec::SmallVec;

use crate::rows::{self, Rows};
use crate::{Model, Signature, TensorSpec, Value};

/// A graph that is served, on any backend or engine.
pub struct OnnxService {
    model: OnnxModel,
    signature: Signature,
}

impl OnnxService {
    /// Serves a graph. Rows of several requests are joined where the first extent of all inputs and outputs is open, or an extent of the same
    /// name is found in each, and only after it was shown on two rows that they do not mix. An output `next_NAME` is the state for an input
    /// `NAME`.
    ///
    /// # Errors
    /// An input or output that is no tensor, or of a type that the protocol lacks.
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
        signature.states = signature.states_by_name();
        let classes = model.header().metadata.iter().find(|(name, _)| name == "classes");
        if let (Some((_, classes)), [output]) = (classes, &mut *signature.outputs) {
            let labels: Vec<String> = classes.split('\n').map(str::to_owned).collect();
            if output.dims.last() == Some(&Dim::Fixed(labels.len())) {
                output.labels = labels.into();
            }
        }
        // What is served does not train.
        let model = model.without_parameters();
        let apart = Self { model, signature };
        let mut joined = apart.signature.clone();
        joined.batch_by_name();
        if joined.is_batched() {
            match rows::examine(&apart, &joined) {
                Rows::Independent => {
                    return Ok(Self {
                        signature: joined,
                        ..apart
                    });
                }
                Rows::Mixed => tracing::info!("rows depend on each other, so requests are computed one by one"),
                Rows::Unknown => {
                    tracing::info!("requests are computed one by one, as it cannot be shown that rows do not mix")
                }
            }
        }
        Ok(apart)
    }

    /// Lets requests leave an input out, which is full of a number then: [`TensorSpec::default`].
    ///
    /// # Errors
    /// When there is no such input.
    pub fn with_default(mut self, input: &str, number: i64) -> Result<Self> {
        let found = self.signature.inputs.iter_mut().find(|spec| spec.name == input);
        let spec = found.ok_or_else(|| Error::invalid(format!("the model has no input {input:?}")))?;
        spec.default = Some(number);
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
            literals.push(input.tensor()?.clone().into());
        }
        let outputs = self.model.run_ordered(literals.into_iter())?;
        outputs
            .iter()
            .map(|(_, value)| Ok(Value::Tensor(value.literal()?)))
            .collect()
    }

    fn metadata(&self) -> &[(String, String)] {
        &self.model.header().metadata
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
    let Some(dims) = &ty.shape else {
        return Err(unfit("is of unknown rank".to_owned()));
    };
    Ok(TensorSpec::new(
        name,
        ty.element,
        dims.iter().map(Dim::clone).collect::<Vec<_>>(),
    ))
}
