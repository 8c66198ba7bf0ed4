use std::sync::Mutex;

use super::*;
use crate::Kernels;

/// Pseudo-random bytes; of every seven, one is 0 and one is 255.
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

/// The product by definition.
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

/// Layouts of a matrix: contiguous rows, contiguous columns, or gaps everywhere.
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
                let packed = Panels::packed(device, way, (n, k), b, true).unwrap();
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
                    product.run_by(device, way, To::Sums(c.as_mut_ptr())).unwrap();
                    assert!(
                        c == wanted,
                        "{dims:?} {orders:?} by {way:?}, {threads} threads, packed {}",
                        panels.is_some()
                    );
                    let blocks = Mutex::new(vec![i32::MIN; m * n]);
                    let give = |block: Block<'_>| {
                        let mut blocks = blocks.lock().unwrap();
                        for (i, sums) in block.sums.chunks_exact(block.columns).enumerate() {
                            blocks[(block.row + i) * n + block.column..][..block.columns].copy_from_slice(sums);
                        }
                    };
                    product.run_by(device, way, To::Blocks(&give)).unwrap();
                    assert!(blocks.into_inner().unwrap() == wanted, "{dims:?} by {way:?} in blocks");
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
