//! What each call touches, and the same call elsewhere: for each struct one function that goes through its operands, in a fixed order, and
//! puts the pointer that it is given in the place of each.

use super::{
    Access, ArgReduce, Attention, Batch, Binary, Conv2d, CrossEntropy, CumSum, DevicePtr, DeviceView, Elementwise,
    Fill, Gather, Gemm, LayerNorm, Operand, Pool2d, Random, Reduce, ReduceAxes, Scatter, Softmax, Sort, Unary,
};
use crate::{Axes, DType, Error, ReduceOp, Result, Shape};

/// Takes an operand, and says where it is to be.
pub(super) type Each<'e> = &'e mut dyn FnMut(Operand) -> Result<DevicePtr>;

/// The part of a convolution that is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Input,
    Weight,
    Output,
}

fn view(name: &'static str, at: &DeviceView, each: Each<'_>) -> Result<DeviceView> {
    let ptr = each(Operand::view(name, at)?)?;
    Ok(DeviceView { ptr, ..*at })
}

fn views(name: &'static str, access: Access, all: &[DeviceView], each: Each<'_>) -> Result<Vec<DeviceView>> {
    let moved = all.iter().map(|at| {
        let ptr = each(Operand::view(name, at)?.with_access(access))?;
        Ok(DeviceView { ptr, ..*at })
    });
    moved.collect()
}

fn axis(shape: &Shape, axis: usize) -> Result<()> {
    match axis < shape.rank() {
        true => Ok(()),
        false => Err(Error::out_of_range(format!("axis {axis} of shape {shape}"))),
    }
}

/// An op that is not defined for a dtype.
fn defined(accepted: bool, dtype: DType) -> Result<()> {
    match accepted {
        true => Ok(()),
        false => Err(Error::dtype(format!("not defined for {dtype}"))),
    }
}

/// Whether a reduction has something to reduce, or needs nothing.
fn reduced(op: ReduceOp, shape: &Shape, axes: Axes) -> Result<()> {
    let none = axes.iter().any(|i| shape[i] == 0);
    if none && op.needs_elements() && shape.reduced(axes, false).numel() > 0 {
        return Err(Error::invalid(format!("{} over no elements", op.name())));
    }
    Ok(())
}

/// Whether `index` has the rank of `x` and, but along the axis, nothing that `x` has not.
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
    pub(super) fn touch(&self, batch: Option<&Batch>, each: Each<'_>) -> Result<Self> {
        let ([a, b, c], count) = match batch {
            Some(batch) => (batch.spans(self)?, batch.count),
            None => (self.spans()?, 1),
        };
        let access = match self.beta == 0.0 {
            true => Access::Write,
            false => Access::ReadWrite,
        };
        let to = Operand::spanning("c", self.c, self.dtype_c, c).with_access(access);
        let to = Operand {
            // Between rows and results may lie something else. What has a span can be counted.
            elements: if c == 0 { 0 } else { self.m * self.n * count },
            ..to
        };
        Ok(Self {
            a: each(Operand::spanning("a", self.a, self.dtype, a))?,
            b: each(Operand::spanning("b", self.b, self.dtype, b))?,
            c: each(to)?,
            ..*self
        })
    }
}

impl Conv2d {
    pub(super) fn touch(&self, written: Part, each: Each<'_>) -> Result<Self> {
        let access = |part| match part == written {
            true => Access::Write,
            false => Access::Read,
        };
        let mut tensor = |name, part, ptr, dims: &[usize]| {
            each(Operand::row(name, ptr, self.dtype, dims)?.with_access(access(part)))
        };
        let output = self.output_shape()?;
        Ok(Self {
            input: tensor("input", Part::Input, self.input, &self.input_shape)?,
            weight: tensor("weight", Part::Weight, self.weight, &self.weight_shape)?,
            output: tensor("output", Part::Output, self.output, &output)?,
            ..*self
        })
    }
}

