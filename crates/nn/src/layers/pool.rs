//! Pooling.

use polygrad_tensor::{Backend, PoolParams, Result, Tensor};

use super::extent::{Extent, batched, by_axes, padded};
use super::stateless::stateless;
use crate::watch;

macro_rules! pool {
    ($name:ident, $name1:ident, $name2:ident, $name3:ident, $what:literal $(, $option:ident: $type:ty)?) => {
        #[doc = concat!($what, " over windows of `D` spatial axes, as [`", stringify!($name1), "`], [`", stringify!($name2), "`] and [`", stringify!($name3), "`].")]
        ///
        /// Windows lie side by side unless `stride` says otherwise. Each size is one number for all axes or an array.
        #[derive(Clone, Copy, Debug)]
        pub struct $name<const D: usize> {
            params: PoolParams,
            $($option: $type,)?
        }

        #[doc = concat!($what, " over `[N, C, L]`.")]
        pub type $name1 = $name<1>;
        #[doc = concat!($what, " over `[N, C, H, W]`.")]
        pub type $name2 = $name<2>;
        #[doc = concat!($what, " over `[N, C, D, H, W]`.")]
        pub type $name3 = $name<3>;

        impl<const D: usize> $name<D> {
            /// Windows of `kernel_size`, side by side, without padding.
            pub fn new(kernel_size: impl Extent<D>) -> Self {
                Self {
                    params: PoolParams::new(padded(kernel_size.extent(), 1)),
                    $($option: Default::default(),)?
                }
            }

            /// Step between windows. Default: the window's size.
            #[must_use]
            pub fn stride(mut self, stride: impl Extent<D>) -> Self {
                self.params.stride = padded(stride.extent(), 1);
                self
            }

            /// Padding at both ends of each axis, at most half the window. Default: 0.
            #[must_use]
            pub fn padding(mut self, padding: impl Extent<D>) -> Self {
                self.params.padding = padded(padding.extent(), 0);
                self
            }

            /// Whether windows may extend beyond the end of the input. Default: false.
            #[must_use]
            pub fn ceil_mode(mut self, ceil_mode: bool) -> Self {
                self.params.ceil_mode = ceil_mode;
                self
            }

            fn name() -> &'static str {
                by_axes::<D, _>([stringify!($name1), stringify!($name2), stringify!($name3)])
            }
        }
    };
}

pool!(MaxPool, MaxPool1d, MaxPool2d, MaxPool3d, "The largest value");
pool!(AvgPool, AvgPool1d, AvgPool2d, AvgPool3d, "The mean", divisor: Option<isize>);
stateless!(MaxPool<D>, AvgPool<D>);

impl<const D: usize> MaxPool<D> {
    /// Distance between elements of a window. Default: 1.
    #[must_use]
    pub fn dilation(mut self, dilation: impl Extent<D>) -> Self {
        self.params.dilation = padded(dilation.extent(), 1);
        self
    }

    /// The largest value of each window of `[N, C, spatial…]` or `[C, spatial…]`, ignoring the padding. The first of
    /// equal values takes the gradient.
    ///
    /// # Errors
    /// When there are not `D` spatial axes, or the windows do not fit.
    pub fn forward<B: Backend>(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        Ok(self.forward_with_indices(x)?.0)
    }

    /// As [`MaxPool::forward`], with the position of each value in its flattened spatial axes (i64): PyTorch's
    /// `return_indices`.
    ///
    /// # Errors
    /// As [`MaxPool::forward`].
    pub fn forward_with_indices<B: Backend>(&self, x: &Tensor<B>) -> Result<(Tensor<B>, Tensor<B>)> {
        watch::layer(self, x, || {
            let (x, batch) = batched::<D, B>(x, Self::name())?;
            let (values, positions) = x.max_pool(&self.params)?;
            Ok((batch.restore(values)?, batch.restore(positions)?))
        })
    }
}

impl<const D: usize> AvgPool<D> {
    /// Whether the padding counts as zeros in the mean. Default: true.
    #[must_use]
    pub fn count_include_pad(mut self, count_include_pad: bool) -> Self {
        self.params.count_include_pad = count_include_pad;
        self
    }

    /// Divisor of each window's sum; `count_include_pad` is then ignored. Default: the number of its elements.
    #[must_use]
    pub fn divisor_override(mut self, divisor: isize) -> Self {
        self.divisor = Some(divisor);
        self
    }

    /// The mean of each window of `[N, C, spatial…]` or `[C, spatial…]`.
    ///
    /// # Errors
    /// When there are not `D` spatial axes, the windows do not fit, or the divisor is 0.
    pub fn forward<B: Backend>(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            let (x, batch) = batched::<D, B>(x, Self::name())?;
            batch.restore(match self.divisor {
                None => x.avg_pool(&self.params)?,
                Some(divisor) => x.avg_pool_with_divisor(&self.params, divisor)?,
            })
        })
    }
}
