//! The words after `polygrad train`: they determine the kind of run, whose options are then used to parse them.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Args, Command};
use clap_lex::RawArgs;

use crate::args::Every;
use crate::failure::{Failure, Result, Shown};
#[cfg(feature = "text")]
use crate::finetune;
use crate::kind::Kind;
use crate::negatives;
#[cfg(feature = "rl")]
use crate::rl;
use crate::{chargpt, images, table};

/// The options of one kind of run.
pub(crate) trait RunArgs: Args {
    /// A description of such a run, in one line.
    const ABOUT: &'static str;
    /// The usage of the command, in lines.
    const USAGE: &'static str;

    /// The options common to all runs.
    fn every(&self) -> &Every;

    /// Whether the optimizer's moments are sharded over the processes.
    fn shards(&self) -> bool {
        false
    }
}

/// What follows `polygrad train`.
#[derive(Debug, Args)]
pub(crate) struct Line {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    words: Vec<OsString>,
}

/// What must be known before the options can be determined.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Scanned {
    pub(super) dataset: Option<String>,
    pub(super) resume: Option<PathBuf>,
    pub(super) parallel: Option<String>,
    /// Whether help is requested.
    pub(super) wants_help: bool,
    /// The names of the given options, and the number of positional words.
    options: Vec<String>,
    bare: usize,
}

impl Line {
    #[cfg(test)]
    pub(crate) fn of(words: &str) -> Self {
        Self {
            words: words.split(' ').map(OsString::from).collect(),
        }
    }

    #[cfg(feature = "sweep")]
    pub(super) fn new(words: Vec<OsString>) -> Self {
        Self { words }
    }

    /// The same line after another word.
    #[cfg(feature = "text")]
    pub(crate) fn after(mut self, word: &str) -> Self {
        self.words.insert(0, word.into());
        self
    }

    /// Finds the words that determine the kind of run.
    pub(super) fn scan(&self) -> Scanned {
        let commands = Options::all();
        let takes_value = |name: &str| commands.iter().any(|options| options.takes_value(name));
        let may_lack_one = |name: &str| commands.iter().any(|options| options.may_lack_value(name));
        let mut scanned = Scanned::default();
        let words = RawArgs::new(&self.words);
        let mut cursor = words.cursor();
        while let Some(word) = words.next(&mut cursor) {
            if let Some((name, value)) = word.to_long() {
                let name = name.map_or_else(|name| name.to_string_lossy().into_owned(), str::to_owned);
                let is_option = |word: &OsStr| word.as_encoded_bytes().starts_with(b"-");
                let value = match value {
                    None if may_lack_one(&name) && words.peek_os(&cursor).is_none_or(is_option) => None,
                    None if takes_value(&name) => words.next_os(&mut cursor),
                    value => value,
                };
                match name.as_str() {
                    // The folder may have any name.
                    "resume" => scanned.resume = value.map(PathBuf::from),
                    "parallel" => scanned.parallel = value.map(|engine| engine.to_string_lossy().into_owned()),
                    "help" => scanned.wants_help = true,
                    _ => {}
                }
                scanned.options.push(name);
            } else if word.to_value_os() == "-h" {
                scanned.wants_help = true;
            } else if !word.is_short() && !word.is_stdio() && !word.is_escape() {
                scanned.bare += 1;
                let dataset = || word.to_value_os().to_string_lossy().into_owned();
                scanned.dataset.get_or_insert_with(dataset);
            }
        }
        scanned
    }

    /// Parses them as the options of one kind of run.
    ///
    /// # Errors
    /// Errors of clap, including help.
    pub(crate) fn read<A: RunArgs>(&self) -> std::result::Result<A, clap::Error> {
        let command = command::<A>(Command::new("polygrad train")).no_binary_name(true);
        A::from_arg_matches(&command.try_get_matches_from(&self.words)?)
    }
}

/// The message if the kind of run is unknown: an overview of the kinds if help is requested, or else that a word is
/// missing.
pub(super) fn overview(wants_help: bool) -> clap::Error {
    let kinds: String = [
        ("fashion-mnist, images DIR", images::TrainArgs::ABOUT),
        ("table FILE", table::TrainArgs::ABOUT),
        ("chargpt", chargpt::TrainArgs::ABOUT),
        #[cfg(feature = "rl")]
        ("cartpole", rl::TrainArgs::ABOUT),
        #[cfg(not(feature = "rl"))]
        ("cartpole", "Train a policy in an environment; needs the feature `rl`"),
        #[cfg(feature = "text")]
        ("finetune MODEL", finetune::TrainArgs::ABOUT),
        #[cfg(not(feature = "text"))]
        (
            "finetune MODEL",
            "Go on training a language model of others; needs the feature `text`",
        ),
    ]
    .iter()
    .map(|(name, about)| format!("  {name:<27}{about}\n"))
    .collect();
    let command = Every::augment_args(Command::new("polygrad train"))
        .about("Train a model and write it, its checkpoints and its curves to a run folder")
        .override_usage("polygrad train DATASET [OPTIONS]\n       polygrad train --resume RUN [OPTIONS]")
        .after_help(format!(
            "What can be trained, each with further options (for example, see `polygrad train table --help`):\n{kinds}"
        ))
        .no_binary_name(true);
    let words: &[&str] = if wants_help { &["--help"] } else { &[] };
    // Without help, the required word is missing.
    let refused = command.try_get_matches_from(words).err();
    refused.unwrap_or_else(|| clap::Error::new(clap::error::ErrorKind::MissingRequiredArgument))
}

