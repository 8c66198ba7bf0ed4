//! Finds the files of a data set in a folder, and loads and checks them.
//!
//! The names are those that MNIST, Fashion-MNIST, QMNIST and EMNIST are published under:
//! `[PREFIX-]{train,t10k,test}-{images-idx3,images-idx4,labels-idx1}-ubyte[.gz]`, the dash before `idx` may be a dot.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use polygrad::data::{Dataset as _, Idx, Image};
use polygrad::nn::open_file;

use super::FASHION_MNIST;
use crate::failure::{Failure, Result, Shown};

/// The images of one split with a label for each.
#[derive(Clone)]
pub(crate) struct Split {
    /// The images, all of one size.
    pub(crate) images: Arc<dyn polygrad::data::Dataset<Item = Image>>,
    /// One label per image, each below the number of classes.
    pub(crate) labels: Arc<Vec<usize>>,
    /// The shape of each image: channels, height and width.
    pub(crate) shape: [usize; 3],
    /// The number of threads worth using to read them.
    pub(crate) workers: usize,
}

/// A data set.
pub(crate) struct Dataset {
    /// The names of the classes, one for each output of the model.
    pub(crate) classes: Vec<String>,
    /// The training images.
    pub(crate) train: Split,
    /// The test images, of the same size.
    pub(crate) test: Split,
}

/// The four files of a data set, and EMNIST's table of classes if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Files {
    train: Pair,
    test: Pair,
    mapping: Option<PathBuf>,
    /// EMNIST stores every image with rows and columns swapped.
    transposed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pair {
    images: PathBuf,
    labels: PathBuf,
}

/// Finds the files of the data set `name` in `folder`.
///
/// If the folder holds several sets (EMNIST's archive has six), the one with the prefix `name` is used; a folder with a
/// single set needs no such match. An uncompressed file is preferred to its `.gz`.
///
/// # Errors
/// A folder that cannot be read, has no such files, lacks some of the four, or has several sets and none called `name`.
pub(crate) fn find(folder: &Path, name: &str) -> Result<Files> {
    let mut sets: BTreeMap<String, BTreeMap<&str, PathBuf>> = BTreeMap::new();
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)
        .and_then(|dir| dir.map(|entry| entry.map(|e| e.path())).collect())
        .map_err(|e| Failure::io("read the folder", folder, &e))?;
    // "x-ubyte" sorts before "x-ubyte.gz", and the first one found is kept.
    entries.sort();
    for path in &entries {
        let file = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        if let Some((prefix, role)) = recognise(file) {
            sets.entry(prefix)
                .or_default()
                .entry(role)
                .or_insert_with(|| path.clone());
        }
    }
    let prefix = choose(&sets, folder, name)?;
    let set = &sets[&prefix];
    let part = |role: &str| {
        set.get(role).cloned().ok_or_else(|| {
            let have: Vec<String> = set.values().map(|p| file_name(p)).collect();
            Failure::new(format!(
                "{} has no file {prefix}{role}-ubyte or {prefix}{role}-ubyte.gz, only {}",
                folder.shown(),
                have.join(", ")
            ))
            .fix("a data set is four files: training images and labels, test images and labels")
        })
    };
    let mapping = folder.join(format!("{prefix}mapping.txt"));
    Ok(Files {
        train: Pair {
            images: part("train-images-idx3")?,
            labels: part("train-labels-idx1")?,
        },
        test: Pair {
            images: part("t10k-images-idx3")?,
            labels: part("t10k-labels-idx1")?,
        },
        mapping: mapping.is_file().then_some(mapping),
        transposed: prefix.starts_with("emnist-"),
    })
}

/// How a file name can end, and which of the four files it then is.
const ROLES: [(&str, &str); 6] = [
    ("train-images-idx3", "train-images-idx3"),
    ("train-labels-idx1", "train-labels-idx1"),
    ("t10k-images-idx3", "t10k-images-idx3"),
    ("test-images-idx3", "t10k-images-idx3"),
    ("t10k-labels-idx1", "t10k-labels-idx1"),
    ("test-labels-idx1", "t10k-labels-idx1"),
];

/// Splits a file name into its set's prefix (such as `emnist-letters-`, or nothing) and its role.
fn recognise(file: &str) -> Option<(String, &'static str)> {
    let stem = file.strip_suffix(".gz").unwrap_or(file).strip_suffix("-ubyte")?;
    let stem = stem.replace(".idx", "-idx").replace("-idx4", "-idx3");
    ROLES.iter().find_map(|&(end, role)| {
        let prefix = stem.strip_suffix(end)?;
        (prefix.is_empty() || prefix.ends_with('-')).then(|| (prefix.to_owned(), role))
    })
}

