//! Sequences: requests whose states are kept between them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::Settings;
use super::queue::Job;
use crate::{Failure, Reason, SequenceId, SequenceStep, Signature, Value};

/// The open sequences of a model.
#[derive(Default)]
pub(super) struct Sequences {
    open: HashMap<SequenceId, Sequence>,
    /// The bytes that the states of all sequences take.
    bytes: usize,
    /// The bytes of states that were freed since [`Sequences::look`] was last called.
    freed: usize,
}

struct Sequence {
    /// In the order of the signature's states; `None` before the first step and after the last.
    states: Option<Vec<Value>>,
    /// The number of its waiting requests.
    waiting: usize,
    /// Whether one of them is being computed.
    is_busy: bool,
    used: Instant,
}

impl Sequence {
    fn is_silent(&self, now: Instant, timeout: Duration) -> bool {
        self.waiting == 0 && !self.is_busy && now - self.used >= timeout
    }

    fn bytes(&self) -> usize {
        self.states.iter().flatten().map(Value::bytes).sum()
    }
}

impl Sequences {
    /// Whether the request has no sequence, or its sequence has no earlier step in progress.
    pub(super) fn is_free(&self, step: Option<&SequenceStep>) -> bool {
        let sequence = step.and_then(|step| self.open.get(&step.id));
        sequence.is_none_or(|sequence| !sequence.is_busy)
    }

    /// Registers a waiting request with its sequence, and opens the sequence if the request begins one.
    ///
    /// # Errors
    /// If there are too many sequences, or the request belongs to one that has not begun.
    pub(super) fn open(&mut self, step: &SequenceStep, now: Instant, settings: &Settings) -> Result<(), Failure> {
        let timeout = settings.sequence_timeout;
        if self
            .open
            .get(&step.id)
            .is_some_and(|sequence| sequence.is_silent(now, timeout))
        {
            self.close(&step.id);
        }
        if !self.open.contains_key(&step.id) {
            if !step.start {
                return Err(unknown(&step.id));
            }
            if self.open.len() >= settings.max_sequences || self.bytes >= settings.max_sequence_bytes {
                self.close_silent(now, timeout);
            }
            if self.open.len() >= settings.max_sequences {
                let message = format!("{} sequences are open, which is this model's limit", self.open.len());
                return Err(Failure::new(Reason::Busy(Duration::from_secs(1)), message));
            }
            if self.bytes >= settings.max_sequence_bytes {
                return Err(too_large(self.bytes, settings));
            }
        }
        let sequence = self.open.entry(step.id.clone()).or_insert(Sequence {
            states: None,
            waiting: 0,
            is_busy: false,
            used: now,
        });
        sequence.waiting += 1;
        sequence.used = now;
        Ok(())
    }

    /// Unregisters a waiting request that will not be computed.
    pub(super) fn skip(&mut self, step: Option<&SequenceStep>) {
        let Some(step) = step else { return };
        if let Some(sequence) = self.open.get_mut(&step.id) {
            sequence.waiting -= 1;
            if sequence.waiting == 0 && sequence.states.is_none() && !sequence.is_busy {
                self.close(&step.id);
            }
        }
    }

    /// Gives a request that is about to be computed the states of its sequence.
    ///
    /// # Errors
    /// If an earlier step failed or ended the sequence, or the number of rows differs from the previous step.
    pub(super) fn begin(&mut self, job: &mut Job, signature: &Signature) -> Result<(), Failure> {
        let Some(step) = &job.sequence else { return Ok(()) };
        let Some(sequence) = self.open.get_mut(&step.id) else {
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

    /// Stores the states after a request's step. `None` means that the request failed; then the sequence must be
    /// restarted.
    ///
    /// # Errors
    /// States that exceed the limit; then the sequence must be restarted, too.
    pub(super) fn end(
        &mut self,
        step: &SequenceStep,
        states: Option<Vec<Value>>,
        settings: &Settings,
    ) -> Result<(), Failure> {
        let Some(sequence) = self.open.get_mut(&step.id) else {
            return Ok(());
        };
        sequence.is_busy = false;
        sequence.used = Instant::now();
        let before = sequence.bytes();
        sequence.states = states.filter(|_| !step.end);
        let bytes = self.bytes - before + sequence.bytes();
        let is_too_large = bytes > settings.max_sequence_bytes && sequence.states.is_some();
        if is_too_large {
            sequence.states = None;
        }
        self.freed += before.saturating_sub(sequence.bytes());
        self.bytes = self.bytes - before + sequence.bytes();
        if sequence.states.is_none() && sequence.waiting == 0 {
            self.close(&step.id);
        }
        match is_too_large {
            true => Err(too_large(bytes, settings)),
            false => Ok(()),
        }
    }

    fn close(&mut self, id: &SequenceId) {
        if let Some(sequence) = self.open.remove(id) {
            self.bytes -= sequence.bytes();
            self.freed += sequence.bytes();
        }
    }

    /// Closes sequences whose timeout has passed.
    fn close_silent(&mut self, now: Instant, timeout: Duration) {
        let before = self.bytes;
        self.open.retain(|_, sequence| !sequence.is_silent(now, timeout));
        self.bytes = self.open.values().map(Sequence::bytes).sum();
        self.freed += before - self.bytes;
    }

    /// Closes sequences whose timeout has passed. Returns the bytes of states that were freed since the last call, and
    /// when the next sequence may time out, if any are open.
    pub(super) fn look(&mut self, now: Instant, timeout: Duration) -> (usize, Option<Instant>) {
        self.close_silent(now, timeout);
        let ends = self
            .open
            .values()
            .map(|sequence| match sequence.waiting == 0 && !sequence.is_busy {
                true => sequence.used + timeout,
                false => now + timeout,
            });
        (std::mem::take(&mut self.freed), ends.min())
    }
}

fn too_large(bytes: usize, settings: &Settings) -> Failure {
    let message = format!(
        "the states of open sequences take {bytes} bytes, and this model's limit is {}: end some with sequence_end, or send fewer rows",
        settings.max_sequence_bytes
    );
    Failure::new(Reason::Busy(Duration::from_secs(1)), message)
}

fn first_states(signature: &Signature, rows: usize) -> Result<Vec<Value>, Failure> {
    let zeros = signature.states.iter().map(|state| {
        let spec = &signature.inputs[state.input];
        match spec.default_value() {
            Some(value) => Ok(value.clone()),
            None => Value::zeros(spec.element, spec.shape(rows)?),
        }
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
