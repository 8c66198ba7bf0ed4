//! A progress bar on a terminal.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Least time between two updates.
const INTERVAL: Duration = Duration::from_millis(50);

/// Cells of the bar itself.
const CELLS: usize = 20;

/// A bar on standard error with text beside it; removed when dropped.
#[derive(Debug)]
pub struct Bar {
    length: u64,
    drawn: Option<Instant>,
    line: String,
}

impl Bar {
    /// A bar of `length` units, if standard error is a terminal.
    pub fn on_terminal(length: u64) -> Option<Self> {
        std::io::stderr().is_terminal().then(|| Self {
            length,
            drawn: None,
            line: String::new(),
        })
    }

    /// Shows the position with the text from `words`, unless the last update was only a moment ago.
    pub fn show(&mut self, position: u64, words: impl FnOnce() -> String) {
        if self.drawn.is_some_and(|drawn| drawn.elapsed() < INTERVAL) {
            return;
        }
        self.drawn = Some(Instant::now());
        self.line = line(position, self.length, &words(), terminal_size().0);
        self.draw();
    }

    /// Runs `write` with the bar removed, then draws it again.
    pub fn aside(&self, write: impl FnOnce()) {
        self.clear();
        write();
        self.draw();
    }

    /// Removes the bar.
    pub fn clear(&self) {
        put("\r\u{1b}[K");
    }

    fn draw(&self) {
        put(&format!("\r{}\u{1b}[K", self.line));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Errors are ignored: if standard error cannot be written, no one sees a bar.
fn put(text: &str) {
    let mut out = std::io::stderr();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// The line, cut to `width` columns.
fn line(position: u64, length: u64, words: &str, width: usize) -> String {
    let full = (position.min(length) as u128 * CELLS as u128 / u128::from(length.max(1))) as usize;
    let head = if full < CELLS { "╸" } else { "" };
    let rest = CELLS.saturating_sub(full + 1);
    let whole = format!("{}{head}{} {words}", "━".repeat(full), "─".repeat(rest));
    // The last column stays free, since some terminals begin a new line once it is written.
    whole.chars().take(width.saturating_sub(1)).collect()
}

/// Columns and lines of the terminal, from the feature `terminal` or the variables `COLUMNS` and `LINES`; 80 and 24 if
/// neither knows them.
pub fn terminal_size() -> (usize, usize) {
    #[cfg(all(unix, feature = "terminal"))]
    if let Ok(size) = rustix::termios::tcgetwinsize(std::io::stderr())
        && size.ws_col > 0
        && size.ws_row > 0
    {
        return (usize::from(size.ws_col), usize::from(size.ws_row));
    }
    let said = |name: &str| std::env::var(name).ok().and_then(|number| number.parse().ok());
    (said("COLUMNS").unwrap_or(80), said("LINES").unwrap_or(24))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills_and_fits() {
        assert_eq!(line(0, 10, "a", 80), format!("╸{} a", "─".repeat(19)));
        assert_eq!(line(5, 10, "a", 80), format!("{}╸{} a", "━".repeat(10), "─".repeat(9)));
        assert_eq!(line(10, 10, "a", 80), format!("{} a", "━".repeat(20)));
        // More work done than planned, and no work at all.
        assert_eq!(line(u64::MAX, 10, "", 80), format!("{} ", "━".repeat(20)));
        assert_eq!(line(0, 0, "", 80).chars().count(), 21);
        assert_eq!(line(5, 10, "words that are long", 24).chars().count(), 23);
        assert_eq!(line(5, 10, "", 0), "");
    }
}
