//! Generates programs one after the other, and checks a device with each.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use polygrad_core::DType;
use polygrad_tensor::Device;

use super::check::{Bench, Failure, Live, Verdict, check};
use super::draw::draw;
use super::forms::{Engine, Form};
use super::json::Kept;
use super::program::Program;
use super::reduce::reduced;

/// Which programs to run, and how.
#[derive(Clone)]
pub struct Programs {
    /// The tested dtype.
    pub tested: DType,
    /// The seed of the programs.
    pub seed: u64,
    /// The index of the first.
    pub first: u64,
    /// The number of programs.
    pub count: u64,
    /// The forms in which they are run.
    pub forms: Vec<Form>,
    /// Engines that export programs and run them from there, with their names in reports.
    pub engines: Vec<(String, Arc<Engine>)>,
    /// The number of failures after which no further programs are run.
    pub most_failures: usize,
    /// The time after which a program counts as hanging.
    pub patience: Duration,
    /// The time for reducing a failing program.
    pub reducing: Duration,
    /// The amount in use on the device, if it is known: a run must not increase it.
    pub live: Option<Arc<Live>>,
}

impl Default for Programs {
    fn default() -> Self {
        Self {
            tested: DType::F32,
            seed: 0,
            first: 0,
            count: 500,
            forms: Form::ALL.to_vec(),
            engines: Vec::new(),
            most_failures: 10,
            patience: Duration::from_secs(60),
            reducing: Duration::from_secs(30),
            live: None,
        }
    }
}

impl fmt::Debug for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Programs")
            .field("tested", &self.tested)
            .field("seed", &self.seed)
            .field("first", &self.first)
            .field("count", &self.count)
            .field("forms", &self.forms)
            .finish_non_exhaustive()
    }
}

/// The results of a search.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The number of programs that were run.
    pub programs: u64,
    /// The total number of their steps.
    pub steps: u64,
    /// How often each form gave correct results.
    pub held: BTreeMap<&'static str, u64>,
    /// The number of programs in which a recording was replayed.
    pub replayed: u64,
    /// The reasons why there was no result, without operands and names of nodes, and their counts.
    pub unsupported: BTreeMap<String, u64>,
    /// The programs that failed, reduced.
    pub failures: Vec<Kept>,
}

impl Found {
    fn count(&mut self, program: &Program, verdict: &Verdict) {
        self.programs += 1;
        self.steps += program.steps.len() as u64;
        for form in &verdict.held {
            *self.held.entry(form.name()).or_default() += 1;
        }
        self.replayed += u64::from(verdict.replayed);
        for why in &verdict.unsupported {
            *self.unsupported.entry(without_names(why)).or_default() += 1;
        }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { programs, steps, .. } = self;
        write!(f, "{programs} programs of {steps} steps")?;
        for (form, count) in &self.held {
            write!(f, ", {count} {form}")?;
        }
        write!(f, ", {} replayed, {} fail", self.replayed, self.failures.len())?;
        let mut reasons: Vec<(&String, &u64)> = self.unsupported.iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (why, count) in reasons.into_iter().take(10) {
            write!(f, "\nno answer, {count} times: {why}")?;
        }
        Ok(())
    }
}

/// Removes text in quotes and parentheses (names, shapes, dtypes), so that equal reasons are counted together.
fn without_names(why: &str) -> String {
    let (mut out, mut depth, mut is_quoted) = (String::new(), 0_u32, false);
    for c in why.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '"' => {
                is_quoted = !is_quoted;
                if depth == 0 && is_quoted {
                    out.push('…');
                }
            }
            _ if depth == 0 && !is_quoted => out.push(c),
            _ => {}
        }
    }
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Checks a device with many programs.
///
/// `tell` is called after each program, before the next one runs, with its index and its reduced failure.
pub fn search(device: &Device, options: &Programs, mut tell: impl FnMut(u64, Option<&Kept>)) -> Found {
    let mut found = Found::default();
    let mut worker = Worker::start(device, options);
    for number in options.first..options.first + options.count {
        let answer = worker.ask(number, options).unwrap_or_else(|reason| {
            // The hanging thread is abandoned.
            worker = Worker::start(device, options);
            unanswered(options, number, reason)
        });
        found.count(&answer.program, &answer.verdict);
        tell(number, answer.kept.as_ref());
        found.failures.extend(answer.kept);
        if found.failures.len() >= options.most_failures {
            break;
        }
    }
    found
}

