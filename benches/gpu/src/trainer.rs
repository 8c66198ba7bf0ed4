//! A program that runs steps of workloads on request, with the protocol of `polygrad bench`, which docs/performance.md
//! describes.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Dropping this ends the program.
pub(crate) struct Trainer {
    /// The name that it reports.
    pub(crate) name: String,
    child: Child,
    questions: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Trainer {
    /// This program on a device, with captured steps, which are recorded there if the device supports it.
    ///
    /// # Errors
    /// If it cannot be started, or has no such device.
    pub(crate) fn ours(device: &str) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command.args(["bench", "--serve", "--captured", "--backend", device]);
        Self::start(command)
    }

    /// A peer, by its name in the folder of peers.
    ///
    /// # Errors
    /// If there is no such folder, or the peer does not start.
    pub(crate) fn peer(name: &str) -> Result<Self, String> {
        let folder = std::env::var_os("POLYGRAD_PEERS").ok_or("POLYGRAD_PEERS names no folder of peers")?;
        let mut command = Command::new(std::path::Path::new(&folder).join(name));
        command.args(["--threads", "1"]);
        Self::start(command)
    }

    fn start(mut command: Command) -> Result<Self, String> {
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.map_err(|error| format!("{command:?} cannot be started: {error}"))?;
        let (questions, output) = child.stdin.take().zip(child.stdout.take()).ok_or("it has no pipes")?;
        let mut trainer = Self {
            name: String::new(),
            child,
            questions,
            answers: BufReader::new(output).lines(),
        };
        let line = trainer.answer()?;
        match line.strip_prefix("peer ") {
            Some(name) => name.clone_into(&mut trainer.name),
            None => return Err(format!("{command:?} begins with {line:?}")),
        }
        Ok(trainer)
    }

    fn answer(&mut self) -> Result<String, String> {
        match self.answers.next() {
            Some(line) => line.map_err(|error| error.to_string()),
            None => Err("it ended; what it said stands above".to_owned()),
        }
    }

    /// The part of its answer after `ok`.
    fn ask(&mut self, question: &str) -> Result<String, String> {
        writeln!(self.questions, "{question}").map_err(|error| error.to_string())?;
        let answer = self.answer()?;
        match answer.split_once(' ').unwrap_or((&answer, "")) {
            ("ok", rest) => Ok(rest.to_owned()),
            (_, reason) => Err(reason.to_owned()),
        }
    }

    /// Starts a case and trains; returns the loss of each step.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub(crate) fn losses(&mut self, case: &str, steps: usize) -> Result<Vec<f64>, String> {
        self.ask(&format!("case {case}"))?;
        let mut loss = || {
            let answer = self.ask("run 1 1")?;
            let word = answer.split(' ').next().unwrap_or_default();
            word.parse().map_err(|_| format!("{word:?} is no loss"))
        };
        (0..steps).map(|_| loss()).collect()
    }
}

impl Drop for Trainer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
