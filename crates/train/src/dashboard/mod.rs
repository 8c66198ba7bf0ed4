//! A full-screen terminal display of the training.

mod keys;
mod screen;
mod state;
mod view;

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use polygrad_core::{Result, printable};

use crate::progress_bar::{ProgressBar, epoch_line};
use crate::{Callback, Control, Event, Progress};
use screen::Screen;
use state::{State, Told};

/// Least time between two updates.
const INTERVAL: Duration = Duration::from_millis(100);

/// A callback that shows curves, progress, throughput, memory and the use of time on the whole terminal. It redraws at
/// most ten times a second, and prints the last epoch's line when training is over.
///
/// `q` and Ctrl-C stop the training with a checkpoint, as a [stop flag](crate::TrainerConfig::stop_flag) does; a second
/// Ctrl-C ends the process with status 130. The terminal is restored when training ends, fails or panics, and when this
/// is dropped.
///
/// If standard output is not a terminal, or another dashboard uses it, this is a [`ProgressBar`].
///
/// ```
/// use polygrad_train::{Dashboard, TrainerConfig};
///
/// let config = TrainerConfig::epochs(10).callback(Dashboard::new());
/// # drop(config);
/// ```
#[derive(Debug)]
pub struct Dashboard {
    plain: ProgressBar,
    say: fn(&str),
    screen: Option<Screen>,
    begun: Instant,
    told: Instant,
    /// The text to print after the terminal is restored.
    last: Option<String>,
}

impl Default for Dashboard {
    fn default() -> Self {
        Self::new()
    }
}

impl Dashboard {
    /// Prints lines to standard output; errors are ignored.
    pub fn new() -> Self {
        Self::printing(|line| {
            let _ = writeln!(std::io::stdout(), "{}", printable(line));
        })
    }

    /// Passes the lines of epochs to a function.
    pub fn printing(say: fn(&str)) -> Self {
        Self {
            plain: ProgressBar::printing(say),
            say,
            screen: None,
            begun: Instant::now(),
            told: Instant::now(),
            last: None,
        }
    }

    /// Restores the terminal if a dashboard uses it, for a program that ends without dropping its trainer.
    pub fn restore() {
        screen::restore();
    }

    fn close(&mut self) {
        let Some(screen) = self.screen.take() else { return };
        for notice in screen.close() {
            let _ = writeln!(std::io::stderr(), "{}", printable(&notice));
        }
        if let Some(line) = self.last.take() {
            (self.say)(&line);
        }
    }
}

impl Callback for Dashboard {
    fn on_event(&mut self, event: Event<'_>, progress: &Progress<'_>) -> Result<Control> {
        let has_work = progress.steps.is_none_or(|steps| progress.step < steps);
        if matches!(event, Event::Begin) && has_work && std::io::stdout().is_terminal() {
            // Training that continues from a checkpoint after ranks were lost begins twice.
            self.close();
            self.begun = Instant::now();
            self.screen = Screen::open(State::new(progress, self.begun))?;
        }
        if self.screen.is_some() && !screen::is_taken() {
            // A panic, perhaps a caught one, has restored the terminal.
            self.close();
        }
        let Some(screen) = &self.screen else {
            return self.plain.on_event(event, progress);
        };
        match event {
            Event::Step if self.told.elapsed() < INTERVAL => {}
            Event::End | Event::Failed => {
                self.close();
                return Ok(Control::Continue);
            }
            _ => {
                self.told = Instant::now();
                screen.tell(Told::new(event, progress, self.begun));
            }
        }
        if let Event::Epoch(row) = event {
            self.last = Some(epoch_line(progress, row));
        }
        Ok(match screen.stops() {
            true => Control::Stop,
            false => Control::Continue,
        })
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        self.close();
    }
}
