//! Finds the folder of a data set: the one the user gave, the subset in the repository, or the full Fashion-MNIST from
//! the system, the user's cache or its web site.

use std::env;
use std::path::{Path, PathBuf};

use super::download;
use super::files::{Files, find};
use crate::failure::{Failure, Result, Shown};

/// The data that the user asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    /// The data set's name.
    pub(crate) dataset: &'a str,
    /// `--data`: the folder that holds it.
    pub(crate) folder: Option<&'a Path>,
    /// `--full`: all of Fashion-MNIST instead of the subset.
    pub(crate) full: bool,
}

/// The places on this machine where data sets may be.
#[derive(Debug)]
pub(crate) struct Places {
    /// Folders that hold one folder per data set, such as the repository's `data`, in the order of search.
    pub(crate) carried: Vec<PathBuf>,
    /// The folder of Debian's package `dataset-fashion-mnist`.
    pub(crate) system: PathBuf,
    /// The user's cache folder for Polygrad, where downloads go.
    pub(crate) cache: Option<PathBuf>,
    /// The address of the full Fashion-MNIST, with a slash at the end.
    pub(crate) home: String,
}

impl Places {
    /// The places of this process: `$POLYGRAD_DATA`, `./data`, the checkout that the binary was built from;
    /// `$XDG_CACHE_HOME/polygrad`, else `~/.cache/polygrad`.
    pub(crate) fn of_this_machine() -> Self {
        let set = |name| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data");
        let cache = set("XDG_CACHE_HOME").or_else(|| {
            env::home_dir()
                .filter(|home| !home.as_os_str().is_empty())
                .map(|home| home.join(".cache"))
        });
        Self {
            carried: set("POLYGRAD_DATA")
                .into_iter()
                .chain([PathBuf::from("data"), checkout.canonicalize().unwrap_or(checkout)])
                .collect(),
            system: PathBuf::from("/usr/share/datasets/fashion-mnist"),
            cache: cache.map(|dir| dir.join("polygrad")),
            home: download::FASHION_MNIST_HOME.to_owned(),
        }
    }

    /// Finds the files for `request`, and downloads them if necessary.
    ///
    /// # Errors
    /// No such data set or folder (naming the places searched), incomplete folders, a failed download.
    pub(crate) fn locate(&self, request: Request<'_>) -> Result<Files> {
        let Request { dataset, folder, full } = request;
        if let Some(folder) = folder {
            return find(folder, dataset);
        }
        if full {
            if dataset != "fashion-mnist" {
                return Err(
                    Failure::new(format!("--full knows where to find fashion-mnist, not {dataset}"))
                        .fix("give the folder of its IDX files with --data DIR"),
                );
            }
            return self.full_fashion_mnist();
        }
        let searched: Vec<PathBuf> = self.carried.iter().map(|place| place.join(dataset)).collect();
        if let Some(found) = searched.iter().find(|place| place.is_dir()) {
            return find(found, dataset);
        }
        let list: Vec<String> = searched.iter().map(|place| place.shown()).collect();
        Err(Failure::new(format!(
            "the data set {dataset} is in none of these folders: {}",
            list.join(", ")
        ))
        .fix(if dataset == "fashion-mnist" {
            "run in a checkout of the repository, set POLYGRAD_DATA to its data folder, or download the full set \
                 with --full"
        } else {
            "give the folder of its IDX files with --data DIR; `polygrad train --help` lists what else can be trained"
        }))
    }

