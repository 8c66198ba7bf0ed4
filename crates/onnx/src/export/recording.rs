//! Contents of a recording: values, the calls that produce them, and constants.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polygrad_core::{DType, Error, HostTensor, Result, Shape};

use super::call::Call;
use super::extent::{Extent, Symbol};
use super::symbols::Symbols;
use super::{OnnxTensor, Opset};
use crate::graph::{Node, ValueId};

/// The backend that records. Its device is a [`Recording`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Onnx;

/// A recording of one forward pass: the device of [`Onnx`]. A clone is a second handle to it.
#[derive(Clone)]
pub struct Recording(Arc<Mutex<State>>);

/// A value of a recording.
pub(super) struct Value {
    /// The shape, with the numbers that stand for symbols.
    pub(super) shape: Shape,
    pub(super) dtype: DType,
    /// The shape in terms of the symbols.
    pub(super) extents: Vec<Extent>,
    /// Its content, if known now.
    pub(super) constant: Option<HostTensor>,
    /// The name of an input, parameter or buffer, or of a value derived from them before the run.
    pub(super) name: Option<String>,
}

/// The state of a recording.
pub(super) struct State {
    pub(super) opset: Opset,
    pub(super) symbols: Symbols,
    pub(super) values: Vec<Value>,
    pub(super) nodes: Vec<Node>,
    pub(super) inputs: Vec<ValueId>,
    /// Where each symbol can be read when the model runs: an axis of a value.
    sources: HashMap<Symbol, (ValueId, usize)>,
    /// The node that produces a value.
    producers: HashMap<ValueId, usize>,
    /// The outputs of each call, so that no call is recorded twice.
    calls: HashMap<String, Vec<ValueId>>,
    /// Unnamed constants, by a hash of their content.
    constants: HashMap<u64, Vec<ValueId>>,
    /// Whether parameters are being loaded. Meanwhile constants are not shared, and may be random.
    pub(super) loading: bool,
    /// The layer that was recorded last.
    last_layer: String,
}

impl Recording {
    pub(super) fn new(opset: Opset, symbols: Symbols) -> Self {
        Self(Arc::new(Mutex::new(State {
            opset,
            symbols,
            values: Vec::new(),
            nodes: Vec::new(),
            inputs: Vec::new(),
            sources: HashMap::new(),
            producers: HashMap::new(),
            calls: HashMap::new(),
            constants: HashMap::new(),
            loading: true,
            last_layer: String::new(),
        })))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tensor of a value.
    pub(super) fn tensor(&self, id: ValueId) -> OnnxTensor {
        let state = self.state();
        let value = &state.values[id.index()];
        OnnxTensor {
            id,
            shape: value.shape,
            dtype: value.dtype,
            recording: self.clone(),
        }
    }

    /// Records a call and returns its outputs.
    pub(super) fn emit(&self, call: Call) -> Result<Vec<OnnxTensor>> {
        let ids = self.state().emit(call)?;
        Ok(ids.into_iter().map(|id| self.tensor(id)).collect())
    }

    /// Records a call with one output.
    pub(super) fn one(&self, call: Call) -> Result<OnnxTensor> {
        let id = self.state().one(call)?;
        Ok(self.tensor(id))
    }

    /// An unnamed constant.
    pub(super) fn constant(&self, host: HostTensor) -> OnnxTensor {
        let id = self.state().constant(host);
        self.tensor(id)
    }
}

impl State {
    /// Adds an input of the model.
    pub(super) fn input(&mut self, name: &str, dtype: DType, shape: Shape) -> Result<ValueId> {
        let id = self.value(shape, dtype, None)?;
        self.values[id.index()].name = Some(name.to_owned());
        self.inputs.push(id);
        self.learn_sources(id);
        Ok(id)
    }

