//! The memory that each call touches: one function for each struct lists its operands, in a fixed order.

use super::{
    Access, ArgReduce, Attention, AttentionBackward, Batch, Binary, Conv2d, CrossEntropy, CumSum, DeviceView,
    Elementwise, Fill, Gather, Gemm, LayerNorm, Operand, Pool2d, Random, Reduce, ReduceAxes, Scatter, Softmax, Sort,
    Unary,
};
use crate::{Axes, DType, Error, ReduceOp, Result, Shape};

/// The part of a convolution that is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Input,
    Weight,
    Output,
}

fn axis(shape: &Shape, axis: usize) -> Result<()> {
    match axis < shape.rank() {
        true => Ok(()),
        false => Err(Error::out_of_range(format!("axis {axis} of shape {shape}"))),
    }
}

/// Fails if an op is not defined for a dtype.
fn defined(accepted: bool, dtype: DType) -> Result<()> {
    match accepted {
        true => Ok(()),
        false => Err(Error::dtype(format!("not defined for {dtype}"))),
    }
}

/// Fails if a reduction that needs elements has none.
fn reduced(op: ReduceOp, shape: &Shape, axes: Axes) -> Result<()> {
    let none = axes.iter().any(|i| shape[i] == 0);
    if none && op.needs_elements() && shape.reduced(axes, false).numel() > 0 {
        return Err(Error::invalid(format!("{} over no elements", op.name())));
    }
    Ok(())
}

/// Fails unless `index` is i64, has the rank of `x`, and is no larger than `x` except along the axis.
fn index_fits(x: &Shape, along: usize, index: &DeviceView) -> Result<()> {
    axis(x, along)?;
    let dims = index.shape();
    let fits = dims.rank() == x.rank() && (0..x.rank()).all(|i| i == along || dims[i] <= x[i]);
    if fits && index.dtype == DType::I64 {
        return Ok(());
    }
    Err(Error::invalid(format!("an index {}{dims} into {x}", index.dtype)).with_hint("it is i64, and no larger"))
}

impl Gemm {
    pub(super) fn touched(&self, batch: Option<&Batch>) -> Result<Vec<Operand>> {
        let [a, b, c] = match batch {
            Some(batch) => batch.spans(self)?,
            None => self.spans()?,
        };
        let access = match self.beta == 0.0 {
            true => Access::Write,
            false => Access::ReadWrite,
        };
        Ok(vec![
            Operand::spanning("a", self.a, self.dtype, a),
            Operand::spanning("b", self.b, self.dtype, b),
            Operand::spanning("c", self.c, self.dtype_c, c).with_access(access),
        ])
    }
}

impl Conv2d {
    pub(super) fn touched(&self, written: Part) -> Result<Vec<Operand>> {
        let tensor = |name, part, ptr, dims: &[usize]| {
            let access = match part == written {
                true => Access::Write,
                false => Access::Read,
            };
            Ok(Operand::row(name, ptr, self.dtype, dims)?.with_access(access))
        };
        let output = self.output_shape()?;
        Ok(vec![
            tensor("input", Part::Input, self.input, &self.input_shape)?,
            tensor("weight", Part::Weight, self.weight, &self.weight_shape)?,
            tensor("output", Part::Output, self.output, &output)?,
        ])
    }
}

impl Pool2d {
    pub(super) fn touched(&self, positions: bool) -> Result<Vec<Operand>> {
        let shape = self.params.output_shape(&Shape::new(&self.input_shape)?)?;
        let mut all = vec![
            Operand::row("input", self.input, self.dtype, &self.input_shape)?,
            Operand::row("output", self.output, self.dtype, &shape)?.written(),
        ];
        if positions {
            all.push(Operand::row("positions", self.positions, DType::I64, &shape)?.written());
        }
        Ok(all)
    }
}

