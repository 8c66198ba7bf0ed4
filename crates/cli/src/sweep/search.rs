//! Selects the values to try next, and the trials to end early.

use std::collections::HashMap;

use optimizer::Direction;
use optimizer::distribution::{Distribution, FloatDistribution};
use optimizer::param::ParamValue;
use optimizer::parameter::ParamId;
use optimizer::pruner::{HyperbandPruner, MedianPruner, Pruner as _, SuccessiveHalvingPruner};
use optimizer::sampler::CompletedTrial;
use optimizer::storage::MemoryStorage;
use optimizer::{Study, TrialState};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;

use super::config::{Config, Pruner, Sampler};
use super::journal::{State, Trial};
use super::process::Process;
use super::space::{Setting, Values};

/// The number of trials with random values before a model of the results is used.
const STARTUP: usize = 10;

/// The number of points among which a Gaussian process looks for the best.
const CANDIDATES: usize = 2000;

/// The number of evenly spaced points of a run at which trials are compared: 3³, since halving keeps a third three
/// times.
pub(super) const RUNGS: u64 = 27;

/// The median prunes only from this point on, and only if at least this many trials are known there.
const MEDIAN_FROM: (u64, usize) = (4, 5);

/// The values of the next trial.
pub(super) fn suggest(config: &Config, trials: &[Trial], number: usize) -> Vec<Value> {
    let mut rng = StdRng::seed_from_u64(
        config
            .seed
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(number as u64),
    );
    let seen = observations(config, trials);
    let model = match config.sampler {
        _ if trials.len() < STARTUP || seen.len() < 2 => None,
        Sampler::Random => None,
        Sampler::Gp => by_process(config, &seen, &mut rng),
        Sampler::Tpe => by_estimators(config, &seen, &mut rng),
    };
    let places = model.unwrap_or_else(|| config.space.iter().map(|_| rng.random()).collect());
    config
        .space
        .iter()
        .zip(places)
        .map(|(setting, place)| setting.at(place))
        .collect()
}

/// The trials as positions between 0 and 1, with their costs. A failed trial costs as much as the worst, one that was
/// ended early its cost at that point, and a running one the median, so that no other tries the same values.
fn observations(config: &Config, trials: &[Trial]) -> Vec<(Vec<f64>, f64)> {
    let known = |trial: &Trial| trial.reached().map(|value| config.cost(value));
    let mut costs: Vec<f64> = trials.iter().filter_map(known).collect();
    costs.sort_by(f64::total_cmp);
    let (Some(worst), Some(median)) = (costs.last(), costs.get(costs.len() / 2)) else {
        return Vec::new();
    };
    let observed = |trial: &Trial| {
        let places = config.space.iter().zip(&trial.values);
        let places = places
            .map(|(setting, value)| setting.place(value))
            .collect::<Option<Vec<f64>>>()?;
        let cost = known(trial).unwrap_or(match trial.state {
            State::Running => *median,
            _ => *worst,
        });
        Some((places, cost))
    };
    trials.iter().filter_map(observed).collect()
}

/// The range of a setting's position, for the crate.
fn unit() -> Distribution {
    Distribution::Float(FloatDistribution {
        low: 0.0,
        high: 1.0,
        log_scale: false,
        step: None,
    })
}

/// The position with the greatest expected improvement, among many random ones and some near the best one so far.
fn by_process(config: &Config, seen: &[(Vec<f64>, f64)], rng: &mut StdRng) -> Option<Vec<f64>> {
    let is_choice = |setting: &Setting| matches!(setting.values(), Values::Choice(_));
    let choices: Vec<bool> = config.space.iter().map(is_choice).collect();
    let process = Process::fit(seen, &choices)?;
    let best = seen.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let places = |i: usize, rng: &mut StdRng| -> Vec<f64> {
        let is_near = i.is_multiple_of(4);
        let near = |at: usize, rng: &mut StdRng| match (is_near, is_choice(&config.space[at])) {
            (true, false) => (best.0[at] + 0.1 * (rng.random::<f64>() - rng.random::<f64>())).clamp(0.0, 1.0),
            (true, true) if rng.random::<f64>() < 0.7 => best.0[at],
            _ => rng.random(),
        };
        let places = (0..config.space.len()).map(|at| near(at, rng));
        // Rounded to the position of the actual value.
        let places = places
            .zip(&config.space)
            .map(|(place, setting)| setting.place(&setting.at(place)).unwrap_or(place));
        places.collect()
    };
    let candidates = (0..CANDIDATES).map(|i| {
        let places = places(i, rng);
        (process.improvement(&places), places)
    });
    candidates
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|candidate| candidate.1)
}

