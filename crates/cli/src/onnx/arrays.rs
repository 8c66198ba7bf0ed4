//! Arrays in files: inputs, and `.npz` archives of outputs.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use polygrad::backend::{DType, HostTensor, printable};
use polygrad::formats::{NpzArray, TensorFile, fits_archive, npy_descr, save_npz};
use polygrad_onnx::graph::{ElementType, Literal};

use crate::failure::{Failure, Result, Shown};

/// Whether the path has the extension of `.npz` files.
pub(super) fn is_npz(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("npz"))
}

/// The array of this name in a file of tensors, or the only array. It takes at most `most` bytes.
///
/// # Errors
/// A file that cannot be read or is damaged, has no such array, or a larger one.
pub(super) fn load(path: &Path, name: &str, most: usize) -> Result<HostTensor> {
    let file = TensorFile::open(path)?;
    let wanted = entry(name);
    let found = match file
        .keys()
        .find(|&known| known == wanted)
        .or_else(|| file.keys().next())
    {
        Some(found) if found == wanted || file.len() == 1 => found,
        Some(_) => {
            let known: Vec<&str> = file.keys().collect();
            return Err(
                Failure::new(format!("{} has no array {name:?}", path.shown())).fix(format!(
                    "it has {}: rename one to the input's name",
                    printable(&known.join(", "))
                )),
            );
        }
        None => return Err(Failure::new(format!("{} holds no arrays", path.shown())).fix("write it with numpy.savez")),
    };
    let info = file.info(found)?;
    let size = info.dtype.size();
    if info.shape.numel().checked_mul(size).is_none_or(|bytes| bytes > most) {
        return Err(Failure::new(format!(
            "{} is too large: {} is {} of {size} bytes each, more than the limit of {most} bytes",
            path.shown(),
            printable(found),
            info.shape
        ))
        .fix("give the model less to do at a time, or raise the limit with --max-memory"));
    }
    Ok(file.read(found)?)
}

/// The name of an array in an archive: its own name, if an archive can have it. Otherwise letters, digits, `-` and `_`
/// stay, and other bytes become `%` and two digits.
pub(super) fn entry(name: &str) -> Cow<'_, str> {
    if fits_archive(name) {
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

/// Fails if an archive cannot have arrays of these names.
///
/// # Errors
/// Two arrays of the same name.
pub(super) fn check_names<'a>(path: &Path, names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut entries: Vec<Cow<'_, str>> = names.map(entry).collect();
    entries.sort_unstable();
    match entries.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => Err(Failure::new(format!(
            "two outputs of the model are called {:?}: {} cannot hold both",
            pair[0],
            path.shown()
        ))
        .fix("run it without --output, or rename one in the model")),
    }
}

/// Writes arrays to a `.npz` file atomically, with the model's types.
///
/// # Errors
/// If it cannot be written.
pub(super) fn save(path: &Path, arrays: &[(String, Literal)]) -> Result<()> {
    let arrays = arrays.iter().map(|(name, literal)| {
        let (descr, bytes) = stored(literal);
        NpzArray {
            name: entry(name),
            descr,
            shape: *literal.host().shape(),
            bytes,
        }
    });
    Ok(save_npz(path, &arrays.collect::<Vec<_>>())?)
}

/// NumPy's name of the element type, and the bytes. Types that NumPy lacks are written as by `ml_dtypes`:
/// `.view(ml_dtypes.bfloat16)` restores bf16, and `.view(ml_dtypes.float8_e4m3fn)` and others restore floats of 8 bits.
/// Narrower numbers become the next wider type of NumPy.
fn stored(literal: &Literal) -> (Cow<'static, str>, Cow<'_, [u8]>) {
    if let Some(texts) = literal.texts() {
        // Each text takes as many characters of four bytes as the longest.
        let most = texts.iter().map(|text| text.chars().count()).max().unwrap_or(0).max(1);
        let padded = |text: &'_ Arc<str>| {
            let codes = text.chars().map(u32::from).collect::<Vec<_>>();
            let zeros = most - codes.len();
            codes.into_iter().chain(std::iter::repeat_n(0, zeros))
        };
        let bytes: Vec<u8> = texts.iter().flat_map(padded).flat_map(u32::to_le_bytes).collect();
        return (format!("<U{most}").into(), bytes.into());
    }
    let (descr, bytes) = numbers(literal);
    (descr.into(), bytes)
}

fn numbers(literal: &Literal) -> (&'static str, Cow<'_, [u8]>) {
    let element = literal.element();
    let wire = || Cow::from(literal.to_wire().to_vec());
    let as_u8 = || Cow::from(literal.host().cast(DType::U8).bytes().to_vec());
    match element {
        ElementType::I8 => ("|i1", wire()),
        ElementType::I16 => ("<i2", wire()),
        ElementType::U16 => ("<u2", wire()),
        ElementType::U32 => ("<u4", wire()),
        ElementType::U64 => ("<u8", wire()),
        // The bits of an i8 as a u8.
        ElementType::I4 | ElementType::I2 => ("|i1", as_u8()),
        ElementType::U4 | ElementType::U2 => ("|u1", as_u8()),
        _ if element.is_small_float() && element.bits() == 8 => ("|V1", wire()),
        _ => {
            let host = literal.host();
            (npy_descr(host.dtype()), Cow::Borrowed(host.bytes()))
        }
    }
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
