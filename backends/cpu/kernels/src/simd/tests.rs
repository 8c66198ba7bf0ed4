//! Compares the primitives of every level with plain arithmetic.

use super::*;

/// The bits of one register for each primitive, applied to fixed inputs.
struct Probe;

const A: [f32; 16] = [
    1.5, -2.25, 0.0, -0.0, 3.0e38, 1e-40, -7.5, 2.5, 0.5, 1.5, -1.5, 100.25, -0.75, 8.0, 9.0, 1e10,
];
const B: [f32; 16] = [
    0.5, 4.0, -1.0, 2.0, 2.0, 3.0, -7.5, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9,
];

impl Kernel for Probe {
    type Out = Vec<Vec<u32>>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Out {
        let per_register = |f: &dyn Fn(S::V, S::V) -> S::V| {
            let mut out = vec![0f32; 16];
            for i in (0..16).step_by(S::N) {
                // SAFETY: the arrays hold 16 elements, a multiple of the register's.
                unsafe {
                    s.store(
                        out.as_mut_ptr().add(i),
                        f(s.load(A.as_ptr().add(i)), s.load(B.as_ptr().add(i))),
                    )
                };
            }
            out.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        };
        let mut parts = vec![7f32; 16];
        for n in 0..=S::N.min(15) {
            // SAFETY: `n` and one more element are inside both arrays.
            unsafe {
                let v = s.load_part(A.as_ptr(), n);
                let mut whole = [9f32; 16];
                s.store(whole.as_mut_ptr(), v);
                assert_eq!(whole[..n], A[..n]);
                assert!(whole[n..S::N].iter().all(|&x| x == 0.0));
                s.store_part(parts.as_mut_ptr(), n, v);
                assert_eq!(parts[..n], A[..n]);
                assert_eq!(parts[n], 7.0);
            }
        }
        assert_eq!(s.sum(s.splat(0.5)), 0.5 * S::N as f32);
        assert_eq!(s.max_lane(s.splat(-2.0)), -2.0);
        let small = |x: S::V| s.min(s.splat(1e6), s.max(s.splat(-1e6), x));
        vec![
            per_register(&|a, b| s.add(a, b)),
            per_register(&|a, b| s.sub(a, b)),
            per_register(&|a, b| s.mul(a, b)),
            per_register(&|a, b| s.div(a, b)),
            per_register(&|a, b| s.mul_add(a, b, s.splat(0.25))),
            per_register(&|a, b| s.max(a, b)),
            per_register(&|a, b| s.min(a, b)),
            per_register(&|a, _| s.sqrt(s.abs(a))),
            per_register(&|a, _| s.neg(a)),
            per_register(&|a, _| s.round(a)),
            per_register(&|a, _| s.from_int(s.to_int(small(a)))),
            per_register(&|a, b| s.from_bits(s.add_int(s.bits(a), s.bits(b)))),
            per_register(&|a, b| s.from_bits(s.sub_int(s.bits(a), s.bits(b)))),
            per_register(&|a, b| s.from_bits(s.and_int(s.bits(a), s.bits(b)))),
            per_register(&|a, _| s.from_bits(s.shl::<3>(s.bits(a)))),
            per_register(&|a, _| s.from_bits(s.shr::<3>(s.bits(a)))),
            per_register(&|a, b| s.select(s.lt(a, b), a, b)),
            per_register(&|a, b| s.select(s.eq(a, b), a, s.splat(1.0))),
            per_register(&|a, b| s.select(s.eq_int(s.bits(a), s.bits(b)), a, s.splat(1.0))),
            per_register(&|a, b| s.xor_sign(a, s.sign_bit(b))),
            per_register(&|a, b| {
                if s.any(s.eq(a, s.add(s.abs(b), s.splat(1e30)))) {
                    b
                } else {
                    a
                }
            }),
        ]
    }
}

#[test]
fn all_levels_agree_to_the_bit() {
    let plain = Level::Portable.run(Probe);
    for level in Level::available() {
        for (i, (got, expected)) in level.run(Probe).iter().zip(&plain).enumerate() {
            assert_eq!(got, expected, "primitive {i} of {}", level.name());
        }
    }
}

struct Transpose;

