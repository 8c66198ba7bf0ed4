//! External engines in a separate process: if one of them crashes or hangs, that process ends, and the search continues
//! with a new one.

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use polygrad::backend::HostTensor;
use polygrad::{Error, ErrorKind};
use polygrad_console::failure::{Failure, Result};
use polygrad_onnx::graph::{Graph, Literal};
use polygrad_onnx::{Engine, OnnxModel, Options, Value};

use crate::group::{self, Group};

/// The longest time for an answer, less than the search waits for a program.
const PATIENCE: Duration = Duration::from_secs(45);

/// The longest time for a process to exit after it closes its output.
const FAREWELL: Duration = Duration::from_secs(5);

/// The parts of a message, each preceded by its length.
type Parts = Vec<Vec<u8>>;

/// The processes, which are started at the first question.
#[derive(Debug)]
pub(crate) struct Peers {
    program: PathBuf,
    arguments: Vec<String>,
    patience: Duration,
    /// Idle processes. A thread takes one out while it uses it.
    idle: Mutex<Vec<Peer>>,
    crashes: Mutex<Vec<String>>,
}

impl Peers {
    /// This program as its own peer.
    ///
    /// # Errors
    /// If the path of this program is unknown, or signals cannot be handled.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::new(format!("this program cannot be started once more: {error}")))?;
        group::end_on_interrupt()?;
        // The child does not open the backend.
        let arguments = ["check", "cpu", "--serve"].map(str::to_owned).to_vec();
        Ok(Arc::new(Self::of(program, arguments, PATIENCE)))
    }

    fn of(program: PathBuf, arguments: Vec<String>, patience: Duration) -> Self {
        Self {
            program,
            arguments,
            patience,
            idle: Mutex::default(),
            crashes: Mutex::default(),
        }
    }

    /// Runs a graph in an external engine, and returns its outputs in order.
    ///
    /// # Errors
    /// Errors of the engine, with unsupported ones as such. A crash or a timeout counts as unsupported, too, and is
    /// recorded in the [crashes](Self::crashes).
    pub(crate) fn run(
        &self,
        engine: Engine,
        threads: Option<usize>,
        graph: &Graph,
        inputs: &[Literal],
    ) -> polygrad::Result<Vec<HostTensor>> {
        let threads = threads.map_or_else(String::new, |threads| threads.to_string());
        let mut question = vec![engine.name().into(), threads.into_bytes(), graph.to_bytes()?];
        question.extend(inputs.iter().map(|input| input.encode("")));
        match self.ask(&question) {
            Ok(parts) => read(parts),
            Err(reason) => {
                let reason = format!("{} {reason}", engine.title());
                lock(&self.crashes).push(reason.clone());
                Err(Error::unsupported(reason))
            }
        }
    }

    /// The crashes and hangs since the last call.
    pub(crate) fn crashes(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.crashes))
    }

    /// The answer, or the reason why there is none.
    fn ask(&self, question: &Parts) -> std::result::Result<Parts, String> {
        let idle = lock(&self.idle).pop();
        let mut peer = match idle {
            Some(peer) => peer,
            None => {
                Peer::start(&self.program, &self.arguments).map_err(|error| format!("cannot be started: {error}"))?
            }
        };
        let answer = peer.ask(question, self.patience)?;
        lock(&self.idle).push(peer);
        Ok(answer)
    }
}

/// A process at the other end of two pipes. It is ended on drop.
#[derive(Debug)]
struct Peer {
    group: Group,
    input: BufWriter<ChildStdin>,
    /// Its answers, read by a thread, since a pipe cannot be read for a limited time.
    answers: Receiver<Parts>,
}

impl Peer {
    fn start(program: &PathBuf, arguments: &[String]) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut group = Group::spawn(command)?;
        let (Some(input), Some(output)) = (group.child().stdin.take(), group.child().stdout.take()) else {
            return Err(io::Error::other("it has no pipes"));
        };
        let (sender, answers) = channel();
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            while let Ok(Some(parts)) = receive(&mut output) {
                if sender.send(parts).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            group,
            input: BufWriter::new(input),
            answers,
        })
    }

    fn ask(&mut self, question: &Parts, patience: Duration) -> std::result::Result<Parts, String> {
        // If it has ended, the missing answer says how.
        let _ = send(&mut self.input, question);
        self.answers.recv_timeout(patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("has not answered after {} s", patience.as_secs_f64()),
            RecvTimeoutError::Disconnected => match self.group.wait(FAREWELL) {
                Ok(Some(status)) => format!("crashed: {status}"),
                _ => "closed its output".to_owned(),
            },
        })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.group.kill();
    }
}

/// Answers questions until the input ends.
///
/// # Errors
/// If a question cannot be read, or an answer cannot be written.
pub(crate) fn serve(mut questions: impl Read, mut answers: impl Write) -> Result<()> {
    let gone = |error: io::Error| {
        Failure::new(format!("cannot answer: {error}")).fix("leave out --serve, which is for programs that ask")
    };
    while let Some(question) = receive(&mut questions).map_err(gone)? {
        let answer = match answer(&question) {
            Ok(outputs) => {
                let outputs = outputs.into_iter().map(|host| Literal::from(host).encode(""));
                [b"ok".to_vec()].into_iter().chain(outputs).collect()
            }
            Err(error) => {
                let unsupported = error.kind() == ErrorKind::Unsupported;
                let kind = if unsupported { "unsupported" } else { "failed" };
                vec![kind.into(), error.to_string().into_bytes()]
            }
        };
        send(&mut answers, &answer).map_err(gone)?;
    }
    Ok(())
}

