//! Optimizers, which update parameters by their gradients.

mod adagrad;
mod adam;
mod adam_kin;
mod clip;
mod common;
mod custom;
mod ema;
mod grad_scaler;
mod lamb;
mod lion;
mod muon;
mod rmsprop;
mod schedule;
mod sgd;
mod slots;
mod state;

use std::sync::Arc;

use polygrad_core::communicator::Communicator;
use polygrad_tensor::{AnyBackend, Backend, Gradients, Result, Tensor};

use crate::StateDict;

pub use adagrad::{Adadelta, AdadeltaConfig, Adagrad, AdagradConfig};
pub use adam::{Adam, AdamConfig, AdamW};
pub use adam_kin::{Adamax, AdamaxConfig, NAdam, NAdamConfig, RAdam, RAdamConfig};
pub use clip::{clip_grad_norm, clip_grad_value};
pub use custom::{CustomOptimizer, UpdateRule};
pub use ema::{Ema, EmaConfig};
pub use grad_scaler::{GradScaler, GradScalerConfig};
pub use lamb::{LAMB, LAMBConfig};
pub use lion::{Lion, LionConfig};
pub use muon::{AdjustLr, Muon, MuonConfig};
pub use rmsprop::{RMSprop, RMSpropConfig};
pub use schedule::{
    AnnealStrategy, ChainedScheduler, ConstantLR, CosineAnnealingLR, CosineAnnealingWarmRestarts, CyclicLR, CyclicMode,
    ExponentialLR, LambdaLR, LinearLR, MultiStepLR, OneCycleLR, PlateauMode, PolynomialLR, ReduceLROnPlateau,
    ReduceLROnPlateauConfig, Schedule, SequentialLR, StepLR, ThresholdMode,
};
pub use sgd::{SGD, SGDConfig};

/// Updates parameters by their gradients, and keeps the state of each with the parameter, not with the graph. For an
/// optimizer of your own, implement [`UpdateRule`].
///
/// # Groups
/// Parameters with options of their own are added as a further group. Biases and norms often have no weight decay:
///
/// ```
/// # use polygrad_nn::{Module, Sequential};
/// # use polygrad_nn::optim::{AdamConfig, CosineAnnealingLR, Optimizer, Schedule};
/// # use polygrad_tensor::{Backend, Result};
/// # fn run<B: Backend>(model: Sequential<B>) -> Result<()> {
/// let (decay, no_decay): (Vec<_>, Vec<_>) = model.parameters().into_iter().partition(|p| p.shape().rank() >= 2);
/// let mut optimizer = AdamConfig::adamw(1e-3).weight_decay(0.1).build(decay)?;
/// optimizer.add_group(AdamConfig::adamw(1e-3).weight_decay(0.0), no_decay)?;
/// # let step = 0;
/// // Each step: every group's rate from its own base rate.
/// CosineAnnealingLR::new(1000).apply(&mut optimizer, step)?;
/// # Ok(())
/// # }
/// ```
///
/// [`Module::named_parameters`](crate::Module::named_parameters) has the names to select them by.
///
/// # Gradient accumulation
/// A batch too large for memory is computed in parts: divide each part's mean loss by the number of parts, and add up
/// the gradients. This gives the gradients of the whole batch unless a layer mixes examples, as batch normalisation
/// does.
///
/// ```
/// # use polygrad_nn::{Module, Sequential, loss::cross_entropy};
/// # use polygrad_nn::optim::Optimizer;
/// # use polygrad_tensor::{Backend, Result, Tensor};
/// # fn step<B: Backend>(
/// #     model: &Sequential<B>, optimizer: &mut dyn Optimizer<B>, x: &Tensor<B>, y: &Tensor<B>,
/// # ) -> Result<()> {
/// let parts = 4;
/// let mut sum: Option<polygrad_tensor::Gradients<B>> = None;
/// for (x, y) in x.chunk(parts, 0)?.iter().zip(&y.chunk(parts, 0)?) {
///     let loss = (cross_entropy(&model.forward(x)?, y)? / parts as f64)?;
///     let gradients = loss.backward()?;
///     match &mut sum {
///         Some(sum) => sum.accumulate(gradients)?,
///         None => sum = Some(gradients),
///     }
/// }
/// if let Some(gradients) = sum {
///     optimizer.step(&gradients)?;
/// }
/// # Ok(())
/// # }
/// ```
pub trait Optimizer<B: Backend = AnyBackend> {
    /// One step with the gradients of one backward pass (or of several, summed by
    /// [`Gradients::accumulate`](polygrad_tensor::Gradients::accumulate)). Frozen parameters stay as they are.
    ///
    /// # Errors
    /// [`ErrorKind::NoGradient`](polygrad_tensor::ErrorKind::NoGradient), naming all trainable parameters without a
    /// gradient; see [`Optimizer::allow_unused`]. When a gradient has another shape than its parameter, or, with
    /// [`Optimizer::error_if_nonfinite`], is not finite. In these cases nothing has changed. Finally, when the device
    /// fails: the error names the parameter. The parameters before it, in the order in which the optimizer got them,
    /// have then taken the step; it and those after it are unchanged, with their state. The next step continues from
    /// there; to avoid half a step, go back to a checkpoint.
    fn step(&mut self, gradients: &Gradients<B>) -> Result<()>;

