//! The tensor: Burn's own, wrapped for Polygrad.

use std::fmt;

use burn_backend::ops::{FloatTensorOps, IntTensorOps};
use burn_backend::{BoolStore, DType as BurnDType, FloatDType, IntDType, Scalar as BurnScalar};
use burn_std::Shape as BurnShape;
use burn_wgpu::{CubeBackend, CubeTensor};
use polygrad_core::{DType, Error, ErrorKind, Result, Scalar, Shape, dispatch_dtype};

use crate::BurnWgpuDevice;
use crate::wgpu::support::{DTYPES, missing};

/// How bools are stored: as u32, since WGSL has no smaller numbers in memory.
pub(crate) const BOOL: BoolStore = BoolStore::U32;

/// A tensor in a wgpu adapter's memory. Cloning is cheap, and shares the memory.
///
/// It is converted from Burn's [`CubeTensor`] with `TryFrom`, which fails for dtypes and devices that Polygrad does not
/// have, and back with `From`, both without a copy. A tensor of Polygrad contains one:
/// `Tensor::<BurnWgpu>::from_inner`, `Tensor::inner`.
#[derive(Clone)]
pub struct BurnWgpuTensor {
    /// Has the same extents, except that tensors of rank 0, which Burn lacks, and tensors without elements, which its
    /// kernels must not get, have one element here.
    cube: CubeTensor,
    shape: Shape,
    dtype: DType,
    device: BurnWgpuDevice,
}

impl BurnWgpuTensor {
    /// A result of Burn's with as many elements as the shape.
    pub(crate) fn new(mut cube: CubeTensor, shape: Shape, dtype: DType, device: BurnWgpuDevice) -> Self {
        cube.dtype = burn_dtype(dtype);
        Self {
            cube,
            shape,
            dtype,
            device,
        }
    }

    /// A result of Burn's on this tensor's device.
    pub(crate) fn like(&self, cube: CubeTensor, shape: Shape, dtype: DType) -> Self {
        Self::new(cube, shape, dtype, self.device)
    }

    /// A tensor that repeats one value.
    pub(crate) fn full(shape: Shape, value: Scalar, dtype: DType, device: BurnWgpuDevice) -> Result<Self> {
        ensure_room(&shape, dtype, device)?;
        let (extents, cube) = (burn_shape(&shape), device.cube());
        let full = match dtype {
            DType::F32 => CubeBackend::float_full(extents, burn_scalar(value, dtype), &cube, FloatDType::F32),
            DType::Bool => CubeBackend::int_full(extents, burn_scalar(value, dtype), &cube, IntDType::U32),
            DType::I32 => CubeBackend::int_full(extents, burn_scalar(value, dtype), &cube, IntDType::I32),
            DType::I64 => CubeBackend::int_full(extents, burn_scalar(value, dtype), &cube, IntDType::I64),
            _ => return Err(missing(dtype, device).with_device(device)),
        };
        Ok(Self::new(full, shape, dtype, device))
    }

    /// A tensor of zeros, which may be empty.
    pub(crate) fn zeros(&self, shape: Shape, dtype: DType) -> Result<Self> {
        Self::full(shape, Scalar::Int(0), dtype, self.device)
    }

    /// Burn's tensor. It has one element if this tensor has rank 0 or no elements.
    pub fn cube(&self) -> &CubeTensor {
        &self.cube
    }

    /// Burn's tensor as an operand; bools as the integers in which they are stored.
    pub(crate) fn operand(&self) -> CubeTensor {
        let mut cube = self.cube.clone();
        if self.dtype == DType::Bool {
            cube.dtype = BurnDType::U32;
        }
        cube
    }

    /// Burn's tensor as a condition.
    pub(crate) fn truths(&self) -> CubeTensor {
        let mut cube = self.cube.clone();
        cube.dtype = BurnDType::Bool(BOOL);
        cube
    }

