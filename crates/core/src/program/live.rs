//! Liveness of values.

use super::{Action, Program};

/// Removes steps whose results are not used, and constants that only they used; then recomputes the
/// last use of each value.
pub(super) fn sweep(program: &mut Program) {
    let mut needed = vec![false; program.types.len()];
    for slot in &program.outputs {
        needed[slot.index()] = true;
    }
    let mut kept = Vec::with_capacity(program.steps.len());
    for step in program.steps.drain(..).rev() {
        // Draws advance the stream of random numbers, and calls have effects, even if their results are not used.
        let acts = matches!(step.action, Action::Random { .. } | Action::Call(_));
        if acts || step.outputs.iter().any(|slot| needed[slot.index()]) {
            for slot in &step.inputs {
                needed[slot.index()] = true;
            }
            kept.push(step);
        }
    }
    kept.reverse();
    program.steps = kept;
    program.constants.retain(|(slot, _)| needed[slot.index()]);
    mark(program);
}

/// Records at each step which values have their last use there.
pub(super) fn mark(program: &mut Program) {
    let mut needed = vec![false; program.types.len()];
    let constants = program.constants.iter().map(|(slot, _)| slot);
    for slot in program.outputs.iter().chain(constants) {
        needed[slot.index()] = true;
    }
    for step in program.steps.iter_mut().rev() {
        step.last.clear();
        for &slot in step.outputs.iter().chain(&step.inputs) {
            if !std::mem::replace(&mut needed[slot.index()], true) {
                step.last.push(slot);
            }
        }
    }
}
