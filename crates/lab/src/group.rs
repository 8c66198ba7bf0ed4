//! A program together with its child processes, so that all of them can be ended: killing only the program leaves the
//! compilers and workers that it waits for.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use polygrad::train::end_on_signals;
use polygrad_console::failure::Result;

/// The polling interval while waiting.
const LOOK: Duration = Duration::from_millis(5);

/// The running groups. A terminal's Ctrl-C only reaches this program's own group.
static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// A child as the leader of its own process group; only the child if the system has no such groups.
#[derive(Debug)]
pub(crate) struct Group(Child);

impl Group {
    /// Starts the command in a new group.
    ///
    /// # Errors
    /// Errors of the system.
    pub(crate) fn spawn(mut command: Command) -> io::Result<Self> {
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn()?;
        running().push(child.id());
        Ok(Self(child))
    }

    /// The leader of the group.
    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// The process id of the leader.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// The exit status of the leader; `None` if it still runs after `patience`.
    ///
    /// # Errors
    /// Errors of the system.
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

    /// Ends all processes of the group that still run.
    pub(crate) fn kill(&mut self) {
        // Before the leader is waited for, so that its id has not been reused.
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

/// Makes Ctrl-C, SIGTERM and SIGHUP end all groups, and then this program.
///
/// # Errors
/// If the system refuses.
pub(crate) fn end_on_interrupt() -> Result<()> {
    Ok(end_on_signals(|| running().iter().copied().for_each(kill_group))?)
}

fn running() -> std::sync::MutexGuard<'static, Vec<u32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Through the shell, which every Unix has, since the standard library only signals single processes.
fn kill_group(id: u32) {
    if cfg!(unix) {
        let line = format!("kill -KILL -{id} 2>/dev/null");
        let _ = Command::new("sh").args(["-c", &line]).status();
    }
}
