//! Policies as ONNX files.

use polygrad_onnx::graph::{Dim, Graph};
use polygrad_onnx::{Export, ExportOnnx as _, Input, Opset};
use polygrad_tensor::{DType, Result, Tensor};

use crate::{ActionParams, EncoderConfig, Policy, PolicyConfig, PolicyState};

/// The policy's graph, after a comparison with the policy. Inputs are `observation`, `mask` of the allowed actions if
/// `masked`, and `state_0`, …. Outputs are `logits`, `mean` and `std` or `action`, `value` if the policy has one, and
/// `next_state_0`, …. Logits of masked actions are −∞; those of DQN are the values of actions. The first extent of
/// inputs is `batch`.
///
/// # Errors
/// Those of the export.
pub fn record_policy(
    policy: &dyn Policy,
    config: &PolicyConfig,
    masked: bool,
    batch: Dim,
    opset: Opset,
) -> Result<Graph> {
    let Some(device) = policy.parameters().first().map(|param| param.device()) else {
        return Err(polygrad_core::Error::invalid("the policy has no parameters"));
    };
    let first = || std::iter::once(batch.clone());
    let fixed = |extents: &[usize]| extents.iter().copied().map(Dim::Fixed).collect::<Vec<_>>();
    let observation = match &config.encoder {
        EncoderConfig::Mlp(config) => vec![config.observation_size],
        EncoderConfig::Cnn(config) => config.observation_shape.to_vec(),
    };
    let dims: Vec<Dim> = first().chain(fixed(&observation)).collect();
    let mut inputs = vec![Input::new("observation", DType::F32, dims)];
    if masked {
        let dims: Vec<Dim> = first().chain(fixed(&[config.action.outputs()])).collect();
        inputs.push(Input::new("mask", DType::Bool, dims));
    }
    // Some policies do not sample, or estimate no values.
    let blank = Tensor::zeros([&[1], &observation[..]].concat(), &device)?;
    let answer = policy.forward(&blank, &policy.initial_state(1)?)?;
    let named: &[&str] = match answer.action {
        ActionParams::Normal { .. } => &["mean", "std"],
        ActionParams::Deterministic(_) => &["action"],
        _ => &["logits"],
    };
    let named = named.iter().copied().chain(answer.value.map(|_| "value"));
    let mut outputs: Vec<String> = named.map(str::to_owned).collect();
    for (i, part) in policy.initial_state(1)?.parts().iter().enumerate() {
        let dims = part.dims();
        let dims = vec![Dim::Fixed(dims[0]), batch.clone(), Dim::Fixed(dims[2])];
        inputs.push(Input::new(&format!("state_{i}"), DType::F32, dims));
        outputs.push(format!("next_state_{i}"));
    }
    let export = Export::new(inputs)
        .outputs(outputs.iter().map(String::as_str))
        .opset(opset);
    policy.record_onnx(&export, |inputs| {
        let (mask, state) = inputs[1..].split_at(usize::from(masked));
        let answer = policy.forward(&inputs[0], &PolicyState::new(state.to_vec()))?;
        let output = answer.action.output();
        let output = match mask {
            [mask] => output.masked_fill(&mask.logical_not()?, f64::NEG_INFINITY)?,
            _ => output.clone(),
        };
        let std = answer.action.log_std().map(Tensor::exp).transpose()?;
        let numbers = [Some(&output), std.as_ref(), answer.value.as_ref()];
        Ok(numbers
            .into_iter()
            .flatten()
            .chain(answer.state.parts())
            .cloned()
            .collect::<Vec<Tensor>>())
    })
}