fn observation(id: u64, ids: &[ParamId], (places, cost): &(Vec<f64>, f64)) -> CompletedTrial {
    let params = ids
        .iter()
        .zip(places)
        .map(|(id, place)| (*id, ParamValue::Float(*place)));
    let distributions = ids.iter().map(|id| (*id, unit()));
    CompletedTrial::new(id, params.collect(), distributions.collect(), HashMap::new(), *cost)
}

/// `None` if an estimator rejects its input.
fn by_estimators(config: &Config, seen: &[(Vec<f64>, f64)], rng: &mut StdRng) -> Option<Vec<f64>> {
    let place = |(at, setting): (usize, &Setting)| {
        // A choice is unordered.
        let count = match setting.values() {
            Values::Choice(values) => values.len(),
            _ => 0,
        };
        let (estimator, range) = match count {
            0 => (tpe::parzen_estimator(), tpe::range(0.0, 1.0)),
            count => (tpe::histogram_estimator(), tpe::categorical_range(count)),
        };
        let mut estimator = tpe::TpeOptimizer::new(estimator, range.ok()?);
        for (places, cost) in seen {
            let place = match count {
                0 => places[at].min(1.0 - f64::EPSILON),
                count => (places[at] * count as f64).floor(),
            };
            estimator.tell(place, *cost).ok()?;
        }
        let place = estimator.ask(rng).ok()?;
        Some(match count {
            0 => place,
            count => (place + 0.5) / count as f64,
        })
    };
    config.space.iter().enumerate().map(place).collect()
}

/// Whether a trial is ended early. The last one of its runs is in progress, or has just finished and others follow:
/// trials are compared by the means over their runs at the point that this one has passed.
pub(super) fn is_hopeless(config: &Config, trials: &[Trial], number: usize, runs: &[&[(u64, f64)]]) -> bool {
    let (is_last, curve) = (runs.len() >= config.seeds, mean(runs));
    let Some(&(rung, _)) = curve.last().filter(|last| last.0 < RUNGS || !is_last) else {
        return false;
    };
    let costs = |curve: &[(u64, f64)]| {
        curve
            .iter()
            .map(|&(at, value)| (at, config.cost(value)))
            .collect::<Vec<_>>()
    };
    let ended = |trial: &Trial| {
        let state = match &trial.state {
            State::Done => TrialState::Complete,
            State::Pruned => TrialState::Pruned,
            State::Running | State::Failed { .. } => return None,
        };
        let runs: Vec<&[(u64, f64)]> = trial.runs.iter().map(|run| &run.curve[..]).collect();
        let mut ended = observation(trial.number as u64, &[], &(Vec::new(), 0.0));
        (ended.state, ended.intermediate_values) = (state, costs(&mean(&runs)));
        Some(ended)
    };
    let ended: Vec<CompletedTrial> = trials.iter().filter_map(ended).collect();
    let (id, own) = (number as u64, costs(&curve));
    match config.pruner {
        Pruner::None => false,
        Pruner::Median => MedianPruner::new(Direction::Minimize)
            .n_warmup_steps(MEDIAN_FROM.0)
            .n_min_trials(MEDIAN_FROM.1)
            .should_prune(id, rung, &own, &ended),
        Pruner::Halving => SuccessiveHalvingPruner::new()
            .max_resource(RUNGS)
            .reduction_factor(3)
            .should_prune(id, rung, &own, &ended),
        Pruner::Hyperband => {
            let bands = HyperbandPruner::new().max_resource(RUNGS).reduction_factor(3);
            // The crate assigns brackets in the order of queries; here they must depend only on the trial's number.
            for id in 1..=trials.len().max(number) {
                bands.should_prune(id as u64, 0, &[], &[]);
            }
            bands.should_prune(id, rung, &own, &ended)
        }
    }
}

