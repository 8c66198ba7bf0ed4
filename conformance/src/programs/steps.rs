//! The reference with the steps of its fused ops perturbed, to show their intermediate rounding, which is not visible
//! in results.

use std::fmt;
use std::sync::Arc;

use polygrad_core::{
    Activation, ArgOp, Axes, Backend, BinaryOp, Capabilities, CompareOp, ConvParams, DType, HostTensor, PoolParams,
    ReduceOp, Result, Scalar, Shape, SliceRange, UnaryOp, decompose,
};
use polygrad_reference::{Reference, ReferenceDevice, ReferenceTensor};

use super::noise::Disturbing;

/// The backend. All of its fused ops use the default decompositions, so that each of their steps is one of the methods
/// below.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stepwise;

/// A device, with the perturbation of its steps.
#[derive(Clone)]
pub(super) struct Place(pub(super) Arc<Disturbing>);

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("reference, step by step")
    }
}

/// A tensor of the reference, and its device.
#[derive(Clone)]
pub(super) struct Value {
    tensor: ReferenceTensor,
    place: Place,
}

impl Value {
    /// The result of a call that moves or selects values, and rounds nothing.
    fn exact(&self, result: Result<ReferenceTensor>) -> Result<Self> {
        Ok(Self {
            tensor: result?,
            place: self.place.clone(),
        })
    }

    /// The result of a call that rounds.
    fn rounded(&self, result: Result<ReferenceTensor>) -> Result<Self> {
        let tensor = result?;
        if !Reference::dtype(&tensor).is_float() {
            return self.exact(Ok(tensor));
        }
        match self.place.0.step(|| Reference::to_host(&tensor))? {
            None => self.exact(Ok(tensor)),
            Some(disturbed) => self.exact(Reference::from_host(disturbed, &ReferenceDevice)),
        }
    }
}

impl Backend for Stepwise {
    type Tensor = Value;
    type Device = Place;

    fn name() -> &'static str {
        "stepwise"
    }

    fn capabilities(_: &Place) -> Capabilities {
        Reference::capabilities(&ReferenceDevice)
    }

    fn synchronize(_: &Place) -> Result<()> {
        Ok(())
    }

    fn shape(x: &Value) -> Shape {
        Reference::shape(&x.tensor)
    }

    fn dtype(x: &Value) -> DType {
        Reference::dtype(&x.tensor)
    }

    fn device(x: &Value) -> Place {
        x.place.clone()
    }

    fn from_host(host: HostTensor, place: &Place) -> Result<Value> {
        made(place, Reference::from_host(host, &ReferenceDevice))
    }

    fn to_host(x: &Value) -> Result<HostTensor> {
        Reference::to_host(&x.tensor)
    }

    fn full(shape: Shape, value: Scalar, dtype: DType, place: &Place) -> Result<Value> {
        made(place, Reference::full(shape, value, dtype, &ReferenceDevice))
    }

    fn iota(len: usize, start: Scalar, step: Scalar, dtype: DType, place: &Place) -> Result<Value> {
        made(place, Reference::iota(len, start, step, dtype, &ReferenceDevice))
    }

    polygrad_core::backend_methods! {
        unary(op, x) => x.rounded(Reference::unary(op, &x.tensor)),
        compare(op, a, b) => a.exact(Reference::compare(op, &a.tensor, &b.tensor)),
        select(which, a, b) => a.exact(Reference::select(&which.tensor, &a.tensor, &b.tensor)),
        cast(x, dtype) => x.rounded(Reference::cast(&x.tensor, dtype)),
        reduce(op, x, axes, keepdims) => x.rounded(Reference::reduce(op, &x.tensor, axes, keepdims)),
        arg_reduce(op, x, axis, keepdims) => x.exact(Reference::arg_reduce(op, &x.tensor, axis, keepdims)),
        cumsum(x, axis) => x.rounded(Reference::cumsum(&x.tensor, axis)),
        matmul(a, b) => a.rounded(Reference::matmul(&a.tensor, &b.tensor)),
        reshape(x, shape) => x.exact(Reference::reshape(&x.tensor, shape)),
        permute(x, axes) => x.exact(Reference::permute(&x.tensor, axes)),
        expand(x, shape) => x.exact(Reference::expand(&x.tensor, shape)),
        slice(x, ranges) => x.exact(Reference::slice(&x.tensor, ranges)),
        pad(x, padding, value) => x.exact(Reference::pad(&x.tensor, padding, value)),
        concat(xs, axis) => {
            let tensors: Vec<&ReferenceTensor> = xs.iter().map(|x| &x.tensor).collect();
            xs[0].exact(Reference::concat(&tensors, axis))
        },
        gather(x, axis, index) => x.exact(Reference::gather(&x.tensor, axis, &index.tensor)),
        scatter(x, axis, index, src) => x.exact(Reference::scatter(&x.tensor, axis, &index.tensor, &src.tensor)),
        scatter_add(x, axis, index, src) =>
            x.rounded(Reference::scatter_add(&x.tensor, axis, &index.tensor, &src.tensor)),
        index_select(x, axis, index) => x.exact(Reference::index_select(&x.tensor, axis, &index.tensor)),
        sort(x, axis, descending) => {
            let (values, at) = Reference::sort(&x.tensor, axis, descending)?;
            Ok((x.exact(Ok(values))?, x.exact(Ok(at))?))
        },
        conv(x, weight, bias, residual, activation, params) => {
            let sums = x.rounded(Reference::conv(&x.tensor, &weight.tensor, None, None, None, params))?;
            decompose::epilogue::<Self>(sums, bias, residual, activation)
        },
        max_pool(x, params, positions) => {
            let (y, at) = Reference::max_pool(&x.tensor, params, positions)?;
            Ok((x.exact(Ok(y))?, at.map(|at| x.exact(Ok(at))).transpose()?))
        },
        avg_pool(x, params) => x.rounded(Reference::avg_pool(&x.tensor, params)),
    }

    fn binary(op: BinaryOp, a: &Value, b: &Value) -> Result<Value> {
        if op.is_fused() {
            return decompose::binary::<Self>(op, a, b);
        }
        a.rounded(Reference::binary(op, &a.tensor, &b.tensor))
    }
}

fn made(place: &Place, tensor: Result<ReferenceTensor>) -> Result<Value> {
    Ok(Value {
        tensor: tensor?,
        place: place.clone(),
    })
}
