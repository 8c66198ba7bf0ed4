//! Files of tensors in any format.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use polygrad_core::{nearest, printable};
use polygrad_nn::files::about_tensor;
use polygrad_nn::{HostBlocks, StateDict};
use polygrad_tensor::{DType, Error, ErrorKind, HostTensor, Result, Shape};

use crate::metadata::Metadata;
use crate::place::Place;
use crate::source::{Source, damaged};
use crate::{gguf, numpy, pytorch, safetensors, shards, zip};

/// The format of a file, detected from its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// A safetensors file.
    Safetensors,
    /// An index, with the safetensors or PyTorch files that it names.
    Sharded,
    /// PyTorch's zip archive, `.pt` or `.pth`.
    PyTorch,
    /// PyTorch's format before 1.6.
    PyTorchLegacy,
    /// A NumPy array.
    Npy,
    /// An archive of NumPy arrays.
    Npz,
    /// GGUF.
    Gguf,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Safetensors => "safetensors",
            Self::Sharded => "a model in shards",
            Self::PyTorch => "PyTorch",
            Self::PyTorchLegacy => "PyTorch before 1.6",
            Self::Npy => "npy",
            Self::Npz => "npz",
            Self::Gguf => "GGUF",
        })
    }
}

/// Information about a tensor without its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The dtype it is read as.
    pub dtype: DType,
    /// Its shape.
    pub shape: Shape,
    /// Short name of its number type in the file: as the dtype, or `i16`, `Q4_K` …
    pub stored: String,
}

/// An object in a file that is not a tensor, or a tensor that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Skipped {
    /// Its name, with dots.
    pub name: String,
    /// A short description: `3`, `a list of 2`, `refuses argparse.Namespace`, `it is a sparse tensor: call to_dense()
    /// before saving it`.
    pub what: String,
    /// Whether it is or contains a tensor, which is then missing.
    pub holds_tensors: bool,
}

impl Skipped {
    /// A tensor that is left out because of an error.
    pub(crate) fn tensor(name: &str, error: &Error) -> Self {
        let about = format!("tensor {}: ", printable(name));
        let what = error.message();
        let what = what.split_once(about.as_str()).map_or(what, |(_, what)| what);
        Self {
            name: name.to_owned(),
            what: match error.hint() {
                Some(hint) => format!("{what}: {hint}"),
                None => what.to_owned(),
            },
            holds_tensors: true,
        }
    }
}

/// A tensor in a file.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) shape: Shape,
    pub(crate) place: Place,
}

/// The result of reading a file's structure.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) entries: Vec<Entry>,
    pub(crate) metadata: Metadata,
    pub(crate) skipped: Vec<Skipped>,
}

/// A file of tensors, or several that belong together, in any [`Format`]. Names, dtypes and shapes are read when it is
/// opened, values on demand; several threads may read at the same time.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    format: Format,
    files: Vec<Source>,
    contents: Contents,
    index: HashMap<String, usize>,
}

