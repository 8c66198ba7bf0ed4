//! State dicts as safetensors files.
//!
//! Source of the format: the README of `huggingface/safetensors`. Eight bytes with the header's length, a JSON header, the values.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use polygrad_core::{dispatch_dtype, printable};
use polygrad_tensor::{DType, Error, ErrorKind, HostTensor, Result, Shape};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::{atomic, open_file};
use crate::StateDict;

/// The largest header that other implementations accept.
const MAX_HEADER: u64 = 100_000_000;

/// As many bytes are read at a time, a multiple of every element's.
const PIECE: usize = 1 << 14;

impl StateDict {
    /// Writes a safetensors file that PyTorch and others can read. A kill at any moment leaves the old file or the new one, whole.
    ///
    /// # Errors
    /// When the file cannot be written; the old one, if any, is then untouched.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.save_with_metadata(path, &BTreeMap::new())
    }

    /// [`StateDict::save`] with texts by name in the file's header.
    ///
    /// # Errors
    /// As [`StateDict::save`].
    pub fn save_with_metadata(&self, path: impl AsRef<Path>, metadata: &BTreeMap<String, String>) -> Result<()> {
        let path = path.as_ref();
        let layout = Layout::new(self, metadata).map_err(|e| in_file(e, "write", path))?;
        atomic::replace_file(path, |out| layout.write(out))
    }

    /// Reads a safetensors file. Sizes are checked against the file's before memory is taken.
    ///
    /// # Errors
    /// When the file cannot be read; [`ErrorKind::Format`] when it is truncated, corrupt, or no safetensors file;
    /// [`ErrorKind::Unsupported`] when it holds a dtype that tensors cannot have; [`ErrorKind::OutOfMemory`] when it does not fit into memory.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Ok(Self::load_with_metadata(path)?.0)
    }

    /// [`StateDict::load`] with the texts in the file's header.
    ///
    /// # Errors
    /// As [`StateDict::load`].
    pub fn load_with_metadata(path: impl AsRef<Path>) -> Result<(Self, BTreeMap<String, String>)> {
        let path = path.as_ref();
        let (file, length) = open_file(path)?;
        read(BufReader::with_capacity(1 << 20, file), length).map_err(|fault| match fault {
            Fault::Io(error) => Error::io("read", path, error),
            Fault::Content(error) => in_file(error, "read", path),
        })
    }

    /// The content of a safetensors file.
    ///
    /// # Errors
    /// When a tensor has the name that the format keeps for itself, `__metadata__`.
    pub fn to_bytes(&self, metadata: &BTreeMap<String, String>) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        match Layout::new(self, metadata)?.write(&mut out) {
            Ok(()) => Ok(out),
            Err(error) => Err(Error::new(ErrorKind::Io, error.to_string())),
        }
    }

    /// Reads the content of a safetensors file.
    ///
    /// # Errors
    /// As [`StateDict::load`].
    pub fn from_bytes(bytes: &[u8]) -> Result<(Self, BTreeMap<String, String>)> {
        read(bytes, bytes.len() as u64).map_err(|fault| match fault {
            Fault::Io(error) => corrupt(error.to_string()),
            Fault::Content(error) => error,
        })
    }
}

fn in_file(error: Error, action: &str, path: &Path) -> Error {
    let (kind, hint) = (error.kind(), error.hint().map(str::to_owned));
    let outer = Error::new(
        kind,
        format!(
            "cannot {action} {}: {}",
            printable(&path.to_string_lossy()),
            error.message()
        ),
    );
    match hint {
        Some(hint) => outer.with_hint(hint),
        None => outer,
    }
}

fn corrupt(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Format, what.into())
        .with_hint("the file is damaged or no safetensors file: fetch or save it again")
}

// Writing.

/// Where each tensor goes: by falling size of their elements, so that all are aligned, then in the state dict's order.
struct Layout<'a> {
    header: Vec<u8>,
    tensors: Vec<&'a HostTensor>,
}

struct Header<'a> {
    metadata: &'a BTreeMap<String, String>,
    tensors: Vec<(&'a str, TensorInfo)>,
}

impl Serialize for Header<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.metadata.is_empty() {
            map.serialize_entry("__metadata__", self.metadata)?;
        }
        for (name, info) in &self.tensors {
            map.serialize_entry(name, info)?;
        }
        map.end()
    }
}

impl<'a> Layout<'a> {
    fn new(state: &'a StateDict, metadata: &'a BTreeMap<String, String>) -> Result<Self> {
        if cfg!(target_endian = "big") {
            return Err(Error::unsupported("safetensors files on a big-endian machine"));
        }
        if state.contains("__metadata__") {
            return Err(Error::invalid(
                "a tensor cannot be called __metadata__ in a safetensors file",
            ));
        }
        let mut entries: Vec<(&str, &HostTensor)> = state.iter().collect();
        entries.sort_by_key(|(_, tensor)| std::cmp::Reverse(tensor.dtype().size()));
        let mut end = 0;
        let mut tensors = Vec::with_capacity(entries.len());
        for (name, tensor) in &entries {
            let start = end;
            end += tensor.bytes().len();
            let info = TensorInfo {
                dtype: file_dtype(tensor.dtype()),
                shape: tensor.shape().to_vec(),
                data_offsets: (start, end),
            };
            tensors.push((*name, info));
        }
        let mut header = serde_json::to_vec(&Header { metadata, tensors }).map_err(|e| corrupt(e.to_string()))?;
        header.resize(header.len().next_multiple_of(8), b' ');
        Ok(Self {
            header,
            tensors: entries.into_iter().map(|(_, tensor)| tensor).collect(),
        })
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&(self.header.len() as u64).to_le_bytes())?;
        out.write_all(&self.header)?;
        self.tensors.iter().try_for_each(|tensor| out.write_all(tensor.bytes()))
    }
}

