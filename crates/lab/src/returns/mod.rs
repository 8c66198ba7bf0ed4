//! `polygrad returns`: trains policies with several seeds, and compares the results with those of known trainings.

mod chart;
mod experiments;
mod training;

use polygrad_console::atomic::AtomicFile;
use polygrad_console::backend;
use polygrad_console::failure::{Failure, Result, Shown};
use polygrad_console::outcome::Outcome;
use polygrad_console::progress::{note, say};
use polygrad_console::team::Team;

use crate::args::Returns;
use crate::bench::report::{machine, today};
use experiments::{EXPERIMENTS, Experiment, Figure, Judged};
use training::{Trained, train};

/// Runs the requested trainings, prints a row for each result as soon as it is known, and draws the curves.
///
/// # Errors
/// An unknown training or backend, one that fails, and a file that cannot be written.
pub(crate) fn command(args: &Returns) -> Result<Outcome> {
    let chosen = chosen(&args.trainings)?;
    let team = Team::join(args.parallel.as_deref())?;
    let device = backend::open(&args.backend, args.threads)?;
    let path = args.plot.as_deref().filter(|_| team.rank() == 0);
    let plot = path.map(AtomicFile::create).transpose()?;
    let last = args.seeds - 1;
    say(&format!("Seeds 0 to {last}, on {device}, {}, {}\n", machine(), today()));
    team.about("seeds").iter().for_each(|line| say(&format!("{line}\n")));
    say("| training | return of | of each seed | mean ± deviation | wanted | published | loss | steps/s |");
    say("|---|---|---|---|---|---|---|---|");
    let mut outcomes = Vec::new();
    for experiment in chosen {
        let all = dealt(args.seeds, experiment.figures.len(), &team, |seed| {
            let trained = train(experiment, seed, &device)?;
            let figures: Vec<String> = trained.figures.iter().map(|value| number(*value)).collect();
            let (name, after) = (experiment.name, trained.seconds);
            note(&format!(
                "{name}, seed {seed}: {} after {after:.0} s",
                figures.join(", ")
            ));
            Ok(trained)
        })?;
        for (i, figure) in experiment.figures.iter().enumerate() {
            say(&row(experiment, figure, i, &all));
        }
        outcomes.push((experiment, all));
    }
    if let (Some(mut file), Some(path)) = (plot, &args.plot) {
        let chart = chart::draw(&outcomes);
        let chart = chart.map_err(|e| Failure::new(format!("cannot encode {}: {e}", path.shown())))?;
        file.append(&chart)?;
        file.commit()?;
    }
    Ok(Outcome::Done)
}

/// The results of all seeds, each trained by one process of the team; `figures` numbers of each.
fn dealt(
    seeds: usize,
    figures: usize,
    team: &Team,
    train: impl Fn(u64) -> polygrad::Result<Trained>,
) -> Result<Vec<Trained>> {
    let own = (team.rank()..seeds).step_by(team.size()).map(|seed| train(seed as u64));
    let own = own.collect::<polygrad::Result<Vec<_>>>()?;
    let numbers: Vec<f64> = own.iter().flat_map(Trained::numbers).collect();
    let all = team.gather(&numbers)?;
    let len = figures + training::POINTS + 3;
    let of = |seed: usize| {
        let numbers = all[seed % team.size()].chunks_exact(len).nth(seed / team.size());
        numbers.and_then(|numbers| Trained::from_numbers(numbers, figures))
    };
    let found = (0..seeds).map(of).collect::<Option<Vec<_>>>();
    found.ok_or_else(|| {
        Failure::new("the processes have not trained with the same seeds").fix("give all the same --seeds")
    })
}

fn chosen(names: &[String]) -> Result<Vec<&'static Experiment>> {
    let is = |experiment: &Experiment, name: &str| {
        let rest = experiment.name.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if let Some(name) = names.iter().find(|name| !EXPERIMENTS.iter().any(|e| is(e, name))) {
        let all: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
        return Err(Failure::new(format!("there is no training {name:?}")).fix(format!("one of: {}", all.join(", "))));
    }
    let wanted = |experiment: &&Experiment| names.is_empty() || names.iter().any(|name| is(experiment, name));
    Ok(EXPERIMENTS.iter().filter(wanted).collect())
}

fn row(experiment: &Experiment, figure: &Figure, i: usize, all: &[Trained]) -> String {
    let values: Vec<f64> = all.iter().map(|trained| trained.figures[i]).collect();
    let (mean, deviation) = mean_and_deviation(&values);
    let each: Vec<String> = values.iter().map(|value| number(*value)).collect();
    let as_wanted = match figure.is_as_wanted(&values) {
        true => "yes",
        false => "**no**",
    };
    let (loss, _) = mean_and_deviation(&all.iter().map(|trained| trained.loss).collect::<Vec<_>>());
    let speed = all.iter().map(|trained| trained.steps as f64 / trained.seconds);
    format!(
        "| {} | {} | {} | {} ± {deviation:.1} | {}: {as_wanted} | {} | {loss:.4} | {:.0} |",
        experiment.name,
        figure.measure.name(),
        each.join(", "),
        number(mean),
        figure.demand(),
        figure.published,
        speed.fold(0.0, f64::max)
    )
}

/// With a typographic minus.
fn number(value: f64) -> String {
    format!("{value:.1}").replace('-', "−")
}

