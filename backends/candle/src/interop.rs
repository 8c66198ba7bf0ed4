//! Conversion of candle's tensors to Polygrad's, and back, without a copy.

use polygrad_tensor::{Result, Tensor};

use crate::{Candle, CandleTensor};

/// candle's tensor as Polygrad's, in the same memory; candle's gradient graph ends here.
///
/// # Errors
/// If Polygrad does not have the dtype.
pub fn from_candle(tensor: candle_core::Tensor) -> Result<Tensor<Candle>> {
    CandleTensor::try_from(tensor).map(Tensor::from_inner)
}

/// Polygrad's tensor as candle's, in the same memory; Polygrad's gradient graph ends here, and bool becomes u8.
pub fn to_candle(tensor: &Tensor<Candle>) -> candle_core::Tensor {
    tensor.inner().clone().into()
}

impl From<CandleTensor> for Tensor<Candle> {
    fn from(tensor: CandleTensor) -> Self {
        Self::from_inner(tensor)
    }
}
