//! The common part of the Rust peers: the initial numbers of a workload, and the protocol of `polygrad bench`.
//!
//! A peer prints `peer NAME VERSION` when it is ready. It answers `case NAME` with `ok` or `no REASON`, and
//! `run SAMPLES STEPS` with `ok LOSS SECONDS…`: the loss of the last step (`-` if steps do not train) and the seconds
//! per step of each sample.

#[path = "../../../workloads/src/data.rs"]
pub mod data;

use std::io::Write;
use std::time::Instant;

/// The result with any error, which becomes an answer.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A step, which is complete when it returns; returns the loss if it trains.
pub type Step = Box<dyn FnMut() -> Result<Option<f64>>>;

/// Generates parameters in the common order of all peers.
#[derive(Default)]
pub struct Weights(usize);

impl Weights {
    /// The values of the next parameter, row by row; `scales` is true for the weight of a normalization.
    pub fn take(&mut self, shape: &[usize], scales: bool) -> Vec<f32> {
        self.0 += 1;
        data::weights(self.0 - 1, shape, scales)
    }
}

/// The number after `--threads`; 1 if it is absent.
pub fn threads() -> usize {
    let mut words = std::env::args().skip_while(|word| word != "--threads").skip(1);
    words.next().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// A step without a loss, whose result is dropped.
pub fn call<T, E: std::error::Error + 'static>(mut call: impl FnMut() -> std::result::Result<T, E> + 'static) -> Step {
    Box::new(move || {
        std::hint::black_box(call()?);
        Ok(None)
    })
}

/// The extents of `gemm`: m, n and k.
pub fn extents(text: &str) -> Result<[usize; 3]> {
    let numbers: Vec<usize> = text.split('x').map(str::parse).collect::<std::result::Result<_, _>>()?;
    numbers
        .try_into()
        .map_err(|_| format!("{text} are not three extents").into())
}

/// Answers questions until the input ends. `make` creates the step for the words of a case's name, or returns `None` if
/// the case is not implemented.
pub fn serve(name: &str, make: impl Fn(&[&str]) -> Result<Option<Step>>) -> Result<()> {
    let mut answers = std::io::stdout();
    writeln!(answers, "peer {name}")?;
    let mut step = None;
    for question in std::io::stdin().lines() {
        let question = question?;
        let line = match answer(&question, &mut step, &make) {
            Ok(text) => format!("ok {text}"),
            Err(reason) => format!("no {}", reason.to_string().replace('\n', " ")),
        };
        writeln!(answers, "{}", line.trim_end())?;
        answers.flush()?;
    }
    Ok(())
}

fn answer(question: &str, step: &mut Option<Step>, make: impl Fn(&[&str]) -> Result<Option<Step>>) -> Result<String> {
    let words: Vec<&str> = question.split(' ').collect();
    match (words.as_slice(), step) {
        (["case", name @ ..], step) => {
            // Frees the old step's memory first.
            *step = None;
            *step = make(name)?;
            match step {
                Some(_) => Ok(String::new()),
                None => Err(format!("it has no {}", name.join(" ")).into()),
            }
        }
        (["run", samples, steps], Some(step)) => {
            let (samples, steps): (usize, usize) = (samples.parse()?, steps.parse()?);
            let (mut loss, mut times) = (None, Vec::new());
            for _ in 0..samples {
                let start = Instant::now();
                for _ in 0..steps {
                    loss = step()?;
                }
                times.push((start.elapsed().as_secs_f64() / steps as f64).to_string());
            }
            let loss = loss.map_or("-".to_owned(), |loss: f64| loss.to_string());
            Ok(format!("{loss} {}", times.join(" ")))
        }
        _ => Err(format!("{question} cannot be answered").into()),
    }
}
