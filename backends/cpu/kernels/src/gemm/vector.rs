//! Products with one vector, or with a few.

use super::blocks::second_level;
use super::{Dims, Mat, MatMut, Real, Update, cost};
use crate::CpuDevice;
use crate::simd::{Kernel, Lanes, Level, Simd};

/// The most rows of A that are each multiplied as a vector, since packing B would cost more.
const FEW: usize = 3;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Bytes of the system's smallest pages.
const PAGE: usize = 4096;

/// Columns of a result that stay in the first-level cache while rows of B are added to it.
const STRETCH: usize = 2048;

/// Computes the product if it has few vectors and its matrices have the right layout. Returns whether it did.
///
/// # Safety
/// As for [`super::Gemm::gemm`].
pub(super) unsafe fn by_vectors<T: Real>(
    device: CpuDevice,
    level: Level,
    dims: Dims,
    a: Mat<T>,
    b: Mat<T>,
    c: MatMut<T>,
    update: Update<T>,
) -> bool {
    let Dims { m, n, k } = dims;
    // SAFETY: passed on; a transposed product is the product of the transposed matrices.
    unsafe {
        if m > n && n <= FEW {
            let dims = Dims { m: n, n: m, k };
            let (a, b, c) = (b.transposed(), a.transposed(), c.transposed());
            return few(device, level, dims, a, b, c, update, Bias::Row);
        }
        few(device, level, dims, a, b, c, update, Bias::Column)
    }
}

/// Whether a bias has an element per row or per column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bias {
    Row,
    Column,
}

/// [`by_vectors`] for few rows.
///
/// # Safety
/// As for [`super::Gemm::gemm`].
#[allow(clippy::too_many_arguments, reason = "those of a product")]
unsafe fn few<T: Real>(
    device: CpuDevice,
    level: Level,
    dims: Dims,
    a: Mat<T>,
    b: Mat<T>,
    c: MatMut<T>,
    update: Update<T>,
    bias: Bias,
) -> bool {
    let Dims { m, n, k } = dims;
    // If B has contiguous columns: dot products. If it has contiguous rows: sums of rows.
    let dots = b.rows == 1 && a.cols == 1;
    let sums = b.cols == 1 && c.cols == 1 && (update.bias.is_null() || bias == Bias::Column);
    if m > FEW || k == 0 || !(dots || sums) {
        return false;
    }
    let ns = cost(Dims { m: 1, n: 1, k }, level) * 4.0;
    let far = n * k * size_of::<T>() > second_level();
    for row in 0..m {
        let a = Mat::new(a.at(row, 0), 0, a.cols);
        let c = MatMut::new(c.at(row, 0), 0, c.cols);
        device.split(n, ns, 64, |start, end| {
            let b = Mat::new(b.at(0, start), b.rows, b.cols);
            let c = MatMut::new(c.at(0, start), 0, c.cols);
            let n = end - start;
            let update = update.at_column(if bias == Bias::Row { row } else { start });
            match bias {
                Bias::Row if dots => level.run(Dots::<T, 0> {
                    n,
                    k,
                    a: a.ptr,
                    b,
                    c,
                    update,
                    far,
                }),
                Bias::Column if dots => level.run(Dots::<T, 1> {
                    n,
                    k,
                    a: a.ptr,
                    b,
                    c,
                    update,
                    far,
                }),
                _ => level.run(Sums {
                    n,
                    k,
                    a,
                    b,
                    c: c.ptr,
                    update,
                }),
            }
        });
    }
    true
}

/// `c[j] = Σ a[p] b[p, j]`, where B has contiguous columns. The columns' biases are `BIAS` elements apart.
struct Dots<T, const BIAS: usize> {
    n: usize,
    k: usize,
    a: *const T,
    b: Mat<T>,
    c: MatMut<T>,
    update: Update<T>,
    /// Whether B does not fit the second-level cache.
    far: bool,
}

impl<T: Real, const BIAS: usize> Kernel for Dots<T, BIAS> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: the columns are inside B; the caller of `by_vectors` guarantees the matrices.
        unsafe {
            let whole = self.n - self.n % 4;
            // Two loops, so that small products pay for no test.
            if self.far {
                for j in (0..whole).step_by(4) {
                    self.columns::<S, 4, true>(s, j);
                }
            } else {
                for j in (0..whole).step_by(4) {
                    self.columns::<S, 4, false>(s, j);
                }
            }
            for j in whole..self.n {
                self.columns::<S, 1, false>(s, j);
            }
        }
    }
}

impl<T: Real, const BIAS: usize> Dots<T, BIAS> {
    /// # Safety
    /// Columns `j..j + COLUMNS` must be inside B and the result.
    #[inline(always)]
    unsafe fn columns<S: Simd, const COLUMNS: usize, const FAR: bool>(&self, s: S, j: usize) {
        let Self { b, c, update, .. } = *self;
        let l = T::lanes(s);
        // SAFETY: by the caller.
        unsafe {
            let mut parts = [l.splat(T::ZERO); COLUMNS];
            if FAR {
                // One after another: the processor prefetches a single stream best.
                for (i, part) in parts.iter_mut().enumerate() {
                    [*part] = self.dots::<S, 1, true>(s, [b.at(0, j + i)]);
                }
            } else {
                parts = self.dots::<S, COLUMNS, false>(s, std::array::from_fn(|i| b.at(0, j + i)));
            }
            let mut sums = [T::ZERO; COLUMNS];
            if let Some(four) = sums.first_chunk_mut::<4>() {
                *four = l.sums([parts[0], parts[1], parts[2], parts[3]]);
            } else {
                for (sum, part) in sums.iter_mut().zip(parts) {
                    *sum = l.sum(part);
                }
            }
            for (i, mut y) in sums.into_iter().enumerate() {
                if update.alpha != T::ONE {
                    y = y.times(update.alpha);
                }
                if !update.bias.is_null() {
                    y = y.plus(update.bias.add((j + i) * BIAS).read());
                }
                let to = c.at(0, j + i);
                if update.beta != T::ZERO {
                    y = y.plus(update.beta.times(to.read()));
                }
                to.write(y);
            }
        }
    }

