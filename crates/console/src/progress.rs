//! The output of a command and its progress: a bar on a terminal, plain lines elsewhere.

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use polygrad::backend::printable;
use polygrad::train::Bar;
pub use polygrad::train::{clock, grouped};

use crate::failure::{Failure, Result};

/// The first error of writing to standard output.
static UNWRITTEN: OnceLock<String> = OnceLock::new();

/// The rank of this process.
static RANK: AtomicUsize = AtomicUsize::new(0);

/// Sets the rank of this process: only the first one prints output, the others only their errors.
pub fn speak_as(rank: usize) {
    RANK.store(rank, Ordering::Relaxed);
}

fn is_heard() -> bool {
    RANK.load(Ordering::Relaxed) == 0
}

/// Writes why a command failed to standard error, with the rank if it is one of several processes.
pub fn complain(error: &Failure) {
    match RANK.load(Ordering::Relaxed) {
        0 => write_error(&format!("error: {error}")),
        rank => write_error(&format!("error of rank {rank}: {error}")),
    }
}

/// Writes a line to standard output. If its reader has closed it (`polygrad … | head`), that is no error; other errors
/// are reported at the end by [`written`].
pub fn say(line: &str) {
    if is_heard() {
        put(&lines(line));
    }
}

/// Like [`say`], for data that another program may read: control characters are only removed on a terminal.
pub fn give(line: &str) {
    match std::io::stdout().is_terminal() {
        true => say(line),
        false => put(line),
    }
}

fn put(line: &str) {
    let mut out = std::io::stdout();
    keep(writeln!(out, "{line}").and_then(|()| out.flush()));
}

/// Records an error of writing to standard output, for [`written`].
pub fn keep(outcome: std::io::Result<()>) {
    if let Err(error) = outcome
        && error.kind() != ErrorKind::BrokenPipe
    {
        UNWRITTEN.get_or_init(|| error.to_string());
    }
}

/// Checks that all output has been written.
///
/// # Errors
/// If it was not, unless its reader has closed it.
pub fn written() -> Result<()> {
    match UNWRITTEN.get() {
        None => Ok(()),
        Some(why) => Err(Failure::new(format!("cannot write to standard output: {why}"))
            .fix("let it go to a place that can be written")),
    }
}

/// Writes a line to standard error. If that fails, the error cannot be reported.
pub fn note(line: &str) {
    if is_heard() {
        write_error(line);
    }
}

fn write_error(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", lines(line));
}

/// The lines of a text without control characters, since it may contain foreign names.
fn lines(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(printable).collect();
    lines.join("\n")
}

/// The progress of a download: a bar until this is dropped, or a line if there is no terminal.
#[derive(Debug)]
pub struct Download<'a> {
    bar: Option<Bar>,
    name: &'a str,
    bytes: u64,
    started: Instant,
}

impl<'a> Download<'a> {
    /// The download of `name`, which has this many bytes.
    pub fn new(name: &'a str, bytes: u64) -> Self {
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

    /// Reports that this many bytes have been received.
    pub fn received(&mut self, bytes: u64) {
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

/// A number in short form if it is very large or small, else in full.
pub fn short(x: f64) -> String {
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
}
