//! The part in which algorithms with a replay buffer differ.

use polygrad_core::{Error, Rng};
use polygrad_nn::optim::Optimizer;
use polygrad_nn::{CapturedStep, Checkpoint, Module, Param, StepOutputs};
use polygrad_tensor::{AnyBackend, Backend, Capture, Device, Result, SgdParams, Tensor, no_grad};

use crate::experience::Experience;
use crate::{Policy, Space};

/// Chooses actions and takes steps of the optimizer.
pub trait Method {
    /// The usual name of the algorithm.
    const NAME: &'static str;
    /// The key of the state, except weights, moments and transitions, in a checkpoint.
    const KEY: &'static str;
    /// Names of the numbers that [`Method::learn`] returns after the loss.
    const LEARNT: &'static [&'static str];
    /// Names of the numbers that [`Method::told`] returns. Default: none.
    const TOLD: &'static [&'static str] = &[];

    /// The learned policy for use after training.
    fn policy(&self) -> &dyn Policy;

    /// An action for each row, as a policy chooses it.
    ///
    /// # Errors
    /// Those of the networks.
    fn act(&mut self, seen: &Seen<'_>, rng: &mut Rng) -> Result<Vec<f32>>;

    /// Called when an episode of a row has ended. Default: does nothing.
    fn ended(&mut self, row: usize) {
        let _ = row;
    }

    /// Sets the learning rates after a share of the training; returns that of the policy.
    ///
    /// # Errors
    /// Those of the optimizer.
    fn anneal(&mut self, progress: f64) -> Result<f64>;

    /// Takes step `update` of the optimizer, on newly sampled transitions; returns the loss and the numbers of
    /// [`Method::LEARNT`].
    ///
    /// # Errors
    /// Those of the networks, and if numbers are not finite.
    fn learn(&mut self, from: &mut Experience, update: u64, progress: f64, rng: &mut Rng) -> Result<Vec<f64>>;

    /// Called after each iteration with the number of steps before and after it. Default: does nothing.
    ///
    /// # Errors
    /// Those of the device.
    fn settle(&mut self, before: u64, after: u64) -> Result<()> {
        let _ = (before, after);
        Ok(())
    }

    /// Numbers to report whether or not training has started.
    ///
    /// # Errors
    /// Those of the device.
    fn told(&self, progress: f64) -> Result<Vec<f64>> {
        let _ = progress;
        Ok(Vec::new())
    }

    /// The part of the state that is saved.
    fn trained(&self) -> &dyn Trained;

    /// The same, mutable.
    fn trained_mut(&mut self) -> &mut dyn Trained;
}

/// Networks in training, with all other state of acting and learning.
pub trait Trained {
    /// Weights, moments and all other state; `iteration` is the number of iterations done.
    ///
    /// # Errors
    /// Those of the device.
    fn checkpoint(&self, iteration: u64) -> Result<Checkpoint>;

    /// Continues from a checkpoint.
    ///
    /// # Errors
    /// If the checkpoint does not fit these networks.
    fn restore(&mut self, checkpoint: &Checkpoint) -> Result<()>;

    /// Why training or acting cannot be captured and replayed; `None` if it can.
    fn refusal(&self) -> Option<&str>;
}

impl<M, O, L, R> Trained for CapturedStep<M, O, L>
where
    M: Module,
    O: Optimizer,
    L: Fn(&M, &[Tensor]) -> Result<R>,
    R: StepOutputs,
{
    fn checkpoint(&self, iteration: u64) -> Result<Checkpoint> {
        Checkpoint::new(self.model(), self.optimizer(), iteration)
    }

    fn restore(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let (model, optimizer) = self.parts_mut();
        checkpoint.restore(model, optimizer).map(drop)
    }

    fn refusal(&self) -> Option<&str> {
        self.refusal()
    }
}

/// The input for choosing actions.
pub struct Seen<'a> {
    /// Observations of all rows, one after another.
    pub(crate) observations: &'a [f32],
    /// Shape of one observation.
    pub(crate) shape: &'a [usize],
    pub(crate) rows: usize,
    /// Which step of the iteration this is.
    pub(crate) step: usize,
    /// The share of the training that is done.
    pub(crate) progress: f64,
    /// Whether training on the experience has already started.
    pub(crate) learns: bool,
    pub(crate) space: &'a Space,
}

impl Seen<'_> {
    /// A random action for each row, for continuous actions.
    pub(crate) fn any_actions(&self, rng: &mut Rng) -> Vec<f32> {
        let mut actions = vec![0.0; self.rows * self.space.len()];
        let rows = actions.chunks_mut(self.space.len().max(1));
        rows.for_each(|action| self.space.sample(rng, action));
        actions
    }
}

/// A network that acts, as a captured program.
pub(crate) struct Acting {
    pub(crate) device: Device,
    weights: Vec<Param>,
    capture: Capture,
}

impl Acting {
    pub(crate) fn new(network: &impl Module, device: Device) -> Self {
        Self {
            device,
            weights: network.parameters(),
            capture: Capture::new(),
        }
    }

    /// The result of `f`, applied to the observations followed by further inputs. `f` must depend only on these and the
    /// network.
    pub(crate) fn run(
        &mut self,
        seen: &Seen<'_>,
        inputs: Vec<Tensor>,
        f: impl FnOnce(&[Tensor]) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let dims = [&[seen.rows], seen.shape].concat();
        let observations = Tensor::from_vec(seen.observations.to_vec(), dims, &self.device)?;
        let own: Vec<Tensor> = std::iter::once(observations).chain(inputs).collect();
        let weights = self.weights.iter().map(|param| param.tensor().detach());
        let all = own.iter().cloned().chain(weights).collect();
        let run = || Ok((vec![no_grad(|| f(&own))?], ()));
        let (mut found, ()) = self.capture.run(0, all, run)?;
        found
            .pop()
            .ok_or_else(|| Error::invalid("a network that acts gave nothing"))
    }

    pub(crate) fn refusal(&self) -> Option<&str> {
        self.capture.refusal()
    }
}

/// The parameters of targets, each with the parameter that it follows.
pub(crate) struct Following<B: Backend = AnyBackend>(Vec<(Param<B>, Param<B>)>);

impl<B: Backend> Default for Following<B> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<B: Backend> Following<B> {
    /// Adds a target and a network of the same structure.
    pub(crate) fn add(&mut self, target: &impl Module<B>, network: &impl Module<B>) {
        self.0.extend(target.parameters().into_iter().zip(network.parameters()));
    }

    /// Moves the target by this share of the difference.
    pub(crate) fn follow(&self, share: f64) -> Result<()> {
        // In one pass in place: `t + share (x − t)` is a step of gradient descent with the gradient `x`, the rate
        // `−share` and a decay of −1.
        let step = SgdParams {
            lr: -share,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: -1.0,
            nesterov: false,
            first: false,
        };
        self.0.iter().try_for_each(|(target, other)| {
            let other = other.tensor().detach();
            match share {
                1.0 => target.set(&other),
                _ => target.update_in_place(|value| B::sgd_step(value, other.inner(), None, &step)),
            }
        })
    }
}

/// A loss as a number.
///
/// # Errors
/// If it is not finite.
pub(crate) fn finite(loss: &Tensor) -> Result<f64> {
    let loss = loss.item()?;
    match loss.is_finite() {
        true => Ok(loss),
        false => Err(Error::invalid("the loss is NaN or infinite").with_hint("take a lower learning rate")),
    }
}
