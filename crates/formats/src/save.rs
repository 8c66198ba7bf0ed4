//! Writing files for other libraries.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use polygrad_core::printable;
use polygrad_nn::files::in_file;
use polygrad_nn::{StateDict, replace_file};
use polygrad_tensor::{DType, Error, Result, Shape};

use crate::file::Format;
use crate::metadata::{Metadata, Value};
use crate::npy::{npy_descr, npy_header};
use crate::numpy::ENDING;
use crate::zip::Writer;

/// Writes a state dict in the format given by the path's extension: `.safetensors`, `.npz` (not compressed; bf16
/// becomes f32, since NumPy lacks it), `.pt` or `.pth`, which `torch.load(path, weights_only=True)` reads. A kill at
/// any moment leaves either the old file or the complete new one.
///
/// # Errors
/// When the extension is another, the format does not allow a name, or the file cannot be written; the old one, if any,
/// is then untouched.
pub fn save(path: impl AsRef<Path>, state: &StateDict) -> Result<()> {
    save_with_metadata(path, state, &Metadata::default())
}

/// [`save`] that also writes the texts of the metadata to a safetensors file; other formats cannot store them.
///
/// # Errors
/// As [`save`].
pub fn save_with_metadata(path: impl AsRef<Path>, state: &StateDict, metadata: &Metadata) -> Result<()> {
    let path = path.as_ref();
    match writable(path)? {
        Format::Npz => {
            let fits = little_endian().and_then(|()| state.keys().try_for_each(check_name));
            fits.map_err(|e| in_file(e, "write", path))?;
            replace_file(path, |out| npz(out, state))
        }
        Format::PyTorch => {
            little_endian().map_err(|e| in_file(e, "write", path))?;
            replace_file(path, |out| pytorch(out, state))
        }
        _ => {
            let texts = metadata.iter().filter_map(|(name, value)| match value {
                Value::Text(text) => Some((name.to_owned(), text.clone())),
                _ => None,
            });
            state.save_with_metadata(path, &texts.collect::<BTreeMap<_, _>>())
        }
    }
}

/// An array for [`save_npz`], of any type that NumPy knows or can be given.
#[derive(Clone, Debug)]
pub struct NpzArray<'a> {
    /// Its name in the archive, for which [`fits_archive`] must hold.
    pub name: Cow<'a, str>,
    /// The type of its elements in NumPy's header, such as `<i2`.
    pub descr: Cow<'a, str>,
    /// Its shape.
    pub shape: Shape,
    /// Its elements in row-major order, little-endian.
    pub bytes: Cow<'a, [u8]>,
}

/// Writes arrays to an uncompressed `.npz` archive. A kill at any moment leaves either the old file or the complete new
/// one.
///
/// # Errors
/// When an archive does not allow a name, or the file cannot be written; the old one, if any, is then untouched.
pub fn save_npz(path: impl AsRef<Path>, arrays: &[NpzArray<'_>]) -> Result<()> {
    let path = path.as_ref();
    let fits = little_endian().and_then(|()| arrays.iter().try_for_each(|array| check_name(&array.name)));
    fits.map_err(|e| in_file(e, "write", path))?;
    replace_file(path, |out| {
        let mut archive = Writer::new(out);
        for array in arrays {
            let header = npy_header(&array.descr, &array.shape);
            archive.entry(&format!("{}{ENDING}", array.name), &[&header, &array.bytes])?;
        }
        archive.finish()
    })
}

/// The format in which [`save`] would write to a path, according to its extension.
///
/// # Errors
/// When the extension is another.
pub fn writable(path: impl AsRef<Path>) -> Result<Format> {
    let path = path.as_ref();
    let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
    match ending.as_deref().and_then(|ending| ending.to_str()) {
        Some("safetensors") => Ok(Format::Safetensors),
        Some("npz") => Ok(Format::Npz),
        Some("pt" | "pth") => Ok(Format::PyTorch),
        _ => {
            let error = Error::unsupported("its ending says no format that can be written");
            Err(in_file(
                error.with_hint("call it .safetensors, .npz, .pt or .pth"),
                "write",
                path,
            ))
        }
    }
}

pub(crate) fn little_endian() -> Result<()> {
    match cfg!(target_endian = "little") {
        true => Ok(()),
        false => Err(Error::unsupported("files of arrays on a big-endian machine")),
    }
}

/// Whether a `.npz` archive can hold an array of this name: unpacking must not write outside of the target folder, and
/// the name must have no control characters and not be too long.
pub fn fits_archive(name: &str) -> bool {
    let plain = |part: &str| !matches!(part, "" | "." | "..");
    let has_drive = name.as_bytes().get(1) == Some(&b':');
    let is_safe = !has_drive && !name.contains('\\') && name.split('/').all(plain) && printable(name) == name;
    is_safe && name.len() + ENDING.len() <= usize::from(u16::MAX)
}

fn check_name(name: &str) -> Result<()> {
    match fits_archive(name) {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "the tensor {} has no name that a .npz archive can have",
            printable(name)
        ))
        .with_hint("rename it, or write a .safetensors file")),
    }
}

