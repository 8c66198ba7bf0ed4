//! Polygrad, in this process.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use polygrad::backend::AnyBackend;
use polygrad::communicator::Communicator;
use polygrad::nn::{Forward, Module, TrainStep};
use polygrad::optim::Optimizer;
use polygrad::train::DataParallel;
use polygrad::{Device, Error, Result as Computed, Tensor};
use polygrad_console::failure::Result;
use polygrad_workloads::{self as workloads, Captured, Eager, Prepared, Step, select};

use super::contestant::{Contestant, Times, time};

/// A model is reinitialized after this many steps, between turns: it soon fits a single batch exactly, and vanishing
/// gradients then lead to subnormal numbers, which take processors ten times as long.
const AFRESH: usize = 10_000;

/// A device, and its prepared case.
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
    /// Eagerly.
    Written,
    /// Recorded and replayed; cases that are no model run eagerly.
    Captured,
    /// Only eagerly, as a second contestant beside a captured one.
    WrittenToo,
    /// Recorded and replayed, together with the other processes of this thread's [`GROUP`].
    Parallel,
}

thread_local! {
    /// The processes that train together.
    static GROUP: RefCell<Option<Arc<dyn Communicator>>> = const { RefCell::new(None) };
}

/// The mode of steps that several processes take together.
struct Parallel;

impl workloads::Mode<AnyBackend> for Parallel {
    fn forward<M: Forward + 'static>(model: Rc<M>, x: Tensor) -> Computed<Step> {
        <Captured as workloads::Mode<AnyBackend>>::forward(model, x)
    }

    fn run<M, O, L>(step: TrainStep<M, O, L>, batch: [Tensor; 2]) -> Computed<Step>
    where
        M: Module + 'static,
        O: Optimizer + 'static,
        L: Fn(&M, &[Tensor]) -> Computed<Tensor> + 'static,
    {
        let group = GROUP.with_borrow(Clone::clone);
        let group = group.ok_or_else(|| Error::invalid("no processes are joined"))?;
        let parallel = DataParallel::new(group, step.model())?;
        Captured::run(step.gradient_sync(Arc::new(parallel)), batch)
    }
}

#[derive(Debug)]
struct Ready {
    name: String,
    prepared: Prepared<AnyBackend>,
    steps: usize,
}

impl Native {
    /// A contestant on the device that the string names.
    ///
    /// # Errors
    /// If there is no such device.
    pub(crate) fn open(spec: &str, way: Mode) -> Result<Self> {
        let kind = if way == Mode::WrittenToo { "-written" } else { "" };
        Ok(Self {
            name: format!("polygrad{kind} {}", env!("CARGO_PKG_VERSION")),
            device: Device::new(spec)?,
            way,
            ready: None,
        })
    }

    /// One of several processes, each with its own batch.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn joined(spec: &str, group: &Arc<dyn Communicator>) -> Result<Self> {
        GROUP.set(Some(Arc::clone(group)));
        let mut native = Self::open(spec, Mode::Parallel)?;
        let (version, engine) = (env!("CARGO_PKG_VERSION"), group.name());
        native.name = format!("polygrad-parallel {version} of {} by {engine}", group.size());
        Ok(native)
    }

    /// Gives it another name, to distinguish it from one on another device.
    pub(crate) fn named(mut self, name: &str) -> Self {
        self.name = name.to_owned();
        self
    }

    fn prepare(&mut self, name: String) -> Computed<()> {
        // The memory of the old one is freed first.
        self.ready = None;
        let case = select(&name)?[0];
        let prepared = match self.way {
            Mode::Parallel => case.prepare_for::<AnyBackend, Parallel>(&self.device)?,
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
