//! Arguments of ops that take many.

use crate::{DType, Error, Result, Shape};

/// A cut along one axis: `len` elements from `start`, `step` apart; a negative step walks backwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SliceRange {
    /// The first element taken. Irrelevant when `len` is 0.
    pub start: usize,
    /// Number of elements.
    pub len: usize,
    /// Distance between two elements, not 0.
    pub step: isize,
}

impl SliceRange {
    /// As given.
    pub const fn new(start: usize, len: usize, step: isize) -> Self {
        Self { start, len, step }
    }

    /// A whole axis of extent `dim`.
    pub const fn full(dim: usize) -> Self {
        Self::new(0, dim, 1)
    }

    /// Whether it takes the whole of an axis of extent `dim`, in order.
    pub const fn is_full(self, dim: usize) -> bool {
        self.len == dim && (dim == 0 || (self.start == 0 && (self.step == 1 || dim == 1)))
    }

    /// Whether every element taken lies inside an axis of extent `dim`.
    pub fn fits(self, dim: usize) -> bool {
        if self.len == 0 {
            return true;
        }
        let last = self.start as i128 + (self.len as i128 - 1) * self.step as i128;
        self.step != 0 && self.start < dim && (0..dim as i128).contains(&last)
    }
}

/// How a convolution walks over one to three spatial axes. Entries beyond the spatial rank are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvParams {
    /// Step between output positions, at least 1.
    pub stride: [usize; 3],
    /// Zeros added at both ends of each axis.
    pub padding: [usize; 3],
    /// Distance between kernel elements, at least 1.
    pub dilation: [usize; 3],
    /// Channel groups, each with its own filters.
    pub groups: usize,
}

impl Default for ConvParams {
    fn default() -> Self {
        Self {
            stride: [1; 3],
            padding: [0; 3],
            dilation: [1; 3],
            groups: 1,
        }
    }
}

impl ConvParams {
    /// The output's shape for input `[N, C, spatial…]` and weight `[O, C / groups, kernel…]`.
    ///
    /// # Errors
    /// When ranks, channels, groups or extents do not fit, or there would be too many elements.
    pub fn output_shape(&self, input: &Shape, weight: &Shape) -> Result<Shape> {
        let rank = input.rank();
        if !(3..=5).contains(&rank) || weight.rank() != rank {
            return Err(Error::shape(format!(
                "convolution takes input [N, C, spatial…] and weight [O, C / groups, kernel…] of one rank, 3 to 5; \
                 got {input} and {weight}"
            )));
        }
        let groups = self.groups;
        if groups == 0
            || !input[1].is_multiple_of(groups)
            || !weight[0].is_multiple_of(groups)
            || input[1] / groups != weight[1]
        {
            let error = Error::shape(format!(
                "{} input channels in {groups} groups do not fit a weight of shape {weight}",
                input[1]
            ));
            let expected = ["[N, C, L]", "[N, C, H, W]", "[N, C, D, H, W]"][rank - 3];
            if groups > 0 && input[rank - 1] == weight[1] * groups {
                return Err(error.with_hint(format!(
                    "the input is to be {expected}; if {input} has its channels last, permute them to axis 1"
                )));
            }
            return Err(error.with_hint(format!(
                "for an input {expected}, the weight's second extent must be C divided by groups, and groups must divide both channel counts"
            )));
        }
        let mut out = input.with_dim(1, weight[0]);
        for axis in 0..rank - 2 {
            let dim = window_positions(
                input[axis + 2],
                weight[axis + 2],
                self.stride[axis],
                (self.padding[axis], self.padding[axis]),
                self.dilation[axis],
                false,
            )?;
            out.dims_mut()[axis + 2] = dim;
        }
        Shape::new(&out)
    }
}

/// How a pooling window walks over one to three spatial axes. Entries beyond the spatial rank are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolParams {
    /// Extent of the window.
    pub kernel: [usize; 3],
    /// Step between windows, at least 1.
    pub stride: [usize; 3],
    /// Implicit border at both ends: at most half the window.
    pub padding: [usize; 3],
    /// Distance between elements of a window, at least 1; 1 for average pooling.
    pub dilation: [usize; 3],
    /// Whether to include a window that begins inside the input or its left border and extends past its end, even if it
    /// is larger than the input.
    pub ceil_mode: bool,
    /// For average pooling: whether the border counts as zeros. Elements beyond the border, which ceil mode may cover,
    /// never count.
    pub count_include_pad: bool,
}

