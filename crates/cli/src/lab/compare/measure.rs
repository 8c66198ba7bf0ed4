//! Times of the same work on several devices, in turn.

use std::time::{Duration, Instant};

use polygrad::Device;
use serde_json::json;

use super::work::{Call, Work};

/// How often the devices take turns: what disturbs the machine for a while disturbs all of them.
const ROUNDS: usize = 5;
/// How long a device's turn lasts; a call that takes longer is a turn of its own.
const TURN: Duration = Duration::from_millis(40);
/// A device that takes longer for a call is not asked for more of it, nor for larger sizes.
const LIMIT: Duration = Duration::from_secs(2);

/// How a device did at one size.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// The median time of a call, in seconds.
    Time(f64),
    /// It cannot do this, for this reason.
    Failed(String),
    /// It was too slow at a smaller size.
    Skipped,
}

impl Outcome {
    /// The time, if there is one.
    pub(crate) fn seconds(&self) -> Option<f64> {
        match self {
            Self::Time(seconds) => Some(*seconds),
            _ => None,
        }
    }
}

/// One kind of work on all devices.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// The work.
    pub(crate) work: Work,
    /// The devices, as they were asked for.
    pub(crate) devices: Vec<String>,
    /// For each size how each device did.
    pub(crate) rows: Vec<(usize, Vec<Outcome>)>,
}

impl Series {
    /// Measures a kind of work at each of its sizes. Devices come with the strings that open them.
    pub(crate) fn measure(work: Work, devices: &[(String, Device)]) -> Self {
        let mut too_slow = vec![false; devices.len()];
        let rows = work.sizes().iter().map(|&size| {
            let mut racers: Vec<Racer> = devices
                .iter()
                .zip(&too_slow)
                .map(|((_, device), &skip)| Racer::new(work, size, device, skip))
                .collect();
            for _ in 0..ROUNDS {
                racers.iter_mut().for_each(Racer::turn);
            }
            let outcomes: Vec<Outcome> = racers.into_iter().map(Racer::finish).collect();
            for (skip, outcome) in too_slow.iter_mut().zip(&outcomes) {
                *skip |= outcome.seconds().is_none_or(|seconds| seconds > LIMIT.as_secs_f64());
            }
            (size, outcomes)
        });
        Self {
            work,
            rows: rows.collect(),
            devices: devices.iter().map(|(name, _)| name.clone()).collect(),
        }
    }

    /// As JSON: a list with an object for each size and device.
    pub(crate) fn to_json(&self) -> Vec<serde_json::Value> {
        let mut out = Vec::new();
        for (size, outcomes) in &self.rows {
            for (device, outcome) in self.devices.iter().zip(outcomes) {
                let mut entry = json!({"op": self.work.name(), "size": size, "device": device});
                match outcome {
                    Outcome::Time(seconds) => {
                        entry["seconds"] = json!(seconds);
                        entry["throughput"] = json!(self.work.amount(*size) / seconds);
                        entry["unit"] = json!(self.work.unit());
                    }
                    Outcome::Failed(reason) => entry["failed"] = json!(reason),
                    Outcome::Skipped => entry["skipped"] = json!(true),
                }
                out.push(entry);
            }
        }
        out
    }
}

/// A device at work.
struct Racer<'a> {
    device: &'a Device,
    call: Option<Call>,
    times: Vec<f64>,
    failure: Option<String>,
}

impl<'a> Racer<'a> {
    /// Prepares the work and does it once without counting.
    fn new(work: Work, size: usize, device: &'a Device, skip: bool) -> Self {
        let mut racer = Self {
            device,
            call: None,
            times: Vec::new(),
            failure: None,
        };
        if skip {
            return racer;
        }
        match work.prepare(size, device) {
            Ok(call) => racer.call = Some(call),
            Err(error) => racer.failure = Some(error.to_string()),
        }
        racer.once();
        // The first call may have compiled something: it counts only where there will be no other.
        if racer
            .times
            .first()
            .is_some_and(|&seconds| seconds < LIMIT.as_secs_f64())
        {
            racer.times.clear();
        }
        racer
    }

    fn turn(&mut self) {
        if self.times.iter().any(|&seconds| seconds > LIMIT.as_secs_f64()) {
            return;
        }
        let start = Instant::now();
        while self.call.is_some() && start.elapsed() < TURN {
            self.once();
        }
    }

    /// One call, to the end of all that the device has to do for it.
    fn once(&mut self) {
        let Some(call) = &mut self.call else { return };
        let start = Instant::now();
        let done = call().and_then(|output| {
            self.device.synchronize()?;
            Ok(output)
        });
        let seconds = start.elapsed().as_secs_f64();
        match done {
            Ok(_) => self.times.push(seconds),
            Err(error) => {
                self.failure = Some(error.to_string());
                self.call = None;
            }
        }
    }

    fn finish(mut self) -> Outcome {
        if let Some(reason) = self.failure {
            return Outcome::Failed(reason);
        }
        self.times.sort_by(f64::total_cmp);
        match self.times.get(self.times.len() / 2) {
            Some(&median) => Outcome::Time(median),
            None => Outcome::Skipped,
        }
    }
}
