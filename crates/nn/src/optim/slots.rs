//! What an optimizer remembers about each parameter.

use std::collections::HashSet;

use polygrad_tensor::{Backend, Error, ErrorKind, Gradients, HostTensor, Result, Tensor};

use crate::{Param, StateDict, nearest};

/// The parameters of an optimizer, each with its state.
pub(super) struct Slots<B: Backend> {
    slots: Vec<Slot<B>>,
    /// What each tensor of a slot's state is called.
    fields: &'static [&'static str],
    pub(super) allow_unused: bool,
}

struct Slot<B: Backend> {
    name: String,
    param: Param<B>,
    /// How many steps it has taken.
    step: u64,
    /// One tensor for each field, from the first step on.
    state: Vec<B::Tensor>,
}

impl<B: Backend> Slots<B> {
    /// Slots for parameters, each once.
    pub(super) fn new(params: impl IntoIterator<Item = Param<B>>, fields: &'static [&'static str]) -> Result<Self> {
        let (mut ids, mut names) = (HashSet::new(), HashSet::new());
        let mut slots = Vec::new();
        for param in params {
            if !ids.insert(param.id()) {
                continue;
            }
            let base = param
                .name()
                .map_or_else(|| format!("param{}", slots.len()), |name| name.to_string());
            // Two models may use one name: the state keeps them apart by their order.
            let name = std::iter::once(base.clone())
                .chain((2..).map(|i| format!("{base}#{i}")))
                .find(|name| !names.contains(name))
                .unwrap_or(base);
            names.insert(name.clone());
            slots.push(Slot {
                name,
                param,
                step: 0,
                state: Vec::new(),
            });
        }
        if slots.is_empty() {
            return Err(
                Error::invalid("an optimizer needs at least one parameter").with_hint("give it model.parameters()")
            );
        }
        Ok(Self {
            slots,
            fields,
            allow_unused: false,
        })
    }

    /// Calls `update` for each trainable parameter with its value, its gradient, its state (zeros at first), and the number of this step,
    /// from 1. `update` changes all that it is given, or nothing when it fails.
    pub(super) fn step(
        &mut self,
        gradients: &Gradients<B>,
        mut update: impl FnMut(&mut B::Tensor, &B::Tensor, &mut [B::Tensor], u64) -> Result<()>,
    ) -> Result<()> {
        if !self.allow_unused {
            self.check_complete(gradients)?;
        }
        for slot in self.slots.iter_mut().filter(|slot| slot.param.is_trainable()) {
            let Some(gradient) = gradients.get(&slot.param) else {
                continue;
            };
            let Slot { param, step, state, .. } = slot;
            let taken = param.update(|value| {
                if state.is_empty() {
                    // All or none: a device that fails here must not leave half a state behind.
                    let zeros = || B::zeros(B::shape(value), B::dtype(value), &B::device(value));
                    *state = self.fields.iter().map(|_| zeros()).collect::<Result<_>>()?;
                }
                if state
                    .iter()
                    .any(|s| B::dtype(s) != B::dtype(value) || !B::same_device(s, value))
                {
                    return Err(
                        Error::invalid("the parameter's dtype or device has changed since the last step")
                            .with_hint("make the optimizer after to_dtype and to_device"),
                    );
                }
                update(value, gradient.inner(), state, *step + 1)
            });
            taken.map_err(|e| e.with_op("optimizer step").in_module(slot.name.clone()))?;
            *step += 1;
        }
        Ok(())
    }

    #[inline]
    fn check_complete(&self, gradients: &Gradients<B>) -> Result<()> {
        let lacks = |slot: &&Slot<B>| slot.param.is_trainable() && gradients.get(&slot.param).is_none();
        let missing: Vec<&str> = self.slots.iter().filter(lacks).map(|slot| slot.name.as_str()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let these = if missing.len() == 1 {
            "this parameter"
        } else {
            "these parameters"
        };
        Err(Error::new(
            ErrorKind::NoGradient,
            format!("the loss does not depend on {these}: {}", missing.join(", ")),
        )
        .with_op("optimizer step")
        .with_hint("use them in the forward pass, freeze them, or call allow_unused(true)"))
    }

    pub(super) fn state_dict(&self, lr: f64) -> Result<StateDict> {
        let mut out = StateDict::new();
        out.insert("lr", HostTensor::scalar(lr));
        for slot in self.slots.iter().filter(|slot| slot.step > 0) {
            out.insert(format!("{}.step", slot.name), HostTensor::scalar(slot.step as i64));
            for (field, tensor) in self.fields.iter().zip(&slot.state) {
                let name = format!("{}.{field}", slot.name);
                match B::to_host(tensor) {
                    Ok(host) => out.insert(name, host),
                    Err(error) => return Err(error.with_op("to_host").in_module(name)),
                }
            }
        }
        Ok(out)
    }

    /// Takes over a state, and gives the learning rate.
    pub(super) fn load_state_dict(&mut self, state: &StateDict) -> Result<f64> {
        let loader = Loader::read(self, state)?;
        for (slot, (step, tensors)) in self.slots.iter_mut().zip(loader.slots) {
            (slot.step, slot.state) = (step, tensors);
        }
        Ok(loader.lr)
    }
}

