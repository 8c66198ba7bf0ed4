//! Stored transitions, to be learned from more than once.

pub(crate) mod n_step;
mod priorities;

use polygrad_core::{Error, ErrorKind, HostTensor, Result, Rng, room};
use polygrad_nn::StateDict;
use polygrad_tensor::{DType, Device, Tensor};
use serde::{Deserialize, Serialize};

use priorities::Priorities;

/// Added to an error, so that transitions without an error are still sampled sometimes.
const LEAST_ERROR: f64 = 1e-6;

/// How the errors of transitions determine their sampling.
///
/// Source: Schaul et al., "Prioritized experience replay" (2016).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PriorityConfig {
    /// The exponent of an error in a transition's sampling probability; 0 samples uniformly. Default: 0.6.
    pub alpha: f64,
    /// How far the loss corrects for that at the beginning; it grows to 1, a full correction, at the end of the
    /// training. Default: 0.4.
    pub beta: f64,
}

impl Default for PriorityConfig {
    fn default() -> Self {
        Self { alpha: 0.6, beta: 0.4 }
    }
}

/// One step of an environment, or several that are learned from as one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transition<'a> {
    /// The first observation.
    pub observation: &'a [f32],
    /// The action taken then.
    pub action: &'a [f32],
    /// The reward, plus the discounted rewards of later steps of the same transition.
    pub reward: f32,
    /// The factor of the next observation's value: 0 if the episode ended there.
    pub discount: f32,
    /// The last observation.
    pub next_observation: &'a [f32],
}

/// The last transitions, in one block of memory; new ones replace the oldest.
///
/// Sampling is uniform or, with [priorities](ReplayBuffer::prioritized), favours transitions with large errors. A
/// buffer that is [saved](ReplayBuffer::state_dict) and restored continues as if it had not been interrupted, bit for
/// bit.
///
/// ```
/// use polygrad_rl::{ReplayBuffer, Rng, Transition};
///
/// # fn main() -> polygrad_core::Result<()> {
/// let mut replay = ReplayBuffer::new(1000, 2, 1)?;
/// let (observation, action, next_observation) = (&[0.0, 0.1][..], &[1.0][..], &[0.1, 0.0][..]);
/// replay.push(&Transition { observation, action, reward: 1.0, discount: 0.99, next_observation })?;
/// let drawn = replay.sample(4, &mut Rng::new(0))?;
/// assert_eq!(replay.get(drawn[0]).unwrap().reward, 1.0);
/// # Ok(())
/// # }
/// ```
pub struct ReplayBuffer {
    capacity: usize,
    observation: usize,
    action: usize,
    /// A row for each transition: observation, action, reward, discount, next observation.
    rows: Vec<f32>,
    /// The index of the next transition.
    next: usize,
    prioritized: Option<(PriorityConfig, Priorities)>,
}

/// Transitions on a device.
pub(crate) struct Drawn {
    /// `[N, …]`.
    pub(crate) observations: Tensor,
    /// `[N, action]`.
    pub(crate) actions: Tensor,
    /// `[N]`, like the discounts.
    pub(crate) rewards: Tensor,
    pub(crate) discounts: Tensor,
    /// `[N, …]`.
    pub(crate) next_observations: Tensor,
}

impl ReplayBuffer {
    /// Space for `capacity` transitions with these lengths of an observation and of an action.
    ///
    /// # Errors
    /// If a number is 0, or memory runs out.
    pub fn new(capacity: usize, observation: usize, action: usize) -> Result<Self> {
        if capacity == 0 || observation == 0 || action == 0 {
            let sizes = format!("{capacity} transitions of {observation} and {action} numbers");
            return Err(wrong(format!("a replay buffer of {sizes} holds nothing")).with_hint("use at least 1 of each"));
        }
        let numbers = 2_usize
            .checked_mul(observation)
            .and_then(|two| two.checked_add(action)?.checked_add(2));
        let Some(numbers) = numbers.and_then(|width| width.checked_mul(capacity)) else {
            return Err(wrong(format!("{capacity} transitions are too many")));
        };
        Ok(Self {
            capacity,
            observation,
            action,
            rows: room(numbers)?,
            next: 0,
            prioritized: None,
        })
    }

