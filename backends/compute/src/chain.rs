//! Element-wise ops are recorded, and run as one program when one of their values is needed.
//!
//! A recorded op without a handle is computed in registers for the op that needs it, and never stored; if no op needs
//! it, it is not computed. A recorded op that still has a handle becomes a second output of the same program.

use std::collections::HashMap;
use std::sync::Arc;

use polygrad_core::compute::{DeviceView, Elementwise, ElementwiseProgram, Step, Value};
use polygrad_core::{BinaryOp, CompareOp, DType, Layout, Result, Scalar, Shape, UnaryOp};

use crate::Context;
use crate::array::{Array, State, Storage};
use crate::memory::Buffer;
use crate::single;

/// The most steps of a program; longer chains are computed in parts.
const MAX_STEPS: usize = 64;

/// The kind of a recorded op.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Repeats its operand, which is a number.
    Fill,
    Unary(UnaryOp),
    Binary(BinaryOp),
    Compare(CompareOp),
    Select,
    Cast(DType),
}

impl Kind {
    /// The step over these values; `None` for `Fill`.
    fn step(self, values: &[Value]) -> Option<Step> {
        Some(match (self, values) {
            (Self::Unary(op), &[x]) => Step::Unary(op, x),
            (Self::Binary(op), &[a, b]) => Step::Binary(op, a, b),
            (Self::Compare(op), &[a, b]) => Step::Compare(op, a, b),
            (Self::Select, &[condition, a, b]) => Step::Select(condition, a, b),
            (Self::Cast(dtype), &[x]) => Step::Cast(x, dtype),
            _ => return None,
        })
    }
}

/// An operand of an op.
#[derive(Clone, Debug)]
pub(crate) enum Operand {
    Array(Array),
    Scalar(Scalar, DType),
}

impl Operand {
    pub(crate) fn dtype(&self) -> DType {
        match self {
            Self::Array(array) => array.dtype(),
            Self::Scalar(_, dtype) => *dtype,
        }
    }
}

/// A recorded op.
#[derive(Debug)]
pub(crate) struct Expr {
    kind: Kind,
    operands: Vec<Operand>,
    /// Number of steps of it and its operands; those that are used twice count twice.
    steps: usize,
    /// Number of tensors in memory among its operands, counted in the same way.
    leaves: usize,
}

/// Records an op over operands that broadcast to `shape`. Runs it at once if nothing is fused.
pub(crate) fn record(
    context: &Arc<Context>,
    kind: Kind,
    operands: impl IntoIterator<Item = Operand>,
    shape: Shape,
    dtype: DType,
) -> Result<Array> {
    let mut operands: Vec<Operand> = operands.into_iter().map(as_number).collect();
    context.expect(dtype)?;
    let programmable = operands.iter().all(|operand| context.runs_programs(operand.dtype()));
    if !programmable || !context.runs_programs(dtype) {
        return single::run(context, kind, &operands, shape, dtype);
    }
    for operand in &mut operands {
        if let Operand::Array(array) = operand
            && !(array.is_whole() && array.storage.walks_over(&shape))
        {
            // Operands that are broadcast or rearranged are stored first, since a program iterates over one shape.
            array.storage.buffer()?;
        }
    }
    // One view is reserved for the result, and one for an intermediate that still has a handle.
    let most_leaves = context.capabilities.max_elementwise_views.saturating_sub(2).max(3);
    let mut expr = Expr::new(kind, operands);
    while expr.steps > MAX_STEPS || expr.leaves > most_leaves {
        let Some(largest) = expr.largest_pending() else { break };
        largest.buffer()?;
        expr = Expr::new(kind, expr.operands);
    }
    let array = Array::pending(context, shape, dtype, expr);
    if context.fuses {
        context.record(&array.storage);
    } else {
        array.storage.buffer()?;
    }
    Ok(array)
}

/// Replaces a pending tensor of one number by the number.
fn as_number(operand: Operand) -> Operand {
    if let Operand::Array(array) = &operand
        && array.storage.is_pending()
        && let Some(expr) = array.storage.expr()
        && let (Kind::Fill, [number @ Operand::Scalar(..)]) = (expr.kind, &expr.operands[..])
    {
        return number.clone();
    }
    operand
}

impl Expr {
    fn new(kind: Kind, operands: Vec<Operand>) -> Self {
        let (mut steps, mut leaves) = (1, 0);
        for operand in &operands {
            if let Operand::Array(array) = operand {
                match array.storage.expr() {
                    Some(expr) if array.storage.is_pending() => {
                        steps += expr.steps;
                        leaves += expr.leaves;
                    }
                    _ => leaves += 1,
                }
            }
        }
        Self {
            kind,
            operands,
            steps,
            leaves,
        }
    }

    /// Whether all operands can be read in the order of `shape`, which is `own` or has as many elements.
    fn walks_over(&self, own: &Shape, shape: &Shape) -> bool {
        self.operands.iter().all(|operand| match operand {
            Operand::Scalar(..) => true,
            Operand::Array(array) if array.storage.is_pending() => array.storage.walks_over(shape),
            Operand::Array(array) => in_order(array, own, shape).is_some(),
        })
    }

    fn largest_pending(&self) -> Option<&Arc<Storage>> {
        let pending = self.operands.iter().filter_map(|operand| match operand {
            Operand::Array(array) => Some((array.storage.expr()?.steps, &array.storage)),
            Operand::Scalar(..) => None,
        });
        pending.max_by_key(|(steps, _)| *steps).map(|(_, storage)| storage)
    }
}