/// Runs a saved program, in its own dtype and with these options. Returns its failure, if it fails.
pub fn replay(device: &Device, kept: &Kept, options: &Programs) -> Option<Failure> {
    let options = Programs {
        tested: kept.tested,
        ..options.clone()
    };
    check(&kept.program, &options.bench(device, &options.forms)).failure
}

impl Programs {
    fn bench<'a>(&'a self, device: &'a Device, forms: &'a [Form]) -> Bench<'a> {
        Bench {
            device,
            tested: self.tested,
            forms,
            engines: &self.engines,
            live: self.live.as_deref(),
        }
    }
}

struct Answer {
    program: Program,
    verdict: Verdict,
    kept: Option<Kept>,
}

fn unanswered(options: &Programs, number: u64, reason: String) -> Answer {
    // If generating it fails, there is no program.
    let seed = options.seed;
    let program = catch_unwind(|| draw(seed, number)).unwrap_or_default();
    Answer {
        kept: Some(Kept {
            program: program.clone(),
            tested: options.tested,
            failure: Failure { form: None, reason },
            from: (options.seed, number),
        }),
        program,
        verdict: Verdict::default(),
    }
}

/// A thread that runs programs.
struct Worker {
    numbers: mpsc::Sender<u64>,
    answers: mpsc::Receiver<Progress>,
}

/// The progress of a worker with a program.
enum Progress {
    /// It fails, and is being reduced.
    Reducing,
    Done(Box<Answer>),
}

impl Worker {
    fn start(device: &Device, options: &Programs) -> Self {
        let (numbers, asked) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        let (device, options) = (device.clone(), options.clone());
        thread::spawn(move || {
            for number in asked {
                let program = draw(options.seed, number);
                let verdict = check(&program, &options.bench(&device, &options.forms));
                let kept = verdict.failure.clone().map(|failure| {
                    let _ = answer.send(Progress::Reducing);
                    kept(&program, failure, &device, &options, number)
                });
                let done = Box::new(Answer { program, verdict, kept });
                if answer.send(Progress::Done(done)).is_err() {
                    return;
                }
            }
        });
        Self { numbers, answers }
    }

    /// The answer, or the reason why there is none.
    fn ask(&self, number: u64, options: &Programs) -> Result<Answer, String> {
        let _ = self.numbers.send(number);
        let mut patience = options.patience;
        loop {
            match self.answers.recv_timeout(patience) {
                Ok(Progress::Done(answer)) => return Ok(*answer),
                Ok(Progress::Reducing) => patience = options.reducing + options.patience,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("it has not ended after {} s", options.patience.as_secs()));
                }
                Err(RecvTimeoutError::Disconnected) => return Err("it panics while it is drawn".to_owned()),
            }
        }
    }
}

fn kept(program: &Program, failure: Failure, device: &Device, options: &Programs, number: u64) -> Kept {
    let forms: Vec<Form> = failure.form.map_or_else(|| options.forms.clone(), |form| vec![form]);
    let mut last = failure.clone();
    let smallest = reduced(program, options.reducing, &mut |candidate| {
        let found = check(candidate, &options.bench(device, &forms)).failure;
        match found {
            Some(found) if found.form == failure.form => {
                last = found;
                true
            }
            _ => false,
        }
    });
    Kept {
        program: smallest,
        tested: options.tested,
        failure: last,
        from: (options.seed, number),
    }
}

#[cfg(test)]
mod tests {
    use super::without_names;

    #[test]
    fn reasons_are_told_without_names() {
        assert_eq!(
            without_names(r#"atan2: not for i64 (operands [2, 3] i64 (bool)) in node "Atan_1""#),
            "atan2: not for i64 in node …"
        );
    }
}