    /// An unnamed constant. One with the same content is reused.
    pub(super) fn constant(&mut self, host: HostTensor) -> ValueId {
        if self.loading {
            return self.fixed_value(host, None);
        }
        let key = content_hash(&host);
        let same = |id: &&ValueId| {
            self.values[id.index()].constant.as_ref().is_some_and(|known| {
                known.dtype() == host.dtype() && known.shape() == host.shape() && known.bytes() == host.bytes()
            })
        };
        if let Some(&known) = self.constants.get(&key).and_then(|known| known.iter().find(same)) {
            return known;
        }
        let id = self.fixed_value(host, None);
        self.constants.entry(key).or_default().push(id);
        id
    }

    /// A parameter, or a value derived from parameters before the run.
    pub(super) fn named_constant(&mut self, name: String, host: HostTensor) -> ValueId {
        let known = self.values.iter().position(|value| value.name.as_ref() == Some(&name));
        match known {
            Some(known) => ValueId(known as u32),
            None => self.fixed_value(host, Some(name)),
        }
    }

    fn fixed_value(&mut self, host: HostTensor, name: Option<String>) -> ValueId {
        let id = ValueId(self.values.len() as u32);
        self.values.push(Value {
            shape: *host.shape(),
            dtype: host.dtype(),
            extents: host.shape().iter().map(|&dim| Extent::fixed(dim as i64)).collect(),
            constant: Some(host),
            name,
        });
        id
    }

    /// Names a constant: a parameter or a buffer.
    pub(super) fn set_name(&mut self, id: ValueId, name: &str) {
        self.values[id.index()].name = Some(name.to_owned());
    }

    /// A new value. `walked` is the operand from whose extents the op computes the output's, so that symbolic extents
    /// can be derived from them.
    fn value(&mut self, shape: Shape, dtype: DType, walked: Option<ValueId>) -> Result<ValueId> {
        let id = ValueId(self.values.len() as u32);
        let mut extents = Vec::with_capacity(shape.rank());
        for (axis, &dim) in shape.iter().enumerate() {
            let read = self.symbols.read(dim);
            let from = walked.and_then(|walked| self.values[walked.index()].extents.get(axis));
            let follows = from.is_some_and(Extent::is_symbolic);
            extents.push(match read {
                Ok(extent) if !follows || extent.is_symbolic() => extent,
                _ if follows => {
                    let extent = self.symbols.derive(dim)?;
                    let symbol = extent.terms[0].1[0];
                    self.sources.insert(symbol, (id, axis));
                    extent
                }
                other => other?,
            });
        }
        self.values.push(Value {
            shape,
            dtype,
            extents,
            constant: None,
            name: None,
        });
        Ok(id)
    }

    fn learn_sources(&mut self, id: ValueId) {
        for (axis, extent) in self.values[id.index()].extents.iter().enumerate() {
            if let [(1, symbols)] = &extent.terms[..]
                && let [symbol] = symbols[..]
                && extent.offset == 0
            {
                self.sources.entry(symbol).or_insert((id, axis));
            }
        }
    }

    /// Records a call, unless an equal one was recorded before, and returns its outputs.
    pub(super) fn emit(&mut self, call: Call) -> Result<Vec<ValueId>> {
        let key = call.key();
        if let Some(known) = self.calls.get(&key) {
            return Ok(known.clone());
        }
        if let Some(undone) = self.undone(&call) {
            return Ok(vec![undone]);
        }
        let given = call.inputs.iter().flatten().map(|id| self.values[id.index()].dtype);
        let mut dtypes = given.chain(call.outputs.iter().map(|&(_, dtype)| dtype));
        let lacking = dtypes.find(|&dtype| !self.opset.has_dtype(call.op, dtype));
        if let Some(narrow) = lacking {
            return self.in_f32(call, narrow);
        }
        let outputs = self.append(call)?;
        self.calls.insert(key, outputs.clone());
        Ok(outputs)
    }

