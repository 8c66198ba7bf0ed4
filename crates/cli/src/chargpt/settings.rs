//! What defines a run.

use std::path::{Path, PathBuf};

use polygrad::nn::models::Gpt2Config;
use polygrad::train::RunFolder;
use serde::{Deserialize, Serialize};

use crate::args::Train;
use crate::failure::{Failure, Result, Shown};
use crate::progress::short;
use crate::run::config;
use crate::train::settings::Fixed;

/// What such a run is called in place of a data set's name.
pub(crate) const NAME: &str = "chargpt";

/// Raised when an older program could no longer read the settings.
const FORMAT: u32 = 1;

/// The settings of a run, as `config.json` has them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings {
    format: u32,
    /// Tells it from runs of images.
    task: String,
    polygrad: String,
    /// A name that no other run has.
    run: String,
    /// The file, as an absolute path; the plays that come with Polygrad where there is none.
    #[serde(default, with = "crate::run::any_path")]
    pub(super) text: Option<PathBuf>,
    /// The characters that the text has, each once; their places are the tokens.
    pub(super) characters: String,
    pub(super) context: usize,
    layers: usize,
    heads: usize,
    width: usize,
    pub(super) backend: String,
    pub(super) threads: Option<usize>,
    pub(super) epochs: usize,
    pub(super) batch_size: usize,
    pub(super) lr: f64,
    pub(super) seed: u64,
}

/// Whether a run is one of these: by what its checkpoint says.
pub(crate) fn is_one(folder: &RunFolder) -> bool {
    let task = folder
        .settings()
        .ok()
        .and_then(|settings| settings.get("task").cloned());
    task.is_some_and(|task| task == NAME)
}

impl Settings {
    /// Those of a new run; its characters are still unknown.
    ///
    /// # Errors
    /// Options that are for images; a file that is not there.
    pub(super) fn new(args: &Train) -> Result<Self> {
        for (option, given) in [
            ("--model", args.model.is_some()),
            ("--optimizer", args.optimizer.is_some()),
            ("--size", args.size.is_some()),
            ("--data", args.data.folder.is_some()),
            ("--full", args.data.full),
            ("a folder", args.path.is_some()),
        ] {
            if given {
                return Err(
                    Failure::new(format!("{option} is for images, and {NAME} learns from a text"))
                        .fix("leave it out; --text FILE names the text"),
                );
            }
        }
        let text = args
            .text
            .as_deref()
            .map(|path| path.canonicalize().map_err(|e| Failure::io("read", path, &e)));
        Ok(Self {
            format: FORMAT,
            task: NAME.to_owned(),
            polygrad: env!("CARGO_PKG_VERSION").to_owned(),
            run: config::fresh_name(),
            text: text.transpose()?,
            characters: String::new(),
            context: 128,
            layers: 4,
            heads: 4,
            width: 144,
            backend: args.backend.clone().unwrap_or_else(|| "cpu".to_owned()),
            threads: args.threads,
            epochs: args.epochs.unwrap_or(5),
            batch_size: args.batch_size.unwrap_or(32),
            lr: args.lr.unwrap_or(0.002),
            seed: args.seed.unwrap_or(0),
        })
    }

    /// Those that a run's checkpoint has.
    ///
    /// # Errors
    /// A checkpoint that cannot be read or is none of such a run.
    pub(super) fn of_run(folder: &RunFolder) -> Result<Self> {
        let unfit = |why: &str| {
            Failure::new(format!(
                "{} is no checkpoint of {NAME}: {why}",
                folder.checkpoint().shown()
            ))
            .fix("start a new run without --resume")
        };
        let settings: Self = serde_json::from_value(folder.settings()?).map_err(|e| unfit(&e.to_string()))?;
        let sizes = [settings.context, settings.layers, settings.heads, settings.width];
        let counts = [settings.epochs, settings.batch_size];
        // Nonsense must not get as far as asking for memory.
        let is_sane = settings.format == FORMAT
            && sizes.iter().all(|size| (1..=1 << 12).contains(size))
            && counts.iter().all(|count| config::COUNTS.contains(count))
            && !settings.characters.is_empty()
            && config::learning_rate(settings.lr).is_ok();
        match is_sane {
            true => Ok(settings),
            false => Err(unfit("its settings make no sense")),
        }
    }

    /// Those with which a run goes on: more epochs, another backend or threads.
    ///
    /// # Errors
    /// Options that ask for something else than the run has.
    pub(super) fn resumed(mut self, args: &Train, run: &Path) -> Result<Self> {
        let text = args
            .text
            .as_deref()
            .map(|text| text.canonicalize().unwrap_or_else(|_| text.to_owned()));
        let shown = |path: Option<&PathBuf>| path.map_or_else(|| "the plays".to_owned(), |path| path.shown());
        let of = |number: usize| number.to_string();
        let mut fixed = Fixed::default();
        fixed.option("the data set", args.dataset.clone(), NAME.to_owned());
        fixed.option(
            "--text",
            text.as_ref().map(|text| text.shown()),
            shown(self.text.as_ref()),
        );
        fixed.option("--batch-size", args.batch_size.map(of), of(self.batch_size));
        fixed.option("--lr", args.lr.map(short), short(self.lr));
        fixed.option("--seed", args.seed.map(|seed| seed.to_string()), self.seed.to_string());
        let fewer = args.epochs.filter(|&epochs| epochs < self.epochs);
        fixed.option("--epochs", fewer.map(of), of(self.epochs));
        fixed.check(run)?;
        self.epochs = args.epochs.unwrap_or(self.epochs);
        if let Some(backend) = &args.backend {
            (self.backend, self.threads) = (backend.clone(), None);
        }
        self.threads = args.threads.or(self.threads);
        Ok(self)
    }

    /// The model.
    pub(super) fn config(&self) -> Gpt2Config {
        Gpt2Config {
            vocab_size: self.characters.chars().count(),
            n_positions: self.context,
            n_embd: self.width,
            n_layer: self.layers,
            n_head: self.heads,
            resid_pdrop: 0.0,
            embd_pdrop: 0.0,
            attn_pdrop: 0.0,
            ..Gpt2Config::default()
        }
    }
}
