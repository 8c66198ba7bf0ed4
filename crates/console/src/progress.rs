//! Shows how far a command has come: a bar on a terminal, plain lines elsewhere.

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use polygrad::backend::printable;
use polygrad::train::Bar;
pub use polygrad::train::{clock, grouped};

use crate::failure::{Failure, Result};

/// The first reason why standard output could not be written.
static UNWRITTEN: OnceLock<String> = OnceLock::new();

/// Which of several processes this is.
static RANK: AtomicUsize = AtomicUsize::new(0);

/// Takes down which of several processes this is: the first one alone says something, the others their errors.
pub fn speak_as(rank: usize) {
    RANK.store(rank, Ordering::Relaxed);
}

fn is_heard() -> bool {
    RANK.load(Ordering::Relaxed) == 0
}

/// Writes why a command failed to standard error, and in which of several processes.
pub fn complain(error: &Failure) {
    match RANK.load(Ordering::Relaxed) {
        0 => write_error(&format!("error: {error}")),
        rank => write_error(&format!("error of rank {rank}: {error}")),
    }
}

/// Writes a line to standard output. A reader that has gone (`polygrad … | head`) is no reason to stop, nor to
/// complain; what else goes wrong, [`written`] tells at the end.
pub fn say(line: &str) {
    if is_heard() {
        put(&lines(line));
    }
}

/// As [`say`], of data that another program may read: only a terminal is spared what would steer it.
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

/// Takes down why standard output could not be written, for [`written`].
pub fn keep(outcome: std::io::Result<()>) {
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
pub fn written() -> Result<()> {
    match UNWRITTEN.get() {
        None => Ok(()),
        Some(why) => Err(Failure::new(format!("cannot write to standard output: {why}"))
            .fix("let it go to a place that can be written")),
    }
}

/// Writes a line to standard error. Where that cannot be written, there is nobody left to tell.
pub fn note(line: &str) {
    if is_heard() {
        write_error(line);
    }
}

fn write_error(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", lines(line));
}

/// The lines of a text, each without what would steer the terminal: names of others may be anywhere in it.
fn lines(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(printable).collect();
    lines.join("\n")
}

/// The progress of a download: a bar until this is dropped, or a line where there is no terminal.
#[derive(Debug)]
pub struct Download<'a> {
    bar: Option<Bar>,
    name: &'a str,
    bytes: u64,
    started: Instant,
}

impl<'a> Download<'a> {
    /// Of `name`, which has so many bytes.
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

    /// So many bytes are here.
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

/// A number in few digits where it is very large or small, in full elsewhere.
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
