//! Fuses several ops into one that backends have.
//!
//! A value between two steps may be eliminated only if the later step is its only reader, reads it once, and
//! it is not an output.

use std::collections::{HashMap, HashSet};

use super::{Action, Program, Slot, Step};
use crate::{
    Activation, AnyBackend, AnyTensor, Axes, Backend, BinaryOp, Op, Prepack, Result, Shape, UnaryOp, decompose,
};

/// Weights of products of this many rows or more are not prepacked. Packing in each product is less than 2 % of the
/// work, while a packed copy takes as much memory as the weight, once for each pass.
const MANY_ROWS: usize = 1024;

/// Products of at most this many rows multiply them one by one, and not by packed weights.
const FEW_ROWS: usize = 3;

pub(super) fn fuse(program: &mut Program) -> Result<()> {
    let mut draft = Draft::new(program);
    draft.pool_before_relu();
    for i in 0..draft.program.steps.len() {
        draft.linear(i)?;
        draft.values_alone(i);
        while draft.merge(i)? {}
    }
    draft.prepack()
}

/// A program that is being optimized.
struct Draft<'a> {
    /// The step that computes each value.
    made: HashMap<Slot, usize>,
    constants: HashMap<Slot, AnyTensor>,
    /// Constant weights, and their transposes for linear layers.
    turned: HashMap<Slot, Slot>,
    uses: Vec<u32>,
    program: &'a mut Program,
}

impl<'a> Draft<'a> {
    fn new(program: &'a mut Program) -> Self {
        let steps = program.steps.iter().enumerate();
        Self {
            made: steps
                .flat_map(|(i, step)| step.outputs.iter().map(move |&slot| (slot, i)))
                .collect(),
            constants: program.constants.iter().cloned().collect(),
            turned: HashMap::new(),
            uses: program.uses(),
            program,
        }
    }

    fn op(&self, i: usize) -> Option<&Op> {
        match &self.program.steps[i].action {
            Action::Op(op) => Some(op),
            _ => None,
        }
    }

    fn shape(&self, slot: Slot) -> &Shape {
        &self.program.types[slot.index()].0
    }

    fn add_constant(&mut self, tensor: AnyTensor) -> Slot {
        let slot = Slot(self.program.types.len() as u32);
        self.program.types.push((tensor.shape(), tensor.dtype()));
        self.program.constants.push((slot, tensor.clone()));
        self.constants.insert(slot, tensor);
        self.uses.push(0);
        slot
    }

    /// Replaces step `i`. Values that it no longer reads are removed later.
    fn replace(&mut self, i: usize, op: Op, inputs: Vec<Slot>) {
        let step = &mut self.program.steps[i];
        step.action = Action::Op(op);
        let before = std::mem::replace(&mut step.inputs, inputs);
        for slot in before {
            self.uses[slot.index()] -= 1;
        }
        for slot in &step.inputs {
            self.uses[slot.index()] += 1;
        }
    }

    /// The step that makes the `k`-th input of step `i`, together with that input, if nothing else
    /// uses any of its results.
    fn only_for(&self, i: usize, k: usize) -> Option<(&Step, Slot)> {
        let &slot = self.program.steps[i].inputs.get(k)?;
        let step = &self.program.steps[*self.made.get(&slot)?];
        (step.outputs.len() == 1 && self.uses[slot.index()] == 1).then_some((step, slot))
    }

    /// A product with a constant weight becomes a linear layer, whose weight can be prepacked.
    fn linear(&mut self, i: usize) -> Result<()> {
        let (Some(Op::Matmul), &[x, weight]) = (self.op(i), &*self.program.steps[i].inputs) else {
            return Ok(());
        };
        let Some(tensor) = self.constants.get(&weight) else {
            return Ok(());
        };
        if tensor.shape().rank() == 2 && tensor.dtype().is_float() {
            // Transposed once, so that all products with this weight share one packed form.
            let turned = match self.turned.get(&weight) {
                Some(&turned) => turned,
                None => {
                    let turned = self.add_constant(AnyBackend::permute(tensor, Axes::new([1, 0])?)?);
                    self.turned.insert(weight, turned);
                    turned
                }
            };
            self.replace(i, Op::Linear { activation: None }, vec![x, turned]);
        }
        Ok(())
    }

    /// Max pooling does not compute its positions if they are not used.
    fn values_alone(&mut self, i: usize) {
        let step = &mut self.program.steps[i];
        if let (Action::Op(Op::MaxPool { positions, .. }), &[_, places]) = (&mut step.action, &*step.outputs)
            && self.uses[places.index()] == 0
        {
            *positions = false;
            step.outputs.truncate(1);
        }
    }

