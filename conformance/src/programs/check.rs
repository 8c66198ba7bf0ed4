//! Checks a device with one program.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use polygrad_core::{DType, Error, ErrorKind};
use polygrad_tensor::Device;

use super::forms::{self, Engine, Form, Given};
use super::program::{Dtypes, Program};
use super::truth::{Question, Truth};

/// The range of f16 ends at 65504: programs that come near are not run in it.
const RANGE_OF_F16: f64 = 16384.0;

/// A failure of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The form in which the program was run; `None` if the reference itself fails.
    pub form: Option<Form>,
    /// A description.
    pub reason: String,
}

/// The result of one program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) failure: Option<Failure>,
    /// The forms with correct results.
    pub(crate) held: Vec<Form>,
    /// Whether one of them was a replay.
    pub(crate) replayed: bool,
    /// The reasons why forms gave no results.
    pub(crate) unsupported: Vec<String>,
}

/// Returns the amount in use on the device: bytes, or tensors.
pub type Live = dyn Fn() -> u64 + Send + Sync;

/// The device and options for running programs.
pub(crate) struct Bench<'a> {
    pub(crate) device: &'a Device,
    pub(crate) tested: DType,
    pub(crate) forms: &'a [Form],
    pub(crate) engines: &'a [(String, Arc<Engine>)],
    pub(crate) live: Option<&'a Live>,
}

/// Runs a program, and compares the results. A leak on the device is a failure, too.
pub(crate) fn check(program: &Program, bench: &Bench<'_>) -> Verdict {
    let live = bench.live;
    let before = live.map(|live| live());
    let mut verdict = compared(program, bench);
    if let (Some(live), Some(before), None) = (live, before, &verdict.failure) {
        let after = live();
        if after > before {
            let reason = format!("{} more are in use after the run than before", after - before);
            verdict.failure = Some(Failure { form: None, reason });
        }
    }
    verdict
}

fn compared(program: &Program, bench: &Bench<'_>) -> Verdict {
    let tested = bench.tested;
    let mut verdict = Verdict::default();
    // Errors left over from an earlier program.
    let _ = bench.device.synchronize();
    let mut truths: Vec<(Question, Truth)> = Vec::new();
    for &form in bench.forms {
        let given = given(form, program, bench, &mut verdict.unsupported);
        let given = match given {
            Ok(given) => given,
            Err(Ending::Unsupported(why)) => {
                verdict.unsupported.push(why);
                continue;
            }
            Err(Ending::Refused(reason)) => {
                if truth(program, form.question(), tested).is_err() {
                    verdict
                        .unsupported
                        .push(format!("the reference refuses it, too: {reason}"));
                    return verdict;
                }
                verdict.failure = Some(Failure {
                    form: Some(form),
                    reason,
                });
                return verdict;
            }
            Err(Ending::Panicked(reason)) => {
                verdict.failure = Some(Failure {
                    form: Some(form),
                    reason,
                });
                return verdict;
            }
        };
        if given.is_empty() {
            continue;
        }
        for (question, words, answers) in given {
            let known = truths.iter().position(|(known, _)| *known == question);
            let at = match known {
                Some(at) => at,
                None => match truth(program, question, tested) {
                    Ok(found) => {
                        truths.push((question, found));
                        truths.len() - 1
                    }
                    Err(reason) => {
                        verdict.failure = Some(Failure { form: None, reason });
                        return verdict;
                    }
                },
            };
            let truth = &mut truths[at].1;
            if tested == DType::F16 && truth.largest > RANGE_OF_F16 {
                verdict
                    .unsupported
                    .push("its numbers leave the range of f16".to_owned());
                return verdict;
            }
            verdict.replayed |= words.starts_with("replay");
            if let Err(difference) = truth.hold(
                program,
                &answers,
                tested,
                matches!(form, Form::Compiled | Form::Exported),
            ) {
                let reason = format!("{words}: {difference}");
                verdict.failure = Some(Failure {
                    form: Some(form),
                    reason,
                });
                return verdict;
            }
        }
        // After the results are dropped, since devices check memory when it is freed.
        if let Err(error) = bench.device.synchronize() {
            let reason = error.to_string();
            verdict.failure = Some(Failure {
                form: Some(form),
                reason,
            });
            return verdict;
        }
        verdict.held.push(form);
    }
    verdict
}

fn truth(program: &Program, question: Question, tested: DType) -> Result<Truth, String> {
    match catch_unwind(AssertUnwindSafe(|| Truth::find(program, question, tested))) {
        Ok(Ok(truth)) => Ok(truth),
        Ok(Err(error)) => Err(format!("the reference in f64: {error}")),
        Err(panic) => Err(format!("the reference in f64 panics: {}", words(&*panic))),
    }
}

enum Ending {
    Unsupported(String),
    Refused(String),
    Panicked(String),
}

fn given(form: Form, program: &Program, bench: &Bench<'_>, lacking: &mut Vec<String>) -> Result<Given, Ending> {
    let dtypes = Dtypes {
        tested: bench.tested,
        wide: false,
    };
    let run = || -> Result<Given, Error> {
        let given = forms::run(form, program, bench.device, dtypes, bench.engines, lacking)?;
        bench.device.synchronize()?;
        Ok(given)
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(given)) => Ok(given),
        Ok(Err(error)) if error.kind() == ErrorKind::Unsupported => Err(Ending::Unsupported(error.to_string())),
        Ok(Err(error)) => Err(Ending::Refused(error.to_string())),
        Err(panic) => Err(Ending::Panicked(format!("it panics: {}", words(&*panic)))),
    }
}

fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without words")
}
