use super::*;
use crate::simd::Level;

/// Pseudo-random numbers between -1 and 1.
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

/// Layouts of a matrix: contiguous rows, contiguous columns, or gaps everywhere.
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
        // Few rows, with a B that is read in place.
        (70, 144, 400),
    ] {
        for (a, b) in [(Rows, Rows), (Rows, Columns), (Columns, Rows)] {
            check::<f32>(&by, Dims { m, n, k }, [a, b, Rows], (1.0, 1.0, false));
        }
    }
}

/// The bits of the nearest bf16, and their value.
fn rounded(x: f64) -> (u16, f64) {
    let x = half::bf16::from_f64(x);
    (x.to_bits(), x.into())
}

fn check_bf16(dims: Dims, orders: [Order; 2], biased: bool, threads: usize) -> Vec<u16> {
    let Dims { m, n, k } = dims;
    let make = |order: Order, rows, columns, seed| -> (Vec<u16>, Vec<f64>) {
        numbers(order.room(rows, columns), seed)
            .into_iter()
            .map(rounded)
            .unzip()
    };
    let (a, b, bias) = (
        make(orders[0], m, k, 1),
        make(orders[1], k, n, 2),
        make(Order::Rows, 1, n, 4),
    );
    let ((ar, ac), (br, bc)) = (orders[0].steps(m, k), orders[1].steps(k, n));
    let device = CpuDevice::new(threads, Kernels::Simd).unwrap();
    // A result with gaps between its rows, which must stay unchanged.
    let (step, untouched) = (n + 3, rounded(77.0).0);
    let mut c = vec![untouched; m * step];
    let of_bias = if biased { bias.0.as_ptr() } else { std::ptr::null() };
    let (left, right) = (Mat::new(a.0.as_ptr(), ar, ac), Mat::new(b.0.as_ptr(), br, bc));
    let to = MatMut::new(c.as_mut_ptr(), step as isize, 1);
    // SAFETY: all vectors have room for their matrices.
    unsafe { gemm_bf16(device, dims, left, right, to, of_bias).unwrap() };
    for i in 0..m {
        for j in 0..step {
            let got = half::bf16::from_bits(c[i * step + j]).to_f64();
            if j >= n {
                assert_eq!(c[i * step + j], untouched, "{dims:?} {orders:?} beside row {i}");
                continue;
            }
            let at = |x: &[f64], by: (isize, isize), row: usize, column: usize| {
                x[(row as isize * by.0 + column as isize * by.1) as usize]
            };
            let products = (0..k).map(|p| at(&a.1, (ar, ac), i, p) * at(&b.1, (br, bc), p, j));
            let sum = products.sum::<f64>() + if biased { bias.1[j] } else { 0.0 };
            // Half a unit of the last place of bf16, plus the error of the f32 sum.
            let bound = sum.abs() * 2f64.powi(-8) + 6e-8 * (k as f64 + 8.0);
            assert!(
                (got - sum).abs() <= bound,
                "{dims:?} {orders:?} at {i}, {j}: {got}, not {sum}"
            );
        }
    }
    c
}

#[test]
fn products_of_bf16_are_right_and_do_not_depend_on_the_threads() {
    use Order::{Columns, Gaps, Rows};
    if !multiplies_bf16(CpuDevice::new(1, Kernels::Simd).unwrap()) {
        eprintln!("not checked: the processor has no AVX512-BF16");
        return;
    }
    let shapes = [
        (1, 1, 1),
        (1, 33, 70),
        (3, 40, 17),
        (41, 1, 30),
        (5, 7, 9),
        (6, 16, 8),
        (11, 35, 20),
        (32, 10, 128),
        (7, 130, 401),
        (130, 50, 33),
        (200, 100, 64),
        (2, 3, 0),
    ];
    for (m, n, k) in shapes {
        for a in [Rows, Columns, Gaps] {
            for b in [Rows, Columns, Gaps] {
                let dims = Dims { m, n, k };
                let plain = check_bf16(dims, [a, b], false, 1);
                assert_eq!(check_bf16(dims, [a, b], false, 3), plain, "{dims:?}");
                check_bf16(dims, [a, b], true, 1);
            }
        }
    }
}

#[test]
fn products_of_bf16_take_subnormal_numbers_for_0() {
    let device = CpuDevice::new(1, Kernels::Simd).unwrap();
    if !multiplies_bf16(device) {
        eprintln!("not checked: the processor has no AVX512-BF16");
        return;
    }
    let product = |a: f64, b: f64| {
        let (a, b, mut c) = ([rounded(a).0], [rounded(b).0], [0]);
        let (left, right) = (Mat::new(a.as_ptr(), 1, 1), Mat::new(b.as_ptr(), 1, 1));
        let (dims, to) = (Dims { m: 1, n: 1, k: 1 }, MatMut::new(c.as_mut_ptr(), 1, 1));
        // SAFETY: all arrays have room for their matrices.
        unsafe { gemm_bf16(device, dims, left, right, to, std::ptr::null()).unwrap() };
        half::bf16::from_bits(c[0]).to_f64()
    };
    let smallest = 2f64.powi(-126);
    assert_eq!(product(smallest, 2f64.powi(100)), 2f64.powi(-26));
    assert_eq!(product(smallest / 2.0, 2f64.powi(100)), 0.0);
}

#[test]
fn plain_kernels_have_no_products_of_bf16_of_their_own() {
    assert!(!multiplies_bf16(CpuDevice::new(1, Kernels::Scalar).unwrap()));
}
