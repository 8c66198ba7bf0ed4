//! `config.json`: everything that defines a run, so that it can be evaluated, repeated and resumed.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::atomic;
use crate::failure::{Failure, Result};

/// Raised when an older program could no longer read the file.
const FORMAT: u32 = 1;

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
    /// The name of the data set.
    pub(crate) dataset: String,
    /// `--data`, as an absolute path.
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

impl Config {
    /// The form that this program writes.
    pub(crate) const FORMAT: u32 = FORMAT;

    /// Writes the file, all or nothing.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self)
            .map_err(|e| Failure::new(format!("cannot write {}: {e}", path.display())))?;
        text.push('\n');
        atomic::write(path, text.as_bytes())
    }

    /// Reads the file and checks that its values make sense.
    ///
    /// # Errors
    /// A file that cannot be read, is no JSON, lacks a setting, or has an impossible one.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::io("read", path, &e))?;
        let bad = |what: &str| {
            Failure::new(format!("{} is no settings of a run: {what}", path.display()))
                .fix("mend the file, or train anew")
        };
        let config: Self = serde_json::from_str(&text).map_err(|e| bad(&e.to_string()))?;
        if config.format != FORMAT {
            return Err(bad(&format!(
                "its format is {}, Polygrad {} reads {FORMAT}",
                config.format,
                env!("CARGO_PKG_VERSION")
            )));
        }
        let Input {
            channels,
            rows,
            cols,
            mean,
            std,
        } = config.input;
        // A checkpoint of nonsense sizes must not get as far as asking for memory.
        let sizes = [
            channels,
            rows,
            cols,
            config.classes.len(),
            config.batch_size,
            config.epochs,
        ];
        if sizes.iter().any(|&n| n == 0 || n > 1 << 24) {
            return Err(bad(
                "a size, the epochs, the batch size or the classes are zero or absurd",
            ));
        }
        if !(mean.is_finite() && std.is_finite() && std > 0.0 && config.lr.is_finite() && config.lr > 0.0) {
            return Err(bad(
                "the mean, the standard deviation or the learning rate is no sensible number",
            ));
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config {
            format: FORMAT,
            polygrad: "0.1.0".into(),
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

    #[test]
    fn comes_back_to_the_last_bit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        config().save(&path).unwrap();
        assert_eq!(Config::load(&path).unwrap(), config());
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.contains("\"optimizer\": \"adamw\"") && text.contains("\"model\": \"cnn\""),
            "{text}"
        );
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
            (whole.replace("\"rows\":28", "\"rows\":0"), "zero or absurd"),
            (whole.replace("\"rows\":28", "\"rows\":99999999999"), "zero or absurd"),
            (whole.replace("\"lr\":0.001", "\"lr\":-1.0"), "no sensible number"),
            (whole.replace("cnn", "vit"), "unknown variant `vit`"),
        ] {
            std::fs::write(&path, &text).unwrap();
            let error = Config::load(&path).unwrap_err().to_string();
            assert!(
                error.contains("config.json") && error.contains(words),
                "{error}\nshould contain {words}"
            );
        }
    }
}
