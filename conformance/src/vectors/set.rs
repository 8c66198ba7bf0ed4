//! Reading of a set of vectors: `manifest.json` and `tensors.safetensors`, as written by `scripts/vector_set.py`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use polygrad_core::{DType, Error, ErrorKind, HostTensor, Result, Shape};
use safetensors::{Dtype, SafeTensors};
use serde_json::{Map, Value};

/// One call of an op with the arguments given to PyTorch.
pub(crate) struct Vector {
    /// Its name in reports, and the prefix of its tensors.
    pub(crate) k: String,
    /// PyTorch's name of the op.
    pub(crate) op: String,
    /// OpInfo's name for this variant of the op; empty for the op itself.
    pub(crate) variant: String,
    pub(crate) args: Vec<Value>,
    pub(crate) kwargs: Map<String, Value>,
    pub(crate) outputs: usize,
    /// The special property of an argument, if the case is from a sweep; else empty.
    pub(crate) special: String,
    /// Whether PyTorch gives an error instead of outputs.
    pub(crate) refused: bool,
}

/// Cases, and their tensors.
pub(crate) struct VectorSet {
    pub(crate) cases: Vec<Vector>,
    tensors: BTreeMap<String, HostTensor>,
    /// Tensors in the file that cannot be read, and why.
    unreadable: BTreeMap<String, String>,
}

impl VectorSet {
    /// A set that is computed here.
    pub(super) fn new(cases: Vec<Vector>, tensors: BTreeMap<String, HostTensor>) -> Self {
        Self {
            cases,
            tensors,
            unreadable: BTreeMap::new(),
        }
    }

    /// The set in a folder.
    ///
    /// # Errors
    /// A file that is missing or malformed; the error names the file and the position.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let open = |name: &str| {
            let path = folder.join(name);
            match std::fs::read(&path) {
                Ok(bytes) => Ok((path.display().to_string(), bytes)),
                Err(error) => Err(Error::io("read", &path, error)),
            }
        };
        let (manifest, json) = open("manifest.json")?;
        let (tensors, file) = open("tensors.safetensors")?;
        Self::parse((&manifest, &json), (&tensors, &file))
    }

    /// The set in two files in memory, with their names for errors.
    ///
    /// # Errors
    /// A file that is malformed; the error names the file and the position.
    pub(crate) fn parse(manifest: (&str, &[u8]), tensors: (&str, &[u8])) -> Result<Self> {
        let malformed = |name: &str, what: String| Error::new(ErrorKind::Format, format!("{name}: {what}"));
        let list: Vec<Value> =
            serde_json::from_slice(manifest.1).map_err(|e| malformed(manifest.0, format!("no list of cases: {e}")))?;
        let mut names = BTreeSet::new();
        let mut cases = Vec::with_capacity(list.len());
        for (i, json) in list.iter().enumerate() {
            let case = vector(json).map_err(|what| malformed(manifest.0, format!("case number {i}: {what}")))?;
            if !names.insert(case.k.clone()) {
                let what = format!("case number {i}: a case before it has the name {:?} too", case.k);
                return Err(malformed(manifest.0, what));
            }
            cases.push(case);
        }
        let file = SafeTensors::deserialize(tensors.1)
            .map_err(|e| malformed(tensors.0, format!("no safetensors file: {e}")))?;
        let mut set = Self {
            cases,
            tensors: BTreeMap::new(),
            unreadable: BTreeMap::new(),
        };
        for (key, view) in file.iter() {
            match host(view.dtype(), view.shape(), view.data()) {
                Ok(tensor) => drop(set.tensors.insert(key.to_owned(), tensor)),
                Err(why) => drop(set.unreadable.insert(key.to_owned(), why)),
            }
        }
        Ok(set)
    }

    /// The tensor of this key, if there is one.
    ///
    /// # Errors
    /// If it exists but cannot be read.
    pub(crate) fn get(&self, key: &str) -> Result<Option<&HostTensor>, String> {
        match (self.tensors.get(key), self.unreadable.get(key)) {
            (_, Some(why)) => Err(format!("tensor {key:?} cannot be read: {why}")),
            (found, None) => Ok(found),
        }
    }

    /// The tensor of this key.
    ///
    /// # Errors
    /// If it does not exist or cannot be read.
    pub(crate) fn require(&self, key: &str) -> Result<&HostTensor, String> {
        self.get(key)?.ok_or_else(|| format!("the set has no tensor {key:?}"))
    }
}

fn vector(json: &Value) -> Result<Vector, String> {
    let object = json.as_object().ok_or("it is no object")?;
    let field = |name: &str| object.get(name).ok_or_else(|| format!("{name:?} is missing"));
    let text = |name: &str| match field(name)?.as_str() {
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err(format!("{name:?} is no text")),
    };
    Ok(Vector {
        k: text("k")?,
        op: text("op")?,
        variant: object.get("var").and_then(Value::as_str).unwrap_or_default().to_owned(),
        args: field("a")?.as_array().ok_or("\"a\" is no list")?.clone(),
        kwargs: field("kw")?.as_object().ok_or("\"kw\" is no object")?.clone(),
        outputs: (field("n")?.as_u64().and_then(|n| usize::try_from(n).ok())).ok_or("\"n\" is no number of outputs")?,
        special: object
            .get("special")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        refused: object.get("refused").and_then(Value::as_bool).unwrap_or_default(),
    })
}

fn host(dtype: Dtype, shape: &[usize], bytes: &[u8]) -> Result<HostTensor, String> {
    let dtype = match dtype {
        Dtype::F64 => DType::F64,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::I64 => DType::I64,
        Dtype::I32 => DType::I32,
        Dtype::U8 => DType::U8,
        Dtype::BOOL => DType::Bool,
        other => return Err(format!("its dtype is {other:?}")),
    };
    let read = || HostTensor::from_bytes(dtype, Shape::new(shape)?, bytes);
    read().map_err(|error| error.to_string())
}

/// The keys of the tensors in an argument, in order.
pub(crate) fn keys(value: &Value) -> Vec<&str> {
    match value {
        Value::Object(tensor) => tensor.get("t").and_then(Value::as_str).into_iter().collect(),
        Value::Array(values) => values.iter().flat_map(keys).collect(),
        _ => Vec::new(),
    }
}
