//! Matrix products.

use polygrad_core::{Activation, Axes, Backend, BinaryOp, DType, Error, Op, Result, Scalar, Shape, Tensors};

use super::context;
use crate::Tensor;
use crate::autocast::Lower;
use crate::flops;
use crate::graph::{needs_graph, record};

impl<B: Backend> Tensor<B> {
    /// Matrix product by NumPy's rules: `[…, m, k] × […, k, n]`, where leading axes broadcast; a vector on the left is
    /// a row, on the right a column, and its axis is removed from the result. Dtypes promote; integers wrap, and never
    /// become floats.
    ///
    /// # Errors
    /// When the inner extents differ, the leading axes do not broadcast, an operand has rank 0, both are bool,
    /// or the devices differ.
    pub fn matmul(&self, other: &Self) -> Result<Self> {
        if let Some(lower) = Lower::wanted() {
            let (a, b) = (lower.cast(self)?, lower.cast(other)?);
            return lower.run(|| a.matmul(&b));
        }
        let fail = |e| context(e, "matmul", &[self, other]);
        let dtype = self.dtype().promote(other.dtype());
        if dtype == DType::Bool {
            let error = Error::dtype("matmul takes numbers, not bool");
            return Err(fail(error.with_hint("convert the operands with to_dtype")));
        }
        let (a, b) = (&*self.cast_cow(dtype)?, &*other.cast_cow(dtype)?);
        let (left, right) = (a.shape(), b.shape());
        match (left.rank(), right.rank()) {
            (0, _) | (_, 0) => Err(fail(
                Error::shape("an operand of rank 0 has no inner axis").with_hint("use mul"),
            )),
            (1, 1) => {
                check_inner(left[0], right[0]).map_err(fail)?;
                let (row, column) = (a.reshape([1, left[0]])?, b.reshape([right[0], 1])?);
                row.matmul(&column)?.reshape(())
            }
            (1, _) => {
                let product = a.reshape([1, left[0]])?.matmul(b).map_err(fail)?;
                product.squeeze(-2)
            }
            (_, 1) => {
                let product = a.matmul(&b.reshape([right[0], 1])?).map_err(fail)?;
                product.squeeze(-1)
            }
            (p, q) => {
                a.check_device(b).map_err(fail)?;
                check_inner(left[p - 1], right[q - 2]).map_err(fail)?;
                if p > 2 || q > 2 {
                    let batch = |shape: &Shape| Shape::new(&shape[..shape.rank() - 2]);
                    batch(&left)?.broadcast(&batch(&right)?).map_err(fail)?;
                }
                let value = B::matmul(&a.value, &b.value).map_err(fail)?;
                flops::add_products(B::shape(&value).numel(), left[p - 1]);
                Ok(record(value, &[a, b], || Op::Matmul))
            }
        }
    }

    /// Product of two matrices, without broadcasting.
    ///
    /// # Errors
    /// When an operand has another rank than 2; and as [`Tensor::matmul`].
    pub fn mm(&self, other: &Self) -> Result<Self> {
        self.product_of_rank(2, other, "mm")
    }

    /// Products of two batches of matrices of the same size, without broadcasting.
    ///
    /// # Errors
    /// When an operand has another rank than 3, or the batches differ; and as [`Tensor::matmul`].
    pub fn bmm(&self, other: &Self) -> Result<Self> {
        if self.rank() == 3 && other.rank() == 3 && self.shape()[0] != other.shape()[0] {
            let error = Error::shape("the batches differ in size").with_hint("matmul broadcasts them");
            return Err(context(error, "bmm", &[self, other]));
        }
        self.product_of_rank(3, other, "bmm")
    }

    fn product_of_rank(&self, rank: usize, other: &Self, op: &'static str) -> Result<Self> {
        if self.rank() != rank || other.rank() != rank {
            let error = Error::shape(format!("both operands must have rank {rank}")).with_hint("use matmul");
            return Err(context(error, op, &[self, other]));
        }
        self.matmul(other)
    }

