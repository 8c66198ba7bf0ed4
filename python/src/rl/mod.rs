//! Policies that learn in Gymnasium's environments.

mod envs;
mod own;
mod policy;
mod spaces;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use polygrad::nn::models::ActivationFn;
use polygrad::nn::skip_init;
use polygrad::rl::zoo::Algorithm;
use polygrad::rl::{
    ActionSpace, CnnEncoderConfig, EncoderConfig, MlpEncoderConfig, PolicyConfig, Space, VectorEnv as _,
};
use polygrad::train::{Control, Ended, Event, Progress, Run, RunConfig, RunFolder};
use polygrad::{Device, Error, ErrorKind, Result, manual_seed};
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::errors::raised;
use crate::failure::Failure;
use crate::tensor::cpu;
use envs::Gymnasium;
pub(crate) use own::Environments;
pub(crate) use policy::Policy;
use policy::{Described, KEY};

/// The `task` in a run's settings.
pub(crate) const TASK: &str = "gymnasium";

/// The networks' part of the settings.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Network {
    hidden: Option<Vec<usize>>,
    activation: Option<ActivationFn>,
}

/// The training settings of `polygrad.rl`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Order {
    algorithm: String,
    out: Option<PathBuf>,
    resume: bool,
    /// JSON.
    network: String,
    /// JSON.
    settings: String,
}

/// Trains a policy; returns it, and whether training was stopped before its end. `told` is called with the progress
/// after each step of the training, and stops it by returning true.
#[pyfunction]
pub(crate) fn train(
    py: Python<'_>,
    envs: &Bound<'_, PyAny>,
    order: Order,
    told: Py<PyAny>,
) -> PyResult<(Policy, bool)> {
    let failure = Failure::default();
    let envs = Gymnasium::new(envs, failure.clone())?;
    let device = cpu()?;
    let trained = py.detach(|| order.train(envs, told, &device, &failure));
    trained.map_err(|error| failure.take().unwrap_or_else(|| raised(error)))
}

impl Order {
    fn train(&self, envs: Gymnasium, told: Py<PyAny>, device: &Device, failure: &Failure) -> Result<(Policy, bool)> {
        let described = self.described(&envs)?;
        let algorithm = &described.algorithm;
        manual_seed(algorithm.seed());
        let mut agent = algorithm.agent(Box::new(envs), &described.policy, device, None)?;
        let total = agent.total_steps();
        let failure = failure.clone();
        let callback = move |event: Event<'_>, progress: &Progress<'_>| match event {
            Event::Step => tell(&told, progress).map_err(|error| failure.of(error)),
            _ => Ok(Control::Continue),
        };
        let metadata = BTreeMap::from([(KEY.to_owned(), described.to_json()?.to_string())]);
        let mut options = RunConfig::steps(total).callback(callback).model_metadata(metadata);
        if let Some(out) = &self.out {
            let run = if self.resume {
                Run::resume(out)?
            } else {
                Run::create(out)?
            };
            let mut settings = described.to_json()?;
            settings["task"] = TASK.into();
            options = options.run(run).settings(&settings)?;
        }
        let summary = options.train(&mut *agent)?;
        let own = skip_init(|| algorithm.policy(&described.policy, device))?;
        own.load_state_dict(&agent.trained_policy()?.state_dict()?, true)?;
        Ok((
            Policy::new(own, described, agent.mean_return()),
            summary.ended == Ended::Stopped,
        ))
    }

    fn described(&self, envs: &Gymnasium) -> Result<Described> {
        let settings: Map<String, Value> = crate::errors::settings(&self.settings)?;
        // Imitation needs demonstrations or a teacher, which are not given here.
        let alone = || {
            Algorithm::NAMES
                .into_iter()
                .filter(|name| !["bc", "distill"].contains(name))
        };
        if !alone().any(|name| name == self.algorithm) {
            return Err(Error::invalid(format!("there is no algorithm {:?}", self.algorithm))
                .with_hint(format!("there are {}", alone().collect::<Vec<_>>().join(", "))));
        }
        let of = |settings: Map<String, Value>| {
            Algorithm::deserialize(json!({ self.algorithm.as_str(): settings })).map_err(|error| error.to_string())
        };
        let algorithm = of(settings.clone()).map_err(|why| {
            // The error of all does not name the wrong one.
            let alone = |(name, value)| {
                Some((
                    format!("the setting {name}"),
                    of(Map::from_iter([(name, value)])).err()?,
                ))
            };
            let (name, why) = settings
                .into_iter()
                .find_map(alone)
                .unwrap_or(("a setting".to_owned(), why));
            Error::invalid(format!("{name} of {} is wrong: {why}", self.algorithm))
                .with_hint("settings have the names and forms of `polygrad train --set`")
        })?;
        let (observation, action) = envs.spaces();
        let network = crate::errors::settings(&self.network)?;
        let policy = policy_config(&algorithm, observation, action, network)?;
        algorithm.check(&policy, envs.rows())?;
        Ok(Described {
            algorithm,
            policy,
            observation: observation.clone(),
            action: action.clone(),
        })
    }
}

