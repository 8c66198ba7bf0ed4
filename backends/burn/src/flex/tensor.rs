//! The tensor: burn-flex's own, wrapped for Polygrad.

use std::fmt;

use burn_backend::DType as BurnDType;
use burn_flex::{FlexTensor, Layout as FlexLayout};
use burn_std::{BoolStore, Bytes, Shape as BurnShape};
use polygrad_core::{DType, Element, Error, ErrorKind, Layout, Result, Scalar, Shape, dispatch_dtype};

/// For larger tensors, memory is tried before Burn allocates, since a failed allocation in Burn ends the process.
const LARGE: usize = 64 << 20;

/// How bools are stored: one byte each, 0 or 1, as in Polygrad.
pub(crate) const BOOL: BurnDType = BurnDType::Bool(BoolStore::Native);

/// A tensor of Burn's CPU engine. Cloning is cheap; the memory is shared until it is written.
///
/// It is converted from a [`FlexTensor`] with `TryFrom`, which fails for dtypes that Polygrad does not have, and back
/// with `From`, both without a copy. A tensor of Polygrad contains one: `Tensor::<Burn>::from_inner`, `Tensor::inner`.
#[derive(Clone)]
pub struct BurnTensor(FlexTensor);

impl BurnTensor {
    /// A result of Burn's, with a dtype that Polygrad has.
    pub(crate) fn new(flex: FlexTensor) -> Self {
        debug_assert!(dtype_of(flex.dtype()).is_some());
        Self(flex)
    }

    /// A tensor of the values, as many as the shape has elements, in row-major order. Not for bools, whose memory Burn
    /// treats as bytes.
    pub(crate) fn from_values<T: Element>(shape: Shape, values: Vec<T>) -> Self {
        debug_assert_eq!(values.len(), shape.numel());
        let layout = FlexLayout::contiguous(burn_shape(&shape));
        Self(FlexTensor::new(Bytes::from_elems(values), layout, burn_dtype(T::DTYPE)))
    }

    /// A tensor that repeats one value.
    pub(crate) fn full(shape: Shape, value: Scalar, dtype: DType) -> Result<Self> {
        ensure_room(&shape, dtype)?;
        let (shape, to) = (burn_shape(&shape), burn_dtype(dtype));
        Ok(Self(dispatch_dtype!(dtype, T => {
            let value = T::from_scalar(value);
            // To Burn, a bool is not plain data, but its byte is.
            if dtype == DType::Bool {
                FlexTensor::filled_typed(shape, to, u8::from(value.to_f64() != 0.0))
            } else {
                filled(shape, to, value)
            }
        })))
    }

    /// Burn's tensor.
    pub fn flex(&self) -> &FlexTensor {
        &self.0
    }

    /// Its shape.
    pub fn shape(&self) -> Shape {
        shape_of(self.0.layout().shape())
    }

    /// Its dtype.
    pub fn dtype(&self) -> DType {
        match dtype_of(self.0.dtype()) {
            Some(dtype) => dtype,
            None => unreachable!("the dtype was checked when the tensor was made"),
        }
    }

    /// The layout of its elements.
    pub(crate) fn layout(&self) -> Layout {
        let layout = self.0.layout();
        Layout::strided(self.shape(), layout.strides(), layout.start_offset())
    }

    /// The same memory with another layout, which must not extend beyond it.
    pub(crate) fn view(&self, layout: &Layout) -> Self {
        let shape = burn_shape(layout.shape());
        // Burn treats even an empty view as a part of the memory, and panics if it begins after the end.
        let layout = if layout.shape().numel() == 0 {
            FlexLayout::contiguous(shape)
        } else {
            FlexLayout::new(shape, layout.strides().to_vec(), layout.offset())
        };
        Self(FlexTensor::from_arc(self.0.data_arc(), layout, self.0.dtype()))
    }

    /// The same memory, read as another dtype of the same size.
    pub(crate) fn retagged(&self, dtype: BurnDType) -> FlexTensor {
        FlexTensor::from_arc(self.0.data_arc(), self.0.layout().clone(), dtype)
    }

    /// The tensor in row-major order, possibly with an offset: itself, or a copy.
    pub(crate) fn contiguous(&self) -> Result<Self> {
        if self.0.is_contiguous() {
            return Ok(self.clone());
        }
        ensure_room(&self.shape(), self.dtype())?;
        Ok(Self(self.0.to_contiguous()))
    }

