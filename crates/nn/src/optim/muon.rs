//! Muon.

use polygrad_core::BinaryOp;
use polygrad_tensor::{AnyBackend, Axes, Backend, Error, Result, Scalar, Shape};

use super::common::{Options, Rule, blend, by_ops, check, descend, norm, optimizer};
use super::slots::Groups;
use crate::Param;
use crate::options::options;

/// Muon: the step is the momentum of each weight matrix, made nearly orthogonal. As `torch.optim.Muon`.
///
/// Use it only for the matrices of hidden layers; biases, norms, embeddings and the last layer need another optimizer.
/// A few steps of a Newton-Schulz iteration turn the momentum `U S Vᵀ` into approximately `U S′ Vᵀ` with singular
/// values between about 0.7 and 1.2, instead of the exact `U Vᵀ`. PyTorch computes the iteration in bf16; here it is in
/// the parameter's dtype, or in f32 for f16 and bf16.
///
/// ```
/// # use polygrad_nn::{Linear, Module, ReLU, Sequential};
/// # use polygrad_nn::optim::{Adam, Muon, Optimizer};
/// # use polygrad_tensor::{Backend, Device, Result};
/// # fn run<B: Backend>(model: Sequential<B>) -> Result<()> {
/// let (matrices, others): (Vec<_>, Vec<_>) = model.parameters().into_iter().partition(|p| p.shape().rank() == 2);
/// let mut muon = Muon::new(matrices, 0.02)?;
/// let mut adam = Adam::new(others, 1e-3)?;
/// // Each step: muon.step(&gradients)?; adam.step(&gradients)?;
/// # Ok(())
/// # }
/// ```
///
/// Sources: Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024); Liu et al., "Muon is
/// scalable for LLM training" (2025) for [`AdjustLr::MatchRmsAdamW`].
pub struct Muon<B: Backend = AnyBackend> {
    groups: Groups<B, MuonConfig>,
}

/// How [`Muon`]'s rate depends on a matrix's extents, `[rows, columns]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdjustLr {
    /// Times `√max(1, rows / columns)`, as by Jordan.
    #[default]
    Original,
    /// Times `0.2 · √max(rows, columns)`: a step is about as large as one of AdamW with the same rate.
    MatchRmsAdamW,
}

options! {
    /// Options of [`Muon`].
    #[derive(Clone, Copy, Debug)]
    pub struct MuonConfig {
        /// Muon with a weight decay of 0.1. PyTorch's default learning rate is 1e-3; Jordan uses 0.02.
        pub const fn new(lr: f64);
        /// Weight decay: this times the learning rate (before its adjustment) is the share subtracted from the
        /// parameter itself.
        weight_decay: f64 = 0.1;
        /// Decay of the momentum, in `[0, 1)`.
        momentum: f64 = 0.95;
        /// Whether the momentum is Nesterov's.
        nesterov: bool = true;
        /// The factors of `X`, `X Xᵀ X` and `(X Xᵀ)² X` in each step of the iteration. Default: 3.4445, -4.775 and
        /// 2.0315.
        ns_coefficients: (f64, f64, f64) = (3.4445, -4.7750, 2.0315),
            from |first: f64, third: f64, fifth: f64| (first, third, fifth);
        /// Lower limit of the norm by which the momentum is divided.
        eps: f64 = 1e-7;
        /// Number of steps of the iteration, below 100.
        ns_steps: usize = 5;
        /// How the rate depends on a matrix's extents. Default: [`AdjustLr::Original`].
        adjust_lr: AdjustLr = AdjustLr::Original;
    }
}

