//! Signals, not told apart.

use std::io;

/// The signal that Ctrl-C sends.
pub(super) const INTERRUPT: u8 = 2;

/// Calls `told` for each received signal.
///
/// # Errors
/// When the system refuses.
pub(super) fn hear(told: impl Fn(u8) + Send + 'static) -> io::Result<()> {
    match ctrlc::try_set_handler(move || told(INTERRUPT)) {
        // A signal that was ignored when the process started is meant for other programs.
        Ok(()) | Err(ctrlc::Error::MultipleHandlers) => Ok(()),
        Err(ctrlc::Error::System(error)) => Err(error),
        Err(error) => Err(io::Error::other(error)),
    }
}
