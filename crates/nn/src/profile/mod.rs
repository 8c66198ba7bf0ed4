//! Profiles of steps: the time spent by op, shapes and module.
//!
//! ```
//! use polygrad_nn::optim::{Optimizer, SGD};
//! use polygrad_nn::profile::Profiler;
//! use polygrad_nn::{Linear, Module, ReLU, Sequential, profile};
//! # use polygrad_reference::Reference;
//! # use polygrad_tensor::{Device, Result, Tensor};
//! # fn main() -> Result<()> {
//! # let device = &Device::<Reference>::default().into_any();
//! let model = Sequential::new().push(Linear::new(8, 4, device)?).push(ReLU).push(Linear::new(4, 2, device)?);
//! let mut sgd = SGD::new(model.parameters(), 0.1)?;
//! let x = Tensor::ones([16, 8], device)?;
//!
//! // One step, or whatever else a closure does.
//! let (loss, profile) = profile(|| sgd.backward_step(model.forward(&x)?.square()?.mean_all()?));
//! loss?;
//! println!("{profile}");
//!
//! // Several steps, and the modules of a model by their paths.
//! let mut profiler = Profiler::new().model(&model);
//! for _ in 0..3 {
//!     profiler.step(|| sgd.backward_step(model.forward(&x)?.square()?.mean_all()?))?;
//! }
//! let profile = profiler.finish();
//! let linear = profile.samples.iter().find(|sample| sample.op == "linear").unwrap();
//! assert_eq!((linear.shapes().as_str(), linear.module.as_deref()), ("[16, 8] [4, 8] [4]", Some("0")));
//! # Ok(())
//! # }
//! ```

mod record;
mod recorder;
mod table;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use polygrad_core::timing::with_timer;
use polygrad_tensor::{AnyBackend, GradId};

pub use record::{LayerCall, Pass, Profile, Sample, Span};
pub use table::Allocator;

use crate::watch::{Places, places, with_hook_at};
use crate::{Item, Visit, Visitor};
use recorder::Recorder;

/// Runs a closure, such as a training step, and returns its result with a profile of all calls that this thread makes
/// to devices of [`AnyBackend`] meanwhile. Each call waits for the device, so that it is charged with its own time.
/// `println!("{profile}")` prints it as tables.
///
/// Layers are identified by the names of their parameters, once [`parameters`](crate::Module::parameters) has named
/// them; [`Profiler::model`] identifies all layers. Steps and models that were [captured](crate::CapturedStep) or
/// [compiled](crate::Compile) are also profiled op by op, or as one call if the device has recorded them as a graph.
/// The profile does not include other threads, such as those that load data, nor backends that are chosen at compile
/// time, as in `Tensor<Cpu>`.
pub fn profile<R>(f: impl FnOnce() -> R) -> (R, Profile) {
    let mut profiler = Profiler::new();
    let result = profiler.step(f);
    (result, profiler.finish())
}

/// A profile of several steps; see [`profile`](profile()) for what it includes.
pub struct Profiler {
    recorder: Rc<RefCell<Recorder>>,
    places: Option<Rc<Places>>,
    waits: bool,
}

impl Profiler {
    /// A profiler without a model, whose calls wait for the device.
    pub fn new() -> Self {
        Self {
            recorder: Rc::new(RefCell::new(Recorder::new())),
            places: None,
            waits: true,
        }
    }

    /// Identifies the modules of a model by their paths.
    #[must_use]
    pub fn model(mut self, model: &(impl Visit<AnyBackend> + ?Sized)) -> Self {
        self.places = Some(Rc::new(places(model)));
        Visitor::walk(model, |path, item| {
            if let Item::Param(param) = item
                && let Some(leaf) = param.grad_id()
            {
                let module = path.rsplit_once('.').map_or("", |(module, _)| module);
                self.recorder.borrow_mut().set_place(leaf, module);
            }
        });
        self
    }

    /// Whether each call waits until the device has finished it. If not, times on an asynchronous device are only those
    /// of submitting the work. Default: true.
    #[must_use]
    pub fn wait(mut self, waits: bool) -> Self {
        self.waits = waits;
        self
    }

    /// Runs one step and records it.
    pub fn step<R>(&mut self, f: impl FnOnce() -> R) -> R {
        let (timed, watched) = (Rc::clone(&self.recorder), Rc::clone(&self.recorder));
        self.recorder.borrow_mut().begin();
        let began = Instant::now();
        let result = with_timer(self.waits, Rc::new(move |call| timed.borrow_mut().add(call)), || {
            with_hook_at::<AnyBackend, _>(self.places.clone(), move |layer| watched.borrow_mut().layer(layer), f)
        });
        self.recorder.borrow_mut().end(began);
        result
    }

    /// Finishes the recording and returns the profile.
    pub fn finish(self) -> Profile {
        // The hooks of all steps have been removed by now.
        Rc::into_inner(self.recorder)
            .map(|recorder| recorder.into_inner().finish())
            .unwrap_or_default()
    }
}

impl Default for Profiler {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Profiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profiler")
            .field("waits", &self.waits)
            .finish_non_exhaustive()
    }
}