impl TensorFile {
    /// Opens a file, or a folder with the index of a sharded model. The file's extension does not matter.
    ///
    /// Nested dicts and lists of a `.pt` file become names with dots: `state_dict.fc.weight`, `layers.0`. In a file of
    /// one tensor without a name, such as a `.npy` file, it is called `tensor`.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when it cannot be read; [`ErrorKind::Format`] when it is truncated, corrupt, or in an unknown
    /// format; [`ErrorKind::Unsupported`] when it is big-endian, or all its tensors could only be created by running
    /// code that a pickle names.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let found = match path.is_dir() {
            true => shards::in_folder(path)?,
            false => path.to_owned(),
        };
        let source = Source::open(&found)?;
        let (format, files, contents) = match read(&source) {
            Ok((format, contents)) => (format, vec![source], contents),
            Err(Failed::Index) => {
                let shard = |source: &Source| match read(source) {
                    Ok((_, contents)) => Ok(contents),
                    Err(Failed::Index) => Err(damaged("it is an index where a shard should be")),
                    Err(Failed::Error(error)) => Err(error),
                };
                let (files, contents) = shards::open(&source, shard)?;
                (Format::Sharded, files, contents)
            }
            Err(Failed::Error(error)) => return Err(source.about(error)),
        };
        let mut index = HashMap::with_capacity(contents.entries.len());
        for (i, entry) in contents.entries.iter().enumerate() {
            if index.insert(entry.name.clone(), i).is_some() {
                let twice = damaged(format!("two of its tensors are called {}", printable(&entry.name)));
                return Err(polygrad_nn::files::in_file(twice, "read", path));
            }
        }
        Ok(Self {
            path: path.to_owned(),
            format,
            files,
            contents,
            index,
        })
    }

    /// The format of the file.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The names of the tensors, in the file's order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.contents.entries.iter().map(|entry| entry.name.as_str())
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.contents.entries.len()
    }

    /// Whether there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.contents.entries.is_empty()
    }

    /// Dtype and shape of a tensor, without reading its values.
    ///
    /// # Errors
    /// When there is no tensor of this name; [`ErrorKind::Unsupported`] when no dtype can hold its values.
    pub fn info(&self, name: &str) -> Result<TensorInfo> {
        let entry = self.entry(name)?;
        Ok(TensorInfo {
            dtype: entry.place.element.dtype().map_err(|e| self.about(e, entry))?,
            shape: entry.shape,
            stored: entry.place.element.name().to_owned(),
        })
    }

    /// Reads a tensor. It becomes contiguous, whatever its layout in the file; quantized numbers become f32, and
    /// integer types without a matching dtype become wider ones.
    ///
    /// # Errors
    /// When there is no tensor of this name; [`ErrorKind::Unsupported`] when no dtype can hold its values;
    /// [`ErrorKind::Io`] when the file can no longer be read, or has become shorter; [`ErrorKind::Format`] when it is
    /// corrupt; [`ErrorKind::OutOfMemory`].
    pub fn read(&self, name: &str) -> Result<HostTensor> {
        let entry = self.entry(name)?;
        let source = &self.files[entry.place.file];
        entry.place.read(source, entry.shape).map_err(|e| self.about(e, entry))
    }

    /// Reads a matrix of quantized numbers without unpacking them. This works for GGUF's types Q4_0, Q4_1, Q8_0, Q4_K,
    /// whose scales become f32, and Q6_K, whose numbers become 8 bits with scales of f32. `None` for any other tensor;
    /// read it with [`TensorFile::read`].
    ///
    /// # Errors
    /// As [`TensorFile::read`].
    pub fn read_packed(&self, name: &str) -> Result<Option<HostBlocks>> {
        let entry = self.entry(name)?;
        let source = &self.files[entry.place.file];
        entry
            .place
            .read_packed(source, entry.shape)
            .map_err(|e| self.about(e, entry))
    }

    /// Reads a tensor as [`TensorFile::read`], except that values that no dtype can hold are not an error: complex
    /// numbers, texts, a u64 above 2⁶³.
    ///
    /// # Errors
    /// As [`TensorFile::read`], except those of [`ErrorKind::Unsupported`].
    pub fn read_or_skip(&self, name: &str) -> Result<std::result::Result<HostTensor, Skipped>> {
        match self.read(name) {
            Ok(host) => Ok(Ok(host)),
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(Err(Skipped::tensor(name, &error))),
            Err(error) => Err(error),
        }
    }

    /// Reads all tensors, one at a time.
    ///
    /// # Errors
    /// As [`TensorFile::read`].
    pub fn state_dict(&self) -> Result<StateDict> {
        let mut state = StateDict::new();
        for name in self.keys() {
            state.insert(name, self.read(name)?);
        }
        Ok(state)
    }

    /// The metadata of the file: the keys and values of GGUF, the texts of safetensors.
    pub fn metadata(&self) -> &Metadata {
        &self.contents.metadata
    }

    /// The file's contents that are not tensors: numbers and texts of a `.pt` file, and refused objects. These include
    /// tensors that only code could create, such as sparse ones.
    pub fn skipped(&self) -> &[Skipped] {
        &self.contents.skipped
    }

    /// Whether [`TensorFile::read_packed`] keeps a tensor packed.
    ///
    /// # Errors
    /// When there is no tensor of this name.
    pub fn is_packed(&self, name: &str) -> Result<bool> {
        let entry = self.entry(name)?;
        Ok(entry.place.is_packed(&entry.shape))
    }

    fn entry(&self, name: &str) -> Result<&Entry> {
        if let Some(&i) = self.index.get(name) {
            return Ok(&self.contents.entries[i]);
        }
        let path = self.path.to_string_lossy();
        let message = format!("{} has no tensor {}", printable(&path), printable(name));
        let error = Error::new(ErrorKind::InvalidArgument, message);
        Err(match nearest(name, self.keys()) {
            Some(near) => error.with_hint(format!("perhaps {} is meant", printable(near))),
            None => error,
        })
    }

    fn about(&self, error: Error, entry: &Entry) -> Error {
        self.files[entry.place.file].about(about_tensor(error, &entry.name))
    }
}

