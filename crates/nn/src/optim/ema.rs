//! Moving averages of models.

use std::collections::HashMap;

use polygrad_tensor::{AnyBackend, Backend, DType, Error, ErrorKind, HostTensor, Result, Tensor, no_grad};

use super::common::check;
use crate::options::options;
use crate::{Buffer, Module, StateDict, Target, Visit, Visitor};

/// The key in a state dict for the number of updates.
const COUNT: &str = "n_averaged";

options! {
    /// Options of [`Ema`].
    #[derive(Clone, Copy, Debug)]
    pub struct EmaConfig {
        /// An average of the parameters that keeps the share `decay`, in `[0, 1]`, of itself in each update. PyTorch's
        /// default is 0.999.
        pub const fn new(decay: f64);
        /// Whether floating-point buffers, such as running statistics, are averaged, too. Other buffers, and integers
        /// in any case, are copied from the model in each update.
        use_buffers: bool = false;
    }
}

impl EmaConfig {
    /// The average of a model, initially the model's current values.
    ///
    /// # Errors
    /// When the decay is out of range, or memory runs out.
    pub fn build<B: Backend>(self, model: &(impl Module<B> + ?Sized)) -> Result<Ema<B>> {
        check("decay", self.decay, 0.0..=1.0)?;
        let mut averages = Averages(Vec::new());
        let mut pairs = Vec::new();
        let mut shared: HashMap<usize, Buffer<B>> = HashMap::new();
        for (name, target) in Target::all(&model) {
            let name = format!("module.{name}");
            if let Some(average) = target.shared_id().and_then(|id| shared.get(&id)) {
                averages.0.push((name, average.clone()));
                continue;
            }
            let value = target.tensor().map_err(|e| e.in_module(name.clone()))?;
            let is_averaged = value.dtype().is_float() && (self.use_buffers || matches!(target, Target::Param(_)));
            let dtype = match is_averaged {
                // f16 and bf16 would round away the small changes of an average.
                true => value.dtype().promote(DType::F32),
                false => value.dtype(),
            };
            let average = Buffer::new(&value.detach().to_dtype(dtype).map_err(|e| e.in_module(name.clone()))?);
            if let Some(id) = target.shared_id() {
                shared.insert(id, average.clone());
            }
            averages.0.push((name.clone(), average.clone()));
            pairs.push(Pair {
                name,
                target,
                average,
                is_averaged,
            });
        }
        Ok(Ema {
            config: self,
            n_averaged: 0,
            averages,
            pairs,
        })
    }
}

/// An exponential moving average of a model's parameters, which often performs better than the model itself. As
/// PyTorch's `AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))`: the first update copies the model's
/// values, later ones compute `average ← decay · average + (1 − decay) · value`. f16 and bf16 are averaged in f32, and
/// integers are never averaged.
///
/// ```
/// # use polygrad_nn::{Linear, Module};
/// # use polygrad_nn::optim::{Ema, Optimizer, SGD};
/// # use polygrad_reference::Reference;
/// # use polygrad_tensor::{Device, Result, Tensor};
/// # fn main() -> Result<()> {
/// # let device = Device::<Reference>::default();
/// # let x = Tensor::ones([1, 3], &device)?;
/// let model = Linear::new(3, 2, &device)?;
/// let mut optimizer = SGD::new(model.parameters(), 0.1)?;
/// let mut ema = Ema::new(&model, 0.9)?;
/// for _ in 0..10 {
///     let loss = model.forward(&x)?.square()?.mean_all()?;
///     optimizer.backward_step(loss)?;
///     ema.update()?;
/// }
/// let smooth = ema.with_averaged(|| model.forward(&x))??;
/// # Ok(())
/// # }
/// ```
pub struct Ema<B: Backend = AnyBackend> {
    config: EmaConfig,
    n_averaged: u64,
    averages: Averages<B>,
    pairs: Vec<Pair<B>>,
}

/// All averages by name; shared parameters have several names.
struct Averages<B: Backend>(Vec<(String, Buffer<B>)>);

/// A parameter or buffer of the model, and its average.
struct Pair<B: Backend> {
    name: String,
    target: Target<B>,
    average: Buffer<B>,
    is_averaged: bool,
}

impl<B: Backend> Visit<B> for Averages<B> {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        for (name, average) in &self.0 {
            visitor.field(name, average);
        }
    }
}

impl<B: Backend> Module<B> for Averages<B> {}

impl<B: Backend> Ema<B> {
    /// An average of a model's parameters; [`EmaConfig`] has the other options.
    ///
    /// # Errors
    /// As [`EmaConfig::build`].
    pub fn new(model: &(impl Module<B> + ?Sized), decay: f64) -> Result<Self> {
        EmaConfig::new(decay).build(model)
    }

