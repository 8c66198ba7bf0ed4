//! A folder of images, with a subfolder for each class.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use polygrad::data::{Dataset as _, ImageFolder, random_split};

use super::files::{Dataset, Split};
use crate::failure::{Failure, Result, Shown};
use crate::progress::{grouped, note};

/// Names of the test part, if it is separate from the training part.
const TESTS: [&str; 4] = ["test", "val", "valid", "validation"];

/// Threads that read files while the model trains.
const WORKERS: usize = 2;

/// Loads the images below `path` in `size` × `size` pixels: those of `train` and of `test` (or `val`) if there are such
/// folders, else four fifths for training and the rest for testing, chosen by the seed.
///
/// # Errors
/// A folder that cannot be read or holds no classes; parts with different classes; too few images.
pub(crate) fn load(path: &Path, size: usize, seed: u64) -> Result<Dataset> {
    let train = path.join("train");
    if train.is_dir() {
        let Some(test) = TESTS.iter().map(|name| path.join(name)).find(|part| part.is_dir()) else {
            return Err(Failure::new(format!(
                "{} has a folder train and none called test or val",
                path.shown()
            ))
            .fix("put the images to judge by into one called test"));
        };
        let (train, test) = (ImageFolder::open(&train)?, ImageFolder::open(&test)?);
        tell([&train, &test]);
        if train.classes() != test.classes() {
            return Err(Failure::new(format!(
                "the two parts of {} have other classes: {:?} and {:?}",
                path.shown(),
                train.classes(),
                test.classes()
            ))
            .fix("give both parts the same folders"));
        }
        return Ok(Dataset {
            classes: train.classes().to_vec(),
            train: split(&Arc::new(train), None, size)?,
            test: split(&Arc::new(test), None, size)?,
        });
    }
    let all = Arc::new(ImageFolder::open(path)?);
    tell([&*all]);
    let fifth = all.len() / 5;
    if fifth == 0 {
        return Err(Failure::new(format!("{} holds {} images", path.shown(), all.len()))
            .fix("give at least five, of which one is to judge by"));
    }
    let indices: Vec<usize> = (0..all.len()).collect();
    let [train, test] = random_split(indices, [all.len() - fifth, fifth], seed)?;
    let part = |indices: &[usize]| split(&all, Some(indices.to_vec()), size);
    Ok(Dataset {
        classes: all.classes().to_vec(),
        train: part(train.indices())?,
        test: part(test.indices())?,
    })
}

/// Reports the files that are left out, if any.
fn tell<'a>(folders: impl IntoIterator<Item = &'a ImageFolder>) {
    let left_out: Vec<&Path> = folders
        .into_iter()
        .flat_map(|folder| folder.left_out().iter().map(PathBuf::as_path))
        .collect();
    if let Some(what) = left_out_named(&left_out) {
        note(&what);
    }
}

/// The number of files left out, by extension.
fn left_out_named(left_out: &[&Path]) -> Option<String> {
    let first = left_out.first()?;
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    for path in left_out {
        let kind = match path.extension() {
            Some(ending) => format!(".{}", ending.to_string_lossy().to_lowercase()),
            None => "without an ending".to_owned(),
        };
        *kinds.entry(kind).or_default() += 1;
    }
    let mut kinds: Vec<(String, u64)> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let kinds: Vec<String> = kinds
        .iter()
        .map(|(kind, count)| format!("{} {kind}", grouped(*count)))
        .collect();
    Some(format!(
        "warning: left out {} files that are not PNG or JPEG files of a class: {}; such as {}",
        grouped(left_out.len() as u64),
        kinds.join(", "),
        first.shown()
    ))
}

/// The images at `indices`, or all.
fn split(folder: &Arc<ImageFolder>, indices: Option<Vec<usize>>, size: usize) -> polygrad::Result<Split> {
    let indices = indices.unwrap_or_else(|| (0..folder.len()).collect());
    let labels: Vec<usize> = indices.iter().map(|&index| folder.files()[index].1).collect();
    let images = Arc::clone(folder).subset(indices)?;
    let images = images.map(move |(image, _)| image.resize(size, size));
    Ok(Split {
        images: Arc::new(images),
        labels: Arc::new(labels),
        shape: [3, size, size],
        workers: WORKERS,
    })
}

#[cfg(test)]
mod tests {
    use polygrad::data::Image;

    use super::*;
    use crate::data::testing::scratch;

    fn put(dir: &Path, name: &str, grey: u8) {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let image = Image::new(1, 3, 5, vec![grey; 15]).unwrap();
        std::fs::write(path, image.to_png().unwrap()).unwrap();
    }

    #[test]
    fn folders_are_classes_and_a_fifth_is_to_judge_by() {
        let dir = scratch();
        for i in 0..10 {
            put(
                dir.path(),
                &format!("{}/{i}.png", ["bright", "dark"][i % 2]),
                255 - 200 * (i % 2) as u8,
            );
        }
        let data = load(dir.path(), 8, 1).unwrap();
        assert_eq!(data.classes, ["bright", "dark"]);
        assert_eq!((data.train.labels.len(), data.test.labels.len()), (8, 2));
        for split in [&data.train, &data.test] {
            for (i, &label) in split.labels.iter().enumerate() {
                let image = split.images.example(i).unwrap();
                assert_eq!((image.height(), image.width(), image.channels()), (8, 8, 3));
                assert_eq!(image.pixels()[0] > 100, label == 0);
            }
        }
        assert_eq!(load(dir.path(), 8, 1).unwrap().test.labels, data.test.labels);
    }

    #[test]
    fn parts_that_are_there_are_taken() {
        let dir = scratch();
        put(dir.path(), "train/a/1.png", 0);
        put(dir.path(), "train/b/1.png", 9);
        let error = |dir: &Path| load(dir, 8, 0).err().unwrap().to_string();
        assert!(
            error(dir.path()).contains("none called test or val"),
            "{}",
            error(dir.path())
        );
        put(dir.path(), "val/a/1.png", 0);
        assert!(error(dir.path()).contains("other classes"), "{}", error(dir.path()));
        put(dir.path(), "val/b/1.png", 9);
        let data = load(dir.path(), 8, 0).unwrap();
        assert_eq!((&*data.train.labels, &*data.test.labels), (&vec![0, 1], &vec![0, 1]));
        let few = scratch();
        put(few.path(), "a/1.png", 0);
        assert!(error(few.path()).contains("holds 1 images"), "{}", error(few.path()));
    }
}
