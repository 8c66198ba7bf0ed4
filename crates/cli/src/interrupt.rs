//! Ctrl-C: the first asks the training loop to stop, the second ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::dashboard;
use crate::failure::{Failure, Result};
use crate::progress::note;

/// The exit status of a command that Ctrl-C ended, as shells have it: 128 + SIGINT.
pub(crate) const EXIT_STATUS: u8 = 130;

/// Whether the user pressed Ctrl-C.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes over Ctrl-C for the rest of this process, unless whoever started it had it ignored; to be called once.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn install() -> Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&asked);
        let installed = ctrlc::try_set_handler(move || {
            if flag.swap(true, Ordering::Relaxed) {
                dashboard::restore();
                std::process::exit(EXIT_STATUS.into());
            }
            note("\nstopping after this step; press Ctrl-C again to stop at once without a checkpoint");
        });
        match installed {
            // A shell starts what it runs in the background, and nohup too, with Ctrl-C ignored: it is meant for others then.
            Ok(()) | Err(ctrlc::Error::MultipleHandlers) => Ok(Self(asked)),
            Err(e) => Err(Failure::new(format!("cannot listen for Ctrl-C: {e}"))),
        }
    }

    /// Set once it was pressed.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}
