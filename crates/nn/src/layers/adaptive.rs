//! Pooling to a given size.

use polygrad_tensor::{Backend, Result, Tensor};

use super::extent::{Extent, batched, by_axes};
use super::stateless::stateless;
use crate::watch;

macro_rules! adaptive {
    ($name:ident, $name1:ident, $name2:ident, $name3:ident, $what:literal) => {
        #[doc = concat!($what, " over windows that are chosen so that the output has a given size, as [`", stringify!($name1), "`],")]
        #[doc = concat!("[`", stringify!($name2), "`] and [`", stringify!($name3), "`].")]
        ///
        /// Window `i` of `out` over an axis of `in` elements reaches from `⌊i · in / out⌋` to `⌈(i + 1) · in / out⌉`,
        /// as in PyTorch.
        #[derive(Clone, Copy, Debug)]
        pub struct $name<const D: usize>([Option<usize>; D]);

        #[doc = concat!($what, " over windows of `[N, C, L]`.")]
        pub type $name1 = $name<1>;
        #[doc = concat!($what, " over windows of `[N, C, H, W]`.")]
        pub type $name2 = $name<2>;
        #[doc = concat!($what, " over windows of `[N, C, D, H, W]`.")]
        pub type $name3 = $name<3>;

        impl<const D: usize> $name<D> {
            /// Pools to `output_size`: one number for all spatial axes, or an array.
            pub fn new(output_size: impl Extent<D>) -> Self {
                Self(output_size.extent().map(Some))
            }

            /// Pools to `output_size`; an axis with `None` keeps its extent.
            pub const fn with_kept(output_size: [Option<usize>; D]) -> Self {
                Self(output_size)
            }

            fn name() -> &'static str {
                by_axes::<D, _>([stringify!($name1), stringify!($name2), stringify!($name3)])
            }

            /// The spatial extents of the output for this input.
            fn extents<B: Backend>(&self, x: &Tensor<B>) -> [usize; D] {
                let shape = x.shape();
                std::array::from_fn(|i| self.0[i].unwrap_or(shape[i + 2]))
            }
        }
    };
}

adaptive!(
    AdaptiveAvgPool,
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    "The mean"
);
adaptive!(
    AdaptiveMaxPool,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    "The largest value"
);
stateless!(AdaptiveAvgPool<D>, AdaptiveMaxPool<D>);

impl<const D: usize> AdaptiveAvgPool<D> {
    /// `[N, C, spatial…]` to `[N, C, output_size…]`, or both without `N`.
    ///
    /// # Errors
    /// When there are not `D` spatial axes, or one is empty.
    pub fn forward<B: Backend>(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            let (x, batch) = batched::<D, B>(x, Self::name())?;
            batch.restore(x.adaptive_avg_pool(&self.extents(&x))?)
        })
    }
}

impl<const D: usize> AdaptiveMaxPool<D> {
    /// `[N, C, spatial…]` to `[N, C, output_size…]`, or both without `N`. The first of equal values takes the gradient.
    ///
    /// # Errors
    /// When there are not `D` spatial axes, or one is empty.
    pub fn forward<B: Backend>(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        Ok(self.forward_with_indices(x)?.0)
    }

    /// As [`AdaptiveMaxPool::forward`], with the position of each value in its flattened spatial axes (i64): PyTorch's
    /// `return_indices`.
    ///
    /// # Errors
    /// As [`AdaptiveMaxPool::forward`].
    pub fn forward_with_indices<B: Backend>(&self, x: &Tensor<B>) -> Result<(Tensor<B>, Tensor<B>)> {
        watch::layer(self, x, || {
            let (x, batch) = batched::<D, B>(x, Self::name())?;
            let (values, positions) = x.adaptive_max_pool(&self.extents(&x))?;
            Ok((batch.restore(values)?, batch.restore(positions)?))
        })
    }
}
