//! Quantization-aware training, for models that will be quantized to 8 bits: layers compute with numbers rounded as
//! they will be after quantization, and learn weights and ranges that fit.
//!
//! [`Linear`](crate::Linear) and [`Conv`](crate::Conv) layers have a slot for it anywhere in a model, which is that of
//! [adapters](crate::lora). Their input is rounded to bytes with one scale and zero point, their weight to integers
//! from -127 to 127 with a scale for each output. Each scale is `scale · exp(log_range)`: [`calibrate`] finds `scale`,
//! and `log_range`, initially 0, is a parameter with the gradient and the factor of learned step sizes. Hence a step of
//! any optimizer changes a scale by a share of itself, and weight decay pulls it towards its initial value.
//!
//! Source: Esser et al., "Learned step size quantization" (2020).
//!
//! ```
//! use polygrad_nn::optim::{AdamW, Optimizer};
//! use polygrad_nn::qat::{self, QatConfig};
//! use polygrad_nn::{Linear, Module, loss::mse_loss};
//! # use polygrad_reference::Reference;
//! use polygrad_tensor::{Device, Result, Tensor};
//!
//! #[derive(Module)]
//! struct Mlp {
//!     fc1: Linear,
//!     fc2: Linear,
//! }
//!
//! impl Mlp {
//!     fn forward(&self, x: &Tensor) -> Result<Tensor> {
//!         self.fc2.forward(&self.fc1.forward(x)?.relu()?)
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! # let device = Device::<Reference>::default().into_any();
//! let model = Mlp { fc1: Linear::new(4, 8, &device)?, fc2: Linear::new(8, 2, &device)? };
//! assert_eq!(qat::attach(&model, &QatConfig::new().exclude(["fc2"]))?, ["fc1"]);
//! let x = Tensor::ones([3, 4], &device)?;
//! qat::calibrate(&model, || model.forward(&x))?;
//!
//! let mut optimizer = AdamW::new(model.parameters(), 1e-3)?;
//! optimizer.backward_step(mse_loss(&model.forward(&x)?, &Tensor::zeros([3, 2], &device)?)?)?;
//! # Ok(())
//! # }
//! ```
//!
//! Exported to ONNX, such a model has QuantizeLinear and DequantizeLinear before its layers; `polygrad_onnx::Quantize`
//! converts it to an 8-bit file with these ranges.

mod quantizer;

use std::collections::HashSet;
use std::sync::Arc;

use polygrad_tensor::{Backend, Error, Result, no_grad};

pub(crate) use quantizer::Quantizers;

use crate::module::Names;
use crate::options::options;
use crate::{Item, Visit, Visitor};

options! {
    /// The layers that [`attach`] quantizes.
    #[derive(Clone, Debug, Default)]
    pub struct QatConfig {
        /// Every linear layer and convolution.
        pub fn new();
        /// The layers, by their path or its end: `fc1` matches every layer of that name, `layers.0.fc1` one of them;
        /// `*` matches any characters. Default: all.
        targets: Vec<String> = Vec::new(), from |targets: impl IntoIterator<Item = impl Into<String>>| {
            targets.into_iter().map(Into::into).collect()
        };
        /// Layers to exclude from these. Default: none.
        exclude: Vec<String> = Vec::new(), from |exclude: impl IntoIterator<Item = impl Into<String>>| {
            exclude.into_iter().map(Into::into).collect()
        };
    }
}

/// Makes the selected layers compute with rounded numbers, and returns their paths. They output NaN until their ranges
/// are known, from [`calibrate`] or from a loaded state dict. Attach before creating an optimizer or a captured step,
/// since these take the parameters that the model has at that time.
///
/// # Errors
/// When a name matches no layer, or no layer is left; when a layer is already quantized, or has adapters; when memory
/// runs out. The model is then unchanged.
pub fn attach<B: Backend>(model: &(impl Visit<B> + ?Sized), config: &QatConfig) -> Result<Vec<String>> {
    let fail = |e: Error| e.with_op("qat");
    let (targets, exclude) = (Names::new(&config.targets), Names::new(&config.exclude));
    let all = layers(model);
    let paths = || all.iter().map(String::as_str);
    for names in [&targets, &exclude] {
        names.all_fit(paths, "layer that can be rounded").map_err(fail)?;
    }
    let wanted = |path: &&String| (config.targets.is_empty() || targets.fit(path)) && !exclude.fit(path);
    let chosen: Vec<String> = all.iter().filter(wanted).cloned().collect();
    if chosen.is_empty() {
        return Err(fail(Error::invalid("no layer is left to be rounded"))
            .with_hint("give a model with linear layers or convolutions, and name fewer in `exclude`"));
    }
    let (mut made, mut outcome) = (Vec::new(), Ok(()));
    Visitor::walk(model, |path, item: Item<'_, B>| {
        let Item::Adapters(place) = item else { return };
        if outcome.is_err() || !chosen.iter().any(|chosen| chosen == path) {
            return;
        }
        match place.layer_to_round().and_then(Quantizers::new) {
            Ok(new) => made.push((place.handle(), Arc::new(new))),
            Err(error) => outcome = Err(fail(error).in_module(path)),
        }
    });
    outcome?;
    for (slot, new) in made {
        slot.set_quantizers(Some(new));
    }
    Ok(chosen)
}

