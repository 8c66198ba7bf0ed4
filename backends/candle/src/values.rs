//! The elements of tensors in host memory, in candle's storage.

use std::borrow::Cow;

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::{Add, Div, Mul, Neg, Sub};

use candle_core::{CpuStorage, InplaceOp1, Storage, StorageRef, WithDType};
use polygrad_core::{Element, Error, Layout, Result, Shape, bf16, f16};

use crate::engine::engine;
use crate::tensor::{CandleTensor, only_cpu};

/// A Rust type of elements, and the type that candle stores for it.
pub(crate) trait Item: Element {
    /// The type that candle stores.
    type Raw: WithDType;

    fn from_raw(raw: &[Self::Raw]) -> Result<&[Self]>;
    fn into_raw(values: Vec<Self>) -> Vec<Self::Raw>;
    /// The values in a storage of candle's, for changing; `None` if it holds another type, or bools.
    fn changed(storage: &mut CpuStorage) -> Option<&mut [Self]>;
}

macro_rules! items {
    ($($type:ident $variant:ident;)*) => {$(
        impl Item for $type {
            type Raw = $type;

            #[inline]
            fn from_raw(raw: &[$type]) -> Result<&[$type]> {
                Ok(raw)
            }

            #[inline]
            fn into_raw(values: Vec<$type>) -> Vec<$type> {
                values
            }

            fn changed(storage: &mut CpuStorage) -> Option<&mut [$type]> {
                match storage {
                    CpuStorage::$variant(values) => Some(values),
                    _ => None,
                }
            }
        }
    )*};
}

items! {
    u8 U8;
    i32 I32;
    i64 I64;
    f16 F16;
    bf16 BF16;
    f32 F32;
    f64 F64;
}

impl Item for bool {
    type Raw = u8;

    fn from_raw(raw: &[u8]) -> Result<&[bool]> {
        bytemuck::checked::try_cast_slice(raw)
            .map_err(|_| Error::invalid("memory of a bool tensor that holds more than 0 and 1"))
    }

    fn into_raw(values: Vec<bool>) -> Vec<u8> {
        bytemuck::allocation::cast_vec(values)
    }

    fn changed(_: &mut CpuStorage) -> Option<&mut [bool]> {
        None
    }
}

/// A float, and the type in which it is computed.
pub(crate) trait Real: Item {
    type Wide: Wide;

    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
}

/// The type in which loops compute.
pub(crate) trait Wide:
    Copy
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    fn of(value: f64) -> Self;
    fn to_f64(self) -> f64;
    fn exp(self) -> Self;
    fn sqrt(self) -> Self;
    fn tanh(self) -> Self;
    fn erf(self) -> Self;
}

macro_rules! wide {
    ($type:ident, $erf:path) => {
        impl Wide for $type {
            #[inline]
            fn of(value: f64) -> Self {
                value as $type
            }

            #[inline]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }

            #[inline]
            fn exp(self) -> Self {
                $type::exp(self)
            }

            #[inline]
            fn sqrt(self) -> Self {
                $type::sqrt(self)
            }

            #[inline]
            fn tanh(self) -> Self {
                $type::tanh(self)
            }

            #[inline]
            fn erf(self) -> Self {
                $erf(self)
            }
        }
    };
}

wide!(f32, libm::erff);
wide!(f64, libm::erf);

macro_rules! real {
    ($($type:ident $wide:ident;)*) => {$(
        impl Real for $type {
            type Wide = $wide;

            #[inline]
            fn widen(self) -> $wide {
                self.into()
            }

            #[inline]
            fn narrow(wide: $wide) -> Self {
                real!(@narrow $type $wide wide)
            }
        }
    )*};
    (@narrow f32 f32 $value:ident) => { $value };
    (@narrow f64 f64 $value:ident) => { $value };
    (@narrow $type:ident f32 $value:ident) => { $type::from_f32($value) };
}

real! {
    f16 f32;
    bf16 f32;
    f32 f32;
    f64 f64;
}

