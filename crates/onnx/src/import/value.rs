//! Values that flow between nodes.

use std::sync::{Arc, OnceLock};

use polygrad_core::{DType, Error, HostTensor, Result, Shape};
use polygrad_tensor::{Device, Tensor};

use crate::graph::{ElementType, Literal};

/// An input or output of a model, or a value between its nodes: a tensor, a list of values, or nothing (an empty
/// optional).
#[derive(Clone)]
pub struct Value(Kind);

#[derive(Clone)]
enum Kind {
    /// On the device.
    Tensor(Tensor, ElementType),
    /// On the host, and once requested there, also on the device.
    Host(Arc<OnHost>),
    /// Text, which is always on the host.
    Text(Arc<Literal>),
    /// Maps of the same keys, one for each row of the table of their values.
    Maps(Arc<(Literal, Value)>),
    Sequence(Arc<Vec<Value>>),
    Absent,
}

struct OnHost {
    literal: Literal,
    tensor: OnceLock<Tensor>,
}

impl From<Tensor> for Value {
    fn from(tensor: Tensor) -> Self {
        let element = tensor.dtype().into();
        Self(Kind::Tensor(tensor, element))
    }
}

impl From<Literal> for Value {
    fn from(literal: Literal) -> Self {
        if literal.texts().is_some() {
            return Self(Kind::Text(Arc::new(literal)));
        }
        Self(Kind::Host(Arc::new(OnHost {
            literal,
            tensor: OnceLock::new(),
        })))
    }
}

impl From<HostTensor> for Value {
    fn from(host: HostTensor) -> Self {
        Literal::from(host).into()
    }
}

/// The size of a text without its characters, in bytes.
const HANDLE_OF_TEXT: usize = size_of::<Arc<str>>() + size_of::<i64>();

impl Value {
    /// A list of values.
    pub fn sequence(values: Vec<Self>) -> Self {
        Self(Kind::Sequence(Arc::new(values)))
    }

    /// A list of maps of the same keys, as ZipMap makes them: one for each row of a table that has a column of values
    /// for each key. [`Value::tensor`] is the table.
    pub(crate) fn maps(keys: Literal, table: Self) -> Self {
        Self(Kind::Maps(Arc::new((keys, table))))
    }

    /// The keys of maps, integers or text, in the order of the table's columns.
    pub fn keys(&self) -> Option<&Literal> {
        match &self.0 {
            Kind::Maps(maps) => Some(&maps.0),
            _ => None,
        }
    }

    /// The elements of a tensor of text, in row-major order. [`Literal::text`] makes such a value.
    pub fn texts(&self) -> Option<&[Arc<str>]> {
        match &self.0 {
            Kind::Text(literal) => literal.texts(),
            _ => None,
        }
    }

    /// An optional without a value.
    pub fn absent() -> Self {
        Self(Kind::Absent)
    }

    /// Whether it is an optional without a value.
    pub fn is_absent(&self) -> bool {
        matches!(self.0, Kind::Absent)
    }

    /// The list, if it is one.
    pub fn as_sequence(&self) -> Option<&[Self]> {
        match &self.0 {
            Kind::Sequence(values) => Some(values),
            _ => None,
        }
    }

    /// The type of its elements in ONNX, if it is a tensor. May be narrower than the dtype that stores them.
    pub fn element(&self) -> Option<ElementType> {
        match &self.0 {
            Kind::Tensor(_, element) => Some(*element),
            Kind::Host(host) => Some(host.literal.element()),
            Kind::Text(literal) => Some(literal.element()),
            _ => None,
        }
    }

    /// The shape, if it is a tensor.
    pub fn shape(&self) -> Option<Shape> {
        match &self.0 {
            Kind::Tensor(tensor, _) => Some(tensor.shape()),
            Kind::Host(host) => Some(*host.literal.host().shape()),
            Kind::Text(literal) => Some(*literal.host().shape()),
            _ => None,
        }
    }

    /// The dtype, if it is a tensor of numbers.
    pub fn dtype(&self) -> Option<DType> {
        match &self.0 {
            Kind::Tensor(tensor, _) => Some(tensor.dtype()),
            Kind::Host(host) => Some(host.literal.host().dtype()),
            _ => None,
        }
    }

    /// Whether a gradient flows through it.
    pub fn is_tracked(&self) -> bool {
        match &self.0 {
            Kind::Tensor(tensor, _) => tensor.is_tracked(),
            Kind::Maps(maps) => maps.1.is_tracked(),
            Kind::Host(_) | Kind::Text(_) | Kind::Absent => false,
            Kind::Sequence(values) => values.iter().any(Self::is_tracked),
        }
    }