impl Attention {
    pub(super) fn touched(&self) -> Result<Vec<Operand>> {
        let [q, k, v, output] = self.spans()?;
        Ok(vec![
            Operand::spanning("q", self.q, self.dtype, q),
            Operand::spanning("k", self.k, self.dtype, k),
            Operand::spanning("v", self.v, self.dtype, v),
            Operand::spanning("output", self.output, self.dtype, output).written(),
        ])
    }
}

impl AttentionBackward {
    pub(super) fn touched(&self) -> Result<Vec<Operand>> {
        let Attention { dtype, q, k, v, .. } = self.forward;
        let spans = self.forward.spans()?;
        let of = |name, ptr, i: usize| Operand::spanning(name, ptr, dtype, spans[i]);
        Ok(vec![
            of("q", q, 0),
            of("k", k, 1),
            of("v", v, 2),
            of("grad", self.grad, 3),
            of("to_q", self.to_q, 0).written(),
            of("to_k", self.to_k, 1).written(),
            of("to_v", self.to_v, 2).written(),
        ])
    }
}

impl Unary {
    pub(super) fn touched(&self) -> Result<Vec<Operand>> {
        defined(self.op.accepts(self.dtype), self.dtype)?;
        let result = match self.op.is_predicate() {
            true => DType::Bool,
            false => self.dtype,
        };
        Ok(vec![
            Operand::row("input", self.input, self.dtype, &[self.len])?,
            Operand::row("output", self.output, result, &[self.len])?.written(),
        ])
    }
}

impl Binary {
    pub(super) fn touched(&self) -> Result<Vec<Operand>> {
        defined(self.op.accepts(self.dtype), self.dtype)?;
        Ok(vec![
            Operand::row("a", self.a, self.dtype, &[self.len])?,
            Operand::row("b", self.b, self.dtype, &[self.len])?,
            Operand::row("output", self.output, self.dtype, &[self.len])?.written(),
        ])
    }
}

impl Elementwise<'_> {
    pub(super) fn touched(&self) -> Result<Vec<Operand>> {
        self.check()?;
        let inputs = self.inputs.iter().map(|view| Operand::view("input", view));
        let outputs = self
            .outputs
            .iter()
            .map(|view| Ok(Operand::view("output", view)?.written()));
        inputs.chain(outputs).collect()
    }
}

impl Fill {
    pub(super) fn touched(&self) -> Result<Vec<Operand>> {
        let output = Operand::row("output", self.output, self.dtype, &[self.len])?;
        Ok(vec![output.written()])
    }
}

impl Random {
    pub(super) fn touched(&self) -> Result<Vec<Operand>> {
        let output = Operand::row("output", self.output, self.dtype, &[self.len])?;
        Ok(vec![output.written()])
    }
}

impl Reduce {
    pub(super) fn touched(&self) -> Result<Vec<Operand>> {
        defined(self.op.accepts(self.dtype), self.dtype)?;
        let [input, output] = self.spans()?;
        Ok(vec![
            Operand::spanning("input", self.input, self.dtype, input),
            Operand::spanning("output", self.output, self.dtype, output).written(),
        ])
    }
}

impl ReduceAxes {
    pub(super) fn touched(&self) -> Result<Vec<Operand>> {
        let (shape, dtype) = (self.input.shape(), self.input.dtype);
        defined(self.op.accepts(dtype), dtype)?;
        self.axes.iter().try_for_each(|i| axis(shape, i))?;
        reduced(self.op, shape, self.axes)?;
        let kept = shape.reduced(self.axes, false);
        Ok(vec![
            Operand::view("input", &self.input)?,
            Operand::row("output", self.output, dtype, &kept)?.written(),
        ])
    }
}

impl ArgReduce {
    pub(super) fn touched(&self) -> Result<Vec<Operand>> {
        let shape = self.input.shape();
        axis(shape, self.axis)?;
        reduced(ReduceOp::Max, shape, Axes::one(self.axis))?;
        let kept = shape.reduced(Axes::one(self.axis), false);
        Ok(vec![
            Operand::view("input", &self.input)?,
            Operand::row("output", self.output, DType::I64, &kept)?.written(),
        ])
    }
}

