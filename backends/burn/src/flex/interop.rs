//! Conversion of Burn's public tensors, whose rank and kind are known at compile time.

use burn_flex::{Flex, FlexTensor};
use burn_tensor::{Bool, Float, Int, Tensor};
use polygrad_core::{DType, Error, Result};

use crate::BurnTensor;

macro_rules! kinds {
    ($($kind:ident $is:path, $name:literal;)*) => {$(
        /// Without a copy. Burn's tensor must be on its CPU engine, and not tracked by Burn's autodiff.
        impl<const D: usize> TryFrom<Tensor<D, $kind>> for BurnTensor {
            type Error = Error;

            fn try_from(tensor: Tensor<D, $kind>) -> Result<Self> {
                let flex: FlexTensor = tensor.try_into_primitive::<Flex>().map_err(|e| {
                    Error::invalid(format!("this tensor of Burn's is not one of its CPU engine's: {e:?}"))
                        .with_hint("take it out of autodiff with inner(), and to Device::flex()")
                })?;
                flex.try_into()
            }
        }

        /// Without a copy. The rank must be `D`.
        impl<const D: usize> TryFrom<BurnTensor> for Tensor<D, $kind> {
            type Error = Error;

            fn try_from(tensor: BurnTensor) -> Result<Self> {
                let (rank, dtype) = (tensor.shape().rank(), tensor.dtype());
                if rank != D {
                    return Err(Error::shape(format!("a tensor of rank {rank} is none of Burn's rank {D}"))
                        .with_hint("Burn has no rank 0; reshape it first"));
                }
                if !$is(dtype) {
                    return Err(Error::dtype(format!("{dtype} is not of Burn's kind {}", $name)));
                }
                Ok(Self::from_primitive::<Flex>(FlexTensor::from(tensor)))
            }
        }
    )*};
}

fn is_bool(dtype: DType) -> bool {
    dtype == DType::Bool
}

kinds! {
    Float DType::is_float, "Float";
    Int DType::is_int, "Int";
    Bool is_bool, "Bool";
}
