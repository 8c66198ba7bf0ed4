//! `polygrad export` of runs in environments: policies as ONNX files.

use std::path::Path;

use polygrad::rl::zoo::Stepping;
use polygrad::rl::{Space, record_policy};
use polygrad::train::RunFolder;
use polygrad_onnx::Opset;
use polygrad_onnx::graph::Graph;

use super::Settings;
use crate::failure::{Result, Shown};
use crate::onnx::args::ExportRun;
use crate::onnx::export::batch;
use crate::outcome::Outcome;
use crate::progress::say;
use crate::trained::{self, Trained};

/// Writes the policy of a run as an ONNX file, after comparing the graph with the policy.
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

/// The policy and its environment in one line.
///
/// # Errors
/// An unknown environment.
pub(crate) fn summary(trained: &Trained<Settings>) -> Result<String> {
    let spec = trained.config.spec()?;
    Ok(format!(
        "{} for {}: {}",
        trained.config.network(),
        spec.name,
        spec.description
    ))
}

/// The policy's graph from [`record_policy`].
///
/// # Errors
/// Errors of the export.
pub(crate) fn record(trained: &Trained<Settings>, opset: Opset, dynamic: bool) -> Result<Graph> {
    let masked = trained
        .config
        .spec()?
        .make(1, Stepping::Serial)?
        .action_masks()
        .is_some();
    let first = batch(dynamic);
    Ok(record_policy(
        &*trained.model,
        &trained.config.policy,
        masked,
        first,
        opset,
    )?)
}

/// The metadata needed to run the file; names are separated by newlines, spaces are in JSON.
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
        ("observation_space", observation.to_json().to_string()),
        // Whether integers must be converted to concatenated one-hot vectors.
        (
            "observation_encoding",
            if one_hot { "one-hot" } else { "identity" }.to_owned(),
        ),
        ("action_names", spec.actions.join("\n")),
        ("action_space", envs.action_space().to_json().to_string()),
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

/// The last mean return of the training and the number of steps so far, from the run's metrics.
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
