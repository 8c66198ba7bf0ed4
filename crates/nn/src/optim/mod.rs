//! Optimizers: how gradients change parameters.

mod adam;
mod clip;
mod common;
mod rmsprop;
mod schedule;
mod sgd;
mod slots;

use polygrad_tensor::{AnyBackend, Backend, Gradients, Result};

use crate::StateDict;

pub use adam::{Adam, AdamConfig, AdamW};
pub use clip::{clip_grad_norm, clip_grad_value};
pub use rmsprop::{RMSprop, RMSpropConfig};
pub use schedule::{ConstantLR, CosineAnnealingLR, LinearLR, Schedule, SequentialLR, StepLR};
pub use sgd::{SGD, SGDConfig};

/// Changes parameters by their gradients, and keeps what it remembers about each by the parameter, not by the graph.
pub trait Optimizer<B: Backend = AnyBackend> {
    /// One step with the gradients of one backward pass (or several, added up by
    /// [`Gradients::accumulate`](polygrad_tensor::Gradients::accumulate)). Frozen parameters stay as they are.
    ///
    /// # Errors
    /// [`ErrorKind::NoGradient`](polygrad_tensor::ErrorKind::NoGradient), naming all trainable parameters for which there is no gradient, in
    /// which case nothing has changed; see [`Optimizer::allow_unused`]. And when the device fails: the error names the parameter; those
    /// before it, in the order in which the optimizer was given them, have taken the step, and it and those after it are, with their
    /// state, as they were. A further step takes up from there; to take none by halves, go back to a checkpoint.
    fn step(&mut self, gradients: &Gradients<B>) -> Result<()>;

    /// Whether trainable parameters without a gradient are left as they are instead of being an error. Default: false.
    fn allow_unused(&mut self, allow: bool);

    /// The learning rate.
    fn lr(&self) -> f64;

    /// Sets the learning rate: what a [`Schedule`] computes.
    fn set_lr(&mut self, lr: f64);

    /// What it remembers: moments and numbers of steps, by the name of the parameter, as in `fc1.weight.exp_avg`, and the learning rate.
    ///
    /// # Errors
    /// When a device fails.
    fn state_dict(&self) -> Result<StateDict>;

    /// Continues from a state: all, or nothing when there is an error.
    ///
    /// # Errors
    /// [`ErrorKind::StateDict`](polygrad_tensor::ErrorKind::StateDict) when it is of another kind of optimizer, or does not fit the
    /// parameters; lists everything that does not fit.
    fn load_state_dict(&mut self, state: &StateDict) -> Result<()>;
}
