//! `config.json`: everything that defines a run, so that it can be evaluated, repeated and resumed.

use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use polygrad::nn::open_file;
use serde::{Deserialize, Serialize};

use crate::chargpt;
use crate::failure::{Failure, Result, Shown};
use crate::progress::short;

/// Raised when an older program could no longer read the file.
const FORMAT: u32 = 1;

/// How many epochs, images per step, values of an image or classes a run may have; each at least one. The order of an epoch's images and a
/// model of this many inputs still can be had.
pub(crate) const COUNTS: RangeInclusive<usize> = 1..=1 << 24;

/// A longer file is none of ours: names of 256 classes are the most that grows in it.
const LONGEST: u64 = 1 << 24;

/// The networks that can be trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Model {
    /// Two hidden layers
    Mlp,
    /// Two convolutions and two linear layers
    Cnn,
}

/// The optimizers to train with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Optimizer {
    /// Stochastic gradient descent with Nesterov momentum 0.9
    Sgd,
    /// Adam
    Adam,
    /// Adam with decoupled weight decay
    #[value(name = "adamw")]
    AdamW,
    /// RMSprop
    #[value(name = "rmsprop")]
    RmsProp,
}

/// The images a model takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Input {
    /// 1 for grey.
    pub(crate) channels: usize,
    /// Height in pixels.
    pub(crate) rows: usize,
    /// Width in pixels.
    pub(crate) cols: usize,
    /// The mean of the training images, where 0 is black and 1 is white.
    pub(crate) mean: f64,
    /// Their standard deviation; the model sees `(pixel - mean) / std`.
    pub(crate) std: f64,
}

impl Input {
    /// The number of values in one image.
    pub(crate) fn len(&self) -> usize {
        self.channels * self.rows * self.cols
    }

    /// What the model sees for a pixel of 0 to 255.
    pub(crate) fn normalise(&self, pixel: f64) -> f32 {
        ((pixel / 255.0 - self.mean) / self.std) as f32
    }
}

/// The settings of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Config {
    /// The form of this file.
    pub(crate) format: u32,
    /// The Polygrad that wrote it.
    pub(crate) polygrad: String,
    /// A name that no other run has, so that its files are not taken for another's; runs of before had none.
    #[serde(default)]
    pub(crate) run: String,
    /// The name of the data set.
    pub(crate) dataset: String,
    /// `--data`, as an absolute path.
    #[serde(default, with = "super::any_path")]
    pub(crate) data: Option<PathBuf>,
    /// `--full`.
    pub(crate) full: bool,
    /// What each output of the model means.
    pub(crate) classes: Vec<String>,
    /// What goes into the model.
    pub(crate) input: Input,
    /// The backend, as given.
    pub(crate) backend: String,
    /// Threads of the CPU backend; none means one per core.
    pub(crate) threads: Option<usize>,
    /// The network.
    pub(crate) model: Model,
    /// Epochs in all.
    pub(crate) epochs: usize,
    /// Images per step.
    pub(crate) batch_size: usize,
    /// Whether half the training images, chosen anew in each epoch, are shown with left and right swapped.
    pub(crate) mirror: bool,
    /// The highest learning rate.
    pub(crate) lr: f64,
    /// How the weights are updated.
    pub(crate) optimizer: Optimizer,
    /// Where the random numbers start.
    pub(crate) seed: u64,
}

/// The name of a choice, as on the command line.
pub(crate) fn name(choice: impl ValueEnum) -> String {
    choice
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

/// What tells runs of texts from those of images, which say nothing.
#[derive(Deserialize)]
struct Task {
    task: String,
}

impl Config {
    /// The form that this program writes.
    pub(crate) const FORMAT: u32 = FORMAT;

    /// Reads the file and checks that its values make sense.
    ///
    /// # Errors
    /// A file that cannot be read, is no JSON, lacks a setting, or has an impossible one.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let failed = |e: &std::io::Error| Failure::io("read", path, e);
        let bad = |what: &str| {
            Failure::new(format!("{} is no settings of a run: {what}", path.shown()))
                .fix("mend the file, or train anew")
        };
        let (file, _) = open_file(path)?;
        let mut text = String::new();
        let length = file.take(LONGEST).read_to_string(&mut text).map_err(|e| failed(&e))?;
        if length as u64 == LONGEST {
            return Err(bad("it is too long"));
        }
        if serde_json::from_str(&text).is_ok_and(|Task { task }| task == chargpt::NAME) {
            return Err(
                Failure::new(format!("{} is of a model that writes, not of images", path.shown()))
                    .fix("`polygrad generate RUN` lets it write"),
            );
        }
        let config: Self = serde_json::from_str(&text).map_err(|e| bad(&e.to_string()))?;
        if config.format != FORMAT {
            return Err(bad(&format!(
                "its format is {}, Polygrad {} reads {FORMAT}",
                config.format,
                env!("CARGO_PKG_VERSION")
            )));
        }
        config.check().map_err(|what| bad(&what))?;
        Ok(config)
    }

    /// Fails unless every setting is one with which a run can be trained, written and read again; says which is not, and its bounds.
    ///
    /// # Errors
    /// The first such setting.
    pub(crate) fn check(&self) -> std::result::Result<(), String> {
        let Input {
            channels,
            rows,
            cols,
            mean,
            std,
        } = self.input;
        dataset(&self.dataset).map_err(|why| format!("dataset: {why}"))?;
        // A checkpoint of nonsense sizes must not get as far as asking for memory.
        let values = [channels, rows, cols].into_iter().try_fold(1_usize, usize::checked_mul);
        for (what, count) in [
            ("epochs", self.epochs),
            ("batch_size", self.batch_size),
            ("the values of an image", values.unwrap_or(usize::MAX)),
            ("the classes", self.classes.len()),
        ] {
            if !COUNTS.contains(&count) {
                return Err(format!("{what}: {count} is not {} to {}", COUNTS.start(), COUNTS.end()));
            }
        }
        learning_rate(self.lr).map_err(|why| format!("lr: {why}"))?;
        // Pixels are from 0 to 1; what the model sees of them must be numbers.
        let seen = [0.0, 255.0].map(|pixel| self.input.normalise(pixel));
        if !((0.0..=1.0).contains(&mean) && std > 0.0 && std <= 1.0 && seen.iter().all(|x| x.abs() < LARGEST)) {
            return Err(format!(
                "mean {} and std {} are not those of images, whose pixels are from 0 to 1",
                short(mean),
                short(std)
            ));
        }
        Ok(())
    }
}

