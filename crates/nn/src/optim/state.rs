//! Conversion of an optimizer's state to a state dict and back.

use std::collections::HashSet;

use polygrad_core::nearest;
use polygrad_tensor::{Backend, Error, ErrorKind, HostTensor, Result, Tensor};

use super::common::Rule;
use super::slots::{Groups, Slot};
use crate::StateDict;

/// The learning rate of each group.
const LR: &str = "lr";
/// The rate in each group's options. Files of earlier versions lack it.
const BASE_LR: &str = "base_lr";

impl<B: Backend, C: Rule<B>> Groups<B, C> {
    pub(super) fn state_dict(&self) -> Result<StateDict> {
        let mut out = StateDict::new();
        for (name, rates) in [(LR, self.lrs()), (BASE_LR, self.base_lrs())] {
            out.insert(name, HostTensor::new([rates.len()].into(), rates)?);
        }
        for group in &self.groups {
            for slot in group.slots.iter().filter(|slot| slot.step > 0) {
                out.insert(format!("{}.step", slot.name), HostTensor::scalar(slot.step as i64));
                for (field, tensor) in group.fields.iter().zip(&slot.state) {
                    let name = format!("{}.{field}", slot.name);
                    match B::to_host(tensor) {
                        Ok(host) => out.insert(name, host),
                        Err(error) => return Err(error.with_op("to_host").in_module(name)),
                    }
                }
            }
        }
        Ok(out)
    }

    pub(super) fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let loaded = Loaded::read(self, state)?;
        let slots = self.groups.iter_mut().flat_map(|group| &mut group.slots);
        for (slot, (step, tensors)) in slots.zip(loaded.slots) {
            (slot.step, slot.state) = (step, tensors);
        }
        for ((group, lr), base_lr) in self.groups.iter_mut().zip(loaded.lrs).zip(loaded.base_lrs) {
            group.config.set_lr(lr);
            group.base_lr = base_lr;
        }
        Ok(())
    }
}

/// A state that fits, already on the device, so that a failure leaves the optimizer as it was.
struct Loaded<B: Backend> {
    lrs: Vec<f64>,
    base_lrs: Vec<f64>,
    slots: Vec<(u64, Vec<B::Tensor>)>,
}

impl<B: Backend> Loaded<B> {
    fn read<C: Rule<B>>(optimizer: &Groups<B, C>, state: &StateDict) -> Result<Self> {
        let mut faults = Vec::new();
        let mut known = HashSet::from([LR.to_owned(), BASE_LR.to_owned()]);
        let groups = optimizer.groups.len();
        let mut rates = |name: &str, default: Option<Vec<f64>>| {
            let found = state.get(name).map(HostTensor::to_f64_vec).or(default);
            match found {
                Some(rates) if rates.len() == groups => rates,
                Some(rates) => {
                    faults.push(format!(
                        "mismatched: {name} (groups of the optimizer: {groups}, of the state: {})",
                        rates.len()
                    ));
                    Vec::new()
                }
                None => {
                    faults.push(format!("missing: {name}"));
                    Vec::new()
                }
            }
        };
        let lrs = rates(LR, None);
        let base_lrs = rates(BASE_LR, Some(optimizer.base_lrs()));
        let mut slots = Vec::new();
        for group in &optimizer.groups {
            for slot in &group.slots {
                slots.push(Self::read_slot(slot, group.fields, state, &mut known, &mut faults)?);
            }
        }
        for name in state.keys().filter(|name| !known.contains(*name)) {
            let near = nearest(name, known.iter().map(String::as_str));
            let near = near.map_or_else(String::new, |near| format!(" (perhaps {near})"));
            faults.push(format!("unexpected: {name}{near}"));
        }
        if faults.is_empty() {
            return Ok(Self { lrs, base_lrs, slots });
        }
        Err(Error::new(
            ErrorKind::StateDict,
            format!("the state does not fit the optimizer; {}", faults.join(", ")),
        )
        .with_op("load_state_dict")
        .with_hint("make the same kind of optimizer, with the same options, for the same model"))
    }

    /// A slot that has never taken a step has no entries.
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
