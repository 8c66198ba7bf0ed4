//! Storages: the meaning of persistent ids in pickles.

use polygrad_nn::files::Stored;
use polygrad_tensor::{Error, Result};

use super::{Heap, Object, Value};
use crate::place::Element;
use crate::source::damaged;

/// The element type of a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StorageType {
    Number(Stored),
    /// A type that no dtype can hold: its name in PyTorch, and the bytes of an element.
    Other(&'static str, usize),
    /// Bytes, whose type is given by each tensor.
    Untyped,
}

impl StorageType {
    /// Bytes of an element.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::Number(stored) => stored.size(),
            Self::Other(_, size) => size,
            Self::Untyped => 1,
        }
    }

    pub(crate) fn element(self) -> Element {
        match self {
            Self::Number(stored) => Element::Number(stored),
            Self::Other(name, _) => Element::Unknown(name.to_owned()),
            Self::Untyped => Element::Unknown("bytes without a dtype".to_owned()),
        }
    }

    /// The element type of a storage class: `torch.FloatStorage`.
    fn of_class(class: &str) -> Option<Self> {
        let class = class.strip_prefix("torch.")?;
        let class = class.strip_prefix("cuda.").unwrap_or(class);
        Some(match class {
            "FloatStorage" => Self::Number(Stored::F32),
            "DoubleStorage" => Self::Number(Stored::F64),
            "HalfStorage" => Self::Number(Stored::F16),
            "BFloat16Storage" => Self::Number(Stored::BF16),
            "LongStorage" => Self::Number(Stored::I64),
            "IntStorage" => Self::Number(Stored::I32),
            "ShortStorage" => Self::Number(Stored::I16),
            "CharStorage" => Self::Number(Stored::I8),
            "ByteStorage" => Self::Number(Stored::U8),
            "BoolStorage" => Self::Number(Stored::Bool),
            "ComplexFloatStorage" => Self::Other("complex64", 8),
            "ComplexDoubleStorage" => Self::Other("complex128", 16),
            "ComplexHalfStorage" => Self::Other("complex32", 4),
            "QInt8Storage" => Self::Other("qint8", 1),
            "QUInt8Storage" => Self::Other("quint8", 1),
            "QInt32Storage" => Self::Other("qint32", 4),
            "QUInt4x2Storage" => Self::Other("quint4x2", 1),
            "QUInt2x4Storage" => Self::Other("quint2x4", 1),
            "storage.UntypedStorage" | "UntypedStorage" => Self::Untyped,
            _ => return None,
        })
    }

    /// The element type of a PyTorch dtype: `torch.float32`.
    pub(super) fn of_dtype(dtype: &str) -> Option<Self> {
        Some(match dtype.strip_prefix("torch.")? {
            "float32" => Self::Number(Stored::F32),
            "float64" => Self::Number(Stored::F64),
            "float16" => Self::Number(Stored::F16),
            "bfloat16" => Self::Number(Stored::BF16),
            "int64" => Self::Number(Stored::I64),
            "int32" => Self::Number(Stored::I32),
            "int16" => Self::Number(Stored::I16),
            "int8" => Self::Number(Stored::I8),
            "uint8" => Self::Number(Stored::U8),
            "uint16" => Self::Number(Stored::U16),
            "uint32" => Self::Number(Stored::U32),
            "uint64" => Self::Number(Stored::U64),
            "bool" => Self::Number(Stored::Bool),
            "complex32" => Self::Other("complex32", 4),
            "complex64" => Self::Other("complex64", 8),
            "complex128" => Self::Other("complex128", 16),
            "float8_e4m3fn" => Self::Other("float8_e4m3fn", 1),
            "float8_e4m3fnuz" => Self::Other("float8_e4m3fnuz", 1),
            "float8_e5m2" => Self::Other("float8_e5m2", 1),
            "float8_e5m2fnuz" => Self::Other("float8_e5m2fnuz", 1),
            "float4_e2m1fn_x2" => Self::Other("float4_e2m1fn_x2", 1),
            "float8_e8m0fnu" => Self::Other("float8_e8m0fnu", 1),
            _ => return None,
        })
    }
}

