//! Pooling.

use polygrad_tensor::{Backend, Error, PoolParams, Result, Tensor};

use super::extent::{Extent, padded};
use super::stateless::stateless;
use crate::watch;

macro_rules! pool {
    ($name:ident, $name1:ident, $name2:ident, $what:literal) => {
        #[doc = concat!($what, " over windows of `D` spatial axes, as [`", stringify!($name1), "`] and [`", stringify!($name2), "`].")]
        ///
        /// Windows lie side by side unless `stride` says otherwise. Each size is one number for all axes or an array.
        #[derive(Clone, Copy, Debug)]
        pub struct $name<const D: usize>(PoolParams);

        #[doc = concat!($what, " over `[N, C, L]`.")]
        pub type $name1 = $name<1>;
        #[doc = concat!($what, " over `[N, C, H, W]`.")]
        pub type $name2 = $name<2>;

        impl<const D: usize> $name<D> {
            /// Windows of `kernel_size`, side by side, without border.
            pub fn new(kernel_size: impl Extent<D>) -> Self {
                Self(PoolParams::new(padded(kernel_size.extent(), 1)))
            }

            /// Step between windows. Default: the window's extent.
            #[must_use]
            pub fn stride(mut self, stride: impl Extent<D>) -> Self {
                self.0.stride = padded(stride.extent(), 1);
                self
            }

            /// Border at both ends of each axis, at most half the window. Default: 0.
            #[must_use]
            pub fn padding(mut self, padding: impl Extent<D>) -> Self {
                self.0.padding = padded(padding.extent(), 0);
                self
            }

            /// Whether windows may run over the end of the input. Default: false.
            #[must_use]
            pub fn ceil_mode(mut self, ceil_mode: bool) -> Self {
                self.0.ceil_mode = ceil_mode;
                self
            }

            fn check<B: Backend>(&self, x: &Tensor<B>) -> Result<()> {
                if x.rank() == D + 2 {
                    return Ok(());
                }
                let name = [stringify!($name1), stringify!($name2)][usize::from(D > 1)];
                Err(Error::shape(format!("{name} takes [N, C, spatial…] of rank {}", D + 2))
                    .with_op(name)
                    .with_operands([(x.shape(), x.dtype())]))
            }
        }
    };
}

pool!(MaxPool, MaxPool1d, MaxPool2d, "The largest value");
pool!(AvgPool, AvgPool1d, AvgPool2d, "The mean");
stateless!(MaxPool<D>, AvgPool<D>);

impl<const D: usize> MaxPool<D> {
    /// Distance between elements of a window. Default: 1.
    #[must_use]
    pub fn dilation(mut self, dilation: impl Extent<D>) -> Self {
        self.0.dilation = padded(dilation.extent(), 1);
        self
    }

    /// The largest value of each window; the border counts for nothing. The first of equal values takes the gradient.
    ///
    /// # Errors
    /// When the rank is not `D + 2`, or the windows do not fit.
    pub fn forward<B: Backend>(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        Ok(self.forward_with_indices(x)?.0)
    }

    /// As [`MaxPool::forward`], with the position of each value in its flattened spatial axes (i64).
    ///
    /// # Errors
    /// As [`MaxPool::forward`].
    pub fn forward_with_indices<B: Backend>(&self, x: &Tensor<B>) -> Result<(Tensor<B>, Tensor<B>)> {
        watch::layer(self, x, || {
            self.check(x)?;
            x.max_pool(&self.0)
        })
    }
}

impl<const D: usize> AvgPool<D> {
    /// Whether the border counts as zeros in the mean. Default: true.
    #[must_use]
    pub fn count_include_pad(mut self, count_include_pad: bool) -> Self {
        self.0.count_include_pad = count_include_pad;
        self
    }

    /// The mean of each window.
    ///
    /// # Errors
    /// When the rank is not `D + 2`, or the windows do not fit.
    pub fn forward<B: Backend>(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || {
            self.check(x)?;
            x.avg_pool(&self.0)
        })
    }
}