fn file_dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::Bool => Dtype::BOOL,
        DType::U8 => Dtype::U8,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
    }
}

// Reading.

enum Fault {
    Io(io::Error),
    Content(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Content(error)
    }
}

fn read(mut input: impl Read, size: u64) -> std::result::Result<(StateDict, BTreeMap<String, String>), Fault> {
    if cfg!(target_endian = "big") {
        return Err(Error::unsupported("safetensors files on a big-endian machine").into());
    }
    let truncated = |found: &str| corrupt(format!("it has {size} bytes and ends inside its {found}"));
    let mut length = [0; 8];
    if size < 8 {
        return Err(truncated("first eight bytes").into());
    }
    input.read_exact(&mut length).map_err(Fault::Io)?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER {
        return Err(corrupt(format!(
            "its header would have {length} bytes, more than the format allows"
        ))
        .into());
    }
    if length > size - 8 {
        return Err(truncated("header").into());
    }
    let mut header = reserved(length as usize)?;
    header.resize(length as usize, 0);
    input.read_exact(&mut header).map_err(Fault::Io)?;
    // This checks that the tensors lie end to end, and that each takes what its shape and dtype say.
    let header: Metadata =
        serde_json::from_slice(&header).map_err(|e| corrupt(format!("its header is not valid: {e}")))?;
    let (expected, found) = (header.data_len() as u64, size - 8 - length);
    if expected != found {
        return Err(corrupt(format!(
            "its header announces {expected} bytes of values, there are {found}"
        ))
        .into());
    }

    let mut state = StateDict::new();
    for name in header.offset_keys() {
        let Some(info) = header.info(&name) else {
            continue;
        };
        let value = read_tensor(&mut input, info).map_err(|fault| match fault {
            Fault::Content(error) => Fault::Content(about_tensor(error, &name)),
            io => io,
        })?;
        state.insert(name, value);
    }
    let metadata = header
        .metadata()
        .iter()
        .flatten()
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    Ok((state, metadata))
}

fn read_tensor(input: &mut impl Read, info: &TensorInfo) -> std::result::Result<HostTensor, Fault> {
    let dtype = tensor_dtype(info.dtype)?;
    let shape = Shape::new(&info.shape)?;
    dispatch_dtype!(dtype, T => {
        let mut values: Vec<T> = reserved(shape.numel())?;
        let mut piece = [0; PIECE];
        let mut left = info.data_offsets.1 - info.data_offsets.0;
        while left > 0 {
            let bytes = &mut piece[..left.min(PIECE)];
            input.read_exact(bytes).map_err(Fault::Io)?;
            let count = Shape::from([bytes.len() / dtype.size()]);
            values.extend_from_slice(HostTensor::from_bytes(dtype, count, bytes)?.as_slice::<T>()?);
            left -= bytes.len();
        }
        Ok(HostTensor::new(shape, values)?)
    })
}

/// Room for `count` values.
fn reserved<T>(count: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|e| {
        let bytes = count.saturating_mul(size_of::<T>());
        Error::new(
            ErrorKind::OutOfMemory,
            format!("its {bytes} bytes do not fit into memory"),
        )
        .with_source(e)
    })?;
    Ok(values)
}

fn about_tensor(error: Error, name: &str) -> Error {
    let usual = match error.kind() {
        ErrorKind::OutOfMemory => "free some memory",
        _ => "the file is damaged: fetch or save it again",
    };
    let hint = error.hint().unwrap_or(usual).to_owned();
    let kind = match error.kind() {
        kind @ (ErrorKind::Unsupported | ErrorKind::OutOfMemory) => kind,
        _ => ErrorKind::Format,
    };
    Error::new(kind, format!("tensor {}: {}", printable(name), error.message())).with_hint(hint)
}

fn tensor_dtype(dtype: Dtype) -> Result<DType> {
    Ok(match dtype {
        Dtype::BOOL => DType::Bool,
        Dtype::U8 => DType::U8,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        other => {
            let known = DType::ALL.map(DType::name).join(", ");
            return Err(
                Error::unsupported(format!("its dtype {other} is none that tensors can have"))
                    .with_hint(format!("convert it to one of {known} before saving")),
            );
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_into_memory_is_an_error() {
        let error = about_tensor(reserved::<f32>(usize::MAX / 8).unwrap_err(), "w\n");
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        let text = error.to_string();
        assert!(
            text.starts_with("tensor w\\n: its ") && text.contains("do not fit into memory; free some memory"),
            "{text}"
        );
    }

    #[test]
    fn tensors_longer_than_a_piece_come_back() {
        let values: Vec<i64> = (0..5000).collect();
        let mut state = StateDict::new();
        state.insert("x", HostTensor::new(Shape::from([50, 100]), values.clone()).unwrap());
        let bytes = state.to_bytes(&BTreeMap::new()).unwrap();
        let (read, _) = StateDict::from_bytes(&bytes).unwrap();
        let read = read.get("x").unwrap();
        assert_eq!(read.as_slice::<i64>().unwrap(), values);
    }
}
