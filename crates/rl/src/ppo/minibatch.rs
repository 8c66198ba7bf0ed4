//! From a rollout on a device to what one step of the optimizer sees.

use polygrad_nn::optim::Optimizer;
use polygrad_nn::{CapturedStep, TrainStep};
use polygrad_tensor::{Device, Result, Tensor, no_grad};

use super::config::PpoConfig;
use super::loss::{PpoBatch, PpoWeights, ppo_loss};
use super::rollout::Uploaded;
use crate::{Policy, PolicyState};

pub(super) type BoxedOptimizer = Box<dyn Optimizer + Send>;
type Loss<P> = Box<dyn Fn(&P, &[Tensor]) -> Result<(Tensor, Tensor)> + Send>;
/// Gives the loss, and beside it what [`Statistics`] are made of.
pub(super) type Step<P> = CapturedStep<P, BoxedOptimizer, Loss<P>>;

/// How a minibatch is cut out of a rollout.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// Steps of a segment: 1 for a policy without memory.
    pub(super) segment: usize,
    pub(super) has_masks: bool,
    /// Tensors of a policy's state.
    pub(super) state_len: usize,
    pub(super) clip_value: bool,
    pub(super) value_coefficient: f64,
    pub(super) normalize_advantages: bool,
}

/// A rollout as the inputs of a captured step, all but indices and weights.
pub(super) fn inputs(rollout: &Uploaded) -> Vec<Tensor> {
    let Uploaded {
        observations,
        actions,
        masks,
        log_probs,
        values,
        starts,
        advantages,
        returns,
        states,
    } = rollout;
    let columns = [observations, actions, log_probs, values, starts, advantages, returns];
    let parts = columns.into_iter().chain(masks).chain(states);
    parts.cloned().collect()
}

impl Layout {
    /// Which rows of a rollout of `rows` rows belong to segments, a segment in each column: `[segment, segments]`. A segment is known by its
    /// number: which one in time, times the rows, plus the row.
    pub(super) fn places(&self, segments: &[usize], rows: usize) -> Vec<i64> {
        let first = |segment: &usize| segment / rows * self.segment * rows + segment % rows;
        let at = |step: usize| {
            segments
                .iter()
                .map(move |segment| (first(segment) + step * rows) as i64)
        };
        (0..self.segment).flat_map(at).collect()
    }

    /// The inputs of a step on these segments.
    pub(super) fn select(
        &self,
        mut inputs: Vec<Tensor>,
        segments: &[usize],
        rows: usize,
        weights: [f64; 2],
        device: &Device,
    ) -> Result<Vec<Tensor>> {
        let places = self.places(segments, rows);
        let len = places.len();
        inputs.push(Tensor::from_vec(places, [len], device)?);
        if self.state_len > 0 {
            let numbers: Vec<i64> = segments.iter().map(|segment| *segment as i64).collect();
            inputs.push(Tensor::from_vec(numbers, [segments.len()], device)?);
        }
        for weight in weights {
            inputs.push(Tensor::from_vec(vec![weight as f32], (), device)?);
        }
        Ok(inputs)
    }

    /// The reverse of [`inputs`] and [`Layout::select`], as a recording sees it.
    fn unpack(&self, inputs: &[Tensor]) -> Result<(PpoBatch, PpoWeights)> {
        let (columns, rest) = inputs.split_at(7);
        let (masks, rest) = rest.split_at(usize::from(self.has_masks));
        let (states, rest) = rest.split_at(self.state_len);
        let (places, rest) = rest.split_at(1);
        let (numbers, weights) = rest.split_at(usize::from(self.state_len > 0));
        let count = places[0].numel() / self.segment;
        let rows = |x: &Tensor| {
            let shape = [&[self.segment, count], &x.dims()[1..]].concat();
            x.index_select(0, &places[0])?.reshape(shape)
        };
        let state = states.iter().map(|part| part.index_select(1, &numbers[0]));
        let batch = PpoBatch {
            observations: rows(&columns[0])?,
            actions: rows(&columns[1])?,
            masks: masks.first().map(rows).transpose()?,
            log_probs: rows(&columns[2])?,
            values: rows(&columns[3])?,
            starts: rows(&columns[4])?,
            advantages: rows(&columns[5])?,
            returns: rows(&columns[6])?,
            state: PolicyState::new(state.collect::<Result<_>>()?),
        };
        let weights = PpoWeights {
            clip: weights[0].clone(),
            entropy: weights[1].clone(),
            value: self.value_coefficient,
            clip_value: self.clip_value,
            normalize_advantages: self.normalize_advantages,
        };
        Ok((batch, weights))
    }

    /// The step of the optimizer.
    pub(super) fn step<P: Policy>(self, policy: P, optimizer: BoxedOptimizer, config: &PpoConfig) -> Step<P> {
        let loss: Loss<P> = Box::new(move |policy, inputs| {
            let (batch, weights) = self.unpack(inputs)?;
            let losses = ppo_loss(policy, &batch, &weights)?;
            let seen = [
                &losses.policy,
                &losses.value,
                &losses.entropy,
                &losses.approx_kl,
                &losses.clip_fraction,
            ];
            let seen = no_grad(|| Tensor::stack(&seen.map(Tensor::detach).each_ref(), 0))?;
            Ok((losses.loss, seen))
        });
        TrainStep::new(policy, optimizer, loss)
            .clip_grad_norm(config.max_grad_norm)
            .captured()
    }

    /// The logarithms of the probabilities of actions, and values, of segments, by the policy as it is: `[segment * segments]` each.
    pub(super) fn evaluate<P: Policy>(&self, policy: &P, inputs: &[Tensor]) -> Result<[Tensor; 2]> {
        no_grad(|| {
            let (batch, _) = self.unpack(inputs)?;
            let output = policy.unroll(&batch.observations, &batch.starts, &batch.state)?;
            let distribution = output.action.distribution(batch.masks.as_ref())?;
            let log_probs = polygrad_nn::distributions::Distribution::log_prob(&distribution, &batch.actions)?;
            Ok([log_probs.flatten(0, 1)?, output.value.flatten(0, 1)?])
        })
    }
}
