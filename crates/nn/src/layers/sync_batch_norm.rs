//! Batch normalisation over the joined batch of several processes.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polygrad_core::communicator::{Communicator, HostSlice, HostSliceMut, Reduction};
use polygrad_core::program::{Call, call};
use polygrad_core::{AnyTensor, HostTensor};
use polygrad_tensor::{AnyBackend, Backend, CustomOp, Error, Result, Tensor, is_grad_enabled, no_grad};

use crate::{Item, Visit, Visitor};

/// Synchronizes all [`BatchNorm`](crate::BatchNorm)s of a model, as PyTorch's `SyncBatchNorm.convert_sync_batchnorm`:
/// in training, mean and variance are then those of the joined batch of all ranks, whose parts may differ in size, and
/// gradients flow through them to the inputs of all ranks. In evaluation nothing is exchanged. Names, state and exports
/// of the layers stay the same. Returns the number of layers.
///
/// Every rank has to call this, and then to make the same forward and backward passes in training. The layers
/// communicate through a [duplicate](Communicator::duplicate) of the group, so that gradients of parameters can be
/// exchanged at the same time. Call it again after [`Communicator::shrink`] to give the layers the new group.
///
/// The gradients of a rank's inputs and parameters are those of the sum of all ranks' losses, as in PyTorch. If
/// gradients are then averaged with weights instead of summed, set these with [`SyncGroup::set_weight`]. There are no
/// second derivatives.
///
/// # Errors
/// [`Unsupported`](polygrad_tensor::ErrorKind::Unsupported) if the engine has no second group; other errors of
/// [`Communicator::duplicate`].
pub fn sync_batch_norm<B: Backend>(model: &(impl Visit<B> + ?Sized), communicator: &dyn Communicator) -> Result<usize> {
    let mut count = 0;
    Visitor::walk(model, |_, item: Item<'_, B>| {
        count += usize::from(matches!(item, Item::Sync(_)))
    });
    if count == 0 {
        return Ok(0);
    }
    let group = Arc::new(SyncGroup::new(communicator.duplicate()?));
    Visitor::walk(model, |_, item: Item<'_, B>| {
        if let Item::Sync(slot) = item {
            *slot.lock() = Some(Arc::clone(&group));
        }
    });
    Ok(count)
}

/// The ranks over which layers are synchronized; all layers of a model share one.
pub struct SyncGroup {
    ranks: Arc<Ranks>,
    // Stored once, so that two recordings refer to the same calls.
    statistics: Arc<dyn Call>,
    gradients: Arc<dyn Call>,
}

/// The slot for a layer's [`SyncGroup`], if it has one.
#[derive(Debug, Default)]
pub struct SyncSlot(Mutex<Option<Arc<SyncGroup>>>);

#[derive(Debug)]
struct Ranks {
    communicator: Arc<dyn Communicator>,
    /// The weight, as the bits of an f64.
    weight: AtomicU64,
}

impl SyncGroup {
    fn new(communicator: Arc<dyn Communicator>) -> Self {
        let ranks = Arc::new(Ranks {
            communicator,
            weight: AtomicU64::new(1f64.to_bits()),
        });
        Self {
            statistics: Arc::new(Statistics(Arc::clone(&ranks))),
            gradients: Arc::new(Sums(Arc::clone(&ranks))),
            ranks,
        }
    }

    /// The group of a model's layers, if they are synchronized.
    pub fn of<B: Backend>(model: &(impl Visit<B> + ?Sized)) -> Option<Arc<Self>> {
        let mut found = None;
        Visitor::walk(model, |_, item: Item<'_, B>| {
            if let Item::Sync(slot) = item
                && found.is_none()
            {
                found = slot.get();
            }
        });
        found
    }

    /// Sets the weight of this rank's next batches: the factor, in any unit, by which its gradients are multiplied
    /// before those of all ranks are summed, such as the rank's share of the joined batch if losses are means. A batch
    /// of weight 0 or less is not part of the joined batch: it does not count in mean and variance, but is normalised
    /// by them like the others. Default: 1.
    pub fn set_weight(&self, weight: f64) {
        self.ranks.weight.store(weight.max(0.0).to_bits(), Ordering::Relaxed);
    }

    /// The normalised input, with mean and biased variance of the joined batch.
    pub(super) fn batch_norm<B: Backend>(
        self: &Arc<Self>,
        input: &Tensor<B>,
        weight: Option<&Tensor<B>>,
        bias: Option<&Tensor<B>>,
        eps: f64,
    ) -> Result<(Tensor<B>, Tensor<B>, Tensor<B>)> {
        let x = widened(input)?;
        let (weight, bias) = (weight.map(widened).transpose()?, bias.map(widened).transpose()?);
        let (_, mean, var) = no_grad(|| x.detach().batch_norm(None, None, eps))?;
        let [mean, var, unbiased] = exchanged(&self.statistics, [&mean, &var, &x])?;
        let op = SyncBatchNorm {
            group: Arc::clone(self),
            has_weight: weight.is_some(),
            has_bias: bias.is_some(),
            eps,
        };
        let inputs = [Some(&x), Some(&mean), Some(&var), weight.as_ref(), bias.as_ref()];
        let inputs: Vec<&Tensor<B>> = inputs.into_iter().flatten().collect();
        let y = Tensor::custom(op, &inputs)?.to_dtype(input.dtype())?;
        Ok((y, mean, unbiased))
    }
}

