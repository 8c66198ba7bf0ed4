//! Compares every function with f64, in units of the last place of the true value.

use super::*;
use crate::simd::{Level, StorePolicy};

/// The distance of `got` from the truth in units of the last place of the f32 nearest to the truth. If the truth is
/// smaller than `floor`, in units of the last place at `floor`.
fn ulps(got: f32, truth: f64, floor: f64) -> f64 {
    let rounded = truth as f32;
    if rounded.is_nan() || rounded.is_infinite() || got.is_nan() || got.is_infinite() {
        let same = rounded.is_nan() && got.is_nan() || rounded == got;
        // At the largest number, rounding may go either way.
        let at_the_edge = rounded.abs().max(got.abs()) == f32::INFINITY && rounded.abs().min(got.abs()) == f32::MAX;
        return if same || at_the_edge && rounded.signum() == got.signum() {
            0.0
        } else {
            f64::INFINITY
        };
    }
    let size = truth.abs().max(floor).max(f32::MIN_POSITIVE.into());
    let exponent = size.log2().floor();
    (f64::from(got) - truth).abs() / (exponent - 23.0).exp2()
}

/// The largest error of a function over every `step`-th bit pattern, and its argument.
fn worst<F: Map>(level: Level, f: F, floor: f64, step: u64) -> (f64, f32) {
    const BLOCK: usize = 4096;
    let mut worst = (0.0, 0.0);
    let mut bits = 0u64;
    let mut x = Vec::with_capacity(BLOCK);
    let mut y = vec![0f32; BLOCK];
    while bits < 1 << 32 {
        x.clear();
        while x.len() < BLOCK && bits < 1 << 32 {
            x.push(f32::from_bits(bits as u32));
            bits += step;
        }
        // SAFETY: both vectors hold `x.len()` elements.
        unsafe { map(StorePolicy::cached(Some(level)), f, x.as_ptr(), y.as_mut_ptr(), x.len()) };
        for (&x, &y) in x.iter().zip(&y) {
            let truth = f.reference(x.into());
            let sign_lost = x == 0.0 && truth == 0.0 && truth.is_sign_negative() != y.is_sign_negative();
            let error = if sign_lost {
                f64::INFINITY
            } else {
                ulps(y, truth, floor)
            };
            if error > worst.0 || error.is_nan() {
                worst = (error, x);
            }
        }
    }
    worst
}

/// For each test its name, the function, the bound in ulp, and the size below which the last place is that at this
/// size.
macro_rules! bounds {
    ($($name:ident: $f:expr, $ulps:literal, $floor:literal;)*) => {
        #[test]
        fn a_sample_of_all_numbers_is_within_bounds() {
            for level in Level::available() {
                $(check(stringify!($name), level, $f, $ulps, $floor, 24_001);)*
            }
        }

        /// All 2^32 numbers, which takes minutes each. Run with `cargo xtask ulp`.
        mod every_number {
            use super::*;
            $(
                #[test]
                #[ignore = "minutes"]
                fn $name() {
                    check(stringify!($name), Level::detect(), $f, $ulps, $floor, 1);
                }
            )*
        }
    };
}

fn check<F: Map>(name: &str, level: Level, f: F, bound: f64, floor: f64, step: u64) {
    let (error, x) = worst(level, f, floor, step);
    println!("{name:>16} {:>9} {error:.3} ulp at {x:e}", level.name());
    assert!(error <= bound, "{name} is {error} ulp off at {x:e} ({})", level.name());
}

const SOFTPLUS: Softplus = Softplus {
    beta: 1.0,
    threshold: 20.0,
};

bounds! {
    exp: Exp, 1.5, 0.0;
    expm1: Expm1, 1.5, 0.0;
    log: Log, 1.5, 0.0;
    log1p: Log1p, 1.5, 0.0;
    rsqrt: Rsqrt, 1.5, 0.0;
    sin: Sin, 2.0, 0.0;
    cos: Cos, 2.0, 0.0;
    tan: Tan, 4.0, 0.0;
    tanh: Tanh, 3.0, 0.0;
    sigmoid: Sigmoid, 3.0, 0.0;
    erf: Erf, 3.0, 0.0;
    // 10.7 at -12.9, where the result is 4e-37 and the rounding of the polynomial's argument weighs most.
    gelu: Gelu, 11.0, 0.0;
    // 6.7 at -1.33.
    gelu_tanh: GeluTanh, 7.0, 0.0625;
    silu: Silu, 4.0, 1e-35;
    softplus: SOFTPLUS, 3.0, 0.0;
    elu: Elu(1.0), 3.0, 0.0;
    gelu_slope: GeluSlope, 4.0, 0.5;
    gelu_tanh_slope: GeluTanhSlope, 4.0, 0.5;
    silu_slope: SiluSlope, 4.0, 0.5;
    softplus_slope: SoftplusSlope(SOFTPLUS), 3.0, 0.0;
    elu_slope: EluSlope(1.0), 3.0, 0.0;
}
