//! What is profiled: a step that can be taken as often as wanted.

use std::fmt::Debug;
use std::rc::Rc;

use clap::Args;
use polygrad::nn::Visit;
use polygrad::{AnyBackend, Device};
use polygrad_console::failure::Result;
use polygrad_workloads::Case;

/// Options of a program that trains, for `profile train` to measure its steps.
pub trait Training: Args + Debug {
    /// What these options train, and on which device; says so to the user.
    ///
    /// # Errors
    /// Everything that options, data and devices can do wrong.
    fn subject(&self) -> Result<(Box<dyn Subject>, Device)>;
}

/// Work that can be made on any device.
pub trait Subject {
    /// For the trace.
    fn title(&self) -> String;

    /// Makes model, optimizer and data on a device.
    ///
    /// # Errors
    /// When the device lacks an op or memory; data that do not suit the model.
    fn work<'a>(&'a self, device: &'a Device) -> Result<Work<'a>>;
}

/// Work on a device.
pub struct Work<'a> {
    /// Whose modules the time goes to, where there is a model.
    pub model: Option<Rc<dyn Visit<AnyBackend>>>,
    /// Takes a step.
    pub step: Box<dyn FnMut() -> Result<()> + 'a>,
}

/// A case of `polygrad bench`.
impl Subject for Case {
    fn title(&self) -> String {
        self.name()
    }

    fn work<'a>(&'a self, device: &'a Device) -> Result<Work<'a>> {
        let mut prepared = self.prepare(device)?;
        Ok(Work {
            model: prepared.model(),
            step: Box::new(move || Ok(prepared.step().map(drop)?)),
        })
    }
}
