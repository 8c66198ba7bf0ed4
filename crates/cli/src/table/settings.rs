//! The settings that define a run.

use std::collections::{BTreeSet, HashSet};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use polygrad::ErrorKind;
use polygrad::data::{Column, Table, TableEncoder};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::args::TrainArgs;
use super::data::{Data, checksum, rows_named, unfit};
use crate::failure::{Failure, Result};
use crate::kind::Kind;
use crate::progress::{grouped, note, short};
use crate::run::config::{LONGEST, Optimizer, Training};
use crate::train::place;

/// The share of the rows that may be held out.
pub(super) const SPLITS: RangeInclusive<f64> = 0.01..=0.9;

/// The fewest rows to learn from.
const FEWEST: usize = 10;

/// A column with more different texts than this has names rather than categories.
const WORDS: usize = 1000;

/// Upper bound on the size of the settings that do not depend on the table, in bytes.
const REST: u64 = 1 << 16;

/// The squares of larger numbers overflow an f32.
const LARGEST: f64 = 1e30;

/// The settings of a run, as `config.json` has them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings {
    #[serde(flatten)]
    pub(super) training: Training,
    /// The file, as an absolute path.
    #[serde(default, with = "crate::run::any_path")]
    pub(super) data: Option<PathBuf>,
    /// The checksum of all its cells.
    pub(super) checksum: String,
    pub(super) rows: usize,
    /// The column that is predicted.
    pub(super) target: String,
    /// The columns that it is predicted from.
    pub(super) columns: Vec<String>,
    /// Those that were left out.
    pub(super) ignored: Vec<String>,
    /// How its file and later ones are read.
    #[serde(flatten)]
    pub(super) reading: Reading,
    /// The share of the rows that the model is judged by.
    pub(super) validation_split: f64,
    pub(super) optimizer: Optimizer,
    /// Units of the hidden layers.
    pub(super) hidden: Vec<usize>,
    pub(super) goal: Goal,
    /// Encodes the columns for the model, fitted on the training rows; `None` until they are known.
    pub(super) encoder: Option<TableEncoder>,
}

/// How the cells of a file are read; older runs do not have this.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Reading {
    /// The marks for a missing value, beside empty cells.
    #[serde(default)]
    pub(super) missing: Vec<String>,
    /// The columns treated as text, whatever their cells look like.
    #[serde(default)]
    pub(super) categorical: Vec<String>,
    /// Whether decimals follow a comma.
    #[serde(default)]
    pub(super) decimal_comma: bool,
}

/// The kind of target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Goal {
    /// Determined by its column.
    Either,
    /// One of some words or integers.
    Classify { classes: Vec<String> },
    /// A number, learnt as `(x - mean) / std`.
    Regress { mean: f64, std: f64 },
}

impl Goal {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Either => "either",
            Self::Classify { .. } => "classify",
            Self::Regress { .. } => "regress",
        }
    }

    /// The number of outputs of the model.
    pub(super) fn outputs(&self) -> usize {
        match self {
            Self::Either => 0,
            Self::Classify { classes } => classes.len(),
            Self::Regress { .. } => 1,
        }
    }
}

pub(super) fn no_file() -> Failure {
    Failure::new("a table lies in a file, which was not named")
        .fix("for example: polygrad train table houses.csv --target price")
}

impl Settings {
    /// The settings of a new run. Those that depend on the table are still empty.
    ///
    /// # Errors
    /// A missing file, or no target.
    pub(super) fn of_options(args: &TrainArgs) -> Result<Self> {
        let data = place(args.path.as_deref(), args.data.as_deref())?.ok_or_else(no_file)?;
        let target = args.target.clone().ok_or_else(|| {
            Failure::new("the column to be predicted was not named")
                .fix("for example: polygrad train table houses.csv --target price")
        })?;
        if args.ignore.contains(&target) {
            let what = format!("the target {target:?} cannot be left out");
            return Err(Failure::new(what).fix("predict another column, or ignore another"));
        }
        Ok(Self {
            training: Training {
                qat: args.qat,
                ..Training::new(Kind::Table, &args.every, &args.examples, (100, 64, 0.003))
            },
            data: Some(data),
            checksum: String::new(),
            rows: 0,
            target,
            columns: Vec::new(),
            ignored: args.ignore.clone(),
            reading: Reading {
                missing: args.missing.clone(),
                categorical: args.categorical.clone(),
                decimal_comma: args.decimal_comma,
            },
            validation_split: args.validation_split.unwrap_or(0.2),
            optimizer: args.optimizer.unwrap_or(Optimizer::AdamW),
            hidden: vec![64, 64],
            goal: match (args.classify, args.regress) {
                (true, _) => Goal::Classify { classes: Vec::new() },
                (_, true) => Goal::Regress { mean: 0.0, std: 1.0 },
                _ => Goal::Either,
            },
            encoder: None,
        })
    }

