//! Policies that act.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use polygrad::nn::{StateDict, skip_init};
use polygrad::onnx::Opset;
use polygrad::onnx::graph::Dim;
use polygrad::rl::zoo::Algorithm;
use polygrad::rl::{Player, PolicyConfig, Rng, Space, record_policy};
use polygrad::train::RunFolder;
use polygrad::{Device, Error, ErrorKind, Result};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::spaces::{array, shape_of, values};
use crate::errors::raised;
use crate::tensor::cpu;

/// The key of the policy's description in the header of a file.
pub(super) const KEY: &str = "polygrad.policy";

/// Weights and texts of a file.
type Content = (StateDict, BTreeMap<String, String>);

/// The description of a policy, without its weights.
pub(super) struct Described {
    pub(super) algorithm: Algorithm,
    pub(super) policy: PolicyConfig,
    pub(super) observation: Space,
    pub(super) action: Space,
}

/// The same in the form of JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    algorithm: Algorithm,
    policy: PolicyConfig,
    observation_space: Value,
    action_space: Value,
}

fn malformed(what: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::Format,
        format!("what is said of the policy is damaged: {what}"),
    )
}

impl Described {
    pub(super) fn to_json(&self) -> Result<Value> {
        let written = Written {
            algorithm: self.algorithm.clone(),
            policy: self.policy.clone(),
            observation_space: self.observation.to_json(),
            action_space: self.action.to_json(),
        };
        serde_json::to_value(written).map_err(malformed)
    }

    fn from_json(text: &str) -> Result<Self> {
        let written: Written = serde_json::from_str(text).map_err(malformed)?;
        Ok(Self {
            algorithm: written.algorithm,
            policy: written.policy,
            observation: Space::from_json(&written.observation_space)?,
            action: Space::from_json(&written.action_space)?,
        })
    }
}

/// A trained policy. `polygrad.rl.train` returns one, and `Policy.load` reads a saved one.
#[pyclass(module = "polygrad.rl", frozen)]
pub(crate) struct Policy {
    policy: Box<dyn polygrad::rl::Policy>,
    described: Described,
    mean_return: Option<f64>,
    /// The number of calls that sampled actions.
    draws: AtomicU64,
}

impl Policy {
    pub(super) fn new(policy: Box<dyn polygrad::rl::Policy>, described: Described, mean_return: Option<f64>) -> Self {
        policy.eval();
        Self {
            policy,
            described,
            mean_return,
            draws: AtomicU64::new(0),
        }
    }

    fn read(path: PathBuf, device: &Device) -> Result<Self> {
        let path = if path.is_dir() {
            RunFolder::new(path).model()
        } else {
            path
        };
        Self::of(
            StateDict::load_with_metadata(&path)?,
            &path.display().to_string(),
            device,
        )
    }

    /// A policy of the content of a file; `place` names it.
    fn of((weights, texts): Content, place: &str, device: &Device) -> Result<Self> {
        let text = texts.get(KEY).ok_or_else(|| {
            let message = format!("{place} has no policy of polygrad.rl");
            Error::new(ErrorKind::Format, message)
                .with_hint("give what Policy.save or train(out=…) has left; polygrad.Model.load takes other runs")
        })?;
        let described = Described::from_json(text).map_err(|error| error.in_module(place))?;
        let policy = skip_init(|| described.algorithm.policy(&described.policy, device))?;
        policy.load_state_dict(&weights, true)?;
        Ok(Self::new(policy, described, None))
    }

    /// The content of a file.
    fn content(&self) -> Result<Content> {
        let texts = BTreeMap::from([(KEY.to_owned(), self.described.to_json()?.to_string())]);
        Ok((self.policy.state_dict()?, texts))
    }

    fn act(&self, rows: usize, seen: &[f32], deterministic: bool) -> Result<Vec<f32>> {
        let Described {
            algorithm,
            observation,
            action,
            ..
        } = &self.described;
        let mut player = Player::new(&*self.policy, observation, action, rows)?;
        if !deterministic {
            if let Some(why) = algorithm.refuses_sampling() {
                let message = format!("deterministic=False draws actions by their probabilities, and {why}");
                return Err(Error::invalid(message).with_hint("leave it out: the best action is done"));
            }
            let draw = self.draws.fetch_add(1, Ordering::Relaxed);
            player = player.sampled(Rng::new(Rng::at(algorithm.seed(), draw).next_u64()));
        }
        let mut chosen = vec![0.0; rows * action.len()];
        player.act(seen, None, &mut chosen)?;
        Ok(chosen)
    }
}

