//! A program together with what it starts, so that all of it can be ended: killing a program alone leaves the compilers
//! and workers that it waits for.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use polygrad::train::end_on_signals;
use polygrad_console::failure::Result;

/// How often somebody who waits looks.
const LOOK: Duration = Duration::from_millis(5);

/// The groups that run. A terminal's Ctrl-C reaches this program's own group only.
static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// A child at the head of a process group of its own; where the system has no such groups, the child alone.
#[derive(Debug)]
pub(crate) struct Group(Child);

impl Group {
    /// Starts it.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn spawn(mut command: Command) -> io::Result<Self> {
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn()?;
        running().push(child.id());
        Ok(Self(child))
    }

    /// The program at its head.
    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// The number of the program at its head.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// How the program at its head ended, nothing if it still runs after `patience`.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn wait(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        let start = Instant::now();
        loop {
            let status = self.0.try_wait()?;
            if status.is_some() || start.elapsed() >= patience {
                return Ok(status);
            }
            thread::sleep(LOOK);
        }
    }

    /// Ends whatever of it still runs.
    pub(crate) fn kill(&mut self) {
        // Before the head is waited for, so that its number is nobody else's.
        kill_group(self.id());
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let id = self.id();
        running().retain(|known| *known != id);
    }
}

/// Lets Ctrl-C, SIGTERM and SIGHUP end all groups, and then this program.
///
/// # Errors
/// The system refuses.
pub(crate) fn end_on_interrupt() -> Result<()> {
    Ok(end_on_signals(|| running().iter().copied().for_each(kill_group))?)
}

fn running() -> std::sync::MutexGuard<'static, Vec<u32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// By the shell, which every Unix has: the standard library signals single processes only.
fn kill_group(id: u32) {
    if cfg!(unix) {
        let line = format!("kill -KILL -{id} 2>/dev/null");
        let _ = Command::new("sh").args(["-c", &line]).status();
    }
}
