//! Polygrad, in this process.

use polygrad::backend::AnyBackend;
use polygrad::{Device, Result as Computed};
use polygrad_workloads::{Captured, Eager, Prepared, select};

use super::contestant::{Contestant, Times, time};
use crate::failure::Result;

/// A model begins anew after so many steps, between turns: one batch is learned by heart in no time, and gradients of next to nothing make
/// numbers so small that processors take ten times as long for each.
const AFRESH: usize = 10_000;

/// A device, and the case that it has ready.
#[derive(Debug)]
pub(crate) struct Native {
    name: String,
    device: Device,
    way: Mode,
    ready: Option<Ready>,
}

/// How training steps are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// As they are written.
    Written,
    /// Recorded and replayed; what is no model as it is written.
    Captured,
    /// As they are written, beside those that are captured: nothing else.
    WrittenToo,
}

#[derive(Debug)]
struct Ready {
    name: String,
    prepared: Prepared<AnyBackend>,
    steps: usize,
}

impl Native {
    /// On the device that the string names.
    ///
    /// # Errors
    /// When there is no such device.
    pub(crate) fn open(spec: &str, way: Mode) -> Result<Self> {
        let kind = if way == Mode::WrittenToo { "-written" } else { "" };
        Ok(Self {
            name: format!("polygrad{kind} {}", env!("CARGO_PKG_VERSION")),
            device: Device::new(spec)?,
            way,
            ready: None,
        })
    }

    /// The same beside one on another device: it has the name of its own.
    pub(crate) fn named(mut self, name: &str) -> Self {
        self.name = name.to_owned();
        self
    }

    fn prepare(&mut self, name: String) -> Computed<()> {
        // The old one's memory goes first.
        self.ready = None;
        let case = select(&name)?[0];
        let prepared = match self.way {
            Mode::Captured => case.prepare_for::<AnyBackend, Captured>(&self.device)?,
            Mode::Written | Mode::WrittenToo => case.prepare_for::<AnyBackend, Eager>(&self.device)?,
        };
        self.ready = Some(Ready {
            name,
            prepared,
            steps: 0,
        });
        Ok(())
    }
}

impl Contestant for Native {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn case(&mut self, name: &str) -> std::result::Result<(), String> {
        self.prepare(name.to_owned()).map_err(|error| error.to_string())
    }

    fn run(&mut self, samples: usize, steps: usize) -> std::result::Result<Times, String> {
        if let Some(ready) = self.ready.take_if(|ready| ready.steps >= AFRESH) {
            self.case(&ready.name)?;
        }
        let Some(ready) = &mut self.ready else {
            return Err("no case has been chosen".to_owned());
        };
        ready.steps += samples * steps;
        let (prepared, device) = (&mut ready.prepared, &self.device);
        time(samples, steps, || prepared.step(), || device.synchronize()).map_err(|error| error.to_string())
    }
}