impl MuonConfig {
    /// The matrix with its singular values brought close to 1.
    fn orthogonalize<B: Backend>(&self, matrix: &B::Tensor) -> Result<B::Tensor> {
        let transpose = |x: &B::Tensor| B::permute(x, Axes::new([1, 0])?);
        let shape = B::shape(matrix);
        let is_tall = shape[0] > shape[1];
        let mut x = if is_tall { transpose(matrix)? } else { matrix.clone() };
        // This norm is an upper bound of the spectral norm.
        let largest = B::binary_scalar(BinaryOp::Maximum, &norm::<B>(&x)?, Scalar::from(self.eps), false)?;
        x = B::div(&x, &largest)?;
        let (first, third, fifth) = self.ns_coefficients;
        for _ in 0..self.ns_steps {
            let gram = B::matmul(&x, &transpose(&x)?)?;
            let square = B::matmul(&gram, &gram)?;
            let factor = B::add(&B::mul_scalar(&gram, third)?, &B::mul_scalar(&square, fifth)?)?;
            x = B::add(&B::mul_scalar(&x, first)?, &B::matmul(&factor, &x)?)?;
        }
        if is_tall { transpose(&x) } else { Ok(x) }
    }

    fn adjusted_lr(&self, shape: &Shape) -> f64 {
        let (rows, columns) = (shape[0] as f64, shape[1] as f64);
        let factor = match self.adjust_lr {
            AdjustLr::Original => (rows / columns).max(1.0).sqrt(),
            AdjustLr::MatchRmsAdamW => 0.2 * rows.max(columns).sqrt(),
        };
        self.lr * factor
    }
}

impl<B: Backend> Muon<B> {
    /// Muon with a weight decay of 0.1, for matrices; [`MuonConfig`] has the other options.
    ///
    /// # Errors
    /// As [`MuonConfig::build`].
    pub fn new(params: impl IntoIterator<Item = Param<B>>, lr: f64) -> Result<Self> {
        MuonConfig::new(lr).build(params)
    }
}

impl Options for MuonConfig {
    fn check(&self) -> Result<()> {
        check("lr", self.lr, 0.0..)?;
        check("weight_decay", self.weight_decay, 0.0..)?;
        check("momentum", self.momentum, 0.0..1.0)?;
        check("eps", self.eps, 0.0..)?;
        let (first, third, fifth) = self.ns_coefficients;
        for coefficient in [first, third, fifth] {
            check("ns_coefficients", coefficient, ..)?;
        }
        if self.ns_steps >= 100 {
            return Err(Error::invalid(format!("ns_steps = {} is not below 100", self.ns_steps)).with_op("optimizer"));
        }
        Ok(())
    }

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }
}

impl<B: Backend> Rule<B> for MuonConfig {
    fn check_params(&self, params: &mut dyn Iterator<Item = (&str, Shape)>) -> Result<()> {
        let others: Vec<String> = params
            .filter(|(_, shape)| shape.rank() != 2)
            .map(|(name, shape)| format!("{name} {shape}"))
            .collect();
        if others.is_empty() {
            return Ok(());
        }
        Err(Error::shape(format!(
            "Muon trains matrices, which these parameters are not: {}",
            others.join(", ")
        ))
        .with_op("optimizer")
        .with_hint("give it the parameters of rank 2, and the others to AdamW"))
    }

    fn is_elementwise(&self) -> bool {
        false
    }

    fn fields(&self) -> &'static [&'static str] {
        &["momentum_buffer"]
    }

    fn update(&self, param: &mut B::Tensor, gradient: &B::Tensor, state: &mut [B::Tensor], _step: u64) -> Result<()> {
        let lr = self.adjusted_lr(&B::shape(param));
        by_ops::<B>(param, gradient, state, |param, gradient, state| {
            let momentum = blend::<B>(&state[0], gradient, self.momentum)?;
            let direction = if self.nesterov {
                self.orthogonalize::<B>(&blend::<B>(&momentum, gradient, self.momentum)?)?
            } else {
                self.orthogonalize::<B>(&momentum)?
            };
            let param = descend::<B>(param, &direction, lr, self.lr * self.weight_decay)?;
            Ok((param, vec![momentum]))
        })
    }
}

optimizer!(Muon, MuonConfig);