    /// Fuses a step into the step after it, whose position it takes. Values last used by the earlier step must live
    /// until then.
    fn merge(&mut self, i: usize) -> Result<bool> {
        let Some(op) = self.op(i).cloned() else {
            return Ok(false);
        };
        let merged = match op {
            Op::Activation(op) => self.activation(i, op),
            Op::Unary(UnaryOp::Relu) => self.activation(i, Activation::Relu),
            Op::Binary(BinaryOp::Add) => match self.addition(i, 0)? {
                None => self.addition(i, 1)?,
                merged => merged,
            },
            Op::BatchNormRunning { eps } => self.batch_norm(i, eps)?,
            Op::Reshape(_) => self.reshape(i, op),
            _ => None,
        };
        let Some((op, inputs)) = merged else {
            return Ok(false);
        };
        self.replace(i, op, inputs);
        Ok(true)
    }

    fn activation(&self, i: usize, activation: Activation) -> Merged {
        let (step, _) = self.only_for(i, 0)?;
        let activation = Some(activation);
        let op = match step.action {
            Action::Op(Op::Linear { activation: None }) => Op::Linear { activation },
            Action::Op(Op::Conv {
                activation: None,
                params,
            }) => Op::Conv { activation, params },
            _ => return None,
        };
        Some((op, step.inputs.clone()))
    }

    /// A reshaped tensor is reshaped from its first shape.
    fn reshape(&self, i: usize, op: Op) -> Merged {
        let (step, _) = self.only_for(i, 0)?;
        matches!(step.action, Action::Op(Op::Reshape(_))).then(|| (op, step.inputs.clone()))
    }

    /// The convolution that computes the `k`-th input of a step, with its inputs; a bias of zeros is added if it has
    /// none. `None` if it has an activation, or its result has other uses.
    fn conv(&mut self, i: usize, k: usize) -> Result<Merged> {
        let Some((step, slot)) = self.only_for(i, k) else {
            return Ok(None);
        };
        let Action::Op(op @ Op::Conv { activation: None, .. }) = &step.action else {
            return Ok(None);
        };
        let (op, mut inputs) = (op.clone(), step.inputs.clone());
        if inputs.len() == 2 {
            let (channels, dtype) = (self.shape(slot)[1], self.program.types[slot.index()].1);
            let bias = AnyBackend::zeros(Shape::from([channels]), dtype, &self.program.device)?;
            inputs.push(self.add_constant(bias));
        }
        Ok(Some((op, inputs)))
    }

    /// A sum whose operand `k` is a product or a convolution: the other operand becomes its bias or residual.
    fn addition(&mut self, i: usize, k: usize) -> Result<Merged> {
        let Some((step, slot)) = self.only_for(i, k) else {
            return Ok(None);
        };
        let (shape, other) = (*self.shape(slot), self.program.steps[i].inputs[1 - k]);
        if *self.shape(self.program.steps[i].outputs[0]) != shape {
            return Ok(None);
        }
        // A bias lies along the last axis of a product, or along the channels of a convolution.
        let (op, axis) = match &step.action {
            Action::Op(op @ Op::Linear { activation: None }) => (op.clone(), shape.rank() - 1),
            Action::Op(op @ Op::Conv { activation: None, .. }) => (op.clone(), 1),
            _ => return Ok(None),
        };
        let mut inputs = step.inputs.clone();
        if let Some(bias) = self.constants.get(&other)
            && inputs.len() == 2
            && is_along(&bias.shape(), axis, &shape)
        {
            let bias = AnyBackend::reshape(bias, Shape::from([shape[axis]]))?;
            inputs.push(self.add_constant(bias));
            return Ok(Some((op, inputs)));
        }
        if *self.shape(other) != shape {
            return Ok(None);
        }
        Ok(self.conv(i, k)?.and_then(|(op, mut inputs)| {
            (inputs.len() == 3).then(|| {
                inputs.push(other);
                (op, inputs)
            })
        }))
    }

    /// Folds a normalization with constant statistics into the weight and bias of the convolution before it.
    fn batch_norm(&mut self, i: usize, eps: f64) -> Result<Merged> {
        let Some((op, inputs)) = self.conv(i, 0)? else {
            return Ok(None);
        };
        let norm = self.program.steps[i].inputs[1..].to_vec();
        let constant = |slot: &Slot| self.constants.get(slot);
        let (&[x, weight, bias], Some(norm)) = (&*inputs, norm.iter().map(constant).collect::<Option<Vec<_>>>()) else {
            return Ok(None);
        };
        let (Some(weight), Some(bias)) = (constant(&weight), constant(&bias)) else {
            return Ok(None);
        };
        if norm.iter().any(|x| x.dtype() != weight.dtype()) {
            return Ok(None);
        }
        let affine = [2, 3].map(|place| norm.get(place).copied());
        let folded = decompose::fold_batch_norm::<AnyBackend>([weight, bias], [norm[0], norm[1]], affine, eps)?;
        let [weight, bias] = folded.map(|x| self.add_constant(x));
        Ok(Some((op, vec![x, weight, bias])))
    }

