//! Adapters (LoRA and DoRA): small changes of the weights of an existing model, which are trained instead of the
//! weights themselves, with the names that PEFT gives them.
//!
//! [`Linear`](crate::Linear), [`Conv`](crate::Conv) and [`Embedding`](crate::Embedding) layers anywhere in a model can
//! have adapters. Attaching one freezes the rest of the model: no gradients are computed for frozen parameters, and
//! optimizers keep no state for them.
//!
//! ```
//! use polygrad_nn::lora::{self, LoraConfig};
//! use polygrad_nn::optim::{AdamW, Optimizer};
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
//! let config = LoraConfig::new(2).alpha(4.0).targets(["fc1"]);
//! assert_eq!(lora::attach(&model, "default", &config)?, ["fc1"]);
//! // What is not an adapter's can be trained beside it.
//! model.unfreeze(["fc2"])?;
//!
//! let mut optimizer = AdamW::new(model.parameters(), 1e-3)?;
//! let x = Tensor::ones([3, 4], &device)?;
//! optimizer.backward_step(mse_loss(&model.forward(&x)?, &Tensor::zeros([3, 2], &device)?)?)?;
//!
//! let adapted = model.forward(&x)?;
//! lora::merge(&model)?;
//! assert!(model.forward(&x)?.sub(&adapted)?.abs()?.amax(())?.item()? < 1e-5);
//! # Ok(())
//! # }
//! ```
//!
//! A model may have several adapters; [`activate`] chooses among them without copying weights. Attach adapters before
//! you make an optimizer or a captured step, since these take the parameters that the model has at that time.

mod adapter;
mod config;
mod files;
mod layer;
mod merge;
mod slot;

use std::collections::HashSet;
use std::sync::Arc;

use polygrad_core::printable;
use polygrad_tensor::{Backend, Error, Result};

pub(crate) use adapter::adapted;
pub use config::LoraConfig;
pub use files::{LowRank, PeftAdapter, load, save};
pub(crate) use layer::{Kind, Layer, Weight};
pub use merge::{check_merge, merge, merge_and_unload, unmerge};
pub use slot::{Adaptable, AdapterSlot};

use adapter::Adapter;

use crate::{Item, Visit, Visitor};

/// Adds a new adapter to the layers of a model that the options name, activates it, and returns the paths of these
/// layers. The model's output does not change until the adapter is trained. The first adapter of a model freezes all of
/// its parameters; to train others as well, unfreeze them [afterwards](crate::Module::unfreeze).
///
/// # Errors
/// If an option is out of range, or names no layer; if the model has an adapter of this name; if a layer cannot have
/// such an adapter, for example a convolution with dilation or with padding other than zeros; if adapters are merged;
/// and if memory runs out. The model is then unchanged.
pub fn attach<B: Backend>(model: &(impl Visit<B> + ?Sized), name: &str, config: &LoraConfig) -> Result<Vec<String>> {
    check_name(name)?;
    config.check()?;
    let config = Arc::new(config.clone());
    let layers = layers(model);
    let known: Vec<(&str, bool)> = layers.iter().map(|(path, linear)| (path.as_str(), *linear)).collect();
    let chosen = config.chosen(&known)?;
    let paths = known
        .iter()
        .zip(&chosen)
        .filter(|(_, chosen)| **chosen)
        .map(|((path, _), _)| *path);
    let paths: Vec<String> = paths.map(str::to_owned).collect();
    if paths.is_empty() {
        return Err(Error::invalid("no layer is left to have the adapter")
            .with_op("lora")
            .with_hint("name fewer in `exclude`"));
    }
    insert(model, name, (&paths, true), |_, layer, name| {
        Adapter::new(Arc::clone(name), Arc::clone(&config), layer)
    })?;
    Ok(paths)
}

/// Adds an adapter, which `make` creates for each layer, to the layers with these paths, and activates it. It is in
/// training mode if the model is or, if no part of the model has a mode, as requested.
fn insert<B: Backend>(
    model: &(impl Visit<B> + ?Sized),
    name: &str,
    (paths, in_training): (&[String], bool),
    mut make: impl FnMut(&str, &Layer<'_, B>, &Arc<str>) -> Result<Adapter<B>>,
) -> Result<()> {
    let before = names(model);
    if before.iter().any(|other| other == name) {
        return Err(
            Error::invalid(format!("the model has an adapter {} already", printable(name)))
                .with_op("lora")
                .with_hint("take another name, or `remove` that adapter"),
        );
    }
    let name: Arc<str> = name.into();
    let paths: HashSet<&str> = paths.iter().map(String::as_str).collect();
    let (mut made, mut outcome, mut training) = (Vec::new(), check_unmerged(model), None);
    Visitor::walk(model, |path, item: Item<'_, B>| match item {
        Item::Adapters(place) if outcome.is_ok() && paths.contains(path) && place.slot.quantizers().is_some() => {
            let error = Error::invalid("the layer is rounded for 8 bits, and has no adapters beside that");
            outcome = Err(error
                .with_hint("call `qat::remove` before")
                .with_op("lora")
                .in_module(path));
        }
        Item::Adapters(place) if outcome.is_ok() && paths.contains(path) => match make(path, &place.layer, &name) {
            Ok(adapter) => made.push((place.slot.handle(), Arc::new(adapter))),
            Err(error) => outcome = Err(error.with_op("lora").in_module(path)),
        },
        Item::Mode(mode) => training = Some(training.unwrap_or(false) || mode.is_training()),
        _ => {}
    });
    outcome?;
    if before.is_empty() {
        Visitor::walk(model, |_, item: Item<'_, B>| {
            if let Item::Param(param) = item {
                param.set_trainable(false);
            }
        });
    }
    for (slot, adapter) in made {
        adapter.set_training(training.unwrap_or(in_training));
        slot.change(|state| state.adapters.push(adapter));
    }
    activate(model, &[&name])
}

