//! SIGTERM and Ctrl-C.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
#[cfg(windows)]
use tokio::signal::windows::{CtrlC, ctrl_c};

use crate::progress::note;

/// The exit status of a process that was told twice to end, by the convention of shells: 128 + SIGINT.
const INTERRUPTED: i32 = 130;

/// The signals that end the process. While this exists, they do not end it by themselves.
pub(super) struct Signals {
    #[cfg(unix)]
    both: [Signal; 2],
    #[cfg(windows)]
    interrupt: CtrlC,
}

impl Signals {
    /// Must be called in a runtime.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            #[cfg(unix)]
            both: [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?],
            #[cfg(windows)]
            interrupt: ctrl_c()?,
        })
    }

    /// Completes when the process is told to end. If told again, the process ends at once.
    pub(super) async fn told(mut self) {
        self.next().await;
        note("shutting down after the accepted requests are answered; Ctrl-C ends at once");
        tokio::spawn(async move {
            self.next().await;
            std::process::exit(INTERRUPTED);
        });
    }

    async fn next(&mut self) {
        #[cfg(unix)]
        {
            let [terminate, interrupt] = &mut self.both;
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        }
        #[cfg(windows)]
        self.interrupt.recv().await;
    }
}
