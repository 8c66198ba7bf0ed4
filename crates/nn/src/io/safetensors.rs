//! State dicts as safetensors files.
//!
//! Source of the format: the README of `huggingface/safetensors`. A file is eight bytes with the header's length, a
//! JSON header, then the values.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::Path;

use polygrad_core::printable;
use polygrad_tensor::{DType, Error, ErrorKind, HostTensor, Result, Shape};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::stored::{reserved, unreadable};
use super::{Stored, atomic, open_file};
use crate::StateDict;

/// The name of the checksum among the texts of a header. Files of other programs have none.
const SUM: &str = "polygrad.checksum";

/// The largest header that other implementations accept.
const MAX_HEADER: u64 = 100_000_000;

/// The name that the header has for its texts.
const TEXTS: &str = "__metadata__";

/// The format's dtypes: the name, the bits of an element, and how tensors read it, if they can.
const DTYPES: [(&str, usize, Option<Stored>); 22] = [
    ("BOOL", 8, Some(Stored::Bool)),
    ("F4", 4, None),
    ("F6_E2M3", 6, None),
    ("F6_E3M2", 6, None),
    ("U8", 8, Some(Stored::U8)),
    ("I8", 8, Some(Stored::I8)),
    ("F8_E5M2", 8, None),
    ("F8_E4M3", 8, None),
    ("F8_E8M0", 8, None),
    ("F8_E4M3FNUZ", 8, None),
    ("F8_E5M2FNUZ", 8, None),
    ("I16", 16, Some(Stored::I16)),
    ("U16", 16, Some(Stored::U16)),
    ("F16", 16, Some(Stored::F16)),
    ("BF16", 16, Some(Stored::BF16)),
    ("I32", 32, Some(Stored::I32)),
    ("U32", 32, Some(Stored::U32)),
    ("F32", 32, Some(Stored::F32)),
    ("C64", 64, None),
    ("F64", 64, Some(Stored::F64)),
    ("I64", 64, Some(Stored::I64)),
    ("U64", 64, Some(Stored::U64)),
];

impl StateDict {
    /// Writes a safetensors file that PyTorch and others can read. A kill at any moment leaves either the old file or
    /// the complete new one.
    ///
    /// # Errors
    /// When the file cannot be written; the old one, if any, is then untouched.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.save_with_metadata(path, &BTreeMap::new())
    }

    /// [`StateDict::save`] with texts by name in the file's header, and a checksum of them and the tensors, which is
    /// compared whenever the file is read. [`StateDict::save`] writes none, for programs that change files in place.
    ///
    /// # Errors
    /// As [`StateDict::save`].
    pub fn save_with_metadata(&self, path: impl AsRef<Path>, metadata: &BTreeMap<String, String>) -> Result<()> {
        let path = path.as_ref();
        let layout = Layout::new(self, metadata).map_err(|e| in_file(e, "write", path))?;
        atomic::replace_file(path, |out| layout.write(out))
    }

    /// Reads a safetensors file. Sizes are checked against the file's size before memory is allocated.
    ///
    /// # Errors
    /// When the file cannot be read; [`ErrorKind::Format`] when it is truncated, corrupt, or not a safetensors file, or
    /// differs from its checksum; [`ErrorKind::Unsupported`] when it holds a dtype that tensors do not have;
    /// [`ErrorKind::OutOfMemory`] when it does not fit into memory.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Ok(Self::load_with_metadata(path)?.0)
    }

    /// [`StateDict::load`] with the texts in the file's header, except the checksum.
    ///
    /// # Errors
    /// As [`StateDict::load`].
    pub fn load_with_metadata(path: impl AsRef<Path>) -> Result<(Self, BTreeMap<String, String>)> {
        let path = path.as_ref();
        let (file, length) = open_file(path)?;
        read(file, length).map_err(|e| in_file(e, "read", path))
    }

    /// The content of a safetensors file, as [`StateDict::save_with_metadata`] writes it.
    ///
    /// # Errors
    /// When a tensor is called `__metadata__`, which the format reserves.
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
        read(bytes, bytes.len() as u64)
    }
}

