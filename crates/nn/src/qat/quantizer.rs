//! Rounding of the operands of one layer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use polygrad_tensor::{Backend, Error, HostTensor, Result, Tensor, is_grad_enabled, no_grad};

use crate::lora::{Kind, Layer, Weight};
use crate::{Buffer, Item, Mode, Param, Visitor};

/// The integer range of inputs.
const BYTES: [i32; 2] = [0, 255];

/// The integer range of weights, which have no zero point.
const WEIGHTS: [i32; 2] = [-127, 127];

/// Rounds the input and the weight of a layer.
pub(crate) struct Quantizers<B: Backend> {
    /// Unique within the process.
    id: u64,
    input: Quantizer<B>,
    weight: Quantizer<B>,
    /// The weight that is rounded.
    of: Param<B>,
    /// The axis of its outputs.
    axis: usize,
    mode: Mode,
    /// Whether ranges may have to follow the numbers in training.
    following: AtomicBool,
    /// Number of further steps for which they do.
    remaining: Buffer<B>,
    /// Whether the input is observed and nothing is rounded.
    watching: AtomicBool,
    /// The smallest and largest input values so far.
    seen: Mutex<Option<[f64; 2]>>,
}

/// Rounds one tensor.
struct Quantizer<B: Backend> {
    /// The scales from calibration; NaN before it.
    scale: Buffer<B>,
    zero_point: Buffer<B>,
    /// The logarithm of the factor that training applies to them.
    log_range: Param<B>,
}

impl<B: Backend> Quantizers<B> {
    /// Quantizers for a layer, whose ranges are not known yet.
    pub(super) fn new(layer: &Layer<'_, B>) -> Result<Self> {
        let Weight::Param(weight) = layer.weight else {
            return Err(Error::unsupported("a weight that stays packed is not rounded again"));
        };
        let axis = match layer.kind {
            Kind::Linear | Kind::Conv { .. } => 0,
            Kind::Transposed => 1,
            Kind::Embedding { .. } => return Err(Error::unsupported("the rows of an embedding are not rounded")),
        };
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Ok(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            input: Quantizer::new(1, weight)?,
            weight: Quantizer::new(weight.shape()[axis], weight)?,
            of: weight.clone(),
            axis,
            mode: Mode::default(),
            following: AtomicBool::new(false),
            remaining: Buffer::new(&Tensor::full([1], 0.0, (&weight.device(), weight.dtype().wide()))?),
            watching: AtomicBool::new(false),
            seen: Mutex::new(None),
        })
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Input and weight, rounded.
    pub(crate) fn round(&self, x: &Tensor<B>, weight: &Tensor<B>) -> Result<(Tensor<B>, Tensor<B>)> {
        if self.watching.load(Ordering::Acquire) {
            self.look_at(x)?;
            return Ok((x.clone(), weight.clone()));
        }
        let following = self.mode.is_training() && self.following.load(Ordering::Acquire) && x.numel() > 0;
        let learns = match following {
            true => Some(no_grad(|| self.follow(x, weight))?),
            false => None,
        };
        let features = x.numel() / x.dims().first().copied().unwrap_or(1).max(1);
        let fan = weight.numel() / weight.dims()[self.axis].max(1);
        Ok((
            self.input.round(x, (features, learns.as_ref()), BYTES, None)?,
            self.weight
                .round(weight, (fan, learns.as_ref()), WEIGHTS, Some(self.axis as isize))?,
        ))
    }

    /// Makes ranges follow the numbers for `steps` steps of training.
    pub(super) fn follow_for(&self, steps: u64) -> Result<()> {
        let old = self.remaining.tensor();
        self.remaining
            .set(&Tensor::full([1], steps as f64, (&old.device(), old.dtype()))?)?;
        self.following.store(true, Ordering::Release);
        Ok(())
    }

    /// Sets the ranges to those of these numbers if steps remain in which they follow. This runs entirely on the
    /// device, so that a step can be captured. Returns 1 if ranges are learned now, else 0.
    fn follow(&self, x: &Tensor<B>, weight: &Tensor<B>) -> Result<Tensor<B>> {
        let remaining = self.remaining.tensor();
        let follows = remaining.gt(0.0)?;
        let take = |buffer: &Buffer<B>, seen: Tensor<B>| {
            let old = buffer.tensor();
            buffer.set(&Tensor::where_(&follows, &seen.to_dtype(old.dtype())?, &old)?)
        };
        let ends = [x.detach().amin(())?, x.detach().amax(())?];
        let [low, high] = ends.map(|end| end.reshape([1])?.to_dtype(remaining.dtype()));
        let (low, high) = (low?.clamp(None, Some(0.0))?, high?.clamp(Some(0.0), None)?);
        let scale = positive((high.sub(&low)? / f64::from(BYTES[1]))?)?;
        take(
            &self.input.zero_point,
            low.neg()?.div(&scale)?.round()?.clamp(Some(0.0), Some(255.0))?,
        )?;
        take(&self.input.scale, scale)?;
        let largest = self.largest(&weight.detach())?.to_dtype(remaining.dtype())?;
        take(&self.weight.scale, positive((largest / f64::from(WEIGHTS[1]))?)?)?;
        self.remaining.set(&(&remaining - 1.0)?.clamp(Some(0.0), None)?)?;
        follows.logical_not()?.to_dtype(remaining.dtype())
    }

