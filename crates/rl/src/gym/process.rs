//! A Python process and the messages to it.

use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use polygrad_core::{Error, ErrorKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Deserialize;
use serde_json::Value;

use super::GymConfig;

const PROGRAM: &str = include_str!("worker.py");

/// A running Python process. Dropping this ends it.
pub(super) struct Process {
    child: Child,
    /// `None` once the process is to end.
    requests: Option<ChildStdin>,
    answers: ChildStdout,
    timeout: Duration,
}

/// An exception from Python.
#[derive(Debug, Deserialize)]
pub(super) struct Thrown {
    what: String,
    /// Name of a missing module.
    missing: Option<String>,
}

/// The reason why there is no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// Python cannot be started.
    Absent(io::Error),
    Thrown(Thrown),
    Ended(Option<ExitStatus>),
    Hung(Duration),
    Memory(io::Error),
    Garbled(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(error) => write!(f, "cannot be started: {error}"),
            Self::Thrown(Thrown { what, .. }) => write!(f, "raised {what}"),
            Self::Ended(Some(status)) => write!(f, "ended by itself ({status})"),
            Self::Ended(None) => f.write_str("ended by itself"),
            Self::Hung(timeout) => write!(f, "did not answer within {} s and was ended", timeout.as_secs_f64()),
            Self::Memory(error) => write!(f, "shares no memory: {error}"),
            Self::Garbled(what) => write!(f, "answered what makes no sense: {what}"),
        }
    }
}

impl Failure {
    /// Converts the failure to an error for the environment of this name, which cannot be made.
    pub(super) fn into_error(self, name: &str, config: &GymConfig) -> Error {
        let python = interpreter(config);
        let python = python.display();
        match &self {
            Self::Absent(error) => Error::new(ErrorKind::Io, format!("{python} cannot be started: {error}"))
                .with_hint("name a Python that has gymnasium, by --python or POLYGRAD_PYTHON"),
            Self::Thrown(thrown) => {
                let hint = match &thrown.missing {
                    Some(module) => {
                        let package = module.split('.').next().unwrap_or_default();
                        format!(
                            "`{python} -m pip install {package}`, or name a Python that has it, by --python or \
                             POLYGRAD_PYTHON"
                        )
                    }
                    None if thrown.what.contains("is too old") => {
                        format!("`{python} -m pip install 'gymnasium>=1'`")
                    }
                    None if thrown.what.contains("pip install") => format!("install it for {python}"),
                    None => "a name is gym:ID, gym:MODULE:ID or gym:FILE.py:CLASS, with Box, Discrete, MultiDiscrete \
                             and MultiBinary spaces, and Dict and Tuple of them to observe"
                        .to_owned(),
                };
                Error::invalid(format!("{name} cannot be made: {}", thrown.what)).with_hint(hint)
            }
            _ => Error::new(ErrorKind::Io, format!("{name} cannot be made: {python} {self}"))
                .with_hint("look at what it wrote to standard error, or start it by hand"),
        }
    }
}

fn interpreter(config: &GymConfig) -> PathBuf {
    let named = std::env::var_os("POLYGRAD_PYTHON").filter(|python| !python.is_empty());
    let python = config.python.clone().or(named.map(PathBuf::from));
    python.unwrap_or_else(|| Path::new("python3").to_owned())
}

impl Process {
    /// Starts Python, which then makes the requested environments; [`hear`](Self::hear) waits for its report.
    pub(super) fn start(config: &GymConfig, request: &Value) -> Result<Self, Failure> {
        let mut command = Command::new(interpreter(config));
        command
            .args(["-c", PROGRAM])
            // Suppresses pygame's greeting.
            .env("PYGAME_HIDE_SUPPORT_PROMPT", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().map_err(Failure::Absent)?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::Garbled("it has no pipes".to_owned()));
        };
        let mut process = Self {
            child,
            requests: Some(requests),
            answers,
            timeout: Duration::from_secs_f64(config.timeout),
        };
        process.tell(format!("{request}\n").as_bytes());
        Ok(process)
    }

    /// Sends a request. A failure shows when the answer is read.
    pub(super) fn tell(&mut self, request: &[u8]) {
        if let Some(requests) = &mut self.requests {
            requests.write_all(request).ok();
        }
    }

    /// Waits for the answer, which may contain a text.
    pub(super) fn hear(&mut self) -> Result<Option<Value>, Failure> {
        let until = Instant::now() + self.timeout;
        let [kind] = self.read(until)?;
        match kind {
            b'.' => Ok(None),
            b'j' => self.text(until).map(Some),
            b'e' => {
                let thrown = Thrown::deserialize(self.text(until)?);
                Err(thrown.map_or_else(|error| Failure::Garbled(error.to_string()), Failure::Thrown))
            }
            other => Err(Failure::Garbled(format!("the byte {other}"))),
        }
    }

    fn text(&mut self, until: Instant) -> Result<Value, Failure> {
        let length = u32::from_le_bytes(self.read(until)?);
        let mut text = vec![0; length as usize];
        self.fill(&mut text, until)?;
        serde_json::from_slice(&text).map_err(|error| Failure::Garbled(error.to_string()))
    }

    fn read<const N: usize>(&mut self, until: Instant) -> Result<[u8; N], Failure> {
        let mut bytes = [0; N];
        self.fill(&mut bytes, until)?;
        Ok(bytes)
    }

    fn fill(&mut self, mut bytes: &mut [u8], until: Instant) -> Result<(), Failure> {
        while !bytes.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            let mut waits = [PollFd::new(&self.answers, PollFlags::IN)];
            let left = Timespec::try_from(left).map_err(|_| Failure::Hung(self.timeout))?;
            match poll(&mut waits, Some(&left)) {
                Ok(0) => {
                    self.child.kill().ok();
                    return Err(Failure::Hung(self.timeout));
                }
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(Failure::Garbled(error.to_string())),
            }
            match self.answers.read(bytes) {
                Ok(0) => return Err(Failure::Ended(self.end())),
                Ok(count) => bytes = &mut bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::Garbled(error.to_string())),
            }
        }
        Ok(())
    }
}

/// How long a process may take to close its environments.
const FAREWELL: Duration = Duration::from_secs(2);

impl Process {
    /// Lets the process end, within a time limit, and returns its exit status.
    fn end(&mut self) -> Option<ExitStatus> {
        self.requests = None;
        let until = Instant::now() + FAREWELL;
        while Instant::now() < until {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                ended => return ended.ok().flatten(),
            }
        }
        self.child.kill().ok();
        self.child.wait().ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}
