//! Functions as types, and the loops that apply them to memory.

use super::{erf, exponential, log, reference, trig};

use crate::simd::{Kernel, Simd, StorePolicy};

/// A function of one f32, vectorized.
pub trait Map: Copy + Send + Sync {
    /// Must be `#[inline(always)]`.
    fn at<S: Simd>(self, s: S, x: S::V) -> S::V;

    /// The same function in f64.
    fn reference(self, x: f64) -> f64;
}

macro_rules! maps {
    ($($name:ident = $simd:path, $reference:expr;)*) => {$(
        #[derive(Clone, Copy, Default)]
        pub struct $name;

        impl Map for $name {
            #[inline(always)]
            fn at<S: Simd>(self, s: S, x: S::V) -> S::V {
                $simd(s, x)
            }

            #[inline]
            fn reference(self, x: f64) -> f64 {
                ($reference)(x)
            }
        }
    )*};
}

maps! {
    Exp = exponential::exp, f64::exp;
    Expm1 = exponential::expm1, f64::exp_m1;
    Log = log, f64::ln;
    Log1p = log::log1p, f64::ln_1p;
    Rsqrt = rsqrt, |x: f64| 1.0 / x.sqrt();
    Sin = trig::sin, f64::sin;
    Cos = trig::cos, f64::cos;
    Tan = trig::tan, f64::tan;
    Tanh = exponential::tanh, f64::tanh;
    Sigmoid = exponential::sigmoid, reference::sigmoid;
    Erf = erf::erf, reference::erf;
    Gelu = erf::gelu, reference::gelu;
    GeluTanh = exponential::gelu_tanh, reference::gelu_tanh;
    Silu = exponential::silu, reference::silu;
    GeluSlope = erf::gelu_slope, reference::gelu_slope;
    GeluTanhSlope = exponential::gelu_tanh_slope, reference::gelu_tanh_slope;
    SiluSlope = exponential::silu_slope, reference::silu_slope;
    TanhSlope = tanh_slope, |y: f64| 1.0 - y * y;
    SigmoidSlope = sigmoid_slope, |y: f64| y * (1.0 - y);
}

/// `ln(1 + e^(βx)) / β`.
#[derive(Clone, Copy)]
pub struct Softplus {
    pub beta: f64,
    pub threshold: f64,
}

impl Map for Softplus {
    #[inline(always)]
    fn at<S: Simd>(self, s: S, x: S::V) -> S::V {
        exponential::softplus(s, x, self.beta as f32, self.threshold as f32)
    }

    #[inline]
    fn reference(self, x: f64) -> f64 {
        reference::softplus(x, self.beta, self.threshold)
    }
}

/// The derivative of [`Softplus`].
#[derive(Clone, Copy)]
pub struct SoftplusSlope(pub Softplus);

impl Map for SoftplusSlope {
    #[inline(always)]
    fn at<S: Simd>(self, s: S, x: S::V) -> S::V {
        let z = s.mul(x, s.splat(self.0.beta as f32));
        let above = s.lt(s.splat(self.0.threshold as f32), z);
        s.select(above, s.splat(1.0), exponential::sigmoid(s, z))
    }

    #[inline]
    fn reference(self, x: f64) -> f64 {
        let z = x * self.0.beta;
        if z > self.0.threshold {
            1.0
        } else {
            reference::sigmoid(z)
        }
    }
}

/// `x` for positive `x`, else `α (e^x - 1)`.
#[derive(Clone, Copy)]
pub struct Elu(pub f64);

impl Map for Elu {
    #[inline(always)]
    fn at<S: Simd>(self, s: S, x: S::V) -> S::V {
        exponential::elu(s, x, self.0 as f32)
    }

    #[inline]
    fn reference(self, x: f64) -> f64 {
        reference::elu(x, self.0)
    }
}

/// The derivative of [`Elu`].
#[derive(Clone, Copy)]
pub struct EluSlope(pub f64);

impl Map for EluSlope {
    #[inline(always)]
    fn at<S: Simd>(self, s: S, x: S::V) -> S::V {
        let negative = s.mul(exponential::exp(s, x), s.splat(self.0 as f32));
        s.select(s.lt(s.splat(0.0), x), s.splat(1.0), negative)
    }

    #[inline]
    fn reference(self, x: f64) -> f64 {
        if x > 0.0 { 1.0 } else { self.0 * x.exp() }
    }
}

/// `scale · x · min(max(x + 3, 0), 6) / 6 + shift`.
#[derive(Clone, Copy)]
pub struct HardSwish {
    pub scale: f64,
    pub shift: f64,
}

