//! A loaded model, the waiting requests, and the scheduling of their computation.

mod batch;
mod pool;
mod queue;
mod sequence;
mod writing;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use polygrad_core::{Result, Shape};
use smallvec::SmallVec;
use tokio::sync::oneshot;

pub use pool::Pool;
use queue::{Job, Queue};
use writing::Desk;
pub(crate) use writing::{Event, Order};

use crate::statistics::{Statistics, nanoseconds};
use crate::{Encoder, Failure, InferRequest, Model, NamedValue, Reason, Signature, TensorSpec, Value};

/// Settings of a served model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The most rows of several requests that are computed at once, and the most texts that are written at once; 1
    /// keeps requests apart. A request with more rows is computed by itself.
    pub max_batch_size: usize,
    /// The most requests that may wait; further ones are rejected.
    pub max_queue: usize,
    /// How long a request without a deadline may wait before it is dropped. `None`: until its turn comes.
    pub timeout: Option<Duration>,
    /// How urgent a request can be: from 1, the most urgent, to this.
    pub priority_levels: u64,
    /// The most sequences that may be open at once.
    pub max_sequences: usize,
    /// The most bytes that the states of all open sequences may take; a request that would exceed it gets an error.
    pub max_sequence_bytes: usize,
    /// A sequence without requests for this long is closed, and its states are freed.
    pub sequence_timeout: Duration,
}

impl Default for Settings {
    /// Batches of 32, 256 waiting requests, each for at most 60 s, 3 priorities, and 1,024 sequences with states of 256
    /// MiB that are silent for at most 60 s.
    fn default() -> Self {
        Self {
            max_batch_size: 32,
            max_queue: 256,
            timeout: Some(Duration::from_secs(60)),
            priority_levels: 3,
            max_sequences: 1024,
            max_sequence_bytes: 256 << 20,
            sequence_timeout: Duration::from_secs(60),
        }
    }
}

impl Settings {
    /// The priority of requests that give none: the middle level.
    pub fn default_priority(&self) -> u64 {
        self.priority_levels.div_ceil(2)
    }
}

/// A model that is faster than this runs on the thread that reads requests, since waking another thread would take as
/// long.
const BRIEF: Duration = Duration::from_micros(200);

/// After this many consecutive requests that were computed alone, only every eighth request waits
/// for others to join it.
const ALONE: u32 = 8;

/// How often sequences are checked for their timeout.
const LOOK: Duration = Duration::from_secs(1);

/// Once this many bytes of states are freed, it is worth the time to return memory to the system.
const MUCH: usize = 1 << 20;

/// A loaded model with the requests that wait for it.
pub(crate) struct Service {
    model: Arc<dyn Model>,
    settings: Settings,
    pool: Pool,
    queue: Mutex<Queue>,
    pub(crate) statistics: Arc<Statistics>,
    /// How long a run takes, in nanoseconds, averaged over the last ones.
    typical: AtomicU64,
    /// The number of consecutive requests that were computed alone.
    alone: AtomicU32,
    /// Whether a turn is scheduled, by a request or in the pool.
    is_called: AtomicBool,
    /// Whether the task that closes silent sequences is running.
    is_watched: AtomicBool,
    /// The texts in progress.
    desk: Desk,
    /// When it was loaded.
    since: SystemTime,
}

/// The outputs of one request, in the signature's order.
type Outputs = Vec<Value>;

impl Service {
    /// Puts a model into service. `first` is how long its first run took; a model that was not run is assumed to be too
    /// slow for the thread that reads requests.
    pub(crate) fn new(
        model: Arc<dyn Model>,
        settings: Settings,
        pool: Pool,
        statistics: Arc<Statistics>,
        first: Option<Duration>,
    ) -> Arc<Self> {
        Arc::new(Self {
            model,
            settings,
            pool,
            queue: Mutex::default(),
            statistics,
            typical: AtomicU64::new(nanoseconds(first.unwrap_or(BRIEF))),
            alone: AtomicU32::new(0),
            is_called: AtomicBool::new(false),
            is_watched: AtomicBool::new(false),
            desk: Desk::default(),
            since: SystemTime::now(),
        })
    }

