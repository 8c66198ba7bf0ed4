//! Shows how far a command has come: a bar on a terminal, plain lines elsewhere.

use std::io::{ErrorKind, Write};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use polygrad::backend::printable;

use crate::bar::Bar;
use crate::failure::{Failure, Result};

/// Without a terminal, a line at most this often, so that a log stays readable.
const PLAIN_INTERVAL: Duration = Duration::from_secs(5);

/// The first reason why standard output could not be written.
static UNWRITTEN: OnceLock<String> = OnceLock::new();

/// Writes a line to standard output. A reader that has gone (`polygrad … | head`) is no reason to stop, nor to complain; what else goes
/// wrong, [`written`] tells at the end.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout();
    keep(writeln!(out, "{}", lines(line)).and_then(|()| out.flush()));
}

/// Takes down why standard output could not be written, for [`written`].
pub(crate) fn keep(outcome: std::io::Result<()>) {
    if let Err(error) = outcome
        && error.kind() != ErrorKind::BrokenPipe
    {
        UNWRITTEN.get_or_init(|| error.to_string());
    }
}

/// Whether all that was said has been written.
///
/// # Errors
/// It was not, and its reader had not gone.
pub(crate) fn written() -> Result<()> {
    match UNWRITTEN.get() {
        None => Ok(()),
        Some(why) => Err(Failure::new(format!("cannot write to standard output: {why}"))
            .fix("let it go to a place that can be written")),
    }
}

/// Writes a line to standard error. Where that cannot be written, there is nobody left to tell.
pub(crate) fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", lines(line));
}

/// The lines of a text, each without what would steer the terminal: names of others may be anywhere in it.
fn lines(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(printable).collect();
    lines.join("\n")
}

/// What one training step has to tell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    /// The epoch it belongs to, counted from 1.
    pub(crate) epoch: usize,
    /// How many samples it used.
    pub(crate) samples: u64,
    /// The loss, averaged over the epoch so far.
    pub(crate) loss: f64,
    /// The share of right answers in the epoch so far, 0 to 1.
    pub(crate) accuracy: f64,
}

/// The progress of a training run, measured in samples.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<Bar>,
    epochs: usize,
    total: u64,
    /// Samples used before this process took over, by the run that it resumes.
    before: u64,
    done: u64,
    started: Instant,
    training: Duration,
    last_line: Instant,
}

impl Progress {
    /// A run of `epochs` epochs and `total` samples, of which `before` are done; a bar where standard error is a
    /// terminal.
    pub(crate) fn new(epochs: usize, total: u64, before: u64) -> Self {
        let now = Instant::now();
        Self {
            bar: Bar::on_terminal(total),
            epochs,
            total,
            before,
            done: before,
            started: now,
            training: Duration::ZERO,
            last_line: now,
        }
    }

    /// Counts a step that took `time`, and shows it where that is due.
    pub(crate) fn step(&mut self, step: Step, time: Duration) {
        self.done += step.samples;
        self.training += time;
        if let Some(mut bar) = self.bar.take() {
            bar.show(self.done, || self.status(step, self.started.elapsed()));
            self.bar = Some(bar);
        } else if self.last_line.elapsed() >= PLAIN_INTERVAL {
            self.last_line = Instant::now();
            note(&self.status(step, self.started.elapsed()));
        }
    }

    /// Writes a line to standard output, above the bar if there is one.
    pub(crate) fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.aside(|| say(line)),
            None => say(line),
        }
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.clear();
        }
    }

    /// Samples per second of training, without evaluation; 0 before the first step.
    pub(crate) fn samples_per_second(&self) -> f64 {
        let seconds = self.training.as_secs_f64();
        if seconds > 0.0 {
            (self.done - self.before) as f64 / seconds
        } else {
            0.0
        }
    }

    fn status(&self, step: Step, elapsed: Duration) -> String {
        let here = self.done - self.before;
        let left = elapsed.as_secs_f64() / here.max(1) as f64 * self.total.saturating_sub(self.done) as f64;
        format!(
            "epoch {}/{}  loss {:.4}  accuracy {:.1} %  {} samples/s  {} left",
            step.epoch,
            self.epochs,
            step.loss,
            100.0 * step.accuracy,
            grouped(self.samples_per_second() as u64),
            clock(left)
        )
    }
}

/// The progress of a download: a bar until this is dropped, or a line where there is no terminal.
#[derive(Debug)]
pub(crate) struct Download<'a> {
    bar: Option<Bar>,
    name: &'a str,
    bytes: u64,
    started: Instant,
}

impl<'a> Download<'a> {
    /// Of `name`, which has so many bytes.
    pub(crate) fn new(name: &'a str, bytes: u64) -> Self {
        let bar = Bar::on_terminal(bytes);
        if bar.is_none() {
            note(&format!("downloading {name}, {} bytes", grouped(bytes)));
        }
        Self {
            bar,
            name,
            bytes,
            started: Instant::now(),
        }
    }

    /// So many bytes are here.
    pub(crate) fn received(&mut self, bytes: u64) {
        let Some(bar) = &mut self.bar else { return };
        bar.show(bytes, || {
            let rate = bytes as f64 / self.started.elapsed().as_secs_f64().max(1e-3);
            let left = self.bytes.saturating_sub(bytes) as f64 / rate.max(1.0);
            let [bytes, all, rate] = [bytes as f64, self.bytes as f64, rate].map(|bytes| bytes / 1e6);
            format!(
                "{bytes:.1} of {all:.1} MB  {rate:.1} MB/s  {} left  {}",
                clock(left),
                self.name
            )
        });
    }
}

/// A duration as `0:07`, `12:34` or `1:02:03`.
pub(crate) fn clock(seconds: f64) -> String {
    let s = seconds.round() as u64;
    let (h, m, s) = (s / 3600, s / 60 % 60, s % 60);
    if h > 0 {
        format!("{h}:{m:02}:{s:02}")
    } else {
        format!("{m}:{s:02}")
    }
}

/// A number with commas between its thousands.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number in few digits where it is very large or small, in full elsewhere.
pub(crate) fn short(x: f64) -> String {
    match x != 0.0 && !(1e-5..1e9).contains(&x.abs()) {
        true => format!("{x:e}"),
        false => x.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_do_not_steer_the_terminal() {
        assert_eq!(lines("a\u{1b}[2J\rb\n  c"), "a\\u{1b}[2J\\rb\n  c");
    }

    #[test]
    fn large_numbers_are_short() {
        assert_eq!(
            [1e300, 1e-30, 0.003, 0.0, 1e5, -2.5].map(short),
            ["1e300", "1e-30", "0.003", "0", "100000", "-2.5"]
        );
    }

    #[test]
    fn numbers_and_times_read_well() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(grouped),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(
            [0.4, 7.0, 754.0, 3723.0].map(clock),
            ["0:00", "0:07", "12:34", "1:02:03"]
        );
    }

    #[test]
    fn the_status_counts_only_what_this_process_did() {
        let mut progress = Progress::new(4, 1_000, 500);
        let step = Step {
            epoch: 3,
            samples: 100,
            loss: 0.5,
            accuracy: 0.875,
        };
        progress.step(step, Duration::from_millis(50));
        assert_eq!(progress.samples_per_second(), 2_000.0);
        assert_eq!(
            progress.status(step, Duration::from_secs(10)),
            "epoch 3/4  loss 0.5000  accuracy 87.5 %  2,000 samples/s  0:40 left"
        );
    }
}