/// Adds to an error which action failed on which file.
#[cold]
pub fn in_file(error: Error, action: &str, path: &Path) -> Error {
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

/// Order of the tensors: by descending element size, so that all are aligned, then as in the state dict.
struct Layout<'a> {
    header: Vec<u8>,
    tensors: Vec<&'a HostTensor>,
}

struct Header<'a> {
    metadata: BTreeMap<&'a str, &'a str>,
    tensors: Vec<(&'a str, Info)>,
}

/// A tensor's entry in the header, in the order of its fields there.
#[derive(serde::Serialize, serde::Deserialize)]
struct Info {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}

impl Serialize for Header<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.metadata.is_empty() {
            map.serialize_entry(TEXTS, &self.metadata)?;
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
        if state.contains(TEXTS) {
            return Err(Error::invalid(format!(
                "a tensor cannot be called {TEXTS} in a safetensors file"
            )));
        }
        let mut entries: Vec<(&str, &HostTensor)> = state.iter().collect();
        entries.sort_by_key(|(_, tensor)| std::cmp::Reverse(tensor.dtype().size()));
        let mut end = 0;
        let mut tensors = Vec::with_capacity(entries.len());
        for (name, tensor) in &entries {
            let start = end;
            end += tensor.bytes().len();
            let info = Info {
                dtype: file_dtype(tensor.dtype()).to_owned(),
                shape: tensor.shape().to_vec(),
                data_offsets: (start, end),
            };
            tensors.push((*name, info));
        }
        let mut metadata: BTreeMap<_, _> = metadata.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        metadata.remove(SUM);
        let sum = (!metadata.is_empty()).then(|| {
            let mut sum = Checksum::new(metadata.values().copied());
            entries.iter().for_each(|(name, tensor)| sum.add(name, tensor));
            sum.text()
        });
        metadata.extend(sum.as_deref().map(|sum| (SUM, sum)));
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

/// The format's name of a dtype.
fn file_dtype(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "BOOL",
        DType::U8 => "U8",
        DType::I32 => "I32",
        DType::I64 => "I64",
        DType::F16 => "F16",
        DType::BF16 => "BF16",
        DType::F32 => "F32",
        DType::F64 => "F64",
    }
}

// Reading.

/// The header of a safetensors file: its tensors without their values.
#[derive(Debug)]
pub struct SafetensorsHeader {
    /// The tensors, in the order of their values.
    pub tensors: Vec<SafetensorsEntry>,
    /// The texts by name, except the checksum.
    pub metadata: BTreeMap<String, String>,
    /// The checksum, if the file has one.
    sum: Option<String>,
}

/// A tensor in a safetensors file.
#[derive(Debug)]
pub struct SafetensorsEntry {
    /// Its name.
    pub name: String,
    /// The format's name of its dtype.
    pub dtype: String,
    /// Its number type, if the dtype is one that can be read.
    pub element: Option<Stored>,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Offset of its values in the file, in bytes.
    pub offset: u64,
    /// Length of its values in bytes, which matches shape and dtype.
    pub length: u64,
}

