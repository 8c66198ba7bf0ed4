//! Adapts Gymnasium's vector environments.

use polygrad::rl::{Rng, Space, StepSlices, VectorEnv};
use polygrad::{Error, ErrorKind, Result};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyTuple};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::spaces::{read, shape_of, space_of, values};
use crate::dlpack::numpy;
use crate::failure::Failure;

/// When an environment whose episode has ended begins the next one: `gymnasium.vector.AutoresetMode`.
#[derive(Clone, Copy, PartialEq)]
enum Autoreset {
    NextStep,
    SameStep,
    /// The caller has to reset it.
    Disabled,
}

/// An object of `gymnasium.vector.VectorEnv`.
pub(super) struct Gymnasium {
    envs: Py<PyAny>,
    num_envs: usize,
    observation: Space,
    action: Space,
    autoreset: Autoreset,
    /// Whether a row's episode ended in the last step.
    ended: Vec<bool>,
    /// Whether a row's last step only began an episode.
    begun: Vec<bool>,
    /// A column of numbers as read.
    column: Vec<f32>,
    /// The shape of all observations together, a row for each environment.
    shape: Vec<usize>,
    /// The seed of the first reset, and the number of resets.
    resets: Resets,
    failure: Failure,
}

/// The state in a checkpoint, since the environments themselves cannot be saved.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Resets {
    seed: u64,
    count: u64,
}

impl Gymnasium {
    pub(super) fn new(envs: &Bound<'_, PyAny>, failure: Failure) -> PyResult<Self> {
        if !envs.hasattr("single_observation_space")? || !envs.hasattr("num_envs")? {
            return Err(PyTypeError::new_err(format!(
                "{} is no vector environment; take gymnasium.make_vec(\"…\", num_envs=8), or gymnasium.vector.SyncVectorEnv",
                envs.get_type().name()?
            )));
        }
        let num_envs = envs.getattr("num_envs")?.extract()?;
        if num_envs == 0 {
            return Err(PyValueError::new_err("there is nothing that could step: num_envs is 0"));
        }
        let mode = envs.getattr("metadata")?.call_method1("get", ("autoreset_mode",))?;
        let mode = match mode.is_none() {
            true => "nothing".to_owned(),
            false => mode.getattr("name")?.extract()?,
        };
        let autoreset = match mode.as_str() {
            "NEXT_STEP" => Autoreset::NextStep,
            "SAME_STEP" => Autoreset::SameStep,
            "DISABLED" => Autoreset::Disabled,
            other => {
                return Err(PyValueError::new_err(format!(
                    "metadata[\"autoreset_mode\"] of the environments is {other}; it has to be one of \
                     gymnasium.vector.AutoresetMode (Gymnasium 1.1 or newer)"
                )));
            }
        };
        let observation = space_of(&envs.getattr("single_observation_space")?, "observation space")?;
        Ok(Self {
            shape: [&[num_envs], &shape_of(&observation)[..]].concat(),
            observation,
            action: space_of(&envs.getattr("single_action_space")?, "action space")?,
            envs: envs.clone().unbind(),
            num_envs,
            autoreset,
            ended: vec![false; num_envs],
            begun: vec![false; num_envs],
            column: vec![0.0; num_envs],
            resets: Resets::default(),
            failure,
        })
    }

    pub(super) fn spaces(&self) -> (&Space, &Space) {
        (&self.observation, &self.action)
    }

