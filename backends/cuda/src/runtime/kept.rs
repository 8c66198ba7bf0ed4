//! Compiled kernels on disk, so that the next process has them at once.
//!
//! A file holds the compiler's name, the source, the image and a checksum. It is used only if all are as expected;
//! otherwise the kernel is compiled again, and the file replaced.

use std::path::{Path, PathBuf};
use std::{env, fs, process};

use polygrad_core::Result;

use super::nvrtc::{self, Image};

/// Compiles a source like [`nvrtc::compile`], unless a compiled kernel is kept.
///
/// # Errors
/// As [`nvrtc::compile`].
pub(super) fn compile(source: &str, capability: u32) -> Result<Image> {
    let make = || nvrtc::compile(source, capability);
    match folder() {
        None => make(),
        Some(folder) => kept(&folder, &nvrtc::name(capability)?, source, make),
    }
}

/// The folder that `POLYGRAD_KERNELS` names, or else `polygrad/kernels` in the user's cache folder. `None` if the
/// variable is empty, or there is no cache folder.
fn folder() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).map(PathBuf::from);
    if let Some(folder) = set("POLYGRAD_KERNELS") {
        return Some(folder).filter(|folder| !folder.as_os_str().is_empty());
    }
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(cache.join("polygrad").join("kernels"))
}

fn kept(folder: &Path, compiler: &str, source: &str, make: impl FnOnce() -> Result<Image>) -> Result<Image> {
    let key = [part(compiler.as_bytes()), part(source.as_bytes())].concat();
    let path = folder.join(format!("{:016x}", hash(&key)));
    if let Some(image) = fs::read(&path).ok().and_then(|bytes| image_of(&bytes, &key)) {
        return Ok(image);
    }
    let image = make()?;
    let (kind, bytes) = match &image {
        Image::Cubin(bytes) => (0, bytes),
        Image::Ptx(bytes) => (1, bytes),
    };
    let mut file = [&key[..], &[kind], &part(bytes)].concat();
    let sum = hash(&file).to_le_bytes();
    file.extend(sum);
    // If writing fails, the next process compiles again. Other processes may write the same file.
    let beside = path.with_extension(process::id().to_string());
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(&beside, file));
    if written.and_then(|()| fs::rename(&beside, &path)).is_err() {
        let _ = fs::remove_file(&beside);
    }
    Ok(image)
}

/// The image of a file that begins with the key and is intact.
fn image_of(file: &[u8], key: &[u8]) -> Option<Image> {
    let (body, sum) = file.split_last_chunk()?;
    if hash(body) != u64::from_le_bytes(*sum) {
        return None;
    }
    let (kind, rest) = body.strip_prefix(key)?.split_first()?;
    let (len, bytes) = rest.split_first_chunk()?;
    if u64::from_le_bytes(*len) != bytes.len() as u64 {
        return None;
    }
    match kind {
        0 => Some(Image::Cubin(bytes.to_vec())),
        1 => Some(Image::Ptx(bytes.to_vec())),
        _ => None,
    }
}

/// Bytes, preceded by their length.
fn part(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes(), bytes].concat()
}

/// FNV-1a (Fowler, Noll and Vo), the same in every version of this crate.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use polygrad_core::Error;

    use super::*;

    #[test]
    fn a_kernel_is_compiled_once_and_again_when_its_file_is_broken() {
        let folder = env::temp_dir().join(format!("polygrad-kernels-{}", process::id()));
        let made = Cell::new(0);
        let get = |compiler: &str, source: &str| {
            let make = || {
                made.set(made.get() + 1);
                match source {
                    "wrong" => Err(Error::invalid("wrong")),
                    _ => Ok(Image::Cubin(source.bytes().rev().collect())),
                }
            };
            kept(&folder, compiler, source, make)
        };
        let image = Image::Cubin(b"cba".to_vec());
        for _ in 0..2 {
            assert_eq!(get("12.8 for 90", "abc").unwrap(), image);
        }
        assert_eq!(made.get(), 1);
        get("12.9 for 90", "abc").unwrap();
        get("12.8 for 90", "abcd").unwrap();
        assert_eq!(made.get(), 3);
        assert!(get("12.8 for 90", "wrong").is_err());

        made.set(0);
        let files: Vec<_> = fs::read_dir(&folder)
            .unwrap()
            .map(|file| file.unwrap().path())
            .collect();
        assert_eq!(files.len(), 3);
        for (i, path) in files.iter().enumerate() {
            let mut bytes = fs::read(path).unwrap();
            match i {
                0 => bytes.truncate(bytes.len() / 2),
                1 => bytes.clear(),
                // In the image.
                _ => *bytes.iter_mut().rev().nth(9).unwrap() ^= 1,
            }
            fs::write(path, bytes).unwrap();
        }
        for _ in 0..2 {
            assert_eq!(get("12.8 for 90", "abc").unwrap(), image);
            get("12.9 for 90", "abc").unwrap();
            get("12.8 for 90", "abcd").unwrap();
        }
        assert_eq!(made.get(), 3);
        fs::remove_dir_all(&folder).unwrap();

        // A file where the folder should be.
        fs::write(&folder, "").unwrap();
        assert_eq!(get("12.8 for 90", "abc").unwrap(), image);
        fs::remove_file(&folder).unwrap();
    }
}
