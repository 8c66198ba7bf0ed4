//! Reduces a failing program as long as it still fails.
//!
//! Source: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (2002), on steps: a step is
//! removed by turning its results into inputs.

use std::time::{Duration, Instant};

use polygrad_core::DType;
use polygrad_tensor::{Device, no_grad};

use super::calls::Arg;
use super::program::{Dtypes, Fill, Input, Kind, Program, Role};
use super::run::placed;

/// The smallest program found that also fails, before the time is up.
pub(crate) fn reduced(program: &Program, patience: Duration, fails: &mut dyn FnMut(&Program) -> bool) -> Program {
    let mut reducer = Reducer {
        best: program.clone(),
        fails,
        end: Instant::now() + patience,
    };
    loop {
        let before = reducer.best.clone();
        reducer.fewer_outputs();
        reducer.less_asked();
        reducer.fewer_steps();
        reducer.smaller_extents();
        if reducer.best == before || reducer.is_late() {
            return reducer.best;
        }
    }
}

struct Reducer<'a> {
    best: Program,
    fails: &'a mut dyn FnMut(&Program) -> bool,
    end: Instant,
}

impl Reducer<'_> {
    fn is_late(&self) -> bool {
        Instant::now() > self.end
    }

    fn take(&mut self, candidate: Option<Program>) -> bool {
        let Some(candidate) = candidate.filter(|candidate| *candidate != self.best) else {
            return false;
        };
        let better = !self.is_late() && (self.fails)(&candidate);
        if better {
            self.best = candidate;
        }
        better
    }

    fn fewer_outputs(&mut self) {
        for output in self.best.outputs.clone() {
            let mut one = self.best.clone();
            one.outputs = vec![output];
            if self.take(Some(one.swept())) {
                return;
            }
        }
        let mut i = 0;
        while i < self.best.outputs.len() && self.best.outputs.len() > 1 {
            let mut fewer = self.best.clone();
            fewer.outputs.remove(i);
            if !self.take(Some(fewer.swept())) {
                i += 1;
            }
        }
    }

    fn less_asked(&mut self) {
        if self.best.trainer.is_some() {
            let less = Program {
                trainer: None,
                ..self.best.clone()
            };
            self.take(Some(less));
        }
        while self.best.order > 0 {
            let less = Program {
                order: self.best.order - 1,
                ..self.best.clone()
            };
            if !self.take(Some(less)) {
                break;
            }
        }
        for i in 0..self.best.inputs.len() {
            if self.best.inputs[i].role == Role::Leaf {
                let mut less = self.best.clone();
                less.inputs[i].role = Role::Data;
                self.take(Some(less));
            }
        }
    }

    /// Removes many steps at once first.
    fn fewer_steps(&mut self) {
        let mut many = self.best.steps.len().div_ceil(2).max(1);
        loop {
            let mut end = self.best.steps.len();
            while end > 0 {
                let start = end.saturating_sub(many);
                let without = self.best.without(start..end);
                self.take(without);
                end = start.min(self.best.steps.len());
            }
            if many == 1 || self.is_late() {
                break;
            }
            many /= 2;
        }
    }

    fn smaller_extents(&mut self) {
        let mut extents: Vec<usize> = self.best.inputs.iter().flat_map(|input| input.shape.clone()).collect();
        extents.sort_unstable();
        extents.dedup();
        for extent in extents.into_iter().rev().filter(|extent| *extent > 1) {
            for smaller in [1, 2, extent / 2] {
                if smaller >= 1 && smaller < extent {
                    let everywhere = self.best.with_extent(extent, smaller, true);
                    if self.take(Some(everywhere)) {
                        break;
                    }
                    let inputs = self.best.with_extent(extent, smaller, false);
                    if self.take(Some(inputs)) {
                        break;
                    }
                }
            }
        }
    }
}

impl Program {
    /// The program without steps and inputs that no output depends on.
    fn swept(&self) -> Self {
        let first = self.first_results();
        let mut needed = vec![false; self.values()];
        for &output in &self.outputs {
            needed[output] = true;
        }
        let mut stays = vec![false; self.steps.len()];
        for (i, step) in self.steps.iter().enumerate().rev() {
            if (first[i]..first[i] + step.results).any(|value| needed[value]) {
                stays[i] = true;
                for &operand in &step.operands {
                    needed[operand] = true;
                }
            }
        }
        // A program needs an input to run on.
        if !needed[..self.inputs.len()].contains(&true) {
            needed[0] = true;
        }
        let mut places = vec![usize::MAX; self.values()];
        let mut inputs = Vec::new();
        for (i, input) in self.inputs.iter().enumerate() {
            if needed[i] {
                places[i] = inputs.len();
                inputs.push(input.clone());
            }
        }
        let mut next = inputs.len();
        let mut steps = Vec::new();
        for (i, step) in self.steps.iter().enumerate() {
            if !stays[i] {
                continue;
            }
            for k in 0..step.results {
                places[first[i] + k] = next;
                next += 1;
            }
            let mut step = step.clone();
            for operand in &mut step.operands {
                *operand = places[*operand];
            }
            steps.push(step);
        }
        Self {
            inputs,
            steps,
            outputs: self.outputs.iter().map(|&output| places[output]).collect(),
            ..self.clone()
        }
    }

