//! Conversions between arrays of the crate `ndarray` and host tensors.

use ndarray::{Array, ArrayViewD, Dimension, IxDyn};

use crate::{Element, Error, HostTensor, Result, Shape};

/// Takes over the memory of an array in standard (row-major) layout; copies any other array once.
impl<T: Element, D: Dimension> TryFrom<Array<T, D>> for HostTensor {
    type Error = Error;

    fn try_from(array: Array<T, D>) -> Result<Self> {
        let shape = Shape::new(array.shape())?;
        let values = match array.is_standard_layout() {
            true => {
                let (mut values, offset) = array.into_raw_vec_and_offset();
                // A slice of an owned array still holds the memory of the whole array.
                values.drain(..offset.unwrap_or(0));
                values.truncate(shape.numel());
                values
            }
            false => array.iter().copied().collect(),
        };
        Self::new(shape, values)
    }
}

impl HostTensor {
    /// The elements as an `ndarray` view, without a copy. Needs the cargo feature `ndarray`.
    ///
    /// # Errors
    /// When `T` is not the tensor's dtype.
    pub fn as_ndarray<T: Element>(&self) -> Result<ArrayViewD<'_, T>> {
        ArrayViewD::from_shape(IxDyn(self.shape()), self.as_slice::<T>()?)
            .map_err(|e| Error::shape(format!("an array of shape {}: {e}", self.shape())))
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, arr2, s};

    use super::*;

    #[test]
    fn a_row_major_array_is_taken_over_without_a_copy() {
        let array = arr2(&[[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
        let address = array.as_ptr();
        let host = HostTensor::try_from(array).unwrap();
        assert_eq!(host.as_slice::<f32>().unwrap().as_ptr(), address);
        assert_eq!(host.as_ndarray::<f32>().unwrap()[[1, 2]], 6.0);
        assert_eq!(host.as_ndarray::<f32>().unwrap().as_ptr(), address);
    }

    #[test]
    fn other_layouts_are_put_in_order() {
        let array = arr2(&[[1i64, 2, 3], [4, 5, 6]]);
        let values = |array: Array2<i64>| HostTensor::try_from(array).unwrap().to_vec::<i64>().unwrap();
        assert_eq!(values(array.clone().reversed_axes()), [1, 4, 2, 5, 3, 6]);
        assert_eq!(values(array.clone().slice_move(s![1.., ..])), [4, 5, 6]);
        assert_eq!(values(array.slice_move(s![.., ..;-1])), [3, 2, 1, 6, 5, 4]);
    }

    #[test]
    fn another_dtype_and_too_many_axes_are_errors() {
        let host = HostTensor::scalar(1.0f32);
        assert!(host.as_ndarray::<f64>().unwrap_err().to_string().contains("to_dtype"));
        let deep = ndarray::ArrayD::<f32>::zeros(vec![1; 9]);
        assert!(HostTensor::try_from(deep).is_err());
    }
}