    /// `beta · self + alpha · (a × b)` for matrices `a` and `b`; this tensor broadcasts to their product's shape. If
    /// `beta` is 0, its values are ignored, NaN included. Dtypes promote; integers need integers for `beta` and
    /// `alpha`.
    ///
    /// # Errors
    /// As [`Tensor::mm`]; when this tensor does not broadcast, or integers would be scaled by floats.
    pub fn addmm(&self, a: &Self, b: &Self, beta: impl Into<Scalar>, alpha: impl Into<Scalar>) -> Result<Self> {
        let (beta, alpha) = (beta.into(), alpha.into());
        if let Some(lower) = Lower::wanted() {
            let (x, a, b) = (lower.cast(self)?, lower.cast(a)?, lower.cast(b)?);
            return lower.run(|| x.addmm(&a, &b, beta, alpha));
        }
        let fail = |e| context(e, "addmm", &[self, a, b]);
        let dtype = [a, b].iter().fold(self.dtype(), |dtype, x| dtype.promote(x.dtype()));
        if !dtype.is_float() && [alpha, beta].iter().any(|scale| matches!(scale, Scalar::Float(_))) {
            let error = Error::dtype(format!("{dtype} is scaled by integers, not by {beta} and {alpha}"));
            return Err(fail(error.with_hint("give beta and alpha as integers")));
        }
        if dtype != dtype.wide() && alpha.to_f64() != 1.0 {
            return Self::in_wide([self, a, b], |[x, a, b]| x.addmm(a, b, beta, alpha));
        }
        let product = a.mm(b)?.binary_scalar(BinaryOp::Mul, alpha, false)?;
        if !self.shape().broadcasts_to(&product.shape()) {
            let error = Error::shape(format!("{} does not broadcast to {}", self.shape(), product.shape()));
            return Err(fail(error));
        }
        if beta.to_f64() != 0.0 {
            return self.binary_scalar(BinaryOp::Mul, beta, false)?.add(&product);
        }
        if !self.is_tracked() {
            return product.to_dtype(dtype);
        }
        // The gradient of this tensor is 0, whatever its values are.
        let all = Self::full((), true, (&self.device(), DType::Bool))?;
        self.masked_fill(&all, 0.0)?.add(&product)
    }

    /// `x Wᵀ + b` for `x […, in]`, `weight [out, in]`, `bias [out]`; integers wrap.
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit.
    pub fn linear(&self, weight: &Self, bias: Option<&Self>) -> Result<Self> {
        linear(self, weight, bias, None)
    }

    /// Checks the operands of [`Tensor::linear`]: input, weight and optional bias, in this order.
    fn check_linear(&self, operands: &[&Self]) -> Result<()> {
        let (x, w) = (self.shape(), operands[1].shape());
        if x.rank() == 0 || w.rank() != 2 {
            return Err(Error::shape("takes an input […, in] and a weight [out, in]"));
        }
        check_inner(x[x.rank() - 1], w[1])?;
        if let Some(bias) = operands.get(2)
            && bias.shape().dims() != [w[0]]
        {
            return Err(Error::shape(format!(
                "the bias must have shape [{}], not {}",
                w[0],
                bias.shape()
            )));
        }
        let dtype = self.dtype();
        for operand in &operands[1..] {
            self.check_device(operand)?;
            if operand.dtype() != dtype || dtype == DType::Bool {
                return Err(Error::dtype("input, weight and bias must have one dtype, and not bool")
                    .with_hint("convert the input with to_dtype"));
            }
        }
        Ok(())
    }

    /// Exchanges the last two axes; for gradient rules.
    pub(crate) fn matrix_transposed(&self) -> Result<Self> {
        let rank = self.rank();
        self.permute_axes(Axes::new((0..rank - 2).chain([rank - 1, rank - 2]))?)
    }
}

/// [`Tensor::linear`] and then an activation function.
///
/// # Errors
/// As [`Tensor::linear`].
pub fn linear<B: Backend>(
    x: &Tensor<B>,
    weight: &Tensor<B>,
    bias: Option<&Tensor<B>>,
    activation: Option<Activation>,
) -> Result<Tensor<B>> {
    if let Some(lower) = Lower::wanted() {
        let (x, weight, bias) = (lower.cast(x)?, lower.cast(weight)?, lower.cast_option(bias)?);
        return lower.run(|| linear(&x, &weight, bias.as_ref(), activation));
    }
    let operands = Tensors::new([x, weight], [bias]);
    let operands = operands.get();
    let fail = |e| context(e, "linear", operands);
    x.check_linear(operands).map_err(fail)?;
    let float = x.dtype().is_float();
    // The fused op has a gradient only if the activation's gradient is computed from the output.
    if let Some(op) = activation
        && (!float || !op.saves_output() && needs_graph(operands))
    {
        return x.linear(weight, bias)?.activation(op);
    }
    if !float {
        let product = x.matmul(&weight.t()?)?;
        return bias.map_or(Ok(product.clone()), |bias| product.add(bias));
    }
    let bias = bias.map(|bias| &bias.value);
    let value = B::linear(&x.value, &weight.value, bias, activation).map_err(fail)?;
    flops::add_products(B::shape(&value).numel(), weight.shape()[1]);
    Ok(record(value, operands, || Op::Linear { activation }))
}

fn check_inner(left: usize, right: usize) -> Result<()> {
    if left == right {
        return Ok(());
    }
    Err(Error::shape(format!("inner extents {left} and {right} differ")))
}
