//! PyTorch, in a separate Python process that waits while the others run.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use polygrad_core::{DType, Error, ErrorKind, Result};

use crate::clock::Clock;
use crate::engines::Inputs;

const PROGRAM: &str = include_str!("models.py");

pub struct Torch {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

fn failed(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::BackendUnavailable, format!("PyTorch: {what}"))
        .with_hint("let the environment variable PYTHON name a Python that has torch and numpy")
}

impl Torch {
    /// Starts a new process with the model of this name, the weights of a file, and inputs.
    pub fn start(name: &str, weights: &Path, inputs: &Inputs, folder: &Path) -> Result<Self> {
        let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let mut command = Command::new(python);
        command.args(["-c", PROGRAM, name]).arg(weights);
        for (i, (_, host)) in inputs.iter().enumerate() {
            let path = folder.join(format!("input{i}.raw"));
            let bytes: Vec<u8> = match host.dtype() {
                DType::I64 => host.to_vec::<i64>()?.iter().flat_map(|v| v.to_le_bytes()).collect(),
                _ => host.to_vec::<f32>()?.iter().flat_map(|v| v.to_le_bytes()).collect(),
            };
            std::fs::write(&path, bytes).map_err(|e| Error::io("write", &path, e))?;
            let dims: Vec<String> = host.shape().iter().map(ToString::to_string).collect();
            command.arg(path).arg(host.dtype().to_string()).arg(dims.join(","));
        }
        command
            .env("OMP_NUM_THREADS", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed)?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed("a process without pipes"));
        };
        let mut torch = Self {
            child,
            to,
            from: BufReader::new(from),
        };
        match torch.line()?.as_str() {
            "ready" => Ok(torch),
            other => Err(failed(format!("the program said {other:?}"))),
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.from.read_line(&mut line).map_err(failed)?;
        if line.is_empty() {
            return Err(failed("the program ended; torch or numpy is missing, or too old"));
        }
        Ok(line.trim().to_owned())
    }

    fn ask(&mut self, question: &str) -> Result<String> {
        writeln!(self.to, "{question}")
            .and_then(|()| self.to.flush())
            .map_err(failed)?;
        self.line()
    }

    /// The total time of this number of runs.
    pub fn time(&mut self, runs: usize, clock: Clock) -> Result<Duration> {
        let line = self.ask(&runs.to_string())?;
        let (wall, processor) = line
            .split_once(' ')
            .ok_or_else(|| failed(format!("it said {line:?}")))?;
        let nanos = match clock {
            Clock::Wall => wall,
            Clock::Processor => processor,
        };
        Ok(Duration::from_nanos(nanos.parse().map_err(failed)?))
    }

    pub fn logits(&mut self) -> Result<Vec<f32>> {
        let line = self.ask("logits")?;
        line.split(' ').map(|text| text.parse().map_err(failed)).collect()
    }

    pub fn version(&mut self) -> Result<String> {
        self.ask("version")
    }
}

impl Drop for Torch {
    fn drop(&mut self) {
        // The program ends when its input does.
        let _ = self.to.write_all(b"end\n");
        let _ = self.to.flush();
        let _ = self.child.wait();
    }
}