impl PoolParams {
    /// Windows of `kernel`, side by side, without border.
    pub const fn new(kernel: [usize; 3]) -> Self {
        Self {
            kernel,
            stride: kernel,
            padding: [0; 3],
            dilation: [1; 3],
            ceil_mode: false,
            count_include_pad: true,
        }
    }

    /// The output's shape for input `[N, C, spatial…]`.
    ///
    /// # Errors
    /// When the rank is not 3 to 5, a window does not fit, or there would be too many elements.
    pub fn output_shape(&self, input: &Shape) -> Result<Shape> {
        let rank = input.rank();
        if !(3..=5).contains(&rank) {
            return Err(Error::shape(format!(
                "pooling takes input [N, C, spatial…] of rank 3 to 5, got {input}"
            )));
        }
        let mut out = *input;
        for axis in 0..rank - 2 {
            if self.padding[axis] > self.kernel[axis] / 2 {
                return Err(Error::invalid(format!(
                    "padding {} is more than half of the window {}",
                    self.padding[axis], self.kernel[axis]
                )));
            }
            let dim = window_positions(
                input[axis + 2],
                self.kernel[axis],
                self.stride[axis],
                (self.padding[axis], self.padding[axis]),
                self.dilation[axis],
                self.ceil_mode,
            )?;
            out.dims_mut()[axis + 2] = dim;
        }
        Shape::new(&out)
    }
}

/// The number of window positions on an axis of `dim` elements with a border of `before` and `after` elements. With
/// `ceil_mode` the last window may extend past the end, or be larger than input and border, if it begins inside the
/// input or the border before it.
///
/// Source: the formulas in PyTorch's documentation of Conv2d and MaxPool2d.
///
/// # Errors
/// When `kernel`, `stride` or `dilation` is 0, or no window fits.
pub fn window_positions(
    dim: usize,
    kernel: usize,
    stride: usize,
    (before, after): (usize, usize),
    dilation: usize,
    ceil_mode: bool,
) -> Result<usize> {
    if kernel == 0 || stride == 0 || dilation == 0 {
        return Err(Error::invalid(format!(
            "window {kernel}, stride {stride} and dilation {dilation} must each be at least 1"
        )));
    }
    let count = || {
        let reach = (kernel - 1).checked_mul(dilation)?.checked_add(1)?;
        let begins = dim.checked_add(before)?;
        let length = begins.checked_add(after)?;
        let room = length
            .checked_add(if ceil_mode { stride - 1 } else { 0 })?
            .checked_sub(reach)?;
        let positions = room / stride + 1;
        let last = if ceil_mode && (positions - 1).checked_mul(stride)? >= begins {
            positions - 1
        } else {
            positions
        };
        (last > 0).then_some(last)
    };
    count().ok_or_else(|| {
        let border = if before == after {
            format!("padding {before}")
        } else {
            format!("padding {before} before and {after} after")
        };
        Error::shape(format!(
            "a window of {kernel} with dilation {dilation} does not fit an extent of {dim} with {border}"
        ))
    })
}

/// Options of cross entropy against class indices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropyParams {
    /// Rows with this target are ignored.
    pub ignore_index: i64,
    /// Share of the target spread evenly over all classes, in `[0, 1]`.
    pub label_smoothing: f64,
    /// Whether the losses are averaged over the rows that are not ignored: PyTorch's reduction `"mean"`, not `"none"`.
    pub mean: bool,
}

impl Default for CrossEntropyParams {
    fn default() -> Self {
        Self {
            ignore_index: -100,
            label_smoothing: 0.0,
            mean: false,
        }
    }
}

/// The ops for which [`Backend::prepack`](crate::Backend::prepack) prepares a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Prepack {
    /// As the weight of `linear` and the recurrent layers.
    Linear,
    /// As the weight of `linear` for inputs of several rows at a time, which may take less memory.
    LinearRows,
    /// As the weight of `conv`.
    Conv,
    /// As the right-hand side of `matmul_u8`.
    MatmulU8,
    /// As the weight of `conv_u8`.
    ConvU8,
    /// As a tensor of any use that is read from main memory again and again.
    Memory,
}

impl Prepack {
    /// Whether such a weight can have this dtype.
    pub(crate) const fn accepts(self, dtype: DType) -> bool {
        match self {
            Self::Linear | Self::LinearRows | Self::Conv => dtype.is_float(),
            Self::MatmulU8 | Self::ConvU8 => matches!(dtype, DType::U8),
            Self::Memory => true,
        }
    }
}