/// Why a file could not be read on its own.
enum Failed {
    /// It is the index of a sharded model.
    Index,
    Error(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Detects the format of a file, and reads its structure.
fn read(source: &Source) -> std::result::Result<(Format, Contents), Failed> {
    const START: u64 = 40;
    let start = source.bytes(0, START.min(source.length))?;
    if start.starts_with(gguf::MAGIC) {
        return Ok((Format::Gguf, gguf::open(source)?));
    }
    if start.starts_with(numpy::MAGIC) {
        return Ok((Format::Npy, numpy::open(source)?));
    }
    if pytorch::begins_legacy(&start) {
        return Ok((Format::PyTorchLegacy, pytorch::open_legacy(source)?));
    }
    if start.starts_with(zip::BEGIN) || start.starts_with(zip::BEGIN_EMPTY) {
        return Ok(archive(source)?);
    }
    if safetensors::begins(&start) {
        return Ok((Format::Safetensors, safetensors::open(source)?));
    }
    match start.trim_ascii_start().first() {
        Some(b'{') => Err(Failed::Index),
        _ => Err(unknown(&start).into()),
    }
}

fn archive(source: &Source) -> Result<(Format, Contents)> {
    let entries = zip::entries(source)?;
    if let Some(folder) = pytorch::folder(&entries) {
        return Ok((Format::PyTorch, pytorch::open(source, &entries, folder)?));
    }
    if entries.is_empty() || entries.iter().any(|entry| entry.name.ends_with(numpy::ENDING)) {
        return Ok((Format::Npz, numpy::open_archive(source, entries)?));
    }
    let message = "it is a zip archive of other things than tensors: it has neither a data.pkl nor a .npy file";
    Err(Error::new(ErrorKind::Format, message).with_hint("give what torch.save or numpy.savez wrote"))
}

/// The hint for files in other formats.
pub(crate) const KNOWN: &str = "give a safetensors file, PyTorch's .pt, NumPy's .npy or .npz, or a GGUF file";

#[cold]
fn unknown(start: &[u8]) -> Error {
    let error = |what: &str, fix: &str| Error::new(ErrorKind::Format, what.to_owned()).with_hint(fix.to_owned());
    match start {
        [] => error("it is empty", "fetch or save it again"),
        [0x80, 2..=5, ..] => error(
            "it is a pickle, and none that torch.save wrote",
            "save its arrays with numpy.savez, or its tensors with torch.save",
        ),
        [b'v', ..] if start.starts_with(b"version https://") => error(
            "it only says where the file is, as Git LFS does",
            "fetch the file: git lfs pull",
        ),
        [b'F', b'U', b'G', b'G', ..] => error("it is a big-endian GGUF file", "convert it to little-endian"),
        _ => error(
            &format!(
                "it begins with {:02x?}, as no file of tensors does",
                &start[..start.len().min(16)]
            ),
            KNOWN,
        ),
    }
}