/// Memory that tensors are views of.
#[derive(Debug)]
pub(crate) struct Storage {
    /// Its name in the file.
    pub(crate) key: String,
    pub(crate) of: StorageType,
    /// Number of its elements or, for a part of it, of that part's elements.
    pub(crate) count: usize,
    /// Index of the part's first element.
    pub(crate) offset: usize,
}

impl Heap {
    /// The storage of a persistent id: `("storage", class, key, location, count)`, and in old files a part of it.
    pub(super) fn storage(&mut self, id: Value) -> Result<Value> {
        let wrong = || damaged("its pickle has a persistent id that is no storage");
        let Some(Object::Tuple(parts)) = self.get(id) else {
            return Err(wrong());
        };
        let (&[kind, class, key, _, count], part) = parts.split_first_chunk::<5>().ok_or_else(wrong)?;
        if self.text(kind) != Some("storage") {
            return Err(wrong());
        }
        let class = self.global(class).ok_or_else(wrong)?;
        let (of, key) = storage_of(class, self.text(key).ok_or_else(wrong)?)?;
        let (mut count, mut offset) = (extent(count)?, 0);
        if let Some(&part) = part.first()
            && part != Value::None
        {
            let &[_, start, length] = self
                .sequence(part)
                .and_then(|part| part.first_chunk())
                .ok_or_else(wrong)?;
            let (start, length) = (extent(start)?, extent(length)?);
            if start.checked_add(length).is_none_or(|end| end > count) {
                return Err(damaged("its pickle has a part of a storage that is outside of it"));
            }
            (offset, count) = (start, length);
        }
        let storage = Storage { key, of, count, offset };
        self.add(Object::Storage(Box::new(storage)))
    }

    /// The same for protocol 0, which writes the id as Python prints it: `('storage', <class 'torch.FloatStorage'>,
    /// '0', 'cpu', 3)`.
    pub(super) fn storage_of_line(&mut self, id: &str) -> Result<Value> {
        let wrong = || damaged("its pickle has a persistent id that is no storage");
        let parts = id
            .strip_prefix("('storage', <class '")
            .and_then(|id| id.strip_suffix(')'));
        let (class, rest) = parts.and_then(|id| id.split_once("'>, '")).ok_or_else(wrong)?;
        let (key, rest) = rest.split_once("', '").ok_or_else(wrong)?;
        let (_, count) = rest.split_once("', ").ok_or_else(wrong)?;
        let count = count.strip_suffix(", None").unwrap_or(count);
        let (of, key) = storage_of(class, key)?;
        let storage = Storage {
            key,
            of,
            count: count.parse().map_err(|_| wrong())?,
            offset: 0,
        };
        self.add(Object::Storage(Box::new(storage)))
    }
}

/// The element type and the name of a storage of a class.
fn storage_of(class: &str, key: &str) -> Result<(StorageType, String)> {
    /// The name is the number of a record, or an address.
    const MAX_KEY: usize = 100;
    let of = StorageType::of_class(class)
        .ok_or_else(|| super::refused(class, "its pickle uses it as the class of a storage"))?;
    match key.len() <= MAX_KEY {
        true => Ok((of, key.to_owned())),
        false => Err(damaged("its pickle has a persistent id that is no storage")),
    }
}

/// A number of elements.
pub(super) fn extent(value: Value) -> Result<usize> {
    let Value::Int(number) = value else {
        return Err(damaged("its pickle has something else where a size should be"));
    };
    usize::try_from(number).map_err(|_| {
        Error::unsupported(format!(
            "its pickle has {number} where a size, an offset or a stride should be"
        ))
    })
}
