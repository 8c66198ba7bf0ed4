//! What asks a process to end: Ctrl-C, SIGTERM and SIGHUP. Training is stopped by the first; what else runs is ended,
//! without half-written files.

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

/// Set once training was asked to stop; there from the first trainer that wants to know.
static STOP: Mutex<Option<Arc<AtomicBool>>> = Mutex::new(None);

/// What is done before the process ends.
static LAST: Mutex<Vec<Box<dyn FnMut() + Send>>> = Mutex::new(Vec::new());

/// The signal that asked training to stop.
static SIGNAL: AtomicU8 = AtomicU8::new(INTERRUPT);

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hears signals from the first call on.
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

/// A terminal that is closed sends SIGHUP, and so does its shell; some send SIGTERM twice. Only Ctrl-C is pressed
/// again by the impatient.
fn told(signal: u8) {
    let stop = lock(&STOP).clone();
    match stop.map(|stop| stop.swap(true, Relaxed)) {
        Some(false) => {
            SIGNAL.store(signal, Relaxed);
            let again = if signal == INTERRUPT { "again " } else { "" };
            let text = format!("\nstopping after this step; press Ctrl-C {again}to stop at once without a checkpoint");
            // Where it cannot be written, there is nobody to tell.
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

/// As shells have it.
fn status(signal: u8) -> u8 {
    128 + signal
}

/// The exit status of a process whose training was asked to stop: 130 after Ctrl-C, 143 after SIGTERM, 129 after
/// SIGHUP. Systems other than Linux do not tell them apart: 130.
pub fn stop_status() -> u8 {
    status(SIGNAL.load(Relaxed))
}

/// From now on Ctrl-C, SIGTERM and SIGHUP end the process by way of `last`, with the status that a shell would give it
/// (128 and the signal's number), and leave no half-written file behind; unless a trainer was [told to
/// stop](RunConfig::stop_on_ctrl_c) by them. Signals with which the process was started ignored, or that the program
/// listens for already, stay as they are; on systems other than Linux one such signal keeps all three.
///
/// # Errors
/// The system refuses.
pub fn end_on_signals(last: impl FnMut() + Send + 'static) -> Result<()> {
    lock(&LAST).push(Box::new(last));
    listen()
}

/// Takes over Ctrl-C, SIGTERM and SIGHUP for the rest of the process, as
/// [`stop_on_ctrl_c`](RunConfig::stop_on_ctrl_c) does, and gives the flag that the first of them sets.
///
/// # Errors
/// The system refuses.
pub fn flag_of_signals() -> Result<Arc<AtomicBool>> {
    listen()?;
    Ok(Arc::clone(lock(&STOP).get_or_insert_default()))
}

impl<O> RunConfig<O> {
    /// Takes over Ctrl-C, SIGTERM and SIGHUP for the rest of the process: the first stops training after the running
    /// step, with a checkpoint, as a [stop flag](RunConfig::stop_flag) does, and every trainer that is built so from
    /// then on. Ctrl-C after that ends the process with status 130; another SIGTERM or SIGHUP changes nothing.
    /// [`stop_status`] is what a process may end with that has stopped so.
    ///
    /// Signals with which the process was started ignored, as by `nohup`, or that the program listens for already, stay
    /// as they are; on systems other than Linux one such signal keeps all three.
    ///
    /// # Errors
    /// The system refuses.
    pub fn stop_on_ctrl_c(self) -> Result<Self> {
        Ok(self.stop_flag(flag_of_signals()?))
    }
}
