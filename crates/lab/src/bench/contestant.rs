//! Contestants that can be timed: Polygrad in this process, or another program.

use std::time::Instant;

/// The times of a run of steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Times {
    /// Seconds per step for each sample.
    pub(crate) seconds: Vec<f64>,
    /// The loss of the last step, if the steps train.
    pub(crate) loss: Option<f64>,
}

/// A contestant, which performs a case's steps when it is its turn. Failures are reasons for the report.
pub(crate) trait Contestant {
    /// Its name and version.
    fn name(&self) -> String;

    /// Prepares a case, from the workload's own weights, and drops the previous one.
    ///
    /// # Errors
    /// The reason why it does not support this case.
    fn case(&mut self, name: &str) -> Result<(), String>;

    /// Runs `samples` times `steps` steps.
    ///
    /// # Errors
    /// The reason why a step failed.
    fn run(&mut self, samples: usize, steps: usize) -> Result<Times, String>;
}

/// Times `samples` groups of `steps` steps. `finish` waits for pending work of the device.
///
/// # Errors
/// The error of a step.
pub(crate) fn time<E>(
    samples: usize,
    steps: usize,
    mut step: impl FnMut() -> Result<Option<f64>, E>,
    finish: impl Fn() -> Result<(), E>,
) -> Result<Times, E> {
    let mut times = Times::default();
    for _ in 0..samples {
        let start = Instant::now();
        for _ in 0..steps {
            times.loss = step()?;
        }
        finish()?;
        times.seconds.push(start.elapsed().as_secs_f64() / steps as f64);
    }
    Ok(times)
}