/// Runs code with `T` as the Rust type of a float dtype; for other dtypes the op fails.
macro_rules! floats {
    ($op:expr, $dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            polygrad_core::DType::F16 => {
                type $T = polygrad_core::f16;
                $body
            }
            polygrad_core::DType::BF16 => {
                type $T = polygrad_core::bf16;
                $body
            }
            polygrad_core::DType::F32 => {
                type $T = f32;
                $body
            }
            polygrad_core::DType::F64 => {
                type $T = f64;
                $body
            }
            other => Err($crate::support::refused_dtype($op, other)),
        }
    };
}
pub(crate) use floats;

/// A tensor's memory, locked against writers.
pub(crate) struct HostView<'a> {
    storage: StorageRef<'a>,
    layout: Layout,
}

impl CandleTensor {
    /// The tensor's memory, for one of our own loops.
    ///
    /// # Errors
    /// If it is not host memory.
    pub(crate) fn held(&self, op: &'static str) -> Result<HostView<'_>> {
        let (storage, layout) = self.raw().storage_and_layout();
        if !matches!(&*storage, Storage::Cpu(_)) {
            return Err(only_cpu(op, &self.device()));
        }
        let mut strides = [0isize; polygrad_core::MAX_RANK];
        for (to, &from) in strides.iter_mut().zip(layout.stride()) {
            *to = from as isize;
        }
        let layout = Layout::strided(self.shape(), &strides[..self.shape().rank()], layout.start_offset());
        Ok(HostView { storage, layout })
    }
}

impl HostView<'_> {
    /// The whole memory; the layout tells where the tensor's elements are.
    pub(crate) fn memory<T: Item>(&self) -> Result<&[T]> {
        let Storage::Cpu(storage) = &*self.storage else {
            return Err(Error::unsupported("values outside of host memory"));
        };
        T::from_raw(engine("values", || storage.as_slice::<T::Raw>())?)
    }

    /// The elements in row-major order: in place if they are in that order, else a copy.
    pub(crate) fn values<T: Item>(&self) -> Result<Cow<'_, [T]>> {
        self.layout.values(self.memory()?)
    }
}

/// A shape as `[outer, dim, inner]` around the axes `first..=last`.
pub(crate) fn around(shape: &Shape, first: usize, last: usize) -> (usize, usize, usize) {
    let product = |dims: &[usize]| dims.iter().product();
    (
        product(&shape[..first]),
        product(&shape[first..=last]),
        product(&shape[last + 1..]),
    )
}

/// A tensor that one of our own loops computes from the elements of another.
pub(crate) fn map<T: Item, R: Item>(op: &'static str, x: &CandleTensor, f: impl Fn(T) -> R) -> Result<CandleTensor> {
    let held = x.held(op)?;
    let values = polygrad_core::collect(held.values::<T>()?.iter().map(|&x| f(x)))?;
    CandleTensor::of(x.shape(), values, &x.device())
}

/// Changes a tensor's elements in place. The memory must not be shared, see [`CandleTensor::is_mine`].
pub(crate) fn change<T: Item, R>(op: &'static str, x: &CandleTensor, f: impl FnOnce(&mut [T]) -> R) -> Result<R> {
    struct Change<T, F, R> {
        op: &'static str,
        f: Cell<Option<F>>,
        result: Cell<Option<R>>,
        element: PhantomData<T>,
    }

    impl<T: Item, F: FnOnce(&mut [T]) -> R, R> InplaceOp1 for Change<T, F, R> {
        fn name(&self) -> &'static str {
            self.op
        }

        fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &candle_core::Layout) -> candle_core::Result<()> {
            let Some((start, end)) = layout.contiguous_offsets() else {
                candle_core::bail!("elements that do not lie in a row");
            };
            if let (Some(values), Some(f)) = (T::changed(storage), self.f.take()) {
                self.result.set(Some(f(&mut values[start..end])));
            }
            Ok(())
        }
    }

    if x.shape().numel() == 0 {
        // Many of candle's ops return such a tensor unchanged, so it may share its memory; candle also considers it
        // overlapping.
        return Ok(f(&mut []));
    }
    let change = Change {
        op,
        f: Cell::new(Some(f)),
        result: Cell::new(None),
        element: PhantomData::<T>,
    };
    engine(op, || x.raw().inplace_op1(&change))?;
    let result = change.result.take();
    result.ok_or_else(|| Error::dtype(format!("{} is needed here, got {}", T::DTYPE, x.dtype())).with_op(op))
}
