//! Polygrad, in this process.

use polygrad::backend::AnyBackend;
use polygrad::{Device, Result as Computed};
use polygrad_workloads::{Prepared, select};

use super::contestant::{Contestant, Times, time};
use crate::failure::Result;

/// A device, and the case that it has ready.
#[derive(Debug)]
pub(crate) struct Ours {
    device: Device,
    prepared: Option<Prepared<AnyBackend>>,
}

impl Ours {
    /// On the device that the string names.
    ///
    /// # Errors
    /// When there is no such device.
    pub(crate) fn open(spec: &str) -> Result<Self> {
        Ok(Self {
            device: Device::new(spec)?,
            prepared: None,
        })
    }

    fn prepare(&mut self, name: &str) -> Computed<()> {
        // The old one's memory goes first.
        self.prepared = None;
        let case = select(name)?[0];
        self.prepared = Some(case.prepare(&self.device)?);
        Ok(())
    }
}

impl Contestant for Ours {
    fn name(&self) -> String {
        format!("polygrad {}", env!("CARGO_PKG_VERSION"))
    }

    fn case(&mut self, name: &str) -> std::result::Result<(), String> {
        self.prepare(name).map_err(|error| error.to_string())
    }

    fn run(&mut self, samples: usize, steps: usize) -> std::result::Result<Times, String> {
        let Some(prepared) = &mut self.prepared else {
            return Err("no case has been chosen".to_owned());
        };
        let device = &self.device;
        time(samples, steps, || prepared.step(), || device.synchronize()).map_err(|error| error.to_string())
    }
}
