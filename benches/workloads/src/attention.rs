//! `attention`: scaled dot-product attention without gradients; causal if there are as many queries as keys.

use polygrad_tensor::{Attention as Options, Backend, Device, Result, Tensor};

use crate::Prepared;
use crate::data::{INPUT, TARGET, noise};
use crate::extents::Extents;

/// Batch, heads, queries, keys, and the width of a head.
pub(crate) type Attention = Extents<5>;

impl Attention {
    /// The sizes of `gpt`, a longer text, and the next token of a text.
    pub(crate) const ALL: [Self; 3] = [
        Self::f32([16, 4, 64, 64, 32]),
        Self::f32([2, 8, 512, 512, 64]),
        Self::f32([1, 8, 1, 1024, 64]),
    ];

    pub(crate) fn flops(self) -> u64 {
        4 * self.of.into_iter().product::<usize>() as u64
    }

    pub(crate) fn prepare<B: Backend>(self, device: &Device<B>) -> Result<Prepared<B>> {
        let [batch, heads, queries, keys, width] = self.of;
        let rows = |rows: usize, seed| {
            let shape = [batch, heads, rows, width];
            Tensor::from_vec(noise(shape.iter().product(), seed), shape, device)?.to_dtype(self.dtype)
        };
        let (q, k, v) = (rows(queries, INPUT)?, rows(keys, TARGET)?, rows(keys, INPUT)?);
        let options = Options::new().causal(queries == keys);
        Ok(Prepared::call(move || q.scaled_dot_product_attention(&k, &v, options)))
    }
}
