//! Ops that a backend has as one.

use std::collections::HashMap;

use super::{Action, Program, Slot};
use crate::Op;

/// A linear layer and the activation that follows it, where nothing else asks for what is between them.
pub(super) fn activations(program: &mut Program) {
    let uses = program.uses();
    let mut linear: HashMap<Slot, usize> = HashMap::new();
    for i in 0..program.steps.len() {
        let step = &program.steps[i];
        match &step.action {
            Action::Op(Op::Linear) => {
                linear.insert(step.outputs[0], i);
            }
            Action::Op(Op::Activation(activation)) => {
                let (between, activation) = (step.inputs[0], *activation);
                if let Some(&at) = linear.get(&between)
                    && uses[between.index()] == 1
                {
                    // At the later place: what is used last there must still be there.
                    let inputs = program.steps[at].inputs.clone();
                    program.steps[i].inputs = inputs;
                    program.steps[i].action = Action::Op(Op::LinearActivation(activation));
                }
            }
            _ => {}
        }
    }
}