    /// Fills in the settings that depend on the table.
    ///
    /// # Errors
    /// A column that is missing or unsuitable for learning; too few rows.
    pub(super) fn fit(&mut self, data: &Data) -> Result<()> {
        let (table, place) = (&data.table, &data.place);
        let bad = |what: String, fix: String| Failure::new(format!("{place}: {what}")).fix(fix);
        if table.rows() < FEWEST {
            let what = format!("{} rows are too few to learn from and to be judged by", table.rows());
            return Err(bad(what, format!("give a table of {FEWEST} rows or more")));
        }
        for name in [&self.target]
            .into_iter()
            .chain(&self.ignored)
            .chain(&self.reading.categorical)
        {
            table.column(name).map_err(|e| unfit(place, &e))?;
        }
        let ignored: HashSet<&String> = self.ignored.iter().collect();
        let used = |name: &&String| **name != self.target && !ignored.contains(name);
        self.columns = table.names().iter().filter(used).cloned().collect();
        if self.columns.is_empty() {
            let what = format!("there is no column to predict {:?} from", self.target);
            return Err(bad(what, "give a table with more columns, or ignore fewer".to_owned()));
        }
        for name in self.columns.iter().chain([&self.target]) {
            data.must_be_told(name)?;
        }
        for name in &self.columns {
            let column = table.column(name)?;
            if let Column::Text(cells) = column {
                let words = cells.iter().collect::<BTreeSet<_>>().len();
                if words > WORDS {
                    let what = format!("the column {name:?} has {} different texts", grouped(words as u64));
                    return Err(bad(what, format!("leave it out: --ignore {name:?}")));
                }
            }
            must_be_small(column).map_err(|what| {
                bad(
                    format!("the column {name:?} {what}"),
                    format!("give it in another unit, or leave it out: --ignore {name:?}"),
                )
            })?;
        }
        self.checksum = checksum(table)?;
        self.rows = table.rows();
        let train = self.parts(data)?.0;
        self.goal = self.goal_in(table, &train).map_err(|(what, fix)| {
            let what = format!("the target {:?} {what}", self.target);
            bad(what, fix)
        })?;
        let columns: Vec<&str> = self.columns.iter().map(String::as_str).collect();
        self.encoder = Some(TableEncoder::fit(&train, &columns).map_err(|e| unfit(place, &e))?);
        self.must_be_short().map_err(|(what, fix)| bad(what, fix))
    }

    /// Fails if the settings about the table exceed the length that can be read again.
    ///
    /// # Errors
    /// The longest part, and the fix.
    fn must_be_short(&self) -> std::result::Result<(), (String, String)> {
        let said = (&self.target, &self.columns, &self.ignored, &self.goal, &self.encoder);
        let said = serde_json::to_value(said).map_err(|e| (e.to_string(), String::new()))?;
        let length = format!("{said:#}").len() as u64;
        if length <= LONGEST - REST {
            return Ok(());
        }
        let size = |value: &&Value| value.to_string().len();
        let columns = said[4]["columns"].as_array().into_iter().flatten();
        let (widest, fix) = match columns.max_by_key(size) {
            Some(column) if size(&column) > size(&&said[3]) => {
                (&column[0], format!("leave it out: --ignore {}", column[0]))
            }
            _ => (&said[0], "give another --target, or shorter classes".to_owned()),
        };
        let length = grouped(length);
        Err((
            format!("texts and names would make {length} bytes of settings, which is too long, {widest} most of them"),
            fix,
        ))
    }

    /// Fails if a table has a column that was missing in training, since its name may be a mistake.
    ///
    /// # Errors
    /// The first such column.
    pub(super) fn must_know(&self, data: &Data) -> Result<()> {
        let known: HashSet<&String> = self.columns.iter().chain(&self.ignored).chain([&self.target]).collect();
        for name in &self.columns {
            let column = data.table.column(name).map_err(|e| unfit(&data.place, &e))?;
            must_be_small(column).map_err(|what| {
                Failure::new(format!("{}: the column {name:?} {what}", data.place))
                    .fix("correct the cell, or leave it empty")
            })?;
        }
        self.encoder()?.check(&data.table).map_err(|e| {
            let failure = unfit(&data.place, &e);
            match e.kind() {
                ErrorKind::DType => failure.fix(
                    "leave cells without a value empty and correct the others; a run keeps the --missing that it was \
                     trained with",
                ),
                _ => failure,
            }
        })?;
        match data.table.names().iter().find(|name| !known.contains(name)) {
            None => Ok(()),
            Some(name) => Err(Failure::new(format!(
                "{} has a column {name:?}, which the table of training had not",
                data.place
            ))
            .fix("take the column out, or train anew with it")),
        }
    }

