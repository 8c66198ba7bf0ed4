//! Counting the work of matrix products and convolutions.

use std::cell::Cell;

thread_local! {
    static FLOPS: Cell<u64> = const { Cell::new(0) };
}

/// Runs `f`, and counts the floating-point operations of its matrix products, convolutions and attention on this
/// thread, forward and backward. A multiplication with its addition counts as two. Other ops are not counted, as in
/// PyTorch's `FlopCounterMode`.
///
/// ```
/// # use polygrad_reference::Reference;
/// # use polygrad_tensor::{Device, Result, Tensor, count_flops};
/// # fn main() -> Result<()> {
/// let device = Device::<Reference>::default();
/// let (x, w) = (Tensor::ones([4, 3], &device)?, Tensor::ones([3, 5], &device)?);
/// let (product, flops) = count_flops(|| x.matmul(&w));
/// assert_eq!(product?.dims(), [4, 5]);
/// assert_eq!(flops, 2 * 4 * 3 * 5);
/// # Ok(())
/// # }
/// ```
pub fn count_flops<R>(f: impl FnOnce() -> R) -> (R, u64) {
    let before = FLOPS.get();
    let result = f();
    (result, FLOPS.get().wrapping_sub(before))
}

/// The operations counted on this thread since it started, by the rules of [`count_flops`]. An op is counted right
/// after the backend has computed it, so an increase after one op and before the next belongs to the first.
#[inline]
pub fn flops_counted() -> u64 {
    FLOPS.get()
}

/// Adds the operations of a replay, which calls no ops of tensors.
#[doc(hidden)]
pub fn add_flops(flops: u64) {
    FLOPS.set(FLOPS.get().wrapping_add(flops));
}

/// Counts `outputs` sums of `terms` products each. Must be called right after the op, before any other op.
#[inline]
pub(crate) fn add_products(outputs: usize, terms: usize) {
    let flops = (outputs as u64).wrapping_mul(terms as u64).wrapping_mul(2);
    add_flops(flops);
}
