//! Kinds of fused steps, and how they are computed.

use polygrad_core::{Activation, BlockScheme, ConvParams, DType, PoolParams, Prepack, ReduceOp, Result, Shape};
use polygrad_tensor::{Attention, Tensor, inference};
use smallvec::{SmallVec, smallvec};

use super::attention::Masking;
use super::byte_lstm::ByteLstm;
use super::images;
use crate::import::call::{Call, Made, Results, one};
use crate::import::ops::{self, Forest, Row, matrices, product};

/// One op that replaces several.
pub(crate) enum Fused {
    /// Of `x`, a weight `[out, in]` and an optional bias `[out]`.
    Linear {
        /// Whether `x` must be a matrix.
        matrix: bool,
        /// The scheme of a weight that stays packed. Its scales and zero points are operands 3 and 4.
        packed: Option<BlockScheme>,
        activation: Option<Activation>,
    },
    /// Of `x`, a weight, a bias and an optional residual, which may have to be broadcast.
    Conv {
        params: ConvParams,
        activation: Option<Activation>,
    },
    /// The same without a residual, followed by max pooling.
    ConvPool {
        params: ConvParams,
        activation: Option<Activation>,
        pool: PoolParams,
    },
    /// Of floats; the node's own op handles other dtypes.
    MaxPool {
        params: PoolParams,
        general: &'static Row,
    },
    Recurrent(Recurrent),
    ByteLstm(ByteLstm),
    Forest(Forest),
    /// Of queries `[…, S, D]`, keys `[…, D, T]`, values `[…, T, E]` and an optional mask. A query that sees no key gets
    /// 0.
    Attention {
        scale: f64,
        /// The axis of the softmax.
        axis: i64,
        masking: Masking,
        /// Whether a weight that is NaN is replaced by 0.
        safe: bool,
    },
    /// Of bytes, and of the table of their results.
    Table,
    /// Of `x`, a scale and a zero point, both `[1]` in f32.
    Rounded {
        /// The least and the largest integer.
        bounds: [i32; 2],
    },
}

/// A layer of an LSTM or a GRU whose weights are in the order of the backend's kernel. If there is no such kernel, or a
/// gradient is wanted, the node's own op gets the operands, which are still those of the node.
pub(crate) struct Recurrent {
    pub(super) general: &'static Row,
    pub(super) cell: Cell,
    pub(super) directions: Vec<Direction>,
    /// The number of hidden units.
    pub(super) size: usize,
    pub(super) batch_first: bool,
}

/// A kind of cell.
#[derive(Clone, Copy)]
pub(super) enum Cell {
    Lstm,
    Gru {
        /// Whether the reset gate scales the product of the state rather than the state.
        reset_after: bool,
    },
}

impl Cell {
    /// The order of the gates: for each gate in Polygrad's order, its index in ONNX's.
    pub(super) const fn gates(self) -> &'static [usize] {
        match self {
            // Input, forget, cell, output; in ONNX input, output, forget, cell.
            Self::Lstm => &[0, 2, 3, 1],
            // Reset, update, new; in ONNX update, reset, new.
            Self::Gru { .. } => &[1, 0, 2],
        }
    }
}

pub(super) struct Direction {
    pub(super) weights: [Tensor; 2],
    pub(super) biases: [Tensor; 2],
    pub(super) reverse: bool,
}

impl Fused {
    pub(crate) fn run(&self, c: &Call<'_>) -> Results {
        match self {
            Self::Linear {
                packed: Some(scheme),
                activation,
                ..
            } => packed_linear(c, *scheme, *activation),
            Self::Linear { matrix, activation, .. } => linear(c, *matrix, *activation),
            Self::Conv { params, activation } => conv(c, params, *activation),
            Self::ConvPool {
                params,
                activation,
                pool,
            } => images::conv_pool(c, params, *activation, pool),
            Self::MaxPool { general, .. } if !floats(c)? => ops::apply(general, c),
            Self::MaxPool { params, .. } => {
                let x = c.x(0)?;
                c.limits.check(&params.output_shape(&x.shape())?, x.dtype())?;
                one(inference::max_pool(&x, params, false)?.0)
            }
            Self::Forest(forest) => forest.run(c),
            Self::Attention {
                scale,
                axis,
                masking,
                safe,
            } => attention(c, *scale, (*axis, *safe), *masking),
            Self::Table => {
                let (x, table) = (c.x(0)?, c.x(1)?);
                c.limits.check(&x.shape(), table.dtype())?;
                one(inference::lookup_u8(&x, &table)?)
            }
            Self::Rounded { bounds } => {
                let x = c.x(0)?.to_dtype(DType::F32)?;
                one(x.fake_quantize(&c.x(1)?, &c.x(2)?, *bounds, None)?)
            }
            Self::Recurrent(layer) => match layer.run(c)? {
                Some(results) => Ok(results),
                None => ops::apply(layer.general, c),
            },
            Self::ByteLstm(layer) => match layer.run(c)? {
                Some(results) => Ok(results),
                None => ops::apply(layer.general, c),
            },
        }
    }

