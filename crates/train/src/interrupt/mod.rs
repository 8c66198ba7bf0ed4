//! Signals that ask a process to end: Ctrl-C, SIGTERM and SIGHUP. The first one stops training; programs without
//! training end, without leaving half-written files.

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "others.rs")]
mod signals;

use std::io::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polygrad_core::{Error, ErrorKind, Result};

use crate::RunConfig;
use signals::{INTERRUPT, hear};

/// Set once training was asked to stop; exists from the first trainer that asks for it.
static STOP: Mutex<Option<Arc<AtomicBool>>> = Mutex::new(None);

/// Functions called before the process ends.
static LAST: Mutex<Vec<Box<dyn FnMut() + Send>>> = Mutex::new(Vec::new());

/// The signal that asked training to stop.
static SIGNAL: AtomicU8 = AtomicU8::new(INTERRUPT);

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts listening for signals, on the first call.
fn listen() -> Result<()> {
    static LISTENS: Mutex<bool> = Mutex::new(false);
    let mut listens = lock(&LISTENS);
    if !*listens {
        hear(told).map_err(|error| {
            let failed = Error::new(ErrorKind::Io, format!("cannot listen for Ctrl-C and SIGTERM: {error}"));
            match error.kind() {
                std::io::ErrorKind::WouldBlock => failed.with_hint(
                    "the system lets this process start no more threads: raise `ulimit -u`, or the container's limit of processes",
                ),
                _ => failed,
            }
        })?;
        *listens = true;
    }
    Ok(())
}

/// Closing a terminal sends SIGHUP, as does its shell, and some programs send SIGTERM twice. So only a second Ctrl-C
/// means that the user wants the process to end at once.
fn told(signal: u8) {
    let stop = lock(&STOP).clone();
    match stop.map(|stop| stop.swap(true, Relaxed)) {
        Some(false) => {
            SIGNAL.store(signal, Relaxed);
            let again = if signal == INTERRUPT { "again " } else { "" };
            let text = format!("\nstopping after this step; press Ctrl-C {again}to stop at once without a checkpoint");
            // Errors are ignored: there is no other place to report to.
            let _ = writeln!(std::io::stderr(), "{text}");
        }
        Some(true) if signal != INTERRUPT => {}
        _ => leave(signal),
    }
}

fn leave(signal: u8) -> ! {
    #[cfg(feature = "tui")]
    crate::Dashboard::restore();
    lock(&LAST).iter_mut().for_each(|last| last());
    polygrad_nn::abandon_files();
    std::process::exit(i32::from(status(signal)))
}

/// As in shells.
fn status(signal: u8) -> u8 {
    128 + signal
}

/// The exit status of a process whose training was asked to stop: 130 after Ctrl-C, 143 after SIGTERM, 129 after
/// SIGHUP. Systems other than Linux do not distinguish them: 130.
pub fn stop_status() -> u8 {
    status(SIGNAL.load(Relaxed))
}

/// From now on Ctrl-C, SIGTERM and SIGHUP call `last` and end the process, with the status that a shell would give it
/// (128 plus the signal's number), leaving no half-written file behind. They stop training instead if a trainer [uses
/// them](RunConfig::stop_on_ctrl_c). Signals that were ignored when the process started, or that the program already
/// handles, are left alone; on systems other than Linux one such signal keeps all three.
///
/// # Errors
/// When the system refuses.
pub fn end_on_signals(last: impl FnMut() + Send + 'static) -> Result<()> {
    lock(&LAST).push(Box::new(last));
    listen()
}

/// Takes over Ctrl-C, SIGTERM and SIGHUP for the rest of the process, as [`stop_on_ctrl_c`](RunConfig::stop_on_ctrl_c)
/// does, and returns the flag that the first of them sets.
///
/// # Errors
/// When the system refuses.
pub fn flag_of_signals() -> Result<Arc<AtomicBool>> {
    listen()?;
    Ok(Arc::clone(lock(&STOP).get_or_insert_default()))
}

impl<O> RunConfig<O> {
    /// Takes over Ctrl-C, SIGTERM and SIGHUP for the rest of the process. The first one stops training after the
    /// running step, with a checkpoint, as a [stop flag](RunConfig::stop_flag) does, and also every trainer built this
    /// way afterwards. A Ctrl-C after that ends the process with status 130; another SIGTERM or SIGHUP has no effect. A
    /// process that stopped this way can exit with [`stop_status`].
    ///
    /// Signals that were ignored when the process started, as by `nohup`, or that the program already handles, are left
    /// alone; on systems other than Linux one such signal keeps all three.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn stop_on_ctrl_c(self) -> Result<Self> {
        Ok(self.stop_flag(flag_of_signals()?))
    }
}
