//! Proximal policy optimization.

mod advantage;
mod collector;
mod config;
mod exploration;
mod learner;
mod learnt;
mod loss;
mod minibatch;
mod ranks;
mod rollout;
mod state;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use polygrad_core::communicator::Communicator;
use polygrad_core::{Result, Rng};
use polygrad_nn::optim::{AdamConfig, Optimizer};
use polygrad_tensor::{Device, Tensor};
use polygrad_train::DataParallel;

pub use advantage::{Outcomes, gae};
pub use config::{AdvantageNorm, PpoConfig};
pub use loss::{PpoBatch, PpoLosses, PpoWeights, ppo_loss};

use crate::agent::iteration_rng;
use crate::statistics::recent::Recent;
use crate::{ActorCritic, Episode, NormalizedPolicy, Normalizer, ObservationNormalizer, Policy, VectorEnv};
use collector::Collector;
use config::wrong;
use learnt::{Learnt, normalize};
use minibatch::{Layout, Step};
use ranks::{Ranks, other_seed};

/// CleanRL's value.
const ADAM_EPS: f64 = 1e-5;

/// Trains a policy in environments, by proximal policy optimization.
///
/// Each [iteration](Ppo::iterate) lets the policy act for some steps in all environments, and then trains on these
/// steps in minibatches. The loss and the gradients of a minibatch are one captured program.
///
/// The same seed gives the same training, bit for bit. A training that is [saved](Ppo::checkpoint) and resumed ends as
/// if it had not been interrupted.
///
/// ```
/// use polygrad_reference::Reference;
/// use polygrad_rl::{ActionSpace, ActorCritic, CartPole, PolicyConfig, Ppo, PpoConfig, Vectorized};
/// use polygrad_tensor::Device;
///
/// # fn main() -> polygrad_tensor::Result<()> {
/// let device = Device::<Reference>::default().into_any();
/// let envs = Vectorized::new(|_| CartPole::v1(), 4)?;
/// let policy = ActorCritic::new(&PolicyConfig::mlp(4, ActionSpace::Discrete(2)), &device)?;
/// let config = PpoConfig { total_steps: 64, num_steps: 8, ..PpoConfig::default() };
/// let mut ppo = Ppo::new(envs, policy, config)?;
/// while !ppo.is_done() {
///     let iteration = ppo.iterate()?;
///     println!("{} steps, entropy {:.3}", ppo.steps(), iteration.entropy);
/// }
/// # Ok(())
/// # }
/// ```
///
/// Source: Schulman et al., "Proximal policy optimization algorithms" (2017).
pub struct Ppo<P: Policy = ActorCritic> {
    config: PpoConfig,
    device: Device,
    collector: Collector,
    layout: Layout,
    step: Step<P>,
    recent: Recent,
    /// The episodes that ended in the last [`Learner::advance`](polygrad_train::Learner::advance).
    ended: Vec<Episode>,
    /// The flag that ends the next [`Learner::advance`](polygrad_train::Learner::advance) early.
    stop: Option<Arc<AtomicBool>>,
    ranks: Ranks,
    iteration: u64,
    steps: u64,
    begun: bool,
}

/// The result of an iteration of [`Ppo`], over all ranks together, except for the seconds. Losses are means over the
/// steps of the optimizer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Iteration {
    /// Episodes that ended, in the order of their ends; returns are sums of the environments' own rewards. With several
    /// ranks, the episodes of the ranks alternate, and the rows of rank `r` are numbered from `r` times the rows of one
    /// rank.
    pub episodes: Vec<Episode>,
    /// The clipped surrogate.
    pub policy_loss: f64,
    /// Half the mean squared error of the values.
    pub value_loss: f64,
    /// The mean entropy of the policy.
    pub entropy: f64,
    /// The divergence from the policy that acted, as estimated in the last step.
    pub approx_kl: f64,
    /// The share of clipped ratios of probabilities.
    pub clip_fraction: f64,
    /// The share of the returns' variance that the values explained before the training.
    pub explained_variance: f64,
    /// The learning rate.
    pub learning_rate: f64,
    /// The number of passes over the rollout.
    pub epochs: usize,
    /// Seconds for the steps of the environments.
    pub env_seconds: f64,
    /// Seconds for choosing actions.
    pub act_seconds: f64,
    /// Seconds for the training.
    pub learn_seconds: f64,
}

