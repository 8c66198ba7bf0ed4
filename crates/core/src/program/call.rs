//! Steps that are not ops, such as the exchange of values with other processes.

use std::fmt;
use std::sync::Arc;

use super::{Action, Program, Step, live, record};
use crate::{AnyTensor, Result};

/// An action on tensors that happens each time a computation runs, recorded or replayed, even if its
/// results are not used.
///
/// A replay moves calls without results to the point where their inputs are ready. They keep their order among each
/// other, and so do calls with results, but not relative to one another: calls of both kinds that communicate need a
/// group for each kind.
pub trait Call: Send + Sync {
    /// Its name in error messages and lists of steps.
    fn name(&self) -> &'static str;

    /// Runs the action. It may read values on the host, but must not draw random numbers. The results' shapes and
    /// dtypes must only depend on those of the inputs.
    ///
    /// # Errors
    /// Whatever goes wrong.
    fn run(&self, inputs: &[AnyTensor]) -> Result<Vec<AnyTensor>>;
}

/// A call, which is equal to another only if both are the same object.
#[derive(Clone)]
pub(crate) struct Shared(pub(super) Arc<dyn Call>);

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

/// Runs `call`, and adds it to this thread's recording, if there is one.
///
/// # Errors
/// Those of the call, with its name.
pub fn call(call: &Arc<dyn Call>, inputs: &[&AnyTensor]) -> Result<Vec<AnyTensor>> {
    let given: Vec<AnyTensor> = inputs.iter().map(|x| (*x).clone()).collect();
    let outputs = record::paused(|| call.run(&given)).map_err(|e| e.with_op(call.name()))?;
    if record::is_recording() {
        record::note(Action::Call(Shared(Arc::clone(call))), inputs, outputs.iter());
    }
    Ok(outputs)
}

/// Moves calls without results to the point where their inputs are ready, so that other processes get the values while
/// the rest is computed. They keep their order.
pub(super) fn hoist(program: &mut Program) {
    let mut ready = vec![0; program.types.len()];
    let (mut after, mut last_call) = (Vec::with_capacity(program.steps.len()), 0);
    for (i, step) in program.steps.iter().enumerate() {
        let place = i + 1;
        for slot in &step.outputs {
            ready[slot.index()] = place;
        }
        let moves = matches!(step.action, Action::Call(_)) && step.outputs.is_empty();
        let place = match moves {
            true => step
                .inputs
                .iter()
                .map(|slot| ready[slot.index()])
                .max()
                .unwrap_or(place)
                .max(last_call),
            false => place,
        };
        if moves {
            last_call = place;
        }
        after.push(place);
    }
    // A stable sort: a call that moved comes after the step that it waited for.
    let mut order: Vec<(usize, Step)> = after.into_iter().zip(program.steps.drain(..)).collect();
    order.sort_by_key(|(place, step)| (*place, matches!(step.action, Action::Call(_))));
    program.steps = order.into_iter().map(|(_, step)| step).collect();
    live::mark(program);
}
