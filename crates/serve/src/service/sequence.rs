//! Sequences: requests whose states are kept from one to the next.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::Settings;
use super::queue::Job;
use crate::{Failure, Reason, SequenceId, SequenceStep, Signature, Value};

/// The open sequences of a model.
#[derive(Default)]
pub(super) struct Sequences(HashMap<SequenceId, Sequence>);

struct Sequence {
    /// In the order of the signature's states; none before the first step and after the last.
    states: Option<Vec<Value>>,
    /// How many of its requests wait.
    waiting: usize,
    /// Whether one of them is being computed.
    is_busy: bool,
    used: Instant,
}

impl Sequences {
    /// Whether the request's sequence, if it has one, waits for no earlier step.
    pub(super) fn is_free(&self, step: Option<&SequenceStep>) -> bool {
        let sequence = step.and_then(|step| self.0.get(&step.id));
        sequence.is_none_or(|sequence| !sequence.is_busy)
    }

    /// Takes note of a request that waits.
    ///
    /// # Errors
    /// When it begins one sequence too many, or belongs to one that has not begun.
    pub(super) fn open(&mut self, step: &SequenceStep, now: Instant, settings: &Settings) -> Result<(), Failure> {
        let is_open = |sequence: &Sequence| {
            sequence.waiting > 0 || sequence.is_busy || now - sequence.used < settings.sequence_timeout
        };
        if self.0.get(&step.id).is_some_and(|sequence| !is_open(sequence)) {
            self.0.remove(&step.id);
        }
        if !self.0.contains_key(&step.id) {
            if !step.start {
                return Err(unknown(&step.id));
            }
            if self.0.len() >= settings.max_sequences {
                self.0.retain(|_, sequence| is_open(sequence));
            }
            if self.0.len() >= settings.max_sequences {
                let message = format!("{} sequences are open, which is this model's limit", self.0.len());
                return Err(Failure::new(Reason::Busy(Duration::from_secs(1)), message));
            }
        }
        let sequence = self.0.entry(step.id.clone()).or_insert(Sequence {
            states: None,
            waiting: 0,
            is_busy: false,
            used: now,
        });
        sequence.waiting += 1;
        sequence.used = now;
        Ok(())
    }

    /// A request that waited is not computed.
    pub(super) fn skip(&mut self, step: Option<&SequenceStep>) {
        let Some(step) = step else { return };
        if let Some(sequence) = self.0.get_mut(&step.id) {
            sequence.waiting -= 1;
            if sequence.waiting == 0 && sequence.states.is_none() && !sequence.is_busy {
                self.0.remove(&step.id);
            }
        }
    }

    /// Gives a request that is about to be computed the states of its sequence.
    ///
    /// # Errors
    /// When an earlier step failed or ended the sequence; when its rows are not those of the step before.
    pub(super) fn begin(&mut self, job: &mut Job, signature: &Signature) -> Result<(), Failure> {
        let Some(step) = &job.sequence else { return Ok(()) };
        let Some(sequence) = self.0.get_mut(&step.id) else {
            return Err(unknown(&step.id));
        };
        let rows = job.rows;
        let states = match (&sequence.states, step.start) {
            (Some(states), false) => Ok(states.clone()),
            (_, true) => first_states(signature, rows),
            (None, false) => Err(unknown(&step.id)),
        };
        let states = states.and_then(|states| match fits(signature, &states, rows) {
            true => Ok(states),
            false => Err(Failure::invalid(format!(
                "sequence {} began with another number of rows than {rows}",
                shown(&step.id)
            ))),
        });
        match states {
            Ok(states) => {
                sequence.waiting -= 1;
                sequence.is_busy = true;
                for (state, value) in signature.states.iter().zip(states) {
                    job.inputs[state.input] = Some(value);
                }
                Ok(())
            }
            Err(failure) => {
                let step = job.sequence.clone();
                self.skip(step.as_ref());
                Err(failure)
            }
        }
    }

    /// Keeps the states that a request came to; none where it failed, so that the sequence has to begin anew.
    pub(super) fn end(&mut self, step: &SequenceStep, states: Option<Vec<Value>>) {
        let Some(sequence) = self.0.get_mut(&step.id) else {
            return;
        };
        sequence.is_busy = false;
        sequence.used = Instant::now();
        sequence.states = states.filter(|_| !step.end);
        if sequence.states.is_none() && sequence.waiting == 0 {
            self.0.remove(&step.id);
        }
    }
}

fn first_states(signature: &Signature, rows: usize) -> Result<Vec<Value>, Failure> {
    let zeros = signature.states.iter().map(|state| {
        let spec = &signature.inputs[state.input];
        Value::zeros(spec.element, spec.shape(rows)?)
    });
    zeros.collect::<Result<_, _>>().map_err(|error| Failure::of_run(&error))
}

fn fits(signature: &Signature, states: &[Value], rows: usize) -> bool {
    signature.states.iter().zip(states).all(|(state, value)| {
        let spec = &signature.inputs[state.input];
        spec.check(value).is_ok() && spec.batch.is_none_or(|axis| value.shape()[axis] == rows)
    })
}

fn unknown(id: &SequenceId) -> Failure {
    Failure::invalid(format!(
        "sequence {} is not open: it has not begun, has ended, was silent for too long, or its model was replaced; \
         begin it with sequence_start",
        shown(id)
    ))
}

fn shown(id: &SequenceId) -> String {
    match id {
        SequenceId::Number(number) => number.to_string(),
        SequenceId::Text(text) => format!("{text:?}"),
    }
}
