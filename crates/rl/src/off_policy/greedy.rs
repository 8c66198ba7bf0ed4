//! The ε-greedy policy of DQN and PQN: the action of the greatest value, and sometimes a random one.

use polygrad_core::{Error, Rng};
use polygrad_nn::optim::Optimizer;
use polygrad_nn::{CapturedStep, Checkpoint, Module, StepOutputs};
use polygrad_tensor::{Device, Result, Tensor};

use super::{Acting, Seen, Trained};
use crate::act::spaces::check_spaces;
use crate::{ActionSpace, Annealed, QNetwork, VectorEnv};

/// Networks in training, one of which estimates the values of actions and acts.
pub(crate) struct Greedy<M, O, L> {
    pub(crate) step: CapturedStep<M, O, L>,
    acting: Acting,
    actions: usize,
    /// The probability of a random action, and the share of the training in which it changes.
    explored: (Annealed, f64),
}

impl<M, O, L, R> Greedy<M, O, L>
where
    M: Module + AsRef<QNetwork>,
    O: Optimizer,
    L: Fn(&M, &[Tensor]) -> Result<R>,
    R: StepOutputs,
{
    pub(crate) fn new(step: CapturedStep<M, O, L>, actions: usize, explored: (Annealed, f64)) -> Self {
        let network = step.model().as_ref();
        Self {
            acting: Acting::new(network, network.advantage.weight.device()),
            step,
            actions,
            explored,
        }
    }

    pub(crate) fn device(&self) -> &Device {
        &self.acting.device
    }

    /// The probability of a random action after a share of the training.
    pub(crate) fn epsilon(&self, progress: f64) -> f64 {
        let (epsilon, fraction) = self.explored;
        match fraction > 0.0 {
            true => epsilon.at(progress / fraction),
            false => epsilon.at(1.0),
        }
    }

    /// Sets the learning rate, and returns it.
    pub(crate) fn set_rate(&mut self, rate: f64) -> f64 {
        self.step.optimizer_mut().set_lr(rate);
        rate
    }

    /// The action of the greatest value for each row or, with probability `epsilon`, a random one.
    pub(crate) fn act(&mut self, seen: &Seen<'_>, rng: &mut Rng) -> Result<Vec<f32>> {
        let epsilon = self.epsilon(seen.progress);
        let any = |_| rng.chance(epsilon).then(|| rng.below(self.actions) as f32);
        let explored: Vec<Option<f32>> = (0..seen.rows).map(any).collect();
        if explored.iter().all(Option::is_some) {
            return Ok(explored.into_iter().flatten().collect());
        }
        let network = self.step.model().as_ref();
        let best = |x: &[Tensor]| network.values(&x[0])?.argmax(1);
        let best = self.acting.run(seen, Vec::new(), best)?;
        let chosen = explored.into_iter().zip(best.to_vec::<i64>()?);
        Ok(chosen.map(|(explored, best)| explored.unwrap_or(best as f32)).collect())
    }
}

impl<M, O, L, R> Trained for Greedy<M, O, L>
where
    M: Module,
    O: Optimizer,
    L: Fn(&M, &[Tensor]) -> Result<R>,
    R: StepOutputs,
{
    fn checkpoint(&self, iteration: u64) -> Result<Checkpoint> {
        self.step.checkpoint(iteration)
    }

    fn restore(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        self.step.restore(checkpoint)
    }

    fn refusal(&self) -> Option<&str> {
        self.step.refusal().or_else(|| self.acting.refusal())
    }
}

/// The number of actions of the environments that a network is for.
///
/// # Errors
/// If actions are not discrete, can be masked, or do not fit the network.
pub(crate) fn discrete_actions(envs: &impl VectorEnv, network: &QNetwork) -> Result<usize> {
    check_spaces(envs.observation_space(), envs.action_space())?;
    let ActionSpace::Discrete(actions) = ActionSpace::from(envs.action_space()) else {
        let what = format!("it chooses one of several actions, not of {:?}", envs.action_space());
        return Err(Error::invalid(what).with_hint("take PPO"));
    };
    if envs.action_masks().is_some() {
        let what = "not all actions are always allowed in these environments";
        return Err(Error::invalid(what).with_hint("take PPO, which knows masks"));
    }
    match network.advantage.weight.shape()[0] {
        outputs if outputs == actions => Ok(actions),
        outputs => {
            let what = format!("the network chooses among {outputs} actions, the environments have {actions}");
            Err(Error::invalid(what).with_hint("make the network for the environments' action space"))
        }
    }
}