    /// Adds the model's current values to the average: call it after each step of the optimizer.
    ///
    /// # Errors
    /// When a device fails, or the model's dtype has changed; the average then stays as it was.
    pub fn update(&mut self) -> Result<()> {
        no_grad(|| {
            let (is_first, share) = (self.n_averaged == 0, 1.0 - self.config.decay);
            let next = |pair: &Pair<B>| {
                let value = pair.target.tensor()?.detach();
                // If the model has moved to another device, its average follows.
                let old = pair.average.tensor().to_device(&value.device())?;
                let value = value.to_dtype(old.dtype())?;
                if is_first || !pair.is_averaged {
                    return Ok(value);
                }
                &old + ((&value - &old)? * share)?
            };
            let located = |pair: &Pair<B>| next(pair).map_err(|e| e.in_module(pair.name.clone()));
            let new: Vec<Tensor<B>> = self.pairs.iter().map(located).collect::<Result<_>>()?;
            for (pair, value) in self.pairs.iter().zip(new) {
                pair.average.replace(&value);
            }
            self.n_averaged += 1;
            Ok(())
        })
    }

    /// Runs `f` while the model, and everything that shares its parameters, has the averaged values. Afterwards, even
    /// if `f` panics, the model gets its own values back. Changes that `f` makes to them are lost.
    ///
    /// # Errors
    /// When a device fails, or the model's dtype or shapes have changed; the model then has its own values. `f`'s own
    /// errors are part of its result.
    pub fn with_averaged<R>(&self, f: impl FnOnce() -> R) -> Result<R> {
        let mut swapped = Swapped(Vec::with_capacity(self.pairs.len()));
        for pair in &self.pairs {
            let own = pair
                .target
                .tensor()
                .map_err(|e| e.in_module(pair.name.clone()))?
                .detach();
            let average = pair.average.tensor().to_device(&own.device());
            average
                .and_then(|average| average.to_dtype(own.dtype()))
                .and_then(|average| pair.target.set(&average))
                .map_err(|e| e.in_module(pair.name.clone()))?;
            swapped.0.push((pair, own));
        }
        let result = f();
        swapped.restore()?;
        Ok(result)
    }

    /// Number of updates.
    pub fn n_averaged(&self) -> u64 {
        self.n_averaged
    }

    /// The averages, under the names that PyTorch's `AveragedModel` gives them: `module.fc1.weight`, and `n_averaged`.
    ///
    /// # Errors
    /// When a device fails.
    pub fn state_dict(&self) -> Result<StateDict> {
        let count = i64::try_from(self.n_averaged).unwrap_or(i64::MAX);
        let mut state: StateDict = [(COUNT.to_owned(), HostTensor::scalar(count))].into_iter().collect();
        let averages = self.averages.state_dict()?;
        state.extend(averages.iter().map(|(name, value)| (name.to_owned(), value.clone())));
        Ok(state)
    }

    /// Continues from a state, including that of PyTorch's `AveragedModel`: completely, or not at all if there is an
    /// error.
    ///
    /// # Errors
    /// [`ErrorKind::StateDict`], which lists everything that is missing, unexpected or mismatched.
    pub fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let count = match state.get(COUNT).map(HostTensor::to_f64_vec).as_deref() {
            // Numbers of updates are far below 2⁵³, so f64 represents them exactly.
            Some(&[count]) if count >= 0.0 && count.fract() == 0.0 && count < 9e15 => count as u64,
            _ => {
                return Err(Error::new(
                    ErrorKind::StateDict,
                    format!("{COUNT} is missing, or no number of updates"),
                )
                .with_op("load_state_dict")
                .with_hint("load what Ema::state_dict gave; a model's own state belongs into the model"));
            }
        };
        let averages: StateDict = state
            .iter()
            .filter(|(name, _)| *name != COUNT)
            .map(|(name, value)| (name.to_owned(), value.clone()))
            .collect();
        self.averages.load_state_dict(&averages, true)?;
        self.n_averaged = count;
        Ok(())
    }
}

/// The model's own values, to be restored.
struct Swapped<'a, B: Backend>(Vec<(&'a Pair<B>, Tensor<B>)>);

impl<B: Backend> Swapped<'_, B> {
    /// Restores all values even after errors, and returns the first error.
    fn restore(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        for (pair, own) in std::mem::take(&mut self.0) {
            let restored = pair.target.set(&own).map_err(|e| e.in_module(pair.name.clone()));
            outcome = outcome.and(restored);
        }
        outcome
    }
}

impl<B: Backend> Drop for Swapped<'_, B> {
    fn drop(&mut self) {
        // The caller already gets the error or panic that led here.
        let _ = self.restore();
    }
}