/// The layout of an operand of an op of shape `own`, in the order of a shape with as many elements; `None` if strides
/// cannot express it.
fn in_order(array: &Array, own: &Shape, shape: &Shape) -> Option<Layout> {
    let layout = array.layout.expand(*own);
    if own == shape {
        Some(layout)
    } else {
        layout.reshape(*shape)
    }
}

impl Storage {
    fn walks_over(&self, shape: &Shape) -> bool {
        self.shape == *shape
            || self.shape.numel() == shape.numel() && self.expr().is_none_or(|expr| expr.walks_over(&self.shape, shape))
    }
}

/// Computes a recorded op, and with it those of its operands that still have a handle. Meanwhile, other threads may
/// compute other ops with the same operands.
pub(crate) fn run(root: &Arc<Storage>, expr: Arc<Expr>) -> Result<()> {
    let context = &root.context;
    let mut builder = Builder::new(root.shape);
    let value = builder.visit(expr, root.shape)?;
    let most_outputs = context
        .capabilities
        .max_elementwise_views
        .saturating_sub(builder.inputs.len())
        .max(1);
    builder.program.output(value);
    let mut outputs = vec![Arc::clone(root)];
    for node in &builder.nodes {
        // Its only holders are this list and the expressions of this program, unless it has another handle.
        let held = Arc::strong_count(&node.storage) > node.uses + 1;
        if held && outputs.len() < most_outputs && !Arc::ptr_eq(&node.storage, root) {
            builder.program.output(node.value);
            outputs.push(Arc::clone(&node.storage));
        }
    }

    let mut buffers = Vec::with_capacity(outputs.len());
    for storage in &outputs {
        buffers.push(Buffer::alloc(context, storage.shape.numel() * storage.dtype.size())?);
    }
    if root.shape.numel() > 0 {
        let views: Vec<_> = (outputs.iter().zip(&buffers))
            .map(|(storage, buffer)| DeviceView::contiguous(buffer.ptr(), storage.dtype, root.shape))
            .collect();
        let call = Elementwise {
            program: &builder.program,
            shape: root.shape,
            inputs: &builder.inputs,
            scalars: &builder.scalars,
            outputs: &views,
        };
        context.launch(&builder.program.name(), |driver| driver.elementwise(&call))?;
    }
    for (storage, buffer) in outputs.iter().zip(buffers) {
        storage.fill(buffer);
    }
    Ok(())
}

/// A program that is being built.
struct Builder {
    shape: Shape,
    program: ElementwiseProgram,
    inputs: Vec<DeviceView>,
    scalars: Vec<Scalar>,
    nodes: Vec<Node>,
    /// They keep the memory alive that is read: another thread that stores one of the nodes meanwhile drops the node's
    /// operands.
    exprs: Vec<Arc<Expr>>,
    /// The position in `nodes` by the storage's address.
    known: HashMap<*const Storage, usize>,
    /// Inputs by the address of their storage; each may be there in several layouts.
    read: HashMap<*const Storage, Vec<(Layout, Value)>>,
}

struct Node {
    storage: Arc<Storage>,
    value: Value,
    /// How often it is an operand in this program.
    uses: usize,
}

impl Builder {
    fn new(shape: Shape) -> Self {
        Self {
            shape,
            program: ElementwiseProgram::default(),
            inputs: Vec::new(),
            scalars: Vec::new(),
            nodes: Vec::new(),
            exprs: Vec::new(),
            known: HashMap::new(),
            read: HashMap::new(),
        }
    }

    /// The value of a recorded op of this shape. The recursion is at most as deep as a chain is long.
    fn visit(&mut self, expr: Arc<Expr>, of: Shape) -> Result<Value> {
        self.exprs.push(Arc::clone(&expr));
        let mut values = Vec::with_capacity(expr.operands.len());
        for operand in &expr.operands {
            values.push(match operand {
                Operand::Scalar(number, dtype) => {
                    self.scalars.push(*number);
                    self.program.scalar(*dtype)
                }
                Operand::Array(array) => match array.storage.state() {
                    State::Ready(buffer) => self.input(array, buffer, of),
                    State::Pending(expr) => self.node(&array.storage, expr)?,
                },
            });
        }
        match expr.kind.step(&values) {
            Some(step) => self.program.push(step),
            None => Ok(values[0]),
        }
    }

    fn node(&mut self, storage: &Arc<Storage>, expr: Arc<Expr>) -> Result<Value> {
        if let Some(&i) = self.known.get(&Arc::as_ptr(storage)) {
            self.nodes[i].uses += 1;
            return Ok(self.nodes[i].value);
        }
        let value = self.visit(expr, storage.shape)?;
        self.known.insert(Arc::as_ptr(storage), self.nodes.len());
        self.nodes.push(Node {
            storage: Arc::clone(storage),
            value,
            uses: 1,
        });
        Ok(value)
    }

    /// The value of an operand of an op of shape `of`, read in the order of the program's shape.
    fn input(&mut self, array: &Array, buffer: &Buffer, of: Shape) -> Value {
        let Some(layout) = in_order(array, &of, &self.shape) else {
            unreachable!("what cannot be read in this order was stored before")
        };
        let read = self.read.entry(Arc::as_ptr(&array.storage)).or_default();
        let same =
            |(known, _): &&(Layout, Value)| known.strides() == layout.strides() && known.offset() == layout.offset();
        if let Some((_, value)) = read.iter().find(same) {
            return *value;
        }
        let value = self.program.input(array.dtype());
        read.push((layout, value));
        self.inputs.push(DeviceView::new(buffer.ptr(), array.dtype(), layout));
        value
    }
}
