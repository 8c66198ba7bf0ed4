//! Who can be timed: Polygrad in this process, or another program.

use std::time::Instant;

/// What a run of steps took.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Times {
    /// Seconds per step, of each sample.
    pub(crate) seconds: Vec<f64>,
    /// The loss of the last step, where steps train.
    pub(crate) loss: Option<f64>,
}

/// Someone who does a case's steps when it is its turn. Failures are reasons for the report.
pub(crate) trait Contestant {
    /// Its name and version.
    fn name(&self) -> String;

    /// Makes a case ready, from the workload's own weights, and forgets the one before.
    ///
    /// # Errors
    /// Why it cannot do this case.
    fn case(&mut self, name: &str) -> Result<(), String>;

    /// Does `samples` times `steps` steps.
    ///
    /// # Errors
    /// Why a step failed.
    fn run(&mut self, samples: usize, steps: usize) -> Result<Times, String>;
}

/// Times `samples` bundles of `steps` steps; `finish` waits for what a device still has to do.
///
/// # Errors
/// That of the step.
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