impl Pool2d {
    pub(super) fn touch(&self, positions: bool, each: Each<'_>) -> Result<Self> {
        let shape = self.params.output_shape(&Shape::new(&self.input_shape)?)?;
        Ok(Self {
            input: each(Operand::row("input", self.input, self.dtype, &self.input_shape)?)?,
            output: each(Operand::row("output", self.output, self.dtype, &shape)?.written())?,
            positions: match positions {
                true => each(Operand::row("positions", self.positions, DType::I64, &shape)?.written())?,
                false => self.positions,
            },
            ..*self
        })
    }
}

impl Attention {
    pub(super) fn touch(&self, each: Each<'_>) -> Result<Self> {
        let [q, k, v, output] = self.spans()?;
        Ok(Self {
            q: each(Operand::spanning("q", self.q, self.dtype, q))?,
            k: each(Operand::spanning("k", self.k, self.dtype, k))?,
            v: each(Operand::spanning("v", self.v, self.dtype, v))?,
            output: each(Operand::spanning("output", self.output, self.dtype, output).written())?,
            ..*self
        })
    }
}

impl Unary {
    pub(super) fn touch(&self, each: Each<'_>) -> Result<Self> {
        defined(self.op.accepts(self.dtype), self.dtype)?;
        let result = match self.op.is_predicate() {
            true => DType::Bool,
            false => self.dtype,
        };
        Ok(Self {
            input: each(Operand::row("input", self.input, self.dtype, &[self.len])?)?,
            output: each(Operand::row("output", self.output, result, &[self.len])?.written())?,
            ..*self
        })
    }
}

impl Binary {
    pub(super) fn touch(&self, each: Each<'_>) -> Result<Self> {
        defined(self.op.accepts(self.dtype), self.dtype)?;
        Ok(Self {
            a: each(Operand::row("a", self.a, self.dtype, &[self.len])?)?,
            b: each(Operand::row("b", self.b, self.dtype, &[self.len])?)?,
            output: each(Operand::row("output", self.output, self.dtype, &[self.len])?.written())?,
            ..*self
        })
    }
}

impl Elementwise<'_> {
    /// Its inputs and outputs elsewhere.
    pub(super) fn touch(&self, each: Each<'_>) -> Result<[Vec<DeviceView>; 2]> {
        self.check()?;
        Ok([
            views("input", Access::Read, self.inputs, each)?,
            views("output", Access::Write, self.outputs, each)?,
        ])
    }
}

impl Fill {
    pub(super) fn touch(&self, each: Each<'_>) -> Result<Self> {
        let output = each(Operand::row("output", self.output, self.dtype, &[self.len])?.written())?;
        Ok(Self { output, ..*self })
    }
}

impl Random {
    pub(super) fn touch(&self, each: Each<'_>) -> Result<Self> {
        let output = each(Operand::row("output", self.output, self.dtype, &[self.len])?.written())?;
        Ok(Self { output, ..*self })
    }
}

impl Reduce {
    pub(super) fn touch(&self, each: Each<'_>) -> Result<Self> {
        defined(self.op.accepts(self.dtype), self.dtype)?;
        let [input, output] = self.spans()?;
        Ok(Self {
            input: each(Operand::spanning("input", self.input, self.dtype, input))?,
            output: each(Operand::spanning("output", self.output, self.dtype, output).written())?,
            ..*self
        })
    }
}

impl ReduceAxes {
    pub(super) fn touch(&self, each: Each<'_>) -> Result<Self> {
        let (shape, dtype) = (self.input.shape(), self.input.dtype);
        defined(self.op.accepts(dtype), dtype)?;
        self.axes.iter().try_for_each(|i| axis(shape, i))?;
        reduced(self.op, shape, self.axes)?;
        let kept = shape.reduced(self.axes, false);
        Ok(Self {
            input: view("input", &self.input, each)?,
            output: each(Operand::row("output", self.output, dtype, &kept)?.written())?,
            ..*self
        })
    }
}

impl ArgReduce {
    pub(super) fn touch(&self, each: Each<'_>) -> Result<Self> {
        let shape = self.input.shape();
        axis(shape, self.axis)?;
        reduced(ReduceOp::Max, shape, Axes::one(self.axis))?;
        let kept = shape.reduced(Axes::one(self.axis), false);
        Ok(Self {
            input: view("input", &self.input, each)?,
            output: each(Operand::row("output", self.output, DType::I64, &kept)?.written())?,
            ..*self
        })
    }
}

