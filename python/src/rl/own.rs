//! Our environments for Gymnasium.

use std::sync::{Mutex, PoisonError};

use polygrad::backend::HostTensor;
use polygrad::rl::{
    Acrobot, CartPole, Env, GridWorld, MountainCar, MountainCarContinuous, Pendulum, Space, StepBuffers, TMaze,
    TimeLimit, VectorEnv, Vectorized, zoo,
};
use polygrad::{Error, Result, Shape};
use pyo3::prelude::*;

use super::spaces::{read, shape_of, values};
use crate::arrays::array_of;
use crate::errors::raised;

type Vector = Box<dyn VectorEnv + Send>;

/// Environments of one kind that step together; the implementation of `polygrad.envs`.
#[pyclass(module = "polygrad.envs", frozen)]
pub(crate) struct Environments {
    inner: Mutex<Inner>,
    observation: Space,
    action: Space,
}

struct Inner {
    envs: Vector,
    buffers: StepBuffers,
    actions: Vec<f32>,
}

fn vectorized<E: Env + Clone + Send + 'static>(env: E, count: usize, threads: usize) -> Result<Vector> {
    let make = |_| env.clone();
    Ok(match threads {
        1 => Box::new(Vectorized::new(make, count)?),
        _ => Box::new(Vectorized::threaded(make, count, threads)?),
    })
}

/// The environments with this name on the command line.
fn made(name: &str, count: usize, threads: usize) -> Result<Vector> {
    let limit = zoo::find(name)?.max_episode_steps.unwrap_or(usize::MAX);
    match name {
        "cartpole" => vectorized(CartPole::v1(), count, threads),
        "acrobot" => vectorized(Acrobot::v1(), count, threads),
        "mountain-car" => vectorized(MountainCar::v0(), count, threads),
        "mountain-car-continuous" => vectorized(MountainCarContinuous::v0(), count, threads),
        "pendulum" => vectorized(Pendulum::v1(), count, threads),
        "t-maze" => vectorized(TimeLimit::new(TMaze::new(10)?, limit)?, count, threads),
        "grid-world" => vectorized(TimeLimit::new(GridWorld::new(8)?, limit)?, count, threads),
        _ => Err(Error::unsupported(format!(
            "{name} has several agents, and environments of Gymnasium have one"
        ))),
    }
}

/// The result of a step: observations, rewards, terminations, truncations, and the last observations of ended episodes,
/// if there are any.
type Stepped<'py> = (
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Option<Bound<'py, PyAny>>,
);

#[pymethods]
impl Environments {
    #[new]
    fn new(name: &str, count: usize, threads: usize) -> PyResult<Self> {
        let envs = made(name, count, threads).map_err(raised)?;
        let (observation, action) = (envs.observation_space().clone(), envs.action_space().clone());
        let inner = Inner {
            buffers: StepBuffers::new(&envs),
            actions: vec![0.0; count * action.len()],
            envs,
        };
        Ok(Self {
            inner: Mutex::new(inner),
            observation,
            action,
        })
    }

    /// The observation and action spaces as JSON.
    #[getter]
    fn spaces(&self) -> (String, String) {
        (
            self.observation.to_json().to_string(),
            self.action.to_json().to_string(),
        )
    }

    /// Begins an episode in each environment; returns the first observations.
    #[pyo3(signature = (seed, /))]
    fn reset<'py>(&self, py: Python<'py>, seed: u64) -> PyResult<Bound<'py, PyAny>> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner { envs, buffers, .. } = &mut *inner;
        envs.reset(seed, &mut buffers.observations).map_err(raised)?;
        values(py, &self.observation, &[envs.num_envs()], &buffers.observations)
    }

    #[pyo3(signature = (actions, /))]
    fn step<'py>(&self, py: Python<'py>, actions: &Bound<'py, PyAny>) -> PyResult<Stepped<'py>> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner {
            envs,
            buffers,
            actions: chosen,
        } = &mut *inner;
        let shape = [&[envs.num_envs()], &shape_of(&self.action)[..]].concat();
        read(actions, "the actions", &shape, chosen)?;
        py.detach(|| envs.step(chosen, &mut buffers.as_mut())).map_err(raised)?;
        let rows = [envs.num_envs()];
        let column = |memory: Result<HostTensor>| array_of(py, &memory.map_err(raised)?);
        let shape = Shape::from(rows);
        let rewards = buffers
            .rewards
            .iter()
            .map(|&reward| f64::from(reward))
            .collect::<Vec<_>>();
        let mut ended = buffers.terminated.iter().zip(&buffers.truncated);
        let last = match ended.any(|(terminated, truncated)| *terminated || *truncated) {
            true => Some(values(py, &self.observation, &rows, &buffers.final_observations)?),
            false => None,
        };
        Ok((
            values(py, &self.observation, &rows, &buffers.observations)?,
            column(HostTensor::new(shape, rewards))?,
            column(HostTensor::new(shape, buffers.terminated.clone()))?,
            column(HostTensor::new(shape, buffers.truncated.clone()))?,
            last,
        ))
    }
}