/// The mean of several runs at the points that the last one has passed, and all others with a measurement, too.
fn mean(runs: &[&[(u64, f64)]]) -> Vec<(u64, f64)> {
    let Some((last, before)) = runs.split_last() else {
        return Vec::new();
    };
    let value = |&(rung, value): &(u64, f64)| {
        let at = |run: &&[(u64, f64)]| run.iter().find(|point| point.0 == rung).map(|point| point.1);
        let sum: f64 = before.iter().map(at).sum::<Option<f64>>()? + value;
        Some((rung, sum / runs.len() as f64))
    };
    last.iter().filter_map(value).collect()
}

/// The share of the differences between trials that each setting explains, the greatest first; empty if there are too
/// few trials.
pub(super) fn importance(config: &Config, trials: &[Trial]) -> Vec<(String, f64)> {
    let ids: Vec<ParamId> = config.space.iter().map(|_| ParamId::new()).collect();
    let done: Vec<Trial> = trials.iter().filter(|trial| trial.value().is_some()).cloned().collect();
    if done.len() < STARTUP {
        return Vec::new();
    }
    let labels: HashMap<ParamId, String> = ids
        .iter()
        .zip(&config.space)
        .map(|(id, setting)| (*id, setting.name()))
        .collect();
    let told = |(id, seen): (u64, &(Vec<f64>, f64))| {
        let mut trial = observation(id, &ids, seen);
        trial.param_labels.clone_from(&labels);
        trial
    };
    let history = (0..).zip(&observations(config, &done)).map(told).collect();
    let study = Study::builder()
        .minimize()
        .storage(MemoryStorage::with_trials(history))
        .build();
    study.fanova().map_or_else(|_| Vec::new(), |found| found.main_effects)
}

#[cfg(test)]
mod tests {
    use super::super::config::tests::config;
    use super::super::journal::tests::{done, ran};
    use super::*;

    fn searched(sampler: &str) -> Config {
        config(&format!(
            "train = [\"x\"]\nmaximize = \"return\"\ntrials = 40\nsampler = \"{sampler}\"\n[space]\n\
             lr = {{ log = [1e-5, 1e-1] }}\nsize = {{ log_int = [16, 512] }}\n\
             kind = {{ choice = [\"a\", \"b\", \"c\"] }}\n\
             dull = {{ uniform = [0, 1] }}\n"
        ))
        .unwrap()
    }

    /// Highest, 0, at lr 1e-3, size 128 and kind b; settings are in the order of names.
    fn measured(values: &[Value]) -> f64 {
        let [_, kind, lr, size] = values else {
            panic!("{values:?}")
        };
        let off =
            |value: &Value, best: f64, width: f64| ((value.as_f64().unwrap() / best).ln() / width).powi(2).min(9.0);
        let kind = if kind == "b" { 0.0 } else { 2.0 };
        -(off(lr, 1e-3, 1.0) + off(size, 128.0, 0.7) + kind)
    }

    fn search(sampler: &str, seed: u64) -> (Config, Vec<Trial>) {
        let mut config = searched(sampler);
        config.seed = seed;
        let mut trials = Vec::new();
        for number in 1..=40 {
            let values = suggest(&config, &trials, number);
            let value = measured(&values);
            trials.push(done(number, values, value));
        }
        (config, trials)
    }

    /// The mean of the best results of five searches.
    fn found(sampler: &str) -> f64 {
        let best = |seed| {
            let (config, trials) = search(sampler, seed);
            Trial::best(&config, &trials).unwrap().value().unwrap()
        };
        (0..5).map(best).sum::<f64>() / 5.0
    }