    /// Samples transitions by their errors.
    ///
    /// # Errors
    /// If a number of the config is invalid, or memory runs out.
    pub fn prioritized(mut self, config: PriorityConfig) -> Result<Self> {
        config.check()?;
        let mut priorities = Priorities::new(self.capacity)?;
        (0..self.len()).for_each(|place| priorities.set(place, 1.0));
        self.prioritized = Some((config, priorities));
        Ok(self)
    }

    /// The most transitions that it holds.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The number of transitions.
    pub fn len(&self) -> usize {
        self.rows.len() / self.width()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn width(&self) -> usize {
        2 * self.observation + self.action + 2
    }

    /// Adds a transition; replaces the oldest one if the buffer is full.
    ///
    /// # Errors
    /// If an observation or an action has another length.
    pub fn push(&mut self, transition: &Transition<'_>) -> Result<()> {
        let Transition {
            observation,
            action,
            next_observation,
            ..
        } = transition;
        let lens = [observation.len(), action.len(), next_observation.len()];
        if lens != [self.observation, self.action, self.observation] {
            return Err(wrong(format!(
                "a transition of {}, {} and {} numbers is none of {}, {} and {}",
                lens[0], lens[1], lens[2], self.observation, self.action, self.observation
            )));
        }
        let at = self.next * self.width();
        if at == self.rows.len() {
            self.rows.resize(at + self.width(), 0.0);
        }
        let width = self.width();
        let parts = [
            observation,
            action,
            &[transition.reward, transition.discount][..],
            next_observation,
        ];
        let mut rest = &mut self.rows[at..at + width];
        for part in parts {
            let (own, behind) = rest.split_at_mut(part.len());
            own.copy_from_slice(part);
            rest = behind;
        }
        if let Some((_, priorities)) = &mut self.prioritized {
            priorities.set(self.next, priorities.greatest);
        }
        self.next = (self.next + 1) % self.capacity;
        Ok(())
    }

    /// The transition at an index, counted from 0; `None` if there is none.
    pub fn get(&self, place: usize) -> Option<Transition<'_>> {
        (place < self.len()).then(|| self.at(place))
    }

