//! Fake quantization.

use polygrad_core::{Backend, Error, Op, Result};

use super::context;
use crate::Tensor;
use crate::graph::record;

impl<B: Backend> Tensor<B> {
    /// Quantizes and dequantizes: `(q - zero) · scale`, where `q` is `x / scale`, rounded to a whole number, halves to
    /// even, plus `zero`, and clamped to `bounds`, such as `[0, 255]`; NaN becomes the lower one. With it a model
    /// computes in training what it will compute when it is quantized. Scale and zero point, a whole number, are
    /// floats: one for all, or one for each position of `axis`. The result has the dtype of `x`.
    ///
    /// The gradient passes as if nothing were rounded, except where `q` was clamped, where it is 0. The scale's is
    /// `q - zero - x / scale`, or `q - zero` where `q` was clamped; the zero point's is 0, or `-scale` where `q` was
    /// clamped.
    ///
    /// Sources: Bengio, Léonard and Courville, "Estimating or propagating gradients through stochastic neurons" (2013);
    /// Esser et al., "Learned step size quantization" (2020); Bhalgat et al., "LSQ+: improving low-bit quantization
    /// through learnable offsets and better initialization" (2020).
    ///
    /// ```
    /// # use polygrad_tensor::{Backend, Device, Result, Tensor};
    /// # fn rounded<B: Backend>(device: &Device<B>) -> Result<()> {
    /// let x = Tensor::new([-1.0, 0.3, 0.9, 80.0], device)?;
    /// let (scale, zero) = (Tensor::new([0.25], device)?, Tensor::new([2.0], device)?);
    /// // [-0.5, 0.25, 1.0, 63.25]
    /// let y = x.fake_quantize(&scale, &zero, [0, 255], None)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When there is no such axis, the number of scales or zero points does not fit, a dtype is not a float, the lower
    /// bound is not below the upper, or the devices differ.
    pub fn fake_quantize(&self, scale: &Self, zero: &Self, bounds: [i32; 2], axis: Option<isize>) -> Result<Self> {
        let fail = |e| context(e, "fake_quantize", &[self, scale, zero]);
        let place = self.check_fake(scale, zero, bounds, axis).map_err(fail)?;
        let wide = self.dtype().wide();
        let x = self.to_dtype(wide)?;
        let [scale, zero] = [scale, zero].map(|each| each.reshape([each.numel()])?.to_dtype(wide));
        let (scale, zero) = (scale?, zero?);
        let value = B::fake_quantize(&x.value, &scale.value, &zero.value, bounds, place).map_err(fail)?;
        record(value, &[&x, &scale, &zero], || Op::FakeQuantize { bounds, axis: place }).to_dtype(self.dtype())
    }

    /// The index of the axis, 0 if none is given.
    fn check_fake(&self, scale: &Self, zero: &Self, [low, high]: [i32; 2], axis: Option<isize>) -> Result<usize> {
        for operand in [self, scale, zero] {
            if !operand.dtype().is_float() {
                let error = Error::dtype(format!("{} is no float", operand.dtype()));
                return Err(error.with_hint("convert it with to_dtype"));
            }
            self.check_device(operand)?;
        }
        if low >= high {
            return Err(Error::invalid(format!(
                "the bounds [{low}, {high}] do not follow each other"
            )));
        }
        let shape = self.shape();
        let place = match axis {
            None => 0,
            Some(axis) => {
                let place = if axis < 0 { axis + shape.rank() as isize } else { axis };
                let place = usize::try_from(place).ok().filter(|&place| place < shape.rank());
                place.ok_or_else(|| Error::out_of_range(format!("there is no axis {axis} in {shape}")))?
            }
        };
        for (name, each) in [("scales", scale), ("zero points", zero)] {
            let count = each.numel();
            if count != 1 && !(axis.is_some() && count == shape[place]) {
                let wanted = axis.map_or("1".to_owned(), |axis| format!("1 or {} for axis {axis}", shape[place]));
                return Err(Error::shape(format!("{count} {name} stand where {wanted} are needed")));
            }
        }
        Ok(place)
    }
}
