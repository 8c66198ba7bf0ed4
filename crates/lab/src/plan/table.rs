//! Plans as text.

use std::time::Duration;

use polygrad::train::{Link, Prediction, StepProfile};

use crate::bench::table::duration;

/// The measurements of one rank.
pub(super) fn profile(case: &str, steps: usize, profile: &StepProfile) -> String {
    let StepProfile {
        backward,
        buckets,
        unpack,
        optimizer,
        parameters,
        optimizer_state,
        values,
    } = profile;
    let ready: Vec<String> = buckets
        .iter()
        .map(|bucket| format!("{} after {}", bytes(bucket.bytes as u64), time(bucket.ready)))
        .collect();
    let count = match buckets.len() {
        1 => "1 bucket".to_owned(),
        several => format!("{several} buckets"),
    };
    [
        format!("{case}: {steps} steps of a rank that waits for nobody"),
        format!("  backward pass  {}, forward pass included", time(*backward)),
        format!("  gradients      {count}: {}", ready.join(", ")),
        format!("  unpacking      {}", time(*unpack)),
        format!("  optimizer      {}", time(*optimizer)),
        format!(
            "  memory         model {}, optimizer {}, sums of gradients {}, values of a step {}",
            bytes(*parameters as u64),
            bytes(*optimizer_state as u64),
            bytes(profile.sums() as u64),
            bytes(*values as u64)
        ),
    ]
    .join("\n")
}

/// The link, and how it was measured.
pub(super) fn measured(engine: &str, link: &Link) -> String {
    format!("  link           {}, by all-reduces over {engine}", shown(link))
}

/// The assumptions of the predictions.
pub(super) fn assumed(link: &Link, ranks_per_host: usize, threads: usize, overlaps: bool) -> String {
    let sums = match overlaps {
        true => "sums are made while the backward pass goes on",
        false => "all cores are taken, so that sums take their time from the backward pass",
    };
    let (ranks, threads) = (counted(ranks_per_host, "rank"), counted(threads, "thread"));
    format!(
        "\npredictions for {}; {ranks} of {threads} on each machine: {sums}",
        shown(link)
    )
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn shown(link: &Link) -> String {
    let (bits, latency) = (link.bandwidth * 8.0, time(link.latency));
    match bits {
        b if b < 1e6 => format!("{:.1} kbit/s and {latency}", b * 1e-3),
        b if b < 1e9 => format!("{:.1} Mbit/s and {latency}", b * 1e-6),
        b => format!("{:.1} Gbit/s and {latency}", b * 1e-9),
    }
}

/// The names of the columns.
pub(super) fn head() -> String {
    let columns = [
        "ranks",
        "step",
        "not hidden",
        "efficiency",
        "sent by each",
        "memory of each",
    ];
    let [ranks, step, hidden, efficiency, sent, memory] = columns;
    format!(
        "{:<10}{ranks:>6}{step:>11}{hidden:>12}{efficiency:>12}{sent:>14}{memory:>16}",
        ""
    )
}

/// A line of predicted values. The efficiency is relative to as many ranks without communication, each of which takes
/// `one`.
pub(super) fn predicted(ranks: usize, prediction: &Prediction, one: &Prediction) -> String {
    let efficiency = 100.0 * one.step.as_secs_f64() / prediction.step.as_secs_f64();
    format!(
        "prediction{ranks:>6}{:>11}{:>12}{:>12}{:>14}{:>16}",
        time(prediction.step),
        time(prediction.exposed),
        format!("{efficiency:.1} %"),
        bytes(prediction.sent),
        bytes(prediction.memory)
    )
}

/// The measured values, and the prediction relative to them.
pub(super) fn compared(ranks: usize, prediction: &Prediction, seconds: f64) -> String {
    let ratio = prediction.step.as_secs_f64() / seconds;
    format!(
        "measured  {ranks:>6}{:>11}\nprediction / measured: {ratio:.2}",
        duration(seconds).trim()
    )
}

fn time(time: Duration) -> String {
    duration(time.as_secs_f64()).trim().to_owned()
}

fn bytes(bytes: u64) -> String {
    let bytes = bytes as f64;
    match bytes {
        b if b < 1e3 => format!("{b} B"),
        b if b < 1e6 => format!("{:.1} kB", b * 1e-3),
        b if b < 1e9 => format!("{:.1} MB", b * 1e-6),
        b => format!("{:.1} GB", b * 1e-9),
    }
}
