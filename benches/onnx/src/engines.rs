//! The engines that run a file: each is loaded as its users would, on one thread, with inputs prepared before the clock
//! starts.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ort::environment::Environment;
use ort::session::{Session, SessionInputValue};
use ort::value::DynValue;
use polygrad_core::{DType, Error, ErrorKind, HostTensor, Result};
use polygrad_onnx::OnnxModel;
use polygrad_tensor::{Device, Tensor};
use rten::{Model, ModelOptions, NodeId, RunOptions, ThreadPool, Value};

pub type Inputs = [(String, HostTensor)];

/// Runs once per call; the logits are returned separately on request.
pub trait Engine {
    fn run(&mut self) -> Result<()>;
    fn logits(&mut self) -> Result<Vec<f32>>;
}

pub struct Native {
    model: OnnxModel,
    inputs: Vec<Tensor>,
}

impl Native {
    pub fn load(path: &Path, inputs: &Inputs, device: &Device) -> Result<Self> {
        let tensors = inputs.iter().map(|(_, host)| Tensor::from_host(host.clone(), device));
        Ok(Self {
            model: OnnxModel::load(path, device)?,
            inputs: tensors.collect::<Result<_>>()?,
        })
    }
}

impl Engine for Native {
    fn run(&mut self) -> Result<()> {
        self.model.forward(&self.inputs).map(drop)
    }

    fn logits(&mut self) -> Result<Vec<f32>> {
        self.model.forward(&self.inputs)?.tensor(0)?.to_vec()
    }
}

pub struct OnnxRuntime {
    session: Session,
    inputs: Vec<(String, DynValue)>,
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::DeviceError, error.to_string())
}

/// The only environment of the process.
fn environment() -> Result<Environment> {
    static ENVIRONMENT: Mutex<Option<Environment>> = Mutex::new(None);
    let mut environment = ENVIRONMENT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(environment) = &*environment {
        return Ok(environment.clone());
    }
    let library = std::env::var_os("ORT_DYLIB_PATH").ok_or_else(|| {
        Error::new(
            ErrorKind::BackendUnavailable,
            "ORT_DYLIB_PATH names no library of ONNX Runtime",
        )
        .with_hint("eval \"$(cargo xtask setup onnxruntime)\"")
    })?;
    let made = ort::init_from(library).map_err(failed)?.build().map_err(failed)?;
    *environment = Some(made.clone());
    Ok(made)
}

impl OnnxRuntime {
    pub fn load(path: &Path, inputs: &Inputs) -> Result<Self> {
        let environment = environment()?;
        let session = Session::builder(&environment)
            .and_then(|b| Ok(b.with_intra_threads(1)?.with_inter_threads(1)?))
            .map_err(failed)?
            .commit_from_file(path)
            .map_err(failed)?;
        let value = |(name, host): &(String, HostTensor)| {
            let shape = host.shape().dims().to_vec();
            let value = if host.dtype() == DType::I64 {
                ort::value::Tensor::from_array((shape, host.to_vec::<i64>()?))
                    .map_err(failed)?
                    .into_dyn()
            } else {
                ort::value::Tensor::from_array((shape, host.to_vec::<f32>()?))
                    .map_err(failed)?
                    .into_dyn()
            };
            Ok((name.clone(), value))
        };
        Ok(Self {
            session,
            inputs: inputs.iter().map(value).collect::<Result<_>>()?,
        })
    }

    fn outputs(&mut self) -> Result<ort::session::SessionOutputs<'_>> {
        let given: Vec<(&str, SessionInputValue<'_>)> = self
            .inputs
            .iter()
            .map(|(name, value)| (name.as_str(), value.into()))
            .collect();
        self.session.run(given).map_err(failed)
    }
}

impl Engine for OnnxRuntime {
    fn run(&mut self) -> Result<()> {
        self.outputs().map(drop)
    }

    fn logits(&mut self) -> Result<Vec<f32>> {
        let outputs = self.outputs()?;
        let (_, values) = outputs[0].try_extract_tensor::<f32>().map_err(failed)?;
        Ok(values.to_vec())
    }
}

pub struct RTen {
    model: Model,
    pool: Arc<ThreadPool>,
    inputs: Vec<(NodeId, Value)>,
}

impl RTen {
    pub fn load(path: &Path, inputs: &Inputs) -> Result<Self> {
        let model = ModelOptions::with_all_ops()
            .prepack_weights(true)
            .load_file(path)
            .map_err(failed)?;
        let value = |(name, host): &(String, HostTensor)| {
            let shape = host.shape().dims();
            // RTen has no i64.
            let value = if host.dtype() == DType::I64 {
                Value::from_shape(shape, host.cast(DType::I32).to_vec::<i32>()?).map_err(failed)?
            } else {
                Value::from_shape(shape, host.to_vec::<f32>()?).map_err(failed)?
            };
            Ok((model.node_id(name).map_err(failed)?, value))
        };
        let inputs = inputs.iter().map(value).collect::<Result<_>>()?;
        Ok(Self {
            model,
            pool: Arc::new(ThreadPool::with_num_threads(1)),
            inputs,
        })
    }

    fn outputs(&self) -> Result<Vec<Value>> {
        let given = self.inputs.iter().map(|(id, value)| (*id, value.into())).collect();
        let options = RunOptions::default().with_thread_pool(Some(Arc::clone(&self.pool)));
        self.model
            .run(given, self.model.output_ids(), Some(options))
            .map_err(failed)
    }
}

impl Engine for RTen {
    fn run(&mut self) -> Result<()> {
        self.outputs().map(drop)
    }

    fn logits(&mut self) -> Result<Vec<f32>> {
        let value = self.outputs()?.swap_remove(0);
        let tensor: rten_tensor::Tensor<f32> = value.try_into().map_err(|_| failed("the logits are no floats"))?;
        Ok(rten_tensor::prelude::AsView::to_vec(&tensor))
    }
}
