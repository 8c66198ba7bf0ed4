//! Element-wise ops for drivers that run no programs over a dtype: with the two kernels that every driver has, or on
//! the host.

use std::sync::Arc;

use polygrad_core::compute::{Binary, Unary};
use polygrad_core::{Backend, DType, ErrorKind, Result, Scalar, Shape};
use polygrad_reference::{Reference, ReferenceDevice, ReferenceTensor};

use crate::Context;
use crate::array::Array;
use crate::chain::{Kind, Operand};
use crate::host::one_on_host;
use crate::movement;

pub(crate) fn run(
    context: &Arc<Context>,
    kind: Kind,
    operands: &[Operand],
    shape: Shape,
    dtype: DType,
) -> Result<Array> {
    let arrays: Vec<&Array> = operands
        .iter()
        .filter_map(|operand| match operand {
            Operand::Array(array) => Some(array),
            Operand::Scalar(..) => None,
        })
        .collect();
    match by_kernel(context, kind, operands.len(), &arrays, shape, dtype) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {}
        Ok(None) => {}
        Ok(Some(out)) => return Ok(out),
        Err(error) => return Err(error),
    }
    one_on_host(context, &arrays, |inputs| {
        let mut inputs = inputs.iter().cloned();
        let operands: Vec<ReferenceTensor> = operands
            .iter()
            .map(|operand| match operand {
                &Operand::Scalar(number, dtype) => full(number, dtype),
                Operand::Array(_) => match inputs.next() {
                    Some(input) => Ok(input),
                    None => unreachable!("each array was read"),
                },
            })
            .collect::<Result<_>>()?;
        let out = compute(kind, &operands)?;
        Reference::expand(&out, shape)
    })
}

fn full(number: Scalar, dtype: DType) -> Result<ReferenceTensor> {
    Reference::full(Shape::SCALAR, number, dtype, &ReferenceDevice)
}

fn compute(kind: Kind, operands: &[ReferenceTensor]) -> Result<ReferenceTensor> {
    match (kind, operands) {
        (Kind::Fill, [x]) => Ok(x.clone()),
        (Kind::Unary(op), [x]) => Reference::unary(op, x),
        (Kind::Binary(op), [a, b]) => Reference::binary(op, a, b),
        (Kind::Compare(op), [a, b]) => Reference::compare(op, a, b),
        (Kind::Select, [condition, a, b]) => Reference::select(condition, a, b),
        (Kind::Cast(dtype), [x]) => Reference::cast(x, dtype),
        _ => unreachable!("an op has as many operands as it was recorded with"),
    }
}

/// Runs [`unary`](polygrad_core::compute::ComputeBackend::unary) or
/// [`binary`](polygrad_core::compute::ComputeBackend::binary), if they support the op and its operands are tensors of
/// its shape.
fn by_kernel(
    context: &Arc<Context>,
    kind: Kind,
    operands: usize,
    arrays: &[&Array],
    shape: Shape,
    dtype: DType,
) -> Result<Option<Array>> {
    let fits = arrays.len() == operands && arrays.iter().all(|array| *array.shape() == shape);
    if !fits || !matches!(kind, Kind::Unary(_) | Kind::Binary(_)) || shape.numel() == 0 {
        return Ok(None);
    }
    let inputs: Vec<Array> = arrays
        .iter()
        .map(|array| movement::contiguous(array))
        .collect::<Result<_>>()?;
    let out = Array::empty(context, shape, dtype)?;
    let (output, len) = (out.start()?, shape.numel());
    match (kind, &inputs[..]) {
        (Kind::Unary(op), [x]) => {
            let call = Unary {
                op,
                dtype: x.dtype(),
                len,
                input: x.start()?,
                output,
            };
            context.launch(op.name(), |driver| driver.unary(&call))?;
        }
        (Kind::Binary(op), [a, b]) => {
            let call = Binary {
                op,
                dtype,
                len,
                a: a.start()?,
                b: b.start()?,
                output,
            };
            context.launch(op.name(), |driver| driver.binary(&call))?;
        }
        _ => return Ok(None),
    }
    Ok(Some(out))
}
