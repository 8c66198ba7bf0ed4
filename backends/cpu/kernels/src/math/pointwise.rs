//! The epilogue of a product, in place: a bias for each stretch of elements, a residual, an activation.

use polygrad_core::Activation;

use super::{Elu, Gelu, GeluTanh, HardSwish, Sigmoid, Silu, Softplus, Tanh, map};
use crate::Pointer;
use crate::simd::{Kernel, Level, Simd, StorePolicy};

/// The epilogue of each element in a stretch: `f(y + bias + residual)`.
#[derive(Clone, Copy)]
pub struct Pointwise {
    pub bias: f32,
    /// Null for none.
    pub residual: *const f32,
    pub activation: Option<Activation>,
}

// SAFETY: the residual is only read.
unsafe impl Sync for Pointwise {}

impl Pointwise {
    /// Whether an activation is supported.
    pub const fn knows(activation: Activation) -> bool {
        matches!(
            activation,
            Activation::Relu
                | Activation::Tanh
                | Activation::Sigmoid
                | Activation::Gelu
                | Activation::GeluTanh
                | Activation::Silu
                | Activation::HardSwish { .. }
                | Activation::Softplus { .. }
                | Activation::Elu { .. }
                | Activation::LeakyRelu { .. }
        )
    }

    pub fn of(activation: Activation) -> Self {
        Self {
            bias: 0.0,
            residual: std::ptr::null(),
            activation: Some(activation),
        }
    }

    /// Applies the epilogue to `n` elements.
    ///
    /// # Safety
    /// The caller must be allowed to write the elements, and the same number of the residual must be readable.
    pub unsafe fn run(self, level: Level, y: *mut f32, n: usize) {
        let relu = self.activation == Some(Activation::Relu);
        if relu || self.bias != 0.0 || !self.residual.is_null() {
            level.run(Add { with: self, relu, y, n });
        }
        let policy = StorePolicy::cached(Some(level));
        // SAFETY: passed on; each element is read before it is written.
        unsafe {
            match self.activation {
                None | Some(Activation::Relu) => {}
                Some(Activation::Tanh) => map(policy, Tanh, y, y, n),
                Some(Activation::Sigmoid) => map(policy, Sigmoid, y, y, n),
                Some(Activation::Gelu) => map(policy, Gelu, y, y, n),
                Some(Activation::GeluTanh) => map(policy, GeluTanh, y, y, n),
                Some(Activation::Silu) => map(policy, Silu, y, y, n),
                Some(Activation::HardSwish { scale, shift }) => map(policy, HardSwish { scale, shift }, y, y, n),
                Some(Activation::Softplus { beta, threshold }) => {
                    map(policy, Softplus { beta, threshold }, y, y, n);
                }
                Some(Activation::Elu { alpha }) => map(policy, Elu(alpha), y, y, n),
                Some(Activation::LeakyRelu { slope }) => {
                    let slope = slope as f32;
                    let y = Pointer(y);
                    for i in 0..n {
                        let x = y.at(i).read();
                        y.at(i).write(if x > 0.0 { x } else { slope * x });
                    }
                }
                Some(_) => unreachable!("who makes one asks `Pointwise::knows` first"),
            }
        }
    }
}

struct Add {
    with: Pointwise,
    relu: bool,
    y: *mut f32,
    n: usize,
}

impl Kernel for Add {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let whole = self.n / S::N * S::N;
        // SAFETY: `Pointwise::run` guarantees the elements.
        unsafe {
            for at in (0..whole).step_by(S::N) {
                let y = self.y.add(at);
                let mut v = s.add(s.load(y), s.splat(self.with.bias));
                if !self.with.residual.is_null() {
                    v = s.add(v, s.load(self.with.residual.add(at)));
                }
                s.store(y, self.last(s, v));
            }
            let (y, left) = (self.y.add(whole), self.n - whole);
            if left > 0 {
                let mut v = s.add(s.load_part(y, left), s.splat(self.with.bias));
                if !self.with.residual.is_null() {
                    v = s.add(v, s.load_part(self.with.residual.add(whole), left));
                }
                s.store_part(y, left, self.last(s, v));
            }
        }
    }
}

impl Add {
    #[inline(always)]
    fn last<S: Simd>(&self, s: S, v: S::V) -> S::V {
        // A NaN stays, since it is the second operand.
        if self.relu { s.max(s.splat(0.0), v) } else { v }
    }
}
