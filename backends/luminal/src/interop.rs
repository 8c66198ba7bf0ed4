//! Conversion to and from tensors in a user's own luminal graph.

use luminal::graph::Graph;
use luminal::graph_tensor::GraphTensor;
use luminal::shape::{ConstShape, Shape as GraphShape};
use luminal::tensor::Tensor as GraphValue;
use polygrad_core::{DType, Error, ErrorKind, HostTensor, Result, Shape, room};

use crate::LuminalTensor;
use crate::values::Values;

/// Puts a tensor's value into a luminal graph, as a tensor that is kept when the graph runs. The value is computed if
/// it is pending, and copied, since luminal's graphs own their values.
///
/// # Errors
/// If the tensor is not of f32, if its shape is not `S`, or if it cannot be computed.
pub fn into_graph<S: ConstShape>(x: &LuminalTensor, graph: &mut Graph) -> Result<GraphTensor<S>> {
    let wanted = <S as ConstShape>::realized_shape();
    if wanted != x.shape().dims() {
        let message = format!("a tensor of shape {} was put into a graph as {wanted:?}", x.shape());
        return Err(Error::shape(message));
    }
    let values = x.to_host()?.to_vec::<f32>()?;
    let made = graph.named_tensor::<S>("Polygrad").keep();
    graph.set_tensor(made.id, 0, GraphValue::new(values));
    Ok(made)
}

/// Copies a value out of a luminal graph that has run. It must have been marked by `retrieve`.
///
/// # Errors
/// If the graph has no value for it, or one that is not of f32.
pub fn from_graph<S: GraphShape>(x: &GraphTensor<S>, graph: &Graph) -> Result<LuminalTensor> {
    let missing = || {
        Error::new(ErrorKind::InvalidArgument, "the graph has no value for this tensor")
            .with_hint("mark it with retrieve() and call execute() on the graph before")
    };
    let value = graph.get_tensor_ref(x.id, 0).ok_or_else(missing)?;
    let Some(values) = value.data.as_any().downcast_ref::<Vec<f32>>() else {
        return Err(Error::dtype("the graph's value is not of f32"));
    };
    let mut tracker = x.shape;
    tracker.resolve_global_dyn_dims(&graph.dyn_map);
    let dims: Option<Vec<usize>> = tracker.shape().iter().map(|dim| dim.to_usize()).collect();
    let shape = Shape::new(&dims.ok_or_else(missing)?)?;
    // Not by `GraphTensor::data`, which follows a pointer to where the graph was when the tensor was created.
    let (index, valid) = (tracker.index_expression(), tracker.valid_expression());
    let mut out = room(shape.numel())?;
    for i in 0..shape.numel() {
        out.push(match valid.exec_single_var(i) {
            0 => 0.0,
            _ => *values.get(index.exec_single_var(i)).ok_or_else(missing)?,
        });
    }
    Ok(LuminalTensor::new(shape, out))
}

impl TryFrom<HostTensor> for LuminalTensor {
    type Error = Error;

    /// Shares the memory if it is a vector.
    fn try_from(host: HostTensor) -> Result<Self> {
        let values = Values::from_host(&host)?;
        Ok(Self::known(*host.shape(), host.dtype(), values))
    }
}

impl TryFrom<&LuminalTensor> for HostTensor {
    type Error = Error;

    /// Computes the values if they are pending, and shares their memory if the tensor covers all of it in order.
    fn try_from(x: &LuminalTensor) -> Result<Self> {
        x.to_host()
    }
}

impl TryFrom<&LuminalTensor> for Vec<f32> {
    type Error = Error;

    fn try_from(x: &LuminalTensor) -> Result<Self> {
        if x.dtype() != DType::F32 {
            return Err(Error::dtype(format!("{} is not f32", x.dtype())));
        }
        x.to_host()?.to_vec::<f32>()
    }
}
