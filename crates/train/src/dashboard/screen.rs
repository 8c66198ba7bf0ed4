//! The terminal, used by a thread that draws and reads keys.

use std::cell::Cell;
use std::io::{self, Stdout};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use polygrad_core::{Error, ErrorKind, Result};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};

use super::keys::{Key, Keys};
use super::state::{State, Told, memory};
use super::{INTERVAL, view};

/// Exit status of a process that Ctrl-C ended, as in shells: 128 + SIGINT.
const INTERRUPTED: i32 = 130;

/// Time between redraws without news, so that clocks advance.
const IDLE: Duration = Duration::from_secs(1);

/// How long to wait for a terminal that accepts no output.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether a dashboard uses the terminal: one per process.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Whether the dashboard is currently drawing.
static DRAWING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this is the drawing thread.
    static DRAWS: Cell<bool> = const { Cell::new(false) };
}

/// The terminal, in use until this is dropped.
#[derive(Debug)]
pub(super) struct Screen {
    shared: Arc<Shared>,
    // A channel, so that training does not wait for the terminal, as it would for a lock held while drawing.
    told: Sender<Told>,
    /// The thread's final state.
    left: Receiver<State>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    over: AtomicBool,
}

impl Screen {
    /// Takes the terminal, unless another dashboard uses it.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn open(state: State) -> Result<Option<Self>> {
        if TAKEN.swap(true, SeqCst) {
            return Ok(None);
        }
        give_back_on_panic();
        let failed = |e: io::Error| {
            restore();
            Error::new(ErrorKind::Io, format!("cannot take the terminal for a dashboard: {e}"))
                .with_hint("train without the dashboard")
        };
        let keys = Keys::new().map_err(failed)?;
        let terminal = take().map_err(failed)?;
        let shared = Arc::new(Shared::default());
        let seen = Arc::clone(&shared);
        let (told, news) = mpsc::channel();
        let (leaves, left) = mpsc::channel();
        let thread = std::thread::Builder::new().name("dashboard".to_owned());
        let work = move || {
            DRAWS.set(true);
            // The receiver may have stopped waiting.
            let _ = leaves.send(show(terminal, &keys, state, &news, &seen));
        };
        thread.spawn(work).map_err(failed)?;
        Ok(Some(Self { shared, told, left }))
    }

    /// Sends news to the drawing thread.
    pub(super) fn tell(&self, told: Told) {
        // Errors are ignored: a thread that panicked has restored the terminal and shows nothing more.
        let _ = self.told.send(told);
    }

    /// Whether the user asked to stop.
    pub(super) fn stops(&self) -> bool {
        self.shared.stop.load(Relaxed)
    }

    /// Restores the terminal, and returns the notices that were shown on it.
    pub(super) fn close(self) -> Vec<String> {
        self.end().map_or_else(Vec::new, |state| state.notices.into())
    }

    fn end(&self) -> Option<State> {
        self.shared.over.store(true, Relaxed);
        // The panic hook has already reported a panic of the thread. A terminal that accepts no output blocks only that
        // thread, not the training.
        let state = self.left.recv_timeout(PATIENCE).ok();
        restore();
        state
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.end();
    }
}

fn take() -> io::Result<Terminal<CrosstermBackend<Stdout>>> {
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen)?;
    Terminal::new(CrosstermBackend::new(io::stdout()))
}

/// Whether a dashboard uses the terminal.
pub(super) fn is_taken() -> bool {
    TAKEN.load(SeqCst)
}

/// Restores the terminal if it was taken.
pub(super) fn restore() {
    if TAKEN.swap(false, SeqCst) {
        // Waits for a drawing in progress, whose rest would otherwise appear after later output.
        let begun = Instant::now();
        while !DRAWS.get() && DRAWING.load(SeqCst) && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        // If this fails, the terminal is gone.
        let _ = disable_raw_mode();
        if !DRAWS.get() && DRAWING.load(SeqCst) {
            // The terminal accepts no output, so writing to it would block forever.
            return;
        }
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    }
}

/// Restores the terminal before a panic message is printed, so that the message stays visible.
fn give_back_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
    });
}

fn show(
    mut terminal: Terminal<CrosstermBackend<Stdout>>,
    keys: &Keys,
    mut state: State,
    news: &Receiver<Told>,
    shared: &Shared,
) -> State {
    let (mut drawn, mut measured): (Option<Instant>, Option<Instant>) = (None, None);
    let is_due = |last: Option<Instant>, after: Duration| last.is_none_or(|last| last.elapsed() >= after);
    let mut has_changed = true;
    while !shared.over.load(Relaxed) && TAKEN.load(SeqCst) {
        for told in news.try_iter() {
            state.take(told);
            has_changed = true;
        }
        if is_due(measured, IDLE) {
            measured = Some(Instant::now());
            state.memory = memory();
        }
        if has_changed && is_due(drawn, INTERVAL) || is_due(drawn, IDLE) {
            (drawn, has_changed) = (Some(Instant::now()), false);
            DRAWING.store(true, SeqCst);
            if TAKEN.load(SeqCst) {
                // Errors are ignored: training continues without a terminal. This also detects a new terminal size.
                let _ = terminal.draw(|frame| view::draw(frame, &state));
            }
            DRAWING.store(false, SeqCst);
        }
        match keys.wait(INTERVAL) {
            Ok(Some(key)) => {
                stop(key, shared);
                (state.stopping, has_changed) = (true, true);
            }
            Ok(None) => {}
            Err(_) => std::thread::sleep(INTERVAL),
        }
    }
    news.try_iter().for_each(|told| state.take(told));
    state
}

/// Requests a stop of the training; a second Ctrl-C ends the process.
fn stop(key: Key, shared: &Shared) {
    if shared.stop.swap(true, Relaxed) && key == Key::Interrupt {
        restore();
        polygrad_nn::abandon_files();
        std::process::exit(INTERRUPTED);
    }
}
