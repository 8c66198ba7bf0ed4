//! Reading a set of vectors: `manifest.json` and `tensors.safetensors`, as `scripts/vector_set.py` writes them.

use std::collections::BTreeMap;
use std::path::Path;

use polygrad_core::{DType, HostTensor, Shape};
use safetensors::{Dtype, SafeTensors};
use serde_json::{Map, Value};

/// One call of an op with the arguments that PyTorch was given.
pub(crate) struct Case {
    /// The name by which it is reported, and the prefix of its tensors.
    pub(crate) k: String,
    /// PyTorch's name of the op.
    pub(crate) op: String,
    pub(crate) args: Vec<Value>,
    pub(crate) kwargs: Map<String, Value>,
    pub(crate) outputs: usize,
}

/// Cases, and what they name.
pub(crate) struct VectorSet {
    pub(crate) cases: Vec<Case>,
    tensors: BTreeMap<String, HostTensor>,
}

impl VectorSet {
    pub(crate) fn read(folder: &Path) -> Self {
        let open = |name: &str| {
            let path = folder.join(name);
            std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        let manifest: Vec<Value> = serde_json::from_slice(&open("manifest.json")).unwrap();
        let file = open("tensors.safetensors");
        let tensors = SafeTensors::deserialize(&file)
            .unwrap()
            .iter()
            .map(|(key, view)| (key.to_owned(), host(view.dtype(), view.shape(), view.data())))
            .collect();
        Self {
            cases: manifest.iter().map(case).collect(),
            tensors,
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&HostTensor> {
        self.tensors.get(key)
    }

    pub(crate) fn expect(&self, key: &str) -> &HostTensor {
        self.get(key).unwrap_or_else(|| panic!("the set lacks {key}"))
    }
}

fn case(json: &Value) -> Case {
    let text = |field: &str| json[field].as_str().unwrap().to_owned();
    Case {
        k: text("k"),
        op: text("op"),
        args: json["a"].as_array().unwrap().clone(),
        kwargs: json["kw"].as_object().unwrap().clone(),
        outputs: json["n"].as_u64().unwrap() as usize,
    }
}

fn host(dtype: Dtype, shape: &[usize], bytes: &[u8]) -> HostTensor {
    let dtype = match dtype {
        Dtype::F64 => DType::F64,
        Dtype::I64 => DType::I64,
        Dtype::I32 => DType::I32,
        Dtype::U8 => DType::U8,
        Dtype::BOOL => DType::Bool,
        other => panic!("the set holds a tensor of {other:?}"),
    };
    HostTensor::from_bytes(dtype, Shape::new(shape).unwrap(), bytes).unwrap()
}

/// The keys of the tensors in an argument, in order.
pub(crate) fn keys(value: &Value) -> Vec<&str> {
    match value {
        Value::Object(tensor) => tensor.get("t").and_then(Value::as_str).into_iter().collect(),
        Value::Array(values) => values.iter().flat_map(keys).collect(),
        _ => Vec::new(),
    }
}