/// Calibrates the ranges of quantized layers: those of inputs from the values that the layers see while `forward` runs
/// the model on data, once or several times, in f32 and without gradients; those of weights from the weights.
///
/// # Errors
/// Those of `forward`; when no layer is quantized, or one saw no input or a number that is not finite.
pub fn calibrate<B: Backend, R>(model: &(impl Visit<B> + ?Sized), forward: impl FnOnce() -> Result<R>) -> Result<R> {
    let rounded = rounded(model);
    if rounded.is_empty() {
        return Err(Error::invalid("no layer of the model is rounded")
            .with_op("calibrate")
            .with_hint("call `qat::attach` before"));
    }
    rounded.iter().for_each(|(_, layer)| layer.watch());
    let result = no_grad(forward);
    let seen: Vec<_> = rounded.iter().map(|(_, layer)| layer.seen()).collect();
    let result = result?;
    for ((path, layer), seen) in rounded.iter().zip(seen) {
        let calibrated = layer.calibrate(seen);
        calibrated.map_err(|e| e.with_op("calibrate").in_module(path.as_str()))?;
    }
    Ok(result)
}

/// Makes ranges follow the numbers for the next `steps` forward passes in training: each range is that of the step's
/// own input and of the current weight, so that nothing is cut off. Afterwards the ranges are learned. This is for
/// models trained from scratch, whose numbers grow faster than ranges can learn; call it after [`calibrate`]. The
/// number of remaining steps is a buffer, so checkpoints contain it.
///
/// # Errors
/// When no layer is quantized, or memory runs out.
pub fn follow<B: Backend>(model: &(impl Visit<B> + ?Sized), steps: u64) -> Result<()> {
    let rounded = rounded(model);
    if rounded.is_empty() {
        return Err(Error::invalid("no layer of the model is rounded")
            .with_op("follow")
            .with_hint("call `qat::attach` before"));
    }
    rounded.iter().try_for_each(|(_, layer)| layer.follow_for(steps))
}

/// Makes all layers compute with unrounded numbers again. Optimizers that contain the parameters of the ranges must not
/// be used any more.
pub fn remove<B: Backend>(model: &(impl Visit<B> + ?Sized)) {
    Visitor::walk(model, |_, item: Item<'_, B>| {
        if let Item::Adapters(place) = item {
            place.handle().set_quantizers(None);
        }
    });
}

/// The paths of the quantized layers.
pub fn rounded_layers<B: Backend>(model: &(impl Visit<B> + ?Sized)) -> Vec<String> {
    rounded(model).into_iter().map(|(path, _)| path).collect()
}

/// The quantizers of each layer, each once.
fn rounded<B: Backend>(model: &(impl Visit<B> + ?Sized)) -> Vec<(String, Arc<Quantizers<B>>)> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    Visitor::walk(model, |path, item: Item<'_, B>| {
        if let Item::Adapters(place) = item
            && let Some(quantizers) = place.handle().quantizers()
            && seen.insert(Arc::as_ptr(&quantizers).addr())
        {
            found.push((path.to_owned(), quantizers));
        }
    });
    found
}

/// The paths of the layers that can be quantized.
fn layers<B: Backend>(model: &(impl Visit<B> + ?Sized)) -> Vec<String> {
    let (mut layers, mut seen) = (Vec::new(), HashSet::new());
    Visitor::walk(model, |path, item: Item<'_, B>| {
        if let Item::Adapters(place) = item
            && place.can_be_rounded()
            && seen.insert(place.id())
        {
            layers.push(path.to_owned());
        }
    });
    layers
}