    /// One step with the gradients of a loss of one element; returns the loss's value. The loss is consumed so that its
    /// graph is dropped before the parameters change, which then happens in place without copies.
    ///
    /// ```
    /// # use polygrad_nn::{Linear, Module, loss::mse_loss};
    /// # use polygrad_nn::optim::{Optimizer, SGD};
    /// # use polygrad_tensor::{Device, Result, Tensor};
    /// # fn run(model: &Linear, x: &Tensor, y: &Tensor) -> Result<()> {
    /// let mut optimizer = SGD::new(model.parameters(), 0.1)?;
    /// for _ in 0..100 {
    ///     let loss = optimizer.backward_step(mse_loss(&model.forward(x)?, y)?)?;
    ///     println!("{loss:.4}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Tensor::backward`] and of [`Optimizer::step`].
    fn backward_step(&mut self, loss: Tensor<B>) -> Result<f64> {
        let (gradients, value) = (loss.backward()?, loss.detach());
        drop(loss);
        self.step(&gradients)?;
        value.item()
    }

    /// Whether trainable parameters without a gradient are skipped instead of being an error. Default: false.
    fn allow_unused(&mut self, allow: bool);

    /// Whether a step with gradients that are not finite is an error, which names their parameters and changes nothing,
    /// instead of making the parameters NaN. It costs a reduction for each gradient, and waits for the device in each
    /// step. Default: false, as in PyTorch.
    fn error_if_nonfinite(&mut self, error: bool);

    /// Whether each element's update depends only on its own gradient and state, so that parameters can be split into
    /// pieces. Default: false.
    fn is_elementwise(&self) -> bool {
        false
    }

    /// The learning rate of the first group.
    fn lr(&self) -> f64;

    /// Sets the learning rate of all groups.
    fn set_lr(&mut self, lr: f64);

    /// The learning rate of each group.
    fn lrs(&self) -> Vec<f64>;

    /// Sets the learning rate of each group; [`Schedule::apply`] sets them all by a schedule.
    ///
    /// # Errors
    /// When the number of rates is not the number of groups; nothing has changed then.
    fn set_lrs(&mut self, lrs: &[f64]) -> Result<()>;

    /// The learning rate in each group's options, regardless of later changes; schedules start from it.
    fn base_lrs(&self) -> Vec<f64>;

    /// Its state: moments and numbers of steps, by the name of the parameter, as in `fc1.weight.exp_avg`, and each
    /// group's learning rate (`lr`) and base rate (`base_lr`).
    ///
    /// # Errors
    /// When a device fails.
    fn state_dict(&self) -> Result<StateDict>;

    /// Continues from a state: completely, or not at all if there is an error.
    ///
    /// # Errors
    /// [`ErrorKind::StateDict`](polygrad_tensor::ErrorKind::StateDict) when it is of another kind of optimizer, or does
    /// not fit the parameters; lists everything that does not fit.
    fn load_state_dict(&mut self, state: &StateDict) -> Result<()>;

    /// Continues as a member of `group`, the ranks that remain after others were lost. Returns whether it still has all
    /// of its state; if not, call [`Optimizer::load_state_dict`] next. Default: true, since no other rank had a part of
    /// the state.
    ///
    /// # Errors
    /// When memory runs out.
    fn rejoin(&mut self, group: &Arc<dyn Communicator>) -> Result<bool> {
        let _ = group;
        Ok(true)
    }
}

impl<B: Backend, O: Optimizer<B> + ?Sized> Optimizer<B> for Box<O> {
    fn step(&mut self, gradients: &Gradients<B>) -> Result<()> {
        (**self).step(gradients)
    }

    fn allow_unused(&mut self, allow: bool) {
        (**self).allow_unused(allow);
    }

    fn error_if_nonfinite(&mut self, error: bool) {
        (**self).error_if_nonfinite(error);
    }

    fn is_elementwise(&self) -> bool {
        (**self).is_elementwise()
    }

    fn lr(&self) -> f64 {
        (**self).lr()
    }

    fn set_lr(&mut self, lr: f64) {
        (**self).set_lr(lr);
    }

    fn lrs(&self) -> Vec<f64> {
        (**self).lrs()
    }

    fn set_lrs(&mut self, lrs: &[f64]) -> Result<()> {
        (**self).set_lrs(lrs)
    }

    fn base_lrs(&self) -> Vec<f64> {
        (**self).base_lrs()
    }

    fn state_dict(&self) -> Result<StateDict> {
        (**self).state_dict()
    }

    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        (**self).load_state_dict(state)
    }

    fn rejoin(&mut self, group: &Arc<dyn Communicator>) -> Result<bool> {
        (**self).rejoin(group)
    }
}