impl<P: Policy> Ppo<P> {
    /// A training that has not begun, on the device of the policy's parameters.
    ///
    /// # Errors
    /// If an option is invalid, the policy has no parameters, or memory runs out.
    pub fn new(envs: impl VectorEnv + 'static, policy: P, config: PpoConfig) -> Result<Self> {
        let rows = envs.rows();
        config.check(rows)?;
        let Some(device) = policy.parameters().first().map(|param| param.device()) else {
            return Err(wrong("the policy has no parameters".to_owned()));
        };
        let collector = Collector::new(Box::new(envs), &policy, &config, &device)?;
        let state_len = policy.initial_state(1)?.parts().len();
        let layout = Layout {
            segment: match state_len {
                0 => 1,
                _ => config.segment_len.unwrap_or(config.num_steps),
            },
            has_masks: collector.rollout.widths.mask > 0,
            state_len,
            clip_value: config.clip_value,
            value_coefficient: config.value_coefficient,
            normalize_advantages: matches!(config.normalize_advantages, AdvantageNorm::Minibatch),
        };
        if collector.envs.begun().is_some() && state_len > 0 {
            let message = "steps that only begin an episode cannot be left out of a memory's segments";
            return Err(wrong(message.to_owned()).with_hint(
                "take environments that begin an episode in the step that ends another (Gymnasium's SAME_STEP), or a \
                 policy without memory",
            ));
        }
        let segments = rows * config.num_steps / layout.segment;
        if !segments.is_multiple_of(config.num_minibatches) {
            let (parts, what) = (
                config.num_minibatches,
                if state_len == 0 { "steps" } else { "segments" },
            );
            return Err(wrong(format!(
                "{segments} {what} cannot be cut into {parts} equal minibatches"
            ))
            .with_hint("take another number of steps, minibatches or environments"));
        }
        let optimizer = AdamConfig::new(config.learning_rate.at(0.0))
            .eps(ADAM_EPS)
            .build(policy.parameters())?;
        Ok(Self {
            step: layout.step(policy, optimizer, &config),
            collector,
            layout,
            device,
            recent: Recent::default(),
            ended: Vec::new(),
            stop: None,
            ranks: Ranks::default(),
            iteration: 0,
            steps: 0,
            begun: false,
            config,
        })
    }

    /// Trains one policy together with the other ranks of a group, each in its own environments. Call it before the
    /// first iteration and before [`Ppo::restore`], on every rank; from then on every rank must call the same methods.
    ///
    /// Gradients of a minibatch are the means over all ranks, which have equally many steps in it, so that the policy
    /// is the same on all, bit for bit. The seeds of environments, actions and the order of minibatches differ between
    /// ranks; those of rank 0 are the same as in a single process. Steps, losses, episodes and the divergence that ends
    /// an iteration are those of all ranks. Advantages are normalized on each rank separately, as in CleanRL's
    /// `ppo_atari_multigpu.py`.
    ///
    /// In a rollout each rank normalizes observations and rewards by everything that all ranks saw before it, and what
    /// the rank itself has seen since. Afterwards the other ranks' new statistics are added to those of rank 0, in the
    /// order of the ranks, and all ranks continue with the result.
    ///
    /// A group of one rank gives the same result, bit for bit, as PPO without a group.
    ///
    /// # Errors
    /// If the training has begun; if a rank has another policy, other weights, options or environments than rank 0 (the
    /// error names the rank); those of the group.
    pub fn parallel(mut self, communicator: Arc<dyn Communicator>) -> Result<Self> {
        if self.begun || self.iteration > 0 {
            return Err(wrong("the training has begun already".to_owned())
                .with_hint("join the ranks first: Ppo::parallel comes before iterations and before restore"));
        }
        let parallel = Arc::new(DataParallel::new(communicator, self.policy())?);
        self.step = self
            .step
            .into_inner()
            .gradient_sync(Arc::clone(&parallel) as _)
            .captured();
        self.ranks = Ranks::of(parallel);
        self.collector.track(&self.ranks);
        self.check_ranks()?;
        Ok(self)
    }

