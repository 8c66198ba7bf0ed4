//! Sources of imitation learning.

use polygrad_core::{Error, Result, Rng};
use polygrad_tensor::{Device, Tensor};

use super::{DistillConfig, likeliest};
use crate::act::actor::{Actor, Asked};
use crate::act::spaces::flatten;
use crate::experience::Experience;
use crate::hash::Hash;
use crate::off_policy::Seen;
use crate::vector::check_len;
use crate::{ActionSpace, Annealed, Policy, PolicyState, Space, VectorEnv};

/// What a policy imitates.
pub trait Lesson {
    /// The usual name of this kind of learning.
    const NAME: &'static str;
    /// The key of the training's state in a checkpoint.
    const KEY: &'static str;
    /// Names of the numbers that a step of the optimizer reports after the loss.
    const LEARNT: &'static [&'static str];
    /// Names of the numbers that [`Lesson::told`] returns. Default: none.
    const TOLD: &'static [&'static str] = &[];

    /// Actions of all rows that replace the policy's; NaN for a row in which the policy acts itself. Empty if it acts
    /// in all rows. Default: empty.
    ///
    /// # Errors
    /// Those of the teacher.
    fn act(&mut self, seen: &Seen<'_>, rng: &mut Rng) -> Result<Vec<f32>> {
        let _ = (seen, rng);
        Ok(Vec::new())
    }

    /// Draws observations and their right actions.
    ///
    /// # Errors
    /// Those of the device and the teacher.
    fn draw(&mut self, from: &Experience, device: &Device, rng: &mut Rng) -> Result<Vec<Tensor>>;

    /// Numbers to report whether or not the training has started to learn. Default: none.
    fn told(&self, progress: f64) -> Vec<f64> {
        let _ = progress;
        Vec::new()
    }

    /// A fingerprint, which differs for another source.
    ///
    /// # Errors
    /// Those of the device.
    fn fingerprint(&self) -> Result<u64>;
}

/// Recorded steps: observations and the actions taken.
///
/// ```
/// use polygrad_rl::{Demonstrations, Space};
///
/// # fn main() -> polygrad_core::Result<()> {
/// let mut demonstrations = Demonstrations::new(&Space::boxed(&[-1.0; 2], &[1.0; 2]), &Space::discrete(3));
/// demonstrations.push(&[0.5, -0.5], &[2.0])?;
/// assert_eq!(demonstrations.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Demonstrations {
    observation_space: Space,
    action_space: Space,
    /// As policies see them.
    observations: Vec<f32>,
    /// As policies number them.
    actions: Vec<f32>,
    batch_size: usize,
}

impl Demonstrations {
    /// No demonstrations yet, of environments with these spaces.
    pub fn new(observation: &Space, action: &Space) -> Self {
        Self {
            observation_space: observation.clone(),
            action_space: action.clone(),
            observations: Vec::new(),
            actions: Vec::new(),
            batch_size: 1,
        }
    }

    /// The number of steps.
    pub fn len(&self) -> usize {
        self.actions.len() / self.action_space.len().max(1)
    }

    /// Whether there are no steps.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a step, with observation and action in the environment's form.
    ///
    /// # Errors
    /// If the observation or the action is not in its space.
    pub fn push(&mut self, observation: &[f32], action: &[f32]) -> Result<()> {
        check_len("observation", observation.len(), self.observation_space.len())?;
        check_len("action", action.len(), self.action_space.len())?;
        if !self.action_space.contains(action) {
            let text = format!("the action {action:?} is not in its space");
            return Err(Error::invalid(text).with_op("demonstrations"));
        }
        let before = self.observations.len();
        self.observations
            .resize(before + self.observation_space.flat_len(), 0.0);
        let seen = flatten(&self.observation_space, observation, &mut self.observations[before..]);
        if let Err(error) = seen {
            self.observations.truncate(before);
            return Err(error.with_op("demonstrations"));
        }
        let starts = match &self.action_space {
            Space::Discrete { start, .. } => vec![*start as f32],
            Space::MultiDiscrete { start, .. } => start.iter().map(|start| *start as f32).collect(),
            _ => vec![0.0; action.len()],
        };
        self.actions
            .extend(action.iter().zip(starts).map(|(x, start)| x - start));
        Ok(())
    }

    pub(super) fn by(self, batch_size: usize) -> Self {
        Self { batch_size, ..self }
    }

    /// Fails unless there are demonstrations, of environments like these.
    pub(super) fn check(&self, envs: &impl VectorEnv) -> Result<()> {
        let what = if self.is_empty() {
            "there are no demonstrations"
        } else if self.observation_space != *envs.observation_space() || self.action_space != *envs.action_space() {
            "the demonstrations are of an environment with other observations or actions"
        } else {
            return Ok(());
        };
        Err(Error::invalid(what)
            .with_op(Self::NAME)
            .with_hint("record some in the same environment: polygrad play RUN --record FILE"))
    }
}

