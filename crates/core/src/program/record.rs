//! Records the calls of [`AnyBackend`](crate::AnyBackend) on this thread as a program.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use super::{Action, Draw, Program, Slot, Step, live};
use crate::{AnyBackend, AnyDevice, AnyTensor, Backend, DType, Error, Identity, RandomKey, Result, Shape, with_local};

thread_local! {
    /// Kept apart from the recording itself, since it is checked before each op.
    static ON: Cell<bool> = const { Cell::new(false) };
    static RECORDING: RefCell<Option<Recording>> = const { RefCell::new(None) };
}

struct Recording {
    device: AnyDevice,
    /// Slots of tensors by address.
    slots: HashMap<usize, Slot>,
    /// Keeps addresses from being reused.
    identities: Vec<Identity>,
    types: Vec<(Shape, DType)>,
    inputs: usize,
    constants: Vec<(Slot, AnyTensor)>,
    steps: Vec<Step>,
    draws: Vec<Draw>,
    /// Why this cannot be recorded.
    refused: Option<String>,
}

/// The result of [`record`]: the tensors and the other result of the function, and the program, or why there is none.
pub type Recorded<R> = (Vec<AnyTensor>, R, std::result::Result<Program, String>);

/// Runs `f`, and returns its results together with a program that computes the tensors among them from `inputs`. A
/// tensor that `f` uses but that is neither an input nor computed by `f` becomes a constant of the program.
///
/// # Errors
/// Those of `f`; when there are no inputs.
pub fn record<R>(inputs: &[AnyTensor], f: impl FnOnce() -> Result<(Vec<AnyTensor>, R)>) -> Result<Recorded<R>> {
    let Some(first) = inputs.first() else {
        return Err(Error::invalid("a recording needs at least one input"));
    };
    if is_recording() {
        // The outer recording sees all calls.
        let (outputs, rest) = f()?;
        return Ok((
            outputs,
            rest,
            Err("another recording is under way on this thread".to_owned()),
        ));
    }
    let started = Started::begin(Recording::new(AnyBackend::device(first), inputs));
    let (outputs, rest) = f()?;
    let program = match started.end() {
        Some(recording) => recording.finish(&outputs),
        None => Err("the recording was lost".to_owned()),
    };
    Ok((outputs, rest, program))
}

/// Whether calls of this thread are being recorded.
#[inline]
pub fn is_recording() -> bool {
    ON.get()
}

/// Runs `f` without recording its calls.
pub(super) fn paused<R>(f: impl FnOnce() -> R) -> R {
    with_local(&ON, false, f)
}

/// Records a call.
#[cold]
pub(crate) fn note<'a>(action: Action, inputs: &[&AnyTensor], outputs: impl Iterator<Item = &'a AnyTensor>) {
    with(|recording| recording.step(action, inputs, outputs));
}

/// Records a draw of random numbers.
#[cold]
pub(crate) fn note_draw(action: Action, key: RandomKey, output: &AnyTensor) {
    with(|recording| {
        let count = output.shape().numel();
        recording.draws.push(Draw { key, count });
        recording.step(action, &[], std::iter::once(output));
    });
}

/// Marks the current recording, if there is one, as impossible, because the computation does something that a program
/// cannot do. `why` is the reason that [`record`] then returns.
#[cold]
pub fn refuse(why: &str) {
    with(|recording| {
        recording.refused.get_or_insert_with(|| why.to_owned());
    });
}

fn with(f: impl FnOnce(&mut Recording)) {
    if is_recording() {
        RECORDING.with_borrow_mut(|recording| recording.as_mut().map(f));
    }
}

/// Ends the recording on drop, even if `f` fails or panics.
struct Started;

impl Started {
    fn begin(recording: Recording) -> Self {
        RECORDING.set(Some(recording));
        ON.set(true);
        Self
    }

    fn end(self) -> Option<Recording> {
        ON.set(false);
        RECORDING.take()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        ON.set(false);
        RECORDING.set(None);
    }
}

impl Recording {
    fn new(device: AnyDevice, inputs: &[AnyTensor]) -> Self {
        let mut recording = Self {
            device,
            slots: HashMap::new(),
            identities: Vec::new(),
            types: Vec::new(),
            inputs: inputs.len(),
            constants: Vec::new(),
            steps: Vec::new(),
            draws: Vec::new(),
            refused: None,
        };
        for input in inputs {
            if AnyBackend::device(input) != recording.device {
                recording.refused = Some("its inputs are on several devices".to_owned());
            }
            recording.name(input);
        }
        recording
    }

    /// Assigns a slot to a new tensor.
    fn name(&mut self, tensor: &AnyTensor) -> Slot {
        let slot = Slot(self.types.len() as u32);
        self.identities.push(tensor.identity());
        self.types.push((tensor.shape(), tensor.dtype()));
        self.slots.insert(tensor.address(), slot);
        slot
    }

    /// The slot of a tensor. A tensor without one was made outside the recording, and becomes a constant.
    fn slot(&mut self, tensor: &AnyTensor) -> Slot {
        if let Some(&slot) = self.slots.get(&tensor.address()) {
            return slot;
        }
        if AnyBackend::device(tensor) != self.device {
            self.refused
                .get_or_insert_with(|| "it moves tensors between devices".to_owned());
        }
        let slot = self.name(tensor);
        self.constants.push((slot, tensor.clone()));
        slot
    }

    fn step<'a>(&mut self, action: Action, inputs: &[&AnyTensor], outputs: impl Iterator<Item = &'a AnyTensor>) {
        let inputs = inputs.iter().map(|x| self.slot(x)).collect();
        let outputs = outputs.map(|x| self.name(x)).collect();
        self.steps.push(Step {
            action,
            inputs,
            outputs,
            last: Default::default(),
        });
    }

    fn finish(mut self, outputs: &[AnyTensor]) -> std::result::Result<Program, String> {
        let outputs = outputs.iter().map(|x| self.slot(x)).collect();
        if let Some(why) = self.refused {
            return Err(why);
        }
        let mut program = Program {
            device: self.device,
            types: self.types,
            inputs: self.inputs,
            constants: self.constants,
            steps: self.steps,
            outputs,
            draws: self.draws,
        };
        live::mark(&mut program);
        Ok(program)
    }
}
