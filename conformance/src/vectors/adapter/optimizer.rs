//! The optimizers of `torch.optim`. The parameters are the first argument, as a list; the others are those of the class, by name, and
//! `grads` lists the gradients of each step. The answer is the parameters after each step.

use polygrad_nn::{AdamConfig, Optimizer, Param, RMSpropConfig, SGDConfig};
use polygrad_tensor::{Backend, Error, Result, Tensor};

use crate::vectors::call::{Answer, Asked, Call, NAMED, Stop, unsupported};

fn optimizer<B: Backend>(name: &str, call: &Call<'_, B>, params: &[Param<B>]) -> Asked<Box<dyn Optimizer<B>>> {
    let number = |name: &str, default: f64| call.float(NAMED, name, default);
    let flag = |name: &str| call.flag(NAMED, name, false);
    let params = params.to_vec();
    Ok(match name {
        "SGD" => {
            let config = SGDConfig::new(number("lr", 1e-3)?)
                .momentum(number("momentum", 0.0)?)
                .dampening(number("dampening", 0.0)?)
                .weight_decay(number("weight_decay", 0.0)?)
                .nesterov(flag("nesterov")?);
            Box::new(config.build(params)?)
        }
        "RMSprop" => {
            let config = RMSpropConfig::new(number("lr", 1e-2)?)
                .alpha(number("alpha", 0.99)?)
                .eps(number("eps", 1e-8)?)
                .momentum(number("momentum", 0.0)?)
                .weight_decay(number("weight_decay", 0.0)?)
                .centered(flag("centered")?);
            Box::new(config.build(params)?)
        }
        "Adam" | "AdamW" => {
            let lr = number("lr", 1e-3)?;
            let (config, decay) = match name {
                "Adam" => (AdamConfig::new(lr), 0.0),
                _ => (AdamConfig::adamw(lr), 1e-2),
            };
            let betas = call.floats(NAMED, "betas", 2)?.unwrap_or_else(|| vec![0.9, 0.999]);
            let [first, second] = betas[..] else {
                return unsupported(format!("argument betas={betas:?}"));
            };
            let config = config
                .betas(first, second)
                .eps(number("eps", 1e-8)?)
                .weight_decay(number("weight_decay", decay)?)
                .amsgrad(flag("amsgrad")?);
            Box::new(config.build(params)?)
        }
        _ => return Err(Stop::OtherFamily),
    })
}

/// A scalar whose gradient with respect to each parameter is what is given.
fn loss<B: Backend>(params: &[Param<B>], grads: &[&Tensor<B>]) -> Result<Tensor<B>> {
    let products = params
        .iter()
        .zip(grads)
        .map(|(param, grad)| param.tensor().mul(grad)?.sum_all());
    let total = products.reduce(|total, next| total?.add(&next?));
    total.unwrap_or_else(|| Err(Error::invalid("an optimizer without parameters")))
}

pub(super) fn answer<B: Backend>(call: &Call<'_, B>) -> Answer<B> {
    let Some(name) = call.op().strip_prefix("optim.") else {
        return Err(Stop::OtherFamily);
    };
    let params = call.tensors(0, "params")?.into_iter().cloned().map(Param::new);
    let params: Vec<Param<B>> = params.collect::<Result<_>>()?;
    let mut optimizer = optimizer(name, call, &params)?;
    let mut outputs = Vec::new();
    for grads in call.lists_of_tensors(NAMED, "grads")? {
        optimizer.step(&loss(&params, &grads)?.backward()?)?;
        outputs.extend(params.iter().map(Param::tensor));
    }
    Ok(outputs)
}
