//! Matrix products by crates.

use std::convert::Infallible;

use polygrad_peer::data::{INPUT, TARGET, noise};
use polygrad_peer::{Step, call};

use crate::ways::{fastest, on_threads};

#[derive(Clone, Copy)]
pub enum Crate {
    Gemm,
    Matrixmultiply,
}

/// A crate and a number of threads.
pub type Way = (Crate, usize);

/// Both crates; `matrixmultiply` computes on one thread.
pub fn ways(threads: usize) -> Vec<Way> {
    let mut ways = on_threads(&[Crate::Gemm], threads);
    ways.push((Crate::Matrixmultiply, 1));
    ways
}

/// Two matrices and a place for their product, all row by row.
pub struct Product {
    extents: [usize; 3],
    a: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
}

impl Product {
    /// m × k by k × n, for the extents m, n and k.
    pub fn new(extents: [usize; 3]) -> Self {
        let [m, n, k] = extents;
        Self {
            extents,
            a: noise(m * k, INPUT),
            b: noise(k * n, TARGET),
            c: vec![0.0; m * n],
        }
    }

    /// Computes the first `rows` rows of the product, at most all.
    pub fn compute(&mut self, (by, threads): Way, rows: usize) {
        let [m, n, k] = self.extents;
        let m = m.min(rows);
        let (row_a, row_b) = (k as isize, n as isize);
        let (a, b, c) = (self.a.as_ptr(), self.b.as_ptr(), self.c.as_mut_ptr());
        match by {
            Crate::Gemm => {
                let threads = match threads {
                    1 => gemm::Parallelism::None,
                    _ => gemm::Parallelism::Rayon(threads),
                };
                // SAFETY: `a`, `b` and `c` hold at least m × k, k × n and m × n numbers, row by row, and `c` is a
                // separate vector.
                unsafe {
                    gemm::gemm(
                        m, n, k, c, 1, row_b, false, a, 1, row_a, b, 1, row_b, 0.0, 1.0, false, false, false, threads,
                    );
                }
            }
            Crate::Matrixmultiply => {
                // SAFETY: as above.
                unsafe {
                    matrixmultiply::sgemm(m, k, n, 1.0, a, row_a, 1, b, row_b, 1, 0.0, c, row_b, 1);
                }
            }
        }
        std::hint::black_box(&mut self.c);
    }
}

/// One product, by the faster crate.
pub fn step(extents: [usize; 3], threads: usize) -> Step {
    let mut product = Product::new(extents);
    let way = fastest(&ways(threads), |way| product.compute(way, usize::MAX));
    call(move || {
        product.compute(way, usize::MAX);
        Ok::<_, Infallible>(())
    })
}
