//! Folders of images.

use std::path::{Path, PathBuf};

use polygrad_core::{Error, ErrorKind, Result, printable};

use crate::dataset::{Dataset, fingerprint};
use crate::image::Image;

/// File name endings of images, in lower case.
const ENDINGS: [&str; 3] = ["png", "jpg", "jpeg"];

/// A folder with a subfolder of PNG or JPEG files for each class, as torchvision's `ImageFolder`: classes are numbered
/// in the order of their names, and files may be in nested folders. An example is an RGB image with the number of its
/// class.
#[derive(Clone, Debug)]
pub struct ImageFolder {
    classes: Vec<String>,
    files: Vec<(PathBuf, usize)>,
    left_out: Vec<PathBuf>,
}

impl ImageFolder {
    /// Finds the files without reading them.
    ///
    /// # Errors
    /// A folder that cannot be read, contains no folders, or contains a folder without an image.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let shown = entries(path)?.into_iter().filter(|entry| !hidden(entry));
        let (folders, mut left_out): (Vec<PathBuf>, Vec<PathBuf>) = shown.partition(|entry| entry.is_dir());
        if folders.is_empty() {
            return Err(none(path, "a folder for each class"));
        }
        let (mut classes, mut files) = (Vec::new(), Vec::new());
        for (class, folder) in folders.iter().enumerate() {
            let before = files.len();
            find(folder, &mut |file| match is_image(&file) {
                true => files.push((file, class)),
                false => left_out.push(file),
            })?;
            if files.len() == before {
                return Err(none(folder, "PNG or JPEG files"));
            }
            classes.push(folder.file_name().unwrap_or_default().to_string_lossy().into_owned());
        }
        Ok(Self {
            classes,
            files,
            left_out,
        })
    }

    /// The names of the classes.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The files, each with the number of its class.
    pub fn files(&self) -> &[(PathBuf, usize)] {
        &self.files
    }

    /// The ignored files: those beside the class folders, and those inside them whose names do not end like PNG or JPEG
    /// files, such as `.webp`, `.gif`, `.bmp` and `.tif`. Names that begin with a dot are skipped and not listed.
    pub fn left_out(&self) -> &[PathBuf] {
        &self.left_out
    }
}

impl Dataset for ImageFolder {
    type Item = (Image, usize);

    fn len(&self) -> usize {
        self.files.len()
    }

    fn example(&self, index: usize) -> Result<(Image, usize)> {
        let (file, class) = &self.files[index];
        Ok((Image::open(file)?.to_rgb(), *class))
    }

    fn fingerprint(&self) -> Option<u64> {
        let names = self.files.iter().map(|(file, class)| (file.file_name(), class));
        Some(fingerprint(&(&self.classes, names.collect::<Vec<_>>())))
    }
}

/// The entries of a folder, sorted by name.
fn entries(path: &Path) -> Result<Vec<PathBuf>> {
    let failed = |e| Error::io("read the folder", path, e);
    let entries = std::fs::read_dir(path).map_err(failed)?;
    let mut entries = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<Vec<_>>>()
        .map_err(failed)?;
    entries.sort();
    Ok(entries)
}

fn is_image(path: &Path) -> bool {
    let ending = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    ENDINGS.contains(&ending.as_str())
}

/// Finds the files in a folder and its subfolders.
fn find(path: &Path, found: &mut dyn FnMut(PathBuf)) -> Result<()> {
    for entry in entries(path)? {
        if hidden(&entry) {
            continue;
        }
        // Links are not followed, since they may lead back to a parent folder.
        if entry.is_dir() && !entry.is_symlink() {
            find(&entry, found)?;
        } else {
            found(entry);
        }
    }
    Ok(())
}

fn hidden(path: &Path) -> bool {
    path.file_name().unwrap_or_default().to_string_lossy().starts_with('.')
}

fn none(path: &Path, what: &str) -> Error {
    Error::new(
        ErrorKind::Format,
        format!("{} does not hold {what}", printable(&path.to_string_lossy())),
    )
    .with_hint("images of a class lie in a folder of its name: data/cat/1.png, data/dog/1.png")
}