    /// The tensor on the device, or the table of maps.
    ///
    /// # Errors
    /// If it is no tensor of numbers, or the device lacks the dtype or memory.
    pub fn tensor(&self, device: &Device) -> Result<Tensor> {
        match &self.0 {
            Kind::Tensor(tensor, _) => Ok(tensor.clone()),
            Kind::Host(host) => {
                if let Some(tensor) = host.tensor.get() {
                    return Ok(tensor.clone());
                }
                let tensor = Tensor::from_host(host.literal.host().clone(), device)?;
                Ok(host.tensor.get_or_init(|| tensor).clone())
            }
            Kind::Maps(maps) => maps.1.tensor(device),
            _ => Err(self.no_tensor()),
        }
    }

    /// The tensor on the host. Waits for the device if it is only there.
    ///
    /// # Errors
    /// If it is no tensor, or the device fails.
    pub fn host(&self) -> Result<HostTensor> {
        match &self.0 {
            Kind::Tensor(tensor, _) => tensor.to_host(),
            Kind::Host(host) => Ok(host.literal.host().clone()),
            Kind::Maps(maps) => maps.1.host(),
            _ => Err(self.no_tensor()),
        }
    }

    /// The tensor on the host, with its element type.
    pub fn literal(&self) -> Result<Literal> {
        match &self.0 {
            Kind::Tensor(tensor, element) => Literal::new(*element, tensor.to_host()?),
            Kind::Host(host) => Ok(host.literal.clone()),
            Kind::Text(literal) => Ok(Literal::clone(literal)),
            Kind::Maps(maps) => maps.1.literal(),
            _ => Err(self.no_tensor()),
        }
    }

    /// The tensor, if it is on the host already.
    pub(crate) fn on_host(&self) -> Option<&Literal> {
        match &self.0 {
            Kind::Host(host) => Some(&host.literal),
            _ => None,
        }
    }

    /// The tensor, if it is on the device.
    pub(super) fn on_device(&self) -> Option<&Tensor> {
        match &self.0 {
            Kind::Tensor(tensor, _) => Some(tensor),
            _ => None,
        }
    }

    /// Whether both are the identical value on the host, not only equal.
    pub(crate) fn is_same_host(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Kind::Host(one), Kind::Host(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// The same values with another element type that is stored in their dtype.
    pub(crate) fn with_element(self, element: ElementType) -> Self {
        match self.0 {
            Kind::Tensor(tensor, _) => Self(Kind::Tensor(tensor, element)),
            Kind::Host(host) if host.literal.element() == element => Self(Kind::Host(host)),
            Kind::Host(host) => match Literal::new(element, host.literal.host().clone()) {
                Ok(literal) => literal.into(),
                Err(_) => Self(Kind::Host(host)),
            },
            other => Self(other),
        }
    }

    /// Its size in bytes. Tensors that occur in several lists count each time.
    pub(crate) fn bytes(&self) -> usize {
        match &self.0 {
            Kind::Sequence(values) => values.iter().map(Self::bytes).fold(0, usize::saturating_add),
            Kind::Maps(maps) => maps.1.bytes(),
            Kind::Text(literal) => {
                let texts = literal.texts().unwrap_or_default().iter();
                texts
                    .map(|text| text.len() + HANDLE_OF_TEXT)
                    .fold(0, usize::saturating_add)
            }
            _ => match (self.shape(), self.dtype()) {
                (Some(shape), Some(dtype)) => shape.numel().saturating_mul(dtype.size()),
                _ => 0,
            },
        }
    }

    fn no_tensor(&self) -> Error {
        let what = match self.0 {
            Kind::Absent => "an empty optional",
            Kind::Text(_) => "text",
            _ => "a sequence",
        };
        Error::invalid(format!("{what} stands where a tensor of numbers is needed"))
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Kind::Tensor(tensor, _) => write!(f, "{tensor:?}"),
            Kind::Host(host) => write!(f, "{:?}", host.literal.host()),
            Kind::Sequence(values) => f.debug_list().entries(values.iter()).finish(),
            Kind::Text(literal) => write!(f, "{:?}", literal.texts().unwrap_or_default()),
            Kind::Maps(maps) => write!(f, "maps of {:?}", maps.1),
            Kind::Absent => f.write_str("absent"),
        }
    }
}