/// An algorithm's network for these spaces: CleanRL's sizes, unless others are requested.
fn policy_config(
    algorithm: &Algorithm,
    observation: &Space,
    action: &Space,
    Network { hidden, activation }: Network,
) -> Result<PolicyConfig> {
    let actions = ActionSpace::from(action);
    let shape = match observation {
        Space::Box { shape, .. } => shape.clone(),
        _ => vec![observation.flat_len()],
    };
    let least = CnnEncoderConfig::LEAST_IMAGE;
    match shape[..] {
        [a, b, c] if [a, b, c].iter().filter(|&&extent| extent >= least).count() < 2 => {
            let message = format!("observations of shape {shape:?} are images that are too small for convolutions");
            let hint = format!(
                "take {least} by {least} or more, or flatten them, as by \
                 gymnasium.wrappers.vector.FlattenObservation"
            );
            Err(Error::shape(message).with_hint(hint))
        }
        [height, width, channels @ (1 | 3 | 4)] if ![1, 3, 4].contains(&height) => {
            let message = format!("observations of shape {shape:?} are images whose channels are last");
            let hint = format!(
                "put them first, [{channels}, {height}, {width}], as by gymnasium.wrappers.TransformObservation"
            );
            Err(Error::shape(message).with_hint(hint))
        }
        [size] => {
            let known = match algorithm {
                Algorithm::Ppo(_) | Algorithm::Bc(_) | Algorithm::Distill(_) => (vec![64, 64], ActivationFn::Tanh),
                Algorithm::Dqn(_) | Algorithm::Pqn(_) => (vec![120, 84], ActivationFn::Relu),
                Algorithm::Sac(_) | Algorithm::Td3(_) => (vec![256, 256], ActivationFn::Relu),
            };
            let encoder = MlpEncoderConfig {
                hidden: hidden.unwrap_or(known.0),
                activation: activation.unwrap_or(known.1),
                layer_norm: matches!(algorithm, Algorithm::Pqn(_)),
                ..MlpEncoderConfig::new(size)
            };
            Ok(PolicyConfig::new(EncoderConfig::Mlp(encoder), actions))
        }
        [channels, height, width] => {
            let known = CnnEncoderConfig::new([channels, height, width]);
            let encoder = CnnEncoderConfig {
                hidden: hidden.unwrap_or_else(|| known.hidden.clone()),
                activation: activation.unwrap_or(known.activation),
                ..known
            };
            let config = PolicyConfig::new(EncoderConfig::Cnn(encoder), actions);
            let shared = matches!(algorithm, Algorithm::Ppo(_));
            Ok(PolicyConfig { shared, ..config })
        }
        _ => Err(Error::shape(format!(
            "observations of shape {shape:?} are neither vectors nor images"
        ))
        .with_hint(
            "flatten them, as by gymnasium.wrappers.vector.FlattenObservation; images are [channels, height, width]",
        )),
    }
}

/// Reports the progress to Python, after checking for signals.
fn tell(told: &Py<PyAny>, progress: &Progress<'_>) -> PyResult<Control> {
    Python::attach(|py| {
        py.check_signals()?;
        let known = [("steps", progress.step), ("total_steps", progress.steps.unwrap_or(0))].into_py_dict(py)?;
        known.set_item("seconds", progress.seconds)?;
        known.set_item("loss", progress.loss())?;
        for (name, value) in progress.metrics.iter().zip(progress.values()) {
            known.set_item(name, value)?;
        }
        let stop: bool = told.call1(py, (known,))?.extract(py)?;
        Ok(if stop { Control::Stop } else { Control::Continue })
    })
}

/// The `task` in the settings of the run in a folder, if there is one.
pub(crate) fn task(path: &Path) -> Result<Option<String>> {
    let folder = RunFolder::new(path);
    if !folder.config().is_file() || !folder.checkpoint().is_file() {
        return Ok(None);
    }
    let settings = folder.settings()?;
    Ok(settings.get("task").and_then(Value::as_str).map(str::to_owned))
}

/// The error for a run that holds a policy and not a model.
pub(crate) fn refused(path: &Path) -> Error {
    let message = format!("{} is a run of polygrad.rl.train", path.display());
    Error::new(ErrorKind::InvalidArgument, message)
        .with_hint("load its policy by polygrad.rl.Policy.load, which also exports it to ONNX")
}