fn command<A: RunArgs>(command: Command) -> Command {
    negatives(A::augment_args(command).about(A::ABOUT).override_usage(A::USAGE))
}

/// The options of a kind of run.
struct Options {
    kind: Kind,
    command: Command,
}

impl Options {
    fn all() -> Vec<Self> {
        vec![
            Self::of::<images::TrainArgs>(Kind::Images),
            Self::of::<chargpt::TrainArgs>(Kind::Chargpt),
            Self::of::<table::TrainArgs>(Kind::Table),
            #[cfg(feature = "rl")]
            Self::of::<rl::TrainArgs>(Kind::Rl),
            #[cfg(feature = "text")]
            Self::of::<finetune::TrainArgs>(Kind::Finetune),
        ]
    }

    fn of<A: RunArgs>(kind: Kind) -> Self {
        let command = command::<A>(Command::new(kind.name()));
        Self { kind, command }
    }

    fn find(&self, name: &str) -> Option<&Arg> {
        let mut options = self.command.get_arguments();
        options.find(|option| option.get_long() == Some(name))
    }

    /// Whether the word after an option of this name is its value.
    fn takes_value(&self, name: &str) -> bool {
        let option = self.find(name);
        option.is_some_and(|option| matches!(option.get_action(), ArgAction::Set | ArgAction::Append))
    }

    /// Whether the value of an option of this name is optional.
    fn may_lack_value(&self, name: &str) -> bool {
        let count = self.find(name).and_then(Arg::get_num_args);
        count.is_some_and(|count| count.takes_values() && count.min_values() == 0)
    }

    /// Whether the name of the data is followed by a path.
    fn takes_path(&self) -> bool {
        self.command.get_positionals().count() > 1
    }
}

impl Scanned {
    /// Whether an option was given.
    #[cfg(feature = "sweep")]
    pub(super) fn has(&self, option: &str) -> bool {
        self.options.iter().any(|name| name == option)
    }

    /// Fails if there is an option that only other kinds of runs have.
    ///
    /// # Errors
    /// The first such option.
    pub(super) fn must_fit(&self, kind: Kind) -> Result<()> {
        if let (Kind::Images, Some(name), None) = (kind, &self.dataset, &self.resume) {
            must_be_no_file(name)?;
        }
        let all = Options::all();
        let foreign = |has: &dyn Fn(&Options) -> bool| {
            let kinds: Vec<Kind> = all.iter().filter(|options| has(options)).map(|o| o.kind).collect();
            (!kinds.contains(&kind) && !kinds.is_empty()).then_some(kinds)
        };
        let options = self.options.iter();
        let found = options.map(|name| (format!("--{name}"), foreign(&|options| options.find(name).is_some())));
        // The word after an unknown option may be its value; clap reports the option.
        let is_known = |name: &String| all.iter().any(|options| options.find(name).is_some());
        let has_path = self.bare > 1 && self.options.iter().all(is_known);
        let path = (
            "a path".to_owned(),
            foreign(&|options| options.takes_path()).filter(|_| has_path),
        );
        for (what, kinds) in found.chain([path]) {
            if let Some(kinds) = kinds {
                return Err(kind.foreign(&what, &kinds));
            }
        }
        Ok(())
    }
}

