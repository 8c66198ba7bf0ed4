//! What a dashboard shows, apart from how.

use std::collections::VecDeque;
use std::time::Instant;

use crate::{Event, Progress, Row};

/// So many notices are kept.
const NOTICES: usize = 20;

/// Where training stood when it last told.
#[derive(Debug)]
pub(super) struct State {
    /// The folder of the run.
    pub(super) title: String,
    pub(super) metrics: Vec<String>,
    pub(super) validation: String,
    pub(super) rows: Vec<Row>,
    pub(super) notices: VecDeque<String>,
    pub(super) epoch: u64,
    pub(super) epochs: Option<u64>,
    pub(super) step: u64,
    pub(super) steps: Option<u64>,
    pub(super) learning_rate: f64,
    pub(super) examples_per_second: f64,
    /// Loss and metrics of the running epoch.
    pub(super) train: String,
    /// Those of the last evaluation.
    pub(super) judged: Option<String>,
    /// Since the run began, and to its end.
    pub(super) seconds: f64,
    pub(super) seconds_left: Option<f64>,
    /// In this process: steps, waiting for data, evaluation, and all that.
    pub(super) stepping: f64,
    pub(super) loading: f64,
    pub(super) evaluating: f64,
    pub(super) elapsed: f64,
    pub(super) told: Instant,
    pub(super) begun: Instant,
    /// Of the process, where the system says.
    pub(super) memory: Option<u64>,
    pub(super) stopping: bool,
}

impl State {
    pub(super) fn new(progress: &Progress<'_>) -> Self {
        let mut state = Self {
            title: progress.run.map_or_else(String::new, |path| path.display().to_string()),
            metrics: progress.metrics.to_vec(),
            validation: progress.validation.to_owned(),
            rows: progress.history.to_vec(),
            notices: VecDeque::new(),
            epoch: 0,
            epochs: None,
            step: 0,
            steps: None,
            learning_rate: 0.0,
            examples_per_second: 0.0,
            train: String::new(),
            judged: None,
            seconds: 0.0,
            seconds_left: None,
            stepping: 0.0,
            loading: 0.0,
            evaluating: 0.0,
            elapsed: 0.0,
            told: Instant::now(),
            begun: Instant::now(),
            memory: None,
            stopping: false,
        };
        state.take(Event::Begin, progress);
        state
    }

    pub(super) fn take(&mut self, event: Event<'_>, progress: &Progress<'_>) {
        match event {
            Event::Row(row) => self.rows.push(row.clone()),
            Event::Epoch(Some(row)) => self.judged = Some(progress.figures(row.loss, &row.metrics)),
            Event::Notice(text) => {
                self.notices.push_back(text.to_owned());
                if self.notices.len() > NOTICES {
                    self.notices.pop_front();
                }
            }
            _ => {}
        }
        (self.epoch, self.epochs) = (progress.epoch, progress.epochs);
        (self.step, self.steps) = (progress.step, progress.steps);
        self.learning_rate = progress.learning_rate;
        self.examples_per_second = progress.examples_per_second();
        if progress.loss().is_finite() {
            self.train = progress.figures(progress.loss(), &progress.values());
        }
        (self.seconds, self.seconds_left) = (progress.seconds, progress.seconds_left);
        self.loading = progress.loading_seconds;
        self.stepping = progress.training_seconds - progress.loading_seconds;
        self.evaluating = progress.evaluation_seconds;
        self.told = Instant::now();
        self.elapsed = self.begun.elapsed().as_secs_f64();
    }
}

/// Bytes of memory that this process has, where the system says: on Linux.
pub(super) fn memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}
