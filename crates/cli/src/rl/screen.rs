//! Pictures on a terminal, made of half blocks in 24-bit colour.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use polygrad::rl::{Canvas, Play};
use polygrad::train::terminal_size;

use crate::progress::keep;

/// Shows one picture after another, each in place of the previous one.
#[derive(Debug, Default)]
pub(super) struct Screen {
    /// The number of lines of the current picture.
    lines: usize,
    /// When it may be replaced.
    until: Option<Instant>,
}

impl Screen {
    /// Shows the state and a line of text, once the previous picture was shown for as long as its environment says.
    pub(super) fn show(&mut self, play: &Play<'_>, words: &str) {
        if let Some(until) = self.until {
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
        }
        let (columns, lines) = terminal_size();
        // Leaves a line for the text, and one for the shell's prompt at the end.
        let picture = play.picture(columns.saturating_sub(1), 2 * lines.saturating_sub(2));
        let shown = blocks(&picture);
        let back = match self.lines {
            0 => String::new(),
            lines => format!("\u{1b}[{lines}A\r"),
        };
        self.lines = shown.lines().count() + 1;
        let words: String = words.chars().take(columns.saturating_sub(1)).collect();
        put(&format!("{back}{shown}{words}\u{1b}[K\n"));
        let now = self.until.unwrap_or_else(Instant::now);
        self.until = Some(now + Duration::from_secs_f64(1.0 / play.fps()));
    }

    /// Keeps the current picture; the next one is shown below it.
    pub(super) fn leave(&mut self) {
        self.lines = 0;
    }
}

fn put(text: &str) {
    let mut out = std::io::stdout();
    keep(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// Two rows of pixels in a line: the upper one as the foreground colour of a half block, the lower one as its
/// background.
fn blocks(picture: &Canvas) -> String {
    let mut text = String::new();
    for rows in picture.pixels().chunks(2 * picture.width()) {
        let (upper, lower) = rows.split_at(picture.width());
        let mut colours = None;
        for (column, top) in upper.iter().enumerate() {
            let bottom = lower.get(column);
            if colours != Some((top, bottom)) {
                let [r, g, b] = top;
                let ground = bottom.map_or("49".to_owned(), |[r, g, b]| format!("48;2;{r};{g};{b}"));
                // Writing to a string cannot fail.
                let _ = write!(text, "\u{1b}[38;2;{r};{g};{b};{ground}m");
                colours = Some((top, bottom));
            }
            text.push('▀');
        }
        text.push_str("\u{1b}[0m\u{1b}[K\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_two_rows() {
        let mut picture = Canvas::new(3, 3, [255; 3]);
        picture.rectangle((1.0, 1.0), (3.0, 2.0), [1, 2, 3]);
        let end = "\u{1b}[0m\u{1b}[K\n";
        let expected = format!(
            "\u{1b}[38;2;255;255;255;48;2;255;255;255m▀\u{1b}[38;2;255;255;255;48;2;1;2;3m▀▀{end}\u{1b}[38;2;255;255;255;49m▀▀▀{end}"
        );
        assert_eq!(blocks(&picture), expected);
    }
}
