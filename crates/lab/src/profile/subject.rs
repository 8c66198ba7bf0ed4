//! The subject of a profile: a step that can be repeated as often as needed.

use std::fmt::Debug;
use std::rc::Rc;

use clap::Args;
use polygrad::nn::Visit;
use polygrad::{AnyBackend, Device};
use polygrad_console::failure::Result;
use polygrad_workloads::Case;

/// Options of a program that trains, for `profile train` to measure its steps.
pub trait Training: Args + Debug {
    /// The subject that these options train, and its device; also prints them for the user.
    ///
    /// # Errors
    /// Errors of options, data and devices.
    fn subject(&self) -> Result<(Box<dyn Subject>, Device)>;
}

/// Work that can be created on any device.
pub trait Subject {
    /// The title of the trace.
    fn title(&self) -> String;

    /// Creates the model, optimizer and data on a device.
    ///
    /// # Errors
    /// If the device lacks an op or memory, or the data do not suit the model.
    fn work<'a>(&'a self, device: &'a Device) -> Result<Work<'a>>;
}

/// Work on a device.
pub struct Work<'a> {
    /// The model whose modules the time is assigned to, if there is one.
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