impl Ranks {
    fn weight(&self) -> f64 {
        f64::from_bits(self.weight.load(Ordering::Relaxed))
    }
}

impl SyncSlot {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<SyncGroup>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The group, if the layer is synchronized.
    pub fn get(&self) -> Option<Arc<SyncGroup>> {
        self.lock().clone()
    }
}

impl<B: Backend> Visit<B> for SyncSlot {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        visitor.item(Item::Sync(self));
    }
}

impl fmt::Debug for SyncGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SyncGroup").field(&self.ranks).finish()
    }
}

/// f16 and bf16 converted to f32.
fn widened<B: Backend>(x: &Tensor<B>) -> Result<Tensor<B>> {
    x.to_dtype(x.dtype().wide())
}

/// The outputs of a call on tensors.
fn exchanged<B: Backend, const IN: usize, const OUT: usize>(
    what: &Arc<dyn Call>,
    inputs: [&Tensor<B>; IN],
) -> Result<[Tensor<B>; OUT]> {
    // Passes the recording's own tensors, if a recording is running.
    let erased = inputs.map(|x| {
        let inner: &dyn Any = x.inner();
        let known = inner.downcast_ref::<AnyTensor>().cloned();
        known.unwrap_or_else(|| AnyTensor::new::<B>(x.inner().clone()))
    });
    let typed = |x: &AnyTensor| {
        let any: &dyn Any = x;
        let inner = any.downcast_ref::<B::Tensor>().or_else(|| x.downcast_ref::<B>());
        inner.cloned().map(Tensor::from_inner)
    };
    let outputs = call(what, &erased.each_ref())?;
    let outputs: Option<Vec<_>> = outputs.iter().map(typed).collect();
    outputs
        .and_then(|outputs| outputs.try_into().ok())
        .ok_or_else(|| Error::invalid("results came on another backend"))
}

/// The inputs of a call as an array; [`exchanged`] always passes this number.
fn named<const N: usize>(inputs: &[AnyTensor]) -> Result<&[AnyTensor; N]> {
    inputs
        .try_into()
        .map_err(|_| Error::invalid(format!("takes {N} tensors, not {}", inputs.len())))
}

fn on_host(x: &AnyTensor) -> Result<Vec<f64>> {
    AnyBackend::to_host(x)?.try_to_f64_vec()
}

/// One value for each channel, with the shape, dtype and device of `like`.
fn beside(like: &AnyTensor, values: Vec<f64>) -> Result<AnyTensor> {
    let host = HostTensor::new(like.shape(), values)?.try_cast(like.dtype())?;
    AnyBackend::from_host(host, &AnyBackend::device(like))
}

/// Number of values of each channel.
fn count(x: &AnyTensor) -> f64 {
    let shape = x.shape();
    (shape.numel() / shape[1].max(1)) as f64
}

/// From mean and variance of this rank's `x` to mean, variance and unbiased variance of the joined batch.
struct Statistics(Arc<Ranks>);

impl Call for Statistics {
    fn name(&self) -> &'static str {
        "sync_batch_norm"
    }

    fn run(&self, inputs: &[AnyTensor]) -> Result<Vec<AnyTensor>> {
        let [mean, var, x] = named(inputs)?;
        let mut own = vec![if self.0.weight() > 0.0 { count(x) } else { 0.0 }];
        own.extend(on_host(mean)?);
        own.extend(on_host(var)?);
        let group = &*self.0.communicator;
        let mut all = vec![0.0; own.len() * group.size()];
        group.all_gather(HostSlice::new(&own), HostSliceMut::new(&mut all))?;
        let parts: Vec<(f64, &[f64])> = all
            .chunks_exact(own.len())
            .filter(|part| part[0] > 0.0)
            .map(|part| (part[0], &part[1..]))
            .collect();
        let total: f64 = parts.iter().map(|(count, _)| count).sum();
        if total < 2.0 {
            return Err(
                Error::shape("each channel needs more than one value in training, on all ranks together")
                    .with_hint("take a larger batch, or switch the model to evaluation with eval()"),
            );
        }
        // Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979).
        let channels = own.len() / 2;
        let joined = |of: &dyn Fn(&[f64]) -> f64| parts.iter().map(|(count, part)| count * of(part)).sum::<f64>();
        let means: Vec<f64> = (0..channels).map(|c| joined(&|part| part[c]) / total).collect();
        let squares = |c: usize| joined(&|part| part[channels + c] + (part[c] - means[c]).powi(2));
        let squares: Vec<f64> = (0..channels).map(squares).collect();
        let over = |count: f64| squares.iter().map(|x| x / count).collect();
        let (var, unbiased) = (beside(var, over(total))?, beside(var, over(total - 1.0))?);
        Ok(vec![beside(mean, means)?, var, unbiased])
    }
}