/// The function that makes a policy again, and its arguments.
type Reduced<'py> = (Bound<'py, PyAny>, (Bound<'py, PyBytes>, Option<f64>));

#[pymethods]
impl Policy {
    /// Loads a file written by `save`, or the folder of `train(out=…)`.
    #[staticmethod]
    #[pyo3(signature = (path, /))]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let device = cpu()?;
        py.detach(|| Self::read(path, &device)).map_err(raised)
    }

    /// Writes the policy to a safetensors file, whose header describes it.
    #[pyo3(signature = (path, /))]
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let save = || {
            let (weights, texts) = self.content()?;
            weights.save_with_metadata(&path, &texts)
        };
        py.detach(save).map_err(raised)
    }

    /// For pickle and copy.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        let (py, own) = (slf.py(), slf.get());
        let (weights, texts) = own.content().map_err(raised)?;
        let bytes = PyBytes::new(py, &weights.to_bytes(&texts).map_err(raised)?);
        Ok((slf.get_type().getattr("_of")?, (bytes, own.mean_return)))
    }

    /// What `__reduce__` has written.
    #[staticmethod]
    #[pyo3(signature = (content, mean_return, /))]
    fn _of(content: &[u8], mean_return: Option<f64>) -> PyResult<Self> {
        let made = Self::of(StateDict::from_bytes(content).map_err(raised)?, "the pickle", &cpu()?);
        Ok(Self {
            mean_return,
            ..made.map_err(raised)?
        })
    }

    /// Writes an ONNX file. Its input is `observation`, `[batch, …]` in float32, with integers as one-hot vectors. Its
    /// outputs are `logits`, `mean` and `std`, or `action`; for PPO also `value`. It includes the normalization of
    /// observations.
    #[pyo3(signature = (path, /, *, opset = 20))]
    fn export_onnx(&self, py: Python<'_>, path: PathBuf, opset: i64) -> PyResult<()> {
        let export = || {
            let batch = Dim::Named("batch".to_owned());
            let opset = Opset::from_version(opset)?;
            let Described {
                policy,
                observation,
                action,
                ..
            } = &self.described;
            let mut graph = record_policy(&*self.policy, policy, false, batch, opset)?;
            let texts = [("observation_space", observation), ("action_space", action)];
            let texts = texts.map(|(name, space)| (name.to_owned(), space.to_json().to_string()));
            graph.header.metadata.extend(texts);
            graph.save(&path)
        };
        py.detach(export).map_err(raised)
    }

    /// Returns the actions for observations, and None, like Stable-Baselines3: for one observation, or for several at
    /// once, `[n, …]`. Actions are in the form that environments take: within the bounds of their Box, counted from the
    /// start of their Discrete. `deterministic=False` samples them, which is Stable-Baselines3's default.
    ///
    /// `state` and `episode_start` are there for its programs, such as `evaluate_policy`: a policy has no memory, so
    /// that `state` is None, and it does not matter where an episode starts.
    #[pyo3(signature = (observation, state = None, episode_start = None, deterministic = true))]
    fn predict<'py>(
        &self,
        py: Python<'py>,
        observation: &Bound<'py, PyAny>,
        state: Option<&Bound<'py, PyAny>>,
        episode_start: Option<&Bound<'py, PyAny>>,
        deterministic: bool,
    ) -> PyResult<(Bound<'py, PyAny>, Option<bool>)> {
        let _ = episode_start;
        if state.is_some() {
            return Err(PyValueError::new_err(
                "a state was given, and the policy has no memory: pass None, as predict returns it",
            ));
        }
        let view = array(observation)?;
        let own = shape_of(&self.described.observation);
        let rows: Vec<usize> = match view.shape().strip_suffix(&own[..]) {
            Some([]) => Vec::new(),
            Some([rows]) => vec![*rows],
            _ => {
                let text = format!(
                    "the observation has the shape {:?}, and {own:?} or [n, …] of it is expected",
                    view.shape()
                );
                return Err(PyValueError::new_err(text));
            }
        };
        let count = rows.iter().product();
        let mut seen = vec![0.0; count * self.described.observation.len()];
        view.write_f32(&mut seen);
        drop(view);
        let chosen = match count {
            0 => Vec::new(),
            _ => py.detach(|| self.act(count, &seen, deterministic)).map_err(raised)?,
        };
        Ok((values(py, &self.described.action, &rows, &chosen)?, None))
    }

    /// The algorithm of its training, such as "ppo".
    #[getter]
    fn algorithm(&self) -> &'static str {
        self.described.algorithm.name()
    }

    /// The mean return of the last 100 episodes of its training; None for a loaded policy.
    #[getter]
    fn mean_return(&self) -> Option<f64> {
        self.mean_return
    }

    fn __repr__(&self) -> String {
        let count = self.policy.num_parameters();
        format!(
            "polygrad.rl.Policy({}, {count} parameters)",
            self.described.algorithm.name()
        )
    }
}