fn answer(question: &[Vec<u8>]) -> polygrad::Result<Vec<HostTensor>> {
    let [engine, threads, graph, inputs @ ..] = question else {
        return Err(Error::invalid(
            "a question is an engine, threads, a graph and its inputs",
        ));
    };
    let options = Options {
        engine: text(engine).parse()?,
        threads: text(threads).parse().ok(),
        ..Options::default()
    };
    let graph = Graph::from_bytes(graph.clone())?;
    let model = OnnxModel::from_graph(&graph, &polygrad_conformance::reference(), options)?;
    let inputs = inputs.iter().map(|input| Ok(Literal::decode(input.clone())?.1.into()));
    let inputs = inputs.collect::<polygrad::Result<Vec<Value>>>()?;
    let outputs = model.run_ordered(inputs.into_iter())?;
    outputs.iter().map(|(_, value)| value.host()).collect()
}

/// The outputs, or the error, of an answer.
fn read(parts: Parts) -> polygrad::Result<Vec<HostTensor>> {
    let mut parts = parts.into_iter();
    let kind = parts.next().unwrap_or_default();
    match (&kind[..], parts.as_slice()) {
        (b"ok", _) => parts.map(|part| Ok(Literal::decode(part)?.1.host().clone())).collect(),
        (b"unsupported", [words]) => Err(Error::unsupported(text(words))),
        (b"failed", [words]) => Err(Error::new(ErrorKind::DeviceError, text(words))),
        _ => Err(Error::invalid("the answer of the other process makes no sense")),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn send(to: &mut impl Write, parts: &Parts) -> io::Result<()> {
    to.write_all(&(parts.len() as u64).to_le_bytes())?;
    for part in parts {
        to.write_all(&(part.len() as u64).to_le_bytes())?;
        to.write_all(part)?;
    }
    to.flush()
}

/// A message; `None` at the end.
fn receive(from: &mut impl Read) -> io::Result<Option<Parts>> {
    let mut count = [0];
    if from.read(&mut count)? == 0 {
        return Ok(None);
    }
    let mut rest = [0; 7];
    from.read_exact(&mut rest)?;
    let mut bytes = [0; 8];
    bytes[0] = count[0];
    bytes[1..].copy_from_slice(&rest);
    let part = |_| -> io::Result<Vec<u8>> {
        let mut length = [0; 8];
        from.read_exact(&mut length)?;
        let length = u64::from_le_bytes(length);
        let mut part = Vec::new();
        match from.take(length).read_to_end(&mut part)? as u64 == length {
            true => Ok(part),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    };
    (0..u64::from_le_bytes(bytes))
        .map(part)
        .collect::<io::Result<_>>()
        .map(Some)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graphs::drawn;

    fn question(engine: &str) -> (Parts, Vec<HostTensor>) {
        let (graph, inputs) = drawn(0, 1);
        let device = polygrad_conformance::reference();
        let model = OnnxModel::from_graph(&graph, &device, Options::default()).unwrap();
        let outputs = model.run_ordered(inputs.iter().cloned().map(Value::from)).unwrap();
        let mut question: Parts = vec![engine.into(), b"1".to_vec(), graph.to_bytes().unwrap()];
        question.extend(inputs.iter().map(|input| input.encode("")));
        (
            question,
            outputs.iter().map(|(_, value)| value.host().unwrap()).collect(),
        )
    }

    #[test]
    fn questions_and_answers_pass_through_pipes() {
        let (first, outputs) = question("native");
        let (strange, _) = question("abacus");
        let mut asked = Vec::new();
        for question in [&first, &strange, &first] {
            send(&mut asked, question).unwrap();
        }
        let mut answered = Vec::new();
        serve(&asked[..], &mut answered).unwrap();
        let mut answers = &answered[..];
        let mut next = || read(receive(&mut answers).unwrap().unwrap());
        for given in [next().unwrap(), {
            let error = next().unwrap_err().to_string();
            assert!(error.contains("\"abacus\""), "{error}");
            next().unwrap()
        }] {
            assert!(!given.is_empty());
            for (given, wanted) in given.iter().zip(&outputs) {
                assert_eq!((given.shape(), given.bytes()), (wanted.shape(), wanted.bytes()));
            }
        }
        assert!(receive(&mut answers).unwrap().is_none());
        // A message that ends early is no message.
        assert!(receive(&mut &asked[..20]).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_process_that_crashes_or_hangs_is_an_answer_and_the_next_one_is_asked() {
        let (graph, inputs) = drawn(0, 1);
        let peers = |line: &str, patience| {
            let arguments = ["-c", line].map(str::to_owned).to_vec();
            Peers::of("/bin/sh".into(), arguments, patience)
        };
        for (line, patience, words) in [
            ("kill -SEGV $$", PATIENCE, "ONNX Runtime crashed: signal: 11"),
            ("sleep 60", Duration::from_millis(200), "has not answered after 0.2 s"),
        ] {
            let peers = peers(line, patience);
            for _ in 0..2 {
                let error = peers.run(Engine::Ort, None, &graph, &inputs).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                assert!(error.to_string().contains(words), "{error}");
                assert_eq!(peers.crashes().len(), 1);
            }
            assert!(peers.crashes().is_empty());
        }
    }
}