/// The sample standard deviation; 0 for a single value.
fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

impl Figure {
    fn is_as_wanted(&self, values: &[f64]) -> bool {
        let (low, high) = self.wanted;
        let holds = |value: f64| (low..=high).contains(&value);
        match self.judged {
            Judged::Mean => holds(mean_and_deviation(values).0),
            Judged::Error(published) => {
                let (mean, deviation) = mean_and_deviation(values);
                mean + 2.0 * (deviation / (values.len() as f64).sqrt()).hypot(published) >= low
            }
            Judged::Seeds => 5 * values.iter().filter(|value| holds(**value)).count() >= 4 * values.len(),
        }
    }

    fn demand(&self) -> String {
        let (low, high) = self.wanted;
        let range = match high {
            f64::INFINITY => format!("at least {low}"),
            high if high == low => format!("{low}"),
            high => format!("{low} to {high}"),
        };
        let of = match self.judged {
            Judged::Mean => "",
            Judged::Seeds => ", four of five",
            Judged::Error(_) => ", to two standard errors",
        };
        format!("{range}{of}").replace('-', "−")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polygrad::Device;
    use polygrad::communicator::{Communicator, Threads};
    use std::sync::Arc;

    #[test]
    fn a_part_of_a_name_stands_for_all_that_begin_with_it() {
        let names = |asked: &[&str]| -> Vec<&str> {
            let asked: Vec<String> = asked.iter().map(|name| (*name).to_owned()).collect();
            chosen(&asked)
                .unwrap()
                .iter()
                .map(|experiment| experiment.name)
                .collect()
        };
        assert_eq!(
            names(&["pendulum", "mountain-car", "t-maze/mlp"]),
            [
                "mountain-car/cleanrl",
                "mountain-car/zoo",
                "pendulum/zoo",
                "pendulum/sac",
                "pendulum/td3",
                "t-maze/mlp"
            ]
        );
        assert_eq!(names(&[]).len(), EXPERIMENTS.len());
        let error = chosen(&["cart".to_owned()]).err().unwrap().to_string();
        assert!(
            error.contains("no training \"cart\"") && error.contains("cartpole/zoo"),
            "{error}"
        );
    }

    #[test]
    fn seeds_are_dealt_out_and_all_have_what_all_found() {
        let ends = Threads::group(2, std::time::Duration::from_secs(60)).unwrap();
        std::thread::scope(|scope| {
            for end in ends {
                scope.spawn(move || {
                    let (rank, team) = (end.rank() as u64, Team::of(Some(Arc::new(end))));
                    let train = |seed| {
                        assert_eq!(seed % 2, rank);
                        Ok(Trained {
                            figures: vec![seed as f64, f64::NAN],
                            curve: vec![10.0 * seed as f64; training::POINTS],
                            steps: 100 + seed,
                            seconds: 0.5,
                            loss: 0.25,
                        })
                    };
                    let all = dealt(5, 2, &team, train).unwrap();
                    for (seed, trained) in all.iter().enumerate() {
                        assert_eq!((trained.figures[0], trained.steps), (seed as f64, 100 + seed as u64));
                        assert!(trained.figures[1].is_nan() && trained.curve == [10.0 * seed as f64; training::POINTS]);
                    }
                    assert_eq!(all.len(), 5);
                });
            }
        });
    }

    #[test]
    fn four_of_five_seeds_are_enough_and_three_are_not() {
        let figure = |judged| Figure {
            measure: experiments::Measure::Last,
            wanted: (475.0, f64::INFINITY),
            judged,
            published: "",
        };
        assert!(figure(Judged::Seeds).is_as_wanted(&[500.0, 476.0, 10.0, 480.0, 475.0]));
        assert!(!figure(Judged::Seeds).is_as_wanted(&[500.0, 476.0, 10.0, 480.0, f64::NAN]));
        assert!(!figure(Judged::Mean).is_as_wanted(&[500.0, 476.0, 10.0, 480.0, 475.0]));
        assert_eq!(figure(Judged::Seeds).demand(), "at least 475, four of five");
        // 463 plus twice √(10² + 6²) is 486; 445 plus twice √(5² + 5²) is 459.
        assert!(figure(Judged::Error(6.0)).is_as_wanted(&[453.0, 473.0]));
        assert!(!figure(Judged::Error(5.0)).is_as_wanted(&[440.0, 450.0]));
    }

    #[test]
    fn the_same_seed_gives_the_same_figures_and_every_training_begins() {
        let device = Device::new("cpu:threads=1").unwrap();
        for experiment in &EXPERIMENTS {
            let known = experiment.environment().unwrap();
            let (own, first) = (experiment.settings(known).unwrap(), known.preset(None, None).unwrap());
            assert_eq!(own.policy.action, first.policy.action);
        }
        let (quick, _) = EXPERIMENTS
            .iter()
            .map(|e| (e, e.name))
            .find(|(_, name)| *name == "cartpole/zoo")
            .unwrap();
        let [first, again] = [(); 2].map(|()| train(quick, 0, &device).unwrap());
        assert_eq!((&first.figures, first.steps), (&again.figures, again.steps));
        let drawn = chart::draw(&[(quick, vec![first, again])]).unwrap();
        assert!(png::Decoder::new(std::io::Cursor::new(drawn)).read_info().is_ok());
    }
}