    /// In a training step, moves ReLU from before max pooling to after it, where it has less to compute, forwards and
    /// backwards. Both orders give the same values and gradients: ReLU is monotonic, and no gradient flows where it
    /// zeroes a maximum.
    fn pool_before_relu(&mut self) {
        for pool in 0..self.program.steps.len() {
            let Some(Op::MaxPool { .. }) = self.op(pool) else {
                continue;
            };
            let cut = self.program.steps[pool].inputs[0];
            let Some(&relu) = self.made.get(&cut) else { continue };
            if !matches!(self.op(relu), Some(Op::Activation(Activation::Relu))) || self.uses[cut.index()] != 2 {
                continue;
            }
            let [values, positions] = self.program.steps[pool].outputs[..] else {
                continue;
            };
            // If ReLU zeroes a whole window, the positions change, so they must have no other reader.
            if self.uses[positions.index()] != 1 {
                continue;
            }
            let Some((grad_pool, grad_relu)) = self.backward(cut, positions) else {
                continue;
            };
            let steps = &mut self.program.steps;
            // ReLU now takes the maxima, and the gradient of the maxima is now that of ReLU's output.
            let (grad, between) = (steps[grad_pool].inputs[0], steps[grad_pool].outputs[0]);
            let (first, second) = (steps[relu].action.clone(), steps[pool].action.clone());
            steps[relu].action = second;
            steps[relu].outputs = vec![cut, positions];
            steps[pool].action = first;
            steps[pool].inputs = vec![cut];
            steps[pool].outputs = vec![values];
            let (first, second) = (steps[grad_pool].action.clone(), steps[grad_relu].action.clone());
            steps[grad_pool].action = second;
            steps[grad_pool].inputs = vec![grad, values];
            steps[grad_relu].action = first;
            steps[grad_relu].inputs = vec![between, positions];
            self.made.insert(positions, relu);
            self.uses[cut.index()] -= 1;
            self.uses[values.index()] += 1;
            let pooled = self.program.types[values.index()];
            self.program.types[cut.index()] = pooled;
            self.program.types[between.index()] = pooled;
        }
    }

    /// The step that computes the gradient of max pooling with these positions, and the step after it that computes the
    /// gradient of the ReLU with this output. `None` if the first's result has other uses.
    fn backward(&self, cut: Slot, positions: Slot) -> Option<(usize, usize)> {
        let steps = self.program.steps.iter().enumerate();
        let (relu, step) = steps.rev().find(|(_, step)| {
            matches!(step.action, Action::Op(Op::ActivationBackward(Activation::Relu))) && step.inputs[1] == cut
        })?;
        let (_, between) = self.only_for(relu, 0)?;
        let pool = *self.made.get(&between)?;
        let found = matches!(self.op(pool), Some(Op::MaxPoolBackward { .. }));
        (found && self.program.steps[pool].inputs[1] == positions && step.inputs[0] == between).then_some((pool, relu))
    }

    /// The number of input vectors of a linear layer.
    fn rows(&self, i: usize) -> usize {
        let dims = self.shape(self.program.steps[i].inputs[0]).dims();
        dims.iter().rev().skip(1).product()
    }

    /// Prepacks constant weights, after all passes that change them.
    fn prepack(&mut self) -> Result<()> {
        let mut ready: HashMap<(Slot, Prepack), Slot> = HashMap::new();
        let of_vectors: HashSet<Slot> = (0..self.program.steps.len())
            .filter(|&i| matches!(self.op(i), Some(Op::Linear { .. })) && self.rows(i) <= FEW_ROWS)
            .map(|i| self.program.steps[i].inputs[1])
            .collect();
        for i in 0..self.program.steps.len() {
            let (kind, places): (_, &[usize]) = match self.op(i) {
                Some(Op::Linear { .. }) if self.rows(i) >= MANY_ROWS => continue,
                Some(Op::Linear { .. }) if of_vectors.contains(&self.program.steps[i].inputs[1]) => {
                    (Prepack::Linear, &[1])
                }
                Some(Op::Linear { .. }) => (Prepack::LinearRows, &[1]),
                Some(Op::Conv { .. }) => (Prepack::Conv, &[1]),
                Some(Op::Rnn { .. } | Op::Gru { .. }) => (Prepack::Linear, &[2, 3]),
                Some(Op::Lstm { .. }) => (Prepack::Linear, &[3, 4]),
                _ => continue,
            };
            for &place in places {
                let slot = self.program.steps[i].inputs[place];
                let Some(weight) = self.constants.get(&slot) else {
                    continue;
                };
                let slot = match ready.get(&(slot, kind)) {
                    Some(&slot) => slot,
                    None => {
                        let packed = self.add_constant(AnyBackend::prepack(weight, kind)?);
                        ready.insert((slot, kind), packed);
                        packed
                    }
                };
                self.program.steps[i].inputs[place] = slot;
            }
        }
        Ok(())
    }
}

/// The op and inputs that replace a step; `None` if it stays.
type Merged = Option<(Op, Vec<Slot>)>;

/// Whether a tensor that is broadcast to `shape` varies along one axis only, and has its full extent there.
fn is_along(x: &Shape, axis: usize, shape: &Shape) -> bool {
    let left = shape.rank() - x.rank();
    axis >= left && x.numel() == shape[axis] && x[axis - left] == shape[axis]
}