impl SafetensorsHeader {
    /// Reads the header of a file of `size` bytes, and nothing after it. The tensors' values follow it without gaps, up
    /// to the end of the file.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the reader fails; [`ErrorKind::Format`] when the file is truncated, corrupt or of another
    /// kind; [`ErrorKind::OutOfMemory`].
    pub fn read(mut input: impl Read, size: u64) -> Result<Self> {
        if cfg!(target_endian = "big") {
            return Err(Error::unsupported("safetensors files on a big-endian machine"));
        }
        let truncated = |found: &str| corrupt(format!("it has {size} bytes and ends inside its {found}"));
        let mut length = [0; 8];
        if size < 8 {
            return Err(truncated("first eight bytes"));
        }
        input.read_exact(&mut length).map_err(unreadable)?;
        let length = u64::from_le_bytes(length);
        if length > MAX_HEADER {
            return Err(corrupt(format!(
                "its header would have {length} bytes, more than the format allows"
            )));
        }
        if length > size - 8 {
            return Err(truncated("header"));
        }
        let mut header = reserved(length as usize)?;
        header.resize(length as usize, 0);
        input.read_exact(&mut header).map_err(unreadable)?;
        let Unchecked {
            mut metadata,
            mut tensors,
        } = serde_json::from_slice(&header).map_err(|e| corrupt(format!("its header is not valid: {e}")))?;
        tensors.sort_by(BY_PLACE);
        let begin = 8 + length;
        let mut expected = 0;
        let entries = tensors.into_iter().map(|(name, info)| {
            let entry = entry(begin, expected, name, info)?;
            expected += entry.length;
            Ok(entry)
        });
        let tensors = entries.collect::<Result<Vec<_>>>()?;
        let found = size - begin;
        if expected != found {
            return Err(corrupt(format!(
                "its header announces {expected} bytes of values, there are {found}"
            )));
        }
        Ok(Self {
            tensors,
            sum: metadata.remove(SUM),
            metadata,
        })
    }

    /// Reads the tensors, which follow the header, one at a time, and compares the checksum if the file has one.
    ///
    /// # Errors
    /// As [`StateDict::load`].
    pub fn read_tensors(&self, mut input: impl Read, mut take: impl FnMut(&str, HostTensor)) -> Result<()> {
        let mut sum = Checksum::new(self.metadata.values().map(String::as_str));
        for entry in &self.tensors {
            let value = read_tensor(&mut input, entry).map_err(|e| about_tensor(e, &entry.name))?;
            if self.sum.is_some() {
                sum.add(&entry.name, &value);
            }
            take(&entry.name, value);
        }
        match &self.sum {
            Some(written) if *written != sum.text() => Err(Error::new(
                ErrorKind::Format,
                "its content is not what was written: it has another checksum",
            )
            .with_hint(format!(
                "the file is damaged: take an earlier copy; if a program changed it on purpose, remove {SUM} from \
                 its header"
            ))),
            _ => Ok(()),
        }
    }

    /// Compares the checksum, if the file has one. Only then are the tensors read, one at a time.
    ///
    /// # Errors
    /// As [`StateDict::load`].
    pub fn check(&self, input: impl Read) -> Result<()> {
        match self.sum {
            Some(_) => self.read_tensors(input, |_, _| ()),
            None => Ok(()),
        }
    }
}

/// Orders of the entries; as pointers, so that they are sorted by the same code.
type Order = fn(&(String, Info), &(String, Info)) -> Ordering;
const BY_NAME: Order = |a, b| a.0.cmp(&b.0);
const BY_PLACE: Order = |a, b| a.1.data_offsets.cmp(&b.1.data_offsets);

/// A header as it is read: texts and tensors by name.
struct Unchecked {
    metadata: BTreeMap<String, String>,
    tensors: Vec<(String, Info)>,
}

impl<'de> Deserialize<'de> for Unchecked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Unchecked;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("tensors by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Unchecked, A::Error> {
                let (mut metadata, mut tensors) = (BTreeMap::new(), Vec::new());
                while let Some(name) = map.next_key::<String>()? {
                    if name == TEXTS {
                        metadata = map.next_value::<Option<_>>()?.unwrap_or_default();
                    } else {
                        tensors.push((name, map.next_value()?));
                    }
                }
                tensors.sort_by(BY_NAME);
                match tensors.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                    Some(pair) => Err(A::Error::custom(format!(
                        "tensor {} is there twice",
                        printable(&pair[0].0)
                    ))),
                    None => Ok(Unchecked { metadata, tensors }),
                }
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

