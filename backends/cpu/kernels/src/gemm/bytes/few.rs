//! Products of few rows with a matrix that is used once, which is read in place.

use polygrad_core::Result;

use super::{Block, Product, To};
use crate::CpuDevice;
use crate::Pointer;
use crate::buffers::Buffer;
use crate::gemm::{Dims, Mat};
use crate::simd::{Kernel, Level, Simd};

/// The most rows for which packing B costs more than it saves.
const MOST_ROWS: usize = 2;

/// Rows of B that are added to the result at a time.
const TERMS: usize = 8;

/// The fewest columns of a task.
const COLUMNS: usize = 512;

/// Whether there are few enough rows, and B has contiguous rows.
pub(super) fn fits(product: &Product<'_>) -> bool {
    product.dims.m <= MOST_ROWS && product.b.cols == 1
}

/// Computes a product that [`fits`].
///
/// # Safety
/// As for [`Product::run`].
///
/// # Errors
/// When memory runs out.
pub(super) unsafe fn run(product: &Product<'_>, device: CpuDevice, c: To<'_>) -> Result<()> {
    let Dims { m, n, .. } = product.dims;
    let give = match c {
        To::Sums(c) => {
            stripes(product, device, c);
            return Ok(());
        }
        To::Blocks(give) => give,
    };
    let room = Buffer::alloc(m * n * size_of::<i32>())?;
    let to = room.as_ptr().cast::<i32>();
    stripes(product, device, to);
    give(Block {
        // SAFETY: all of it has been written.
        sums: unsafe { std::slice::from_raw_parts(to, m * n) },
        row: 0,
        column: 0,
        columns: n,
    });
    Ok(())
}

fn stripes(product: &Product<'_>, device: CpuDevice, c: *mut i32) {
    let Dims { m, n, k } = product.dims;
    let to = Pointer(c);
    let parts = match device.threads() {
        1 => 1,
        threads => n.div_ceil(COLUMNS).min(2 * threads),
    };
    let each = n.div_ceil(parts);
    device.each(m * parts, (k * each) as f32 * 0.05, |task| {
        let (row, left) = (task / parts, task % parts * each);
        if left >= n {
            return;
        }
        let stripe = Stripe {
            product,
            row,
            columns: (left, each.min(n - left)),
            to: to.at(row * n + left),
        };
        match device.vectors() {
            Some(level) => level.run(stripe),
            None => Level::Portable.run(stripe),
        }
    });
}

/// Some columns of a row of the result.
struct Stripe<'a, 'b> {
    product: &'a Product<'b>,
    row: usize,
    columns: (usize, usize),
    to: *mut i32,
}

impl Kernel for Stripe<'_, '_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Product {
            dims,
            a,
            b,
            zero_a,
            zero_b,
            ..
        } = *self.product;
        let (left, count) = self.columns;
        // SAFETY: the stripe belongs to this task; its elements are all set to 0 first.
        let out = unsafe {
            self.to.write_bytes(0, count);
            std::slice::from_raw_parts_mut(self.to, count)
        };
        let zero = zero_a.get(self.row);
        let mut total = 0i32;
        for first in (0..dims.k).step_by(TERMS) {
            let terms = TERMS.min(dims.k - first);
            // Between -255 and 255. They are i16, so that the compiler multiplies 16 bits by 16.
            let mut factors = [0i16; TERMS];
            for (i, factor) in factors.iter_mut().enumerate().take(terms) {
                // SAFETY: A has the row and the column.
                *factor = (i32::from(unsafe { a.at(self.row, first + i).read() }) - zero) as i16;
                total = total.wrapping_add((*factor).into());
            }
            add(out, factors, terms, |i| Mat::at(&b, first + i, left));
        }
        for (column, sum) in out.iter_mut().enumerate() {
            *sum = sum.wrapping_sub(total.wrapping_mul(zero_b.get(left + column)));
        }
    }
}

/// Adds rows of bytes, each multiplied by its factor.
#[inline(always)]
fn add(out: &mut [i32], factors: [i16; TERMS], terms: usize, row: impl Fn(usize) -> *const u8) {
    let count = out.len();
    if terms == TERMS {
        // SAFETY: B has the rows and the columns.
        let rows: [&[u8]; TERMS] = std::array::from_fn(|i| unsafe { std::slice::from_raw_parts(row(i), count) });
        for column in 0..count {
            let mut sum = out[column];
            for i in 0..TERMS {
                sum = sum.wrapping_add(i32::from(factors[i]) * i32::from(rows[i][column]));
            }
            out[column] = sum;
        }
        return;
    }
    for (i, &factor) in factors.iter().enumerate().take(terms) {
        // SAFETY: as above.
        let row = unsafe { std::slice::from_raw_parts(row(i), count) };
        for (sum, &x) in out.iter_mut().zip(row) {
            *sum = sum.wrapping_add(i32::from(factor) * i32::from(x));
        }
    }
}
