//! What algorithms differ in that learn from a replay buffer.

use polygrad_core::{Error, Rng};
use polygrad_nn::optim::Optimizer;
use polygrad_nn::{CapturedStep, Checkpoint, Module, StepOutputs};
use polygrad_tensor::{Backend, Capture, Device, Result, Tensor, no_grad};

use crate::experience::Experience;
use crate::{Policy, Space};

/// How actions are chosen, and how a step of the optimizer is taken.
pub trait Method {
    /// What people call it.
    const NAME: &'static str;
    /// Under this name a checkpoint has what is beside weights, moments and transitions.
    const KEY: &'static str;
    /// What [`Method::learn`] gives behind the loss.
    const LEARNT: &'static [&'static str];
    /// What [`Method::told`] gives. Default: nothing.
    const TOLD: &'static [&'static str] = &[];

    /// What it learns, as it is used elsewhere.
    fn policy(&self) -> &dyn Policy;

    /// An action for each row, as a policy chooses it.
    ///
    /// # Errors
    /// Those of the networks.
    fn act(&mut self, seen: &Seen<'_>, rng: &mut Rng) -> Result<Vec<f32>>;

    /// An episode of a row has ended. Default: nothing changes.
    fn ended(&mut self, row: usize) {
        let _ = row;
    }

    /// Sets learning rates to what they are after a share of the training; gives that of the policy.
    ///
    /// # Errors
    /// Those of the optimizer.
    fn anneal(&mut self, progress: f64) -> Result<f64>;

    /// One step of the optimizer, the one of this number, on transitions that are drawn anew; gives the loss and
    /// [`Method::LEARNT`].
    ///
    /// # Errors
    /// Those of the networks, and numbers that are not finite.
    fn learn(&mut self, from: &mut Experience, update: u64, progress: f64, rng: &mut Rng) -> Result<Vec<f64>>;

    /// Called after each iteration with the number of steps before and after it. Default: does nothing.
    ///
    /// # Errors
    /// Those of the device.
    fn settle(&mut self, before: u64, after: u64) -> Result<()> {
        let _ = (before, after);
        Ok(())
    }

    /// Numbers that there are whether or not it learns yet.
    ///
    /// # Errors
    /// Those of the device.
    fn told(&self, progress: f64) -> Result<Vec<f64>> {
        let _ = progress;
        Ok(Vec::new())
    }

    /// What is saved of it.
    fn trained(&self) -> &dyn Trained;

    /// The same, to be changed.
    fn trained_mut(&mut self) -> &mut dyn Trained;
}

/// Networks in training, with all else that acting and learning go on from.
pub trait Trained {
    /// Weights, moments and all other state; `iteration` is the number of iterations done.
    ///
    /// # Errors
    /// Those of the device.
    fn checkpoint(&self, iteration: u64) -> Result<Checkpoint>;

    /// Goes on from there.
    ///
    /// # Errors
    /// When it is none of these networks.
    fn restore(&mut self, checkpoint: &Checkpoint) -> Result<()>;

    /// Why training or acting is not replayed, if that will not change.
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

/// What there is to act on.
pub struct Seen<'a> {
    /// Of all rows, one after another.
    pub(crate) observations: &'a [f32],
    /// Of one.
    pub(crate) shape: &'a [usize],
    pub(crate) rows: usize,
    /// Which step of the iteration this is.
    pub(crate) step: usize,
    /// The share of the training that is done.
    pub(crate) progress: f64,
    /// Whether what was seen is learnt from already.
    pub(crate) learns: bool,
    pub(crate) space: &'a Space,
}

impl Seen<'_> {
    /// An action of chance for each row, where actions are numbers.
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
    capture: Capture,
}

impl Acting {
    pub(crate) fn new(device: Device) -> Self {
        Self {
            device,
            capture: Capture::new(),
        }
    }

    /// What `f` makes of what is seen and of further inputs behind it, by these and the network alone.
    pub(crate) fn run(
        &mut self,
        network: &impl Module,
        seen: &Seen<'_>,
        inputs: Vec<Tensor>,
        f: impl FnOnce(&[Tensor]) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let dims = [&[seen.rows], seen.shape].concat();
        let observations = Tensor::from_vec(seen.observations.to_vec(), dims, &self.device)?;
        let own: Vec<Tensor> = std::iter::once(observations).chain(inputs).collect();
        let weights = network.parameters().into_iter().map(|param| param.tensor().detach());
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

/// Brings the values of `target` nearer to those of a network like it, by this share of the way.
pub(crate) fn follow<B: Backend>(target: &impl Module<B>, network: &impl Module<B>, share: f64) -> Result<()> {
    let mut pairs = target.parameters().into_iter().zip(network.parameters());
    pairs.try_for_each(|(target, other)| {
        let other = other.tensor().detach();
        match share {
            1.0 => target.set(&other),
            share => {
                let old = target.tensor().detach();
                target.set(&other.mul(share)?.add(&old.mul(1.0 - share)?)?)
            }
        }
    })
}

/// A loss as a number.
///
/// # Errors
/// When it is none.
pub(crate) fn finite(loss: &Tensor) -> Result<f64> {
    let loss = loss.item()?;
    match loss.is_finite() {
        true => Ok(loss),
        false => Err(Error::invalid("the loss is NaN or infinite").with_hint("take a lower learning rate")),
    }
}
