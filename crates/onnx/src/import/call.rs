//! An op's view of the node that calls it.

use polygrad_core::{DType, Element, Error, ErrorKind, HostTensor, MAX_RANK, Result, Scalar, Shape};
use polygrad_tensor::{Device, Tensor};
use smallvec::{SmallVec, smallvec};

use super::limits::Limits;
use super::value::Value;
use crate::graph::{Attribute, ElementType, Literal, Node, malformed};

/// The results of an op, in the order of the node's outputs; trailing ones may be missing.
pub(crate) type Results = Result<Made>;

/// Usually one result and, except for parts of a split, at most the three of an LSTM, which are stored without an
/// allocation.
pub(crate) type Made = SmallVec<[Value; 3]>;

/// The operands of a body, in the order of its inputs.
pub(crate) type Operands = SmallVec<[Value; 4]>;

/// Usually a number for each axis, which is stored without an allocation.
pub(crate) type List<T> = SmallVec<[T; MAX_RANK]>;

/// Approximate size of a tensor without its elements, in bytes.
pub(crate) const HANDLE: usize = 256;

/// The bodies in a node's attributes, by the attribute's name.
pub(crate) trait Bodies {
    fn has(&self, name: &str) -> bool;
    fn run(&self, name: &str, inputs: Operands) -> Results;
}

/// One call of an op: its operands and attributes.
pub(crate) struct Call<'a> {
    pub(crate) node: &'a Node,
    pub(crate) inputs: &'a [Option<Value>],
    pub(crate) bodies: &'a dyn Bodies,
    /// The version of the op's domain.
    pub(crate) version: i64,
    pub(crate) device: &'a Device,
    pub(crate) limits: &'a Limits,
}