fn npz(out: &mut dyn Write, state: &StateDict) -> io::Result<()> {
    let mut archive = Writer::new(out);
    for (name, host) in state.iter() {
        let widened = match host.dtype() {
            DType::BF16 => host.try_cast(DType::F32).map_err(io::Error::other)?,
            _ => host.clone(),
        };
        let header = npy_header(npy_descr(widened.dtype()), widened.shape());
        archive.entry(&format!("{name}{ENDING}"), &[&header, widened.bytes()])?;
    }
    archive.finish()
}

/// The folder of all records; its name does not matter.
const FOLDER: &str = "archive";

fn pytorch(out: &mut dyn Write, state: &StateDict) -> io::Result<()> {
    let mut archive = Writer::new(out);
    archive.entry(&format!("{FOLDER}/data.pkl"), &[&pickle(state)])?;
    archive.entry(&format!("{FOLDER}/byteorder"), &[b"little"])?;
    for (i, (_, host)) in state.iter().enumerate() {
        archive.entry(&format!("{FOLDER}/data/{i}"), &[host.bytes()])?;
    }
    archive.entry(&format!("{FOLDER}/version"), &[b"3\n"])?;
    archive.finish()
}

/// The state dict as a pickle of protocol 2: an OrderedDict of tensors that are views of numbered storages.
fn pickle(state: &StateDict) -> Vec<u8> {
    const ORDERED_DICT: &[u8] = b"ccollections\nOrderedDict\n)R";
    let mut out = b"\x80\x02".to_vec();
    out.extend(ORDERED_DICT);
    out.push(b'(');
    for (i, (name, host)) in state.iter().enumerate() {
        text(&mut out, name);
        out.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
        text(&mut out, "storage");
        out.extend(format!("ctorch\n{}\n", storage(host.dtype())).bytes());
        text(&mut out, &i.to_string());
        text(&mut out, "cpu");
        let shape = host.shape();
        integer(&mut out, shape.numel());
        out.extend(b"tQK\x00");
        let strides = shape.contiguous_strides();
        let strides = strides[..shape.rank()].iter().map(|stride| stride.unsigned_abs());
        tuple(&mut out, shape.iter().copied());
        tuple(&mut out, strides);
        out.push(0x89);
        out.extend(ORDERED_DICT);
        out.extend(b"tR");
    }
    out.extend(b"u.");
    out
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.push(b'X');
    out.extend((text.len() as u32).to_le_bytes());
    out.extend(text.bytes());
}

fn integer(out: &mut Vec<u8>, number: usize) {
    match i32::try_from(number) {
        Ok(number) => {
            out.push(b'J');
            out.extend(number.to_le_bytes());
        }
        Err(_) => {
            out.extend([0x8a, 8]);
            out.extend((number as u64).to_le_bytes());
        }
    }
}

fn tuple(out: &mut Vec<u8>, numbers: impl Iterator<Item = usize>) {
    out.push(b'(');
    numbers.for_each(|number| integer(out, number));
    out.push(b't');
}

fn storage(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "BoolStorage",
        DType::U8 => "ByteStorage",
        DType::I32 => "IntStorage",
        DType::I64 => "LongStorage",
        DType::F16 => "HalfStorage",
        DType::BF16 => "BFloat16Storage",
        DType::F32 => "FloatStorage",
        DType::F64 => "DoubleStorage",
    }
}
