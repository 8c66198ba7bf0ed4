//! The expected results of a program, and the error that its condition allows.

use polygrad_core::{DType, HostTensor, Result};

use super::forms::{answered, inputs, trained};
use super::noise::{Noise, Noisy};
use super::program::{Dtypes, Program};
use super::run::{everything, narrowest};
use crate::tolerance::digits;

/// A question about a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// Values and gradients for a set of numbers.
    Values(u64),
    /// Losses and leaves of training steps.
    Training,
}

/// Tensors on the host, with their names.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) names: Vec<String>,
    pub(crate) values: Vec<HostTensor>,
}

/// The correct results, and the errors of perturbed runs.
pub(crate) struct Truth {
    pub(crate) right: Answered,
    off: Vec<Vec<f64>>,
    /// The largest magnitude of intermediate values.
    pub(crate) largest: f64,
    question: Question,
    noise: Noise,
    runs: u64,
}

/// The number of perturbed runs of each program.
const RUNS: u64 = 2;

/// The number of perturbed runs, of each strength, before a difference counts as unexplained.
const MORE_RUNS: u64 = 12;

/// The additional strengths, in binary digits.
const STRENGTHS: [i32; 5] = [0, 1, 2, 3, 4];

/// The allowed error as a multiple of that of perturbed runs.
const FACTOR: f64 = 8.0;

/// The largest magnitude of terms that is assumed.
const LARGEST_TERM: f64 = 4.0;

impl Truth {
    /// Computes the results with the reference in f64.
    ///
    /// # Errors
    /// Errors of the calls; also a leak.
    pub(crate) fn find(program: &Program, question: Question, tested: DType) -> Result<Self> {
        let silent = Noisy::silent();
        let right = asked(program, question, &silent, tested)?;
        let live = silent.live();
        if live > 0 {
            return Err(polygrad_core::Error::invalid(format!(
                "{live} tensors of the reference are still alive after the run"
            )));
        }
        let mut truth = Self {
            off: right.values.iter().map(|x| vec![0.0; x.shape().numel()]).collect(),
            right,
            largest: silent.largest(),
            question,
            noise: Noise::of(narrowest(program, tested)),
            runs: 0,
        };
        truth.disturb(program, tested, truth.noise, RUNS)?;
        Ok(truth)
    }

    fn disturb(&mut self, program: &Program, tested: DType, noise: Noise, runs: u64) -> Result<()> {
        for run in 0..runs {
            self.runs += 1;
            let noise = match runs == MORE_RUNS && run == 0 {
                true => noise.nearest(),
                false => noise,
            };
            let device = noise.device(program.seed ^ (self.runs << 48));
            let disturbed = asked(program, self.question, &device, tested)?;
            for ((off, right), value) in self.off.iter_mut().zip(&self.right.values).zip(&disturbed.values) {
                let pairs = right.to_f64_vec().into_iter().zip(value.to_f64_vec());
                for (off, (a, b)) in off.iter_mut().zip(pairs) {
                    *off = off.max(distance(a, b) / noise.scale);
                }
            }
        }
        Ok(())
    }

    /// Finds answers that differ by more than the condition explains. If they are only a `part`, tensors may be missing
    /// at the end.
    ///
    /// # Errors
    /// The difference, or an error of the reference, as text.
    pub(crate) fn hold(
        &mut self,
        program: &Program,
        answers: &Answered,
        tested: DType,
        part: bool,
    ) -> Result<(), String> {
        let (all, given) = (self.right.values.len(), answers.values.len());
        if given != all && !(part && given < all) {
            return Err(format!("{given} tensors come out, {all} are right"));
        }
        if self.differs(answers, tested).is_none() {
            return Ok(());
        }
        for bits in STRENGTHS {
            let noise = self.noise.stronger(bits);
            self.disturb(program, tested, noise, MORE_RUNS)
                .map_err(|error| format!("the reference fails when its numbers are disturbed: {error}"))?;
            if self.differs(answers, tested).is_none() {
                return Ok(());
            }
        }
        self.differs(answers, tested).map_or(Ok(()), Err)
    }

    fn differs(&self, answers: &Answered, tested: DType) -> Option<String> {
        let right = self.right.names.iter().zip(&self.right.values).zip(&self.off);
        // Results of larger terms may be off by the rounding errors of these, within a call, too: tanh(-4) + 1.
        let scale = self.largest.min(LARGEST_TERM);
        let mut given = answers.names.iter().zip(&answers.values);
        right
            .zip(given.by_ref())
            .find_map(|(((name, right), off), (other, value))| {
                if name != other {
                    return Some(format!("{other} comes out where {name} is right"));
                }
                difference(value, right, off, tested, scale).map(|difference| format!("{name}: {difference}"))
            })
    }
}

fn asked(program: &Program, question: Question, noisy: &Noisy, tested: DType) -> Result<Answered> {
    let dtypes = Dtypes { tested, wide: true };
    let device = noisy.device();
    answered(match question {
        Question::Values(set) => everything(program, &inputs(program, set, &device, dtypes)?, dtypes)?,
        Question::Training => trained(program, &device, dtypes, false)?,
    })
}

/// The distance of two numbers: infinite if only one of them is a number or finite.
fn distance(a: f64, b: f64) -> f64 {
    let difference = (a - b).abs();
    match a == b || (a.is_nan() && b.is_nan()) {
        true => 0.0,
        false if difference.is_nan() => f64::INFINITY,
        false => difference,
    }
}

fn difference(answer: &HostTensor, right: &HostTensor, off: &[f64], tested: DType, scale: f64) -> Option<String> {
    let (given, wanted) = (answer.dtype(), right.dtype());
    if answer.shape() != right.shape()
        || given.is_float() != wanted.is_float()
        || (!given.is_float() && given != wanted)
    {
        return Some(format!(
            "{given}{} where {wanted}{} is right",
            answer.shape(),
            right.shape()
        ));
    }
    let numbers = answer.to_f64_vec().into_iter().zip(right.to_f64_vec());
    if !given.is_float() {
        // If a perturbed run is off, an integer was computed from rounded numbers.
        let mut wrong = numbers
            .zip(off)
            .enumerate()
            .filter(|(_, ((a, b), off))| a != b && **off == 0.0);
        let first = wrong.next();
        return first.map(|(i, ((a, b), _))| format!("element {i} is {a}, {b} is right"));
    }
    let finite: Vec<f64> = off.iter().copied().filter(|off| off.is_finite()).collect();
    let mean = finite.iter().sum::<f64>() / finite.len().max(1) as f64;
    let narrow = digits(given).unwrap_or(53).min(digits(tested).unwrap_or(53));
    let unit = f64::powi(2.0, 2 - narrow);
    for (i, ((a, b), &off)) in numbers.zip(off).enumerate() {
        let allowed = FACTOR * (off + mean) + unit * (b.abs() + scale / 2.0) + smallest(given);
        if distance(a, b) > allowed && a.is_finite() | b.is_finite() {
            return Some(format!(
                "element {i} is {a:e}, {b:e} is right, and {allowed:.1e} off is explained"
            ));
        }
    }
    None
}

/// The spacing below the smallest normal numbers, which lose digits.
fn smallest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => f64::powi(2.0, -22),
        DType::F64 => 1e-300,
        _ => 1e-37,
    }
}