/// From the sums of gradients over this rank's `x`, plain and times the normalised values, to the differences between
/// their means here and over the joined batch.
struct Sums(Arc<Ranks>);

impl Call for Sums {
    fn name(&self) -> &'static str {
        "sync_batch_norm"
    }

    fn run(&self, inputs: &[AnyTensor]) -> Result<Vec<AnyTensor>> {
        let [plain, along, x] = named(inputs)?;
        let (weight, count) = (self.0.weight(), count(x));
        let own = [on_host(plain)?, on_host(along)?].concat();
        let mut sums: Vec<f64> = match weight > 0.0 {
            true => own.iter().map(|sum| sum * weight).chain([count]).collect(),
            false => vec![0.0; own.len() + 1],
        };
        self.0
            .communicator
            .all_reduce(HostSliceMut::new(&mut sums), Reduction::Sum)?;
        let total = sums.pop().unwrap_or_default();
        let apart = |(own, sum): (&f64, &f64)| match weight > 0.0 {
            true => own / count - sum / (weight * total),
            false => 0.0,
        };
        let mut apart: Vec<f64> = own.iter().zip(&sums).map(apart).collect();
        let rest = apart.split_off(apart.len() / 2);
        Ok(vec![beside(plain, apart)?, beside(along, rest)?])
    }
}

/// Normalises by statistics of the joined batch, and lets the gradient flow through them.
struct SyncBatchNorm {
    group: Arc<SyncGroup>,
    has_weight: bool,
    has_bias: bool,
    eps: f64,
}

impl SyncBatchNorm {
    /// Input, mean and variance; weight and bias.
    #[expect(clippy::type_complexity, reason = "said once")]
    fn parts<'a, B: Backend>(
        &self,
        inputs: &'a [Tensor<B>],
    ) -> Result<([&'a Tensor<B>; 3], [Option<&'a Tensor<B>>; 2])> {
        let [x, mean, var, affine @ ..] = inputs else {
            return Err(Error::invalid("takes an input, a mean and a variance"));
        };
        let mut affine = affine.iter();
        let affine = [self.has_weight, self.has_bias].map(|has| has.then(|| affine.next()).flatten());
        Ok(([x, mean, var], affine))
    }
}

impl<B: Backend> CustomOp<B> for SyncBatchNorm {
    fn name(&self) -> &str {
        "sync_batch_norm"
    }

    fn forward(&self, inputs: &[Tensor<B>]) -> Result<Tensor<B>> {
        let ([x, mean, var], [weight, bias]) = self.parts(inputs)?;
        x.batch_norm_running(mean, var, weight, bias, self.eps)
    }

    fn backward(&self, inputs: &[Tensor<B>], _: &Tensor<B>, grad: &Tensor<B>) -> Result<Vec<Option<Tensor<B>>>> {
        if is_grad_enabled() {
            return Err(Error::unsupported("there are no second derivatives across ranks")
                .with_hint("leave create_graph out, or leave the layers as they were"));
        }
        let ([x, mean, var], [weight, _]) = self.parts(inputs)?;
        let (grad_x, along, plain) = B::batch_norm_backward(
            grad.inner(),
            x.inner(),
            mean.inner(),
            var.inner(),
            weight.map(Tensor::inner),
            self.eps,
        )?;
        let [grad_x, along, plain] = [grad_x, along, plain].map(Tensor::from_inner);
        // That is the gradient for this rank's own means; the correction has the form of a normalisation.
        let [plain_apart, along_apart] = exchanged(&self.group.gradients, [&plain, &along, x])?;
        let mut scale = (var + self.eps)?.rsqrt()?;
        if let Some(weight) = weight {
            scale = scale.mul(weight)?;
        }
        let (slope, shift) = (along_apart.mul(&scale)?, plain_apart.mul(&scale)?);
        let missing = x.batch_norm_running(mean, var, Some(&slope), Some(&shift), self.eps)?;
        let mut gradients = vec![Some(grad_x.add(&missing)?), None, None];
        gradients.extend(self.has_weight.then_some(Some(along)));
        gradients.extend(self.has_bias.then_some(Some(plain)));
        Ok(gradients)
    }
}