    fn at(&self, place: usize) -> Transition<'_> {
        let row = &self.rows[place * self.width()..(place + 1) * self.width()];
        let (observation, rest) = row.split_at(self.observation);
        let (action, rest) = rest.split_at(self.action);
        Transition {
            observation,
            action,
            reward: rest[0],
            discount: rest[1],
            next_observation: &rest[2..],
        }
    }

    /// The indices of `count` random transitions, with repetition.
    ///
    /// # Errors
    /// If there are none.
    pub fn sample(&self, count: usize, rng: &mut Rng) -> Result<Vec<usize>> {
        if self.is_empty() {
            return Err(wrong("there are no transitions to draw".to_owned()).with_hint("push some first"));
        }
        let Some((_, priorities)) = &self.prioritized else {
            return Ok((0..count).map(|_| rng.below(self.len())).collect());
        };
        // One from each of `count` equal parts of the total, as in the paper.
        let part = priorities.total() / count as f64;
        Ok((0..count)
            .map(|i| priorities.find((i as f64 + rng.uniform()) * part))
            .collect())
    }

    /// The weights of these transitions in a loss at a share of the training, from 0 to 1. A transition that is sampled
    /// more often weighs less, and the largest weight is 1. Without priorities all weights are 1.
    pub(crate) fn weights(&self, places: &[usize], progress: f64) -> Vec<f32> {
        let Some((config, priorities)) = &self.prioritized else {
            return vec![1.0; places.len()];
        };
        let beta = config.beta + (1.0 - config.beta) * progress.clamp(0.0, 1.0);
        let weight = |place: &usize| (priorities.total() / priorities.get(*place)).powf(beta);
        let weights: Vec<f64> = places.iter().map(weight).collect();
        let most = weights.iter().copied().fold(0.0, f64::max);
        weights.into_iter().map(|weight| (weight / most) as f32).collect()
    }

    /// Sets the errors of transitions, which determine later sampling. Without priorities it does nothing.
    ///
    /// # Errors
    /// If an error is NaN or infinite.
    pub(crate) fn set_errors(&mut self, places: &[usize], errors: &[f32]) -> Result<()> {
        if let Some((config, priorities)) = &mut self.prioritized {
            for (place, error) in places.iter().zip(errors) {
                if !error.is_finite() {
                    return Err(wrong(format!("transition {place} has an error of {error}"))
                        .with_hint("take a lower learning rate"));
                }
                priorities.set(*place, (f64::from(error.abs()) + LEAST_ERROR).powf(config.alpha));
            }
        }
        Ok(())
    }

    /// Copies transitions to a device, with observations of this shape.
    pub(crate) fn upload(&self, places: &[usize], shape: &[usize], device: &Device) -> Result<Drawn> {
        let (count, observation, action) = (places.len(), self.observation, self.action);
        let part = |from: usize, width: usize| -> Vec<f32> {
            let starts = places.iter().map(|place| place * self.width() + from);
            if width == 1 {
                return starts.map(|at| self.rows[at]).collect();
            }
            let mut part = Vec::with_capacity(count * width);
            starts.for_each(|at| part.extend_from_slice(&self.rows[at..at + width]));
            part
        };
        // First, since reads of one number from each row do not wait for each other: later parts find the rows, which
        // lie apart, in the cache.
        let rewards = part(observation + action, 1);
        let discounts = part(observation + action + 1, 1);
        let actions = part(observation, action);
        let observations = part(0, observation);
        let next_observations = part(observation + action + 2, observation);
        let seen = [&[count], shape].concat();
        Ok(Drawn {
            observations: Tensor::from_vec(observations, &*seen, device)?,
            actions: Tensor::from_vec(actions, [count, self.action], device)?,
            rewards: Tensor::from_vec(rewards, [count], device)?,
            discounts: Tensor::from_vec(discounts, [count], device)?,
            next_observations: Tensor::from_vec(next_observations, &*seen, device)?,
        })
    }

    /// Everything that later samples depend on, except the config: the transitions, the index of the next one, and the
    /// priorities.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn state_dict(&self) -> Result<StateDict> {
        let mut state = StateDict::new();
        let mut insert = |name: &str, tensor: HostTensor| state.insert(name.to_owned(), tensor);
        let shape = [self.len(), self.width()];
        insert("transitions", HostTensor::new(shape.into(), self.rows.clone())?);
        insert("next", HostTensor::scalar(self.next as i64));
        if let Some((_, priorities)) = &self.prioritized {
            let own: Vec<f64> = (0..self.len()).map(|place| priorities.get(place)).collect();
            insert("priorities", HostTensor::new([self.len()].into(), own)?);
            insert("greatest", HostTensor::scalar(priorities.greatest));
        }
        Ok(state)
    }

    /// Continues from such a state.
    ///
    /// # Errors
    /// If the state is damaged, or of a buffer with other sizes; the buffer is then unchanged.
    pub fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let unfit = || {
            Error::new(
                ErrorKind::StateDict,
                "the replay buffer was of other sizes, or is damaged",
            )
            .with_op("ReplayBuffer")
        };
        let get = |name: &str, dtype: DType| state.get(name).filter(|x| x.dtype() == dtype).ok_or_else(unfit);
        let rows = get("transitions", DType::F32)?;
        let next = get("next", DType::I64)?.to_vec::<i64>()?;
        let (&[len, width], &[next]) = (&rows.shape()[..], &next[..]) else {
            return Err(unfit());
        };
        // Transitions of a buffer that was never full are in the order in which they came.
        let next = usize::try_from(next).ok().filter(|next| match len == self.capacity {
            true => *next < self.capacity,
            false => *next == len,
        });
        let Some(next) = next.filter(|_| width == self.width() && len <= self.capacity) else {
            return Err(unfit());
        };
        if let Some((_, own)) = &mut self.prioritized {
            let found = get("priorities", DType::F64)?.to_vec::<f64>()?;
            let greatest = get("greatest", DType::F64)?.to_vec::<f64>()?;
            let is_priority = |x: &f64| x.is_finite() && *x > 0.0;
            if found.len() != len || greatest.len() != 1 || !found.iter().chain(&greatest).all(is_priority) {
                return Err(unfit());
            }
            let mut priorities = Priorities::new(self.capacity)?;
            found
                .into_iter()
                .enumerate()
                .for_each(|(place, x)| priorities.set(place, x));
            priorities.greatest = greatest[0];
            *own = priorities;
        }
        self.rows.clear();
        self.rows.extend_from_slice(rows.as_slice::<f32>()?);
        self.next = next;
        Ok(())
    }
}