    /// Burn's tensor as an operand of an op that iterates by strides.
    ///
    /// burn-flex considers memory with as many elements as the shape a dense permutation, which a broadcast view of a
    /// part is not.
    pub(crate) fn operand(&self) -> Result<FlexTensor> {
        let layout = self.0.layout();
        let repeats = layout
            .shape()
            .iter()
            .zip(layout.strides())
            .any(|(&dim, &stride)| dim > 1 && stride == 0);
        if repeats && layout.start_offset() == 0 && self.0.bytes().len() == layout.num_elements() * self.dtype().size()
        {
            return Ok(self.contiguous()?.0);
        }
        Ok(self.0.clone())
    }

    /// The elements, if they are in row-major order; bools as bytes.
    pub(crate) fn values<T: burn_std::Element + bytemuck::Pod>(&self) -> Option<&[T]> {
        let (start, end) = self.0.layout().contiguous_offsets()?;
        if start == end {
            Some(&[])
        } else {
            self.0.storage::<T>().get(start..end)
        }
    }
}

/// [`FlexTensor::filled_typed`] for any element.
fn filled<T: Element>(shape: BurnShape, dtype: BurnDType, value: T) -> FlexTensor {
    let values = vec![value; shape.num_elements()];
    FlexTensor::new(Bytes::from_elems(values), FlexLayout::contiguous(shape), dtype)
}

impl TryFrom<FlexTensor> for BurnTensor {
    type Error = Error;

    fn try_from(flex: FlexTensor) -> Result<Self> {
        match dtype_of(flex.dtype()) {
            Some(_) => {
                Shape::new(flex.layout().shape())?;
                let tensor = Self(flex);
                Ok(tensor.view(&tensor.layout()))
            }
            None => Err(
                Error::unsupported(format!("Polygrad has no dtype like Burn's {:?}", flex.dtype()))
                    .with_hint("cast it to f64, f32, f16, bf16, i64, i32 or u8 first"),
            ),
        }
    }
}

impl From<BurnTensor> for FlexTensor {
    fn from(tensor: BurnTensor) -> Self {
        tensor.0
    }
}

impl fmt::Debug for BurnTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BurnTensor({}{})", self.dtype(), self.shape())
    }
}

/// Burn's name for a dtype.
pub(crate) fn burn_dtype(dtype: DType) -> BurnDType {
    match dtype {
        DType::Bool => BOOL,
        DType::U8 => BurnDType::U8,
        DType::I32 => BurnDType::I32,
        DType::I64 => BurnDType::I64,
        DType::F16 => BurnDType::F16,
        DType::BF16 => BurnDType::BF16,
        DType::F32 => BurnDType::F32,
        DType::F64 => BurnDType::F64,
    }
}

/// Polygrad's name for one of Burn's dtypes.
fn dtype_of(dtype: BurnDType) -> Option<DType> {
    Some(match dtype {
        BurnDType::Bool(BoolStore::Native | BoolStore::U8) => DType::Bool,
        BurnDType::U8 => DType::U8,
        BurnDType::I32 => DType::I32,
        BurnDType::I64 => DType::I64,
        BurnDType::F16 => DType::F16,
        BurnDType::BF16 => DType::BF16,
        BurnDType::F32 => DType::F32,
        BurnDType::F64 => DType::F64,
        _ => return None,
    })
}

/// A shape in Burn's type.
pub(crate) fn burn_shape(shape: &Shape) -> BurnShape {
    BurnShape::from(shape.to_vec())
}

fn shape_of(shape: &BurnShape) -> Shape {
    match Shape::new(shape) {
        Ok(shape) => shape,
        Err(_) => unreachable!("Burn computes shapes that were checked before"),
    }
}

/// Checks that there is memory for a tensor. A failed allocation in Burn ends the process, so large ones are tried
/// first.
///
/// # Errors
/// If there is none.
/// When there is none.
pub(crate) fn ensure_room(shape: &Shape, dtype: DType) -> Result<()> {
    let bytes = shape.numel().saturating_mul(dtype.size());
    if bytes <= LARGE {
        return Ok(());
    }
    Vec::<u8>::new().try_reserve_exact(bytes).map_err(|e| {
        Error::new(
            ErrorKind::OutOfMemory,
            format!("no memory for {dtype}{shape}, {bytes} bytes"),
        )
        .with_source(e)
    })
}
