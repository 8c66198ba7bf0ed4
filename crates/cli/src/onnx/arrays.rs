//! Arrays in files: `.npy`, one of them, and `.npz`, several by name.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

use polygrad::backend::{DType, HostTensor, printable};
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

/// The array of a `.npy` file; of a `.npz` file the one of this name, or the only one. It takes at most `most` bytes.
///
/// # Errors
/// A file that cannot be read or is damaged, has no such array, or a larger one.
pub(super) fn load(path: &Path, name: &str, most: usize) -> Result<HostTensor> {
    // Asked before it is opened: a pipe would keep us waiting.
    let metadata = path.metadata().map_err(|e| Failure::io("read", path, &e))?;
    if !metadata.is_file() {
        return Err(Failure::new(format!("{} is no ordinary file", path.display()))
            .fix("give a .npy or .npz file, no folder, pipe or device"));
    }
    let mut file = File::open(path).map_err(|e| Failure::io("read", path, &e))?;
    if !is_npz(path) {
        return npy::read(BufReader::new(file), most).map_err(|reason| broken(path, &reason));
    }
    // The archive's own list of what is in it is read at once.
    let mut archive = ZipArchive::new(BufReader::new(&mut file)).map_err(|e| broken(path, &e.to_string()))?;
    let names = archive.file_names().map(|name| Ok(name?.into_owned()));
    let names: Vec<String> = names
        .collect::<zip::result::ZipResult<_>>()
        .map_err(|e| broken(path, &e.to_string()))?;
    let stem = |entry: &str| entry.strip_suffix(".npy").unwrap_or(entry).to_owned();
    let wanted = entry(name);
    let found = match names.iter().position(|known| stem(known) == wanted) {
        Some(found) => found,
        None if names.len() == 1 => 0,
        None if names.is_empty() => {
            return Err(Failure::new(format!("{} holds no arrays", path.display())).fix("write it with numpy.savez"));
        }
        None => {
            let known: Vec<String> = names.iter().map(|known| stem(known)).collect();
            return Err(
                Failure::new(format!("{} has no array {name:?}", path.display())).fix(format!(
                    "it has {}: rename one to the input's name",
                    printable(&known.join(", "))
                )),
            );
        }
    };
    let in_entry = |reason: &str| broken(path, &format!("{}: {reason}", printable(&names[found])));
    let mut content = archive.by_name(&names[found]).map_err(|e| in_entry(&e.to_string()))?;
    let array = npy::read(&mut content, most).map_err(|reason| in_entry(&reason))?;
    // At its end the checksum is compared.
    match content.read(&mut [0]) {
        Ok(0) => Ok(array),
        Ok(_) => Err(in_entry("it holds more bytes than its header says")),
        Err(e) => Err(in_entry(&e.to_string())),
    }
}

/// What an array is called in an archive, without its ending: its name, where that is no path out of the folder in which the archive is
/// unpacked, and is nothing that steers a terminal. Else letters, digits, `-` and `_` stay, and other bytes become `%` and two digits.
pub(super) fn entry(name: &str) -> Cow<'_, str> {
    let drive = name.as_bytes().get(1) == Some(&b':');
    let plain = |part: &str| !matches!(part, "" | "." | "..");
    if !drive && !name.contains('\\') && name.split('/').all(plain) && printable(name) == name {
        return Cow::Borrowed(name);
    }
    let mut escaped = String::with_capacity(name.len() + 16);
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            escaped.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    Cow::Owned(escaped)
}

/// Fails where an archive could not hold arrays of these names.
///
/// # Errors
/// Two of one name.
pub(super) fn check_names<'a>(path: &Path, names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut entries: Vec<Cow<'_, str>> = names.map(entry).collect();
    entries.sort_unstable();
    match entries.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => Err(Failure::new(format!(
            "two outputs of the model are called {:?}: {} cannot hold both",
            pair[0],
            path.display()
        ))
        .fix("run it without --output, or rename one in the model")),
    }
}

/// Writes arrays to a `.npz` file: whole, or not at all.
///
/// # Errors
/// When it cannot be written, or there is no memory for it.
pub(super) fn save(path: &Path, arrays: &[(String, HostTensor)]) -> Result<()> {
    let about = |reason: String| Failure::new(format!("cannot make {}: {reason}", path.display()));
    // Header, entry and name of each, twice the name as it is in the list, too.
    let size = |(name, host): &(String, HostTensor)| {
        let element = if host.dtype() == DType::BF16 {
            4
        } else {
            host.dtype().size()
        };
        host.shape()
            .numel()
            .saturating_mul(element)
            .saturating_add(1024 + 8 * name.len())
    };
    let total = arrays.iter().map(size).fold(1024, usize::saturating_add);
    let mut memory: Vec<u8> = Vec::new();
    memory.try_reserve_exact(total).map_err(|_| {
        about(format!("{total} bytes of memory could not be had")).fix("free some memory, or run the model on less")
    })?;
    let pack = || -> zip::result::ZipResult<Vec<u8>> {
        let mut archive = ZipWriter::new(Cursor::new(memory));
        for (name, host) in arrays {
            let options = SimpleFileOptions::default()
                .compression_method(zip::CompressionMethod::Stored)
                .large_file(host.bytes().len() > (u32::MAX / 4) as usize);
            archive.start_file(format!("{}.npy", entry(name)), options)?;
            npy::write(&mut archive, host)?;
        }
        Ok(archive.finish()?.into_inner())
    };
    let bytes = pack().map_err(|e| about(e.to_string()))?;
    atomic::write(path, &bytes)
}

fn broken(path: &Path, reason: &str) -> Failure {
    // What is too large is no damage.
    let large = reason.contains("do not fit into memory") || reason.contains("--max-memory");
    let (what, fix) = if large {
        (
            "is too large",
            "free some memory, or give the model less to do at a time",
        )
    } else {
        (
            "is no NumPy file that can be read",
            "write it with numpy.save or numpy.savez, as numbers or bools",
        )
    };
    Failure::new(format!("{} {what}: {reason}", path.display())).fix(fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_a_way_out() {
        for name in ["y", "encoder/layer.0/Add:0", "a b", "..x", "x..", "größe"] {
            assert_eq!(entry(name), name);
        }
        for (name, wanted) in [
            ("../../../x", "%2E%2E%2F%2E%2E%2F%2E%2E%2Fx"),
            ("/etc/x", "%2Fetc%2Fx"),
            ("a/../../x", "a%2F%2E%2E%2F%2E%2E%2Fx"),
            ("..\\x", "%2E%2E%5Cx"),
            ("C:x", "C%3Ax"),
            ("a\u{1b}\n", "a%1B%0A"),
            ("a/", "a%2F"),
            ("", ""),
        ] {
            assert_eq!(entry(name), wanted);
        }
    }

    #[test]
    fn names_that_meet_are_refused() {
        let check = |names: &[&str]| check_names(Path::new("y.npz"), names.iter().copied());
        assert!(check(&["a", "b", "A"]).is_ok());
        assert!(check(&["a", "b", "a"]).unwrap_err().to_string().contains("\"a\""));
        assert!(check(&["../x", "%2E%2E%2Fx"]).is_err());
    }
}