impl PriorityConfig {
    pub(crate) fn check(&self) -> Result<()> {
        for (name, value) in [("alpha", self.alpha), ("beta", self.beta)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(wrong(format!("{name} is {value}, and must be from 0 to 1")));
            }
        }
        Ok(())
    }
}

fn wrong(message: String) -> Error {
    Error::invalid(message).with_op("ReplayBuffer")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer() -> ReplayBuffer {
        let config = PriorityConfig { alpha: 1.0, beta: 0.4 };
        let mut replay = ReplayBuffer::new(4, 1, 1).unwrap().prioritized(config).unwrap();
        for i in 0..4u8 {
            let transition = Transition {
                observation: &[f32::from(i)],
                action: &[0.0],
                reward: 0.0,
                discount: 1.0,
                next_observation: &[0.0],
            };
            replay.push(&transition).unwrap();
        }
        replay.set_errors(&[0, 1, 2, 3], &[1.0, 2.0, 4.0, 0.0]).unwrap();
        replay
    }

    #[test]
    fn transitions_are_drawn_by_their_errors_and_weigh_less_for_it() {
        let replay = buffer();
        let mut counts = [0usize; 4];
        let mut rng = Rng::new(3);
        for place in replay.sample(70_000, &mut rng).unwrap() {
            counts[place] += 1;
        }
        for (count, share) in counts.into_iter().zip([1.0, 2.0, 4.0, 0.0]) {
            assert!((count as f64 - share * 10_000.0).abs() < 50.0, "{counts:?}");
        }
        let weights = replay.weights(&[0, 1, 2], 1.0);
        assert!(
            weights.iter().zip([1.0, 0.5, 0.25]).all(|(a, b)| (a - b).abs() < 1e-4),
            "{weights:?}"
        );
        let weights = replay.weights(&[0, 2], 0.0);
        assert!((f64::from(weights[1]) - 0.25f64.powf(0.4)).abs() < 1e-4, "{weights:?}");
    }

    #[test]
    fn priorities_go_on_from_a_saved_state() {
        let old = buffer();
        let config = PriorityConfig { alpha: 1.0, beta: 0.4 };
        let mut new = ReplayBuffer::new(4, 1, 1).unwrap().prioritized(config).unwrap();
        new.load_state_dict(&old.state_dict().unwrap()).unwrap();
        let draws = |replay: &ReplayBuffer| replay.sample(500, &mut Rng::new(9)).unwrap();
        assert_eq!(draws(&old), draws(&new));
        assert_eq!(old.weights(&[0, 1, 2, 3], 0.5), new.weights(&[0, 1, 2, 3], 0.5));
    }
}