impl CumSum {
    pub(super) fn touched(&self) -> Result<Vec<Operand>> {
        let (shape, dtype) = (self.input.shape(), self.input.dtype);
        axis(shape, self.axis)?;
        Ok(vec![
            Operand::view("input", &self.input)?,
            Operand::row("output", self.output, dtype, shape)?.written(),
        ])
    }
}

impl Sort {
    pub(super) fn touched(&self) -> Result<Vec<Operand>> {
        let (shape, dtype) = (self.input.shape(), self.input.dtype);
        axis(shape, self.axis)?;
        Ok(vec![
            Operand::view("input", &self.input)?,
            Operand::row("values", self.values, dtype, shape)?.written(),
            Operand::row("positions", self.positions, DType::I64, shape)?.written(),
        ])
    }
}

impl Gather {
    pub(super) fn touched(&self) -> Result<Vec<Operand>> {
        index_fits(self.input.shape(), self.axis, &self.index)?;
        Ok(vec![
            Operand::view("input", &self.input)?,
            Operand::view("index", &self.index)?,
            Operand::row("output", self.output, self.input.dtype, self.index.shape())?.written(),
        ])
    }
}

impl Scatter {
    pub(super) fn touched(&self) -> Result<Vec<Operand>> {
        let (target, index, source) = (&self.target, &self.index, &self.source);
        index_fits(target.shape(), self.axis, index)?;
        if source.shape() != index.shape() || source.dtype != target.dtype {
            return Err(Error::invalid(format!(
                "a source {}{} for an index {} into {}",
                source.dtype,
                source.shape(),
                index.shape(),
                target.dtype
            )));
        }
        if !target.is_injective() {
            return Err(Error::invalid("the target has an element twice"));
        }
        Ok(vec![
            Operand::view("target", target)?.with_access(Access::ReadWrite),
            Operand::view("index", index)?,
            Operand::view("source", source)?,
        ])
    }
}

impl Softmax {
    pub(super) fn touched(&self, gradient: bool) -> Result<Vec<Operand>> {
        let all = |name, ptr| Operand::row(name, ptr, self.dtype, &[self.rows, self.columns]);
        let mut operands = vec![all("input", self.input)?];
        if gradient {
            operands.push(all("saved", self.saved)?);
        }
        operands.push(all("output", self.output)?.written());
        Ok(operands)
    }
}

impl LayerNorm {
    pub(super) fn touched(&self) -> Result<Vec<Operand>> {
        if self.rows > 0 && self.columns == 0 {
            return Err(Error::invalid("the mean of rows of no elements"));
        }
        let (all, rows, columns) = ([self.rows, self.columns], [self.rows], [self.columns]);
        let row = |name, ptr, dims: &[usize]| Operand::row(name, ptr, self.dtype, dims);
        let mut operands = vec![row("input", self.input, &all)?];
        for (name, ptr) in [("weight", self.weight), ("bias", self.bias)] {
            if let Some(ptr) = ptr {
                operands.push(row(name, ptr, &columns)?);
            }
        }
        operands.push(row("output", self.output, &all)?.written());
        operands.push(row("mean", self.mean, &rows)?.written());
        operands.push(row("rstd", self.rstd, &rows)?.written());
        Ok(operands)
    }
}

impl CrossEntropy {
    pub(super) fn touched(&self, gradient: bool) -> Result<Vec<Operand>> {
        let (all, rows) = ([self.rows, self.columns], [self.rows]);
        let of_row = match gradient {
            true => Access::Read,
            false => Access::Write,
        };
        let row = |name, ptr, dims: &[usize]| Operand::row(name, ptr, self.dtype, dims);
        let mut operands = vec![
            row("logits", self.logits, &all)?,
            row("loss", self.loss, &rows)?.with_access(of_row),
            row("logsumexp", self.logsumexp, &rows)?.with_access(of_row),
        ];
        if gradient {
            operands.push(row("grad", self.grad, &all)?.written());
        }
        operands.push(Operand::row("target", self.target, DType::I64, &rows)?);
        Ok(operands)
    }
}
