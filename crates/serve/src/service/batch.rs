//! Joining requests, computing them, and splitting the results.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use polygrad_core::{Error, ErrorKind, Result, panic_message};
use smallvec::{SmallVec, smallvec};

use super::queue::{Job, Jobs};
use super::{Outputs, Service};
use crate::statistics::nanoseconds;
use crate::value::shown;
use crate::{Failure, Reason, Value};

/// The outputs of each request.
type Answers = SmallVec<[Outputs; 4]>;

impl Service {
    /// Computes requests together that were taken out of the queue at the time `at`, and answers them. If that fails,
    /// each is computed separately, so that one bad request does not fail the others.
    pub(super) fn compute(&self, jobs: Jobs, at: Instant) {
        for job in &jobs {
            self.statistics.queue.add(at - job.since);
        }
        match self.compute_joined(&jobs, at) {
            Ok(answers) => {
                for (job, outputs) in jobs.into_iter().zip(answers) {
                    self.answer(*job, Ok(outputs));
                }
            }
            Err(failure) if jobs.len() == 1 => {
                jobs.into_iter().for_each(|job| self.answer(*job, Err(failure.clone())));
            }
            Err(_) => {
                for job in jobs {
                    let answer = self.compute_joined(std::slice::from_ref(&job), Instant::now());
                    self.answer(*job, answer.map(|mut answers| answers.remove(0)));
                }
            }
        }
    }

    fn answer(&self, job: Job, answer: Result<Outputs, Failure>) {
        let mut answer = answer;
        if let Some(step) = &job.sequence {
            let states = self.signature().states.iter();
            let outputs = answer.as_ref().ok();
            let states = outputs.map(|outputs| states.map(|state| outputs[state.output].clone()).collect());
            let kept = self.queue().sequences.end(step, states, &self.settings);
            if let Err(failure) = kept {
                answer = Err(failure);
            }
        }
        // The client may be gone.
        let _ = job.reply.send(answer);
    }

    /// The outputs of each request; a panic is a failure of these requests alone.
    fn compute_joined(&self, jobs: &[Box<Job>], began: Instant) -> Result<Answers, Failure> {
        catch_unwind(AssertUnwindSafe(|| self.outputs(jobs, began))).unwrap_or_else(|panic| Err(panicked(&*panic)))
    }

    fn outputs(&self, jobs: &[Box<Job>], began: Instant) -> Result<Answers, Failure> {
        let rows = jobs.iter().map(|job| job.rows).sum();
        let mut inputs = self.join(jobs).map_err(|error| Failure::of_run(&error))?;
        // Not every op accepts empty tensors, so one row of zeros is computed and dropped from the outputs.
        if rows == 0 {
            self.fill_up(&mut inputs).map_err(|error| Failure::of_run(&error))?;
        }
        let joined = Instant::now();
        let mut outputs = self.model.run(&inputs).map_err(|error| Failure::of_run(&error))?;
        if rows == 0 {
            self.empty(&mut outputs).map_err(|error| Failure::of_run(&error))?;
        }
        let ran = Instant::now();
        self.took(ran - joined);
        let answers = self.split(jobs, outputs, rows).map_err(|error| {
            let message = format!("the model's outputs are not what its signature says: {error}");
            Failure::new(Reason::Internal, message)
        })?;
        let times = [joined - began, ran - joined, ran.elapsed()];
        self.statistics.run(jobs.len(), rows, times);
        Ok(answers)
    }

    fn join(&self, jobs: &[Box<Job>]) -> Result<Vec<Value>> {
        let specs = &self.signature().inputs;
        let mut inputs = Vec::with_capacity(specs.len());
        for (place, spec) in specs.iter().enumerate() {
            inputs.push(match (jobs, spec.batch) {
                ([job], _) => job.input(place, spec)?.clone(),
                (_, Some(axis)) => {
                    let parts = jobs.iter().map(|job| job.input(place, spec));
                    Value::join(&parts.collect::<Result<Vec<_>>>()?, axis)?
                }
                // All requests have the same value, by which they were grouped.
                ([job, ..], None) if spec.default_value().is_some() => job.input(place, spec)?.clone(),
                (_, None) => {
                    let message = format!("the input {:?} has no axis for rows", spec.name);
                    return Err(Error::invalid(message));
                }
            });
        }
        Ok(inputs)
    }

    /// Replaces empty inputs by one row of zeros.
    fn fill_up(&self, inputs: &mut [Value]) -> Result<()> {
        for (spec, value) in self.signature().inputs.iter().zip(inputs) {
            if let Some(axis) = spec.batch {
                *value = Value::zeros(spec.element, value.shape().with_dim(axis, 1))?;
            }
        }
        Ok(())
    }

    /// Drops the row of the outputs again.
    fn empty(&self, outputs: &mut Outputs) -> Result<()> {
        for (spec, value) in self.signature().outputs.iter().zip(outputs) {
            if let Some(axis) = spec.batch.filter(|&axis| axis < value.shape().rank()) {
                *value = value.rows(axis, 0..0)?;
            }
        }
        Ok(())
    }

    fn split(&self, jobs: &[Box<Job>], outputs: Outputs, rows: usize) -> Result<Answers> {
        let specs = &self.signature().outputs;
        if outputs.len() != specs.len() {
            return Err(Error::shape(format!("{} outputs, not {}", outputs.len(), specs.len())));
        }
        for (spec, output) in specs.iter().zip(&outputs) {
            if output.element() != spec.element {
                let (found, wanted) = (shown(output.element()), shown(spec.element));
                return Err(Error::dtype(format!(
                    "{:?} is of datatype {found}, not {wanted}",
                    spec.name
                )));
            }
            let extent = spec.batch.map(|axis| output.shape().get(axis).copied());
            if extent.is_some_and(|extent| extent != Some(rows)) {
                return Err(Error::shape(format!(
                    "{:?} is of shape {} for {rows} rows",
                    spec.name,
                    output.shape()
                )));
            }
        }
        if jobs.len() == 1 {
            return Ok(smallvec![outputs]);
        }
        let mut next = 0;
        let answers = jobs.iter().map(|job| {
            let own = next..next + job.rows;
            next = own.end;
            let outputs = specs.iter().zip(&outputs);
            let outputs = outputs.map(|(spec, output)| match spec.batch {
                Some(axis) => output.rows(axis, own.clone()),
                None => Ok(output.clone()),
            });
            outputs.collect()
        });
        answers.collect()
    }

    fn took(&self, time: Duration) {
        let (time, typical) = (nanoseconds(time), self.typical.load(Ordering::Relaxed));
        self.typical.store(typical - typical / 8 + time / 8, Ordering::Relaxed);
    }
}

#[cold]
fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let words = panic_message(panic).unwrap_or("it said nothing");
    let error = Error::new(ErrorKind::DeviceError, format!("the model panicked: {words}"));
    tracing::error!("{error}");
    Failure::of_run(&error)
}
