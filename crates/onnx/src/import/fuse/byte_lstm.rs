//! LSTMs with weights of 8 bits, whose inputs and states are quantized to 8 bits before each product.

use polygrad_core::{DType, Prepack, Result, Shape};
use polygrad_tensor::{Tensor, inference};
use smallvec::{SmallVec, smallvec};

use super::Draft;
use super::action::{Cell, Fused, join};
use super::single::{directions, is_plain};
use crate::graph::ElementType;
use crate::import::call::{Call, Made};
use crate::import::ops::{Row, dynamic, whole};
use crate::import::plan::Action;

/// A layer of DynamicQuantizeLSTM. The node's own op gets operands that do not fit.
pub(crate) struct ByteLstm {
    pub(super) general: &'static Row,
    directions: Vec<Direction>,
    /// The number of hidden units.
    size: usize,
}

struct Direction {
    /// Of the input and of the state.
    weights: [Weight; 2],
    /// The sum of both biases, `[4H]`.
    bias: Tensor,
    reverse: bool,
}

/// A packed matrix of bytes with four gates as columns, in the order of the backend, and a zero point and a scale, or
/// one for each column.
struct Weight {
    bytes: Tensor,
    zero: Tensor,
    scale: Tensor,
}

impl Draft<'_> {
    /// Packs the weights of a DynamicQuantizeLSTM, if they are constants and the cell is the backend's.
    pub(super) fn byte_lstm(&mut self, i: usize) -> Result<()> {
        let Some(step) = self.step(i) else { return Ok(()) };
        let (Action::Op(general), node) = (&step.action, &step.node) else {
            return Ok(());
        };
        let general = *general;
        let (Some(reverse), true) = (directions(node), is_plain(node, Cell::Lstm)) else {
            return Ok(());
        };
        if self.slot(i, 4).is_some() || self.slot(i, 7).is_some() {
            return Ok(());
        }
        let Some(r) = self.tensor(i, 2)?.filter(|r| r.rank() == 3 && r.shape()[1] > 0) else {
            return Ok(());
        };
        let (count, size) = (reverse.len(), r.shape()[1]);
        let bias = match self.slot(i, 3) {
            None => Tensor::full([count, 8 * size], 0.0, (self.device, DType::F32))?,
            Some(_) => match self.tensor(i, 3)? {
                Some(bias) if bias.dims() == [count, 8 * size] && bias.dtype() == DType::F32 => bias,
                _ => return Ok(()),
            },
        };
        let mut made = Vec::with_capacity(count);
        for (at, &reverse) in reverse.iter().enumerate() {
            let of = |operand, scale| self.byte_weight((i, operand, scale), (at, count), size);
            let (Some(input), Some(own)) = (of(1, 8)?, of(2, 10)?) else {
                return Ok(());
            };
            if own.bytes.dims() != [size, 4 * size] {
                return Ok(());
            }
            let bias = bias.select(0, at as isize)?;
            let sum = (bias.narrow(0, 0, 4 * size)? + bias.narrow(0, 4 * size, 4 * size)?)?;
            made.push(Direction {
                weights: [input, own],
                bias: ordered(&sum, size)?,
                reverse,
            });
        }
        let layer = ByteLstm {
            general,
            directions: made,
            size,
        };
        if let Some(step) = &mut self.steps[i] {
            step.action = Action::Fused(Box::new(Fused::ByteLstm(layer)));
        }
        Ok(())
    }

    /// The weight of direction `at` of `count`: an operand `[count, inputs, 4H]` with scales, and zero points behind
    /// them, each `[count]` or `[count, 4H]`.
    fn byte_weight(
        &self,
        (i, operand, scale): (usize, usize, usize),
        (at, count): (usize, usize),
        size: usize,
    ) -> Result<Option<Weight>> {
        let element = |operand: usize| self.constant(i, operand).and_then(|value| value.element());
        let Some(found @ (ElementType::U8 | ElementType::I8)) = element(operand) else {
            return Ok(None);
        };
        let (Some(values), Some(scales), Some(zeros)) = (
            self.tensor(i, operand)?,
            self.tensor(i, scale)?,
            self.tensor(i, scale + 1)?,
        ) else {
            return Ok(None);
        };
        let each = |x: &Tensor| x.dims() == [count] || x.dims() == [count, 4 * size];
        let fits = values.rank() == 3 && values.shape()[0] == count && values.shape()[2] == 4 * size;
        if !fits || !each(&scales) || !each(&zeros) || element(scale + 1) != Some(found) || scales.dtype() != DType::F32
        {
            return Ok(None);
        }
        let of = |x: &Tensor| -> Result<Tensor> {
            let x = x.select(0, at as isize)?;
            if x.rank() == 0 {
                x.reshape([1])
            } else {
                ordered(&x, size)
            }
        };
        let bytes = |x: &Tensor| of(&whole::bytes(x, found)?);
        Ok(Some(Weight {
            bytes: inference::prepacked(&bytes(&values)?, Prepack::MatmulU8)?,
            zero: bytes(&zeros)?,
            scale: of(&scales)?,
        }))
    }
}

