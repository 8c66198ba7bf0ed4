//! Constant folding: calls on constants are computed at once.

use polygrad_core::{Backend, Result, Shape};
use polygrad_reference::{Reference, ReferenceDevice, ReferenceTensor};

use super::OnnxTensor;

/// The largest constant that is folded, in elements. Larger ones are computed when the model runs, so that the file
/// stays small.
const LIMIT: usize = 1 << 16;

/// The result of an op of shape `out`: computed now if all operands are unnamed constants, else recorded. Parameters
/// keep their names and values in the file.
pub(super) fn or_record(
    operands: &[&OnnxTensor],
    out: Shape,
    compute: impl FnOnce(&[ReferenceTensor]) -> Result<ReferenceTensor>,
    record: impl FnOnce() -> Result<OnnxTensor>,
) -> Result<OnnxTensor> {
    let Some(first) = operands.first().filter(|_| out.numel() <= LIMIT) else {
        return record();
    };
    let known = |dim: &usize| (first.recording.state().symbols.read(*dim)).is_ok_and(|extent| !extent.is_symbolic());
    if !out.iter().all(known) {
        return record();
    }
    let mut constants = Vec::with_capacity(operands.len());
    for operand in operands {
        match operand.anonymous_constant() {
            Some(host) => constants.push(Reference::from_host(host, &ReferenceDevice)?),
            None => return record(),
        }
    }
    let result = Reference::to_host(&compute(&constants)?)?;
    Ok(first.recording.constant(result))
}