    /// The products with some columns, which are read together: for each a register of partial sums.
    ///
    /// # Safety
    /// The columns must be inside B.
    #[inline(always)]
    unsafe fn dots<S: Simd, const COLUMNS: usize, const FAR: bool>(
        &self,
        s: S,
        columns: [*const T; COLUMNS],
    ) -> [<T::Lanes<S> as Lanes>::V; COLUMNS] {
        let Self { k, a, .. } = *self;
        let (l, n) = (T::lanes(s), T::Lanes::<S>::N);
        let mut parts = [l.splat(T::ZERO); COLUMNS];
        let mut acc = [[l.splat(T::ZERO); 2]; COLUMNS];
        // SAFETY: offsets stay below `k`.
        unsafe {
            let mut p = 0;
            while p + 2 * n <= k {
                let x = [l.load(a.add(p)), l.load(a.add(p + n))];
                for (acc, column) in acc.iter_mut().zip(columns) {
                    acc[0] = l.mul_add(x[0], l.load(column.add(p)), acc[0]);
                    acc[1] = l.mul_add(x[1], l.load(column.add(p + n)), acc[1]);
                    if FAR {
                        // The processor's own prefetches end with each page.
                        let next = column.wrapping_add(p).wrapping_byte_add(PAGE);
                        s.prefetch(next.cast());
                        if 2 * n * size_of::<T>() > LINE {
                            s.prefetch(next.wrapping_add(n).cast());
                        }
                    }
                }
                p += 2 * n;
            }
            while p < k {
                let n = n.min(k - p);
                let x = l.load_part(a.add(p), n);
                for (acc, column) in acc.iter_mut().zip(columns) {
                    acc[0] = l.mul_add(x, l.load_part(column.add(p), n), acc[0]);
                }
                p += n;
            }
        }
        for (part, [even, odd]) in parts.iter_mut().zip(acc) {
            *part = l.add(even, odd);
        }
        parts
    }
}

/// `c = Σ a[p] b[p, :]`, where B and the result have contiguous rows.
struct Sums<T> {
    n: usize,
    k: usize,
    a: Mat<T>,
    b: Mat<T>,
    c: *mut T,
    update: Update<T>,
}

impl<T: Real> Kernel for Sums<T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let l = T::lanes(s);
        for left in (0..self.n).step_by(STRETCH) {
            let n = STRETCH.min(self.n - left);
            // SAFETY: the columns are inside B; the caller of `by_vectors` guarantees the matrices.
            unsafe {
                self.start(l, left, n);
                let whole = self.k - self.k % 4;
                for p in (0..whole).step_by(4) {
                    self.rows::<T::Lanes<S>, 4>(l, left, n, p);
                }
                for p in whole..self.k {
                    self.rows::<T::Lanes<S>, 1>(l, left, n, p);
                }
            }
        }
    }
}

impl<T: Real> Sums<T> {
    /// Sets the result to `β c`, or to the bias.
    ///
    /// # Safety
    /// Columns `left..left + n` must be inside the result.
    #[inline(always)]
    unsafe fn start<L: Lanes<T = T>>(&self, l: L, left: usize, n: usize) {
        let Self { c, update, .. } = *self;
        for j in (left..left + n).step_by(L::N) {
            // SAFETY: by the caller.
            unsafe {
                let lanes = L::N.min(left + n - j);
                let y = if !update.bias.is_null() {
                    l.load_part(update.bias.add(j), lanes)
                } else if update.beta == T::ZERO {
                    l.splat(T::ZERO)
                } else {
                    l.mul(l.load_part(c.add(j), lanes), l.splat(update.beta))
                };
                l.store_part(c.add(j), lanes, y);
            }
        }
    }

    /// Adds `ROWS` rows of B from number `p` on.
    ///
    /// # Safety
    /// The rows and columns must be inside B and the result.
    #[inline(always)]
    unsafe fn rows<L: Lanes<T = T>, const ROWS: usize>(&self, l: L, left: usize, n: usize, p: usize) {
        let Self { a, b, c, update, .. } = *self;
        // SAFETY: by the caller.
        unsafe {
            let x: [L::V; ROWS] = std::array::from_fn(|i| l.splat(update.alpha.times(a.at(0, p + i).read())));
            let rows: [*const T; ROWS] = std::array::from_fn(|i| b.at(p + i, 0));
            let mut j = left;
            while j + L::N <= left + n {
                let mut y = l.load(c.add(j));
                for i in 0..ROWS {
                    y = l.mul_add(x[i], l.load(rows[i].add(j)), y);
                }
                l.store(c.add(j), y);
                j += L::N;
            }
            let lanes = left + n - j;
            if lanes > 0 {
                let mut y = l.load_part(c.add(j), lanes);
                for i in 0..ROWS {
                    y = l.mul_add(x[i], l.load_part(rows[i].add(j), lanes), y);
                }
                l.store_part(c.add(j), lanes, y);
            }
        }
    }
}