    pub(crate) fn signature(&self) -> &Signature {
        self.model.signature()
    }

    pub(crate) fn platform(&self) -> &str {
        self.model.platform()
    }

    pub(crate) fn metadata(&self) -> &[(String, String)] {
        self.model.metadata()
    }

    /// The model as one that computes vectors of texts.
    pub(crate) fn encoder(&self) -> Option<&dyn Encoder> {
        self.model.encoder()
    }

    /// How many rows may be computed at once.
    pub(crate) fn max_batch_size(&self) -> usize {
        match self.signature().is_batched() {
            true => self.settings.max_batch_size.max(1),
            false => 1,
        }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// When the model was loaded.
    pub(crate) fn since(&self) -> SystemTime {
        self.since
    }

    pub(crate) fn waiting(&self) -> usize {
        self.queue().len()
    }

    /// Fails if one more request would be rejected.
    pub(crate) fn admit(&self) -> Result<(), Failure> {
        let admitted = self.queue().admit(&self.settings);
        admitted.inspect_err(|failure| self.refused(failure))
    }

    /// Why requests are kept apart although their extents would allow joining them.
    pub(crate) fn apart(&self) -> Option<&str> {
        self.model.apart()
    }

    /// Starts a task that closes sequences after their timeout even if no further request arrives.
    fn watch_sequences(self: &Arc<Self>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if self.is_watched.swap(true, Ordering::AcqRel) {
            return;
        }
        let (service, mut trims) = (Arc::downgrade(self), 0);
        runtime.spawn(async move {
            while let Some((still, next)) = service.upgrade().and_then(|service| service.look(trims)) {
                trims = still;
                tokio::time::sleep_until(next.into()).await;
            }
        });
    }

    /// Closes sequences whose timeout has passed. After a check that freed much, the next two checks return memory to
    /// the system: answers may hold it until then, and the allocator keeps what the first trim frees for a while.
    /// `trims` is how many of these two are left. Returns how many are left afterwards and when to check again, or
    /// `None` if there is nothing left to check.
    fn look(&self, trims: u8) -> Option<(u8, Instant)> {
        let now = Instant::now();
        let (still, next) = {
            let mut queue = self.queue();
            let (freed, next) = queue.sequences.look(now, self.settings.sequence_timeout);
            let still = if freed >= MUCH { 2 } else { trims.saturating_sub(1) };
            let next = next.or_else(|| (still > 0).then_some(now + LOOK));
            // Still under the lock, so that no sequence is opened in between.
            self.is_watched.store(next.is_some(), Ordering::Release);
            (still, next)
        };
        if trims > 0 {
            self.model.trim();
        }
        next.map(|next| (still, next.min(now + LOOK)))
    }

    fn refused(&self, failure: &Failure) {
        if matches!(failure.reason, Reason::Busy(_)) {
            self.statistics.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a request, once its turn comes, alone or in a batch. Dropping the future cancels the request.
    pub(crate) async fn infer(self: &Arc<Self>, request: InferRequest) -> Result<Vec<NamedValue>, Failure> {
        let since = Instant::now();
        let is_sequence = request.sequence.is_some();
        let answer = self.wait(request, since).await;
        match &answer {
            Ok(_) => self.statistics.answered(since.elapsed()),
            Err(_) => self.statistics.fail.add(since.elapsed()),
        }
        let signature = self.signature();
        let outputs = signature.outputs.iter().zip(answer?).enumerate();
        let shown = outputs.filter(|(place, _)| !(is_sequence && signature.is_state_output(*place)));
        let named = shown.map(|(_, (spec, value))| NamedValue {
            name: spec.name.clone(),
            value,
        });
        Ok(named.collect())
    }

    async fn wait(self: &Arc<Self>, request: InferRequest, since: Instant) -> Result<Outputs, Failure> {
        let (reply, answer) = oneshot::channel();
        let is_sequence = request.sequence.is_some();
        let job = self.job(request, since, reply)?;
        let pushed = self.queue().push(job, &self.settings);
        pushed.inspect_err(|failure| self.refused(failure))?;
        if is_sequence {
            self.watch_sequences();
        }
        self.call().await;
        let gone = |_| Failure::new(Reason::Internal, "the model was dropped before it answered");
        answer.await.map_err(gone)?
    }

    /// Turns a request into a job for the queue.
    fn job(&self, request: InferRequest, since: Instant, reply: Reply) -> Result<Box<Job>, Failure> {
        let signature = self.signature();
        if request.sequence.is_some() && signature.states.is_empty() {
            return Err(Failure::invalid(
                "this model has no states, so it takes no sequence_id: leave it out",
            ));
        }
        if request.priority > self.settings.priority_levels {
            return Err(Failure::invalid(format!(
                "priority {} is above the lowest, {}",
                request.priority, self.settings.priority_levels
            )));
        }
        let inputs = self.place(request.inputs, request.sequence.is_some())?;
        let (rows, group) = fit(signature, &inputs)?;
        Ok(Box::new(Job {
            inputs,
            rows,
            group,
            priority: match request.priority {
                0 => self.settings.default_priority(),
                priority => priority,
            },
            deadline: request.deadline,
            sequence: request.sequence,
            since,
            reply,
        }))
    }

    /// The inputs in the signature's order; `None` for the states of a sequence.
    fn place(&self, given: Vec<NamedValue>, is_sequence: bool) -> Result<Inputs, Failure> {
        let signature = self.signature();
        let mut inputs: Inputs = signature.inputs.iter().map(|_| None).collect();
        for NamedValue { name, value } in given {
            let Some(place) = signature.inputs.iter().position(|spec| spec.name == name) else {
                return Err(Failure::invalid(format!(
                    "the model has no input {name:?}; it takes {}",
                    names(&signature.inputs)
                )));
            };
            if is_sequence && signature.is_state_input(place) {
                return Err(Failure::invalid(format!(
                    "the input {name:?} is a state, which the server keeps for a sequence: leave it or sequence_id out"
                )));
            }
            signature.inputs[place]
                .check(&value)
                .map_err(|error| Failure::of_run(&error))?;
            if inputs[place].replace(value).is_some() {
                return Err(Failure::invalid(format!("the input {name:?} was given twice")));
            }
        }
        signature.fill(&mut inputs).map_err(|error| Failure::of_run(&error))?;
        let missing = inputs.iter().enumerate().find(|(place, input)| {
            let is_kept = is_sequence && signature.is_state_input(*place);
            input.is_none() && !is_kept
        });
        match missing {
            None => Ok(inputs),
            Some((place, _)) => Err(Failure::invalid(format!(
                "the input {:?} is missing; the model takes {}",
                signature.inputs[place].name,
                names(&signature.inputs)
            ))),
        }
    }

    /// Makes sure that the waiting requests are computed: by this request's own thread if the model is
    /// fast, else by the pool.
    async fn call(self: &Arc<Self>) {
        if self.is_called.swap(true, Ordering::AcqRel) {
            return;
        }
        let caller = Caller(self);
        let alone = self.alone.load(Ordering::Relaxed);
        let looks = alone < ALONE || alone.is_multiple_of(ALONE);
        let (mut before, mut now) = (0, self.waiting());
        // As long as new requests keep coming in, let them be read first, so that they join the batch.
        while looks && before < now && now < self.max_batch_size() {
            tokio::task::yield_now().await;
            (before, now) = (now, self.waiting());
        }
        let alone = if now > 1 { 0 } else { alone.wrapping_add(1) };
        self.alone.store(alone, Ordering::Relaxed);
        let is_brief = self.typical.load(Ordering::Relaxed) < nanoseconds(BRIEF);
        if is_brief && !self.queue().has_more_rows(self.max_batch_size()) {
            caller.compute();
        }
    }

    /// Computes one batch of the waiting requests; the pool computes the rest.
    fn take_turn(self: &Arc<Self>) {
        // Requests that arrive from here on schedule a turn of their own.
        self.is_called.store(false, Ordering::Release);
        let time = Duration::from_nanos(self.typical.load(Ordering::Relaxed));
        let taken = self
            .queue()
            .take(self.signature(), self.max_batch_size(), time, self.settings.timeout);
        for (job, failure) in taken.dropped {
            match failure {
                Some(failure) => {
                    self.statistics
                        .late
                        .fetch_add(u64::from(failure.reason == Reason::Late), Ordering::Relaxed);
                    // The client may have disconnected.
                    let _ = job.reply.send(Err(failure));
                }
                None => drop(self.statistics.cancelled.fetch_add(1, Ordering::Relaxed)),
            }
        }
        self.pass_on(taken.leaves_more);
        if !taken.jobs.is_empty() {
            self.compute(taken.jobs, taken.at);
            // The next steps of these sequences can be computed now.
            self.pass_on(!self.signature().states.is_empty() && self.queue().is_ready());
        }
    }

    /// Hands the next turn to the pool, if there is something to compute.
    fn pass_on(self: &Arc<Self>, is_ready: bool) {
        if is_ready && !self.is_called.swap(true, Ordering::AcqRel) {
            self.pool.push(Arc::clone(self));
        }
    }
}

/// A request that takes the next turn itself, since no turn is scheduled yet. If it is dropped before it computes, for
/// instance because the request is cancelled, the pool takes the turn.
struct Caller<'a>(&'a Arc<Service>);

impl Caller<'_> {
    fn compute(self) {
        let service = self.0;
        std::mem::forget(self);
        service.take_turn();
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.0.pool.push(Arc::clone(self.0));
    }
}

type Reply = oneshot::Sender<Result<Outputs, Failure>>;
type Inputs = Vec<Option<Value>>;
/// What must be equal for requests to be joined: all extents that are not fixed, except the rows, and the addresses of
/// the values of inputs that have a default value.
type Group = SmallVec<[usize; 4]>;

fn names(specs: &[TensorSpec]) -> String {
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    names.join(", ")
}

/// The number of rows and the group of inputs, which fit their types; fails unless extents of one name are equal.
fn fit(signature: &Signature, inputs: &Inputs) -> Result<(usize, Group), Failure> {
    use polygrad_onnx::graph::Dim;
    let mut rows: Option<(usize, &str)> = None;
    let mut known: SmallVec<[(&str, usize, &str); 4]> = SmallVec::new();
    let mut group = Group::new();
    let given = signature.inputs.iter().zip(inputs);
    for (spec, value) in given.filter_map(|(spec, value)| Some((spec, value.as_ref()?))) {
        let shape: &Shape = value.shape();
        if spec.default_value().is_some() {
            group.push(value.address());
        }
        for (axis, (dim, &extent)) in spec.dims.iter().zip(shape.iter()).enumerate() {
            let differs = |other: usize, of: &str| {
                Failure::invalid(format!(
                    "the shapes do not fit: axis {axis} of {:?} has extent {extent}, and {of:?} has {other}",
                    spec.name
                ))
            };
            if spec.batch == Some(axis) {
                match rows {
                    Some((other, of)) if other != extent => return Err(differs(other, of)),
                    _ => rows = Some((extent, &spec.name)),
                }
                continue;
            }
            if let Dim::Named(name) = dim {
                match known.iter().find(|(found, ..)| found == name) {
                    Some(&(_, other, of)) if other != extent => return Err(differs(other, of)),
                    Some(_) => {}
                    None => known.push((name, extent, &spec.name)),
                }
            }
            if !matches!(dim, Dim::Fixed(_)) {
                group.push(extent);
            }
        }
    }
    match rows {
        Some((rows, _)) => Ok((rows, group)),
        None => Ok((1, group)),
    }
}
