//! The tensor: candle's, with the dtype that candle lacks, and a count of the tensors that share its memory.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use candle_core::{DType as CandleDType, Tensor};
use polygrad_core::{DType, Element, Error, HostTensor, Result, Scalar, Shape, dispatch_dtype, room};

use crate::CandleDevice;
use crate::engine::{afford, engine, filled};
use crate::support::refused;
use crate::values::Item;

/// A tensor of candle's. Cloning it or taking a view of it shares the memory.
#[derive(Clone)]
pub struct CandleTensor {
    inner: Tensor,
    shape: Shape,
    /// The dtype: candle has no bool, so bools are stored as zeros and ones of u8.
    dtype: DType,
    /// One per memory, shared by all tensors here over it, since candle does not tell how many there are.
    owner: Arc<Owner>,
}

/// Represents a memory.
#[derive(Default)]
struct Owner {
    /// Whether tensors outside may share the memory, too.
    lent: AtomicBool,
}

/// candle's dtype for ours.
pub(crate) const fn candle_dtype(dtype: DType) -> CandleDType {
    match dtype {
        DType::Bool | DType::U8 => CandleDType::U8,
        DType::I32 => CandleDType::I32,
        DType::I64 => CandleDType::I64,
        DType::F16 => CandleDType::F16,
        DType::BF16 => CandleDType::BF16,
        DType::F32 => CandleDType::F32,
        DType::F64 => CandleDType::F64,
    }
}

impl CandleTensor {
    /// A tensor whose memory is not shared.
    pub(crate) fn fresh(inner: Tensor, dtype: DType) -> Result<Self> {
        debug_assert_eq!(inner.dtype(), candle_dtype(dtype));
        Ok(Self {
            shape: Shape::new(inner.dims())?,
            inner,
            dtype,
            owner: Arc::default(),
        })
    }

    /// The result of a call of candle that makes `elements` elements in new memory.
    pub(crate) fn made(
        op: &'static str,
        elements: usize,
        dtype: DType,
        call: impl FnOnce() -> candle_core::Result<Tensor>,
    ) -> Result<Self> {
        afford(elements, dtype).map_err(|e| e.with_op(op))?;
        Self::fresh(engine(op, call)?, dtype)
    }

    /// This memory with another shape or strides.
    pub(crate) fn view(&self, inner: Tensor) -> Result<Self> {
        Ok(Self {
            shape: Shape::new(inner.dims())?,
            inner,
            dtype: self.dtype,
            owner: Arc::clone(&self.owner),
        })
    }

    /// This memory, read as another dtype that candle does not distinguish.
    pub(crate) fn retyped(&self, dtype: DType) -> Self {
        debug_assert_eq!(candle_dtype(dtype), candle_dtype(self.dtype));
        Self { dtype, ..self.clone() }
    }

    /// A tensor of the values, as many as the shape has elements, in row-major order, without a copy.
    pub(crate) fn of<T: Item>(shape: Shape, values: Vec<T>, device: &CandleDevice) -> Result<Self> {
        let inner = engine("from_host", || {
            Tensor::from_vec(T::into_raw(values), shape.dims(), device.inner())
        })?;
        Self::fresh(inner, T::DTYPE)
    }

    /// A tensor that repeats one value.
    pub(crate) fn full(shape: Shape, value: Scalar, dtype: DType, device: &CandleDevice) -> Result<Self> {
        dispatch_dtype!(dtype, T => {
            if device.is_cpu() {
                let values = filled(shape.numel(), <T as Element>::from_scalar(value)).map_err(|e| e.with_op("full"))?;
                return Self::of(shape, values, device);
            }
            let one = Self::of(Shape::SCALAR, vec![<T as Element>::from_scalar(value)], device)?;
            Self::fresh(engine("full", || one.inner.broadcast_as(shape.dims())?.contiguous())?, dtype)
        })
    }

    /// Copies the host's values, since candle owns a vector, and the host shares its own.
    pub(crate) fn from_host(host: &HostTensor, device: &CandleDevice) -> Result<Self> {
        dispatch_dtype!(host.dtype(), T => {
            let values = host.as_slice::<T>()?;
            let mut copy = room(values.len())?;
            copy.extend_from_slice(values);
            Self::of(*host.shape(), copy, device)
        })
    }

    /// Copies the values, since candle's vector cannot be taken from its tensor.
    pub(crate) fn to_host(&self) -> Result<HostTensor> {
        if !self.device().is_cpu() {
            let near = engine("to_host", || self.inner.to_device(&candle_core::Device::Cpu))?;
            return Self::fresh(near, self.dtype)?.to_host();
        }
        dispatch_dtype!(self.dtype, T => {
            let held = self.held("to_host")?;
            HostTensor::new(self.shape, held.values::<T>()?.into_owned())
        })
    }

    /// candle's tensor, in which bools are u8.
    pub fn inner(&self) -> &Tensor {
        // The caller can clone it, so from now on the memory may be shared.
        self.owner.lent.store(true, Ordering::Relaxed);
        &self.inner
    }

    /// candle's tensor, for computing, but not for keeping.
    #[inline]
    pub(crate) fn raw(&self) -> &Tensor {
        &self.inner
    }

    /// candle's tensor with contiguous elements, which many of its kernels require; for computing, but not for keeping.
    pub(crate) fn dense(&self, op: &'static str) -> Result<Tensor> {
        if self.inner.is_contiguous() {
            return Ok(self.inner.clone());
        }
        afford(self.shape.numel(), self.dtype).map_err(|e| e.with_op(op))?;
        engine(op, || self.inner.contiguous())
    }

    /// Whether the memory is not shared, and holds these elements in order.
    pub(crate) fn is_mine(&mut self) -> bool {
        self.inner.is_contiguous() && Arc::get_mut(&mut self.owner).is_some_and(|owner| !*owner.lent.get_mut())
    }

    /// The shape.
    #[inline]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The dtype.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The device.
    pub fn device(&self) -> CandleDevice {
        self.inner.device().clone().into()
    }
}

impl TryFrom<Tensor> for CandleTensor {
    type Error = Error;

    /// Shares the memory; candle's gradient graph ends here. u8 stays u8.
    fn try_from(tensor: Tensor) -> Result<Self> {
        let dtype = match tensor.dtype() {
            CandleDType::U8 => DType::U8,
            CandleDType::I32 => DType::I32,
            CandleDType::I64 => DType::I64,
            CandleDType::F16 => DType::F16,
            CandleDType::BF16 => DType::BF16,
            CandleDType::F32 => DType::F32,
            CandleDType::F64 => DType::F64,
            other => {
                return Err(Error::unsupported(format!("Polygrad has no {}", other.as_str()))
                    .with_op("from_candle")
                    .with_hint("convert it with to_dtype before"));
            }
        };
        let tensor = Self::fresh(tensor.detach(), dtype)?;
        tensor.owner.lent.store(true, Ordering::Relaxed);
        Ok(tensor)
    }
}

impl From<CandleTensor> for Tensor {
    /// Shares the memory; bool becomes u8.
    fn from(tensor: CandleTensor) -> Self {
        tensor.inner().clone()
    }
}

impl fmt::Debug for CandleTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CandleTensor({}{} on {})", self.dtype, self.shape, self.device())
    }
}

/// The error for an op that has no kernel on a device.
pub(crate) fn only_cpu(op: &'static str, device: &CandleDevice) -> Error {
    refused(op, format!("candle has no kernel for it on {device}")).with_hint("move the tensor to candle:cpu")
}
