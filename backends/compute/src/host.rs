//! Ops without a kernel in the driver are computed on the host by the reference backend: correct, but slow.

use std::sync::Arc;

use polygrad_core::{Backend, Result};
use polygrad_reference::{Reference, ReferenceDevice, ReferenceTensor};

use crate::Context;
use crate::array::Array;

/// Reads the inputs, computes, and writes the results.
pub(crate) fn on_host<const N: usize>(
    context: &Arc<Context>,
    inputs: &[&Array],
    compute: impl FnOnce(&[ReferenceTensor]) -> Result<[ReferenceTensor; N]>,
) -> Result<[Array; N]> {
    let inputs: Vec<_> = inputs
        .iter()
        .map(|array| Reference::from_host(array.to_host()?, &ReferenceDevice))
        .collect::<Result<_>>()?;
    let mut outputs = Vec::with_capacity(N);
    for tensor in compute(&inputs)? {
        outputs.push(Array::from_host(context, &Reference::to_host(&tensor)?)?);
    }
    context.count_on_host();
    polygrad_core::observe::on_host();
    match outputs.try_into() {
        Ok(outputs) => Ok(outputs),
        Err(_) => unreachable!("there is one for each"),
    }
}

/// [`on_host`] for one result.
pub(crate) fn one_on_host(
    context: &Arc<Context>,
    inputs: &[&Array],
    compute: impl FnOnce(&[ReferenceTensor]) -> Result<ReferenceTensor>,
) -> Result<Array> {
    on_host(context, inputs, |inputs| compute(inputs).map(|out| [out])).map(|[out]| out)
}
