//! The configuration file of a sweep.

use std::path::{Path, PathBuf};

use polygrad::Error;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::space::{self, Setting};
use crate::failure::{Failure, Result, Shown};
use crate::train::job::{self, Job};

/// How the next values are chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Sampler {
    /// Where a Gaussian process expects the greatest improvement.
    #[default]
    Gp,
    /// By a tree-structured Parzen estimator, for each setting separately.
    Tpe,
    Random,
}

/// Which runs are ended early.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Pruner {
    #[default]
    None,
    /// Those that are worse than the median of the finished ones at the same point.
    Median,
    /// All except the best third at each point of successive halving.
    Halving,
    /// The same in brackets that begin halving earlier or later.
    Hyperband,
}

/// Which measurement of a run is its result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Take {
    #[default]
    Last,
    Best,
}

/// The contents of the file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    train: Vec<String>,
    maximize: Option<String>,
    minimize: Option<String>,
    #[serde(default)]
    take: Take,
    trials: usize,
    #[serde(default = "one")]
    seeds: usize,
    #[serde(default = "one")]
    parallel: usize,
    #[serde(default)]
    sampler: Sampler,
    #[serde(default)]
    pruner: Pruner,
    #[serde(default)]
    seed: u64,
    folder: Option<PathBuf>,
    #[serde(default)]
    space: Map<String, Value>,
}

fn one() -> usize {
    1
}

/// The configuration of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Config {
    /// The file's path, in printable form.
    pub(super) file: String,
    /// The words after `polygrad train`.
    pub(super) train: Vec<String>,
    pub(super) metric: String,
    pub(super) maximize: bool,
    pub(super) take: Take,
    pub(super) trials: usize,
    /// How many runs a trial has, which differ in their seeds only.
    pub(super) seeds: usize,
    pub(super) parallel: usize,
    pub(super) sampler: Sampler,
    pub(super) pruner: Pruner,
    pub(super) seed: u64,
    pub(super) folder: PathBuf,
    pub(super) space: Vec<Setting>,
}

/// The allowed numbers of trials, of their runs and of simultaneous processes.
const TRIALS: std::ops::RangeInclusive<usize> = 1..=1 << 16;

