//! A profile as a trace.

use polygrad::nn::profile::{Pass, Profile, Sample, Span};
use serde_json::{Value, json};

use crate::trace::Trace;

/// The track of steps, layers and ops, which are nested.
const CALLS: usize = 0;

/// The track of passes. It is separate since a layer's pass begins with the layer, before its first op.
const PASSES: usize = 1;

/// The whole trace of the work called `title`.
pub(super) fn trace(title: &str, profile: &Profile) -> Trace {
    let mut trace = Trace::new(title, &["steps, layers and ops", "passes"]);
    for (number, step) in profile.steps.iter().enumerate() {
        trace.add(&format!("step {}", number + 1), "step", CALLS, step, json!({}));
    }
    for layer in &profile.layers {
        let name = profile.label(Some(&layer.place));
        trace.add(&name, "layer", CALLS, &layer.span, json!({"type": layer.kind}));
    }
    for sample in &profile.samples {
        trace.add(sample.op, "op", CALLS, &sample.span, arguments(sample));
    }
    for (pass, span) in passes(profile) {
        trace.add(pass.name(), "pass", PASSES, &span, json!({}));
    }
    trace
}

fn arguments(sample: &Sample) -> Value {
    json!({
        "shapes": sample.shapes(),
        "module": sample.module.as_deref(),
        "pass": sample.pass().name(),
        "flops": sample.flops,
    })
}

/// The span from the first to the last op of each contiguous stretch of one pass in a step.
fn passes(profile: &Profile) -> Vec<(Pass, Span)> {
    let mut out: Vec<(Pass, Span)> = Vec::new();
    let mut steps = profile.steps.iter().peekable();
    for sample in &profile.samples {
        // Samples and steps are in chronological order.
        let mut new_step = false;
        while steps.next_if(|step| step.begin <= sample.span.begin).is_some() {
            new_step = true;
        }
        match out.last_mut() {
            Some((pass, span)) if *pass == sample.pass() && !new_step => span.end = sample.span.end,
            _ => out.push((sample.pass(), sample.span)),
        }
    }
    out
}