impl Kernel for Transpose {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let from: Vec<f32> = (0..16 * 20).map(|i| i as f32).collect();
        let mut to = vec![-1f32; 16 * 18];
        // SAFETY: squares of at most 16 fit rows of 20 and 18.
        unsafe { s.transpose(from.as_ptr(), 20, to.as_mut_ptr(), 18) };
        for row in 0..S::N {
            for column in 0..S::N {
                assert_eq!(to[column * 18 + row], from[row * 20 + column]);
            }
        }
        assert_eq!(to.iter().filter(|&&x| x >= 0.0).count(), S::N * S::N);
    }
}

#[test]
fn transposes_squares() {
    for level in Level::available() {
        level.run(Transpose);
    }
}

struct Evens;

impl Kernel for Evens {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let from: [f32; 32] = std::array::from_fn(|i| i as f32);
        let mut to = [0f32; 16];
        // SAFETY: no register is longer than 16 elements.
        unsafe {
            s.store(
                to.as_mut_ptr(),
                s.evens(s.load(from.as_ptr()), s.load(from.as_ptr().add(S::N))),
            )
        };
        for (lane, &x) in to[..S::N].iter().enumerate() {
            assert_eq!(x, (2 * lane) as f32);
        }
    }
}

#[test]
fn takes_every_second_lane() {
    for level in Level::available() {
        level.run(Evens);
    }
}

struct Sums;

impl Kernel for Sums {
    type Out = (f32, f32, f64);

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Out {
        let values: [f32; 16] = std::array::from_fn(|i| (i * i) as f32 - 100.0);
        let d = s.double();
        let doubles: [f64; 16] = values.map(f64::from);
        // SAFETY: no register is longer than 16 elements.
        unsafe {
            let mut total = 0.0;
            let mut most = f32::NEG_INFINITY;
            let mut total_double = 0.0;
            for i in (0..16).step_by(S::N) {
                let v = s.load(values.as_ptr().add(i));
                total += s.sum(v);
                most = most.max(s.max_lane(v));
            }
            for i in (0..16).step_by(S::Double::N) {
                let v = d.load(doubles.as_ptr().add(i));
                total_double += d.sum(d.mul_add(v, d.splat(2.0), d.splat(1.0)));
                let part = d.load_part(doubles.as_ptr().add(i), S::Double::N - 1);
                let mut out = [0f64; 16];
                d.store_part(out.as_mut_ptr(), S::Double::N - 1, part);
                assert_eq!(out[..S::Double::N - 1], doubles[i..i + S::Double::N - 1]);
                assert_eq!(out[S::Double::N - 1], 0.0);
            }
            (total, most, total_double)
        }
    }
}

struct FourSums;

impl Kernel for FourSums {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let values: [f32; 64] = std::array::from_fn(|i| 1.0 / (i + 1) as f32);
        // SAFETY: no register is longer than 16 elements.
        unsafe {
            let at = |i: usize| s.load(values.as_ptr().add(16 * i));
            let each = [s.sum(at(0)), s.sum(at(1)), s.sum(at(2)), s.sum(at(3))];
            assert_eq!(s.sums([at(0), at(1), at(2), at(3)]), each);
        }
    }
}

#[test]
fn horizontal_operations_take_every_lane() {
    for level in Level::available() {
        level.run(FourSums);
        assert_eq!(level.run(Sums), (-360.0, 125.0, -704.0), "{}", level.name());
    }
}

struct Pick;

impl Kernel for Pick {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let from: [f32; 32] = std::array::from_fn(|i| i as f32);
        let mut to = [0f32; 16];
        for first in [0, 5, 24, -7, i32::MIN, i32::MAX - 20] {
            let at: [f32; 16] =
                std::array::from_fn(|lane| f32::from_bits((first + 3 * lane as i32 % 17).cast_unsigned()));
            // SAFETY: no register is longer than 16 elements.
            unsafe { s.store(to.as_mut_ptr(), s.pick(&from, s.bits(s.load(at.as_ptr())))) };
            for (at, &x) in at.iter().zip(&to[..S::N]) {
                assert_eq!(x, (at.to_bits() % 32) as f32);
            }
        }
    }
}

#[test]
fn picks_by_the_lowest_bits() {
    for level in Level::available() {
        level.run(Pick);
    }
}
