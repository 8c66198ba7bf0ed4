//! All results of a run, and their JSON form.

use std::time::{SystemTime, UNIX_EPOCH};

use polygrad_workloads::{Amount, Case};
use serde_json::{Value, json};

use super::limits::Limits;
use super::memory::Peak;
use super::rounds::Outcome;

/// The results so far, and the machine.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) device: String,
    pub(crate) threads: usize,
    pub(crate) seconds: f64,
    pub(crate) machine: String,
    pub(crate) date: String,
    /// The processor's limits, if they were measured.
    pub(crate) limits: Option<Limits>,
    cases: Vec<Value>,
    memory: Vec<Value>,
    ratios: Vec<Ratios>,
}

/// A case, and each peer's time relative to Polygrad's.
pub(crate) type Ratios = (String, Vec<(String, f64)>);

impl Report {
    pub(crate) fn new(device: &str, threads: usize, seconds: f64) -> Self {
        Self {
            device: device.to_owned(),
            threads,
            seconds,
            machine: machine(),
            date: today(),
            limits: None,
            cases: Vec::new(),
            memory: Vec::new(),
            ratios: Vec::new(),
        }
    }

    /// Adds the outcomes of a case, Polygrad's first.
    pub(crate) fn add_times(&mut self, case: Case, outcomes: Vec<Outcome>) {
        let median = |outcome: &Outcome| outcome.figures.as_ref().ok().map(|figures| figures.median);
        if let Some(native) = outcomes.first().and_then(median) {
            let peers = outcomes[1..].iter();
            let ratios = peers.filter_map(|peer| Some((peer.name.clone(), median(peer)? / native)));
            self.ratios.push((case.name(), ratios.collect()));
        }
        self.cases.push(entry(&case, &outcomes));
    }

    /// The peers' times relative to Polygrad's, by case.
    pub(crate) fn ratios(&self) -> &[Ratios] {
        &self.ratios
    }

    /// Adds the memory that each contestant needed for a case, Polygrad's first.
    pub(crate) fn add_peaks(&mut self, case: &str, peaks: Vec<Peak>) {
        let result = |peak: &Peak| match &peak.bytes {
            Ok(bytes) => json!({"name": peak.name, "bytes": bytes}),
            Err(reason) => json!({"name": peak.name, "failed": reason}),
        };
        let results: Vec<Value> = peaks.iter().map(result).collect();
        self.memory.push(json!({"case": case, "results": results}));
    }

    /// An object with a list of cases, each with a list of contestants, and the same for memory.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "device": self.device,
            "threads": self.threads,
            "seconds": self.seconds,
            "machine": self.machine,
            "date": self.date,
            "limits": self.limits.map(Limits::to_json),
            "cases": self.cases,
            "memory": self.memory,
        })
    }
}

fn entry(case: &Case, outcomes: &[Outcome]) -> Value {
    let Amount {
        ops,
        elements,
        bytes,
        flops,
    } = case.amount();
    let native = outcomes.first().and_then(|outcome| outcome.figures.as_ref().ok());
    let result = |outcome: &Outcome| match &outcome.figures {
        Err(reason) => json!({"name": outcome.name, "failed": reason}),
        Ok(figures) => {
            let units = throughput(case, figures.median).into_iter();
            let units: Vec<Value> = units
                .map(|(value, unit)| json!({"value": value, "unit": unit}))
                .collect();
            let mut value = json!({
                "name": outcome.name,
                "median": figures.median,
                "minimum": figures.minimum,
                "quartiles": figures.quartiles,
                "steps": figures.steps,
                "throughput": units,
                "loss": figures.loss,
            });
            if let Some(native) = native {
                value["ratio"] = json!(figures.median / native.median);
            }
            value
        }
    };
    json!({
        "case": case.name(),
        "workload": case.workload(),
        "amount": {"ops": ops, "elements": elements, "bytes": bytes, "flops": flops},
        "results": outcomes.iter().map(result).collect::<Vec<_>>(),
    })
}

/// The throughput of a step of this duration in the workload's own units.
pub(crate) fn throughput(case: &Case, seconds: f64) -> Vec<(f64, &'static str)> {
    let Amount {
        ops,
        elements,
        bytes,
        flops,
    } = case.amount();
    let per = |count: u64| seconds * 1e9 / count as f64;
    match () {
        () if ops > 0 => vec![(per(ops), "ns per op")],
        () if elements > 0 => vec![
            (per(elements), "ns per element"),
            (bytes as f64 / seconds * 1e-9, "GB/s"),
        ],
        () => vec![(flops as f64 / seconds * 1e-9, "GFLOP/s")],
    }
}

/// The processor and how many of its cores this process may use.
pub(crate) fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let name = field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{name}, {cores} {}", if cores == 1 { "core" } else { "cores" })
}

/// The current UTC date, as 2026-11-22.
pub(crate) fn today() -> String {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    date((seconds / 86_400) as i64)
}

/// The date this many days after 1970-01-01. Years are counted from March, so that the leap day is the last.
fn date(days: i64) -> String {
    // From 0000-03-01; 400 years have 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = match month {
        0..=9 => (era * 400 + year, month + 3),
        _ => (era * 400 + year + 1, month - 9),
    };
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::rounds::Figures;

    #[test]
    fn days_become_dates() {
        let dates = [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (20_779, "2026-11-22"),
        ];
        for (days, text) in dates {
            assert_eq!(date(days), text);
        }
    }

    #[test]
    fn ratios_are_to_ours_and_failures_have_reasons() {
        let outcome = |name: &str, median: f64| Outcome {
            name: name.to_owned(),
            figures: Ok(Figures {
                median,
                minimum: median,
                quartiles: [median; 2],
                steps: 30,
                loss: Some(0.5),
            }),
        };
        let mut report = Report::new("cpu:threads=1", 1, 2.0);
        let case = polygrad_workloads::select("mlp-rl/adam").unwrap()[0];
        let failed = Outcome {
            name: "none".into(),
            figures: Err("it is not there".into()),
        };
        report.add_times(case, vec![outcome("polygrad", 2.0), outcome("torch", 30.0), failed]);
        let json = report.to_json();
        let results = &json["cases"][0]["results"];
        assert_eq!(results[1]["ratio"], 15.0);
        assert_eq!(report.ratios()[0].1, [("torch".to_owned(), 15.0)]);
        assert_eq!(results[2]["failed"], "it is not there");
        assert_eq!(results[0]["throughput"][0]["unit"], "GFLOP/s");
    }
}
