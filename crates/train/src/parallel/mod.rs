//! Data parallelism: several processes train one model, each on a part of each batch.

mod bucket;
mod plan;
mod queue;
mod same;
mod sharded;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use polygrad_core::communicator::Communicator;
use polygrad_core::program::{Call, call};
use polygrad_core::{DType, Error, ErrorKind, Result};
use polygrad_nn::{GradientSync, Module, Param};
use polygrad_tensor::{GradId, Gradients, Tensor, no_grad};

use bucket::{Add, Bucket, Member, Round};
use queue::Queue;

pub use plan::{BucketProfile, Link, PlanConfig, Prediction, StepProfile};
pub use queue::Span;
pub use sharded::ShardedOptimizer;

/// Default size of a bucket in bytes.
const BUCKET_BYTES: usize = 1 << 20;

/// Sums the gradients of all ranks, each of which has a part of the batch, while the backward pass still computes other
/// gradients.
///
/// Gradients are sent in buckets, those of the last layers first. Each bucket is sent as soon as its gradients are
/// ready and the buckets before it are sent. In a step that is not captured, with a
/// [checkpoint](polygrad_tensor::checkpoint()) in its graph, none is sent before the last segment has been recomputed,
/// since it might use any parameter. Sums are computed in f32, or in f64 for parameters of f64.
///
/// Every rank must have the same parameters with the same values, and take the same steps. A
/// [`Trainer`](crate::Trainer) does all of this with [`TrainerConfig::parallel`](crate::TrainerConfig::parallel); in
/// your own loop, pass this to [`TrainStep::gradient_sync`](polygrad_nn::TrainStep::gradient_sync):
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use polygrad_threads::Threads;
/// use polygrad_nn::{Linear, Module, TrainStep, loss::mse_loss, optim::SGD};
/// use polygrad_tensor::{Device, Result, Tensor, manual_seed};
/// use polygrad_train::DataParallel;
///
/// # fn main() -> Result<()> {
/// let ranks = Threads::group(2, Duration::from_secs(60))?;
/// let weights: Vec<f32> = std::thread::scope(|scope| {
///     let rank = |end: Threads| -> Result<f32> {
///         let device = Device::<polygrad_cpu::Cpu>::default().into_any();
///         manual_seed(0);
///         let model = Linear::new(1, 1, &device)?;
///         let x = Tensor::full([4, 1], 1.0 + polygrad_core::communicator::Communicator::rank(&end) as f32, &device)?;
///         let parallel = Arc::new(DataParallel::new(Arc::new(end), &model)?);
///         let optimizer = SGD::new(model.parameters(), 0.1)?;
///         let loss = |model: &Linear, batch: &[Tensor]| mse_loss(&model.forward(&batch[0])?, &batch[0]);
///         let mut step = TrainStep::new(model, optimizer, loss).gradient_sync(parallel).captured();
///         for _ in 0..10 {
///             step.step(std::slice::from_ref(&x))?;
///         }
///         Ok(step.model().weight.tensor().item()? as f32)
///     };
///     let started: Vec<_> = ranks.into_iter().map(|end| scope.spawn(move || rank(end))).collect();
///     started.into_iter().map(|rank| rank.join().expect("no panic")).collect::<Result<_>>()
/// })?;
/// assert_eq!(weights[0].to_bits(), weights[1].to_bits());
/// # Ok(())
/// # }
/// ```
///
/// Source: Li et al., "PyTorch distributed: experiences on accelerating data parallel training" (2020).
pub struct DataParallel {
    communicator: RwLock<Arc<dyn Communicator>>,
    queue: Arc<RwLock<Queue>>,
    params: Vec<Param>,
    names: Vec<String>,
    buckets: Vec<Arc<Bucket>>,
    round: Arc<Mutex<Round>>,
    /// Kept so that a later recording finds the same calls.
    calls: Mutex<Vec<Known>>,
    pass: Mutex<Pass>,
}

/// A running backward pass.
#[derive(Default)]
struct Pass {
    /// The bucket of each parameter's gradient, and its place in it.
    places: HashMap<u64, (usize, usize)>,
    /// The gradients of the buckets that are not sent yet.
    found: Vec<Vec<Option<Tensor>>>,
    /// Number of sent buckets, which are the first ones.
    sent: usize,
}

/// The call that sends a bucket in which these members have a gradient.
struct Known {
    bucket: usize,
    present: Vec<usize>,
    call: Arc<dyn Call>,
}

/// The gradients summed over all ranks.
#[derive(Debug)]
pub(crate) struct Reduced {
    pub(crate) gradients: Gradients,
    /// The mean loss over the joined batches, times the number of batches.
    pub(crate) loss: f64,
    /// Whether any rank wants to stop.
    pub(crate) stops: bool,
}

