//! The supported calls.

use polygrad_core::MAX_RANK;
use polygrad_tensor::{Error, ErrorKind, Result, Shape};

use super::storage::extent;
use super::{Heap, Object, StorageType, Value, View};
use crate::source::damaged;

/// The deepest nesting of calls.
const MAX_CALLS: usize = 4;

impl Heap {
    /// The result of a call; with `new`, of a class's `__new__`.
    pub(super) fn call(&mut self, callable: Value, arguments: Value, new: bool) -> Result<Value> {
        let Some(Object::Tuple(_)) = self.get(arguments) else {
            return Err(damaged("its pickle calls something with what is no tuple"));
        };
        match self.call_within(callable, arguments, new, MAX_CALLS) {
            // Only this tensor cannot be read; others may be readable.
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                let why = match error.hint() {
                    Some(hint) => format!("{}: {hint}", error.message()),
                    None => error.message().to_owned(),
                };
                let made = self.foreign(callable, &[arguments])?;
                if let Some(Object::Foreign { why: left_out, .. }) = self.get_mut(made) {
                    *left_out = Some(why);
                }
                Ok(made)
            }
            made => made,
        }
    }

    fn call_within(&mut self, callable: Value, arguments: Value, new: bool, calls: usize) -> Result<Value> {
        let Some(Object::Global(name)) = self.get(callable) else {
            return self.foreign(callable, &[arguments]);
        };
        let given = self.sequence(arguments).unwrap_or_default();
        match (name.as_str(), given) {
            ("collections.OrderedDict", []) => self.add(Object::Dict(Vec::new())),
            ("collections.OrderedDict", &[pairs]) if !new => self.dict_of(pairs),
            _ if new => self.foreign(callable, &[arguments]),
            ("torch._utils._rebuild_tensor", &[storage, offset, size, stride]) => {
                self.tensor(storage, [offset, size, stride], None)
            }
            ("torch._utils._rebuild_tensor_v2", &[storage, offset, size, stride, _, _, ref more @ ..]) => {
                self.no_bits(more.first())?;
                self.tensor(storage, [offset, size, stride], None)
            }
            ("torch._utils._rebuild_tensor_v3", &[storage, offset, size, stride, _, _, dtype, ref more @ ..]) => {
                self.no_bits(more.first())?;
                let dtype = self
                    .global(dtype)
                    .ok_or_else(|| damaged("its pickle has a tensor without a dtype"))?;
                let element = StorageType::of_dtype(dtype)
                    .ok_or_else(|| Error::unsupported(format!("its dtype {dtype} is not known")))?;
                self.tensor(storage, [offset, size, stride], Some(element))
            }
            ("torch._utils._rebuild_parameter" | "torch._utils._rebuild_parameter_with_state", &[data, _, _, ..]) => {
                match self.get(data) {
                    Some(Object::Tensor(_)) => Ok(data),
                    _ => Err(damaged("its pickle has a parameter without a tensor")),
                }
            }
            // A tensor with attributes, or of a subclass.
            ("torch._tensor._rebuild_from_type_v2", &[function, class, inner, _]) if calls > 0 => {
                match self.global(class) {
                    Some("torch.Tensor" | "torch._tensor.Tensor" | "torch.nn.parameter.Parameter") => {
                        self.call_within(function, inner, false, calls - 1)
                    }
                    Some(class) => Err(Error::unsupported(format!("it is a tensor of the class {class}"))
                        .with_hint("call as_subclass(torch.Tensor) before saving it")),
                    None => self.foreign(callable, &[arguments]),
                }
            }
            ("torch._utils._rebuild_sparse_tensor" | "torch._utils._rebuild_sparse_csr_tensor", _) => {
                Err(Error::unsupported("it is a sparse tensor").with_hint("call to_dense() before saving it"))
            }
            ("torch._utils._rebuild_qtensor", _) => {
                Err(Error::unsupported("it is a quantized tensor").with_hint("call dequantize() before saving it"))
            }
            ("torch._utils._rebuild_nested_tensor", _) => {
                Err(Error::unsupported("it is a nested tensor").with_hint("save its parts, as unbind() gives them"))
            }
            ("torch._utils._rebuild_meta_tensor_no_storage", _) => Err(Error::unsupported(
                "it is a tensor of the device meta, which has no values",
            )),
            ("torch.Size" | "builtins.set" | "__builtin__.set", &[values]) if self.sequence(values).is_some() => {
                Ok(values)
            }
            // Creates objects of classes before protocol 2.
            ("copy_reg._reconstructor" | "copyreg._reconstructor", &[class, _, _]) => self.foreign(class, &[arguments]),
            ("torch.device", _) => self.add(Object::Plain("a device")),
            ("torch.serialization._get_layout", _) => self.add(Object::Plain("a layout")),
            ("_codecs.encode", _) => self.add(Object::Bytes),
            _ => self.foreign(callable, &[arguments]),
        }
    }

    /// The inert result of an unknown global.
    ///
    /// # Errors
    /// When it is not a global, nor created by one.
    pub(super) fn foreign(&mut self, of: Value, given: &[Value]) -> Result<Value> {
        let (global, mut parts) = match self.get(of) {
            Some(Object::Global(_)) => (of, Vec::new()),
            // A call of the result of a call.
            Some(&Object::Foreign { of: global, .. }) => (global, vec![of]),
            _ => return Err(damaged(format!("its pickle calls {}", self.describe(of)))),
        };
        parts.extend(given);
        self.count(parts.len())?;
        self.add(Object::Foreign {
            of: global,
            parts,
            why: None,
        })
    }

    fn dict_of(&mut self, pairs: Value) -> Result<Value> {
        let wrong = || damaged("its pickle has an OrderedDict of what are no pairs");
        let pairs = self.sequence(pairs).ok_or_else(wrong)?;
        let count = pairs.len();
        let pair = |&pair: &Value| match self.sequence(pair) {
            Some(&[key, value]) => Ok((key, value)),
            _ => Err(wrong()),
        };
        let entries = pairs.iter().map(pair).collect::<Result<_>>()?;
        self.count(count)?;
        self.add(Object::Dict(entries))
    }

    /// Rejects tensors whose values would have to be negated or conjugated when read.
    fn no_bits(&self, metadata: Option<&Value>) -> Result<()> {
        match metadata {
            Some(&value) if value != Value::None && self.dict(value) != Some(&[]) => {
                Err(Error::unsupported("it is negated or conjugated when it is read")
                    .with_hint("call resolve_neg() or resolve_conj() before saving it"))
            }
            _ => Ok(()),
        }
    }

    fn tensor(&mut self, storage: Value, view: [Value; 3], element: Option<StorageType>) -> Result<Value> {
        let wrong = || damaged("its pickle has a tensor without a storage");
        let (Value::Object(id), Some(Object::Storage(of))) = (storage, self.get(storage)) else {
            return Err(wrong());
        };
        if element.is_some() != (of.of == StorageType::Untyped) {
            return Err(damaged("its pickle has a tensor of another dtype than its storage"));
        }
        let [offset, size, stride] = view;
        let extents = |values: Value| {
            let values = self.sequence(values).ok_or_else(wrong)?;
            if values.len() > MAX_RANK {
                return Err(Error::unsupported(format!(
                    "it is of rank {}, above the limit of {MAX_RANK}",
                    values.len()
                )));
            }
            values
                .iter()
                .map(|&value| extent(value))
                .collect::<Result<Vec<usize>>>()
        };
        let (size, strides) = (extents(size)?, extents(stride)?);
        if size.len() != strides.len() {
            return Err(damaged("its pickle has a tensor with more or fewer strides than axes"));
        }
        let view = View {
            storage: id,
            offset: extent(offset)?,
            shape: Shape::new(&size).map_err(|e| damaged(e.to_string()))?,
            strides,
            element,
        };
        self.add(Object::Tensor(Box::new(view)))
    }
}
