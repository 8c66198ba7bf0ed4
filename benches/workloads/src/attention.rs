//! `attention`: scaled dot-product attention, without gradients or with them; causal if there are as many queries as
//! keys.

use polygrad_tensor::{Attention as Options, Backend, BackwardOptions, Device, Result, Tensor};

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

    /// Those of the output and of its gradient, without the scores that the gradient computes again.
    pub(crate) fn backward_flops(self) -> u64 {
        3 * self.flops()
    }

    pub(crate) fn prepare<B: Backend>(self, device: &Device<B>) -> Result<Prepared<B>> {
        let ([q, k, v], options) = (self.operands(device)?, self.options());
        Ok(Prepared::call(move || q.scaled_dot_product_attention(&k, &v, options)))
    }

    pub(crate) fn prepare_backward<B: Backend>(self, device: &Device<B>) -> Result<Prepared<B>> {
        let options = self.options();
        let [q, k, v] = self.operands(device)?.map(|x| x.requires_grad());
        let (q, k, v) = (q?, k?, v?);
        let gradient = q.scaled_dot_product_attention(&k, &v, options)?.detach();
        Ok(Prepared::call(move || {
            let output = q.scaled_dot_product_attention(&k, &v, options)?;
            output.backward_with(&BackwardOptions::default().gradient(&gradient))
        }))
    }

    fn options<B: Backend>(self) -> Options<'static, B> {
        let [_, _, queries, keys, _] = self.of;
        Options::new().causal(queries == keys)
    }

    fn operands<B: Backend>(self, device: &Device<B>) -> Result<[Tensor<B>; 3]> {
        let [batch, heads, queries, keys, width] = self.of;
        let rows = |rows: usize, seed| {
            let shape = [batch, heads, rows, width];
            Tensor::from_vec(noise(shape.iter().product(), seed), shape, device)?.to_dtype(self.dtype)
        };
        Ok([rows(queries, INPUT)?, rows(keys, TARGET)?, rows(keys, INPUT)?])
    }
}
