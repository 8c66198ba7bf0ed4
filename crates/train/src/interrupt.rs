//! Ctrl-C: the first asks training to stop, the second ends the process.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use polygrad_core::{Error, ErrorKind, Result};

use crate::TrainerConfig;

/// Set once it was pressed; there from the first time that somebody asks.
static ASKED: Mutex<Option<Arc<AtomicBool>>> = Mutex::new(None);

fn flag() -> Result<Arc<AtomicBool>> {
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(asked) = &*asked {
        return Ok(Arc::clone(asked));
    }
    let found = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&found);
    let installed = ctrlc::try_set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            #[cfg(feature = "tui")]
            crate::Dashboard::restore();
            std::process::exit(crate::INTERRUPTED);
        }
        let text = "\nstopping after this step; press Ctrl-C again to stop at once without a checkpoint";
        // Where it cannot be written, there is nobody to tell.
        let _ = writeln!(std::io::stderr(), "{text}");
    });
    match installed {
        // A shell starts what it runs in the background, and nohup too, with Ctrl-C ignored: it is meant for others then.
        Ok(()) | Err(ctrlc::Error::MultipleHandlers) => Ok(Arc::clone(asked.insert(found))),
        Err(e) => Err(Error::new(ErrorKind::Io, format!("cannot listen for Ctrl-C: {e}"))),
    }
}

impl TrainerConfig {
    /// Takes over Ctrl-C for the rest of the process: the first one stops training after the running step, with a checkpoint, as a
    /// [stop flag](TrainerConfig::stop_flag) does, and every trainer that is built so from then on; the second ends the process with status 130.
    /// Where the process was started with Ctrl-C ignored, or the program listens for it already, it stays as it is.
    ///
    /// # Errors
    /// The system refuses.
    pub fn stop_on_ctrl_c(self) -> Result<Self> {
        Ok(self.stop_flag(flag()?))
    }
}
