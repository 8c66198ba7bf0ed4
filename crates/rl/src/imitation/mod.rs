//! Imitation learning: from recorded steps, or from another policy.

mod config;
mod lesson;
mod loss;

use polygrad_core::HostTensor;
use polygrad_core::{Error, ErrorKind, Result, Rng, Shape};
use polygrad_nn::optim::{Adam, AdamConfig, Optimizer};
use polygrad_nn::{CapturedStep, Checkpoint, Module, StateDict, TrainStep};
use polygrad_tensor::Tensor;

pub use config::{BcConfig, DistillConfig};
pub use lesson::{Demonstrations, Supervisor};
pub use loss::{BcLosses, bc_loss, distillation_loss};

use crate::act::actor::{Actor, Asked};
use crate::act::sampler::choose;
use crate::act::spaces::check_spaces;
use crate::experience::Experience;
use crate::off_policy::{Method, OffPolicy, Pace, Seen, Trained, finite};
use crate::{ActionSpace, ActorCritic, Annealed, Policy, PolicyState, VectorEnv};
use lesson::Lesson;

/// Trains a policy to repeat the actions of recorded steps: behaviour cloning.
///
/// Nothing is learned from the steps in the environments, in which the policy takes the likeliest actions; their
/// returns show how good it is.
///
/// Source: Pomerleau, "Efficient training of artificial neural networks for autonomous navigation" (1991).
pub type BehaviorCloning = OffPolicy<Imitator<Demonstrations>>;

/// Trains a policy, often a smaller one, to answer like another policy on observations that it reaches itself.
///
/// ```
/// use polygrad_reference::Reference;
/// use polygrad_rl::{ActionSpace, ActorCritic, CartPole, DistillConfig, Distillation, PolicyConfig, Vectorized};
/// use polygrad_tensor::Device;
///
/// # fn main() -> polygrad_tensor::Result<()> {
/// let device = Device::<Reference>::default().into_any();
/// let config = PolicyConfig::mlp(4, ActionSpace::Discrete(2));
/// // One that can do it, in a program.
/// let teacher = ActorCritic::new(&config, &device)?;
/// let settings = DistillConfig { total_steps: 64, learning_starts: 16, train_frequency: 8, ..Default::default() };
/// let policy = ActorCritic::actor(&config, &device)?;
/// let mut training = Distillation::new(Vectorized::new(|_| CartPole::v1(), 2)?, policy, Box::new(teacher), settings)?;
/// while !training.is_done() {
///     training.iterate()?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// Sources: Ross et al., "A reduction of imitation learning and structured prediction to no-regret online learning"
/// (2011); Rusu et al., "Policy distillation" (2016).
pub type Distillation = OffPolicy<Imitator<Supervisor>>;

/// The key of the source's fingerprint in a checkpoint.
const LESSON: &str = "lesson";

type Loss = Box<dyn Fn(&ActorCritic, &[Tensor]) -> Result<Answer> + Send>;
/// The loss, and numbers to report.
type Answer = (Tensor, Tensor);

/// How [`BehaviorCloning`] and [`Distillation`] act and learn.
pub struct Imitator<T> {
    lesson: T,
    learning_rate: Annealed,
    student: Student,
}

/// The policy that learns.
struct Student {
    step: CapturedStep<ActorCritic, Adam, Loss>,
    actor: Actor,
    actions: ActionSpace,
    /// Fingerprint of the source.
    fingerprint: u64,
}

impl BehaviorCloning {
    /// A training that has not begun.
    ///
    /// # Errors
    /// If an option is invalid, there are no demonstrations, or the demonstrations or the policy do not fit the
    /// environments.
    pub fn new(
        envs: impl VectorEnv + 'static,
        policy: ActorCritic,
        demonstrations: Demonstrations,
        config: BcConfig,
    ) -> Result<Self> {
        config.check(envs.rows())?;
        demonstrations.check(&envs)?;
        let (ent_weight, l2_weight) = (config.ent_weight, config.l2_weight);
        let loss: Loss = Box::new(move |policy, batch| {
            let losses = bc_loss(policy, &batch[0], &batch[1], ent_weight, l2_weight)?;
            let told = Tensor::stack(&[&losses.prob_true_act, &losses.entropy], 0)?;
            Ok((losses.loss, told))
        });
        let demonstrations = demonstrations.by(config.batch_size);
        Self::taught(
            envs,
            policy,
            demonstrations,
            loss,
            (config.pace(), config.learning_rate),
        )
    }
}

impl Distillation {
    /// A training that has not begun.
    ///
    /// # Errors
    /// If an option is invalid, the teacher has memory, or the teacher or the policy does not fit the environments.
    pub fn new(
        envs: impl VectorEnv + 'static,
        policy: ActorCritic,
        teacher: Box<dyn Policy>,
        config: DistillConfig,
    ) -> Result<Self> {
        config.check(envs.rows())?;
        let teacher = Supervisor::new(teacher, envs.action_space(), &config)?;
        let (space, temperature) = (ActionSpace::from(envs.action_space()), config.temperature);
        let loss: Loss = Box::new(move |policy, batch| {
            let teacher = loss::said(&space, &batch[1], batch.get(2), temperature)?;
            let loss = distillation_loss(policy, &batch[0], &teacher)?;
            let told = loss.detach().reshape([1])?;
            Ok((loss, told))
        });
        Self::taught(envs, policy, teacher, loss, (config.pace(), config.learning_rate))
    }
}

