//! Summary of a model as a table.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::rc::Rc;

use polygrad_tensor::{Backend, Result, Shape, count_flops, no_grad};

use super::{Item, Visit, Visitor};
use crate::watch;

/// The layers of a model with the shapes of their outputs, their parameters and their work; displays as a table.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Summary {
    /// The model itself, then all its modules, outer ones before inner ones.
    pub rows: Vec<SummaryRow>,
    /// Number of elements of all parameters; shared ones count once.
    pub parameters: usize,
    /// Number of elements of the parameters that are not frozen.
    pub trainable: usize,
    /// Bytes of parameters and buffers.
    pub bytes: usize,
    /// Floating-point operations of the forward pass, as counted by [`count_flops`], including those outside of layers.
    pub flops: u64,
}

/// One module of a [`Summary`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SummaryRow {
    /// Path of the module in the model; empty for the model itself.
    pub path: String,
    /// Number of modules around it.
    pub depth: usize,
    /// The type of the module, as in `Linear`.
    pub layer: String,
    /// The shape of its last output; `None` if hooks do not see it or it was not called.
    pub output: Option<Shape>,
    /// Number of calls; calls of a module at several places count for the first one.
    pub calls: usize,
    /// Number of elements of the parameters in it and its inner modules; shared ones count once.
    pub parameters: usize,
    /// Floating-point operations of all its calls, or, if hooks do not see it, of its inner layers.
    pub flops: u64,
}

pub(super) fn summarize<B: Backend, R>(
    model: &(impl Visit<B> + ?Sized),
    forward: impl FnOnce() -> Result<R>,
) -> Result<Summary> {
    let mut summary = Summary {
        rows: Vec::new(),
        parameters: 0,
        trainable: 0,
        bytes: 0,
        flops: 0,
    };
    let mut params = Vec::new();
    let mut seen = HashSet::new();
    let mut around: Vec<String> = Vec::new();
    Visitor::walk(model, |path, item| match item {
        Item::Module(module) => {
            while around.pop_if(|outer| !is_in(path, outer)).is_some() {}
            summary.rows.push(SummaryRow {
                path: path.to_owned(),
                depth: around.len(),
                layer: module.type_name(),
                output: None,
                calls: 0,
                parameters: 0,
                flops: 0,
            });
            around.push(path.to_owned());
        }
        Item::Param(param) => {
            let count = param.shape().numel();
            params.push((path.to_owned(), param.id(), count));
            if seen.insert(param.id()) {
                summary.parameters += count;
                summary.trainable += if param.is_trainable() { count } else { 0 };
                summary.bytes += count * param.dtype().size();
            }
        }
        Item::Buffer(buffer) => {
            let buffer = buffer.tensor();
            summary.bytes += buffer.numel() * buffer.dtype().size();
        }
        Item::Mode(_) | Item::Sync(_) | Item::Adapters(_) | Item::Unused => {}
    });
    for row in &mut summary.rows {
        let mut seen = HashSet::new();
        let inside = params
            .iter()
            .filter(|(path, id, _)| is_in(path, &row.path) && seen.insert(*id));
        row.parameters = inside.map(|(_, _, count)| count).sum();
    }

    let calls = Rc::new(RefCell::new(Vec::new()));
    let hook = {
        let calls = Rc::clone(&calls);
        move |layer: &watch::Activation<B>| {
            if layer.is_method {
                return;
            }
            let call = (layer.path.clone(), layer.output.shape(), layer.flops);
            calls.borrow_mut().push(call);
        }
    };
    let (outcome, flops) = in_evaluation(model, || {
        count_flops(|| no_grad(|| watch::with_hook(model, hook, forward)))
    });
    outcome.map_err(|e| watch::locate(model, e))?;
    summary.flops = flops;
    for (path, output, flops) in calls.take() {
        // Calls of modules that cannot be told apart count for the first one, so that the sums are right.
        for (i, place) in path.split('|').enumerate() {
            for row in summary.rows.iter_mut().filter(|row| row.path == place) {
                row.output = Some(output);
                if i == 0 {
                    row.calls += 1;
                    row.flops += flops;
                }
            }
        }
    }
    // Modules that hooks do not see get the sum of the rows directly below them. Iterating from the inside out makes
    // sure that those are complete.
    for i in (0..summary.rows.len()).rev() {
        let (row, below) = summary.rows[i..]
            .split_first_mut()
            .unwrap_or_else(|| unreachable!("i is a row"));
        if row.calls == 0 {
            let below = below.iter().take_while(|inner| inner.depth > row.depth);
            row.flops = below
                .filter(|inner| inner.depth == row.depth + 1)
                .map(|inner| inner.flops)
                .sum();
        }
    }
    Ok(summary)
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = vec![["module", "output", "parameters", "FLOPs"].map(str::to_owned)];
        let mut around: Vec<&str> = Vec::new();
        for row in &self.rows {
            // Named relative to the module around it: an element of a list has the list's name and its index.
            around.truncate(row.depth);
            let outer = around.last().copied().unwrap_or_default();
            let name = row
                .path
                .strip_prefix(outer)
                .unwrap_or(&row.path)
                .trim_start_matches('.');
            around.push(&row.path);
            let colon = if name.is_empty() { "" } else { ": " };
            let calls = if row.calls > 1 {
                format!(" ×{}", row.calls)
            } else {
                String::new()
            };
            table.push([
                format!("{}{name}{colon}{}", "  ".repeat(row.depth), row.layer),
                row.output.map_or_else(String::new, |shape| format!("{shape}{calls}")),
                grouped(row.parameters as u64),
                grouped(row.flops),
            ]);
        }
        let width = |column: usize| table.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; 4] = std::array::from_fn(width);
        for [name, output, parameters, flops] in &table {
            writeln!(
                f,
                "{name:<0$}  {output:<1$}  {parameters:>2$}  {flops:>3$}",
                widths[0], widths[1], widths[2], widths[3]
            )?;
        }
        write!(
            f,
            "{} parameters ({} trainable), {} bytes with buffers, {} FLOPs forward",
            grouped(self.parameters as u64),
            grouped(self.trainable as u64),
            grouped(self.bytes as u64),
            grouped(self.flops)
        )
    }
}

/// Formats with commas between groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Runs `f` in evaluation and then restores each module's mode: a summary must not change running statistics.
fn in_evaluation<B: Backend, R>(model: &(impl Visit<B> + ?Sized), f: impl FnOnce() -> R) -> R {
    let mut modes = Vec::new();
    Visitor::walk(model, |_, item| {
        if let Item::Mode(mode) = item {
            modes.push(mode.is_training());
            mode.set_training(false);
        }
    });
    let result = f();
    let mut modes = modes.into_iter();
    Visitor::walk(model, |_, item| {
        if let Item::Mode(mode) = item
            && let Some(training) = modes.next()
        {
            mode.set_training(training);
        }
    });
    result
}

/// Whether a path is below another one, or equal to it.
fn is_in(path: &str, outer: &str) -> bool {
    outer.is_empty()
        || path
            .strip_prefix(outer)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
