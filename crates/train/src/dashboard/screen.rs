//! The terminal, which a thread draws on and listens to.

use std::io::{self, Stdout};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use polygrad_core::{Error, ErrorKind, Result};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};

use super::state::{State, memory};
use super::{INTERVAL, view};

/// Clocks go on where nothing else happens.
const IDLE: Duration = Duration::from_secs(1);

/// As shells have it: 128 + SIGINT.
const INTERRUPTED: i32 = 130;

/// Whether a dashboard has the terminal: there is one for the whole process.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal, until this goes.
#[derive(Debug)]
pub(super) struct Screen {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: AtomicBool,
    stop: AtomicBool,
    over: AtomicBool,
}

impl Shared {
    /// What is shown is whole after each change, so that a panic between two of them does no harm.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Screen {
    /// Takes the terminal, unless another dashboard has it.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn open(state: State) -> Result<Option<Self>> {
        if TAKEN.swap(true, Relaxed) {
            return Ok(None);
        }
        give_back_on_panic();
        let failed = |e: io::Error| {
            restore();
            Error::new(ErrorKind::Io, format!("cannot take the terminal for a dashboard: {e}"))
                .with_hint("train without the dashboard")
        };
        let terminal = take().map_err(failed)?;
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: AtomicBool::new(true),
            stop: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        let seen = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("dashboard".to_owned());
        let thread = thread.spawn(move || show(terminal, &seen)).map_err(failed)?;
        Ok(Some(Self {
            shared,
            thread: Some(thread),
        }))
    }

    /// Changes what is shown.
    pub(super) fn tell(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.state());
        self.shared.changed.store(true, Relaxed);
    }

    /// Whether somebody asked to stop.
    pub(super) fn stops(&self) -> bool {
        self.shared.stop.load(Relaxed)
    }

    /// Gives the terminal back, and the notices that were shown on it.
    pub(super) fn close(mut self) -> Vec<String> {
        self.end();
        self.shared.state().notices.drain(..).collect()
    }

    fn end(&mut self) {
        self.shared.over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of its own has been told by the hook.
            let _ = thread.join();
        }
        restore();
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

/// Gives the terminal back, if it was taken.
pub(super) fn restore() {
    if TAKEN.swap(false, Relaxed) {
        // Where this fails, there is no terminal any more.
        let _ = disable_raw_mode();
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

fn show(mut terminal: Terminal<CrosstermBackend<Stdout>>, shared: &Shared) {
    let (mut drawn, mut measured): (Option<Instant>, Option<Instant>) = (None, None);
    let is_due = |last: Option<Instant>, after: Duration| last.is_none_or(|last| last.elapsed() >= after);
    while !shared.over.load(Relaxed) && TAKEN.load(Relaxed) {
        if is_due(measured, IDLE) {
            measured = Some(Instant::now());
            shared.state().memory = memory();
        }
        let has_changed = is_due(drawn, INTERVAL) && shared.changed.swap(false, Relaxed);
        if has_changed || is_due(drawn, IDLE) {
            drawn = Some(Instant::now());
            // A terminal that has gone shows nothing; training goes on.
            let _ = terminal.draw(|frame| view::draw(frame, &shared.state()));
        }
        match event::poll(INTERVAL).and_then(|is_there| is_there.then(event::read).transpose()) {
            Ok(Some(Event::Key(key))) if key.kind != KeyEventKind::Release => heed(key, shared),
            // The new size is seen when it is drawn.
            Ok(Some(Event::Resize(..))) => shared.changed.store(true, Relaxed),
            Ok(_) => {}
            Err(_) => std::thread::sleep(INTERVAL),
        }
    }
}

fn heed(key: KeyEvent, shared: &Shared) {
    let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    if !is_interrupt && key.code != KeyCode::Char('q') {
        return;
    }
    if shared.stop.swap(true, Relaxed) && is_interrupt {
        restore();
        std::process::exit(INTERRUPTED);
    }
    shared.state().stopping = true;
    shared.changed.store(true, Relaxed);
}