    /// Fails if the ranks could not train one policy.
    fn check_ranks(&self) -> Result<()> {
        let envs = &self.collector.envs;
        let spaces = (envs.observation_space(), envs.action_space(), envs.agents());
        let others = [
            ("other options", format!("{:?}", self.config)),
            ("other environments", format!("{spaces:?}")),
            ("another number of environments", envs.num_envs().to_string()),
            (
                "another place in its training",
                format!("{:?}", (self.iteration, self.steps)),
            ),
        ];
        self.ranks.check(self.policy(), &others)
    }

    /// The options.
    pub fn config(&self) -> &PpoConfig {
        &self.config
    }

    /// The policy. If the options ask for normalized observations, it expects observations that are already normalized;
    /// [`Ppo::trained_policy`] takes them as they are.
    pub fn policy(&self) -> &P {
        self.step.model()
    }

    /// The policy for use after training: behind a [`Normalizer`] if the options ask for normalized observations.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn trained_policy(&self) -> Result<Box<dyn Policy + '_>> {
        let Some(found) = self.normalizer() else {
            return Ok(Box::new(self.policy()));
        };
        let normalizer = Normalizer::new(found.width(), self.config.normalize_observations, &self.device)?;
        normalizer.set(found.mean(), found.var())?;
        let policy = self.policy();
        Ok(Box::new(NormalizedPolicy { normalizer, policy }))
    }

    /// The normalization of observations, if there is one.
    pub fn normalizer(&self) -> Option<&ObservationNormalizer> {
        self.collector.observation_normalizer.as_ref()
    }

    /// Steps of one iteration, of all environments of all ranks together.
    pub fn steps_per_iteration(&self) -> u64 {
        (self.collector.rollout.rows * self.config.num_steps * self.ranks.size()) as u64
    }

    /// Steps of all environments of all ranks so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Iterations so far.
    pub fn iteration(&self) -> u64 {
        self.iteration
    }

    /// Iterations until [`PpoConfig::total_steps`], at least one. A last iteration that would exceed it is left out, as
    /// in CleanRL.
    pub fn iterations(&self) -> u64 {
        (self.iteration + self.iterations_left()).max(1)
    }

    fn iterations_left(&self) -> u64 {
        self.config.total_steps.saturating_sub(self.steps) / self.steps_per_iteration()
    }

    /// The share of the steps that are done, from 0 to 1.
    fn progress(&self) -> f64 {
        let end = self.steps + self.iterations_left() * self.steps_per_iteration();
        self.steps as f64 / end.max(1) as f64
    }

    /// Whether all iterations are done.
    pub fn is_done(&self) -> bool {
        self.iteration >= self.iterations()
    }

    /// The mean return of the last 100 episodes, or of all if there were fewer; `None` before the first episode has
    /// ended.
    pub fn mean_return(&self) -> Option<f64> {
        self.recent.mean_return()
    }

    /// Why a step of the optimizer or of the policy cannot be captured and replayed; `None` if it can.
    pub fn refusal(&self) -> Option<&str> {
        self.step.refusal().or_else(|| self.collector.actor.refusal())
    }

    /// Lets the policy act, and trains it on the resulting steps.
    ///
    /// # Errors
    /// Those of the environments and the policy, and if numbers are not finite. The training can then only continue
    /// from a checkpoint.
    pub fn iterate(&mut self) -> Result<Iteration> {
        let iteration = self.iterate_until(None)?;
        iteration.ok_or_else(|| wrong("the rollout was abandoned".to_owned()))
    }

    /// [`Ppo::iterate`]; `None` if `stop` was set during the rollout, which is then abandoned: the training can only
    /// continue from a checkpoint.
    fn iterate_until(&mut self, stop: Option<&AtomicBool>) -> Result<Option<Iteration>> {
        let seed = self.ranks.seed(self.config.seed);
        if !self.begun {
            // A rank that joins later sees other episodes than a rank that was there from the beginning.
            let episodes = match self.iteration {
                0 => seed,
                later => other_seed(seed, later),
            };
            self.collector.reset(episodes)?;
            self.begun = true;
        }
        let progress = self.progress();
        let learning_rate = self.config.learning_rate.at(progress);
        self.step.optimizer_mut().set_lr(learning_rate);
        let mut rng = iteration_rng(seed, self.iteration);
        let began = Instant::now();
        let collected = self.collector.collect(self.step.model(), &mut rng, &self.ranks, stop)?;
        let Some(collected) = collected else { return Ok(None) };
        let acted = began.elapsed().as_secs_f64();
        let learnt = self.learn(progress, &mut rng)?;
        self.ranks.broadcast_buffers(self.step.model())?;
        let rows = self.collector.rollout.rows;
        let episodes = self.ranks.episodes(collected.episodes, rows)?;
        self.steps += self.steps_per_iteration();
        self.iteration += 1;
        self.recent.add(&episodes);
        Ok(Some(Iteration {
            episodes,
            policy_loss: learnt.means[0],
            value_loss: learnt.means[1],
            entropy: learnt.means[2],
            approx_kl: learnt.last_kl,
            clip_fraction: learnt.means[4],
            explained_variance: learnt.explained_variance,
            learning_rate,
            epochs: learnt.epochs,
            env_seconds: collected.env_seconds,
            act_seconds: acted - collected.env_seconds,
            learn_seconds: began.elapsed().as_secs_f64() - acted,
        }))
    }

    fn learn(&mut self, progress: f64, rng: &mut Rng) -> Result<Learnt> {
        let (mut advantages, mut returns) = gae(
            self.collector.rollout.outcomes(),
            self.config.gamma,
            self.config.gae_lambda,
        )?;
        let number = |x: f64| Tensor::from_vec(vec![x as f32], (), &self.device);
        let weights = [
            number(self.config.clip.at(progress))?,
            number(self.config.entropy_coefficient.at(progress))?,
        ];
        let rollout = &mut self.collector.rollout;
        rollout.replace_begun(&mut advantages, &mut returns, rng)?;
        if self.config.normalize_advantages == AdvantageNorm::Batch {
            normalize(&mut advantages);
        }
        let rows = self.collector.rollout.rows;
        let mut order: Vec<usize> = (0..rows * self.config.num_steps / self.layout.segment).collect();
        let len = order.len() / self.config.num_minibatches;
        let collector = &self.collector;
        let uploaded = collector
            .rollout
            .upload(&collector.shape, advantages, returns.clone(), &self.device)?;
        let mut seen = Vec::new();
        let mut epochs = 0;
        while epochs < self.config.update_epochs {
            for i in (1..order.len()).rev() {
                order.swap(i, rng.below(i + 1));
            }
            let batches = self.layout.minibatches(&uploaded, &order, len, rows, &self.device)?;
            for mut batch in batches {
                batch.extend_from_slice(&weights);
                seen.push(self.step.step(&batch)?);
            }
            epochs += 1;
            if let (Some(target), Some(last)) = (self.config.target_kl, seen.last())
                && self.ranks.mean(last.4.item()?)? > target
            {
                break;
            }
        }
        let values = &self.collector.rollout.values;
        Learnt::new(&seen, (values, &returns), epochs, &self.ranks)
    }
}