/// The last axis, which has four gates in ONNX's order, in the order of the backend.
fn ordered(x: &Tensor, size: usize) -> Result<Tensor> {
    let gates = Cell::Lstm.gates().iter();
    let parts = gates
        .map(|gate| x.narrow(-1, gate * size, size))
        .collect::<Result<Vec<_>>>()?;
    Tensor::cat(&parts.iter().collect::<Vec<_>>(), -1)
}

impl Weight {
    /// Rows of bytes, with their scale and zero point, times the weight, plus a bias.
    fn product(&self, [rows, scale, zero]: &[Tensor; 3], bias: Option<&Tensor>) -> Result<Tensor> {
        let scale = (scale * &self.scale)?;
        inference::matmul_rescale_u8(rows, &self.bytes, [zero, &self.zero], &scale, bias)
    }
}

impl ByteLstm {
    /// `None` if the node's own op must take the operands.
    pub(super) fn run(&self, c: &Call<'_>) -> Result<Option<Made>> {
        let x = c.x(0)?;
        let (shape, count) = (x.shape(), self.directions.len());
        let &[steps, batch, inputs] = shape.dims() else {
            return Ok(None);
        };
        c.reserve(&[steps, batch.max(1), 4 * self.size, count], DType::F32)?;
        let wanted = Shape::new(&[count, batch, self.size])?;
        let state = |i: usize| -> Result<Tensor> {
            match c.opt(i)? {
                Some(state) => Ok(state),
                None => c.full(&wanted, 0.0, DType::F32),
            }
        };
        let states = [state(5)?, state(6)?];
        let fits = |x: &Tensor| x.dtype() == DType::F32 && !x.is_tracked();
        let fits = fits(&x) && states.iter().all(|state| fits(state) && state.shape() == wanted);
        let taken = self
            .directions
            .iter()
            .all(|direction| direction.weights[0].bytes.shape()[0] == inputs);
        if !fits || !taken || shape.numel() == 0 {
            return Ok(None);
        }
        let bytes = dynamic(&x.reshape([steps * batch, inputs])?)?;
        let (mut outputs, mut hiddens, mut cells) = (Several::new(), Several::new(), Several::new());
        for (at, direction) in self.directions.iter().enumerate() {
            let [input, own] = &direction.weights;
            let gates = input.product(&bytes, Some(&direction.bias))?;
            let first = |state: &Tensor| state.select(0, at as isize);
            let (mut hidden, mut cell) = (first(&states[0])?, first(&states[1])?);
            let mut made: Vec<Tensor> = Vec::with_capacity(steps);
            for step in 0..steps {
                c.limits.step()?;
                let step = if direction.reverse { steps - 1 - step } else { step };
                let sum = (own.product(&dynamic(&hidden)?, None)? + gates.narrow(0, step * batch, batch)?)?;
                (hidden, cell) = sum.lstm_cell(&cell)?;
                made.push(hidden.clone());
            }
            if direction.reverse {
                made.reverse();
            }
            outputs.push(Tensor::stack(&made.iter().collect::<Vec<_>>(), 0)?);
            hiddens.push(hidden);
            cells.push(cell);
        }
        Ok(Some(smallvec![
            join(&outputs, 1)?.into(),
            join(&hiddens, 0)?.into(),
            join(&cells, 0)?.into(),
        ]))
    }
}

/// A tensor for each direction.
type Several = SmallVec<[Tensor; 2]>;
