//! Training a policy with one seed.

use std::time::Instant;

use polygrad::rl::zoo::Stepping;
use polygrad::rl::{Agent, EvaluateConfig, Evaluation, Scripted, contest_in_full, evaluate};
use polygrad::{Device, Result, manual_seed};

use super::experiments::{Experiment, Measure};

/// Points of a curve.
pub(super) const POINTS: usize = 100;

/// The results of a seed.
pub(super) struct Trained {
    pub(super) figures: Vec<f64>,
    /// The mean return of the episodes that ended in each hundredth of the training; NaN if none did.
    pub(super) curve: Vec<f64>,
    pub(super) steps: u64,
    pub(super) seconds: f64,
    /// The mean loss of the last tenth of the training: of PPO the clipped surrogate, of the others that of the values.
    pub(super) loss: f64,
}

impl Trained {
    /// The results as numbers, the same count for every seed of an experiment.
    pub(super) fn numbers(&self) -> Vec<f64> {
        [
            &self.figures[..],
            &self.curve,
            &[self.steps as f64, self.seconds, self.loss],
        ]
        .concat()
    }

    /// The inverse, for this number of figures.
    pub(super) fn from_numbers(numbers: &[f64], figures: usize) -> Option<Self> {
        let (figures, rest) = numbers.split_at_checked(figures)?;
        let (curve, rest) = rest.split_at_checked(POINTS)?;
        let [steps, seconds, loss] = rest.try_into().ok()?;
        Some(Self {
            figures: figures.to_vec(),
            curve: curve.to_vec(),
            steps: steps as u64,
            seconds,
            loss,
        })
    }
}

/// Trains with a seed, and measures all figures.
///
/// # Errors
/// Errors of training.
pub(super) fn train(experiment: &Experiment, seed: u64, device: &Device) -> Result<Trained> {
    let known = experiment.environment()?;
    let mut settings = experiment.settings(known)?;
    *settings.algorithm.seed_mut() = seed;
    manual_seed(seed);
    let mut agent: Box<dyn Agent> = match &settings.self_play {
        None => {
            let envs = known.make(settings.num_envs, Stepping::Serial)?;
            settings.algorithm.agent(envs, &settings.policy, device, None)?
        }
        Some(config) => {
            let learns = (&settings.algorithm, &settings.policy);
            Box::new(known.self_play(settings.num_envs, config, learns, device)?)
        }
    };
    let mut ended: Vec<(u64, f64)> = Vec::new();
    let mut losses = Vec::new();
    let begun = Instant::now();
    while !agent.is_done() {
        losses.push(agent.advance()?.loss);
        let steps = agent.steps();
        ended.extend(agent.episodes().iter().map(|episode| (steps, episode.total_reward)));
    }
    let seconds = begun.elapsed().as_secs_f64();
    let steps = agent.steps();
    let policy = agent.trained_policy()?;
    let mut envs = known.make(settings.num_envs, Stepping::Serial)?;
    let mut play = |episodes: usize| -> Result<Evaluation> {
        let config = EvaluateConfig {
            episodes,
            seed,
            ..EvaluateConfig::default()
        };
        evaluate(&*policy, &mut envs, &config)
    };
    let take = |measure: Measure| -> Result<f64> {
        Ok(match measure {
            Measure::First(first) => mean(ended.iter().filter(|(steps, _)| *steps <= first).map(|(_, x)| *x)),
            Measure::Last => mean(ended.iter().rev().take(100).map(|(_, x)| *x)),
            Measure::Greedy(episodes) => play(episodes)?.mean(),
            Measure::Lost => {
                let found = contest_in_full(&*policy, &*known.game()?, Scripted::Solver)?;
                found.sides.iter().map(|side| side.lost as f64).sum()
            }
            Measure::Won(episodes) => {
                let won = play(episodes)?.returns.into_iter().map(|x| f64::from(x > 0.0));
                100.0 * mean(won)
            }
        })
    };
    let figures = experiment.figures.iter().map(|figure| figure.measure).map(take);
    Ok(Trained {
        figures: figures.collect::<Result<_>>()?,
        curve: curve(&ended, steps),
        steps,
        seconds,
        loss: mean(
            losses[losses.len() * 9 / 10..]
                .iter()
                .copied()
                .filter(|loss| !loss.is_nan()),
        ),
    })
}

fn curve(ended: &[(u64, f64)], steps: u64) -> Vec<f64> {
    let mut parts = vec![(0.0, 0usize); POINTS];
    for (step, total) in ended {
        let part = &mut parts[((step - 1) * POINTS as u64 / steps) as usize];
        *part = (part.0 + total, part.1 + 1);
    }
    parts.into_iter().map(|(sum, count)| sum / count as f64).collect()
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, count), x| (sum + x, count + 1));
    sum / count as f64
}
