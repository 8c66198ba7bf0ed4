//! A profile in Chrome's trace event format, which Perfetto reads too: complete events (`"ph": "X"`) with times in microseconds.
//!
//! <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>

use serde_json::{Value, json};

use super::record::{Pass, Profile, Sample, Span};

/// The track of steps, layers and ops, which lie in each other.
const CALLS: u32 = 1;

/// The track of passes: a layer's pass begins with the layer, which is before its first op.
const PASSES: u32 = 2;

/// The whole trace of the work called `title`.
pub(super) fn trace(title: &str, profile: &Profile) -> Value {
    let name = |what: &str, tid: u32, name: &str| json!({"name": what, "ph": "M", "pid": 1, "tid": tid, "args": {"name": name}});
    let mut events = vec![
        name("process_name", CALLS, &format!("polygrad {title}")),
        name("thread_name", CALLS, "steps, layers and ops"),
        name("thread_name", PASSES, "passes"),
    ];
    for (number, step) in profile.steps.iter().enumerate() {
        events.push(event(&format!("step {}", number + 1), "step", CALLS, step, json!({})));
    }
    for layer in &profile.layers {
        let name = profile.label(Some(&layer.place));
        events.push(event(&name, "layer", CALLS, &layer.span, json!({"type": layer.kind})));
    }
    for sample in &profile.samples {
        events.push(event(sample.op, "op", CALLS, &sample.span, arguments(sample)));
    }
    for (pass, span) in passes(profile) {
        events.push(event(pass.name(), "pass", PASSES, &span, json!({})));
    }
    json!({"traceEvents": events, "displayTimeUnit": "ns"})
}

fn event(name: &str, category: &str, track: u32, span: &Span, arguments: Value) -> Value {
    let microseconds = |time: std::time::Duration| time.as_nanos() as f64 * 1e-3;
    json!({
        "name": name,
        "cat": category,
        "ph": "X",
        "ts": microseconds(span.begin),
        "dur": microseconds(span.duration()),
        "pid": 1,
        "tid": track,
        "args": arguments,
    })
}

fn arguments(sample: &Sample) -> Value {
    json!({
        "shapes": sample.shapes(),
        "module": sample.module.as_deref(),
        "pass": sample.pass().name(),
        "flops": sample.flops,
    })
}

/// From the first to the last op of each stretch of one pass in a step.
fn passes(profile: &Profile) -> Vec<(Pass, Span)> {
    let mut out: Vec<(Pass, Span)> = Vec::new();
    let mut steps = profile.steps.iter().peekable();
    for sample in &profile.samples {
        // Samples and steps are in the order of time.
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
