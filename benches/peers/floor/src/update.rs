//! Optimizers, called with each row of a gradient as soon as it is known.

use crate::rows::{Row, ZERO};

/// The rows of a tile: while the next tile is computed, the data for its update is prefetched.
const AHEAD: usize = 8;

fn fetch<T>(from: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(item) = from.get(at) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = std::ptr::from_ref(item).cast::<i8>();
        for line in 0..size_of::<T>() / 64 {
            // SAFETY: the address is within the item; prefetching changes nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.add(64 * line)) }
        }
    }
}

pub trait Optimizer {
    /// Begins a step.
    fn begin(&mut self);
    /// Updates row number `at` of all parameters.
    fn update(&mut self, at: usize, param: &mut Row, gradient: &Row);
}

/// SGD with a learning rate of 0.01.
pub struct Sgd;

impl Optimizer for Sgd {
    fn begin(&mut self) {}

    #[inline(always)]
    fn update(&mut self, _at: usize, param: &mut Row, gradient: &Row) {
        *param = param.plus_times(-0.01, *gradient);
    }
}

/// Adam with a learning rate of 0.001.
pub struct Adam {
    /// Means of gradients and of their squares, for each row of the parameters.
    moments: Vec<[Row; 2]>,
    steps: i32,
    rate: f32,
    scale: f32,
}

const BETAS: [f32; 2] = [0.9, 0.999];

impl Adam {
    pub fn new(rows: usize) -> Self {
        Self {
            moments: vec![[ZERO; 2]; rows],
            steps: 0,
            rate: 0.0,
            scale: 0.0,
        }
    }
}

impl Optimizer for Adam {
    fn begin(&mut self) {
        self.steps += 1;
        let [first, second] = BETAS.map(|beta| 1.0 - f64::from(beta).powi(self.steps));
        self.rate = (1e-3 / first) as f32;
        self.scale = (1.0 / second.sqrt()) as f32;
    }

    #[inline(always)]
    fn update(&mut self, at: usize, param: &mut Row, gradient: &Row) {
        fetch(&self.moments, at + AHEAD);
        let [means, squares] = &mut self.moments[at];
        let numbers = param.0.iter_mut().zip(&mut means.0).zip(&mut squares.0);
        for (((param, mean), square), gradient) in numbers.zip(gradient.0) {
            *mean = BETAS[0] * *mean + (1.0 - BETAS[0]) * gradient;
            *square = BETAS[1] * *square + (1.0 - BETAS[1]) * gradient * gradient;
            *param -= self.rate * *mean / (square.sqrt() * self.scale + 1e-8);
        }
    }
}
