//! The parameters of an optimizer, in groups, each with what is remembered about it.

use std::collections::HashSet;

use polygrad_tensor::{Backend, Error, ErrorKind, Gradients, Result};

use super::common::Rule;
use crate::Param;

/// All groups of an optimizer; the first is there from the beginning.
pub(super) struct Groups<B: Backend, C> {
    pub(super) groups: Vec<Group<B, C>>,
    pub(super) allow_unused: bool,
}

/// Parameters with the same options.
pub(super) struct Group<B: Backend, C> {
    pub(super) config: C,
    /// The rate that the options said, to which schedules refer.
    pub(super) base_lr: f64,
    /// What each tensor of a slot's state is called.
    pub(super) fields: &'static [&'static str],
    pub(super) slots: Vec<Slot<B>>,
}

/// A parameter and its state.
pub(super) struct Slot<B: Backend> {
    pub(super) name: String,
    pub(super) param: Param<B>,
    /// How many steps it has taken.
    pub(super) step: u64,
    /// One tensor for each field, from the first step on.
    pub(super) state: Vec<B::Tensor>,
}

impl<B: Backend, C> Default for Groups<B, C> {
    fn default() -> Self {
        Self {
            groups: Vec::new(),
            allow_unused: false,
        }
    }
}

impl<B: Backend, C: Rule<B>> Groups<B, C> {
    /// Adds a group: parameters that are in no other one, each once.
    pub(super) fn add(&mut self, config: C, params: impl IntoIterator<Item = Param<B>>) -> Result<()> {
        config.check()?;
        let mut names: HashSet<String> = self.slots().map(|slot| slot.name.clone()).collect();
        let taken: HashSet<usize> = self.slots().map(|slot| slot.param.id()).collect();
        let mut ids = HashSet::new();
        let (mut slots, mut twice) = (Vec::new(), Vec::new());
        for param in params {
            if !ids.insert(param.id()) {
                continue;
            }
            let base = param
                .name()
                .map_or_else(|| format!("param{}", names.len()), |name| name.to_string());
            if taken.contains(&param.id()) {
                twice.push(base);
                continue;
            }
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
        if !twice.is_empty() {
            return Err(
                Error::invalid(format!("already in another group: {}", twice.join(", ")))
                    .with_op("add_group")
                    .with_hint("a parameter belongs to one group"),
            );
        }
        if slots.is_empty() {
            return Err(
                Error::invalid("an optimizer needs at least one parameter").with_hint("give it model.parameters()")
            );
        }
        config.check_params(
            &mut slots
                .iter()
                .map(|slot: &Slot<B>| (slot.name.as_str(), slot.param.shape())),
        )?;
        self.groups.push(Group {
            base_lr: config.lr(),
            fields: config.fields(),
            config,
            slots,
        });
        Ok(())
    }

    fn slots(&self) -> impl Iterator<Item = &Slot<B>> {
        self.groups.iter().flat_map(|group| &group.slots)
    }

    /// One step for each trainable parameter, by its group's rule.
    pub(super) fn step(&mut self, gradients: &Gradients<B>) -> Result<()> {
        if !self.allow_unused {
            self.check_complete(gradients)?;
        }
        for group in &mut self.groups {
            for slot in group.slots.iter_mut().filter(|slot| slot.param.is_trainable()) {
                let Some(gradient) = gradients.get(&slot.param) else {
                    continue;
                };
                let Slot { param, step, state, .. } = slot;
                let taken = param.update(|value| {
                    if state.is_empty() {
                        // All or none: a device that fails here must not leave half a state behind.
                        let zeros = || B::zeros(B::shape(value), B::dtype(value), &B::device(value));
                        *state = group.fields.iter().map(|_| zeros()).collect::<Result<_>>()?;
                    }
                    if state.iter().any(|s| B::dtype(s) != B::dtype(value)) {
                        return Err(Error::invalid("the parameter's dtype has changed since the last step")
                            .with_hint("make the optimizer after to_dtype"));
                    }
                    if !state.iter().all(|s| B::same_device(s, value)) {
                        let device = B::device(value);
                        let moved = |s: &B::Tensor| B::from_host(B::to_host(s)?, &device);
                        *state = state.iter().map(moved).collect::<Result<_>>()?;
                    }
                    group.config.update(value, gradient.inner(), state, *step + 1)
                });
                taken.map_err(|e| e.with_op("optimizer step").in_module(slot.name.clone()))?;
                *step += 1;
            }
        }
        Ok(())
    }

    #[inline]
    fn check_complete(&self, gradients: &Gradients<B>) -> Result<()> {
        let lacks = |slot: &&Slot<B>| slot.param.is_trainable() && gradients.get(&slot.param).is_none();
        let missing: Vec<&str> = self.slots().filter(lacks).map(|slot| slot.name.as_str()).collect();
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

    /// The first group's rate.
    pub(super) fn lr(&self) -> f64 {
        // There is a first group: `build` adds it, or fails.
        self.groups.first().map_or(0.0, |group| group.config.lr())
    }

    pub(super) fn set_lr(&mut self, lr: f64) {
        for group in &mut self.groups {
            group.config.set_lr(lr);
        }
    }

    pub(super) fn lrs(&self) -> Vec<f64> {
        self.groups.iter().map(|group| group.config.lr()).collect()
    }

    pub(super) fn base_lrs(&self) -> Vec<f64> {
        self.groups.iter().map(|group| group.base_lr).collect()
    }

    pub(super) fn set_lrs(&mut self, lrs: &[f64]) -> Result<()> {
        if lrs.len() != self.groups.len() {
            return Err(Error::invalid(format!(
                "{} learning rates for {} groups of parameters",
                lrs.len(),
                self.groups.len()
            ))
            .with_op("set_lrs")
            .with_hint("give one for each group, or set_lr one for all"));
        }
        for (group, &lr) in self.groups.iter_mut().zip(lrs) {
            group.config.set_lr(lr);
        }
        Ok(())
    }
}
