//! The tensor: one of LibTorch's, and a layout.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use polygrad_core::{DType, Error, HostBytes, HostTensor, Layout, Result, Scalar, Shape};
use tch::{Kind, Tensor};

use crate::error::{Named, guarded};
use crate::{TorchDevice, ffi};

/// A tensor of LibTorch, shared.
pub(crate) struct Raw {
    tensor: Tensor,
    /// For a view: the tensor that owns the memory.
    root: Option<Arc<Raw>>,
    /// Whether code outside may hold the memory, too, so that it must never be changed.
    exposed: AtomicBool,
}

// SAFETY: a `tch::Tensor` is a pointer to an `at::Tensor`, a reference with an atomic count. Threads share `&Raw`,
// through which only ops that read are called: `at::Tensor`'s const methods, which LibTorch documents as safe to call
// concurrently, like those of a `std::shared_ptr`'s pointee. docs/decisions/031-libtorch-tensors-are-sync.md lists what
// a const method may still write, and none of that is reached: autograd metadata (no tensor here requires a gradient),
// copy-on-write storage and symbolic shapes (nothing here creates them), the Python object (there is no interpreter).
// In-place ops need `&mut Tensor`, which `TorchTensor::writable` returns only to the sole owner. tch and LibTorch keep
// errors in thread-local storage.
#[allow(unsafe_code, reason = "argued above, and tested with threads in tests/adapter.rs")]
unsafe impl Sync for Raw {}

/// A tensor of LibTorch: a handle and a layout, shared. Cloning it copies no elements.
#[derive(Clone)]
pub struct TorchTensor {
    raw: Arc<Raw>,
    layout: Layout,
    dtype: DType,
    device: TorchDevice,
}

/// tch's name for a dtype.
pub(crate) const fn kind(dtype: DType) -> Kind {
    match dtype {
        DType::Bool => Kind::Bool,
        DType::U8 => Kind::Uint8,
        DType::I32 => Kind::Int,
        DType::I64 => Kind::Int64,
        DType::F16 => Kind::Half,
        DType::BF16 => Kind::BFloat16,
        DType::F32 => Kind::Float,
        DType::F64 => Kind::Double,
    }
}

/// Extents in LibTorch's form.
pub(crate) fn ints(dims: &[usize]) -> Vec<i64> {
    dims.iter().map(|&dim| dim as i64).collect()
}

/// A scalar in LibTorch's form.
pub(crate) fn scalar(value: Scalar) -> tch::Scalar {
    match value {
        Scalar::Float(value) => tch::Scalar::float(value),
        Scalar::Int(value) => tch::Scalar::int(value),
        Scalar::Bool(value) => tch::Scalar::int(value.into()),
    }
}

impl TorchTensor {
    /// A tensor that LibTorch has just created, which is not shared.
    #[inline]
    pub(crate) fn new(tensor: Tensor, device: TorchDevice) -> Result<Self> {
        let (code, sizes, strides) = ffi::describe(&tensor)?;
        let Some(dtype) = DType::ALL.into_iter().find(|dtype| ffi::code(*dtype) == code) else {
            return Err(Error::unsupported(format!("tensors of LibTorch's dtype number {code}"))
                .with_hint("convert it with to_kind to one of bool, u8, i32, i64, f16, bf16, f32 and f64"));
        };
        let mut dims = [0usize; polygrad_core::MAX_RANK];
        let mut steps = [0isize; polygrad_core::MAX_RANK];
        let rank = sizes.len().min(dims.len());
        for axis in 0..rank {
            dims[axis] = sizes[axis] as usize;
            steps[axis] = strides[axis] as isize;
        }
        if sizes.len() > rank {
            return Err(
                Error::shape(format!("rank {} is above the limit of {rank}", sizes.len()))
                    .with_hint("merge dimensions with reshape"),
            );
        }
        let layout = Layout::strided(Shape::new(&dims[..rank])?, &steps[..rank], 0);
        let raw = Arc::new(Raw {
            tensor,
            root: None,
            exposed: AtomicBool::new(false),
        });
        Ok(Self {
            raw,
            layout,
            dtype,
            device,
        })
    }