fn choose<T>(sets: &BTreeMap<String, T>, folder: &Path, name: &str) -> Result<String> {
    let wanted = format!("{name}-");
    if sets.contains_key(&wanted) {
        return Ok(wanted);
    }
    let mut prefixes = sets.keys();
    match (prefixes.next(), prefixes.next()) {
        (None, _) => Err(Failure::new(format!(
            "{} has no IDX files such as train-images-idx3-ubyte.gz",
            folder.shown()
        ))
        .fix("give --data the folder that the four files lie in")),
        (Some(only), None) => Ok(only.clone()),
        _ => {
            let names: Vec<&str> = sets
                .keys()
                .map(|p| match p.trim_end_matches('-') {
                    "" => "mnist",
                    other => other,
                })
                .collect();
            if sets.contains_key("") && matches!(name, "mnist" | "fashion-mnist") {
                return Ok(String::new());
            }
            Err(Failure::new(format!(
                "{} holds several data sets and none is called {name}: {}",
                folder.shown(),
                names.join(", ")
            ))
            .fix(format!("name one, for example `polygrad train {}`", names[0])))
        }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl Files {
    /// Loads both splits and checks that they fit together.
    ///
    /// # Errors
    /// Damaged files, counts or image sizes that differ, labels beyond the classes of a set with a fixed number.
    pub(crate) fn load(&self, name: &str) -> Result<Dataset> {
        let train = self.load_pair(&self.train)?;
        let test = self.load_pair(&self.test)?;
        if train.shape != test.shape {
            return Err(Failure::new(format!(
                "the images differ in size (channels, rows, columns): {} has {:?}, {} has {:?}",
                self.train.images.shown(),
                train.shape,
                self.test.images.shown(),
                test.shape
            ))
            .fix("take all four files from one data set"));
        }
        let classes = self.classes(name, [(&self.train, &train), (&self.test, &test)])?;
        Ok(Dataset { classes, train, test })
    }

    /// Loads the test split alone.
    ///
    /// # Errors
    /// As for [`Files::load`], as far as the test files go.
    pub(crate) fn load_test(&self) -> Result<Split> {
        self.load_pair(&self.test)
    }

    /// The path of the test images, for messages.
    pub(crate) fn test_images(&self) -> &Path {
        &self.test.images
    }

    fn load_pair(&self, pair: &Pair) -> Result<Split> {
        let mut images = Idx::images(&pair.images)?;
        let labels = Idx::labels(&pair.labels)?;
        if images.len() != labels.len() {
            return Err(Failure::new(format!(
                "{} holds {} images, but {} holds {} labels",
                pair.images.shown(),
                images.len(),
                pair.labels.shown(),
                labels.len()
            ))
            .fix("take both files from one data set"));
        }
        if self.transposed {
            images.transpose();
        }
        Ok(Split {
            shape: [images.channels(), images.height(), images.width()],
            images: Arc::new(images),
            labels: Arc::new(labels),
            // They are in memory already.
            workers: 0,
        })
    }

    /// MNIST and Fashion-MNIST have ten classes; for other sets the number follows from the highest label.
    fn classes(&self, name: &str, splits: [(&Pair, &Split); 2]) -> Result<Vec<String>> {
        let known: Option<Vec<String>> = match name {
            "fashion-mnist" => Some(FASHION_MNIST.map(String::from).to_vec()),
            "mnist" => Some((0..10).map(|digit| digit.to_string()).collect()),
            _ => None,
        };
        let most = |split: &Split| split.labels.iter().copied().max().unwrap_or(0);
        let Some(known) = known else {
            let count = splits.map(|(_, split)| most(split) + 1).into_iter().max().unwrap_or(1);
            let mut names: Vec<String> = (0..count).map(|class| class.to_string()).collect();
            if let Some(path) = &self.mapping {
                apply_mapping(path, &mut names)?;
            }
            return Ok(names);
        };
        for (pair, split) in splits {
            if let Some(at) = split.labels.iter().position(|&label| label >= known.len()) {
                return Err(Failure::new(format!(
                    "{} has the label {} at index {at}, but {name} has {} classes",
                    pair.labels.shown(),
                    split.labels[at],
                    known.len()
                ))
                .fix("for another data set, call it by another name: `polygrad train NAME --data DIR`"));
            }
        }
        Ok(known)
    }
}

/// EMNIST's table: one line per class, the label and the code of its character (further codes are its lower case).
fn apply_mapping(path: &Path, names: &mut [String]) -> Result<()> {
    let mut text = String::new();
    open_file(path)?
        .0
        .read_to_string(&mut text)
        .map_err(|e| Failure::io("read", path, &e))?;
    for (number, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
        let mut words = line.split_whitespace();
        let label: Option<usize> = words.next().and_then(|w| w.parse().ok());
        let codes: Option<String> = words.map(|w| w.parse().ok().and_then(char::from_u32)).collect();
        let (Some(label), Some(codes)) = (label, codes.filter(|c| !c.is_empty())) else {
            return Err(Failure::new(format!(
                "{}, line {}: `{line}` is no label followed by character codes",
                path.shown(),
                number + 1
            ))
            .fix("get the file anew, or remove it to number the classes"));
        };
        if let Some(name) = names.get_mut(label) {
            *name = codes;
        }
    }
    Ok(())
}