    /// The kind of target: classes are taken from all rows, the scale from the training rows.
    ///
    /// # Errors
    /// The problem, and the fix.
    fn goal_in(&self, table: &Table, train: &Table) -> std::result::Result<Goal, (String, String)> {
        let column = table.column(&self.target).map_err(|e| (e.to_string(), String::new()))?;
        let empty: Vec<usize> = match column {
            Column::Numbers(numbers) => places(numbers, |x| !x.is_finite()),
            Column::Text(cells) => places(cells, |cell| cell.trim().is_empty()),
            _ => Vec::new(),
        };
        if !empty.is_empty() {
            let what = format!("has empty or infinite cells: {}", rows_named(&empty));
            return Err((what, "fill these cells, or take these rows out".to_owned()));
        }
        let anew = || "give rows with other values, or another --target".to_owned();
        match (&self.goal, column) {
            (Goal::Either | Goal::Classify { .. }, Column::Text(_)) | (Goal::Classify { .. }, _) => {
                let classes = classes(column)?;
                match classes.len() {
                    0 | 1 => Err((format!("is {:?} in every row", classes.concat()), anew())),
                    2..=WORDS => Ok(Goal::Classify { classes }),
                    many => Err((
                        format!(
                            "has {} classes in {} rows",
                            grouped(many as u64),
                            grouped(table.rows() as u64)
                        ),
                        "predict a number with --regress, or give another --target".to_owned(),
                    )),
                }
            }
            (Goal::Regress { .. }, Column::Text(cells)) => {
                let word = cells.iter().find(|cell| cell.trim().parse::<f64>().is_err());
                let what = format!("is no number: it has {:?}", word.map_or("", String::as_str));
                Err((what, "leave --regress out, or correct the cell".to_owned()))
            }
            (_, column) => {
                must_be_small(column).map_err(|what| (what, "give it in another unit".to_owned()))?;
                let numbers = train
                    .numbers(&self.target)
                    .map_err(|e| (e.to_string(), String::new()))?;
                let count = numbers.len() as f64;
                let mean = numbers.iter().sum::<f64>() / count;
                let std = (numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count).sqrt();
                if numbers.iter().all(|&x| x == numbers[0]) {
                    return Err((format!("is {} in every training row", short(numbers[0])), anew()));
                }
                if std == 0.0 {
                    let what = format!("has values such as {:e}, which are too small to tell apart", numbers[0]);
                    return Err((what, "give it in another unit".to_owned()));
                }
                if self.goal == Goal::Either
                    && let Some(few) = classes(column).ok().filter(|classes| classes.len() <= 10)
                {
                    note(&format!(
                        "{:?} has {} different values, which are learnt as numbers; --classify makes them classes",
                        self.target,
                        few.len()
                    ));
                }
                Ok(Goal::Regress { mean, std })
            }
        }
    }
}

/// The values of a column, each once.
///
/// # Errors
/// Numbers that are not integers, and the fix.
fn classes(column: &Column) -> std::result::Result<Vec<String>, (String, String)> {
    match column {
        Column::Numbers(numbers) => {
            if let Some(x) = numbers.iter().find(|&&x| whole(x).is_none()) {
                let why = if x.fract() == 0.0 {
                    "too large for the number of a class"
                } else {
                    "no whole number and so no class"
                };
                let what = format!("has {}, which is {why}", short(*x));
                return Err((what, "leave --classify out, or give whole numbers or words".to_owned()));
            }
            let distinct: BTreeSet<i64> = numbers.iter().map(|&x| x as i64).collect();
            Ok(distinct.into_iter().map(|x| x.to_string()).collect())
        }
        Column::Text(cells) => {
            let distinct: BTreeSet<&String> = cells.iter().collect();
            Ok(distinct.into_iter().cloned().collect())
        }
        _ => Ok(Vec::new()),
    }
}

/// The class name of an integer, independent of its notation.
pub(super) fn whole(x: f64) -> Option<String> {
    (x.fract() == 0.0 && x.abs() <= 1e15).then(|| (x as i64).to_string())
}

/// # Errors
/// The problem.
fn must_be_small(column: &Column) -> std::result::Result<(), String> {
    let Column::Numbers(numbers) = column else {
        return Ok(());
    };
    match numbers.iter().find(|x| x.abs() > LARGEST) {
        Some(x) => Err(format!("has {x:e}, which is too large to compute with")),
        None => Ok(()),
    }
}

fn places<T>(cells: &[T], is_bad: impl Fn(&T) -> bool) -> Vec<usize> {
    cells
        .iter()
        .enumerate()
        .filter(|(_, cell)| is_bad(cell))
        .map(|(at, _)| at)
        .collect()
}