    /// The largest magnitude of each output's weights.
    fn largest(&self, weight: &Tensor<B>) -> Result<Tensor<B>> {
        let others = (0..weight.rank() as isize).filter(|&axis| axis != self.axis as isize);
        weight.abs()?.amax(others.collect::<Vec<_>>().as_slice())
    }

    /// Starts observing inputs.
    pub(super) fn watch(&self) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.watching.store(true, Ordering::Release);
    }

    /// Stops observing, and returns the observed range.
    pub(super) fn seen(&self) -> Option<[f64; 2]> {
        self.watching.store(false, Ordering::Release);
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn look_at(&self, x: &Tensor<B>) -> Result<()> {
        let host = x.detach().to_host()?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        host.each_f64(|x| {
            // A comparison would ignore NaN.
            let x = if x.is_nan() { f64::INFINITY } else { x };
            let [low, high] = seen.get_or_insert([x; 2]);
            (*low, *high) = (low.min(x), high.max(x));
        });
        Ok(())
    }

    /// Sets the ranges from the observed inputs and the weight.
    pub(super) fn calibrate(&self, seen: Option<[f64; 2]>) -> Result<()> {
        let Some([low, high]) = seen.filter(|ends| ends.iter().all(|end| end.is_finite())) else {
            return Err(Error::invalid("the layer saw no input, or one that is not finite")
                .with_hint("let the model run all its layers on finite data, or leave the layer out by its name"));
        };
        let (low, high) = (low.min(0.0), high.max(0.0));
        let scale = or_one((high - low) / f64::from(BYTES[1]));
        let zero = (-low / scale).round_ties_even().clamp(0.0, f64::from(BYTES[1]));
        self.input.set(&[scale], zero)?;
        let weight = self.of.tensor().detach();
        let largest = no_grad(|| self.largest(&weight))?;
        let scales = largest.to_f64_vec()?.into_iter();
        let scales: Vec<f64> = scales.map(|largest| or_one(largest / f64::from(WEIGHTS[1]))).collect();
        if scales.iter().any(|scale| !scale.is_finite()) {
            return Err(Error::invalid("the weight of the layer is not finite"));
        }
        self.weight.set(&scales, 0.0)
    }

    /// Visits all parts, under their names in the layer.
    pub(crate) fn visit(&self, visitor: &mut Visitor<'_, B>) {
        visitor.item(Item::Mode(&self.mode));
        visitor.field("quantizer_steps", &self.remaining);
        for (side, quantizer) in [("input_quantizer", &self.input), ("weight_quantizer", &self.weight)] {
            visitor.field(&format!("{side}.scale"), &quantizer.scale);
            visitor.field(&format!("{side}.zero_point"), &quantizer.zero_point);
            visitor.field(&format!("{side}.log_range"), &quantizer.log_range);
        }
    }
}

impl<B: Backend> Quantizer<B> {
    fn new(count: usize, weight: &Param<B>) -> Result<Self> {
        let target = (&weight.device(), weight.dtype().wide());
        Ok(Self {
            scale: Buffer::new(&Tensor::full([count], f64::NAN, target)?),
            zero_point: Buffer::new(&Tensor::full([1], 0.0, target)?),
            log_range: Param::new(Tensor::full([count], 0.0, target)?)?,
        })
    }

    fn set(&self, scales: &[f64], zero: f64) -> Result<()> {
        let like = |buffer: &Buffer<B>, values: &[f64]| {
            let old = buffer.tensor();
            let host = HostTensor::new(old.shape(), values.to_vec())?.cast(old.dtype());
            buffer.set(&Tensor::from_host(host, &old.device())?)
        };
        like(&self.scale, scales)?;
        like(&self.zero_point, &[zero])?;
        self.log_range.set(&self.log_range.tensor().detach().zeros_like()?)
    }

    /// A rounded tensor; `count` is the number of values per example, or per output for a weight. `learns` is 0 while
    /// ranges follow the numbers.
    fn round(
        &self,
        x: &Tensor<B>,
        (count, learns): (usize, Option<&Tensor<B>>),
        bounds: [i32; 2],
        axis: Option<isize>,
    ) -> Result<Tensor<B>> {
        let mut range = self.log_range.tensor();
        if is_grad_enabled() && range.is_tracked() {
            // The same value, with its gradient multiplied by LSQ's factor.
            let factor = 1.0 / (count.max(1) as f64 * f64::from(bounds[1])).sqrt();
            let value = range.detach();
            let mut slope = (range.sub(&value)? * factor)?;
            if let Some(learns) = learns {
                slope = slope.mul(learns)?;
            }
            range = value.add(&slope)?;
        }
        let scale = self.scale.tensor().mul(&range.exp()?)?;
        x.fake_quantize(&scale, &self.zero_point.tensor(), bounds, axis)
    }
}

/// The scale, or 1 if all numbers are 0.
fn or_one(scale: f64) -> f64 {
    if scale < f64::from(f32::MIN_POSITIVE) {
        1.0
    } else {
        scale
    }
}

/// Scales, replaced by 1 where all numbers are 0.
fn positive<B: Backend>(scales: Tensor<B>) -> Result<Tensor<B>> {
    scales.masked_fill(&scales.lt(f64::from(f32::MIN_POSITIVE))?, 1.0)
}