    /// A file that comes with Polygrad, by its path in the data folder.
    ///
    /// # Errors
    /// If it is in none of the places; the error names them.
    pub(crate) fn carried_file(&self, name: &str) -> Result<PathBuf> {
        let searched: Vec<PathBuf> = self.carried.iter().map(|place| place.join(name)).collect();
        searched.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
            let list: Vec<String> = searched.iter().map(|path| path.shown()).collect();
            Failure::new(format!("this file is in none of its places: {}", list.join(", ")))
                .fix("run in a checkout of the repository, or set POLYGRAD_DATA to its data folder")
        })
    }

    fn full_fashion_mnist(&self) -> Result<Files> {
        if self.system.is_dir() {
            return find(&self.system, "fashion-mnist");
        }
        let Some(cache) = &self.cache else {
            return Err(
                Failure::new("no folder to download Fashion-MNIST to: neither XDG_CACHE_HOME nor HOME is set")
                    .fix("set one of them, or give the folder of the four files with --data DIR"),
            );
        };
        let folder = cache.join("fashion-mnist");
        download::fetch_missing(&self.home, &download::FASHION_MNIST, &folder)?;
        find(&folder, "fashion-mnist")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::testing::{idx, scratch};

    fn request(dataset: &str) -> Request<'_> {
        Request {
            dataset,
            folder: None,
            full: false,
        }
    }

    fn places(root: &Path) -> Places {
        Places {
            carried: vec![root.join("first"), root.join("second")],
            system: root.join("system"),
            cache: None,
            home: "http://127.0.0.1:9/".into(),
        }
    }

    fn write_set(folder: &Path) {
        std::fs::create_dir_all(folder).unwrap();
        for split in ["train", "t10k"] {
            let at = |role: &str| folder.join(format!("{split}-{role}-ubyte"));
            std::fs::write(at("images-idx3"), idx(&[1, 2, 2], &[0; 4])).unwrap();
            std::fs::write(at("labels-idx1"), idx(&[1], &[0])).unwrap();
        }
    }

    #[test]
    fn the_first_place_that_has_it_wins() {
        let dir = scratch();
        let places = places(dir.path());
        write_set(&dir.path().join("second/fashion-mnist"));
        let found = places.locate(request("fashion-mnist")).unwrap();
        assert!(found.test_images().starts_with(dir.path().join("second")));
        write_set(&dir.path().join("first/fashion-mnist"));
        let found = places.locate(request("fashion-mnist")).unwrap();
        assert!(found.test_images().starts_with(dir.path().join("first")));
        write_set(&dir.path().join("own"));
        let own = dir.path().join("own");
        let found = places
            .locate(Request {
                folder: Some(&own),
                ..request("anything")
            })
            .unwrap();
        assert!(found.test_images().starts_with(own));
    }

    #[test]
    fn not_found_lists_the_places_and_the_way_out() {
        let dir = scratch();
        let text = places(dir.path())
            .locate(request("fashion-mnist"))
            .unwrap_err()
            .to_string();
        for words in ["first/fashion-mnist", "second/fashion-mnist", "POLYGRAD_DATA", "--full"] {
            assert!(text.contains(words), "{text}\nshould contain {words}");
        }
        let text = places(dir.path()).locate(request("mnist")).unwrap_err().to_string();
        assert!(text.contains("first/mnist") && text.contains("--data DIR"), "{text}");
    }

    #[test]
    fn full_prefers_the_system_and_needs_a_cache() {
        let dir = scratch();
        let places = places(dir.path());
        let full = |dataset| Request {
            full: true,
            ..request(dataset)
        };
        let text = places.locate(full("mnist")).unwrap_err().to_string();
        assert!(text.contains("--full knows"), "{text}");
        let text = places.locate(full("fashion-mnist")).unwrap_err().to_string();
        assert!(text.contains("XDG_CACHE_HOME"), "{text}");
        write_set(&dir.path().join("system"));
        let found = places.locate(full("fashion-mnist")).unwrap();
        assert!(found.test_images().starts_with(dir.path().join("system")));
    }

    #[test]
    fn the_repository_carries_fashion_mnist() {
        let set = Places::of_this_machine()
            .locate(request("fashion-mnist"))
            .and_then(|files| files.load("fashion-mnist"))
            .unwrap();
        assert_eq!((set.train.labels.len(), set.test.labels.len()), (20_000, 5_000));
        for class in 0..10 {
            assert_eq!(set.test.labels.iter().filter(|&&l| l == class).count(), 500);
        }
    }
}