    /// The tensor in row-major order: itself, or a copy.
    pub(crate) fn contiguous(&self) -> Self {
        self.like(
            burn_cubecl::kernel::into_contiguous(self.operand()),
            self.shape,
            self.dtype,
        )
    }

    /// Its shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Its dtype.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Its device.
    pub fn device(&self) -> BurnWgpuDevice {
        self.device
    }

    /// Whether the tensor has no elements.
    pub(crate) fn is_empty(&self) -> bool {
        self.shape.numel() == 0
    }
}

impl TryFrom<CubeTensor> for BurnWgpuTensor {
    type Error = Error;

    fn try_from(cube: CubeTensor) -> Result<Self> {
        let device = BurnWgpuDevice::of(&cube.device)?;
        let found = DTYPES.into_iter().find(|dtype| burn_dtype(*dtype) == cube.dtype);
        let Some(dtype) = found.filter(|_| cube.qparams.is_none()) else {
            return Err(
                Error::unsupported(format!("Polygrad has no dtype like Burn's {:?} there", cube.dtype))
                    .with_device(device)
                    .with_hint("cast it to f32, i64, i32 or bool stored as u32 first"),
            );
        };
        let cube = burn_cubecl::kernel::untile(cube);
        let shape = Shape::new(cube.meta.shape())?;
        if shape.numel() == 0 {
            return Self::full(shape, Scalar::Int(0), dtype, device);
        }
        let cube = CubeBackend::float_reshape(cube, burn_shape(&shape));
        Ok(Self::new(cube, shape, dtype, device))
    }
}

impl From<BurnWgpuTensor> for CubeTensor {
    fn from(tensor: BurnWgpuTensor) -> Self {
        tensor.cube
    }
}

impl fmt::Debug for BurnWgpuTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BurnWgpuTensor({}{})", self.dtype, self.shape)
    }
}

/// Burn's name for a dtype, including those that no device has.
pub(crate) fn burn_dtype(dtype: DType) -> BurnDType {
    match dtype {
        DType::Bool => BurnDType::Bool(BOOL),
        DType::U8 => BurnDType::U8,
        DType::I32 => BurnDType::I32,
        DType::I64 => BurnDType::I64,
        DType::F16 => BurnDType::F16,
        DType::BF16 => BurnDType::BF16,
        DType::F32 => BurnDType::F32,
        DType::F64 => BurnDType::F64,
    }
}

/// The extents of Burn's tensor.
pub(crate) fn burn_shape(shape: &Shape) -> BurnShape {
    if shape.rank() == 0 || shape.numel() == 0 {
        return BurnShape::from(vec![1]);
    }
    BurnShape::from(shape.to_vec())
}

/// A number as a tensor of a dtype would store it.
pub(crate) fn rounded(scalar: Scalar, dtype: DType) -> Scalar {
    dispatch_dtype!(dtype, T => polygrad_core::Element::to_scalar(<T as polygrad_core::Element>::from_scalar(scalar)))
}

/// [`rounded`], in Burn's type.
pub(crate) fn burn_scalar(scalar: Scalar, dtype: DType) -> BurnScalar {
    match rounded(scalar, dtype) {
        Scalar::Float(value) => BurnScalar::Float(value),
        other => BurnScalar::Int(other.to_i64()),
    }
}

/// Checks that the adapter can hold a tensor in one buffer.
///
/// # Errors
/// If it cannot.
pub(crate) fn ensure_room(shape: &Shape, dtype: DType, device: BurnWgpuDevice) -> Result<()> {
    // Bool is stored in four bytes.
    let bytes = shape.numel().saturating_mul(dtype.size().max(4));
    if bytes <= 1 << 20 {
        return Ok(());
    }
    let most = device.cube().client().properties().memory.max_page_size;
    if u64::try_from(bytes).is_ok_and(|bytes| bytes <= most) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::OutOfMemory,
        format!(
            "no memory for {dtype}{shape}, {bytes} bytes: a buffer of {} has at most {most}",
            device.adapter()
        ),
    )
    .with_device(device))
}