impl DataParallel {
    /// For a model's trainable parameters, in buckets of 1 MiB, with the same number of examples on each rank.
    ///
    /// # Errors
    /// A model without trainable parameters; when no thread can be started.
    pub fn new(communicator: Arc<dyn Communicator>, model: &(impl Module + ?Sized)) -> Result<Self> {
        Self::with_bucket_bytes(communicator, model, BUCKET_BYTES)
    }

    /// As [`DataParallel::new`], in buckets of at most `bytes` bytes, or of one gradient if it is larger.
    ///
    /// # Errors
    /// As [`DataParallel::new`].
    pub fn with_bucket_bytes(
        communicator: Arc<dyn Communicator>,
        model: &(impl Module + ?Sized),
        bytes: usize,
    ) -> Result<Self> {
        let named = model.named_parameters();
        let (names, params): (Vec<String>, Vec<Param>) = named.into_iter().filter(|(_, p)| p.is_trainable()).unzip();
        if params.is_empty() {
            return Err(Error::invalid("the model has no parameters to train").with_op("DataParallel"));
        }
        Ok(Self {
            queue: Arc::new(RwLock::new(Queue::start(Arc::clone(&communicator))?)),
            buckets: buckets(&params, bytes),
            round: Arc::new(Mutex::new(Round::of(&*communicator))),
            communicator: RwLock::new(communicator),
            params,
            names,
            calls: Mutex::default(),
            pass: Mutex::default(),
        })
    }

    /// The group.
    pub fn communicator(&self) -> Arc<dyn Communicator> {
        let group = self.communicator.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&group)
    }

    /// Continues with another group, such as [the remaining ranks](Communicator::shrink) of this one. Pending sums are
    /// discarded, and each rank again counts the same number of examples. A captured step that uses this remains valid.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn rejoin(&self, group: &Arc<dyn Communicator>) -> Result<()> {
        let queue = Queue::start(Arc::clone(group))?;
        *self.queue.write().unwrap_or_else(PoisonError::into_inner) = queue;
        *self.communicator.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(group);
        self.set(Round::of(&**group));
        self.buckets.iter().for_each(|bucket| bucket.forget());
        Ok(())
    }

    fn set(&self, round: Round) {
        *self.round.lock().unwrap_or_else(PoisonError::into_inner) = round;
    }

    fn queue(&self) -> RwLockReadGuard<'_, Queue> {
        self.queue.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&self) -> MutexGuard<'_, Pass> {
        self.pass.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of buckets.
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// The times of the sums since the last call, to see how far they overlap with the backward pass.
    pub fn take_spans(&self) -> Vec<Span> {
        self.queue().take_spans()
    }

    /// Sets how the gradients of the next batches count. Default: all ranks equally, and each batch is summed
    /// separately.
    pub(crate) fn set_round(&self, weight: f64, sends: bool, stops: bool) {
        self.set(Round { weight, sends, stops });
    }

    /// Sends the sums of accumulated batches that have not been sent, because the epoch ends before the next batch.
    pub(crate) fn flush(&self) -> Result<()> {
        let round = Round {
            weight: 0.0,
            sends: true,
            stops: false,
        };
        let nothing = polygrad_core::HostTensor::scalar(0f32);
        for bucket in &self.buckets {
            bucket.add(&[], std::slice::from_ref(&nothing), round, &self.queue())?;
        }
        Ok(())
    }

    /// Waits for the gradients of all ranks. A parameter without a gradient on any rank gets none.
    pub(crate) fn reduced(&self) -> Result<Reduced> {
        let (mut found, mut notes) = (Vec::with_capacity(self.params.len()), [0.0; bucket::NOTES]);
        for bucket in &self.buckets {
            let landed = bucket.land()?;
            let device = self.params[bucket.members[0].param].device();
            let whole = Tensor::from_host(landed.values, &device)?;
            for (member, has_gradient) in bucket.members.iter().zip(landed.has_gradient) {
                if has_gradient {
                    let own = whole.narrow(0, member.start, member.shape.numel())?;
                    let own = no_grad(|| own.reshape(member.shape)?.to_dtype(member.dtype))?;
                    found.push((&self.params[member.param], own));
                }
            }
            notes = landed.notes;
        }
        let [loss, stops] = notes;
        Ok(Reduced {
            gradients: Gradients::new(found),
            loss,
            stops: stops > 0.0,
        })
    }

    fn call(&self, bucket: &Arc<Bucket>, present: Vec<usize>) -> Arc<dyn Call> {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |known: &&Known| known.bucket == bucket.number && known.present == present;
        if let Some(known) = calls.iter().find(is_it) {
            return Arc::clone(&known.call);
        }
        let call: Arc<dyn Call> = Arc::new(Add {
            bucket: Arc::clone(bucket),
            present: present.clone(),
            round: Arc::clone(&self.round),
            queue: Arc::clone(&self.queue),
        });
        calls.push(Known {
            bucket: bucket.number,
            present,
            call: Arc::clone(&call),
        });
        call
    }
}

