//! The terminal, which a thread draws on and listens to.

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

/// The exit status of a process that Ctrl-C ended, as shells have it: 128 + SIGINT.
const INTERRUPTED: i32 = 130;

/// Clocks go on where nothing else happens.
const IDLE: Duration = Duration::from_secs(1);

/// How long a terminal that does not take what is drawn is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether a dashboard has the terminal: there is one for the whole process.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Whether something is being drawn.
static DRAWING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this is the thread that draws.
    static DRAWS: Cell<bool> = const { Cell::new(false) };
}

/// The terminal, until this goes.
#[derive(Debug)]
pub(super) struct Screen {
    shared: Arc<Shared>,
    // Training must not wait for a terminal, as it would for a lock that is held while something is drawn.
    told: Sender<Told>,
    /// What the thread leaves when it ends.
    left: Receiver<State>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    over: AtomicBool,
}

impl Screen {
    /// Takes the terminal, unless another dashboard has it.
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
            // Whoever waited may have gone.
            let _ = leaves.send(show(terminal, &keys, state, &news, &seen));
        };
        thread.spawn(work).map_err(failed)?;
        Ok(Some(Self { shared, told, left }))
    }

    /// Shows what has happened.
    pub(super) fn tell(&self, told: Told) {
        // A thread that has panicked has given the terminal back, and shows nothing more.
        let _ = self.told.send(told);
    }

    /// Whether somebody asked to stop.
    pub(super) fn stops(&self) -> bool {
        self.shared.stop.load(Relaxed)
    }

    /// Gives the terminal back, and the notices that were shown on it.
    pub(super) fn close(self) -> Vec<String> {
        self.end().map_or_else(Vec::new, |state| state.notices.into())
    }

    fn end(&self) -> Option<State> {
        self.shared.over.store(true, Relaxed);
        // A panic of its own has been told by the hook; a terminal that takes nothing keeps the thread,
        // and not the training.
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

/// Whether a dashboard has the terminal.
pub(super) fn is_taken() -> bool {
    TAKEN.load(SeqCst)
}

/// Gives the terminal back, if it was taken.
pub(super) fn restore() {
    if TAKEN.swap(false, SeqCst) {
        // The rest of a drawing would land behind what follows.
        let begun = Instant::now();
        while !DRAWS.get() && DRAWING.load(SeqCst) && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        // Where this fails, there is no terminal any more.
        let _ = disable_raw_mode();
        if !DRAWS.get() && DRAWING.load(SeqCst) {
            // The terminal takes nothing: writing to it, too, would wait for ever.
            return;
        }
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    }
}

/// What a panic says is to be read where it stays.
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
                // A terminal that has gone shows nothing; training goes on. A new size is seen here.
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

/// Tells training to stop; a second Ctrl-C ends the process.
fn stop(key: Key, shared: &Shared) {
    if shared.stop.swap(true, Relaxed) && key == Key::Interrupt {
        restore();
        polygrad_nn::abandon_files();
        std::process::exit(INTERRUPTED);
    }
}
