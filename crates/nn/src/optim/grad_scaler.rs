//! Loss scaling for f16 gradients.

use polygrad_tensor::{Backend, DType, Error, ErrorKind, Gradients, HostTensor, Result, Tensor, no_grad};

use super::Optimizer;
use super::common::{all_finite, check, count_in, largest, number_in};
use crate::StateDict;
use crate::options::options;

options! {
    /// Options of [`GradScaler`], with PyTorch's defaults.
    #[derive(Clone, Copy, Debug)]
    pub struct GradScalerConfig {
        /// A scale of 65,536 that doubles after 2,000 steps with finite gradients, and is halved after one without.
        pub const fn new();
        /// The first scale, above 0.
        init_scale: f64 = 65_536.0;
        /// Factor of the scale after `growth_interval` consecutive steps with finite gradients, above 1.
        growth_factor: f64 = 2.0;
        /// Factor of the scale after a step with a gradient that is not finite, above 0 and below 1.
        backoff_factor: f64 = 0.5;
        /// Number of consecutive steps with finite gradients after which the scale grows, at least 1.
        growth_interval: u64 = 2_000;
        /// Whether scaling is on; otherwise losses and gradients stay as they are, and no step is skipped.
        enabled: bool = true;
    }
}

impl GradScalerConfig {
    /// The scaler.
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn build(self) -> Result<GradScaler> {
        self.check().map_err(|e| e.with_op("GradScaler"))?;
        Ok(GradScaler {
            scale: self.init_scale as f32,
            growth_tracker: 0,
            config: self,
            unscaled: None,
            found: None,
        })
    }

    fn check(&self) -> Result<()> {
        check_scale(self.init_scale)?;
        if self.growth_factor <= 1.0 {
            return Err(Error::invalid(format!(
                "growth_factor = {} must be above 1",
                self.growth_factor
            )));
        }
        check("growth_factor", self.growth_factor, 1.0..)?;
        if self.backoff_factor <= 0.0 {
            return Err(Error::invalid(format!(
                "backoff_factor = {} must be above 0",
                self.backoff_factor
            )));
        }
        check("backoff_factor", self.backoff_factor, 0.0..1.0)?;
        if self.growth_interval == 0 {
            return Err(Error::invalid("growth_interval = 0 must be at least 1"));
        }
        Ok(())
    }
}

impl Default for GradScalerConfig {
    fn default() -> Self {
        Self::new()
    }
}

/// Multiplies the loss by a scale, so that f16 gradients do not underflow, and divides the gradients by it before the
/// step. The scale grows while the gradients are finite; if one is not, the step is skipped and the scale is reduced.
/// bf16, whose range is that of f32, does not need it.
///
/// As PyTorch's `torch.amp.GradScaler`, except that gradients are a value to be passed on, since optimizers here do not
/// hold them.
///
/// ```
/// use polygrad_nn::loss::mse_loss;
/// use polygrad_nn::optim::{Adam, GradScaler, Optimizer};
/// use polygrad_nn::{Linear, Module};
/// # use polygrad_reference::Reference;
/// use polygrad_tensor::{DType, Device, Tensor, autocast};
///
/// # fn main() -> polygrad_tensor::Result<()> {
/// # let device = Device::<Reference>::default();
/// let model = Linear::new(3, 1, &device)?;
/// let mut optimizer = Adam::new(model.parameters(), 1e-2)?;
/// let mut scaler = GradScaler::new();
/// let (x, y) = (Tensor::ones([8, 3], &device)?, Tensor::zeros([8, 1], &device)?);
/// for _ in 0..10 {
///     let loss = autocast(DType::F16, || mse_loss(&model.forward(&x)?, &y))?;
///     let gradients = scaler.scale(loss)?.backward()?;
///     scaler.step(&mut optimizer, gradients)?;
///     scaler.update()?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// To clip or inspect the gradients, divide them by the scale first; [`GradScaler::step`] then does not divide them
/// again:
///
/// ```
/// # use polygrad_nn::optim::{GradScaler, Optimizer, clip_grad_norm};
/// # use polygrad_tensor::{Backend, Result, Tensor};
/// # fn run<B: Backend>(scaler: &mut GradScaler, optimizer: &mut dyn Optimizer<B>, loss: Tensor<B>) -> Result<()> {
/// let mut gradients = scaler.scale(loss)?.backward()?;
/// if scaler.unscale(&mut gradients)? {
///     clip_grad_norm(&mut gradients, 1.0)?;
/// }
/// scaler.step(optimizer, gradients)?;
/// scaler.update()?;
/// # Ok(())
/// # }
/// ```
///
/// Source: Micikevicius et al., "Mixed precision training" (2018).
#[derive(Clone, Debug)]
pub struct GradScaler {
    config: GradScalerConfig,
    scale: f32,
    growth_tracker: u64,
    /// Whether the gradients that were last unscaled, and not yet used for a step, are finite.
    unscaled: Option<bool>,
    /// Whether all gradients since the last update are finite.
    found: Option<bool>,
}

