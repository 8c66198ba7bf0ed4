//! `polygrad export` of runs in environments: policies as ONNX files.

use std::path::Path;

use polygrad::rl::zoo::Stepping;
use polygrad::rl::{ActionParams, PolicyState, Space};
use polygrad::train::RunFolder;
use polygrad::{DType, Tensor};
use polygrad_onnx::graph::{Dim, Graph};
use polygrad_onnx::{Export, ExportOnnx as _, Input, Opset};
use serde_json::{Value, json};

use super::Settings;
use super::settings::observation;
use crate::failure::{Result, Shown};
use crate::onnx::args::ExportRun;
use crate::onnx::export::batch;
use crate::outcome::Outcome;
use crate::progress::say;
use crate::trained::{self, Trained};

/// Writes the policy of a run as an ONNX file, which has been compared with the policy.
///
/// # Errors
/// A run that is missing or damaged, or a file that cannot be written.
pub(crate) fn command(args: &ExportRun) -> Result<Outcome> {
    let trained = trained::load::<Settings>(&args.run, args.backend.as_deref(), args.threads)?;
    let mut graph = record(&trained, Opset::from_version(args.opset)?, !args.fixed)?;
    graph.header.metadata.extend(metadata(&trained.config, &args.run)?);
    graph.save(&args.onnx)?;
    let network = trained.config.network();
    say(&format!(
        "{}: the {network} of {}, opset {}, compared with the policy",
        args.onnx.shown(),
        args.run.shown(),
        args.opset
    ));
    let body = &graph.body;
    for (kind, ids) in [("takes", &body.inputs), ("gives", &body.outputs)] {
        let names: Vec<&str> = ids.iter().map(|&id| body.name_of(id)).collect();
        say(&format!("  {kind} {}", names.join(", ")));
    }
    Ok(Outcome::Done)
}

/// The policy and what it is for in a line.
///
/// # Errors
/// An environment that there is not.
pub(crate) fn summary(trained: &Trained<Settings>) -> Result<String> {
    let spec = trained.config.spec()?;
    Ok(format!(
        "{} for {}: {}",
        trained.config.network(),
        spec.name,
        spec.description
    ))
}

/// The policy's graph: `observation`, where not all actions are always allowed `mask`, and `state_0`, … to `logits`,
/// `mean` and `std` or `action`, `value` if the policy has one, and `next_state_0`, …. Logits of actions that the mask
/// forbids are −∞; those of DQN are what actions are worth.
///
/// # Errors
/// Those of the export.
pub(crate) fn record(trained: &Trained<Settings>, opset: Opset, dynamic: bool) -> Result<Graph> {
    let (config, policy) = (&trained.config, &*trained.model);
    let masked = config.spec()?.make(1, Stepping::Serial)?.action_masks().is_some();
    let first = || std::iter::once(batch(dynamic));
    let fixed = |extents: &[usize]| extents.iter().copied().map(Dim::Fixed).collect::<Vec<_>>();
    let observation = observation(&config.policy);
    let dims: Vec<Dim> = first().chain(fixed(&observation)).collect();
    let mut inputs = vec![Input::new("observation", DType::F32, dims)];
    if masked {
        let dims: Vec<Dim> = first().chain(fixed(&[config.policy.action.outputs()])).collect();
        inputs.push(Input::new("mask", DType::Bool, dims));
    }
    // Some policies draw nothing, or estimate no values.
    let blank = Tensor::zeros([&[1], &observation[..]].concat(), &trained.device)?;
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
        let dims = vec![Dim::Fixed(dims[0]), batch(dynamic), Dim::Fixed(dims[2])];
        inputs.push(Input::new(&format!("state_{i}"), DType::F32, dims));
        outputs.push(format!("next_state_{i}"));
    }
    let export = Export::new(inputs)
        .outputs(outputs.iter().map(String::as_str))
        .opset(opset);
    Ok(policy.record_onnx(&export, |inputs| {
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
    })?)
}

/// What whoever runs the file must know; names are in lines, spaces in JSON.
pub(super) fn metadata(config: &Settings, run: &Path) -> Result<Vec<(String, String)>> {
    let spec = config.spec()?;
    let envs = spec.make(1, Stepping::Serial)?;
    let observation = envs.observation_space();
    let one_hot = matches!(observation, Space::Discrete { .. } | Space::MultiDiscrete { .. });
    let mut metadata = vec![
        ("environment", spec.name.to_owned()),
        ("description", spec.description.to_owned()),
        ("policy", config.network()),
        ("polygrad_version", env!("CARGO_PKG_VERSION").to_owned()),
        ("observation_names", spec.observations.join("\n")),
        ("observation_space", space(observation).to_string()),
        // Where whole numbers are to be one-hot vectors, one after another.
        (
            "observation_encoding",
            if one_hot { "one-hot" } else { "identity" }.to_owned(),
        ),
        ("action_names", spec.actions.join("\n")),
        ("action_space", space(envs.action_space()).to_string()),
    ];
    metadata.extend(
        spec.max_episode_steps
            .map(|steps| ("max_episode_steps", steps.to_string())),
    );
    if let Some(clip) = config.algorithm.normalize_observations() {
        metadata.push(("normalizer", format!("in the graph, clipped at {clip}")));
    }
    if let Some((steps, mean)) = last_return(run) {
        metadata.push(("training_steps", steps));
        metadata.push(("training_return", mean));
    }
    Ok(metadata
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect())
}

/// The last mean return of the training and after how many steps it was, as the run's metrics have them.
fn last_return(run: &Path) -> Option<(String, String)> {
    let text = std::fs::read_to_string(RunFolder::new(run).metrics()).ok()?;
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next()?.split(',').collect();
    let last: Vec<&str> = lines.next_back()?.split(',').collect();
    let cell = |name: &str| {
        let at = names.iter().position(|own| *own == name)?;
        last.get(at).map(|cell| (*cell).to_owned())
    };
    cell("step").zip(cell("return").filter(|mean| mean.parse().is_ok_and(f64::is_finite)))
}

/// A space as JSON, with Gymnasium's words. Bounds that are infinite are null.
fn space(space: &Space) -> Value {
    match space {
        Space::Discrete { n, start } => json!({ "type": "Discrete", "n": n, "start": start }),
        Space::MultiDiscrete { nvec, start } => json!({ "type": "MultiDiscrete", "nvec": nvec, "start": start }),
        Space::MultiBinary { n } => json!({ "type": "MultiBinary", "n": n }),
        Space::Box {
            low,
            high,
            shape,
            dtype,
        } => {
            let bounds = |bounds: &[f32]| -> Vec<Option<f32>> {
                bounds.iter().map(|x| Some(*x).filter(|x| x.is_finite())).collect()
            };
            let (low, high) = (bounds(low), bounds(high));
            json!({ "type": "Box", "low": low, "high": high, "shape": shape, "dtype": dtype.name() })
        }
    }
}
