//! Arrays in files: `.npy`, one of them, and `.npz`, several by name.

use std::fs;
use std::io::{Cursor, Read, Write};
use std::path::Path;

use polygrad::backend::HostTensor;
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

use super::npy;
use crate::failure::{Failure, Result};
use crate::run::atomic;

/// Whether the path ends as `.npz` files do.
pub(super) fn is_npz(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("npz"))
}

/// The array of a `.npy` file; of a `.npz` file the one of this name, or the only one.
///
/// # Errors
/// A file that cannot be read or is damaged, or has no such array.
pub(super) fn load(path: &Path, name: &str) -> Result<HostTensor> {
    let bytes = fs::read(path).map_err(|e| Failure::io("read", path, &e))?;
    if !is_npz(path) {
        return npy::read(&bytes).map_err(|reason| broken(path, &reason));
    }
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|e| broken(path, &e.to_string()))?;
    let names = archive.file_names().map(|name| Ok(name?.into_owned()));
    let names: Vec<String> = names
        .collect::<zip::result::ZipResult<_>>()
        .map_err(|e| broken(path, &e.to_string()))?;
    let stem = |entry: &str| entry.strip_suffix(".npy").unwrap_or(entry).to_owned();
    let found = match names.iter().position(|entry| stem(entry) == name) {
        Some(found) => found,
        None if names.len() == 1 => 0,
        None => {
            let known: Vec<String> = names.iter().map(|entry| stem(entry)).collect();
            return Err(Failure::new(format!("{} has no array {name:?}", path.display()))
                .fix(format!("it has {}: rename one to the input's name", known.join(", "))));
        }
    };
    let mut content = Vec::new();
    let entry = archive.by_name(&names[found]).map_err(|e| broken(path, &e.to_string()));
    entry?
        .read_to_end(&mut content)
        .map_err(|e| broken(path, &e.to_string()))?;
    npy::read(&content).map_err(|reason| broken(path, &format!("{}: {reason}", names[found])))
}

/// Writes arrays to a `.npz` file: whole, or not at all.
///
/// # Errors
/// When it cannot be written.
pub(super) fn save(path: &Path, arrays: &[(String, HostTensor)]) -> Result<()> {
    let pack = || -> zip::result::ZipResult<Vec<u8>> {
        let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, host) in arrays {
            let bytes = npy::write(host);
            let options = SimpleFileOptions::default()
                .compression_method(zip::CompressionMethod::Stored)
                .large_file(bytes.len() > u32::MAX as usize);
            archive.start_file(format!("{name}.npy"), options)?;
            archive.write_all(&bytes)?;
        }
        Ok(archive.finish()?.into_inner())
    };
    let bytes = pack().map_err(|e| Failure::new(format!("cannot make {}: {e}", path.display())))?;
    atomic::write(path, &bytes)
}

fn broken(path: &Path, reason: &str) -> Failure {
    Failure::new(format!(
        "{} is no NumPy file that can be read: {reason}",
        path.display()
    ))
    .fix("write it with numpy.save or numpy.savez, as numbers or bools")
}
