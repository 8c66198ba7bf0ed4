//! From a rollout on a device to the inputs of one step of the optimizer.

use polygrad_nn::optim::Adam;
use polygrad_nn::{CapturedStep, TrainStep};
use polygrad_tensor::{Device, Result, Tensor};

use super::config::{PpoConfig, wrong};
use super::loss::{PpoBatch, PpoWeights, ppo_loss};
use super::rollout::Uploaded;
use crate::{Policy, PolicyState};

type Loss<P> = Box<dyn Fn(&P, &[Tensor]) -> Result<Seen> + Send>;
/// The loss, those of the policy and the values, the entropy, the divergence, and the share of clipped ratios.
pub(super) type Seen = (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor);
pub(super) type Step<P> = CapturedStep<P, Adam, Loss<P>>;

/// How a rollout is cut into minibatches.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// Steps of a segment: 1 for a policy without memory.
    pub(super) segment: usize,
    pub(super) has_masks: bool,
    /// Tensors of a policy's state; 0 without memory.
    pub(super) state_len: usize,
    pub(super) clip_value: bool,
    pub(super) value_coefficient: f64,
    pub(super) normalize_advantages: bool,
}

impl Layout {
    /// The indices of the rows of a rollout of `rows` rows that belong to `segments`, step after step. The number of a
    /// segment is its index in time, times `rows`, plus its row.
    fn places(&self, segments: &[usize], rows: usize) -> impl Iterator<Item = usize> {
        let first = move |segment: usize| segment / rows * self.segment * rows + segment % rows;
        (0..self.segment).flat_map(move |step| segments.iter().map(move |segment| first(*segment) + step * rows))
    }

    /// The inputs, except the weights, of steps on minibatches of `len` segments each, taken in this order.
    pub(super) fn minibatches(
        &self,
        rollout: &Uploaded,
        segments: &[usize],
        len: usize,
        rows: usize,
        device: &Device,
    ) -> Result<Vec<Vec<Tensor>>> {
        let parts = segments.chunks(len);
        let order: Vec<i64> = parts
            .flat_map(|part| self.places(part, rows))
            .map(|at| at as i64)
            .collect();
        let count = order.len();
        let order = Tensor::from_vec(order, [count], device)?;
        let remembers = self.state_len > 0;
        let columns = [
            Some(&rollout.observations),
            Some(&rollout.actions),
            rollout.masks.as_ref(),
            Some(&rollout.log_probs),
            Some(&rollout.values),
            Some(&rollout.advantages),
            Some(&rollout.returns),
            remembers.then_some(&rollout.starts),
        ];
        let ordered = columns.into_iter().flatten().map(|x| x.index_select(0, &order));
        let ordered = ordered.collect::<Result<Vec<_>>>()?;
        let mut states = Vec::new();
        if remembers {
            let numbers = segments.iter().map(|segment| *segment as i64).collect();
            let numbers = Tensor::from_vec(numbers, [segments.len()], device)?;
            for part in &rollout.states {
                states.push(part.index_select(1, &numbers)?);
            }
        }
        let cut = |i: usize| {
            let own = |x: &Tensor| {
                let steps = len * self.segment;
                let x = x.narrow(0, i * steps, steps)?;
                match remembers {
                    true => x.reshape([&[self.segment, len], &x.dims()[1..]].concat()),
                    false => Ok(x),
                }
            };
            let states = states.iter().map(|part| part.narrow(1, i * len, len));
            ordered.iter().map(own).chain(states).collect()
        };
        (0..segments.len() / len).map(cut).collect()
    }

    /// The reverse of [`Layout::minibatches`], used while recording; also returns the weights, which come after it.
    fn unpack<'a>(&self, inputs: &'a [Tensor]) -> Result<(PpoBatch, &'a [Tensor])> {
        let mut rest = inputs.iter().cloned();
        let mut next = || {
            let missing = || wrong(format!("a minibatch of {} tensors lacks one", inputs.len()));
            rest.next().ok_or_else(missing)
        };
        let (observations, actions) = (next()?, next()?);
        let masks = self.has_masks.then(&mut next).transpose()?;
        let [log_probs, values, advantages, returns] = [next()?, next()?, next()?, next()?];
        let sequence = match self.state_len {
            0 => None,
            parts => {
                let starts = next()?;
                let state = (0..parts).map(|_| next()).collect::<Result<_>>()?;
                Some((starts, PolicyState::new(state)))
            }
        };
        let batch = PpoBatch {
            observations,
            actions,
            masks,
            log_probs,
            values,
            advantages,
            returns,
            sequence,
        };
        Ok((batch, &inputs[inputs.len() - rest.len()..]))
    }

    /// The step of the optimizer.
    pub(super) fn step<P: Policy>(self, policy: P, optimizer: Adam, config: &PpoConfig) -> Step<P> {
        let loss: Loss<P> = Box::new(move |policy, inputs| {
            let (batch, weights) = self.unpack(inputs)?;
            let [clip, entropy] = weights else {
                return Err(wrong(format!("a minibatch has {} weights instead of 2", weights.len())));
            };
            let weights = PpoWeights {
                clip: clip.clone(),
                entropy: entropy.clone(),
                value: self.value_coefficient,
                clip_value: self.clip_value,
                normalize_advantages: self.normalize_advantages,
            };
            let losses = ppo_loss(policy, &batch, &weights)?;
            Ok((
                losses.loss,
                losses.policy,
                losses.value,
                losses.entropy,
                losses.approx_kl,
                losses.clip_fraction,
            ))
        });
        TrainStep::new(policy, optimizer, loss)
            .clip_grad_norm(config.max_grad_norm)
            .captured()
    }
}