/// One step of stochastic gradient descent. Source: the algorithm in PyTorch's documentation of `torch.optim.SGD`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdParams {
    /// Learning rate.
    pub lr: f64,
    /// Momentum; 0 for none.
    pub momentum: f64,
    /// Dampening of the momentum.
    pub dampening: f64,
    /// L2 penalty.
    pub weight_decay: f64,
    /// Nesterov's momentum.
    pub nesterov: bool,
    /// Whether this is the first step, in which the momentum buffer is set to the gradient.
    pub first: bool,
}

/// One step of Adam or AdamW. Source: the algorithms in PyTorch's documentation of `torch.optim.Adam` and `AdamW`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamParams {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Whether the decay is taken off the parameter itself (AdamW) or added to the gradient (Adam).
    pub decoupled: bool,
    /// Number of this step, from 1.
    pub step: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_counted_as_pytorch_does() {
        let input = Shape::from([1, 4, 7, 7]);
        let conv = ConvParams {
            stride: [2; 3],
            padding: [1; 3],
            ..ConvParams::default()
        };
        let out = conv.output_shape(&input, &Shape::from([8, 4, 3, 3])).unwrap();
        assert_eq!(out, Shape::from([1, 8, 4, 4]));
        assert!(conv.output_shape(&input, &Shape::from([8, 3, 3, 3])).is_err());
        let mut pool = PoolParams::new([2; 3]);
        assert_eq!(pool.output_shape(&input).unwrap(), Shape::from([1, 4, 3, 3]));
        pool.ceil_mode = true;
        assert_eq!(pool.output_shape(&input).unwrap(), Shape::from([1, 4, 4, 4]));
        pool.padding = [2; 3];
        assert!(pool.output_shape(&input).is_err());
        pool.padding = [0; 3];
        pool.stride = [0; 3];
        assert!(pool.output_shape(&input).is_err());
    }

    /// Recorded from PyTorch 2.13's `max_pool1d` in ceil mode; 0 is an error.
    #[test]
    fn windows_of_ceil_mode_may_be_larger_than_their_axis() {
        let counts = [
            "111111110021101111111111001000101011101100002000102000101110101100001000001000101000101000000020000010200000102000101010",
            "221111111032112211111111002010211011111100103000102110102110111100002000102000102010101100001030000010200010102000101021",
            "332211112143212211221111103110211121111100204110203110212110112100103000102010102110102100002040001020300010202110102021",
            "442222113254223322221122204221322122112210305210213210212211212200204010203110202110212100103050001020311010203110102121",
            "553322224365323322222222315321322122212220416320314221213221212210305110203110213110212100204061102030411020213110202121",
        ];
        for (dim, counts) in (1..).zip(counts) {
            let mut counts = counts.bytes().map(|digit| usize::from(digit - b'0'));
            for (kernel, stride) in (1..=6).flat_map(|kernel| (1..=4).map(move |stride| (kernel, stride))) {
                for (padding, dilation) in (0..=kernel / 2).flat_map(|padding| [(padding, 1), (padding, 2)]) {
                    let found = window_positions(dim, kernel, stride, (padding, padding), dilation, true);
                    assert_eq!(
                        found.unwrap_or(0),
                        counts.next().unwrap(),
                        "{kernel} by {stride} of {dim}, padding {padding}, dilation {dilation}"
                    );
                }
            }
            assert_eq!(counts.next(), None);
        }
        assert_eq!(window_positions(2, 3, 2, (0, 0), 1, false).ok(), None);
        assert_eq!(window_positions(2, 3, 2, (0, 1), 1, true).unwrap(), 1);
        assert_eq!(window_positions(2, 6, 4, (1, 0), 1, true).unwrap(), 1);
        assert!(window_positions(2, 7, 4, (1, 0), 1, true).is_err());
        assert!(window_positions(usize::MAX, 2, 2, (1, 1), 1, true).is_err());
    }

    #[test]
    fn ranges_know_whether_they_fit() {
        assert!(SliceRange::new(4, 3, -2).fits(5));
        assert!(!SliceRange::new(4, 4, -2).fits(5));
        assert!(!SliceRange::new(0, 2, 0).fits(5));
        assert!(SliceRange::new(9, 0, 1).fits(5));
        assert!(SliceRange::full(3).is_full(3));
    }
}
