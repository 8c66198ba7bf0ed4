//! A policy that acts.

use polygrad_core::{Error, Result, Rng};

use super::actor::{Actor, Asked};
use super::sampler::choose;
use super::spaces::{check_spaces, flatten, for_environment, observation_shape};
use crate::vector::check_len;
use crate::{ActionSpace, Policy, PolicyState, Space};

/// A policy that acts in several rows at once and keeps its state between steps: in an evaluation or in your own
/// program.
///
/// It chooses the likeliest actions, or random ones with [`sampled`](Self::sampled). It uses the weights as they are at
/// the first step.
///
/// ```
/// use polygrad_reference::Reference;
/// use polygrad_rl::{ActionSpace, ActorCritic, Player, PolicyConfig, Space};
/// use polygrad_tensor::Device;
///
/// # fn main() -> polygrad_tensor::Result<()> {
/// let device = Device::<Reference>::default().into_any();
/// let policy = ActorCritic::new(&PolicyConfig::mlp(2, ActionSpace::Discrete(3)), &device)?;
/// let observations = Space::boxed(&[-1.0; 2], &[1.0; 2]);
/// let mut player = Player::new(&policy, &observations, &Space::discrete(3), 1)?;
/// let mut action = [0.0];
/// player.act(&[0.5, -0.5], None, &mut action)?;
/// // … do it, and say where an episode has ended.
/// player.begin(&[true])?;
/// # Ok(())
/// # }
/// ```
pub struct Player<'p> {
    policy: &'p dyn Policy,
    observation_space: Space,
    action_space: Space,
    actions: ActionSpace,
    /// Shape of an observation as the policy sees it.
    shape: Vec<usize>,
    actor: Actor,
    state: PolicyState,
    starts: Vec<f32>,
    seen: Vec<f32>,
    chosen: Vec<f32>,
    rng: Option<Rng>,
}

impl<'p> Player<'p> {
    /// A policy for `rows` rows, in each of which an episode begins. It acts on the device of its parameters.
    ///
    /// # Errors
    /// When the policy has no parameters, or memory runs out.
    pub fn new(policy: &'p dyn Policy, observation_space: &Space, action_space: &Space, rows: usize) -> Result<Self> {
        let Some(device) = policy.parameters().first().map(|param| param.device()) else {
            return Err(Error::invalid("the policy has no parameters"));
        };
        check_spaces(observation_space, action_space)?;
        let actions = ActionSpace::from(action_space);
        Ok(Self {
            policy,
            shape: observation_shape(observation_space),
            actor: Actor::new(device, actions.clone(), Asked::default()),
            state: policy.initial_state(rows)?,
            starts: vec![1.0; rows],
            seen: vec![0.0; rows * observation_space.flat_len()],
            chosen: vec![0.0; rows * actions.len()],
            observation_space: observation_space.clone(),
            action_space: action_space.clone(),
            actions,
            rng: None,
        })
    }

    /// Samples actions, as in training.
    #[must_use]
    pub fn sampled(mut self, rng: Rng) -> Self {
        self.rng = Some(rng);
        self
    }

    /// Writes the actions of all rows, `[rows, action_space.len()]`, in the form that environments take. Observations
    /// are `[rows, observation_space.len()]`. Masks, needed if not all actions are allowed, are
    /// `[rows, action_space.flat_len()]`.
    ///
    /// # Errors
    /// If a length is wrong, an observation is not in its space, or the policy does not fit or computes NaN or
    /// infinity.
    pub fn act(&mut self, observations: &[f32], masks: Option<&[bool]>, actions: &mut [f32]) -> Result<()> {
        let rows = self.starts.len();
        check_len("observations", observations.len(), rows * self.observation_space.len())?;
        check_len("actions", actions.len(), self.chosen.len())?;
        if let Some(masks) = masks {
            check_len("masks", masks.len(), rows * self.action_space.flat_len())?;
        }
        flatten(&self.observation_space, observations, &mut self.seen)?;
        let answer = self
            .actor
            .run(self.policy, (&self.seen, &self.shape), &self.starts, &self.state)?;
        let width = self.actions.len();
        let own = self.chosen.chunks_mut(width).zip(actions.chunks_mut(width));
        for (row, (chosen, action)) in own.enumerate() {
            let mask = masks.map(|masks| {
                let entries = self.action_space.flat_len();
                &masks[row * entries..(row + 1) * entries]
            });
            let log_prob = choose(&self.actions, &answer.row(row, rows, mask), self.rng.as_mut(), chosen);
            if !log_prob.is_finite() {
                let message = "the policy computes NaN or infinity";
                return Err(Error::invalid(message).with_hint("look at its weights and at what it observes"));
            }
            for_environment(&self.action_space, chosen, action);
        }
        self.state = answer.state;
        self.starts.fill(0.0);
        Ok(())
    }

    /// The action space of one row.
    pub fn action_space(&self) -> &Space {
        &self.action_space
    }

    /// Marks the rows in which an episode begins with the next observation.
    ///
    /// # Errors
    /// If `starts` does not have one entry for each row.
    pub fn begin(&mut self, starts: &[bool]) -> Result<()> {
        check_len("starts", starts.len(), self.starts.len())?;
        for (own, start) in self.starts.iter_mut().zip(starts) {
            *own = f32::from(*start);
        }
        Ok(())
    }
}
