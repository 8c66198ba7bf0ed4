use polygrad_core::{BlockScheme, f16};

use super::super::tests::{Given, numbers};
use super::*;
use crate::Kernels;
use crate::gemm::bytes::{Dot, Work};

/// X after rounding: bytes, and the scale of each block.
fn rounded(x: &[f32], size: usize) -> (Vec<i32>, Vec<f32>) {
    let (mut bytes, mut scales) = (Vec::new(), Vec::new());
    for block in x.chunks_exact(size) {
        let most = block.iter().fold(0f32, |most, x| most.max(x.abs()));
        let inverse = if most > 0.0 { 127.0 / most } else { 0.0 };
        bytes.extend(block.iter().map(|x| (x * inverse).round_ties_even() as i32));
        scales.push(most / 127.0);
    }
    (bytes, scales)
}

/// The product with given instructions and threads.
fn product(given: &Given, by: (usize, Way), m: usize, x: &[f32]) -> Vec<f32> {
    product_of(given, false, by, m, x)
}

/// [`product`] of a weight whose rows may be interleaved.
fn product_of(given: &Given, interleaved: bool, (threads, way): (usize, Way), m: usize, x: &[f32]) -> Vec<f32> {
    let device = CpuDevice::new(threads, Kernels::Simd).unwrap();
    let mut c = vec![f32::NAN; m * given.n];
    // SAFETY: all buffers have the right sizes.
    given.weight(interleaved, |weight| unsafe {
        by(weight, device, way, m, x.as_ptr(), c.as_mut_ptr()).unwrap()
    });
    c
}

fn check(given: &Given, m: usize) {
    let Given { scheme, n, k, .. } = *given;
    let (size, blocks) = (scheme.size(), k / scheme.size());
    let mut x: Vec<f32> = numbers(m * k, 4).iter().map(|x| x * 2.0 - 0.8).collect();
    // Blocks of zeros, of tiny numbers, and with an outlier.
    x[..size].fill(0.0);
    x[(m - 1) * k..].iter_mut().take(size).for_each(|x| *x *= 1e-25);
    x[m * k - 1] = 1000.0;
    let (bytes, scales) = rounded(&x, size);
    let ways = Way::available(CpuDevice::new(1, Kernels::Simd).unwrap());
    let results: Vec<_> = ways.iter().map(|&way| product(given, (1, way), m, &x)).collect();
    for (way, c) in ways.iter().zip(&results) {
        for (at, &found) in c.iter().enumerate() {
            let (i, j) = (at / n, at % n);
            let terms = (0..k).map(|p| {
                let x = f64::from(bytes[i * k + p]) * f64::from(scales[i * blocks + p / size]);
                // A zero point may subtract more than the remaining result.
                (
                    x * given.get(j, p),
                    (x * given.scale(j, p)).abs() * f64::from(1 << scheme.bits()),
                )
            });
            let (wanted, most) = terms.fold((0.0, 0.0), |(sum, most), term| (sum + term.0, most + term.1));
            let off = (f64::from(found) - wanted).abs();
            assert!(
                off <= 3e-7 * most + 1e-30,
                "{scheme:?} [{m}, {n}, {k}] {way:?}: {found} for {wanted}"
            );
        }
        // The portable version rounds sums twice, which rarely makes a difference.
        if *way != Way::Portable {
            assert_eq!(c, &results[1], "{way:?} differs from {:?}", ways[1]);
        }
        assert_eq!(*c, product(given, (3, *way), m, &x), "{way:?} with three threads");
        if n.is_multiple_of(BlockScheme::ROWS) {
            let beside = given.interleaved();
            for threads in [1, 3] {
                let found = product_of(&beside, true, (threads, *way), m, &x);
                assert_eq!(
                    *c, found,
                    "{scheme:?} [{m}, {n}, {k}] {way:?}: interleaved, {threads} threads"
                );
            }
        }
        for i in [0, m / 2, m - 1] {
            let alone = product(given, (1, *way), 1, &x[i * k..(i + 1) * k]);
            assert_eq!(c[i * n..(i + 1) * n], alone, "{way:?}: row {i} of {m} alone");
        }
    }
}