impl Map for HardSwish {
    #[inline(always)]
    fn at<S: Simd>(self, s: S, x: S::V) -> S::V {
        let open = s.min(s.splat(6.0), s.max(s.splat(0.0), s.add(x, s.splat(3.0))));
        // The product of x and 6 may overflow.
        let gate = s.mul(open, s.splat((self.scale / 6.0) as f32));
        s.mul_add(x, gate, s.splat(self.shift as f32))
    }

    #[inline]
    fn reference(self, x: f64) -> f64 {
        self.scale * reference::hardswish(x) + self.shift
    }
}

/// The derivative of [`HardSwish`].
#[derive(Clone, Copy)]
pub struct HardSwishSlope(pub HardSwish);

impl Map for HardSwishSlope {
    #[inline(always)]
    fn at<S: Simd>(self, s: S, x: S::V) -> S::V {
        let scale = self.0.scale;
        let (top, bottom) = (s.splat(3.0), s.splat(-3.0));
        let mut slope = s.mul_add(x, s.splat((scale / 3.0) as f32), s.splat((scale / 2.0) as f32));
        for (end, value) in [
            (s.lt(top, x), scale),
            (s.eq(top, x), scale),
            (s.lt(x, bottom), 0.0),
            (s.eq(x, bottom), 0.0),
        ] {
            slope = s.select(end, s.splat(value as f32), slope);
        }
        slope
    }

    #[inline]
    fn reference(self, x: f64) -> f64 {
        self.0.scale * reference::hardswish_slope(x)
    }
}

#[inline(always)]
fn rsqrt<S: Simd>(s: S, x: S::V) -> S::V {
    s.div(s.splat(1.0), s.sqrt(x))
}

#[inline(always)]
fn tanh_slope<S: Simd>(s: S, y: S::V) -> S::V {
    s.mul_add(s.neg(y), y, s.splat(1.0))
}

#[inline(always)]
fn sigmoid_slope<S: Simd>(s: S, y: S::V) -> S::V {
    s.mul(y, s.sub(s.splat(1.0), y))
}

/// Writes `f(x)` for each of `n` elements of `x`; computed in f64 if the policy has no level.
///
/// # Safety
/// `n` elements must be readable at `x` and writable at `to`, which may be the same address but not overlap otherwise.
#[inline]
pub unsafe fn map<F: Map>(policy: StorePolicy, f: F, x: *const f32, to: *mut f32, n: usize) {
    match policy.level() {
        Some(_) => policy.run(MapLoop { f, x, to, n }),
        None => {
            for i in 0..n {
                // SAFETY: `i < n`, and by the caller.
                unsafe { to.add(i).write(f.reference((*x.add(i)).into()) as f32) };
            }
        }
    }
}

/// Writes `f(x) g` for each of `n` elements of `x` and `g`, as in most gradients of activations.
///
/// # Safety
/// `n` elements must be readable at `x` and `g` and writable at `to`, which may be one of the two but
/// not overlap otherwise.
#[inline]
pub unsafe fn map_mul<F: Map>(policy: StorePolicy, f: F, x: *const f32, g: *const f32, to: *mut f32, n: usize) {
    match policy.level() {
        Some(_) => policy.run(MapMulLoop { f, x, g, to, n }),
        None => {
            for i in 0..n {
                // SAFETY: `i < n`, and by the caller.
                unsafe {
                    to.add(i)
                        .write((f.reference((*x.add(i)).into()) * f64::from(*g.add(i))) as f32)
                };
            }
        }
    }
}

struct MapLoop<F> {
    f: F,
    x: *const f32,
    to: *mut f32,
    n: usize,
}

impl<F: Map> Kernel for MapLoop<F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { f, x, to, n } = self;
        let whole = n - n % S::N;
        // SAFETY: all offsets stay below `n`; the caller of `map` guarantees the pointers.
        unsafe {
            for i in (0..whole).step_by(S::N) {
                s.stream(to.add(i), f.at(s, s.load(x.add(i))));
            }
            if whole < n {
                let left = n - whole;
                s.store_part(to.add(whole), left, f.at(s, s.load_part(x.add(whole), left)));
            }
        }
    }
}

struct MapMulLoop<F> {
    f: F,
    x: *const f32,
    g: *const f32,
    to: *mut f32,
    n: usize,
}

impl<F: Map> Kernel for MapMulLoop<F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { f, x, g, to, n } = self;
        let whole = n - n % S::N;
        // SAFETY: all offsets stay below `n`; the caller of `map_mul` guarantees the pointers.
        unsafe {
            for i in (0..whole).step_by(S::N) {
                let y = f.at(s, s.load(x.add(i)));
                s.stream(to.add(i), s.mul(y, s.load(g.add(i))));
            }
            if whole < n {
                let left = n - whole;
                let y = f.at(s, s.load_part(x.add(whole), left));
                let y = s.mul(y, s.load_part(g.add(whole), left));
                s.store_part(to.add(whole), left, y);
            }
        }
    }
}