impl Config {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// A file that cannot be read, or is invalid whatever is trained.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::io("read", path, &e))?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self> {
        let file = path.shown();
        let written: Written = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = text[..at].matches('\n').count() + 1;
            let shown = text.lines().nth(line - 1).unwrap_or_default().trim();
            Failure::new(format!(
                "{file}, line {line} (`{shown}`): {}",
                error.message().replace('\n', ", ")
            ))
            .fix("write it as docs/how-to/sweeps.md shows")
        })?;
        let bad = |key: &str, what: &str, fix: &str| Failure::new(format!("{file}: {key}: {what}")).fix(fix);
        let (metric, maximize) = match (written.maximize, written.minimize) {
            (Some(metric), None) => (metric, true),
            (None, Some(metric)) => (metric, false),
            (Some(_), Some(_)) => return Err(bad("minimize", "maximize is there, too", "leave one of the two out")),
            (None, None) => {
                let what = "it is not said what is good";
                return Err(bad(
                    "maximize",
                    what,
                    "write maximize = \"return\", minimize = \"loss\" or the like",
                ));
            }
        };
        let counts = [
            ("trials", written.trials),
            ("seeds", written.seeds),
            ("parallel", written.parallel),
        ];
        for (key, count) in counts {
            if !TRIALS.contains(&count) {
                let range = format!("give a whole number, {} to {}", TRIALS.start(), TRIALS.end());
                return Err(bad(key, &format!("there cannot be {count}"), &range));
            }
        }
        let space = space::read(&written.space).map_err(|(key, what, fix)| bad(&key, &what, &fix))?;
        if space.is_empty() {
            let fix = "name what is varied below [space], such as lr = { log = [1e-5, 1e-2] }";
            return Err(bad("space", "there is nothing to search", fix));
        }
        let name = path.file_stem().unwrap_or_default();
        Ok(Self {
            file,
            train: written.train,
            metric,
            maximize,
            take: written.take,
            trials: written.trials,
            seeds: written.seeds,
            parallel: written.parallel,
            sampler: written.sampler,
            pruner: written.pruner,
            seed: written.seed,
            folder: written.folder.unwrap_or_else(|| Path::new("runs").join(name)),
            space,
        })
    }

    /// Determines what is trained, and checks the keys of the file against it.
    ///
    /// # Errors
    /// The first key that does not fit: words that are no training, a metric that is not measured, an option that the
    /// job does not have, or invalid values.
    pub(super) fn job(&self) -> Result<Job> {
        let job = job::of(&self.train).map_err(|why| self.at("train", why))?;
        if !job.metrics.contains(&self.metric) {
            let key = if self.maximize { "maximize" } else { "minimize" };
            let what = format!("a run of {} does not measure {:?}", job.kind.name(), self.metric);
            let failure = Failure::new(what).fix(format!("it measures {}", job.metrics.join(", ")));
            return Err(self.at(key, failure));
        }
        let words = [self.train.clone(), self.seed_words(0)].concat();
        job::check(&words).map_err(|why| {
            let why = Failure::new(Error::from(why).message());
            self.at(
                "seeds",
                why.fix("leave --seed out of train: the runs of a trial have the seeds 0, 1 and so on"),
            )
        })?;
        for setting in &self.space {
            for value in setting.extremes() {
                let words = [self.train.clone(), setting.words(&value), self.seed_words(0)].concat();
                job::check(&words).map_err(|why| self.at(&format!("space.{}", setting.name()), why))?;
            }
        }
        Ok(job)
    }

    /// An error about a key of the file.
    fn at(&self, key: &str, why: Failure) -> Failure {
        let why = Error::from(why);
        let failure = Failure::new(format!("{}: {key}: {}", self.file, why.message()));
        match why.hint() {
            Some(hint) => failure.fix(hint),
            None => failure.fix(format!("change {key}")),
        }
    }

    /// Whether two files define the same search. The number of trials, the number of simultaneous processes, and the
    /// order of values may differ.
    pub(super) fn is_same_search(&self, other: &Self) -> bool {
        let essence = |config: &Self| Self {
            file: String::new(),
            trials: 0,
            parallel: 0,
            sampler: Sampler::default(),
            pruner: Pruner::default(),
            seed: 0,
            folder: PathBuf::new(),
            ..config.clone()
        };
        essence(self) == essence(other)
    }

    /// The command line of a training with these values, one for each setting.
    pub(super) fn words(&self, values: &[Value]) -> Vec<String> {
        let chosen = self
            .space
            .iter()
            .zip(values)
            .flat_map(|(setting, value)| setting.words(value));
        self.train.iter().cloned().chain(chosen).collect()
    }

    /// The further words of a trial's run, counted from 0, if a trial has several.
    pub(super) fn seed_words(&self, run: usize) -> Vec<String> {
        match self.seeds {
            1 => Vec::new(),
            _ => vec!["--seed".to_owned(), run.to_string()],
        }
    }

    /// A measurement as a cost to be minimized.
    pub(super) fn cost(&self, measured: f64) -> f64 {
        if self.maximize { -measured } else { measured }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::sweep) fn config(text: &str) -> Result<Config> {
        Config::parse(Path::new("own.toml"), text)
    }

    pub(in crate::sweep) const PLAIN: &str = "train = [\"table\", \"x.csv\"]\nminimize = \"loss\"\ntrials = 3\n\
                                              [space]\nlr = { log = [1e-5, 1e-1] }\n";

    #[test]
    fn what_is_not_said_has_defaults() {
        let config = config(PLAIN).unwrap();
        assert_eq!(config.folder, Path::new("runs/own"));
        assert_eq!(
            (config.seeds, config.parallel, config.sampler, config.pruner),
            (1, 1, Sampler::Gp, Pruner::None)
        );
        assert_eq!(config.words(&[0.5.into()]).join(" "), "table x.csv --lr 0.5");
        assert_eq!((config.cost(2.0), config.maximize), (2.0, false));
    }

    #[test]
    fn nonsense_is_told_with_its_line_or_key() {
        for (from, to, words) in [
            (
                "trials = 3",
                "trails = 3",
                "own.toml, line 3 (`trails = 3`): unknown field `trails`, expected one of",
            ),
            ("trials = 3", "trials = -1", "line 3 (`trials = -1`): invalid value"),
            ("trials = 3", "trials = 0", "own.toml: trials: there cannot be 0"),
            ("trials = 3", "", "missing field `trials`"),
            (
                "trials = 3",
                "trials = 3\nseeds = 0",
                "own.toml: seeds: there cannot be 0",
            ),
            (
                "trials = 3",
                "trials = 3\nsampler = \"best\"",
                "unknown variant `best`, expected one of `gp`, `tpe`",
            ),
            (
                "trials = 3",
                "trials = 3\npruner = \"all\"",
                "expected one of `none`, `median`, `halving`, `hyperband`",
            ),
            (
                "trials = 3",
                "trials = 3\nparallel = 0",
                "own.toml: parallel: there cannot be 0",
            ),
            (
                "minimize",
                "maximize = \"loss\"\nminimize",
                "own.toml: minimize: maximize is there, too",
            ),
            (
                "minimize = \"loss\"",
                "",
                "own.toml: maximize: it is not said what is good",
            ),
            (
                "lr = { log = [1e-5, 1e-1] }",
                "",
                "own.toml: space: there is nothing to search",
            ),
            (
                "1e-5, 1e-1",
                "1e-1, 1e-5",
                "own.toml: space.lr: 0.1 to 0.00001 is no range",
            ),
            ("[\"table\", \"x.csv\"]", "\"table x.csv\"", "line 1"),
            ("trials = 3", "trials = ", "line 3"),
        ] {
            assert!(PLAIN.contains(from), "{from}");
            let error = config(&PLAIN.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(
                error.contains(words) && error.contains("\n  fix: "),
                "{error}\nshould contain {words}"
            );
        }
    }

    #[test]
    fn more_trials_are_the_same_search() {
        let same = |from: &str, to: &str| {
            config(PLAIN)
                .unwrap()
                .is_same_search(&config(&PLAIN.replacen(from, to, 1)).unwrap())
        };
        assert!(same("trials = 3", "trials = 9\nparallel = 2\nseed = 4"));
        assert!(!same("trials = 3", "trials = 3\nseeds = 2"));
        assert!(!same("1e-5", "1e-6") && !same("x.csv", "y.csv") && !same("minimize", "maximize"));
    }
}
