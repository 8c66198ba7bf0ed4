//! Training steps of a case with the times of their parts.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use polygrad::backend::AnyBackend;
use polygrad::communicator::Communicator;
use polygrad::nn::{CapturedStep, Forward, GradientSync, Module, TrainStep};
use polygrad::optim::Optimizer;
use polygrad::train::{BucketProfile, DataParallel, Span as Sum, StepProfile};
use polygrad::{Device, Error, Gradients, Result as Computed, Tensor};
use polygrad_console::failure::{Failure, Result};
use polygrad_workloads::{Captured, Case, Mode, Prepared, Step};

/// The durations of the parts of one step, in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Times {
    pub(super) backward: f64,
    /// From the last all-reduce until the optimizer had its gradients.
    pub(super) unpack: f64,
    pub(super) optimizer: f64,
    /// From the beginning until the gradients of each bucket were ready.
    pub(super) ready: Vec<f64>,
}

impl Times {
    pub(super) fn to_vec(&self) -> Vec<f64> {
        let parts = [self.backward, self.unpack, self.optimizer].into_iter();
        parts.chain(self.ready.iter().copied()).collect()
    }

    /// The inverse of [`Times::to_vec`].
    pub(super) fn from_vec(values: &[f64]) -> Self {
        let at = |i: usize| values.get(i).copied().unwrap_or_default();
        Self {
            backward: at(0),
            unpack: at(1),
            optimizer: at(2),
            ready: values.iter().skip(3).copied().collect(),
        }
    }
}

/// The times at which the parts of a step ended.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub(super) begin: Instant,
    /// The end of the forward and backward pass.
    pub(super) computed: Instant,
    /// The time from which the optimizer had the gradients of all ranks.
    pub(super) unpacked: Instant,
    pub(super) end: Instant,
    /// One for each bucket.
    pub(super) sums: Vec<Sum>,
}

impl Taken {
    pub(super) fn times(&self) -> Times {
        let between = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64();
        let summed = self.sums.iter().map(|sum| sum.end).fold(self.computed, Instant::max);
        Times {
            backward: between(self.begin, self.computed),
            unpack: between(summed, self.unpacked),
            optimizer: between(self.unpacked, self.end),
            ready: self.sums.iter().map(|sum| between(self.begin, sum.ready)).collect(),
        }
    }
}

/// A case trained by one of the ranks of a group.
pub(super) struct Trial {
    prepared: Prepared<AnyBackend>,
    seen: Rc<RefCell<Seen>>,
}

/// The record of the last step.
#[derive(Default)]
struct Seen {
    taken: Option<Taken>,
    /// The values that do not change from step to step.
    sizes: StepProfile,
}

/// The group for the next step, and where it is recorded.
type Next = (Arc<dyn Communicator>, Rc<RefCell<Seen>>);

thread_local! {
    /// The group that trains the next case, and where its steps are recorded.
    static NEXT: RefCell<Option<Next>> = const { RefCell::new(None) };
}

impl Trial {
    /// Takes enough steps that all further ones are replays.
    ///
    /// # Errors
    /// A case that does not train; a failure of the device, or a step that cannot be captured.
    pub(super) fn new(case: &Case, device: &Device, group: &Arc<dyn Communicator>) -> Result<Self> {
        if !case.trains() {
            return Err(Failure::new(format!(
                "{} does not train, so that there is nothing to plan",
                case.name()
            ))
            .fix("name a case that trains, such as cnn, gpt or mlp-big/adam"));
        }
        let seen = Rc::default();
        NEXT.set(Some((Arc::clone(group), Rc::clone(&seen))));
        let mut trial = Self {
            prepared: case.prepare_for::<AnyBackend, Watched>(device)?,
            seen,
        };
        for _ in 0..3 {
            trial.step()?;
        }
        Ok(trial)
    }

    /// One step.
    ///
    /// # Errors
    /// If the device or the group fails.
    pub(super) fn step(&mut self) -> Result<Taken> {
        self.prepared.step()?;
        let taken = self.seen.borrow_mut().taken.take();
        taken.ok_or_else(|| Failure::new("a step did not say when its parts were done"))
    }

