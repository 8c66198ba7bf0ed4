//! Rotary positions.

use polygrad_tensor::{AnyBackend, Backend, Error, Result, Tensor};

use super::table::Table;
use crate::options::options;
use crate::{Module, watch};

/// Rotates pairs of elements of queries and keys by angles proportional to the position, so that their products depend
/// only on distances: pair i of position p is rotated by `p / base^(2i / dim)`. It has no parameters and nothing in the
/// state dict.
///
/// Source: Su et al., "RoFormer: enhanced transformer with rotary position embedding" (2021).
///
/// ```
/// use polygrad_nn::RotaryEmbedding;
/// # use polygrad_reference::Reference;
/// # use polygrad_tensor::{Device, Result, Tensor};
/// # fn main() -> Result<()> {
/// let device = Device::<Reference>::default();
/// let rope = RotaryEmbedding::new(8, 128)?;
/// // Queries [N, heads, S, D]; in generation, the place at which they begin.
/// let q = rope.forward_from(&Tensor::randn([2, 4, 5, 8], &device)?, 10)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Module)]
#[module(forward)]
pub struct RotaryEmbedding<B: Backend = AnyBackend> {
    #[module(skip)]
    cos: Table<B>,
    #[module(skip)]
    sin: Table<B>,
    #[module(skip)]
    pairs: RotaryPairs,
}

/// How elements are paired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RotaryPairs {
    /// Element i and element i + D / 2, as in GPT-NeoX and Llama's Hugging Face form.
    #[default]
    Halves,
    /// Elements 2i and 2i + 1, as in RoFormer, GPT-J and Llama's own form.
    Adjacent,
}

options! {
    /// Options of [`RotaryEmbedding`].
    #[derive(Clone, Copy, Debug)]
    pub struct RotaryConfig {
        /// For heads of width `dim` and sequences of up to `max_len`.
        pub const fn new(dim: usize, max_len: usize);
        /// Base of the angles, above 0.
        base: f64 = 10_000.0;
        /// How elements are paired. Default: halves.
        pairs: RotaryPairs = RotaryPairs::Halves;
    }
}

impl RotaryConfig {
    /// The layer. Its tables are copied to the device of the input.
    ///
    /// # Errors
    /// When `dim` is odd, the base is not above 0, or memory runs out.
    pub fn build<B: Backend>(self) -> Result<RotaryEmbedding<B>> {
        if !self.dim.is_multiple_of(2) {
            return Err(Error::invalid(format!("dim = {} is odd", self.dim)).with_op("RotaryEmbedding"));
        }
        if !(self.base > 0.0 && self.base.is_finite()) {
            return Err(Error::invalid(format!("base = {:?} is not above 0", self.base)).with_op("RotaryEmbedding"));
        }
        let angle = |place: usize, i: usize| place as f64 / self.base.powf(2.0 * i as f64 / self.dim as f64);
        Ok(RotaryEmbedding {
            cos: Table::new(self.max_len, self.dim / 2, |place, i| angle(place, i).cos())?,
            sin: Table::new(self.max_len, self.dim / 2, |place, i| angle(place, i).sin())?,
            pairs: self.pairs,
        })
    }
}

impl<B: Backend> RotaryEmbedding<B> {
    /// For heads of width `dim` and sequences of up to `max_len`; [`RotaryConfig`] has the other options.
    ///
    /// # Errors
    /// As [`RotaryConfig::build`].
    pub fn new(dim: usize, max_len: usize) -> Result<Self> {
        RotaryConfig::new(dim, max_len).build()
    }

    /// `x […, S, dim]`, rotated for the positions from 0 on.
    ///
    /// # Errors
    /// When the sequence is longer than `max_len`, or shapes, dtypes or devices do not fit.
    pub fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.forward_from(x, 0)
    }

    /// [`RotaryEmbedding::forward`] for a sequence that begins at position `offset`.
    ///
    /// # Errors
    /// As [`RotaryEmbedding::forward`].
    pub fn forward_from(&self, x: &Tensor<B>, offset: usize) -> Result<Tensor<B>> {
        watch::layer(self, x, || self.rotate(x, offset)).map_err(|e| e.with_op("RotaryEmbedding"))
    }

    fn rotate(&self, x: &Tensor<B>, offset: usize) -> Result<Tensor<B>> {
        let half = self.cos.width();
        if x.rank() < 2 || x.shape()[x.rank() - 1] != 2 * half {
            return Err(Error::shape(format!("takes […, S, {}]", 2 * half)).with_operands([(x.shape(), x.dtype())]));
        }
        Tensor::in_wide([x], |[x]| self.rotated(x, offset, half))
    }

    fn rotated(&self, x: &Tensor<B>, offset: usize, half: usize) -> Result<Tensor<B>> {
        let (cos, sin) = (self.cos.rows(x, offset)?, self.sin.rows(x, offset)?);
        match self.pairs {
            RotaryPairs::Halves => x.rotary(&cos, &sin),
            RotaryPairs::Adjacent => {
                let mut dims = x.dims();
                dims.pop();
                let paired = x.reshape([&dims[..], &[half, 2]].concat())?;
                let (a, b) = (paired.select(-1, 0)?, paired.select(-1, 1)?);
                let (a, b) = turned(&a, &b, &cos, &sin)?;
                Tensor::stack(&[&a, &b], -1)?.flatten(-2, -1)
            }
        }
    }
}

/// The pairs `(a, b)`, rotated.
fn turned<B: Backend>(
    a: &Tensor<B>,
    b: &Tensor<B>,
    cos: &Tensor<B>,
    sin: &Tensor<B>,
) -> Result<(Tensor<B>, Tensor<B>)> {
    Ok((a.mul(cos)?.sub(&b.mul(sin)?)?, b.mul(cos)?.add(&a.mul(sin)?)?))
}
