//! Merging adapters into weights.

use std::collections::HashMap;
use std::sync::Arc;

use polygrad_tensor::{Backend, Error, Result, Tensor};

use super::adapter::Adapter;
use super::layer::Layer;
use super::{Adaptable, AdapterSlot, check_unmerged, slots};
use crate::{Item, Param, Visit, Visitor};

/// Merges the active adapters into the weights of their layers, so that the model is as fast as without them.
/// [`unmerge`] restores the original weights, bit for bit; they stay in memory until then.
///
/// # Errors
/// If adapters are merged already; if a weight is shared with another layer, whose results would change, too; if a
/// layer is a grouped convolution or its weight is packed; and if memory runs out. The model is then unchanged.
pub fn merge<B: Backend>(model: &(impl Visit<B> + ?Sized)) -> Result<()> {
    let mut merged = HashMap::new();
    each_merged(model, |place, weight, active| {
        let new = of(&place.layer, active)?;
        merged.insert(place.slot.id(), Merged::new(place.slot, weight, new));
        Ok(())
    })?;
    for Merged { slot, weight, new } in merged.into_values() {
        let own = weight.value();
        weight.set(&new)?;
        slot.change(|state| state.unmerged = Some(own));
    }
    Ok(())
}

/// Fails if [`merge`] would refuse the model's active adapters, before anything is computed.
///
/// # Errors
/// Those of [`merge`], except that memory may run out.
pub fn check_merge<B: Backend>(model: &(impl Visit<B> + ?Sized)) -> Result<()> {
    each_merged(model, |_, _, _| Ok(()))
}

/// Calls `each` with every layer whose active adapters can be merged, its weight and the adapters; a layer that is used
/// at several places comes several times.
fn each_merged<B: Backend>(
    model: &(impl Visit<B> + ?Sized),
    mut each: impl FnMut(&Adaptable<'_, B>, &Param<B>, &[Arc<Adapter<B>>]) -> Result<()>,
) -> Result<()> {
    check_unmerged(model)?;
    let (mut places, mut visits) = (HashMap::<usize, Vec<String>>::new(), HashMap::<usize, usize>::new());
    Visitor::walk(model, |path, item: Item<'_, B>| match item {
        Item::Param(param) => places.entry(param.id()).or_default().push(path.to_owned()),
        Item::Adapters(place) => *visits.entry(place.slot.id()).or_default() += 1,
        _ => {}
    });
    let mut outcome = Ok(());
    Visitor::walk(model, |path, item: Item<'_, B>| {
        if let Item::Adapters(place) = item
            && outcome.is_ok()
            && let Some(active) = place.slot.active()
        {
            let checked = place.layer.weight.param().and_then(|weight| {
                // A layer that is used at several places has its weight at the same number of places.
                let shared = places.get(&weight.id()).ok_or_else(|| {
                    Error::invalid("the weight of a layer with an adapter is hidden")
                        .with_hint("give the model itself, as in `lora::merge(&*trained)`")
                })?;
                check(&place.layer, shared.len() == visits[&place.slot.id()], shared)?;
                each(&place, weight, &active)
            });
            outcome = checked.map_err(|error| error.with_op("merge").in_module(path));
        }
    });
    outcome
}

/// Removes merged adapters from the weights; does nothing if none are merged.
///
/// # Errors
/// If a device fails.
pub fn unmerge<B: Backend>(model: &(impl Visit<B> + ?Sized)) -> Result<()> {
    let mut outcome = Ok(());
    Visitor::walk(model, |path, item: Item<'_, B>| {
        if let Item::Adapters(place) = item
            && outcome.is_ok()
        {
            let own = place.slot.read().unmerged.clone();
            outcome = own
                .map_or(Ok(()), |own| restore(place.layer.weight.param()?, &own))
                .map_err(|e| e.in_module(path));
            if outcome.is_ok() {
                place.slot.change(|state| state.unmerged = None);
            }
        }
    });
    outcome
}

fn restore<B: Backend>(weight: &Param<B>, own: &Tensor<B>) -> Result<()> {
    weight.set(&own.to_device(&weight.device())?.to_dtype(weight.dtype())?)
}

/// Merges the active adapters into the weights permanently and removes all adapters from the model, which is an
/// ordinary one afterwards. Frozen parameters stay frozen.
///
/// # Errors
/// Those of [`merge`], except that adapters may be merged already.
pub fn merge_and_unload<B: Backend>(model: &(impl Visit<B> + ?Sized)) -> Result<()> {
    if check_unmerged(model).is_ok() {
        merge(model)?;
    }
    for (_, slot) in slots(model) {
        slot.change(|state| {
            state.adapters.clear();
            state.active = [].into();
            state.unmerged = None;
        });
    }
    Ok(())
}

/// A weight that will replace a layer's own.
struct Merged<B: Backend> {
    slot: AdapterSlot<B>,
    weight: Param<B>,
    new: Tensor<B>,
}

impl<B: Backend> Merged<B> {
    fn new(slot: &AdapterSlot<B>, weight: &Param<B>, new: Tensor<B>) -> Self {
        Self {
            slot: slot.handle(),
            weight: weight.clone(),
            new,
        }
    }
}

fn check<B: Backend>(layer: &Layer<'_, B>, alone: bool, places: &[String]) -> Result<()> {
    if !layer.can_merge() {
        return Err(
            Error::unsupported("the adapter of a convolution of groups cannot be merged")
                .with_hint("leave the adapter attached"),
        );
    }
    if !alone {
        let text = format!(
            "{} are one weight, and the adapter is for one of these layers",
            places.join(" and ")
        );
        return Err(Error::unsupported(text).with_hint("leave the adapter attached, or untie the weights"));
    }
    Ok(())
}

/// The weight of a layer merged with its adapters.
fn of<B: Backend>(layer: &Layer<'_, B>, active: &[Arc<Adapter<B>>]) -> Result<Tensor<B>> {
    let own = layer.weight.value()?;
    let merged = active
        .iter()
        .try_fold(own.clone(), |weight, adapter| adapter.merged(layer, &weight))?;
    merged.to_dtype(own.dtype())
}