    /// The program with the results of some steps as inputs. `None` if they cannot be computed.
    fn without(&self, gone: std::ops::Range<usize>) -> Option<Self> {
        let types = self.types()?;
        let first = self.first_results();
        let mut inputs = self.inputs.clone();
        let mut places: Vec<usize> = (0..self.values()).collect();
        let mut added: Vec<usize> = Vec::new();
        for step in gone.clone() {
            let results = first[step]..first[step] + self.steps[step].results;
            inputs.extend_from_slice(&types[results.clone()]);
            added.extend(results);
        }
        let shift = added.len();
        for (k, &value) in added.iter().enumerate() {
            places[value] = self.inputs.len() + k;
        }
        let mut next = self.inputs.len() + shift;
        for (i, step) in self.steps.iter().enumerate() {
            if gone.contains(&i) {
                continue;
            }
            for place in &mut places[first[i]..first[i] + step.results] {
                *place = next;
                next += 1;
            }
        }
        let steps = self.steps.iter().enumerate().filter(|(i, _)| !gone.contains(i));
        let steps = steps.map(|(_, step)| {
            let mut step = step.clone();
            for operand in &mut step.operands {
                *operand = places[*operand];
            }
            step
        });
        let less = Self {
            steps: steps.collect(),
            inputs,
            outputs: self.outputs.iter().map(|&output| places[output]).collect(),
            ..self.clone()
        };
        Some(less.swept())
    }

    /// An input for each value, with its shape, dtype and approximate range.
    fn types(&self) -> Option<Vec<Input>> {
        let dtypes = Dtypes {
            tested: DType::F64,
            wide: true,
        };
        let device: Device = crate::reference();
        let values = no_grad(|| {
            let mut values = placed(&self.numbers(0, dtypes).ok()?, &device).ok()?;
            for step in &self.steps {
                let operands = step.operands.iter().map(|&operand| values[operand].clone()).collect();
                values.extend(step.call.run(operands, &step.args, dtypes).ok()?);
            }
            Some(values)
        })?;
        let mut types = self.inputs.clone();
        let mut kinds: Vec<Kind> = self.inputs.iter().map(|input| input.kind).collect();
        let first = self.first_results();
        for (i, step) in self.steps.iter().enumerate() {
            let is_float =
                |kind: &Kind| matches!(kind, Kind::Tested) || matches!(kind, Kind::Fixed(dtype) if dtype.is_float());
            let asked = step.args.iter().find_map(|arg| match arg {
                Arg::Kind(kind) => Some(*kind),
                _ => None,
            });
            let operand = step.operands.iter().map(|&operand| kinds[operand]).find(is_float);
            for value in &values[first[i]..first[i] + step.results] {
                let kind = match value.dtype().is_float() {
                    true => asked.or(operand).unwrap_or(Kind::Tested),
                    false => Kind::Fixed(value.dtype()),
                };
                kinds.push(kind);
                let numbers = value.to_f64_vec().ok()?;
                let whole = numbers.iter().all(|x| *x == x.trunc());
                let low = numbers.iter().copied().fold(f64::INFINITY, f64::min);
                let high = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let (low, high) = if low > high { (0.0, 1.0) } else { (low, high) };
                types.push(Input {
                    shape: value.dims(),
                    kind,
                    fill: match whole {
                        true => Fill::Whole(low as i64, high as i64),
                        false => Fill::Uniform(low, high),
                    },
                    role: if value.dtype().is_float() {
                        Role::Leaf
                    } else {
                        Role::Data
                    },
                });
            }
        }
        Some(types)
    }

    /// The program with each extent of this size replaced by another, also in arguments if requested.
    fn with_extent(&self, extent: usize, other: usize, args: bool) -> Self {
        let mut changed = self.clone();
        for input in &mut changed.inputs {
            for dim in input.shape.iter_mut().filter(|dim| **dim == extent) {
                *dim = other;
            }
        }
        for arg in changed
            .steps
            .iter_mut()
            .filter(|_| args)
            .flat_map(|step| &mut step.args)
        {
            if let Arg::List(values) = arg {
                for value in values.iter_mut().filter(|value| **value == extent as i64) {
                    *value = other as i64;
                }
            }
        }
        changed
    }
}
