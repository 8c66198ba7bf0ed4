//! Small integers, computed where they are: on the host.

use polygrad_core::{Backend, Result};

use super::call::Call;
use super::value::Value;

/// The result of a node whose operands are all on the host already, if it is one of the ops of which shapes are made.
pub(crate) fn compute<B: Backend>(_call: &Call<'_, B>) -> Result<Option<Value<B>>> {
    Ok(None)
}
