//! Packed weights in host memory.

use polygrad_tensor::{BlockScheme, DType, Error, HostTensor, Result, Shape, f16};

/// A weight `[out, in]` of few-bit numbers in blocks, in host memory: read from a file of quantized weights, or
/// quantized from floats by [`HostBlocks::quantize`].
#[derive(Clone, Debug)]
pub struct HostBlocks {
    parts: [HostTensor; 3],
    scheme: BlockScheme,
}

impl HostBlocks {
    /// A weight of bytes, scales and zero points, as
    /// [`Tensor::quantized_linear`](polygrad_tensor::Tensor::quantized_linear) takes them, with one row after another.
    ///
    /// # Errors
    /// When these do not fit each other, or are interleaved.
    pub fn new(parts: [HostTensor; 3], scheme: BlockScheme) -> Result<Self> {
        scheme.check_dtypes([0, 1, 2].map(|i| parts[i].dtype()))?;
        let bytes = parts[0].shape();
        scheme.shape(bytes, parts[1].shape(), parts[2].shape())?;
        // Files have plain rows, and they are reordered one by one.
        if bytes.rank() != 2 {
            let text = format!("the rows of a weight of bytes {bytes} are interleaved, and must follow one another");
            return Err(Error::shape(text)
                .with_op("HostBlocks::new")
                .with_hint("pass bytes [out, bytes] and scales [out, blocks], as a state dict has them"));
        }
        Ok(Self { parts, scheme })
    }

    /// Quantizes a float weight `[out, in]` to the nearest numbers, symmetric about 0, with f16 scales: the scale is
    /// the value of largest magnitude divided by -8 for 4 bits, or its magnitude divided by 127 for 8 bits, as in
    /// GGUF's Q4_0 and Q8_0.
    ///
    /// # Errors
    /// When it is not a matrix of finite floats, or a row is not a whole number of blocks.
    pub fn quantize(weight: &HostTensor, scheme: BlockScheme) -> Result<Self> {
        let shape = *weight.shape();
        let size = scheme.size();
        let &[rows, columns] = shape.dims() else {
            return Err(Error::shape(format!("a weight of shape {shape} is no matrix")).with_op("quantize"));
        };
        if !weight.dtype().is_float() || !columns.is_multiple_of(size) {
            let text = format!(
                "a weight {}{shape} is not made of blocks of {size} floats",
                weight.dtype()
            );
            return Err(Error::shape(text)
                .with_op("quantize")
                .with_hint("choose a scheme whose blocks divide the rows, or keep the weight in floats"));
        }
        let values = weight.cast(DType::F32).to_f64_vec();
        if values.iter().any(|x| !x.is_finite()) {
            return Err(Error::invalid("the weight has numbers that are not finite").with_op("quantize"));
        }
        let (mut numbers, mut scales) = (
            Vec::with_capacity(values.len()),
            Vec::with_capacity(values.len() / size),
        );
        for block in values.chunks_exact(size) {
            let largest = block.iter().fold(0.0f64, |a, &b| if b.abs() > a.abs() { b } else { a });
            let (scale, most) = match scheme.bits() {
                4 => (largest / -8.0, 15.0),
                _ => (largest.abs() / 127.0, 255.0),
            };
            let scale = f16::from_f64(scale);
            let inverse = if scale == f16::ZERO { 0.0 } else { 1.0 / scale.to_f64() };
            let centre = f64::from(scheme.centre());
            numbers.extend(
                block
                    .iter()
                    .map(|x| (x * inverse).round().clamp(-centre, most - centre) + centre)
                    .map(|x| x as u8),
            );
            scales.push(scale);
        }
        if scheme.bits() == 4 {
            numbers = numbers.chunks_exact(2).map(|pair| pair[0] | pair[1] << 4).collect();
        }
        let of = |columns: usize| Shape::new(&[rows, columns]);
        Self::new(
            [
                HostTensor::new(of(columns / 8 * scheme.bits())?, numbers)?,
                HostTensor::new(of(columns / size)?, scales)?,
                HostTensor::new(Shape::from([1]), vec![scheme.centre()])?,
            ],
            scheme,
        )
    }

    /// Bytes, scales and zero points.
    pub fn parts(&self) -> &[HostTensor; 3] {
        &self.parts
    }

    /// How its numbers are stored in bytes.
    pub fn scheme(&self) -> BlockScheme {
        self.scheme
    }

    /// Applies `f` to each part that has a row for each row of the weight.
    pub(crate) fn map_rows(&self, f: impl Fn(&HostTensor) -> Result<HostTensor>) -> Result<Self> {
        let [bytes, scales, zeros] = &self.parts;
        let zeros = if zeros.shape().rank() == 1 {
            zeros.clone()
        } else {
            f(zeros)?
        };
        Self::new([f(bytes)?, f(scales)?, zeros], self.scheme)
    }
}