impl CumSum {
    pub(super) fn touch(&self, each: Each<'_>) -> Result<Self> {
        let (shape, dtype) = (self.input.shape(), self.input.dtype);
        axis(shape, self.axis)?;
        Ok(Self {
            input: view("input", &self.input, each)?,
            output: each(Operand::row("output", self.output, dtype, shape)?.written())?,
            ..*self
        })
    }
}

impl Sort {
    pub(super) fn touch(&self, each: Each<'_>) -> Result<Self> {
        let (shape, dtype) = (self.input.shape(), self.input.dtype);
        axis(shape, self.axis)?;
        Ok(Self {
            input: view("input", &self.input, each)?,
            values: each(Operand::row("values", self.values, dtype, shape)?.written())?,
            positions: each(Operand::row("positions", self.positions, DType::I64, shape)?.written())?,
            ..*self
        })
    }
}

impl Gather {
    pub(super) fn touch(&self, each: Each<'_>) -> Result<Self> {
        index_fits(self.input.shape(), self.axis, &self.index)?;
        let output = Operand::row("output", self.output, self.input.dtype, self.index.shape())?;
        Ok(Self {
            input: view("input", &self.input, each)?,
            index: view("index", &self.index, each)?,
            output: each(output.written())?,
            ..*self
        })
    }
}

impl Scatter {
    pub(super) fn touch(&self, each: Each<'_>) -> Result<Self> {
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
        let changed = each(Operand::view("target", target)?.with_access(Access::ReadWrite))?;
        Ok(Self {
            target: DeviceView {
                ptr: changed,
                ..*target
            },
            index: view("index", index, each)?,
            source: view("source", source, each)?,
            ..*self
        })
    }
}

impl Softmax {
    pub(super) fn touch(&self, gradient: bool, each: Each<'_>) -> Result<Self> {
        let mut all = |name, ptr, access| {
            each(Operand::row(name, ptr, self.dtype, &[self.rows, self.columns])?.with_access(access))
        };
        Ok(Self {
            input: all("input", self.input, Access::Read)?,
            saved: match gradient {
                true => all("saved", self.saved, Access::Read)?,
                false => self.saved,
            },
            output: all("output", self.output, Access::Write)?,
            ..*self
        })
    }
}

impl LayerNorm {
    pub(super) fn touch(&self, each: Each<'_>) -> Result<Self> {
        if self.rows > 0 && self.columns == 0 {
            return Err(Error::invalid("the mean of rows of no elements"));
        }
        let (all, rows, columns) = ([self.rows, self.columns], [self.rows], [self.columns]);
        let mut row =
            |name, ptr, dims: &[usize], access| each(Operand::row(name, ptr, self.dtype, dims)?.with_access(access));
        Ok(Self {
            input: row("input", self.input, &all, Access::Read)?,
            weight: (self.weight.map(|ptr| row("weight", ptr, &columns, Access::Read))).transpose()?,
            bias: (self.bias.map(|ptr| row("bias", ptr, &columns, Access::Read))).transpose()?,
            output: row("output", self.output, &all, Access::Write)?,
            mean: row("mean", self.mean, &rows, Access::Write)?,
            rstd: row("rstd", self.rstd, &rows, Access::Write)?,
            ..*self
        })
    }
}

impl CrossEntropy {
    pub(super) fn touch(&self, gradient: bool, each: Each<'_>) -> Result<Self> {
        let (all, rows) = ([self.rows, self.columns], [self.rows]);
        let of_row = match gradient {
            true => Access::Read,
            false => Access::Write,
        };
        let mut row =
            |name, ptr, dims: &[usize], access| each(Operand::row(name, ptr, self.dtype, dims)?.with_access(access));
        Ok(Self {
            logits: row("logits", self.logits, &all, Access::Read)?,
            loss: row("loss", self.loss, &rows, of_row)?,
            logsumexp: row("logsumexp", self.logsumexp, &rows, of_row)?,
            grad: match gradient {
                true => row("grad", self.grad, &all, Access::Write)?,
                false => self.grad,
            },
            target: each(Operand::row("target", self.target, DType::I64, &rows)?)?,
            ..*self
        })
    }
}