    #[test]
    fn models_find_more_than_chance() {
        let [process, estimators, chance] = ["gp", "tpe", "random"].map(found);
        assert!(
            process > chance / 3.0 && estimators > chance / 1.5,
            "{process} {estimators} {chance}"
        );
    }

    #[test]
    fn the_same_seed_tries_the_same() {
        for sampler in ["gp", "tpe", "random"] {
            assert_eq!(search(sampler, 3).1, search(sampler, 3).1);
        }
    }

    #[test]
    fn what_matters_is_told_from_what_does_not() {
        let (config, trials) = search("random", 1);
        let found = importance(&config, &trials);
        assert_eq!(found.len(), 4);
        assert!(found[0].0 == "lr" && found[3].0 == "dull", "{found:?}");
        assert!(importance(&config, &trials[..5]).is_empty());
    }

    #[test]
    fn the_worse_trials_are_ended_early() {
        let mut config = searched("gp");
        let curve = |level: f64| (1..=RUNGS).map(|rung| (rung, level * rung as f64)).collect::<Vec<_>>();
        let trials: Vec<Trial> = (1..=12)
            .map(|number| {
                let mut trial = done(number, Vec::new(), 0.0);
                trial.runs = vec![ran(0.0, curve(number as f64))];
                trial
            })
            .collect();
        for (pruner, low, high, early) in [
            (Pruner::Median, 6.0, 7.0, 3),
            (Pruner::Halving, 7.0, 13.0, 0),
            // The thirteenth is in the first bracket, with the first, the fifth and the ninth.
            (Pruner::Hyperband, 4.0, 9.5, 0),
        ] {
            config.pruner = pruner;
            let ends = |level, rung| is_hopeless(&config, &trials, 13, &[&curve(level)[..rung]]);
            assert!(ends(low, 9) && !ends(high, 9), "{pruner:?}");
            assert!(!ends(low, RUNGS as usize) && !ends(low, early), "{pruner:?}");
        }
        config.pruner = Pruner::None;
        assert!(!is_hopeless(&config, &trials, 13, &[&curve(0.0)[..9]]));
    }

    #[test]
    fn a_trial_of_several_runs_is_compared_by_their_mean() {
        let mut config = searched("gp");
        (config.pruner, config.seeds) = (Pruner::Median, 3);
        let curve = |level: f64| (1..=RUNGS).map(|rung| (rung, level)).collect::<Vec<_>>();
        // The median of the others is 6.
        let trials: Vec<Trial> = (1..=11)
            .map(|number| {
                let mut trial = done(number, Vec::new(), 0.0);
                let level = number as f64;
                trial.runs = [level - 3.0, level, level + 3.0].map(|x| ran(x, curve(x))).to_vec();
                trial
            })
            .collect();
        assert_eq!(trials[4].reached(), Some(5.0));
        let ends = |levels: &[f64], rung: usize| {
            let mut runs: Vec<Vec<(u64, f64)>> = levels.iter().map(|&level| curve(level)).collect();
            runs.last_mut().unwrap().truncate(rung);
            let runs: Vec<&[(u64, f64)]> = runs.iter().map(|run| &run[..]).collect();
            is_hopeless(&config, &trials, 12, &runs)
        };
        assert!(ends(&[5.9], 9) && !ends(&[6.1], 9));
        assert!(ends(&[9.0, 2.0], 9) && !ends(&[9.0, 4.0], 9) && ends(&[9.0, 9.0, -1.0], 9));
        // A finished run decides about the next one, except the last one.
        let all = RUNGS as usize;
        assert!(ends(&[5.9], all) && ends(&[9.0, 2.0], all) && !ends(&[9.0, 4.0], all));
        assert!(!ends(&[9.0, 9.0, -1.0], all));
        // A point at which one of the runs had no measurement yet counts as not passed.
        assert_eq!(mean(&[&[(2, 4.0)], &[(1, 1.0), (2, 2.0)]]), [(2, 3.0)]);
    }
}
