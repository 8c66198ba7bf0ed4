//! The settings of a run on images.

use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::progress::short;
use crate::run::config::{Optimizer, Training, counts, dataset};

/// The networks that can be trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Model {
    /// Two hidden layers
    Mlp,
    /// Two convolutions and two linear layers
    Cnn,
}

/// The input images of a model.
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

    /// The model's input value for a pixel of 0 to 255.
    pub(crate) fn normalise(&self, pixel: f64) -> f32 {
        ((pixel / 255.0 - self.mean) / self.std) as f32
    }
}

/// The settings of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Config {
    #[serde(flatten)]
    pub(crate) training: Training,
    /// The name of the data set.
    pub(crate) dataset: String,
    /// `--data`, as an absolute path.
    #[serde(default, with = "crate::run::any_path")]
    pub(crate) data: Option<PathBuf>,
    /// `--full`.
    pub(crate) full: bool,
    /// The meaning of each output of the model.
    pub(crate) classes: Vec<String>,
    /// What goes into the model.
    pub(crate) input: Input,
    /// The network.
    pub(crate) model: Model,
    /// Whether half the training images, chosen anew in each epoch, are mirrored horizontally.
    pub(crate) mirror: bool,
    /// How the weights are updated.
    pub(crate) optimizer: Optimizer,
}

impl Config {
    /// Fails if a setting of images is invalid. The error names it and its bounds.
    ///
    /// # Errors
    /// The first invalid setting.
    pub(super) fn check_images(&self) -> Result<(), String> {
        let Input {
            channels,
            rows,
            cols,
            mean,
            std,
        } = self.input;
        dataset(&self.dataset).map_err(|why| format!("dataset: {why}"))?;
        let values = [channels, rows, cols].into_iter().try_fold(1_usize, usize::checked_mul);
        counts(&[
            ("the values of an image", values.unwrap_or(usize::MAX)),
            ("the classes", self.classes.len()),
        ])?;
        // Pixels are from 0 to 1; the model's inputs must be finite numbers.
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

/// Of 2³² pixels all but one have the same value, and that one differs by 1/255: no larger input is possible.
const LARGEST: f32 = 1e8;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::run::config::{COUNTS, LONGEST, fresh_name, load};

    fn config() -> Config {
        Config {
            training: serde_json::from_value(serde_json::json!({
                "format": 1, "polygrad": "0.1.0", "run": fresh_name(), "backend": "cpu", "threads": 2,
                "epochs": 8, "batch_size": 64, "lr": 1e-3, "seed": u64::MAX,
            }))
            .unwrap(),
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
            model: Model::Cnn,
            mirror: true,
            optimizer: Optimizer::AdamW,
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
        assert_eq!(load::<Config>(&path).unwrap(), saved);
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
            let mut bound = config();
            (bound.training.epochs, bound.training.batch_size) = (count, count);
            bound.training.lr = f64::from_bits(1);
            write(&bound, &path);
            assert_eq!(load::<Config>(&path).unwrap(), bound);
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
            assert_eq!(load::<Config>(&path).unwrap(), named);
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
            let error = load::<Config>(&path).unwrap_err().to_string();
            assert!(
                error.contains("config.json") && error.contains(words),
                "{error}\nshould contain {words}"
            );
        }
    }
}
