//! Training of models that will be quantized to 8 bits: layers compute with numbers that are rounded as they will be
//! then, and learn weights and ranges for it.
//!
//! [`Linear`](crate::Linear) and [`Conv`](crate::Conv) layers, wherever they stand in a model, have a place for it,
//! which is that of [adapters](crate::lora). Their input is rounded to bytes with one scale and zero point, their
//! weight to integers from -127 to 127 with a scale for each output. Each scale is `scale · exp(log_range)`: `scale`
//! is found by [`calibrate`], and `log_range`, 0 at first, is a parameter with the gradient and the factor of learned
//! step sizes. So a step of any optimizer changes a scale by a share of itself, and weight decay draws it to where it
//! began.
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
//! Recorded as ONNX such a model has QuantizeLinear and DequantizeLinear before its layers; `polygrad_onnx::Quantize`
//! makes a file in 8 bits of it, with these ranges.

mod quantizer;

use std::collections::HashSet;
use std::sync::Arc;

use polygrad_tensor::{Backend, Error, Result, no_grad};

pub(crate) use quantizer::Quantizers;

use crate::module::Names;
use crate::options::options;
use crate::{Item, Visit, Visitor};

options! {
    /// Which layers [`attach`] rounds.
    #[derive(Clone, Debug, Default)]
    pub struct QatConfig {
        /// Every linear layer and convolution.
        pub fn new();
        /// The layers, by their path or its end: `fc1` is every layer of that name, `layers.0.fc1` one of them; `*`
        /// stands for any characters. Default: every one.
        targets: Vec<String> = Vec::new(), from |targets: impl IntoIterator<Item = impl Into<String>>| {
            targets.into_iter().map(Into::into).collect()
        };
        /// Layers that are left out all the same. Default: none.
        exclude: Vec<String> = Vec::new(), from |exclude: impl IntoIterator<Item = impl Into<String>>| {
            exclude.into_iter().map(Into::into).collect()
        };
    }
}

/// Makes the layers that the options name compute with rounded numbers, and gives their paths. Until the ranges are
/// known, from [`calibrate`] or a state dict that is loaded, these layers give NaN. Attach before you make an optimizer
/// or a captured step, which take the parameters that the model has then.
///
/// # Errors
/// When a name fits no layer, or none is left; when a layer is rounded already, or has adapters; and when memory runs
/// out. The model is as it was then.
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

/// Finds the ranges of rounded layers anew: those of inputs from what the layers see while `forward` runs the model on
/// data, once or several times, in f32 and without gradients; those of weights from the weights.
///
/// # Errors
/// Those of `forward`; when no layer is rounded, or one saw nothing, or a number that is not finite.
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

/// Lets ranges follow the numbers in the next so many steps of training, each a forward in training: a range is that of
/// the step's own input and of the weight as it is, so that nothing is cut off. Learning begins behind them. For models
/// that are trained from the start, whose numbers grow faster than ranges learn to; call it behind [`calibrate`]. How
/// many steps remain is a buffer, which checkpoints have.
///
/// # Errors
/// When no layer is rounded, or memory runs out.
pub fn follow<B: Backend>(model: &(impl Visit<B> + ?Sized), steps: u64) -> Result<()> {
    let rounded = rounded(model);
    if rounded.is_empty() {
        return Err(Error::invalid("no layer of the model is rounded")
            .with_op("follow")
            .with_hint("call `qat::attach` before"));
    }
    rounded.iter().try_for_each(|(_, layer)| layer.follow_for(steps))
}

/// Makes all layers compute with their own numbers again. Optimizers that have the parameters of the ranges must not be
/// used any more.
pub fn remove<B: Backend>(model: &(impl Visit<B> + ?Sized)) {
    Visitor::walk(model, |_, item: Item<'_, B>| {
        if let Item::Adapters(place) = item {
            place.handle().set_quantizers(None);
        }
    });
}

/// The paths of the layers that are rounded.
pub fn rounded_layers<B: Backend>(model: &(impl Visit<B> + ?Sized)) -> Vec<String> {
    rounded(model).into_iter().map(|(path, _)| path).collect()
}

/// What rounds each layer, once.
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

/// The paths of the layers that can be rounded.
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