    /// The profile with these times.
    pub(super) fn profile(&self, times: &Times) -> StepProfile {
        // Means of measured times are never negative.
        let seconds = Duration::from_secs_f64;
        let mut profile = self.seen.borrow().sizes.clone();
        for (bucket, ready) in profile.buckets.iter_mut().zip(&times.ready) {
            bucket.ready = seconds(*ready);
        }
        StepProfile {
            backward: seconds(times.backward),
            unpack: seconds(times.unpack),
            optimizer: seconds(times.optimizer),
            ..profile
        }
    }
}

/// The mode of steps that are recorded.
struct Watched;

impl Mode<AnyBackend> for Watched {
    fn forward<M: Forward + 'static>(model: Rc<M>, x: Tensor) -> Computed<Step> {
        <Captured as Mode<AnyBackend>>::forward(model, x)
    }

    fn run<M, O, L>(step: TrainStep<M, O, L>, batch: [Tensor; 2]) -> Computed<Step>
    where
        M: Module + 'static,
        O: Optimizer + 'static,
        L: Fn(&M, &[Tensor]) -> Computed<Tensor> + 'static,
    {
        let (group, seen) = NEXT.take().ok_or_else(|| Error::invalid("no ranks are joined"))?;
        let sync = Arc::new(Sync::new(group, step.model())?);
        let mut step = step.gradient_sync(Arc::clone(&sync) as _).captured();
        Ok(Box::new(move || {
            let begin = Instant::now();
            let (loss, gradients) = step.backward(&batch)?;
            let computed = Instant::now();
            step.update(gradients)?;
            batch[0].device().synchronize()?;
            let end = Instant::now();
            if let Some(why) = step.refusal() {
                return Err(Error::invalid(format!("the step cannot be captured: {why}")));
            }
            let mut seen = seen.borrow_mut();
            let Last { sums, unpacked } = sync.take();
            seen.taken = Some(Taken {
                begin,
                computed,
                unpacked: unpacked.unwrap_or(computed),
                end,
                sums,
            });
            if let Some(values) = step.peak_bytes().filter(|_| seen.sizes.buckets.is_empty()) {
                seen.sizes = sizes(&step, values, seen.taken.as_ref())?;
            }
            drop(seen);
            loss.item().map(Some)
        }))
    }
}

/// The sizes of a step whose replay keeps this many bytes of values.
fn sizes<M, O, L>(step: &CapturedStep<M, O, L>, values: usize, taken: Option<&Taken>) -> Computed<StepProfile>
where
    M: Module,
    O: Optimizer,
    L: Fn(&M, &[Tensor]) -> Computed<Tensor>,
{
    let bytes = |state: polygrad::nn::StateDict| state.iter().map(|(_, value)| value.bytes().len()).sum();
    let buckets = taken.iter().flat_map(|taken| &taken.sums).map(|sum| BucketProfile {
        bytes: sum.bytes,
        ..BucketProfile::default()
    });
    Ok(StepProfile {
        buckets: buckets.collect(),
        parameters: bytes(step.model().state_dict()?),
        optimizer_state: bytes(step.optimizer().state_dict()?),
        values,
        ..StepProfile::default()
    })
}

/// [`DataParallel`], with a record of the last step.
struct Sync {
    parallel: DataParallel,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    sums: Vec<Sum>,
    unpacked: Option<Instant>,
}

impl Sync {
    fn new(group: Arc<dyn Communicator>, model: &impl Module) -> Computed<Self> {
        Ok(Self {
            parallel: DataParallel::new(group, model)?,
            last: Mutex::default(),
        })
    }

    fn set(&self, last: Last) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = last;
    }

    fn take(&self) -> Last {
        std::mem::take(&mut *self.last.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl GradientSync for Sync {
    fn begin(&self) {
        self.parallel.begin();
    }

    fn gradient(&self, leaf: u64, gradient: &Tensor) -> Computed<()> {
        self.parallel.gradient(leaf, gradient)
    }

    fn ready(&self, loss: &Tensor, gradients: &Gradients) -> Computed<()> {
        self.parallel.ready(loss, gradients)
    }

    fn finish(&self, gradients: Gradients) -> Computed<Gradients> {
        let reduced = self.parallel.finish(gradients)?;
        let unpacked = Instant::now();
        self.set(Last {
            sums: self.parallel.take_spans(),
            unpacked: Some(unpacked),
        });
        Ok(reduced)
    }
}