    /// A tensor whose memory code outside may hold, too.
    pub(crate) fn exposed(tensor: Tensor, device: TorchDevice) -> Result<Self> {
        let out = Self::new(tensor, device)?;
        out.raw.exposed.store(true, Ordering::Relaxed);
        Ok(out)
    }

    /// LibTorch's tensor, for reading.
    #[inline]
    pub(crate) fn raw(&self) -> &Tensor {
        &self.raw.tensor
    }

    /// Shape, strides and offset.
    #[inline]
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    #[inline]
    pub(crate) fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    #[inline]
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    #[inline]
    pub(crate) fn device(&self) -> TorchDevice {
        self.device
    }

    /// Wraps LibTorch's result of an op on this tensor, on the same device.
    #[inline]
    pub(crate) fn wrap(&self, op: &'static str, out: std::result::Result<Tensor, tch::TchError>) -> Result<Self> {
        Self::new(out.named(op)?, self.device)
    }

    /// [`TorchTensor::wrap`] for ops of tch with a scalar.
    #[inline]
    pub(crate) fn guard(
        &self,
        op: &'static str,
        f: impl FnOnce() -> std::result::Result<Tensor, tch::TchError>,
    ) -> Result<Self> {
        Self::new(guarded(op, f)?, self.device)
    }

    /// The same memory with another layout.
    pub(crate) fn view(&self, layout: Layout) -> Result<Self> {
        let root = self.raw.root.as_ref().unwrap_or(&self.raw);
        let tensor = ffi::view(&root.tensor, layout.shape(), layout.strides(), layout.offset())?;
        let raw = Arc::new(Raw {
            tensor,
            root: Some(Arc::clone(root)),
            exposed: AtomicBool::new(false),
        });
        Ok(Self { raw, layout, ..*self })
    }

    /// The same elements, contiguous in row-major order.
    pub(crate) fn contiguous(&self) -> Result<Self> {
        if self.layout.is_contiguous() {
            return Ok(self.clone());
        }
        self.wrap("contiguous", self.raw().f_contiguous())
    }

    /// The same elements in new memory.
    pub(crate) fn copied(&self) -> Result<Self> {
        if !self.layout.is_contiguous() {
            return self.contiguous();
        }
        self.wrap("clone", self.raw().f_to_dtype(kind(self.dtype), false, true))
    }

    /// LibTorch's tensor for changes in place, or `None` if its memory is shared.
    pub(crate) fn writable(&mut self) -> Option<&mut Tensor> {
        if !self.layout.is_contiguous() {
            return None;
        }
        let raw = Arc::get_mut(&mut self.raw)?;
        if *raw.exposed.get_mut() {
            return None;
        }
        if let Some(root) = &mut raw.root {
            // If the root has no other holders, this view is the only one.
            if *Arc::get_mut(root)?.exposed.get_mut() {
                return None;
            }
        }
        Some(&mut raw.tensor)
    }

    /// Makes sure that [`TorchTensor::writable`] returns `Some`, by a copy if needed.
    pub(crate) fn make_writable(&mut self) -> Result<()> {
        if self.writable().is_none() {
            *self = self.copied()?;
        }
        Ok(())
    }

    /// LibTorch's tensor, for computing with tch. It shares its memory with this one, and must not be changed in place.
    pub fn to_tch(&self) -> Tensor {
        let root = self.raw.root.as_ref().unwrap_or(&self.raw);
        root.exposed.store(true, Ordering::Relaxed);
        self.raw.tensor.shallow_clone()
    }

    pub(crate) fn full(shape: Shape, value: Scalar, dtype: DType, device: TorchDevice) -> Result<Self> {
        // LibTorch rejects numbers that the dtype cannot hold, but Polygrad converts them.
        let value = polygrad_core::dispatch_dtype!(dtype, T => {
            polygrad_core::Element::to_scalar(<T as polygrad_core::Element>::from_scalar(value))
        });
        let mut out = Self::empty(&shape, dtype, device).map_err(|e| e.with_op("full"))?;
        if let Some(out) = out.writable() {
            drop(guarded("full", || out.f_fill_(scalar(value)))?);
        }
        Ok(out)
    }