/// Activates these adapters and deactivates all others; an empty list leaves only the base model. Active adapters are
/// trainable afterwards, and the others are frozen.
///
/// # Errors
/// If the model has no adapter of such a name, if adapters are merged, or if a layer would have another active adapter
/// in addition to one with DoRA. Nothing is changed then.
pub fn activate<B: Backend>(model: &(impl Visit<B> + ?Sized), adapters: &[&str]) -> Result<()> {
    check_known(model, adapters)?;
    check_unmerged(model)?;
    let is_chosen = |adapter: &&Arc<Adapter<B>>| adapters.contains(&&**adapter.name());
    let mut outcome = Ok(());
    let places = slots(model);
    for (path, slot) in &places {
        let state = slot.read();
        let chosen: Vec<_> = state.adapters.iter().filter(is_chosen).collect();
        if chosen.len() > 1 && chosen.iter().any(|adapter| adapter.is_dora()) {
            let error = Error::unsupported("an adapter with DoRA cannot be active beside another one in one layer");
            outcome = outcome.and(Err(error.with_op("lora").in_module(path.clone())));
        }
    }
    outcome?;
    for (_, slot) in &places {
        slot.change(|state| {
            state.active = state.adapters.iter().filter(is_chosen).map(Arc::clone).collect();
            state
                .adapters
                .iter()
                .for_each(|adapter| adapter.set_trainable(is_chosen(&adapter)));
        });
    }
    Ok(())
}

/// The names of a model's adapters, in the order in which they were attached.
pub fn names<B: Backend>(model: &(impl Visit<B> + ?Sized)) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (_, slot) in slots(model) {
        for adapter in &slot.read().adapters {
            if !names.iter().any(|name| **name == **adapter.name()) {
                names.push(adapter.name().to_string());
            }
        }
    }
    names
}

/// Removes an adapter from a model. Optimizers that have its parameters must not be used any more.
///
/// # Errors
/// If there is no adapter of this name, or adapters are merged.
pub fn remove<B: Backend>(model: &(impl Visit<B> + ?Sized), name: &str) -> Result<()> {
    check_known(model, &[name])?;
    check_unmerged(model)?;
    for (_, slot) in slots(model) {
        slot.change(|state| {
            state.adapters.retain(|adapter| **adapter.name() != *name);
            state.active = state
                .active
                .iter()
                .filter(|adapter| **adapter.name() != *name)
                .map(Arc::clone)
                .collect();
        });
    }
    Ok(())
}

/// The layers that can have adapters, each once, and whether they are linear.
fn layers<B: Backend>(model: &(impl Visit<B> + ?Sized)) -> Vec<(String, bool)> {
    let (mut layers, mut seen) = (Vec::new(), HashSet::new());
    Visitor::walk(model, |path, item: Item<'_, B>| {
        if let Item::Adapters(place) = item
            && seen.insert(place.slot.id())
        {
            let linear = matches!(place.layer.kind, Kind::Linear | Kind::Transposed);
            layers.push((path.to_owned(), linear));
        }
    });
    layers
}

/// The slots of adapters, each once.
fn slots<B: Backend>(model: &(impl Visit<B> + ?Sized)) -> Vec<(String, AdapterSlot<B>)> {
    let (mut slots, mut seen) = (Vec::new(), HashSet::new());
    Visitor::walk(model, |path, item: Item<'_, B>| {
        if let Item::Adapters(place) = item
            && seen.insert(place.slot.id())
        {
            slots.push((path.to_owned(), place.slot.handle()));
        }
    });
    slots
}

fn check_name(name: &str) -> Result<()> {
    match name.is_empty() || name.contains('.') {
        false => Ok(()),
        true => Err(Error::invalid(format!("an adapter cannot be called {name:?}"))
            .with_op("lora")
            .with_hint("its name is not empty and has no dot")),
    }
}

fn check_known<B: Backend>(model: &(impl Visit<B> + ?Sized), adapters: &[&str]) -> Result<()> {
    let known = names(model);
    let Some(name) = adapters.iter().find(|name| !known.iter().any(|other| other == **name)) else {
        return Ok(());
    };
    let there = match known.is_empty() {
        true => "it has none".to_owned(),
        false => format!("it has {}", known.join(", ")),
    };
    Err(Error::invalid(format!("the model has no adapter {}", printable(name)))
        .with_op("lora")
        .with_hint(there))
}

fn check_unmerged<B: Backend>(model: &(impl Visit<B> + ?Sized)) -> Result<()> {
    match slots(model).iter().any(|(_, slot)| slot.read().unmerged.is_some()) {
        false => Ok(()),
        true => Err(Error::invalid("adapters of the model are merged")
            .with_op("lora")
            .with_hint("call `unmerge` first, or `merge_and_unload` in the place of `merge`")),
    }
}
