//! Models: `models.<name>` with its `config` as JSON. All else is as for layers.

use polygrad_nn::Forward;
use polygrad_nn::models::{LeNet, Mlp, ResNet};
use polygrad_tensor::{Backend, Device};
use serde_json::Value;

use super::layer;
use crate::vectors::call::{Answer, Asked, Call, Stop, unsupported};

fn model<B: Backend>(name: &str, config: Option<&Value>, device: &Device<B>) -> Asked<Box<dyn Forward<B>>> {
    macro_rules! made {
        ($model:ident) => {{
            let config = config.cloned().unwrap_or_else(|| Value::Object(Default::default()));
            match serde_json::from_value(config) {
                Ok(config) => Ok(Box::new($model::new(&config, device)?)),
                Err(error) => unsupported(format!("argument config: {error}")),
            }
        }};
    }
    match name {
        "Mlp" => made!(Mlp),
        "LeNet" => made!(LeNet),
        "ResNet" => made!(ResNet),
        _ => Err(Stop::OtherFamily),
    }
}

pub(super) fn answer<B: Backend>(call: &Call<'_, B>) -> Answer<B> {
    let Some(name) = call.op().strip_prefix("models.") else {
        return Err(Stop::OtherFamily);
    };
    let device = call.tensor(0, "input")?.device();
    let model = model(name, call.json("config"), &device)?;
    layer::run(&*model, call)
}