impl Lesson for Demonstrations {
    const NAME: &'static str = "BC";
    const KEY: &'static str = "bc";
    const LEARNT: &'static [&'static str] = &["prob_true_act", "entropy"];

    fn draw(&mut self, from: &Experience, device: &Device, rng: &mut Rng) -> Result<Vec<Tensor>> {
        let places: Vec<usize> = (0..self.batch_size).map(|_| rng.below(self.len())).collect();
        let (width, numbers) = (self.observation_space.flat_len(), self.action_space.len());
        let rows = |all: &[f32], width: usize| -> Vec<f32> {
            let own = places.iter().flat_map(|place| &all[place * width..][..width]);
            own.copied().collect()
        };
        let dims = [&[self.batch_size], &from.shape[..]].concat();
        Ok(vec![
            Tensor::from_vec(rows(&self.observations, width), dims, device)?,
            Tensor::from_vec(rows(&self.actions, numbers), [self.batch_size, numbers], device)?,
        ])
    }

    fn fingerprint(&self) -> Result<u64> {
        Ok(Hash::new().numbers(&self.observations).numbers(&self.actions).value())
    }
}

/// A policy from which another one learns.
pub struct Supervisor {
    teacher: Box<dyn Policy>,
    actor: Actor,
    actions: ActionSpace,
    batch_size: usize,
    beta: Annealed,
}

impl Supervisor {
    pub(super) fn new(teacher: Box<dyn Policy>, action: &Space, config: &DistillConfig) -> Result<Self> {
        let wrong = |what: &str| Error::invalid(what.to_owned()).with_op(Self::NAME);
        let Some(device) = teacher.parameters().first().map(|param| param.device()) else {
            return Err(wrong("the teacher has no parameters"));
        };
        if !teacher.initial_state(1)?.parts().is_empty() {
            let error = wrong("the teacher remembers earlier steps, and is asked about single ones");
            return Err(error.with_hint("take one without memory as the teacher"));
        }
        let actions = ActionSpace::from(action);
        Ok(Self {
            actor: Actor::new(device, actions.clone(), Asked::default()),
            teacher,
            actions,
            batch_size: config.batch_size,
            beta: config.beta,
        })
    }
}

impl Lesson for Supervisor {
    const NAME: &'static str = "distillation";
    const KEY: &'static str = "distill";
    const LEARNT: &'static [&'static str] = &[];
    const TOLD: &'static [&'static str] = &["beta"];

    fn act(&mut self, seen: &Seen<'_>, rng: &mut Rng) -> Result<Vec<f32>> {
        let beta = self.beta.at(seen.progress);
        let acts: Vec<bool> = (0..seen.rows).map(|_| rng.chance(beta)).collect();
        if !acts.contains(&true) {
            return Ok(Vec::new());
        }
        let observed = (seen.observations, seen.shape);
        let mut actions = likeliest(&mut self.actor, &*self.teacher, &self.actions, observed, seen.rows)?;
        let rows = actions.chunks_mut(self.actions.len()).zip(acts);
        rows.filter(|(_, acts)| !acts)
            .for_each(|(action, _)| action.fill(f32::NAN));
        Ok(actions)
    }

    fn draw(&mut self, from: &Experience, device: &Device, rng: &mut Rng) -> Result<Vec<Tensor>> {
        let places = from.replay.sample(self.batch_size, rng)?;
        let rows = places.len();
        let observations = places.iter().filter_map(|place| from.replay.get(*place));
        let observations: Vec<f32> = observations.flat_map(|one| one.observation).copied().collect();
        let seen = (&observations[..], &from.shape[..]);
        let state = PolicyState::new(Vec::new());
        let answer = self.actor.run(&*self.teacher, seen, &vec![0.0; rows], &state)?;
        let outputs = answer.output.len() / rows;
        let mut batch = vec![
            Tensor::from_vec(observations, [&[rows], &from.shape[..]].concat(), device)?,
            Tensor::from_vec(answer.output, [rows, outputs], device)?,
        ];
        if !answer.log_std.is_empty() {
            let each = answer.log_std.iter().cycle().take(rows * outputs).copied().collect();
            batch.push(Tensor::from_vec(each, [rows, outputs], device)?);
        }
        Ok(batch)
    }

    fn told(&self, progress: f64) -> Vec<f64> {
        vec![self.beta.at(progress)]
    }

    fn fingerprint(&self) -> Result<u64> {
        let params = self.teacher.parameters();
        params
            .iter()
            .try_fold(Hash::new(), |hash, param| {
                Ok(hash.numbers(&param.tensor().detach().to_vec::<f32>()?))
            })
            .map(Hash::value)
    }
}