    pub(crate) fn empty(shape: &Shape, dtype: DType, device: TorchDevice) -> Result<Self> {
        let sizes = ints(shape.dims());
        let out = Tensor::f_empty(&sizes[..], (kind(dtype), device.into()));
        Self::new(out.named("empty")?, device)
    }

    pub(crate) fn from_host(host: &HostTensor, device: TorchDevice) -> Result<Self> {
        if host.shape().numel() == 0 {
            return Self::empty(host.shape(), host.dtype(), device);
        }
        let shared = ffi::share(Arc::clone(host.shared()), host.shape(), host.dtype())?;
        match device {
            TorchDevice::Cpu => Self::exposed(shared, device),
            TorchDevice::Cuda(_) => Self::new(shared.f_to(device.into()).named("from_host")?, device),
        }
    }

    pub(crate) fn to_host(&self) -> Result<HostTensor> {
        let here = match self.device {
            TorchDevice::Cpu => self.contiguous()?,
            TorchDevice::Cuda(_) => Self::new(
                self.contiguous()?.raw().f_to(tch::Device::Cpu).named("to_host")?,
                TorchDevice::Cpu,
            )?,
        };
        let (dtype, shape) = (here.dtype, *here.shape());
        let bytes = shape.numel() * dtype.size();
        HostTensor::from_shared(dtype, shape, Arc::new(Memory { raw: here.raw, bytes }))
    }
}

/// A tensor's memory, owned by a host tensor.
struct Memory {
    raw: Arc<Raw>,
    bytes: usize,
}

impl HostBytes for Memory {
    #[allow(unsafe_code, reason = "LibTorch's memory as a slice")]
    fn bytes(&self) -> &[u8] {
        let data = ffi::data(&self.raw.tensor);
        if self.bytes == 0 || data.is_null() {
            return &[];
        }
        // SAFETY: the tensor is contiguous, in host memory and has this many bytes. They are not changed: while `raw`
        // is shared with this, `writable` returns `None`.
        unsafe { std::slice::from_raw_parts(data, self.bytes) }
    }
}

/// The elements of a contiguous i64 tensor in host memory.
#[allow(unsafe_code, reason = "LibTorch's memory as a slice")]
pub(crate) fn positions(x: &TorchTensor) -> Option<&[i64]> {
    if x.dtype != DType::I64 || x.device != TorchDevice::Cpu || !x.layout.is_contiguous() {
        return None;
    }
    let data = ffi::data(x.raw());
    if x.shape().numel() == 0 || data.is_null() {
        return Some(&[]);
    }
    // SAFETY: contiguous, in host memory, of this dtype and with this many elements; aligned by LibTorch or by the
    // `HostTensor` that it came from. It is borrowed from `x`, so it cannot change meanwhile.
    Some(unsafe { std::slice::from_raw_parts(data.cast(), x.shape().numel()) })
}

impl TryFrom<Tensor> for TorchTensor {
    type Error = Error;

    /// Shares the memory: afterwards, the tensor must not be changed in place through other handles to it. Its gradient
    /// graph is dropped.
    fn try_from(tensor: Tensor) -> Result<Self> {
        if tensor.is_sparse() || tensor.is_mkldnn() || !tensor.defined() {
            return Err(Error::unsupported("only dense tensors of LibTorch can be taken over")
                .with_hint("convert it with to_dense first"));
        }
        // tch panics for a device that it does not know.
        let device = TorchDevice::try_from(guarded("device", || Ok(tensor.device()))?)?;
        Self::exposed(tensor.f_detach().named("detach")?, device)
    }
}

impl From<TorchTensor> for Tensor {
    /// See [`TorchTensor::to_tch`].
    fn from(x: TorchTensor) -> Self {
        x.to_tch()
    }
}