/// Fails if a file is given in the place of what it is for.
///
/// # Errors
/// The file, and the words to put before it.
fn must_be_no_file(name: &str) -> Result<()> {
    let path = Path::new(name);
    let ending = path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase);
    let fix = match ending.as_deref() {
        Some("csv") => format!("polygrad train table {} --target COLUMN", path.shown()),
        Some("jsonl") => format!("polygrad finetune MODEL --data {}", path.shown()),
        Some("txt") => format!("polygrad train chargpt --text {}", path.shown()),
        _ if path.is_file() => "`polygrad train --help` lists what can be trained".to_owned(),
        _ => return Ok(()),
    };
    Err(Failure::new(format!("{} is a file, and what it is for comes first", path.shown())).fix(fix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::TrainArgs;
    use crate::images::config::Model;
    use crate::run::config::Optimizer;

    fn kind(words: &str) -> Result<Kind> {
        let scanned = Line::of(words).scan();
        let kind = Kind::of_dataset(scanned.dataset.as_deref().unwrap_or_default());
        scanned.must_fit(kind).map(|()| kind)
    }

    #[test]
    fn the_definitions_are_sound() {
        for options in Options::all() {
            options.command.debug_assert();
        }
    }

    #[test]
    fn the_first_word_that_is_no_value_names_the_kind() {
        for (words, wanted) in [
            ("fashion-mnist --epochs 3", Kind::Images),
            ("--seed 1 --parallel=mpi table houses.csv --target price", Kind::Table),
            ("--lr 0.1 --tui chargpt", Kind::Chargpt),
            ("--async cartpole --envs 3", Kind::Rl),
            ("--target price table houses.csv --missing -", Kind::Table),
        ] {
            assert_eq!(kind(words).unwrap(), wanted, "{words}");
        }
        let scanned = Line::of("llama --lora --parallel mpi --data a.jsonl").scan();
        assert_eq!(scanned.parallel.as_deref(), Some("mpi"));
        let scanned = Line::of("--seed 1 --parallel=mpi:timeout=3 --resume runs/a --shard-optimizer -h").scan();
        assert_eq!((scanned.dataset, scanned.resume), (None, Some("runs/a".into())));
        assert_eq!(
            (scanned.parallel.as_deref(), scanned.wants_help),
            (Some("mpi:timeout=3"), true)
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_run_may_have_any_name() {
        use std::os::unix::ffi::OsStringExt;
        let name = OsString::from_vec(b"runs/\xff".to_vec());
        for words in [
            vec!["--resume".into(), name.clone()],
            vec![OsString::from_vec(b"--resume=runs/\xff".to_vec())],
        ] {
            assert_eq!(Line { words }.scan().resume, Some(PathBuf::from(&name)));
        }
    }

    #[test]
    fn a_file_in_the_place_of_the_kind_is_told_its_command() {
        for (words, wanted) in [
            (
                "data/houses.csv --target y",
                "polygrad train table data/houses.csv --target COLUMN",
            ),
            ("--seed 1 Cargo.toml", "`polygrad train --help`"),
        ] {
            let error = kind(words).unwrap_err().to_string();
            assert!(error.contains("is a file") && error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn options_of_other_kinds_are_refused_by_name() {
        for (words, wanted) in [
            (
                "chargpt --model cnn",
                "--model is for images, and this is a run of chargpt",
            ),
            ("chargpt pets", "a path is for images and table"),
            ("cartpole --epochs=3", "--epochs is for images and chargpt and table"),
            ("fashion-mnist --envs 2", "--envs is for rl"),
        ] {
            let error = kind(words).unwrap_err().to_string();
            assert!(error.contains(wanted), "{words}: {error}");
        }
        // Options that no kind has are reported by clap.
        assert!(kind("chargpt --colour red").is_ok());
    }

    #[test]
    fn options_are_read() {
        let line = Line::of("fashion-mnist --model mlp --epochs 3 --lr 0.1 --optimizer sgd --full --threads 2");
        let train: TrainArgs = line.read().unwrap();
        assert_eq!(train.every.dataset.as_deref(), Some("fashion-mnist"));
        assert_eq!(
            (train.model, train.examples.epochs, train.every.lr),
            (Some(Model::Mlp), Some(3), Some(0.1))
        );
        assert_eq!((train.optimizer, train.every.threads), (Some(Optimizer::Sgd), Some(2)));
        assert!(train.data.full);
        assert!(Line::of("--resume runs/a").read::<TrainArgs>().is_ok());
        assert!(
            Line::of("fashion-mnist --resume runs/a --epochs 9")
                .read::<TrainArgs>()
                .is_ok()
        );
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for (words, reason) in [
            ("../x", "a folder goes with --data"),
            ("mnist --epochs 0", "1 to 16777216"),
            ("mnist --epochs 20000000", "1 to 16777216"),
            ("mnist --batch-size 16777217", "1 to 16777216"),
            ("mnist --threads 0", "1 or more"),
            ("mnist --seed x", "0 to 18446744073709551615"),
            ("mnist --lr -1", "-1"),
            ("mnist --lr=nan", "above 0"),
            ("mnist --model vit", "mlp, cnn"),
            ("mnist --full --data x", "cannot be used with"),
            ("--resume x --out y", "cannot be used with"),
            ("mnist --colour red", "--colour"),
            ("mnist --shard-optimizer", "--parallel"),
        ] {
            let text = Line::of(words).read::<TrainArgs>().unwrap_err().to_string();
            assert!(text.contains(reason), "{words}: {text}\nshould contain {reason}");
        }
        assert!(overview(false).to_string().contains("DATASET"));
        let help = overview(true).to_string();
        assert!(
            help.contains("polygrad train table --help") && !help.contains("--target"),
            "{help}"
        );
    }
}
