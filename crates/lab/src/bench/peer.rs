//! Another program, with a line-based protocol: see docs/performance.md.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use polygrad_console::failure::{Failure, Result, Shown};

use super::contestant::{Contestant, Times};
use crate::group::Group;

/// The environment variable with the folder of peers, in place of the one in the cache.
pub(crate) const FOLDER: &str = "POLYGRAD_PEERS";

/// Hint on how to set up the usual peers.
const SETUP: &str = "`cargo xtask setup peers`, or `cargo xtask bench`, in a checkout of Polygrad sets up torch, torch-compile, jax, candle, burn, tch and floor";

/// How long a program may take to exit after its input is closed.
const FAREWELL: Duration = Duration::from_secs(5);

/// A program at the other end of two pipes. It is ended on drop.
#[derive(Debug)]
pub(crate) struct Peer {
    name: String,
    group: Group,
    input: Option<ChildStdin>,
    /// Its lines, read by a thread, since a pipe cannot be read for a limited time.
    lines: Receiver<io::Result<String>>,
    /// How long it may take to answer.
    patience: Duration,
    /// The question that it did not answer in time; it has been ended then.
    silence: Option<String>,
}

impl Peer {
    /// Starts the peer with this name in the folder of peers. An answer may take as long as `patience`.
    ///
    /// # Errors
    /// If it does not exist, cannot be started, or does not identify itself.
    pub(crate) fn start(name: &str, threads: usize, patience: Duration) -> Result<Self> {
        let folder = folder()?;
        let path = folder.join(name);
        // A name must not be a path to elsewhere.
        if name.contains(['/', '\\']) || !path.is_file() {
            let there = there(&folder);
            let there = match there.is_empty() {
                true => "none is set up".to_owned(),
                false => format!("there are {}", there.join(", ")),
            };
            let place = folder.shown();
            return Err(Failure::new(format!("no peer is called {name:?} in {place}: {there}"))
                .fix(format!("{SETUP}; or let {FOLDER} name a folder of peers")));
        }
        let mut command = Command::new(&path);
        command.args(["--threads", &threads.to_string()]);
        // The variables of the usual thread pools.
        for variable in ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"] {
            command.env(variable, threads.to_string());
        }
        Self::spawn(command, patience).map_err(|reason| {
            Failure::new(format!("{} cannot be used: {reason}", path.shown())).fix(format!("delete it; {SETUP}"))
        })
    }

    /// This program itself as a peer on a device.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub(crate) fn ourselves(device: &str, patience: Duration) -> Result<Self> {
        let failed = |reason: String| {
            Failure::new(format!("this program cannot be started once more: {reason}"))
                .fix("leave the workload memory out")
        };
        let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
        let mut command = Command::new(program);
        command.args(["bench", "--serve", "--backend", device]);
        Self::spawn(command, patience).map_err(failed)
    }

    fn spawn(mut command: Command, patience: Duration) -> std::result::Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let group = Group::spawn(command);
        let mut group = group.map_err(|error| format!("it cannot be started: {error}"))?;
        let (input, output) = (group.child().stdin.take(), group.child().stdout.take());
        let (sender, lines) = channel();
        // The thread ends with the output, or with the peer.
        thread::spawn(move || {
            let lines = output.into_iter().flat_map(|output| BufReader::new(output).lines());
            let _ = lines.into_iter().try_for_each(|line| sender.send(line));
        });
        let mut peer = Self {
            name: String::new(),
            group,
            input,
            lines,
            patience,
            silence: None,
        };
        let line = peer.read("who it is")?;
        match line.strip_prefix("peer ") {
            Some(name) => name.clone_into(&mut peer.name),
            None => return Err(format!("it began with {line:?} in place of \"peer\" and its name")),
        }
        Ok(peer)
    }

    /// The peak memory so far, in bytes; `None` if the system does not tell.
    pub(crate) fn peak(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.group.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    }

    /// Its next line, which is the answer to `question`.
    fn read(&mut self, question: &str) -> std::result::Result<String, String> {
        match self.lines.recv_timeout(self.patience) {
            Ok(Ok(line)) => Ok(line.trim_end().to_owned()),
            Ok(Err(error)) => Err(format!("it cannot be read from: {error}")),
            Err(RecvTimeoutError::Disconnected) => Err(match self.group.wait(FAREWELL) {
                Ok(Some(status)) => format!("it ended with {status}"),
                Ok(None) => "it closed its output".to_owned(),
                Err(error) => format!("it ended: {error}"),
            }),
            Err(RecvTimeoutError::Timeout) => {
                self.group.kill();
                let seconds = self.patience.as_secs_f64();
                let silence = format!("no answer in {seconds} s to {question:?}");
                self.silence = Some(silence.clone());
                Err(silence)
            }
        }
    }

    /// The part of its answer after `ok`.
    fn ask(&mut self, question: &str) -> std::result::Result<String, String> {
        if let Some(silence) = &self.silence {
            return Err(silence.clone());
        }
        if let Some(input) = &mut self.input {
            let sent = writeln!(input, "{question}").and_then(|()| input.flush());
            // The exit status of a program that has ended says more.
            if let (Err(error), Ok(None)) = (sent, self.group.child().try_wait()) {
                return Err(format!("it cannot be written to: {error}"));
            }
        }
        let answer = self.read(question)?;
        match answer.split_once(' ').unwrap_or((&answer, "")) {
            ("ok", rest) => Ok(rest.to_owned()),
            ("no", reason) => Err(reason.to_owned()),
            _ => Err(format!("it answered {question:?} with {answer:?}")),
        }
    }
}

impl Contestant for Peer {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn case(&mut self, name: &str) -> std::result::Result<(), String> {
        self.ask(&format!("case {name}")).map(drop)
    }

    fn run(&mut self, samples: usize, steps: usize) -> std::result::Result<Times, String> {
        let answer = self.ask(&format!("run {samples} {steps}"))?;
        let strange = || format!("it answered \"run\" with {answer:?}");
        let mut words = answer.split(' ');
        let loss = match words.next() {
            Some("-") => None,
            Some(word) => Some(word.parse().map_err(|_| strange())?),
            None => return Err(strange()),
        };
        let seconds: Vec<f64> = words
            .map(|word| {
                word.parse()
                    .ok()
                    .filter(|seconds: &f64| seconds.is_finite() && *seconds >= 0.0)
            })
            .collect::<Option<_>>()
            .filter(|seconds: &Vec<f64>| seconds.len() == samples)
            .ok_or_else(strange)?;
        Ok(Times { seconds, loss })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Closing its input ends its work.
        self.input = None;
        if !matches!(self.group.wait(FAREWELL), Ok(Some(_))) {
            self.group.kill();
        }
    }
}

/// The folder of peers, which has one executable for each.
fn folder() -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(named) = variable(FOLDER) {
        return Ok(named.into());
    }
    let cache = variable("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&variable("HOME")?).join(".cache")));
    match cache {
        Some(cache) => Ok(cache.join("polygrad").join("peers")),
        None => Err(Failure::new("neither XDG_CACHE_HOME nor HOME says where the peers are")
            .fix(format!("let {FOLDER} name a folder of peers"))),
    }
}

/// The names of the peers in a folder.
fn there(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = files
        .filter(|file| file.path().is_file())
        .filter_map(|file| file.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}