const SCALE: &str = "scale";
const GROWTH_FACTOR: &str = "growth_factor";
const BACKOFF_FACTOR: &str = "backoff_factor";
const GROWTH_INTERVAL: &str = "growth_interval";
const GROWTH_TRACKER: &str = "_growth_tracker";

impl GradScaler {
    /// A scaler with the defaults; [`GradScalerConfig`] has the options.
    pub const fn new() -> Self {
        let config = GradScalerConfig::new();
        Self {
            scale: config.init_scale as f32,
            growth_tracker: 0,
            config,
            unscaled: None,
            found: None,
        }
    }

    /// The loss times the scale, in f32 at least, since most scales do not fit into f16. The loss is consumed so that
    /// its graph is dropped before the step, which would otherwise have to copy the parameters; keep `loss.detach()` to
    /// read its value.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn scale<B: Backend>(&self, loss: Tensor<B>) -> Result<Tensor<B>> {
        if !self.config.enabled {
            return Ok(loss);
        }
        loss.to_dtype(loss.dtype().promote(DType::F32))? * f64::from(self.scale)
    }

    /// Divides gradients by the scale, and returns whether all are finite; if not, [`GradScaler::step`] will skip the
    /// step. Needed only to clip the gradients first, since [`GradScaler::step`] does it otherwise. A scaler that is
    /// not enabled leaves them as they are and returns true.
    ///
    /// # Errors
    /// When gradients were already divided and no step was taken with them; when a gradient is f16 (its parameter must
    /// be f32); when the device fails, in which case some gradients are divided and some are not.
    pub fn unscale<B: Backend>(&mut self, gradients: &mut Gradients<B>) -> Result<bool> {
        if !self.config.enabled {
            return Ok(true);
        }
        let fail = |e: Error| e.with_op("unscale");
        if self.unscaled.is_some() {
            let error = Error::invalid("gradients were divided by the scale already");
            return Err(fail(error.with_hint("take a step with them first")));
        }
        if let Some((name, _)) = gradients.iter().find(|(_, gradient)| gradient.dtype() == DType::F16) {
            let error = Error::dtype(format!(
                "the gradient of {} is f16",
                name.unwrap_or("an unnamed tensor")
            ));
            return Err(fail(
                error.with_hint("keep the parameters in f32, and compute the loss within autocast"),
            ));
        }
        let factor = f64::from((1.0 / f64::from(self.scale)) as f32);
        let finite = no_grad(|| {
            let mut peaks = Vec::new();
            for gradient in gradients.iter_mut() {
                peaks.extend(largest::<B>(gradient.inner())?);
                *gradient = (&*gradient * factor)?;
            }
            all_finite::<B>(&peaks)
        });
        let finite = finite.map_err(fail)?;
        self.unscaled = Some(finite);
        self.found = Some(self.found.unwrap_or(true) && finite);
        Ok(finite)
    }

    /// Skips a step whose loss is not finite, whatever its gradients are; do not divide these by the scale. The next
    /// [`GradScaler::update`] reduces the scale. Does nothing if the scaler is not enabled.
    pub fn skip(&mut self) {
        if self.config.enabled {
            self.found = Some(false);
        }
    }

    /// A step of the optimizer with the gradients of a scaled loss, divided by the scale; skipped if one of them is not
    /// finite. Returns whether it was taken. With several optimizers, divide and step with each one's gradients in
    /// turn, and update at the end.
    ///
    /// # Errors
    /// Those of [`GradScaler::unscale`] and of [`Optimizer::step`].
    pub fn step<B: Backend>(
        &mut self,
        optimizer: &mut (impl Optimizer<B> + ?Sized),
        mut gradients: Gradients<B>,
    ) -> Result<bool> {
        let finite = match self.unscaled {
            Some(finite) => finite,
            None => self.unscale(&mut gradients)?,
        };
        self.unscaled = None;
        if finite {
            optimizer.step(&gradients)?;
        }
        Ok(finite)
    }

    /// Sets the scale for the next step: smaller if a gradient since the last update was not finite, larger if all were
    /// finite for the growth interval. A new scale that would not fit into f32 is not applied.
    ///
    /// # Errors
    /// When there were no gradients since the last update.
    pub fn update(&mut self) -> Result<()> {
        if !self.config.enabled {
            return Ok(());
        }
        let Some(finite) = self.found.take() else {
            let error = Error::invalid("there were no gradients since the last update").with_op("update");
            return Err(error.with_hint("call GradScaler::step before it"));
        };
        self.unscaled = None;
        let times = |factor: f64| (f64::from(self.scale) * factor) as f32;
        if !finite {
            self.scale = times(self.config.backoff_factor);
            self.growth_tracker = 0;
            return Ok(());
        }
        self.growth_tracker += 1;
        if self.growth_tracker >= self.config.growth_interval {
            let grown = times(self.config.growth_factor);
            if grown.is_finite() {
                self.scale = grown;
            }
            self.growth_tracker = 0;
        }
        Ok(())
    }

    /// The scale; 1 if the scaler is not enabled.
    pub fn get_scale(&self) -> f64 {
        if self.config.enabled { self.scale.into() } else { 1.0 }
    }

    /// Whether anything is scaled.
    pub fn is_enabled(&self) -> bool {
        self.config.enabled
    }

    /// Its state: the scale, the number of steps since it changed, and the options, under PyTorch's names. Empty if it
    /// is not enabled.
    pub fn state_dict(&self) -> StateDict {
        let config = &self.config;
        if !config.enabled {
            return StateDict::new();
        }
        let count = |count: u64| HostTensor::scalar(i64::try_from(count).unwrap_or(i64::MAX));
        [
            (SCALE.to_owned(), HostTensor::scalar(f64::from(self.scale))),
            (GROWTH_FACTOR.to_owned(), HostTensor::scalar(config.growth_factor)),
            (BACKOFF_FACTOR.to_owned(), HostTensor::scalar(config.backoff_factor)),
            (GROWTH_INTERVAL.to_owned(), count(config.growth_interval)),
            (GROWTH_TRACKER.to_owned(), count(self.growth_tracker)),
        ]
        .into_iter()
        .collect()
    }

    /// Continues from a state, with its options: completely, or not at all if there is an error. A scaler that is not
    /// enabled ignores it.
    ///
    /// # Errors
    /// [`ErrorKind::StateDict`] when an entry is missing, is not one number, or is out of range.
    pub fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        if !self.config.enabled {
            return Ok(());
        }
        *self = self.loaded(state).map_err(|what| {
            Error::new(
                ErrorKind::StateDict,
                format!("the state does not fit GradScaler; {what}"),
            )
            .with_op("load_state_dict")
            .with_hint("load what state_dict of an enabled GradScaler gave")
        })?;
        Ok(())
    }

    fn loaded(&self, state: &StateDict) -> std::result::Result<Self, String> {
        let (number, count) = (|name| number_in(state, name), |name| count_in(state, name));
        let config = GradScalerConfig {
            init_scale: number(SCALE)?,
            growth_factor: number(GROWTH_FACTOR)?,
            backoff_factor: number(BACKOFF_FACTOR)?,
            growth_interval: count(GROWTH_INTERVAL)?,
            enabled: true,
        };
        let built = config.build().map_err(|e| format!("mismatched: {}", e.message()))?;
        Ok(Self {
            config: GradScalerConfig {
                init_scale: self.config.init_scale,
                ..config
            },
            growth_tracker: count(GROWTH_TRACKER)?,
            ..built
        })
    }
}

impl Default for GradScaler {
    fn default() -> Self {
        Self::new()
    }
}

fn check_scale(scale: f64) -> Result<()> {
    // Both the factor of the loss and that of the gradients have to be finite.
    let scale_of_f32 = scale as f32;
    if scale_of_f32 > 0.0 && scale_of_f32.is_finite() {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the scale {scale} must be above 0 and finite, in f32"
    )))
}
