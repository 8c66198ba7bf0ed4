//! Shows the progress of training: a bar on a terminal, plain lines elsewhere.

use std::io::Write;
use std::time::{Duration, Instant};

use polygrad_core::{Result, printable};

use crate::bar::Bar;
use crate::{Callback, Control, Event, Progress, Row};

/// Least time between two lines without a terminal, so that a log stays readable.
const PLAIN_INTERVAL: Duration = Duration::from_secs(5);

/// A callback that shows progress on standard error, as a bar on a terminal or else as a line every five seconds, and
/// prints a line for each epoch to standard output.
#[derive(Debug)]
pub struct ProgressBar {
    bar: Option<Bar>,
    last_line: Instant,
    say: fn(&str),
}

impl Default for ProgressBar {
    fn default() -> Self {
        Self::new()
    }
}

impl ProgressBar {
    /// Prints lines to standard output; errors are ignored.
    pub fn new() -> Self {
        Self::printing(|line| {
            let _ = writeln!(std::io::stdout(), "{}", printable(line));
        })
    }

    /// Passes the lines of epochs to a function.
    pub fn printing(say: fn(&str)) -> Self {
        Self {
            bar: None,
            last_line: Instant::now(),
            say,
        }
    }

    fn aside(&self, write: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.aside(write),
            None => write(),
        }
    }
}

impl Callback for ProgressBar {
    fn on_event(&mut self, event: Event<'_>, progress: &Progress<'_>) -> Result<Control> {
        match event {
            Event::Begin => self.bar = Bar::on_terminal(progress.steps.unwrap_or(0)),
            Event::Notice(text) => self.aside(|| note(text)),
            Event::Step => match &mut self.bar {
                Some(bar) => bar.show(progress.step, || status(progress)),
                None if self.last_line.elapsed() >= PLAIN_INTERVAL => {
                    self.last_line = Instant::now();
                    note(&status(progress));
                }
                None => {}
            },
            Event::Epoch(row) => {
                let line = epoch_line(progress, row);
                self.aside(|| (self.say)(&line));
            }
            Event::End | Event::Failed => self.bar = None,
            _ => {}
        }
        Ok(Control::Continue)
    }
}

fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", printable(line));
}

/// A line about an epoch.
pub(crate) fn epoch_line(progress: &Progress<'_>, row: Option<&Row>) -> String {
    let mut line = match progress.epoch {
        0 => place(progress),
        epoch => format!("epoch {epoch}{}", of(progress.epochs)),
    };
    line += &format!("  train {}", progress.figures(progress.loss(), &progress.values()));
    if let Some(row) = row {
        line += &format!("  {} {}", progress.validation, progress.figures(row.loss, &row.metrics));
    }
    line + &format!("  {}", clock(progress.seconds))
}

pub(crate) fn of(all: Option<impl std::fmt::Display>) -> String {
    all.map_or_else(String::new, |all| format!("/{all}"))
}

/// The current progress.
fn place(progress: &Progress<'_>) -> String {
    match progress.epochs {
        Some(epochs) => format!("epoch {}/{epochs}", progress.epoch),
        None => format!("step {}{}", grouped(progress.step), of(progress.steps.map(grouped))),
    }
}

fn status(progress: &Progress<'_>) -> String {
    let figures = progress.figures(progress.loss(), &progress.values());
    let rate = grouped(progress.examples_per_second() as u64);
    let left = progress.seconds_left.map(|left| format!("  {} left", clock(left)));
    let (place, unit) = (place(progress), progress.unit);
    format!("{place}  {figures}  {rate} {unit}/s{}", left.unwrap_or_default())
}

/// A duration as `0:07`, `12:34` or `1:02:03`.
pub fn clock(seconds: f64) -> String {
    let s = seconds.round() as u64;
    let (h, m, s) = (s / 3600, s / 60 % 60, s % 60);
    if h > 0 {
        format!("{h}:{m:02}:{s:02}")
    } else {
        format!("{m}:{s:02}")
    }
}

/// A number with thousands separators.
pub fn grouped(n: u64) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
