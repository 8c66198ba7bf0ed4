//! The terminal, which a thread draws on and listens to.

use std::io::{self, Stdout};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Once};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use polygrad_core::{Error, ErrorKind, Result};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};

use super::state::{State, Told, memory};
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
    // Training must not wait for a terminal, as it would for a lock that is held while something is drawn.
    told: Sender<Told>,
    thread: Option<JoinHandle<State>>,
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
        let shared = Arc::new(Shared::default());
        let seen = Arc::clone(&shared);
        let (told, news) = mpsc::channel();
        let thread = std::thread::Builder::new().name("dashboard".to_owned());
        let thread = thread
            .spawn(move || show(terminal, state, &news, &seen))
            .map_err(failed)?;
        Ok(Some(Self {
            shared,
            told,
            thread: Some(thread),
        }))
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
    pub(super) fn close(mut self) -> Vec<String> {
        self.end().map_or_else(Vec::new, |state| state.notices.into())
    }

    fn end(&mut self) -> Option<State> {
        self.shared.over.store(true, Relaxed);
        // A panic of its own has been told by the hook.
        let state = self.thread.take().and_then(|thread| thread.join().ok());
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

fn show(
    mut terminal: Terminal<CrosstermBackend<Stdout>>,
    mut state: State,
    news: &Receiver<Told>,
    shared: &Shared,
) -> State {
    let (mut drawn, mut measured): (Option<Instant>, Option<Instant>) = (None, None);
    let is_due = |last: Option<Instant>, after: Duration| last.is_none_or(|last| last.elapsed() >= after);
    let mut has_changed = true;
    while !shared.over.load(Relaxed) && TAKEN.load(Relaxed) {
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
            // A terminal that has gone shows nothing; training goes on.
            let _ = terminal.draw(|frame| view::draw(frame, &state));
        }
        match event::poll(INTERVAL).and_then(|is_there| is_there.then(event::read).transpose()) {
            Ok(Some(Event::Key(key))) if key.kind != KeyEventKind::Release && is_stop(key, shared) => {
                state.stopping = true;
                has_changed = true;
            }
            // The new size is seen when it is drawn.
            Ok(Some(Event::Resize(..))) => has_changed = true,
            Ok(_) => {}
            Err(_) => std::thread::sleep(INTERVAL),
        }
    }
    news.try_iter().for_each(|told| state.take(told));
    state
}

/// Whether a key asks to stop; if it does, training is told so.
fn is_stop(key: KeyEvent, shared: &Shared) -> bool {
    let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    if !is_interrupt && key.code != KeyCode::Char('q') {
        return false;
    }
    if shared.stop.swap(true, Relaxed) && is_interrupt {
        restore();
        std::process::exit(INTERRUPTED);
    }
    true
}
