//! Types of values.

use std::fmt;

use polygrad_core::{Result, printable};

use super::{ElementType, Literal, malformed};
use crate::proto::{
    Dimension, DimensionValue, ElementTypeProto, MapTypeProto, TensorShapeProto, TensorTypeProto, TypeProto, TypeValue,
};

/// An extent of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    /// Known.
    Fixed(usize),
    /// Known when the model runs; equal names are equal extents.
    Named(String),
    /// Known when the model runs.
    Unknown,
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(extent) => write!(f, "{extent}"),
            Self::Named(name) => f.write_str(&printable(name)),
            Self::Unknown => f.write_str("?"),
        }
    }
}

/// A tensor's elements and shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorType {
    /// The elements.
    pub element: ElementType,
    /// The extents, if at least the rank is known.
    pub shape: Option<Vec<Dim>>,
}

impl TensorType {
    /// The type of an existing tensor.
    pub fn of(tensor: &Literal) -> Self {
        Self {
            element: tensor.element(),
            shape: Some(tensor.host().shape().iter().map(|&extent| Dim::Fixed(extent)).collect()),
        }
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.element)?;
        if let Some(shape) = &self.shape {
            let dims: Vec<String> = shape.iter().map(Dim::to_string).collect();
            write!(f, "[{}]", dims.join(", "))?;
        }
        Ok(())
    }
}

/// A value's type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// A tensor.
    Tensor(TensorType),
    /// A list of values of one type; `None` if the file does not say it.
    Sequence(Option<Box<ValueType>>),
    /// Values by keys of a type; `None` if the file does not say the type of the values.
    Map(ElementType, Option<Box<ValueType>>),
    /// A value or nothing.
    Optional(Option<Box<ValueType>>),
}

impl ValueType {
    /// A tensor's type.
    pub fn tensor(element: impl Into<ElementType>, shape: Vec<Dim>) -> Self {
        Self::Tensor(TensorType {
            element: element.into(),
            shape: Some(shape),
        })
    }

    /// The tensor's type, if it is one.
    pub fn as_tensor(&self) -> Option<&TensorType> {
        match self {
            Self::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// `None` for a type that is not given; an error for an unknown kind of value.
    pub(super) fn read(proto: &TypeProto) -> Result<Option<Self>> {
        let boxed = |ty: &Option<Box<TypeProto>>| -> Result<Option<Box<Self>>> {
            let ty = ty.as_deref().map(Self::read).transpose()?;
            Ok(ty.flatten().map(Box::new))
        };
        Ok(Some(match &proto.value {
            None => return Ok(None),
            Some(TypeValue::Tensor(tensor)) => {
                if tensor.elem_type == 0 {
                    return Ok(None);
                }
                Self::Tensor(TensorType {
                    element: ElementType::from_number(tensor.elem_type)?,
                    shape: tensor.shape.as_ref().map(read_shape).transpose()?,
                })
            }
            Some(TypeValue::Sequence(element)) => Self::Sequence(boxed(&element.elem_type)?),
            Some(TypeValue::Optional(element)) => Self::Optional(boxed(&element.elem_type)?),
            Some(TypeValue::Map(map)) => Self::Map(ElementType::from_number(map.key_type)?, boxed(&map.value_type)?),
            Some(TypeValue::SparseTensor(_)) => return Err(malformed("sparse tensors do not flow between nodes here")),
        }))
    }

    pub(super) fn write(&self) -> TypeProto {
        let boxed = |ty: &Option<Box<Self>>| ty.as_ref().map(|ty| Box::new(ty.write()));
        let inner = |ty: &Option<Box<Self>>| Box::new(ElementTypeProto { elem_type: boxed(ty) });
        let value = match self {
            Self::Tensor(tensor) => TypeValue::Tensor(TensorTypeProto {
                elem_type: tensor.element.number(),
                shape: tensor.shape.as_deref().map(write_shape),
            }),
            Self::Sequence(ty) => TypeValue::Sequence(inner(ty)),
            Self::Optional(ty) => TypeValue::Optional(inner(ty)),
            Self::Map(key, ty) => TypeValue::Map(Box::new(MapTypeProto {
                key_type: key.number(),
                value_type: boxed(ty),
            })),
        };
        TypeProto { value: Some(value) }
    }
}

fn read_shape(shape: &TensorShapeProto) -> Result<Vec<Dim>> {
    let read = |dim: &Dimension| match &dim.value {
        // Paddle writes −1 for an unknown extent, and ONNX Runtime reads it so.
        Some(DimensionValue::Value(-1)) => Ok(Dim::Unknown),
        Some(DimensionValue::Value(extent)) => usize::try_from(*extent)
            .map(Dim::Fixed)
            .map_err(|_| malformed(format!("an extent is {extent}"))),
        // `?` is not a name: Paddle writes it for every unknown extent.
        Some(DimensionValue::Param(name)) if !name.is_empty() && name != "?" => Ok(Dim::Named(name.clone())),
        _ => Ok(Dim::Unknown),
    };
    shape.dim.iter().map(read).collect()
}

fn write_shape(dims: &[Dim]) -> TensorShapeProto {
    let write = |dim: &Dim| Dimension {
        value: match dim {
            Dim::Fixed(extent) => Some(DimensionValue::Value(i64::try_from(*extent).unwrap_or(i64::MAX))),
            Dim::Named(name) => Some(DimensionValue::Param(name.clone())),
            Dim::Unknown => None,
        },
    };
    TensorShapeProto {
        dim: dims.iter().map(write).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(extents: &[i64]) -> TensorShapeProto {
        let dim = |&extent: &i64| Dimension {
            value: Some(DimensionValue::Value(extent)),
        };
        TensorShapeProto {
            dim: extents.iter().map(dim).collect(),
        }
    }

    #[test]
    fn extents_without_a_number_or_name_are_open() {
        let read = read_shape(&shape(&[-1, 3])).unwrap();
        assert_eq!(read, [Dim::Unknown, Dim::Fixed(3)]);
        assert!(
            read_shape(&shape(&[-2]))
                .unwrap_err()
                .to_string()
                .contains("an extent is -2")
        );
    }
}
