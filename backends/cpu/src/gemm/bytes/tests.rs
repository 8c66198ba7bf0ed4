use std::time::Instant;

use super::dot::{Dot, NV, Work};
use super::*;
use crate::Kernels;
use crate::gemm::{MatMut, Update, gemm};

/// Bytes without a pattern; of every seven one is 0 and one 255.
fn bytes(count: usize, seed: u64) -> Vec<u8> {
    (0..count as u64)
        .map(|i| {
            let mixed = (i + seed * 1_000_003 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            match (mixed >> 50) % 7 {
                0 => 0,
                1 => 255,
                _ => (mixed >> 33) as u8,
            }
        })
        .collect()
}

/// The definition.
fn expected(dims: Dims, a: Mat<u8>, b: Mat<u8>, zeros: [Zeros<'_>; 2]) -> Vec<i32> {
    let Dims { m, n, k } = dims;
    let mut c = vec![0i32; m * n];
    for i in 0..m {
        for j in 0..n {
            for p in 0..k {
                // SAFETY: the test made the matrices of this size.
                let (x, y) = unsafe { (i32::from(a.at(i, p).read()), i32::from(b.at(p, j).read())) };
                c[i * n + j] = c[i * n + j].wrapping_add((x - zeros[0].get(i)) * (y - zeros[1].get(j)));
            }
        }
    }
    c
}

/// How elements lie: rows one after another, columns, or with gaps everywhere.
const ORDERS: [usize; 3] = [0, 1, 2];

fn steps(order: usize, rows: usize, columns: usize) -> (isize, isize) {
    match order {
        0 => (columns as isize, 1),
        1 => (1, rows as isize),
        _ => (3 * columns as isize + 1, 3),
    }
}

/// Compares each way, with one thread and three, and with a B that was packed before, with the definition.
fn check(dims: Dims, orders: [usize; 2], zeros: [&[u8]; 2], fill: Option<[u8; 2]>) {
    let Dims { m, n, k } = dims;
    let make = |rows: usize, columns: usize, seed: u64, fill: Option<u8>| match fill {
        Some(x) => vec![x; rows * (3 * columns + 1) + 1],
        None => bytes(rows * (3 * columns + 1) + 1, seed),
    };
    let (a, b) = (make(m, k, 1, fill.map(|x| x[0])), make(k, n, 2, fill.map(|x| x[1])));
    let ((ar, ac), (br, bc)) = (steps(orders[0], m, k), steps(orders[1], k, n));
    let (a, b) = (Mat::new(a.as_ptr(), ar, ac), Mat::new(b.as_ptr(), br, bc));
    let zeros = zeros.map(Zeros);
    let wanted = expected(dims, a, b, zeros);
    for threads in [1, 3] {
        let device = CpuDevice::new(threads, Kernels::Simd).unwrap();
        for way in Way::available(device) {
            // SAFETY: all vectors have room for their matrices.
            unsafe {
                let packed = Panels::packed(device, way, (n, k), b, Bytes::Signed, true).unwrap();
                for panels in [None, Some(&packed)] {
                    let mut c = vec![i32::MIN; m * n];
                    let product = Product {
                        dims,
                        a,
                        b,
                        zero_a: zeros[0],
                        zero_b: zeros[1],
                        panels,
                    };
                    product.run_by(device, way, c.as_mut_ptr()).unwrap();
                    assert!(
                        c == wanted,
                        "{dims:?} {orders:?} by {way:?}, {threads} threads, packed {}",
                        panels.is_some()
                    );
                }
            }
        }
    }
}

#[test]
fn products_are_those_of_the_definition() {
    for k in [0, 1, 3, 4, 5, 17, 64, 131] {
        for (m, n) in [(1, 1), (1, 70), (2, 33), (3, 16), (7, 31), (12, 32), (25, 65), (99, 5)] {
            let by_row = bytes(m, 5);
            let by_column = bytes(n, 6);
            let dims = Dims { m, n, k };
            check(dims, [0, 0], [&[0], &[128]], None);
            check(dims, [0, 1], [&[255], &[0]], None);
            check(dims, [1, 2], [&by_row, &by_column], None);
            check(dims, [2, 0], [&[128], &by_column], None);
        }
    }
}

#[test]
fn sums_at_the_ends_of_the_range_do_not_saturate() {
    for extremes in [[0, 0], [0, 255], [255, 0], [255, 255]] {
        for zeros in [[0, 0], [0, 128], [128, 0], [128, 128], [255, 255], [0, 255], [255, 0]] {
            let (a, b) = ([zeros[0]], [zeros[1]]);
            check(Dims { m: 5, n: 37, k: 300 }, [0, 0], [&a, &b], Some(extremes));
            check(Dims { m: 1, n: 40, k: 9 }, [0, 0], [&a, &b], Some(extremes));
        }
    }
}

#[test]
fn sums_beyond_i32_wrap() {
    // 40,000 products of 255 · 255 are more than 2³¹.
    check(Dims { m: 3, n: 2, k: 40_000 }, [0, 0], [&[0], &[0]], Some([255, 255]));
    check(Dims { m: 1, n: 2, k: 40_000 }, [0, 0], [&[255], &[0]], Some([0, 255]));
}

#[test]
fn sizes_without_a_pattern() {
    let mut seed = 7u64;
    let mut next = |most: usize| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % most
    };
    for _ in 0..60 {
        let dims = Dims {
            m: next(120),
            n: next(150),
            k: next(200),
        };
        let (za, zb) = (
            bytes(dims.m.max(1), next(99) as u64),
            bytes(dims.n.max(1), next(99) as u64),
        );
        let zeros = [
            if next(2) == 0 { &za[..1] } else { &za[..dims.m.max(1)] },
            &zb[..if next(2) == 0 { 1 } else { dims.n.max(1) }],
        ];
        check(dims, [ORDERS[next(3)], ORDERS[next(3)]], zeros, None);
    }
}

/// A tile's products on operands in registers: what the processor can do at most.
struct Peak(usize);

impl Work for Peak {
    type Out = ();

    #[inline(always)]
    fn run<D: Dot>(self, d: D) {
        let x = std::hint::black_box([d.splat(0x0102_0304); 4]);
        let mut sums = [d.splat(0); 12];
        for _ in 0..self.0 {
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = d.dot(*sum, x[i % 2], x[2 + i % 2]);
            }
        }
        std::hint::black_box(sums);
    }
}