#[test]
fn products_are_those_of_rounded_numbers() {
    for (bits, size, n, blocks) in [
        (4, 32, 33, 19),
        (4, 16, 37, 3),
        (4, 256, 16, 2),
        (8, 32, 70, 5),
        (8, 16, 3, 11),
        (8, 128, 21, 2),
        (4, 32, 16, 4),
        (4, 32, 48, 19),
        (8, 32, 32, 5),
        (8, 16, 16, 3),
    ] {
        for each in [false, true] {
            let given = Given::new(bits, size, n, blocks, each);
            for m in [1, 2, 5, 12, 17, 33] {
                check(&given, m);
            }
        }
    }
    // Several tasks.
    check(&Given::new(4, 32, 1030, 18, true), 3);
    check(&Given::new(4, 32, 1040, 18, false), 3);
}

/// A single zero point that is not an integer.
#[test]
fn a_zero_point_may_be_no_whole_number() {
    let mut given = Given::new(4, 32, 19, 5, false);
    given.zero = Some(7.25);
    check(&given, 5);
}

/// An infinite or NaN number in X or in a scale makes only the results that it contributes to NaN.
#[test]
fn what_is_no_number_stays_in_its_row() {
    let mut given = Given::new(4, 32, 20, 3, false);
    let mut x = numbers(2 * 96, 1);
    x[100] = f32::INFINITY;
    x[180] = f32::NAN;
    for way in Way::available(CpuDevice::new(1, Kernels::Simd).unwrap()) {
        let c = product(&given, (1, way), 2, &x);
        assert!(
            c[..20].iter().all(|y| y.is_finite()) && c[20..].iter().all(|y| y.is_nan()),
            "{way:?}"
        );
    }
    given.spoil(9);
    for way in Way::available(CpuDevice::new(1, Kernels::Simd).unwrap()) {
        let c = product(&given, (1, way), 1, &x[..96]);
        assert!((0..20).all(|j| c[j].is_nan() == (j == 3)), "{way:?}");
    }
}

/// A number that is none stays in its row if rows are interleaved, and a single zero point need be no integer. Small,
/// so that Miri can run it.
#[test]
fn interleaved_rows_are_lanes() {
    let mut given = Given::new(4, 32, 16, 2, false);
    given.zero = Some(7.25);
    given.spoil(9);
    let x = numbers(64, 1);
    for way in Way::available(CpuDevice::new(1, Kernels::Simd).unwrap()) {
        let wanted = product(&given, (1, way), 1, &x);
        let found = product_of(&given.interleaved(), true, (1, way), 1, &x);
        for (j, (a, b)) in wanted.iter().zip(&found).enumerate() {
            assert!(
                a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
                "{way:?}: {a} and {b}"
            );
            assert_eq!(b.is_nan(), j == 4, "{way:?}");
        }
    }
}

/// Converts all numbers of f16.
struct Halves;

impl Work for Halves {
    type Out = Vec<f32>;

    #[inline(always)]
    fn run<D: Dot>(self, d: D) -> Vec<f32> {
        let (halves, mut out): (Vec<u16>, _) = ((0..=u16::MAX).collect(), vec![0f32; 1 << 16]);
        for i in (0..1 << 16).step_by(D::LANES) {
            // SAFETY: both have as many elements, a multiple of the register's.
            unsafe { d.store_floats(out.as_mut_ptr().add(i), D::LANES, d.load_halves(halves.as_ptr().add(i))) };
        }
        out
    }
}

#[test]
fn every_f16_is_the_number_that_it_is() {
    for way in Way::available(CpuDevice::new(1, Kernels::Simd).unwrap()) {
        for (bits, found) in way.run(Halves).into_iter().enumerate() {
            let wanted = f16::from_bits(bits as u16).to_f32();
            assert!(
                found.to_bits() == wanted.to_bits() || found.is_nan() && wanted.is_nan(),
                "{way:?}: {bits:#x}"
            );
        }
    }
}