impl Call<'_> {
    // Operands.

    /// The operand at an index, if it is given.
    pub(crate) fn value(&self, i: usize) -> Option<&Value> {
        self.inputs.get(i)?.as_ref()
    }

    pub(crate) fn need(&self, i: usize) -> Result<&Value> {
        self.value(i)
            .ok_or_else(|| malformed(format!("operand {i} is missing")))
    }

    pub(crate) fn has(&self, i: usize) -> bool {
        self.value(i).is_some()
    }

    /// Whether the node uses the output at an index.
    pub(crate) fn wants(&self, i: usize) -> bool {
        self.node.outputs.get(i).is_some_and(Option::is_some)
    }

    pub(crate) fn x(&self, i: usize) -> Result<Tensor> {
        self.need(i)?.tensor(self.device).map_err(|e| at_operand(e, i))
    }

    pub(crate) fn opt(&self, i: usize) -> Result<Option<Tensor>> {
        self.value(i).map(|_| self.x(i)).transpose()
    }

    pub(crate) fn all(&self) -> Result<SmallVec<[Tensor; 4]>> {
        (0..self.inputs.len()).map(|i| self.x(i)).collect()
    }

    pub(crate) fn shape(&self, i: usize) -> Result<Shape> {
        let shape = self.need(i)?.shape();
        shape.ok_or_else(|| malformed(format!("operand {i} is no tensor")))
    }

    pub(crate) fn element(&self, i: usize) -> Result<ElementType> {
        let element = self.need(i)?.element();
        element.ok_or_else(|| malformed(format!("operand {i} is no tensor")))
    }

    /// The values on the host, for ops that are not computed on the device. It is an error if a gradient is requested,
    /// since none flows through the host.
    pub(crate) fn host(&self, i: usize) -> Result<HostTensor> {
        let value = self.need(i)?;
        if value.is_tracked() {
            return Err(at_operand(self.no_gradient(), i));
        }
        value.host().map_err(|e| at_operand(e, i))
    }

    /// [`Call::host`] for a tensor made of operands.
    pub(crate) fn off_device(&self, x: &Tensor) -> Result<HostTensor> {
        if x.is_tracked() {
            Err(self.no_gradient())
        } else {
            x.to_host()
        }
    }

    /// [`Call::x`] for operands that get rounded. It is an error if a gradient is requested, since none flows through
    /// rounding.
    pub(crate) fn untracked(&self, i: usize) -> Result<Tensor> {
        match self.need(i)?.is_tracked() {
            true => Err(at_operand(self.no_gradient(), i)),
            false => self.x(i),
        }
    }

    fn no_gradient(&self) -> Error {
        let message = format!("{} passes no gradient on to this operand", self.node.op_type);
        Error::new(ErrorKind::NoGradient, message).with_hint("detach what leads there, or do not make it trainable")
    }

    /// The values as integers, in row-major order.
    pub(crate) fn ints(&self, i: usize) -> Result<List<i64>> {
        let host = self.host(i)?;
        if host.dtype().is_float() {
            return Err(malformed(format!("operand {i} is {}, not integers", host.dtype())));
        }
        Ok(List::from_slice(host.try_cast(DType::I64)?.as_slice()?))
    }

    pub(crate) fn opt_ints(&self, i: usize) -> Result<Option<List<i64>>> {
        self.value(i).map(|_| self.ints(i)).transpose()
    }

    /// The values as real numbers, in row-major order.
    pub(crate) fn floats(&self, i: usize) -> Result<Vec<f64>> {
        let host = self.host(i)?;
        self.limits.check(host.shape(), DType::F64)?;
        host.try_to_f64_vec()
    }

    /// The value of an operand that has one element.
    pub(crate) fn scalar(&self, i: usize) -> Result<Scalar> {
        let host = self.host(i)?;
        if host.shape().numel() != 1 {
            return Err(malformed(format!(
                "operand {i} has shape {}, not one element",
                host.shape()
            )));
        }
        Ok(match host.dtype() {
            DType::Bool => Scalar::Bool(host.to_f64_vec()[0] != 0.0),
            dtype if dtype.is_int() => Scalar::Int(host.cast(DType::I64).as_slice::<i64>()?[0]),
            _ => Scalar::Float(host.to_f64_vec()[0]),
        })
    }

    pub(crate) fn int_scalar(&self, i: usize) -> Result<i64> {
        Ok(self.scalar(i)?.to_i64())
    }

    // Attributes.

    pub(crate) fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.node.attribute(name)
    }

    pub(crate) fn int(&self, name: &str, default: i64) -> Result<i64> {
        Ok(self.opt_int(name)?.unwrap_or(default))
    }

    pub(crate) fn opt_int(&self, name: &str) -> Result<Option<i64>> {
        match self.attribute(name) {
            None => Ok(None),
            Some(Attribute::Int(value)) => Ok(Some(*value)),
            Some(other) => Err(wrong(name, other, "an integer")),
        }
    }

    pub(crate) fn flag(&self, name: &str, default: bool) -> Result<bool> {
        Ok(self.int(name, i64::from(default))? != 0)
    }

    /// An extent or count: not negative.
    pub(crate) fn count(&self, name: &str, default: usize) -> Result<usize> {
        match self.opt_int(name)? {
            None => Ok(default),
            Some(value) => size(value).map_err(|e| e.in_module(format!("attribute {name}"))),
        }
    }

    pub(crate) fn float(&self, name: &str, default: f64) -> Result<f64> {
        Ok(self.opt_float(name)?.unwrap_or(default))
    }

    pub(crate) fn opt_float(&self, name: &str) -> Result<Option<f64>> {
        match self.attribute(name) {
            None => Ok(None),
            Some(Attribute::Float(value)) => Ok(Some(f64::from(*value))),
            Some(other) => Err(wrong(name, other, "a real number")),
        }
    }

    pub(crate) fn text<'s>(&'s self, name: &str, default: &'s str) -> Result<&'s str> {
        match self.attribute(name) {
            None => Ok(default),
            Some(Attribute::String(value)) => Ok(value),
            Some(other) => Err(wrong(name, other, "text")),
        }
    }

    pub(crate) fn texts(&self, name: &str) -> Result<Option<&[String]>> {
        match self.attribute(name) {
            None => Ok(None),
            Some(Attribute::Strings(values)) => Ok(Some(values)),
            Some(other) => Err(wrong(name, other, "texts")),
        }
    }

    pub(crate) fn int_list(&self, name: &str) -> Result<Option<&[i64]>> {
        match self.attribute(name) {
            None => Ok(None),
            Some(Attribute::Ints(values)) => Ok(Some(values)),
            Some(other) => Err(wrong(name, other, "integers")),
        }
    }

    pub(crate) fn float_list(&self, name: &str) -> Result<Option<&[f32]>> {
        match self.attribute(name) {
            None => Ok(None),
            Some(Attribute::Floats(values)) => Ok(Some(values)),
            Some(other) => Err(wrong(name, other, "real numbers")),
        }
    }

    pub(crate) fn literal(&self, name: &str) -> Result<Option<&Literal>> {
        match self.attribute(name) {
            None => Ok(None),
            Some(Attribute::Tensor(value)) => Ok(Some(value)),
            Some(other) => Err(wrong(name, other, "a tensor")),
        }
    }

    /// Integers that are an operand in newer versions and an attribute in older ones.
    pub(crate) fn ints_either(&self, i: usize, name: &str) -> Result<Option<List<i64>>> {
        match self.opt_ints(i)? {
            Some(values) => Ok(Some(values)),
            None => Ok(self.int_list(name)?.map(List::from_slice)),
        }
    }

    /// An axis from an attribute, counted from the front, for a tensor of `rank`.
    pub(crate) fn axis(&self, name: &str, default: i64, rank: usize) -> Result<usize> {
        axis(self.int(name, default)?, rank)
    }

    /// The element type whose ONNX number is in an attribute. The number 0 means the same as no attribute, and ONNX
    /// Runtime's optimizer writes it.
    pub(crate) fn element_attribute(&self, name: &str) -> Result<Option<ElementType>> {
        let number = self.opt_int(name)?.filter(|&number| number != 0);
        let number = number.map(|n| i32::try_from(n).unwrap_or(-1));
        number.map(ElementType::from_number).transpose()
    }

    // Dtypes.

    /// The widest float dtype of the device, for intermediate values of an op.
    pub(crate) fn wide(&self) -> DType {
        if self.device.capabilities().dtypes.contains(&DType::F64) {
            DType::F64
        } else {
            DType::F32
        }
    }

    // Results.

    /// Fails if a tensor would exceed the memory limits of the run.
    pub(crate) fn reserve(&self, dims: &[usize], dtype: DType) -> Result<Shape> {
        let shape = Shape::new(dims)?;
        self.limits.check(&shape, dtype)?;
        Ok(shape)
    }

    /// An empty list with room for `count` values computed on the host. Fails as [`Call::reserve`], and if the memory
    /// cannot be allocated.
    pub(crate) fn list<T>(&self, count: usize) -> Result<Vec<T>> {
        self.limits.list(count)
    }

    /// The values of an iterator of known length, in memory allocated by [`Call::list`].
    pub(crate) fn collect<T>(&self, values: impl ExactSizeIterator<Item = T>) -> Result<Vec<T>> {
        let mut list = self.list(values.len())?;
        list.extend(values);
        Ok(list)
    }

    /// A tensor from values computed on the host.
    pub(crate) fn make<T: Element>(&self, values: Vec<T>, dims: &[usize]) -> Result<Tensor> {
        Tensor::from_host(HostTensor::new(Shape::new(dims)?, values)?, self.device)
    }

    /// [`Call::make`] in another dtype, converted on the host since the device may lack the dtype of the values.
    pub(crate) fn make_as<T: Element>(&self, values: Vec<T>, dims: &[usize], dtype: DType) -> Result<Tensor> {
        Tensor::from_host(
            HostTensor::new(Shape::new(dims)?, values)?.try_cast(dtype)?,
            self.device,
        )
    }

    pub(crate) fn full(&self, dims: &[usize], value: impl Into<Scalar>, dtype: DType) -> Result<Tensor> {
        let shape = self.reserve(dims, dtype)?;
        Tensor::full(shape, value, (self.device, dtype))
    }

    /// A tensor of integers that stays on the host.
    pub(crate) fn known(&self, values: Vec<i64>, dims: &[usize]) -> Result<Value> {
        Ok(HostTensor::new(Shape::new(dims)?, values)?.into())
    }
}

