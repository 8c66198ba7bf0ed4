//! The data that a dashboard shows.

use std::collections::VecDeque;
use std::time::Instant;

use crate::{Event, Progress, Row};

/// The most notices kept.
const NOTICES: usize = 20;

/// Everything that is shown.
#[derive(Debug)]
pub(super) struct State {
    /// The folder of the run.
    pub(super) title: String,
    pub(super) metrics: Vec<String>,
    pub(super) validation: String,
    pub(super) rows: Vec<Row>,
    pub(super) notices: VecDeque<String>,
    /// Text of the last evaluation.
    pub(super) judged: Option<String>,
    pub(super) now: Now,
    /// Memory of the process in bytes, if the system reports it.
    pub(super) memory: Option<u64>,
    pub(super) stopping: bool,
}

/// The progress at the last event.
#[derive(Debug)]
pub(super) struct Now {
    pub(super) epoch: u64,
    pub(super) epochs: Option<u64>,
    pub(super) step: u64,
    pub(super) steps: Option<u64>,
    pub(super) learning_rate: f64,
    pub(super) examples_per_second: f64,
    pub(super) unit: String,
    /// Text of the running epoch; empty before its first step.
    pub(super) train: String,
    /// Since the run began, and until its end.
    pub(super) seconds: f64,
    pub(super) seconds_left: Option<f64>,
    /// In this process: time for steps, waiting for data, evaluation, and in total.
    pub(super) stepping: f64,
    pub(super) loading: f64,
    pub(super) evaluating: f64,
    pub(super) elapsed: f64,
    pub(super) told: Instant,
}

/// An event, for the drawing thread.
#[derive(Debug)]
pub(super) struct Told {
    row: Option<Row>,
    judged: Option<String>,
    notice: Option<String>,
    now: Now,
}

impl Told {
    /// `begun` is when this process began to train.
    pub(super) fn new(event: Event<'_>, progress: &Progress<'_>, begun: Instant) -> Self {
        let (mut row, mut judged, mut notice) = (None, None, None);
        match event {
            Event::Row(measured) => row = Some(measured.clone()),
            Event::Epoch(Some(row)) => judged = Some(progress.figures(row.loss, &row.metrics)),
            Event::Notice(text) => notice = Some(text.to_owned()),
            _ => {}
        }
        let loss = progress.loss();
        let now = Now {
            epoch: progress.epoch,
            epochs: progress.epochs,
            step: progress.step,
            steps: progress.steps,
            learning_rate: progress.learning_rate,
            examples_per_second: progress.examples_per_second(),
            unit: progress.unit.to_owned(),
            train: match loss.is_finite() {
                true => progress.figures(loss, &progress.values()),
                false => String::new(),
            },
            seconds: progress.seconds,
            seconds_left: progress.seconds_left,
            stepping: progress.training_seconds - progress.loading_seconds,
            loading: progress.loading_seconds,
            evaluating: progress.evaluation_seconds,
            elapsed: begun.elapsed().as_secs_f64(),
            told: Instant::now(),
        };
        Self {
            row,
            judged,
            notice,
            now,
        }
    }
}

impl State {
    pub(super) fn new(progress: &Progress<'_>, begun: Instant) -> Self {
        Self {
            title: progress.run.map_or_else(String::new, |path| path.display().to_string()),
            metrics: progress.metrics.to_vec(),
            validation: progress.validation.to_owned(),
            rows: progress.history.to_vec(),
            notices: VecDeque::new(),
            judged: None,
            now: Told::new(Event::Begin, progress, begun).now,
            memory: None,
            stopping: false,
        }
    }

    pub(super) fn take(&mut self, told: Told) {
        self.rows.extend(told.row);
        self.judged = told.judged.or(self.judged.take());
        self.notices.extend(told.notice);
        if self.notices.len() > NOTICES {
            self.notices.pop_front();
        }
        self.now = told.now;
    }
}

/// Bytes of memory used by this process, if the system reports it: on Linux.
pub(super) fn memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}
