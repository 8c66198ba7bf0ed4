//! Layers whose weights stay packed: few-bit numbers in blocks.

mod embedding;
mod host;
mod linear;

use polygrad_tensor::{
    AnyBackend, Backend, BlockScheme, DType, Device, Error, ErrorKind, HostTensor, Result, RoundingMode, Tensor,
    is_grad_enabled,
};

pub use embedding::QuantizedEmbedding;
pub use host::HostBlocks;
pub use linear::QuantizedLinear;

use crate::module::deinterleaved;
use crate::{Buffer, StateDict, Visitor};

/// A weight `[out, in]` that stays packed, as [`Tensor::quantized_linear`] takes it. In a state dict it is `weight`
/// (u8), `scales` (floats) and `zeros` (u8 or floats). It is not trained. Cloning gives a second handle to it.
///
/// Within [`no_grad`](polygrad_tensor::no_grad), its input is rounded to 8 bits if its scheme [allows
/// it](BlockScheme::with_rounded_input), as those of GGUF files do.
///
/// [`Module::to_dtype`](crate::Module::to_dtype) also converts the scales, which are floats: bf16 rounds them.
#[derive(Clone, Debug)]
pub struct QuantizedWeight<B: Backend = AnyBackend> {
    bytes: Buffer<B>,
    scales: Buffer<B>,
    zeros: Buffer<B>,
    scheme: BlockScheme,
    dims: [usize; 2],
}

/// The names of its parts.
const PARTS: [&str; 3] = ["weight", "scales", "zeros"];

impl<B: Backend> QuantizedWeight<B> {
    /// A weight of bytes, scales and zero points. Interleaved rows are put one after another;
    /// [`Module::settle`](crate::Module::settle) interleaves them again.
    ///
    /// # Errors
    /// When these do not fit each other.
    pub fn new(parts: [&Tensor<B>; 3], scheme: BlockScheme) -> Result<Self> {
        let [bytes, scales, zeros] = parts;
        scheme.check_dtypes(parts.map(Tensor::dtype))?;
        let dims = scheme.shape(&bytes.shape(), &scales.shape(), &zeros.shape())?;
        let interleaves = scheme.rounds_input() && dims[0].is_multiple_of(BlockScheme::ROWS);
        // A state dict has plain rows, and only parts that may be settled are put so when they are saved.
        let part = |x: &Tensor<B>, word| {
            let x = &deinterleaved(x)?;
            Ok(match interleaves && x.rank() > 1 {
                true => Buffer::rows(x, word),
                false => Buffer::weight(x),
            })
        };
        Ok(Self {
            bytes: part(bytes, BlockScheme::WORD)?,
            scales: part(scales, 1)?,
            zeros: part(zeros, 1)?,
            scheme,
            dims,
        })
    }

    /// Copies a weight from host memory to a device. If the device has no f16, the scales become f32.
    ///
    /// # Errors
    /// When the device fails.
    pub fn from_host(blocks: &HostBlocks, device: &Device<B>) -> Result<Self> {
        let there = device.capabilities().dtypes;
        let put = |part: &HostTensor| {
            let part = match part.dtype().is_float() && !there.contains(&part.dtype()) {
                true => part.cast(DType::F32),
                false => part.clone(),
            };
            Tensor::from_host(part, device)
        };
        let [bytes, scales, zeros] = blocks.parts();
        Self::new([&put(bytes)?, &put(scales)?, &put(zeros)?], blocks.scheme())
    }

    /// How its numbers are stored in bytes.
    pub fn scheme(&self) -> BlockScheme {
        self.scheme
    }

    /// `[out, in]`.
    pub fn dims(&self) -> [usize; 2] {
        self.dims
    }

    /// The device.
    pub fn device(&self) -> Device<B> {
        self.bytes.tensor().device()
    }

    /// The weight in f32.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn dequantized(&self) -> Result<Tensor<B>> {
        let [bytes, scales, zeros] = self.parts();
        bytes.dequantize_blocks(&scales, &zeros, self.scheme, DType::F32)
    }

    /// `x Wᵀ`; `x` is not rounded while gradients are computed.
    pub(crate) fn product(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let [bytes, scales, zeros] = self.parts();
        let rounds = self.scheme.rounds_input() && !is_grad_enabled();
        x.quantized_linear([&bytes, &scales, &zeros], self.scheme.with_rounded_input(rounds))
    }

    fn parts(&self) -> [Tensor<B>; 3] {
        [&self.bytes, &self.scales, &self.zeros].map(Buffer::tensor)
    }

    /// The rows at i64 indices `[M]`, in f32.
    fn rows(&self, index: &Tensor<B>) -> Result<Tensor<B>> {
        let [bytes, scales, zeros] = self.parts();
        let group = match bytes.rank() {
            3 => Some(Group::of(index)?),
            _ => None,
        };
        let rows = |part: Tensor<B>| match (part.rank(), &group) {
            (1, _) => Ok(part),
            (_, None) => part.index_select(0, index),
            (_, Some(group)) => group.rows(&part),
        };
        rows(bytes)?.dequantize_blocks(&rows(scales)?, &rows(zeros)?, self.scheme, DType::F32)
    }

    /// Visits its parts under their names in the layer.
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        for (name, part) in PARTS.iter().zip([&self.bytes, &self.scales, &self.zeros]) {
            visitor.field(name, part);
        }
    }
}

/// Where interleaved rows are: the group of each, `[M]`, and its place in the group, `[M, 1, 1, 1]`.
struct Group<B: Backend> {
    group: Tensor<B>,
    place: Tensor<B>,
}

impl<B: Backend> Group<B> {
    fn of(index: &Tensor<B>) -> Result<Self> {
        let rows = BlockScheme::ROWS as i64;
        let place = index.bitwise_and(rows - 1)?;
        let group = index.sub(&place)?;
        let rows = Tensor::full([1], rows, (&index.device(), DType::I64))?;
        Ok(Self {
            group: group.div_rounded(&rows, RoundingMode::Trunc)?,
            place: place.reshape([-1, 1, 1, 1])?,
        })
    }

    /// These rows of a part, one after another.
    fn rows(&self, part: &Tensor<B>) -> Result<Tensor<B>> {
        let shape = part.shape();
        let (count, columns, word) = (self.group.numel(), shape[1], shape[2] / BlockScheme::ROWS);
        let groups = part.index_select(0, &self.group)?;
        let groups = groups.reshape([count, columns, BlockScheme::ROWS, word])?;
        let rows = groups.gather(2, &self.place.expand([count, columns, 1, word])?)?;
        rows.reshape([count, columns * word])
    }
}

/// The packed weight of the layer at a path of a state dict.
///
/// # Errors
/// When a part is missing, or the parts do not fit each other.
pub(crate) fn packed_in(state: &StateDict, path: &str, scheme: BlockScheme) -> Result<HostBlocks> {
    let part = |name: &&str| {
        let name = format!("{path}.{name}");
        let found = state.get(&name).cloned();
        found.ok_or_else(|| Error::new(ErrorKind::StateDict, format!("the state dict has no {name}")))
    };
    let [weight, scales, zeros] = [part(&PARTS[0])?, part(&PARTS[1])?, part(&PARTS[2])?];
    HostBlocks::new([weight, scales, zeros], scheme)
}

/// Puts a packed weight into a state dict, for the layer at a path.
pub(crate) fn put_packed(state: &mut StateDict, path: &str, blocks: &HostBlocks) {
    for (name, part) in PARTS.iter().zip(blocks.parts()) {
        state.insert(format!("{path}.{name}"), part.clone());
    }
}
