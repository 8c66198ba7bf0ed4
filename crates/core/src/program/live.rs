//! How long values are needed.

use super::{Action, Program};

/// Drops the steps whose results nobody asks for, and the constants that only they used; then says anew when each
/// value was used last.
pub(super) fn sweep(program: &mut Program) {
    let mut needed = vec![false; program.types.len()];
    for slot in &program.outputs {
        needed[slot.index()] = true;
    }
    let mut kept = Vec::with_capacity(program.steps.len());
    for step in program.steps.drain(..).rev() {
        // A draw takes its numbers from the stream, and a call does what it does, whether their
        // results are wanted or not.
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

/// Writes down, at each step, which values nobody asks for afterwards.
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
