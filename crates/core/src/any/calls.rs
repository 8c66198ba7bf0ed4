//! How a typed call of [`AnyBackend`](super::AnyBackend) becomes one of a backend as an object.

use super::AnyTensor;
use crate::program::{self, Action};
use crate::{Op, Outputs, Result};

#[inline]
fn execute(op: Op, inputs: &[&AnyTensor]) -> Result<Outputs> {
    let outputs = inputs[0].backend().execute(&op, inputs)?;
    if program::is_recording() {
        program::note(Action::Op(op), inputs, outputs.iter());
    }
    Ok(outputs)
}

#[inline]
pub(super) fn one(op: Op, inputs: &[&AnyTensor]) -> Result<AnyTensor> {
    execute(op, inputs)?.take(0)
}

pub(super) fn two(op: Op, inputs: &[&AnyTensor]) -> Result<(AnyTensor, AnyTensor)> {
    let mut outputs = execute(op, inputs)?;
    Ok((outputs.take(0)?, outputs.take(1)?))
}

pub(super) fn three(op: Op, inputs: &[&AnyTensor]) -> Result<(AnyTensor, AnyTensor, AnyTensor)> {
    let mut outputs = execute(op, inputs)?;
    Ok((outputs.take(0)?, outputs.take(1)?, outputs.take(2)?))
}

/// The tensors of a call whose last ones are optional: an absent one may only be followed by absent ones.
pub(super) struct Inputs<'a, const N: usize>([&'a AnyTensor; N], usize);

impl<'a, const N: usize> Inputs<'a, N> {
    pub(super) fn new<const R: usize>(required: [&'a AnyTensor; R], optional: [Option<&'a AnyTensor>; 2]) -> Self {
        let mut all = [required[0]; N];
        all[..R].copy_from_slice(&required);
        let mut len = R;
        for x in optional.into_iter().map_while(|x| x) {
            all[len] = x;
            len += 1;
        }
        Self(all, len)
    }

    pub(super) fn get(&self) -> &[&'a AnyTensor] {
        &self.0[..self.1]
    }
}

/// Two operands that are there together, or not at all.
pub(super) fn pair(operands: Option<[&AnyTensor; 2]>) -> [Option<&AnyTensor>; 2] {
    operands.map_or([None; 2], |both| both.map(Some))
}