/// Seconds of the calling thread's processor time that some work takes at best.
fn best(mut work: impl FnMut()) -> f64 {
    (0..12)
        .map(|_| {
            let start = Instant::now();
            let mut runs = 0;
            while start.elapsed().as_secs_f64() < 0.01 {
                work();
                runs += 1;
            }
            start.elapsed().as_secs_f64() / f64::from(runs)
        })
        .fold(f64::MAX, f64::min)
}

/// Run by hand: `cargo test -p polygrad-cpu --lib bytes::tests::speed -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn speed() {
    let device = CpuDevice::new(1, Kernels::Simd).unwrap();
    for (m, n, k) in [
        (512, 512, 512),
        (64, 512, 784),
        (64, 4096, 4096),
        (1, 512, 512),
        (1, 4096, 4096),
        (2, 4096, 4096),
        (3, 4096, 4096),
        (2, 512, 512),
        (3, 512, 512),
    ] {
        let dims = Dims { m, n, k };
        let (a, b) = (bytes(m * k, 1), bytes(k * n, 2));
        let (a, b) = (Mat::new(a.as_ptr(), k as isize, 1), Mat::new(b.as_ptr(), n as isize, 1));
        let (x, y) = (vec![1f32; m * k], vec![1f32; k * n]);
        let (x, y) = (Mat::new(x.as_ptr(), k as isize, 1), Mat::new(y.as_ptr(), n as isize, 1));
        let (mut sums, mut floats) = (vec![0i32; m * n], vec![0f32; m * n]);
        let giga = 2e-9 * (m * n * k) as f64;
        let to = MatMut::new(floats.as_mut_ptr(), n as isize, 1);
        for way in Way::available(device).into_iter().rev() {
            // SAFETY: all vectors have room for their matrices.
            let packed = unsafe { Panels::packed(device, way, (n, k), b, Bytes::Signed, true).unwrap() };
            for (panels, zeros) in [(None, [0, 128]), (None, [3, 7]), (Some(&packed), [3, 7])] {
                let (zero_a, zero_b) = ([zeros[0]], [zeros[1]]);
                let (zero_a, zero_b) = (Zeros(&zero_a), Zeros(&zero_b));
                let product = Product {
                    dims,
                    a,
                    b,
                    zero_a,
                    zero_b,
                    panels,
                };
                let (steps, lanes) = (1 << 16, way.columns() / NV * way.group());
                let peak = 2e-9 * (12 * steps * lanes) as f64 / best(|| way.run(Peak(steps)));
                // SAFETY: as above.
                let float = best(|| unsafe { gemm(device, dims, x, y, to, Update::set()).unwrap() });
                // SAFETY: as above.
                let time = best(|| unsafe { product.run_by(device, way, sums.as_mut_ptr()).unwrap() });
                println!(
                    "{m} {n} {k} {way:?} zeros {zeros:?} packed {}: {:.1} GOP/s, {:.2} of {peak:.1}, {:.2} of f32's {:.1}, {:.1} GB/s of B",
                    panels.is_some(),
                    giga / time,
                    giga / time / peak,
                    float / time,
                    giga / float,
                    1e-9 * (n * k) as f64 / time
                );
            }
        }
    }
}