/// One result.
pub(crate) fn one(tensor: Tensor) -> Results {
    Ok(smallvec![tensor.into()])
}

pub(crate) fn axis(axis: i64, rank: usize) -> Result<usize> {
    let front = if axis < 0 {
        axis.checked_add(rank as i64)
    } else {
        Some(axis)
    };
    let found = front
        .and_then(|axis| usize::try_from(axis).ok())
        .filter(|&axis| axis < rank);
    found.ok_or_else(|| Error::out_of_range(format!("there is no axis {axis} in a tensor of rank {rank}")))
}

pub(crate) fn axes(list: &[i64], rank: usize) -> Result<List<usize>> {
    let mut axes = List::with_capacity(list.len());
    for &number in list {
        let found = axis(number, rank)?;
        if axes.contains(&found) {
            return Err(malformed(format!("axis {number} is given twice")));
        }
        axes.push(found);
    }
    Ok(axes)
}

/// An extent or count: not negative.
pub(crate) fn size(value: i64) -> Result<usize> {
    usize::try_from(value).map_err(|_| malformed(format!("{value} is no extent")))
}

pub(crate) fn sizes(values: &[i64]) -> Result<List<usize>> {
    values.iter().map(|&value| size(value)).collect()
}

pub(crate) fn isizes(axes: &[usize]) -> List<isize> {
    axes.iter().map(|&axis| axis as isize).collect()
}

fn wrong(name: &str, found: &Attribute, wanted: &str) -> Error {
    malformed(format!("the attribute {name} is {}, not {wanted}", found.kind()))
}

fn at_operand(error: Error, i: usize) -> Error {
    error.in_module(format!("operand {i}"))
}
