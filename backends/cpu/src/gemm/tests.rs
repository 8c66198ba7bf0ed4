use super::*;
use crate::simd::Level;

/// Numbers between -1 and 1 without a pattern.
fn numbers(count: usize, seed: u64) -> Vec<f64> {
    (0..count as u64)
        .map(|i| {
            let mixed = (i + seed * 1_000_003).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            ((mixed ^ (mixed >> 27)) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        })
        .collect()
}

trait Number: Real + std::fmt::Debug {
    fn from(x: f64) -> Self;
    fn to(self) -> f64;
    const EPSILON: f64;
}

impl Number for f32 {
    fn from(x: f64) -> Self {
        x as Self
    }
    fn to(self) -> f64 {
        self.into()
    }
    const EPSILON: f64 = 6e-8;
}

impl Number for f64 {
    fn from(x: f64) -> Self {
        x
    }
    fn to(self) -> f64 {
        self
    }
    const EPSILON: f64 = 1.2e-16;
}

/// How the elements of a matrix lie: row after row, column after column, or with gaps everywhere.
#[derive(Clone, Copy, Debug)]
enum Order {
    Rows,
    Columns,
    Gaps,
}

impl Order {
    fn steps(self, rows: usize, columns: usize) -> (isize, isize) {
        match self {
            Self::Rows => (columns as isize, 1),
            Self::Columns => (1, rows as isize),
            Self::Gaps => (3 * columns as isize + 1, 3),
        }
    }

    fn room(self, rows: usize, columns: usize) -> usize {
        rows * (3 * columns + 1) + 1
    }
}

fn check<T: Number>(by: &dyn Gemm<T>, dims: Dims, orders: [Order; 3], update: (f64, f64, bool)) {
    let Dims { m, n, k } = dims;
    let make = |order: Order, rows, columns, seed| -> Vec<T> {
        numbers(order.room(rows, columns), seed)
            .into_iter()
            .map(T::from)
            .collect()
    };
    let (a, b, c) = (
        make(orders[0], m, k, 1),
        make(orders[1], k, n, 2),
        make(orders[2], m, n, 3),
    );
    let bias = make(Order::Rows, 1, n, 4);
    let (alpha, beta, biased) = update;
    let update = Update {
        alpha: T::from(alpha),
        beta: T::from(beta),
        bias: if biased { bias.as_ptr() } else { std::ptr::null() },
    };
    let ((ar, ac), (br, bc), (cr, cc)) = (orders[0].steps(m, k), orders[1].steps(k, n), orders[2].steps(m, n));
    let (a, b) = (Mat::new(a.as_ptr(), ar, ac), Mat::new(b.as_ptr(), br, bc));
    let product = |by: &dyn Gemm<T>, threads| {
        let mut c = c.clone();
        if beta == 0.0 {
            c.fill(T::from(f64::NAN));
        }
        let device = CpuDevice::new(threads, Kernels::Simd).unwrap();
        let to = MatMut::new(c.as_mut_ptr(), cr, cc);
        // SAFETY: all vectors have room for their matrices.
        unsafe { by.gemm(device, dims, a, b, to, update).unwrap() };
        c
    };
    let expected = product(&Plain, 1);
    let got = product(by, 1);
    let bound = T::EPSILON * (k as f64 + 8.0) * alpha.abs().max(1.0);
    let same = |x: T, y: T| (x.to() - y.to()).abs() <= bound || x.to().is_nan() && y.to().is_nan();
    for (i, (&x, &y)) in got.iter().zip(&expected).enumerate() {
        assert!(
            same(x, y),
            "{dims:?} {orders:?} {update:?} at {i}: {} {}",
            x.to(),
            y.to()
        );
    }
    let parallel = product(by, 3);
    assert!(
        got.iter().zip(&parallel).all(|(x, y)| x == y || x.to().is_nan()),
        "{dims:?} {orders:?}"
    );
}

fn check_all_shapes_and_orders<G: Gemm<f32> + Gemm<f64>>(by: &G) {
    use Order::{Columns, Gaps, Rows};
    let shapes = [
        (1, 1, 1),
        (1, 33, 70),
        (3, 40, 17),
        (41, 1, 30),
        (5, 7, 9),
        (6, 16, 8),
        (13, 35, 20),
        (32, 10, 128),
        (64, 2, 64),
        (7, 130, 400),
        (130, 50, 33),
        (2, 3, 0),
    ];
    for (m, n, k) in shapes {
        for a in [Rows, Columns, Gaps] {
            for b in [Rows, Columns, Gaps] {
                let dims = Dims { m, n, k };
                check::<f32>(by, dims, [a, b, Rows], (1.0, 0.0, false));
                check::<f64>(by, dims, [a, b, Rows], (1.0, 0.0, false));
                check::<f32>(by, dims, [a, b, Rows], (1.0, 0.0, true));
                check::<f32>(by, dims, [a, b, Columns], (-2.0, 1.0, false));
                check::<f64>(by, dims, [a, b, Gaps], (0.5, -3.0, false));
            }
        }
    }
}

#[test]
fn products_of_all_shapes_and_orders_are_right() {
    for level in Level::available() {
        check_all_shapes_and_orders(&Packed(level));
    }
}

#[cfg(feature = "blas")]
#[test]
fn products_of_the_library_are_right() {
    check_all_shapes_and_orders(&blas::Blas);
}

#[test]
fn large_products_are_right_and_do_not_depend_on_the_threads() {
    use Order::{Columns, Rows};
    let by = Packed(Level::detect());
    for (m, n, k) in [
        (200, 1100, 400),
        (300, 40, 800),
        (2, 600, 500),
        (600, 1, 700),
        (97, 200, 390),
    ] {
        for (a, b) in [(Rows, Rows), (Rows, Columns), (Columns, Rows)] {
            check::<f32>(&by, Dims { m, n, k }, [a, b, Rows], (1.0, 1.0, false));
        }
    }
}
