//! The results: counts by status, and quantiles of latencies.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

/// Answers within the measured time.
#[derive(Default)]
pub struct Record {
    /// In microseconds: answers with the status 200, and others.
    answered: Vec<f64>,
    refused: Vec<f64>,
    statuses: BTreeMap<u16, u64>,
    /// The number of broken connections, and the reason of the last one.
    broken: u64,
    reason: String,
    in_time: u64,
    bytes: u64,
}

#[derive(Serialize)]
pub struct Report {
    seconds: f64,
    /// Answers per second with the status 200.
    per_second: f64,
    /// Those of them that arrived before the deadline.
    in_time_per_second: f64,
    statuses: BTreeMap<u16, u64>,
    broken: u64,
    reason: String,
    /// The mean size of an answer with the status 200.
    bytes: f64,
    latency_us: BTreeMap<&'static str, f64>,
    refused_us: BTreeMap<&'static str, f64>,
}

impl Record {
    pub fn answer(&mut self, status: u16, bytes: usize, latency: Duration, deadline: Option<Duration>) {
        *self.statuses.entry(status).or_default() += 1;
        let micros = latency.as_secs_f64() * 1e6;
        if status != 200 {
            return self.refused.push(micros);
        }
        self.answered.push(micros);
        self.bytes += bytes as u64;
        self.in_time += u64::from(deadline.is_none_or(|deadline| latency <= deadline));
    }

    pub fn broke(&mut self, reason: &str) {
        self.broken += 1;
        reason.clone_into(&mut self.reason);
    }

    pub fn report(mut self, seconds: f64) -> Report {
        let answers = self.answered.len() as f64;
        Report {
            seconds,
            per_second: answers / seconds,
            in_time_per_second: self.in_time as f64 / seconds,
            statuses: self.statuses,
            broken: self.broken,
            reason: self.reason,
            bytes: self.bytes as f64 / answers.max(1.0),
            latency_us: quantiles(&mut self.answered),
            refused_us: quantiles(&mut self.refused),
        }
    }
}

fn quantiles(latencies: &mut [f64]) -> BTreeMap<&'static str, f64> {
    latencies.sort_unstable_by(f64::total_cmp);
    let at =
        |share: f64| latencies.get(((latencies.len() as f64 * share) as usize).min(latencies.len().saturating_sub(1)));
    let wanted = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)];
    wanted
        .into_iter()
        .filter_map(|(name, share)| Some((name, *at(share)?)))
        .collect()
}