    /// Records in f32, with casts around it, a call that the opset lacks in a narrow dtype.
    fn in_f32(&mut self, mut call: Call, narrow: DType) -> Result<Vec<ValueId>> {
        for id in call.inputs.iter_mut().flatten() {
            if self.values[id.index()].dtype == narrow {
                *id = self.cast(*id, narrow, DType::F32)?;
            }
        }
        let dtypes: Vec<DType> = call.outputs.iter().map(|&(_, dtype)| dtype).collect();
        for (_, dtype) in &mut call.outputs {
            if *dtype == narrow {
                *dtype = DType::F32;
            }
        }
        let wide = self.emit(call)?;
        let outputs = wide.into_iter().zip(dtypes);
        let outputs = outputs.map(|(id, dtype)| match dtype == narrow {
            true => self.cast(id, DType::F32, narrow),
            false => Ok(id),
        });
        outputs.collect()
    }

    /// Records a call without looking for an equal one, and returns its outputs.
    pub(super) fn append(&mut self, call: Call) -> Result<Vec<ValueId>> {
        let outputs: Vec<ValueId> = (call.outputs.iter())
            .map(|&(shape, dtype)| self.value(shape, dtype, call.walked))
            .collect::<Result<_>>()
            .map_err(|e| e.with_op(call.op))?;
        for &output in &outputs {
            self.producers.insert(output, self.nodes.len());
        }
        self.nodes.push(Node {
            op_type: call.op.to_owned(),
            inputs: call.inputs,
            outputs: outputs.iter().copied().map(Some).collect(),
            attributes: call.attributes,
            ..Node::default()
        });
        Ok(outputs)
    }

    /// Records a call with one output.
    pub(super) fn one(&mut self, call: Call) -> Result<ValueId> {
        Ok(self.emit(call)?[0])
    }

    /// A second value with the same content.
    pub(super) fn copy(&mut self, id: ValueId) -> ValueId {
        let of = &self.values[id.index()];
        let copied = Value {
            constant: None,
            name: None,
            shape: of.shape,
            dtype: of.dtype,
            extents: of.extents.clone(),
        };
        let new = ValueId(self.values.len() as u32);
        self.values.push(copied);
        self.nodes.push(Node {
            op_type: "Identity".to_owned(),
            inputs: vec![Some(id)],
            outputs: vec![Some(new)],
            ..Node::default()
        });
        new
    }

    /// Sets the layer of the calls recorded since a value was created, unless they have one already.
    pub(super) fn place_since(&mut self, id: ValueId, layer: &str) {
        if !layer.is_empty() {
            layer.clone_into(&mut self.last_layer);
        }
        let first = self.producers.get(&id).map_or(0, |node| node + 1);
        for node in self.nodes.iter_mut().skip(first).filter(|node| node.name.is_empty()) {
            layer.clone_into(&mut node.name);
        }
    }

    /// The value that a call would restore, if the call only undoes the one before it.
    fn undone(&self, call: &Call) -> Option<ValueId> {
        let undoes = |op: &str| match op {
            "Unsqueeze" => Some("Squeeze"),
            "Squeeze" => Some("Unsqueeze"),
            _ => None,
        };
        let opposite = undoes(call.op)?;
        let before = &self.nodes[*self.producers.get(call.inputs.first()?.as_ref()?)?];
        (before.op_type == opposite && before.inputs.get(1) == call.inputs.get(1)).then(|| before.inputs[0])?
    }

    /// Where an extent's symbol is read when the model runs.
    pub(super) fn source(&self, symbol: Symbol) -> Result<(ValueId, usize)> {
        let found = self.sources.get(&symbol).copied();
        found.ok_or_else(|| Error::unsupported("an extent is needed before anything that has it is there"))
    }
}

/// A hash of the content: equal for equal content.
fn content_hash(host: &HostTensor) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (host.dtype().name(), host.shape(), host.bytes()).hash(&mut hasher);
    hasher.finish()
}

impl PartialEq for Recording {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Display for Recording {
    /// Includes what helps to understand an error: the numbers that stand for symbols, and how far the forward pass has
    /// come.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let mut notes = state.symbols.legend();
        if !state.last_layer.is_empty() {
            let comma = if notes.is_empty() { "" } else { ", " };
            notes = format!("{notes}{comma}after layer {}", state.last_layer);
        }
        if notes.is_empty() {
            return f.write_str("onnx");
        }
        write!(f, "onnx ({notes})")
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recording({} nodes)", self.state().nodes.len())
    }
}
