//! The parameters of an optimizer, in groups, each with its state.

use std::collections::HashSet;

use polygrad_core::UnaryOp;
use polygrad_tensor::{Backend, Error, ErrorKind, Gradients, Result};

use super::common::{self, Rule};
use crate::Param;

/// All groups of an optimizer; the first always exists.
pub(super) struct Groups<B: Backend, C> {
    pub(super) groups: Vec<Group<B, C>>,
    pub(super) allow_unused: bool,
    pub(super) error_if_nonfinite: bool,
}

/// Parameters with the same options.
pub(super) struct Group<B: Backend, C> {
    pub(super) config: C,
    /// The rate in the options, from which schedules start.
    pub(super) base_lr: f64,
    /// Names of the tensors in a slot's state.
    pub(super) fields: &'static [&'static str],
    pub(super) slots: Vec<Slot<B>>,
}

/// A parameter and its state.
pub(super) struct Slot<B: Backend> {
    pub(super) name: String,
    pub(super) param: Param<B>,
    /// Number of steps it has taken.
    pub(super) step: u64,
    /// One tensor for each field; empty before the first step.
    pub(super) state: Vec<B::Tensor>,
}

impl<B: Backend> Slot<B> {
    /// Its name in errors.
    fn label(&self) -> String {
        label(&self.name, &self.param)
    }
}

fn label<B: Backend>(name: &str, param: &Param<B>) -> String {
    match param.name() {
        Some(_) => name.to_owned(),
        None => format!("{name} (a parameter without a name)"),
    }
}

fn these(names: &[String]) -> &'static str {
    match names {
        [_] => "this parameter",
        _ => "these parameters",
    }
}

impl<B: Backend, C> Default for Groups<B, C> {
    fn default() -> Self {
        Self {
            groups: Vec::new(),
            allow_unused: false,
            error_if_nonfinite: false,
        }
    }
}

impl<B: Backend, C: Rule<B>> Groups<B, C> {
    /// Adds a group of parameters that are not in any other; duplicates count once.
    pub(super) fn add(&mut self, config: C, params: impl IntoIterator<Item = Param<B>>) -> Result<()> {
        config.check()?;
        config.check_together()?;
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
            // Two models may use the same name: the state distinguishes them by a number in their order.
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
        self.check(gradients)?;
        for group in &mut self.groups {
            for slot in group.slots.iter_mut().filter(|slot| slot.param.is_trainable()) {
                let Some(gradient) = gradients.get(&slot.param) else {
                    continue;
                };
                let Slot {
                    name,
                    param,
                    step,
                    state,
                } = slot;
                let label = || label(name, param);
                let taken = param.update_in_place(|value| {
                    if state.is_empty() {
                        // All or none: if the device fails here, no half-made state may remain.
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
                    let gradient = gradient.inner();
                    match group.config.is_ascent() {
                        true => group
                            .config
                            .update(value, &B::unary(UnaryOp::Neg, gradient)?, state, *step + 1),
                        false => group.config.update(value, gradient, state, *step + 1),
                    }
                });
                taken.map_err(|e| e.with_op("optimizer step").in_module(label()))?;
                *step += 1;
            }
        }
        Ok(())
    }

    /// Fails unless all trainable parameters can take a step.
    #[inline]
    fn check(&self, gradients: &Gradients<B>) -> Result<()> {
        let (mut missing, mut misfits) = (Vec::new(), Vec::new());
        for slot in self.slots().filter(|slot| slot.param.is_trainable()) {
            match gradients.get(&slot.param) {
                None if !self.allow_unused => missing.push(slot.label()),
                Some(gradient) if gradient.shape() != slot.param.shape() => misfits.push(format!(
                    "{} (gradient {}, parameter {})",
                    slot.label(),
                    gradient.shape(),
                    slot.param.shape()
                )),
                _ => {}
            }
        }
        if !missing.is_empty() {
            return Err(Error::new(
                ErrorKind::NoGradient,
                format!(
                    "the loss does not depend on {}: {}",
                    these(&missing),
                    missing.join(", ")
                ),
            )
            .with_op("optimizer step")
            .with_hint("use them in the forward pass, freeze them, or call allow_unused(true)"));
        }
        if !misfits.is_empty() {
            let text = format!("gradients of another shape: {}", misfits.join(", "));
            return Err(Error::shape(text).with_op("optimizer step"));
        }
        if self.error_if_nonfinite {
            self.check_finite(gradients)?;
        }
        Ok(())
    }

    /// Fails when a gradient is not finite. Waits for the device only once.
    fn check_finite(&self, gradients: &Gradients<B>) -> Result<()> {
        let mut largest: Vec<(&Slot<B>, B::Tensor)> = Vec::new();
        for slot in self.slots().filter(|slot| slot.param.is_trainable()) {
            if let Some(gradient) = gradients.get(&slot.param)
                && let Some(x) = common::largest::<B>(gradient.inner()).map_err(|e| e.in_module(slot.label()))?
            {
                largest.push((slot, x));
            }
        }
        if common::all_finite::<B>(largest.iter().map(|(_, x)| x))? {
            return Ok(());
        }
        let mut bad = Vec::new();
        for (slot, x) in &largest {
            if !common::all_finite::<B>([x])? {
                bad.push(slot.label());
            }
        }
        let text = format!("the gradients of {} are not finite: {}", these(&bad), bad.join(", "));
        Err(Error::invalid(text)
            .with_op("optimizer step")
            .with_hint("lower the learning rate, or look for a division by zero or a logarithm of zero in the loss"))
    }

    /// The first group's rate.
    pub(super) fn lr(&self) -> f64 {
        // The first group always exists: `build` adds it or fails.
        self.groups.first().map_or(0.0, |group| group.config.lr())
    }

    pub(super) fn set_lr(&mut self, lr: f64) {
        for group in &mut self.groups {
            group.config.set_lr(lr);
        }
    }

    pub(super) fn is_elementwise(&self) -> bool {
        self.groups.iter().all(|group| group.config.is_elementwise())
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