impl<T: Lesson> OffPolicy<Imitator<T>> {
    fn taught(
        envs: impl VectorEnv + 'static,
        policy: ActorCritic,
        lesson: T,
        loss: Loss,
        (pace, learning_rate): (Pace, Annealed),
    ) -> Result<Self> {
        let wrong = |what: &str| Error::invalid(what.to_owned()).with_op(T::NAME);
        check_spaces(envs.observation_space(), envs.action_space()).map_err(|error| error.with_op(T::NAME))?;
        if envs.action_masks().is_some() {
            let error = wrong("not all actions are always allowed in these environments");
            return Err(error.with_hint("take PPO, which knows masks"));
        }
        if !policy.initial_state(1)?.parts().is_empty() {
            let error = wrong("the policy remembers earlier steps, and what is learnt from are single ones");
            return Err(error.with_hint("take one without memory: --policy mlp"));
        }
        let actions = ActionSpace::from(envs.action_space());
        if policy.config().action != actions {
            let text = format!(
                "the policy chooses among {:?}, the environments have {actions:?}",
                policy.config().action
            );
            return Err(wrong(&text).with_hint("make the policy for the environments' action space"));
        }
        let device = policy.actor.weight.device();
        let optimizer = AdamConfig::new(learning_rate.at(0.0)).build(policy.parameters())?;
        let student = Student {
            actor: Actor::new(device, actions.clone(), Asked::default()),
            step: TrainStep::new(policy, optimizer, loss).captured(),
            actions,
            fingerprint: lesson.fingerprint()?,
        };
        let method = Imitator {
            lesson,
            learning_rate,
            student,
        };
        Self::begin(method, envs, pace, Ok)
    }

    /// The policy that learns.
    pub fn policy(&self) -> &ActorCritic {
        self.method.student.step.model()
    }
}

impl<T: Lesson> Method for Imitator<T> {
    const NAME: &'static str = T::NAME;
    const KEY: &'static str = T::KEY;
    const LEARNT: &'static [&'static str] = T::LEARNT;
    const TOLD: &'static [&'static str] = T::TOLD;

    fn policy(&self) -> &dyn Policy {
        self.student.step.model()
    }

    /// The likeliest actions, of the policy or of its teacher.
    fn act(&mut self, seen: &Seen<'_>, rng: &mut Rng) -> Result<Vec<f32>> {
        let taught = self.lesson.act(seen, rng)?;
        let mut actions = self.student.act(seen)?;
        let width = actions.len() / seen.rows;
        for (row, action) in taught
            .chunks(width)
            .enumerate()
            .filter(|(_, action)| !action[0].is_nan())
        {
            actions[row * width..][..width].copy_from_slice(action);
        }
        Ok(actions)
    }

    fn anneal(&mut self, progress: f64) -> Result<f64> {
        let rate = self.learning_rate.at(progress);
        self.student.step.optimizer_mut().set_lr(rate);
        Ok(rate)
    }

    fn learn(&mut self, from: &mut Experience, _update: u64, _progress: f64, rng: &mut Rng) -> Result<Vec<f64>> {
        let device = self.student.step.model().actor.weight.device();
        let batch = self.lesson.draw(from, &device, rng)?;
        let (loss, told) = self.student.step.step(&batch)?;
        self.student.actor.forget();
        let mut learnt = vec![finite(&loss)?];
        learnt.extend(told.to_f64_vec()?.into_iter().take(T::LEARNT.len()));
        Ok(learnt)
    }

    fn told(&self, progress: f64) -> Result<Vec<f64>> {
        Ok(self.lesson.told(progress))
    }

    fn trained(&self) -> &dyn Trained {
        &self.student
    }

    fn trained_mut(&mut self) -> &mut dyn Trained {
        &mut self.student
    }
}

impl Student {
    fn act(&mut self, seen: &Seen<'_>) -> Result<Vec<f32>> {
        likeliest(
            &mut self.actor,
            self.step.model(),
            &self.actions,
            (seen.observations, seen.shape),
            seen.rows,
        )
    }

    fn mark(&self) -> Result<HostTensor> {
        HostTensor::new(Shape::new(&[1])?, vec![self.fingerprint as i64])
    }
}

/// The likeliest action of each row, by a policy without memory.
fn likeliest(
    actor: &mut Actor,
    policy: &(impl Policy + ?Sized),
    space: &ActionSpace,
    seen: (&[f32], &[usize]),
    rows: usize,
) -> Result<Vec<f32>> {
    let answer = actor.run(policy, seen, &vec![0.0; rows], &PolicyState::new(Vec::new()))?;
    let mut actions = vec![0.0; rows * space.len()];
    for (row, action) in actions.chunks_mut(space.len()).enumerate() {
        if !choose(space, &answer.row(row, rows, None), None, action).is_finite() {
            let message = "the policy computes NaN or infinity";
            return Err(Error::invalid(message).with_hint("take a lower learning rate"));
        }
    }
    Ok(actions)
}

impl Trained for Student {
    fn checkpoint(&self, iteration: u64) -> Result<Checkpoint> {
        let mut state = StateDict::new();
        state.insert("fingerprint".to_owned(), self.mark()?);
        Ok(self.step.checkpoint(iteration)?.with_part(LESSON, state))
    }

    fn restore(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let known = checkpoint
            .part(LESSON)?
            .get("fingerprint")
            .map(|mark| mark.to_vec::<i64>());
        if known.transpose()? != Some(vec![self.fingerprint as i64]) {
            let text = "the checkpoint is of a training by other demonstrations, or another teacher";
            return Err(Error::new(ErrorKind::StateDict, text).with_hint("give those that it began with"));
        }
        self.step.restore(checkpoint)?;
        self.actor.forget();
        Ok(())
    }

    fn refusal(&self) -> Option<&str> {
        self.step.refusal().or_else(|| self.actor.refusal())
    }
}