    /// How its weight, which is operand 1, is prepacked.
    pub(super) const fn weight(&self) -> Option<Prepack> {
        match self {
            Self::Linear { packed: None, .. } => Some(Prepack::Linear),
            Self::Conv { .. } | Self::ConvPool { .. } => Some(Prepack::Conv),
            Self::Linear { .. }
            | Self::MaxPool { .. }
            | Self::Recurrent(_)
            | Self::ByteLstm(_)
            | Self::Forest(_)
            | Self::Attention { .. }
            | Self::Table
            | Self::Rounded { .. } => None,
        }
    }
}

/// Whether operand 0 has a float type that is not stored in a wider one.
fn floats(c: &Call<'_>) -> Result<bool> {
    let element = c.element(0)?;
    Ok(!element.is_widened() && element.dtype()?.is_float())
}

fn linear(c: &Call<'_>, matrix: bool, activation: Option<Activation>) -> Results {
    let (x, weight, bias) = (c.x(0)?, c.x(1)?, c.opt(2)?);
    if matrix {
        matrices(&x)?;
    }
    let shape = x.shape();
    if shape.rank() > 0 {
        c.limits
            .check(&shape.with_dim(shape.rank() - 1, weight.shape()[0]), x.dtype())?;
    }
    one(inference::linear(&x, &weight, bias.as_ref(), activation)?)
}

fn packed_linear(c: &Call<'_>, scheme: BlockScheme, activation: Option<Activation>) -> Results {
    let (weight, bias, scales, zeros) = (c.x(1)?, c.opt(2)?, c.x(3)?, c.x(4)?);
    let y = ops::packed_product(c, [&weight, &scales, &zeros], scheme, bias.as_ref())?;
    one(match activation {
        Some(op) => y.activation(op)?,
        None => y,
    })
}

fn conv(c: &Call<'_>, params: &ConvParams, activation: Option<Activation>) -> Results {
    let (x, weight, bias, residual) = (c.x(0)?, c.x(1)?, c.x(2)?, c.opt(3)?);
    let shape = params.output_shape(&x.shape(), &weight.shape())?;
    c.limits.check(&shape, x.dtype())?;
    ops::conv::windows_fit(c, &weight.shape(), &shape, x.dtype())?;
    match residual {
        // The residual would be broadcast, or the convolution would be broadcast to it.
        Some(residual) if residual.shape() != shape => {
            c.limits.check(&shape.broadcast(&residual.shape())?, x.dtype())?;
            let y = x.conv(&weight, Some(&bias), params)?.add(&residual)?;
            one(match activation {
                Some(op) => y.activation(op)?,
                None => y,
            })
        }
        residual => one(inference::conv(
            &x,
            &weight,
            Some(&bias),
            residual.as_ref(),
            activation,
            params,
        )?),
    }
}