/// Divides the parameters into buckets, the last ones first, since their gradients are computed first.
fn buckets(params: &[Param], bytes: usize) -> Vec<Arc<Bucket>> {
    let mut parts: Vec<(DType, Vec<Member>)> = Vec::new();
    for (i, param) in params.iter().enumerate().rev() {
        let (shape, dtype) = (param.shape(), param.dtype());
        let sum = match dtype {
            DType::F64 => DType::F64,
            _ => DType::F32,
        };
        let end = |members: &[Member]| members.last().map_or(0, |last| last.start + last.shape.numel());
        let room = |(of, members): &&mut (DType, Vec<Member>)| {
            *of == sum && (end(members) + shape.numel()) * sum.size() <= bytes
        };
        let member = |start| Member {
            param: i,
            shape,
            dtype,
            start,
        };
        match parts.last_mut().filter(room) {
            Some((_, members)) => members.push(member(end(members))),
            None => parts.push((sum, vec![member(0)])),
        }
    }
    let last = parts.len() - 1;
    let bucket = |(i, (dtype, members))| Arc::new(Bucket::new(i, dtype, members, i == last));
    parts.into_iter().enumerate().map(bucket).collect()
}

impl GradientSync for DataParallel {
    fn begin(&self) {
        let members = |bucket: &Arc<Bucket>| {
            (0..bucket.members.len())
                .map(|i| (bucket.number, i))
                .collect::<Vec<_>>()
        };
        let places = self.buckets.iter().flat_map(members);
        let id = |(bucket, i): (usize, usize)| self.params[self.buckets[bucket].members[i].param].grad_id();
        *self.pass() = Pass {
            places: places.filter_map(|place| Some((id(place)?, place))).collect(),
            found: self
                .buckets
                .iter()
                .map(|bucket| vec![None; bucket.members.len()])
                .collect(),
            sent: 0,
        };
    }

    fn gradient(&self, leaf: u64, gradient: &Tensor) -> Result<()> {
        let pass = &mut *self.pass();
        // Gradients of tensors other than parameters are reported as unknown later.
        if let Some(&(bucket, member)) = pass.places.get(&leaf) {
            pass.found[bucket][member] = Some(gradient.clone());
        }
        // All ranks send the buckets in the same order. The last one waits for the loss.
        while let Some(bucket) = self.buckets.get(pass.sent).filter(|bucket| !bucket.is_last)
            && pass.found[pass.sent].iter().all(Option::is_some)
        {
            let whole = std::mem::take(&mut pass.found[pass.sent]);
            let values: Vec<_> = whole.iter().flatten().map(Tensor::inner).collect();
            call(&self.call(bucket, (0..values.len()).collect()), &values)?;
            pass.sent += 1;
        }
        Ok(())
    }

    fn ready(&self, loss: &Tensor, gradients: &Gradients) -> Result<()> {
        let (sent, rest) = self.buckets.split_at(std::mem::take(&mut *self.pass()).sent);
        let mut known: usize = sent.iter().map(|bucket| bucket.members.len()).sum();
        for bucket in rest {
            let members = bucket.members.iter().enumerate();
            let found = members.filter_map(|(i, member)| Some((i, gradients.get(&self.params[member.param])?)));
            let (present, mut values): (Vec<usize>, Vec<_>) = found.map(|(i, gradient)| (i, gradient.inner())).unzip();
            known += present.len();
            if bucket.is_last {
                values.push(loss.inner());
            }
            call(&self.call(bucket, present), &values)?;
        }
        match gradients.len() == known {
            true => Ok(()),
            false => Err(self.unknown(gradients)),
        }
    }

    fn finish(&self, gradients: Gradients) -> Result<Gradients> {
        // They have already been added to the sums.
        drop(gradients);
        Ok(self.reduced()?.gradients)
    }
}

impl DataParallel {
    #[cold]
    fn unknown(&self, gradients: &Gradients) -> Error {
        let names = gradients.iter().filter_map(|(name, _)| name);
        let unknown: Vec<&str> = names.filter(|name| !self.names.iter().any(|own| own == name)).collect();
        let message = match unknown.is_empty() {
            true => "there are gradients of tensors that are no parameters of the model".to_owned(),
            false => format!(
                "there are gradients of {}, which were not trained or not there when training began",
                unknown.join(", ")
            ),
        };
        Error::new(ErrorKind::InvalidArgument, message)
            .with_op("DataParallel")
            .with_hint("unfreeze parameters before the ranks are joined")
    }
}

impl std::fmt::Debug for DataParallel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataParallel")
            .field("communicator", &self.communicator())
            .field("buckets", &self.buckets.len())
            .finish_non_exhaustive()
    }
}