/// Of 2³² pixels all but one have the same value, and that one differs by 1/255: nothing the model sees can be larger.
const LARGEST: f32 = 1e8;

/// Fails unless a learning rate makes sense.
///
/// # Errors
/// One that is not above 0, or no number.
pub(crate) fn learning_rate(rate: f64) -> std::result::Result<(), &'static str> {
    match rate.is_finite() && rate > 0.0 {
        true => Ok(()),
        false => Err("give a number above 0, such as 0.001"),
    }
}

/// Fails unless a name is one for a data set, which becomes part of folder names.
///
/// # Errors
/// One that could lead elsewhere.
pub(crate) fn dataset(name: &str) -> std::result::Result<(), &'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match !name.is_empty() && !name.starts_with('.') && name.chars().all(plain) {
        true => Ok(()),
        false => Err("a name is made of letters, digits, `-`, `_` and `.`; a folder goes with --data"),
    }
}

/// A name that no other run has.
pub(crate) fn fresh_name() -> String {
    // The keys are the system's random numbers.
    let random = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", random(), random())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn config() -> Config {
        Config {
            format: FORMAT,
            polygrad: "0.1.0".into(),
            run: fresh_name(),
            dataset: "fashion-mnist".into(),
            data: None,
            full: false,
            classes: vec!["shoe".into(), "bag".into()],
            input: Input {
                channels: 1,
                rows: 28,
                cols: 28,
                mean: 0.286_040_6,
                std: 0.1 + 0.2,
            },
            backend: "cpu".into(),
            threads: Some(2),
            model: Model::Cnn,
            epochs: 8,
            batch_size: 64,
            mirror: true,
            lr: 1e-3,
            optimizer: Optimizer::AdamW,
            seed: u64::MAX,
        }
    }

    fn write(config: &Config, path: &Path) {
        fs::write(path, serde_json::to_string_pretty(config).unwrap()).unwrap();
    }

    #[test]
    fn comes_back_to_the_last_bit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        let saved = config();
        write(&saved, &path);
        assert_eq!(Config::load(&path).unwrap(), saved);
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.contains("\"optimizer\": \"adamw\"") && text.contains("\"model\": \"cnn\""),
            "{text}"
        );
    }

    #[test]
    fn what_is_written_can_be_read_at_every_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        for count in [*COUNTS.start(), *COUNTS.end()] {
            let bound = Config {
                epochs: count,
                batch_size: count,
                lr: f64::from_bits(1),
                ..config()
            };
            write(&bound, &path);
            assert_eq!(Config::load(&path).unwrap(), bound);
        }
        assert_ne!(fresh_name(), fresh_name());
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_of_any_name_comes_back() {
        use std::os::unix::ffi::OsStringExt;

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        for name in [&b"/data/mnist"[..], b"/data/\xff\xfe"] {
            let named = Config {
                data: Some(std::ffi::OsString::from_vec(name.to_vec()).into()),
                ..config()
            };
            write(&named, &path);
            assert_eq!(Config::load(&path).unwrap(), named);
        }
        let text = serde_json::to_string(&config()).unwrap();
        assert!(text.contains("\"data\":null"), "{text}");
    }

    #[test]
    fn damage_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        let whole = serde_json::to_string(&config()).unwrap();
        for (text, words) in [
            (whole[..40].to_owned(), "EOF"),
            (whole.replace("\"seed\"", "\"sead\""), "missing field `seed`"),
            (whole.replace("\"format\":1", "\"format\":2"), "its format is 2"),
            (
                whole.replace("\"rows\":28", "\"rows\":0"),
                "image: 0 is not 1 to 16777216",
            ),
            (
                whole.replace("\"rows\":28", "\"rows\":99999999999"),
                "is not 1 to 16777216",
            ),
            (
                whole.replace("\"epochs\":8", "\"epochs\":16777217"),
                "epochs: 16777217 is not 1 to 16777216",
            ),
            (
                whole.replace("\"batch_size\":64", "\"batch_size\":0"),
                "batch_size: 0 is not",
            ),
            (
                whole.replace("\"lr\":0.001", "\"lr\":-1.0"),
                "lr: give a number above 0",
            ),
            (
                whole.replace("fashion-mnist", "../elsewhere"),
                "dataset: a name is made of",
            ),
            (
                whole.replace("\"std\":0.30000000000000004", "\"std\":1e-30"),
                "std 1e-30 are not those of images",
            ),
            (whole.replace("\"mean\":0.2860406", "\"mean\":-1.0"), "mean -1 and std"),
            (" ".repeat(LONGEST as usize), "too long"),
            (whole.replace("cnn", "vit"), "unknown variant `vit`"),
        ] {
            fs::write(&path, &text).unwrap();
            let error = Config::load(&path).unwrap_err().to_string();
            assert!(
                error.contains("config.json") && error.contains(words),
                "{error}\nshould contain {words}"
            );
        }
    }
}