/// The entry of a tensor whose values have to begin `expected` bytes after the header, which ends at `begin`.
fn entry(begin: u64, expected: u64, name: String, info: Info) -> Result<SafetensorsEntry> {
    let wrong = |what: String| corrupt(format!("its header is not valid: tensor {} {what}", printable(&name)));
    let Info {
        dtype,
        shape,
        data_offsets: (start, end),
    } = info;
    if start as u64 != expected || end < start {
        return Err(wrong(format!(
            "has the values from {start} to {end}, where those from {expected} on are due"
        )));
    }
    let Some(&(_, bits, element)) = DTYPES.iter().find(|(known, ..)| *known == dtype) else {
        return Err(wrong(format!("has the unknown dtype {}", printable(&dtype))));
    };
    let numel = shape.iter().try_fold(1usize, |all, &extent| all.checked_mul(extent));
    let all = numel.and_then(|numel| numel.checked_mul(bits));
    if all.is_none_or(|all| all % 8 != 0 || all / 8 != end - start) {
        return Err(wrong(format!(
            "of {dtype} and shape {shape:?} cannot have {} bytes",
            end - start
        )));
    }
    Ok(SafetensorsEntry {
        name,
        dtype,
        element,
        shape,
        offset: begin + expected,
        length: (end - start) as u64,
    })
}

fn read(mut input: impl Read, size: u64) -> Result<(StateDict, BTreeMap<String, String>)> {
    let header = SafetensorsHeader::read(&mut input, size)?;
    let mut state = StateDict::new();
    header.read_tensors(input, |name, value| state.insert(name, value))?;
    Ok((state, header.metadata))
}

/// A checksum of texts, in the order of their names, and of tensors in any order, by their names and values. A change
/// of one byte of these always changes it: each step maps different sums to different sums.
struct Checksum(u64);

impl Checksum {
    const START: u64 = 0xcbf2_9ce4_8422_2325;

    fn new<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        Self(texts.fold(Self::START, |sum, text| Self::step(sum, text.as_bytes())))
    }

    fn add(&mut self, name: &str, value: &HostTensor) {
        let sum = Self::step(Self::step(Self::START, name.as_bytes()), value.bytes());
        self.0 = self.0.wrapping_add(sum);
    }

    /// The step of FNV-1a with 64 bits, here for eight bytes at once.
    fn step(sum: u64, bytes: &[u8]) -> u64 {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let words = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word));
        words.fold(sum, |sum, word| (sum ^ word).wrapping_mul(0x0100_0000_01b3))
    }

    fn text(&self) -> String {
        format!("{:016x}", self.0)
    }
}

fn read_tensor(input: &mut impl Read, entry: &SafetensorsEntry) -> Result<HostTensor> {
    let shape = Shape::new(&entry.shape)?;
    match entry.element {
        Some(element) => element.read(shape, false, input),
        None => {
            let known = DType::ALL.map(DType::name).join(", ");
            Err(
                Error::unsupported(format!("its dtype {} is none that tensors can have", entry.dtype))
                    .with_hint(format!("convert it to one of {known} before saving")),
            )
        }
    }
}

/// Adds the name of the tensor to an error about it.
#[cold]
pub fn about_tensor(error: Error, name: &str) -> Error {
    let usual = match error.kind() {
        ErrorKind::OutOfMemory => "free some memory",
        ErrorKind::Unsupported => "convert it before saving, or leave it out",
        _ => "the file is damaged: fetch or save it again",
    };
    let hint = error.hint().unwrap_or(usual).to_owned();
    let kind = match error.kind() {
        kind @ (ErrorKind::Unsupported | ErrorKind::OutOfMemory | ErrorKind::Io) => kind,
        _ => ErrorKind::Format,
    };
    Error::new(kind, format!("tensor {}: {}", printable(name), error.message())).with_hint(hint)
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
        let values: Vec<i64> = (0..50_000).collect();
        let mut state = StateDict::new();
        state.insert("x", HostTensor::new(Shape::from([50, 1000]), values.clone()).unwrap());
        let bytes = state.to_bytes(&BTreeMap::new()).unwrap();
        let (read, _) = StateDict::from_bytes(&bytes).unwrap();
        let read = read.get("x").unwrap();
        assert_eq!(read.as_slice::<i64>().unwrap(), values);
    }
}