fn attention(c: &Call<'_>, scale: f64, (axis, safe): (i64, bool), masking: Masking) -> Results {
    let (q, k, v, mask) = (c.x(0)?, c.x(1)?, c.x(2)?, c.opt(3)?);
    let rank = q.rank();
    let shapes = [q.shape(), k.shape(), v.shape()];
    let alike = rank >= 2
        && shapes
            .iter()
            .all(|shape| shape.rank() == rank && shape[..rank - 2] == shapes[0][..rank - 2]);
    if alike && shapes[0][rank - 1] == shapes[1][rank - 2] && shapes[1][rank - 1] == shapes[2][rank - 2] {
        let scores = shapes[0].with_dim(rank - 1, shapes[1][rank - 1]);
        c.limits
            .check(&shapes[0].with_dim(rank - 1, shapes[2][rank - 1]), q.dtype())?;
        let last = |axis: i64, rank: usize| axis == -1 || axis == rank as i64 - 1;
        let masked = mask.as_ref().is_none_or(|mask| {
            let by_key = !matches!(masking, Masking::Sight(axis) if !last(axis, mask.rank()));
            by_key && mask.shape().broadcasts_to(&scores)
        });
        if masked && q.dtype().is_float() && last(axis, rank) {
            let keys = k.transpose(-2, -1)?;
            return one(q.scaled_dot_product_attention(
                &keys,
                &v,
                Attention::new().mask(mask.as_ref()).scale(scale),
            )?);
        }
    }
    // Shapes that the separate nodes handle.
    let mut scores = product(c, &q, &k)?;
    if scale != 1.0 {
        scores = (scores * scale)?.to_dtype(q.dtype())?;
    }
    let scores = match (masking, &mask) {
        (Masking::None, _) | (_, None) => scores,
        (Masking::Sum, Some(mask)) => scores.add(mask)?,
        (Masking::Choice | Masking::Sight(_), Some(mask)) => {
            let hidden = c.full(&[], f64::NEG_INFINITY, q.dtype())?;
            Tensor::where_(mask, &scores, &hidden)?
        }
    };
    let mut weights = scores.softmax(axis as isize)?;
    if safe {
        weights = Tensor::where_(&weights.isnan()?, &c.full(&[], 0.0, q.dtype())?, &weights)?;
    }
    let y = product(c, &weights, &v)?;
    match (masking, mask) {
        (Masking::Sight(axis), Some(mask)) => {
            let sees = mask.reduce(ReduceOp::Any, axis as isize, true)?;
            c.limits.check(&sees.shape().broadcast(&y.shape())?, y.dtype())?;
            one(Tensor::where_(&sees, &y, &c.full(&[], 0.0, y.dtype())?)?)
        }
        _ => one(y),
    }
}

impl Recurrent {
    fn run(&self, c: &Call<'_>) -> Result<Option<Made>> {
        let turn = |x: Tensor| if self.batch_first { x.transpose(0, 1) } else { Ok(x) };
        let x = turn(c.x(0)?)?;
        let shape = x.shape();
        if shape.rank() != 3 || shape[0] == 0 {
            return Ok(None);
        }
        let (steps, batch, count) = (shape[0], shape[1], self.directions.len());
        let gates = self.cell.gates().len();
        c.reserve(&[steps, batch.max(1), gates * self.size.max(1), count], x.dtype())?;
        let state = |i: usize| -> Result<Tensor> {
            match c.opt(i)? {
                Some(state) => turn(state),
                None => c.full(&[count, batch, self.size], 0.0, x.dtype()),
            }
        };
        let states: SmallVec<[Tensor; 2]> = match self.cell {
            Cell::Lstm => smallvec![state(5)?, state(6)?],
            Cell::Gru { .. } => smallvec![state(5)?],
        };
        let wanted = Shape::new(&[count, batch, self.size])?;
        let native = x.dtype().is_float() && states.iter().all(|state| state.shape() == wanted);
        if !native || x.is_tracked() || states.iter().any(Tensor::is_tracked) {
            return Ok(None);
        }
        let mut outputs = Both::new();
        let mut last: SmallVec<[Both<Tensor>; 2]> = states.iter().map(|_| Both::new()).collect();
        for (i, direction) in self.directions.iter().enumerate() {
            let [input, own] = &direction.weights;
            let [input_bias, own_bias] = &direction.biases;
            let first = |state: usize| states[state].select(0, i as isize);
            let (weights, biases, reverse) = ([input, own], Some([input_bias, own_bias]), direction.reverse);
            let made: Option<(Tensor, Both<Tensor>)> = match self.cell {
                Cell::Lstm => x
                    .lstm_sequence((&first(0)?, &first(1)?), weights, biases, reverse)?
                    .map(|(y, h, c)| (y, smallvec![h, c])),
                Cell::Gru { reset_after } => x
                    .gru_sequence(&first(0)?, weights, biases, reset_after, reverse)?
                    .map(|(y, h)| (y, smallvec![h])),
            };
            let Some((y, ends)) = made else { return Ok(None) };
            outputs.push(y);
            last.iter_mut().zip(ends).for_each(|(last, end)| last.push(end));
        }
        for _ in 0..steps * count {
            c.limits.step()?;
        }
        let y = join(&outputs, 1)?;
        let y = if self.batch_first { y.permute([2, 0, 1, 3])? } else { y };
        let mut results: Made = smallvec![y.into()];
        for ends in &last {
            results.push(turn(join(ends, 0)?)?.into());
        }
        Ok(Some(results))
    }
}

/// One value for each direction.
type Both<T> = SmallVec<[T; 2]>;

/// Stacks tensors along a new axis.
pub(super) fn join(parts: &[Tensor], axis: isize) -> Result<Tensor> {
    match parts {
        [one] => one.unsqueeze(axis),
        parts => Tensor::stack(&parts.iter().collect::<Both<_>>(), axis),
    }
}
