//! Models: `models.<name>` with its `config` as JSON. Everything else is as for layers.

use polygrad_nn::Forward;
use polygrad_nn::models::{LeNet, Mlp, ModelConfig, ResNet, VisionTransformer};
use polygrad_tensor::{Backend, Device};

use super::layer;
use crate::vectors::call::{Call, CaseError, CaseOutputs, CaseResult, unsupported};

/// The config in JSON.
pub(super) fn config<C: ModelConfig, B: Backend>(call: &Call<'_, B>) -> CaseResult<C> {
    match call.json("config") {
        Some(json) => Ok(C::from_json(&json.to_string())?),
        None => unsupported("argument config is missing"),
    }
}

fn model<B: Backend>(name: &str, call: &Call<'_, B>, device: &Device<B>) -> CaseResult<Box<dyn Forward<B>>> {
    Ok(match name {
        "Mlp" => Box::new(Mlp::new(&config(call)?, device)?),
        "LeNet" => Box::new(LeNet::new(&config(call)?, device)?),
        "ResNet" => Box::new(ResNet::new(&config(call)?, device)?),
        "VisionTransformer" => Box::new(VisionTransformer::new(&config(call)?, device)?),
        _ => return Err(CaseError::OtherFamily),
    })
}

pub(super) fn answer<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let Some(name) = call.op().strip_prefix("models.") else {
        return Err(CaseError::OtherFamily);
    };
    let device = call.tensor(0, "input")?.device();
    let model = model(name, call, &device)?;
    layer::run(&*model, call)
}
