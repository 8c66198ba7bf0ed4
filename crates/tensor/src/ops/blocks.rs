//! Products with block-quantized weights.

use polygrad_core::{Backend, BlockScheme, DType, Error, ErrorKind, Op, Result, decompose};

use super::context;
use crate::Tensor;
use crate::autocast::Lower;
use crate::flops;
use crate::graph::record;

impl<B: Backend> Tensor<B> {
    /// `x Wᵀ` for `x […, k]` and a quantized weight `W [n, k]`, given as its packed numbers of few bits, u8
    /// `[n, k · bits / 8]` as the scheme says, its scales, one for each block, `[n, k / size]`, and its zero points, u8
    /// or floats, `[n, k / size]` or `[1]`. An element of the weight is `(number - zero point) · scale`. Rows may also
    /// be interleaved, as [`BlockScheme`] says.
    ///
    /// The gradient of `x` is a product with the packed weight, too; the weight has none.
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit, or a part of the weight requires a gradient.
    pub fn quantized_linear(&self, weight: [&Self; 3], scheme: BlockScheme) -> Result<Self> {
        product(self, weight, scheme, false)
    }

    /// Dequantizes this weight, whose parts are as in [`Tensor::quantized_linear`]: `[n, k]` in f32 or f64, without a
    /// gradient.
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit, or `dtype` is neither f32 nor f64.
    pub fn dequantize_blocks(&self, scales: &Self, zeros: &Self, scheme: BlockScheme, dtype: DType) -> Result<Self> {
        let operands = [self, scales, zeros];
        let fail = |e| context(e, "dequantize_blocks", &operands);
        check(operands, scheme).map_err(fail)?;
        if dtype.wide() != dtype || !dtype.is_float() {
            return Err(fail(Error::dtype(format!("{dtype} is neither f32 nor f64"))));
        }
        let [weight, scales, zeros] = operands.map(|x| &x.value);
        let value = decompose::dequantized::<B>(weight, scales, zeros, scheme, dtype);
        value.map(Self::from_inner).map_err(fail)
    }
}

/// [`Tensor::quantized_linear`], or `x W` if `transposed`.
pub(crate) fn product<B: Backend>(
    x: &Tensor<B>,
    weight: [&Tensor<B>; 3],
    scheme: BlockScheme,
    transposed: bool,
) -> Result<Tensor<B>> {
    if let Some(lower) = Lower::wanted() {
        let x = lower.cast(x)?;
        return lower.run(|| product(&x, weight, scheme, transposed));
    }
    let operands = [x, weight[0], weight[1], weight[2]];
    let fail = |e| context(e, "quantized_linear", &operands);
    let [n, k] = check(weight, scheme).map_err(fail)?;
    let inner = if transposed { n } else { k };
    let shape = x.shape();
    if shape.last() != Some(&inner) {
        return Err(fail(Error::shape(format!(
            "an input {shape} for a weight of {inner} features: its last extent must be that"
        ))));
    }
    if !x.dtype().is_float() {
        let error = Error::dtype(format!("{} stands where a float is needed", x.dtype()));
        return Err(fail(error.with_hint("convert the input with to_dtype")));
    }
    x.check_device(weight[0]).map_err(fail)?;
    if weight.iter().any(|part| part.is_tracked()) {
        let error = Error::new(ErrorKind::NoGradient, "a weight in blocks gets no gradient".to_owned());
        return Err(fail(error.with_hint(
            "detach its scales and zero points, and train an adapter beside it",
        )));
    }
    let [w, scales, zeros] = weight.map(|part| &part.value);
    let value = B::quantized_linear(&x.value, w, scales, zeros, scheme, transposed).map_err(fail)?;
    flops::add_products(B::shape(&value).numel(), inner);
    Ok(record(value, &operands, || Op::QuantizedLinear { scheme, transposed }))
}

/// The weight's shape; fails unless its parts fit each other.
fn check<B: Backend>(parts: [&Tensor<B>; 3], scheme: BlockScheme) -> Result<[usize; 2]> {
    scheme.check_dtypes(parts.map(Tensor::dtype))?;
    parts[0].check_device(parts[1])?;
    parts[0].check_device(parts[2])?;
    let [weight, scales, zeros] = parts.map(Tensor::shape);
    scheme.shape(&weight, &scales, &zeros)
}