    /// Calls `act` with the environments; an exception ends the training.
    fn with<T>(&mut self, act: impl FnOnce(&mut Self, &Bound<'_, PyAny>) -> PyResult<T>) -> Result<T> {
        let done = Python::attach(|py| {
            let envs = self.envs.clone_ref(py).into_bound(py);
            act(self, &envs)
        });
        done.map_err(|error| self.failure.of(error))
    }

    fn begin(&mut self, observations: &mut [f32]) -> Result<()> {
        let Resets { seed, count } = self.resets;
        let seed = match count {
            0 => seed,
            // Limited to the bits that every environment accepts.
            count => Rng::at(seed, count).next_u64() >> 33,
        };
        self.resets.count += 1;
        self.ended.fill(false);
        self.begun.fill(false);
        self.with(|own, envs| {
            let settings = [("seed", seed)].into_py_dict(envs.py())?;
            let [seen, _] = parts(
                envs.call_method("reset", (), Some(&settings))?,
                "reset",
                "observations and infos",
            )?;
            read(&seen, "the observations of reset", &own.shape, observations)
        })?;
        self.check("observation", observations)
    }

    /// Reads a column of flags.
    fn flags(&mut self, object: &Bound<'_, PyAny>, what: &str, out: &mut [bool]) -> PyResult<()> {
        read(object, what, &self.shape[..1], &mut self.column)?;
        for (out, x) in out.iter_mut().zip(&self.column) {
            *out = *x != 0.0;
        }
        Ok(())
    }

    /// Stores the last observations of ended episodes, and begins the next ones.
    fn finish(&mut self, envs: &Bound<'_, PyAny>, infos: &Bound<'_, PyAny>, out: &mut StepSlices<'_>) -> PyResult<()> {
        let (py, width) = (envs.py(), self.observation.len());
        let rows = || {
            self.ended
                .iter()
                .enumerate()
                .filter(|(_, ended)| **ended)
                .map(|(row, _)| row)
        };
        let own = |row: usize| row * width..(row + 1) * width;
        if self.autoreset != Autoreset::SameStep {
            rows().for_each(|row| out.final_observations[own(row)].copy_from_slice(&out.observations[own(row)]));
        }
        match self.autoreset {
            Autoreset::NextStep => Ok(()),
            Autoreset::SameStep => {
                let finals = infos.cast::<PyDict>()?.get_item("final_obs")?.ok_or_else(|| {
                    PyValueError::new_err("the infos of a step that has ended an episode have no \"final_obs\"")
                })?;
                rows().try_for_each(|row| {
                    let last = finals.get_item(row)?;
                    let last_row = &mut out.final_observations[own(row)];
                    read(&last, "infos[\"final_obs\"]", &self.shape[1..], last_row)
                })
            }
            Autoreset::Disabled => {
                let settings = [("dtype", "bool")].into_py_dict(py)?;
                let mask = numpy(py)?.call_method("array", (self.ended.clone(),), Some(&settings))?;
                let options = [("options", [("reset_mask", mask)].into_py_dict(py)?)].into_py_dict(py)?;
                let begun = envs.call_method("reset", (), Some(&options))?.get_item(0)?;
                read(&begun, "the observations of reset", &self.shape, out.observations)
            }
        }
    }

    /// Fails at the first number that is not finite.
    fn check(&self, what: &str, numbers: &[f32]) -> Result<()> {
        let Some(at) = numbers.iter().position(|x| !x.is_finite()) else {
            return Ok(());
        };
        let width = numbers.len() / self.num_envs;
        Err(Error::invalid(format!(
            "environment {} gave {what} {}, at {}",
            at / width,
            numbers[at],
            at % width
        ))
        .with_hint("training needs finite numbers"))
    }
}

/// The parts of the tuple that a method has returned.
fn parts<'py, const N: usize>(
    given: Bound<'py, PyAny>,
    method: &str,
    wanted: &str,
) -> PyResult<[Bound<'py, PyAny>; N]> {
    if let Ok(tuple) = given.cast::<PyTuple>()
        && let Ok(parts) = tuple.iter().collect::<Vec<_>>().try_into()
    {
        return Ok(parts);
    }
    let (kind, count) = (given.get_type().name()?, given.len());
    let count = count.map_or_else(|_| String::new(), |count| format!(" of length {count}"));
    let text = format!("`{method}` of the environments has returned a {kind}{count}, and Gymnasium's returns {wanted}");
    Err(PyTypeError::new_err(text))
}

impl VectorEnv for Gymnasium {
    fn num_envs(&self) -> usize {
        self.num_envs
    }

    fn observation_space(&self) -> &Space {
        &self.observation
    }

    fn action_space(&self) -> &Space {
        &self.action
    }

    fn begun(&self) -> Option<&[bool]> {
        (self.autoreset == Autoreset::NextStep).then_some(&self.begun)
    }

    fn reset(&mut self, seed: u64, observations: &mut [f32]) -> Result<()> {
        self.resets = Resets { seed, count: 0 };
        self.begin(observations)
    }

    fn step(&mut self, chosen: &[f32], out: &mut StepSlices<'_>) -> Result<()> {
        out.check(self)?;
        std::mem::swap(&mut self.ended, &mut self.begun);
        self.with(|own, envs| {
            let actions = values(envs.py(), &own.action, &[own.num_envs], chosen)?;
            let [seen, rewards, terminated, truncated, infos] = parts(
                envs.call_method1(pyo3::intern!(envs.py(), "step"), (actions,))?,
                "step",
                "observations, rewards, terminations, truncations and infos",
            )?;
            read(&seen, "the observations of step", &own.shape, out.observations)?;
            read(&rewards, "the rewards of step", &own.shape[..1], out.rewards)?;
            own.flags(&terminated, "the terminations of step", out.terminated)?;
            own.flags(&truncated, "the truncations of step", out.truncated)?;
            let flags = out.terminated.iter().zip(out.truncated.iter());
            own.ended
                .iter_mut()
                .zip(flags)
                .for_each(|(ended, (a, b))| *ended = *a || *b);
            if own.autoreset != Autoreset::NextStep {
                own.begun.fill(false);
            }
            match own.ended.contains(&true) {
                true => own.finish(envs, &infos, out),
                false => Ok(()),
            }
        })?;
        self.check("observation", out.observations)?;
        self.check("reward", out.rewards)?;
        match self.ended.contains(&true) {
            true => self.check("last observation", out.final_observations),
            false => Ok(()),
        }
    }

    fn begins_anew(&self) -> bool {
        true
    }

    /// The number of resets, since Python environments cannot be saved.
    fn state(&self) -> Result<Value> {
        Ok(json!(self.resets))
    }

    /// Begins episodes that differ from the earlier ones.
    fn restore(&mut self, state: &Value, observations: &mut [f32]) -> Result<()> {
        self.resets = Resets::deserialize(state).map_err(|error| {
            let message = format!("the checkpoint is not of environments of Python: {error}");
            Error::new(ErrorKind::StateDict, message)
        })?;
        self.begin(observations)
    }
}