/// A state that fits, on the device already, so that a failure leaves the optimizer as it was.
struct Loader<B: Backend> {
    lr: f64,
    slots: Vec<(u64, Vec<B::Tensor>)>,
}

impl<B: Backend> Loader<B> {
    fn read(optimizer: &Slots<B>, state: &StateDict) -> Result<Self> {
        let mut faults = Vec::new();
        let mut known = HashSet::from(["lr".to_owned()]);
        let lr = match state.get("lr").map(HostTensor::to_f64_vec).as_deref() {
            Some(&[lr]) => lr,
            _ => {
                faults.push("missing: lr".to_owned());
                0.0
            }
        };
        let mut slots = Vec::new();
        for slot in &optimizer.slots {
            slots.push(Self::read_slot(slot, optimizer.fields, state, &mut known, &mut faults)?);
        }
        for name in state.names().filter(|name| !known.contains(*name)) {
            let near = nearest(name, known.iter().map(String::as_str));
            let near = near.map_or_else(String::new, |near| format!(" (perhaps {near})"));
            faults.push(format!("unexpected: {name}{near}"));
        }
        if faults.is_empty() {
            return Ok(Self { lr, slots });
        }
        Err(Error::new(
            ErrorKind::StateDict,
            format!("the state does not fit the optimizer; {}", faults.join(", ")),
        )
        .with_op("load_state_dict")
        .with_hint("make the same kind of optimizer, with the same options, for the same model"))
    }

    /// A slot that was never stepped has no entries.
    fn read_slot(
        slot: &Slot<B>,
        fields: &[&str],
        state: &StateDict,
        known: &mut HashSet<String>,
        faults: &mut Vec<String>,
    ) -> Result<(u64, Vec<B::Tensor>)> {
        let step_name = format!("{}.step", slot.name);
        let step = state.get(&step_name).map(HostTensor::to_f64_vec);
        known.insert(step_name.clone());
        let mut tensors = Vec::new();
        for field in fields {
            let name = format!("{}.{field}", slot.name);
            match state.get(&name) {
                Some(value) if *value.shape() != slot.param.shape() || !value.dtype().is_float() => {
                    faults.push(format!(
                        "mismatched: {name} (parameter {}{}, state {}{})",
                        slot.param.dtype(),
                        slot.param.shape(),
                        value.dtype(),
                        value.shape()
                    ))
                }
                Some(value) => {
                    let value = value.cast(slot.param.dtype());
                    let value = Tensor::from_host(value, &slot.param.device());
                    tensors.push(value.map_err(|e| e.in_module(name.clone()))?.inner().clone());
                }
                None if step.is_some() => faults.push(format!("missing: {name}")),
                None => {}
            }
            known.insert(name);
        }
        let step = match step.as_deref() {
            Some(&[step]) if step >= 1.0 => step as u64,
            Some(_) => {
                faults.push(format!("mismatched: {step_name} is no number of steps"));
                0
            }
            None if !tensors.is_empty() => {
                faults.push(format!("missing: {step_name}"));
                0
            }
            None => 0,
        };
        Ok((step, tensors))
    }
}

/// Fails unless a hyperparameter is a number in a range.
pub(super) fn check(name: &str, value: f64, range: impl std::ops::RangeBounds<f64> + std::fmt::Debug) -> Result<()> {
    if value.is_finite() && range.contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!("{name} = {value} is outside {range:?}")).with_op("optimizer"))
}
