//! Computations as values: calls of [`AnyBackend`](crate::AnyBackend) that are recorded once and replayed without the
//! layers above.
//!
//! A [`Program`] is a list of steps, each an op on numbered values: inputs, constants and results of earlier steps. It
//! is recorded by [`record`], shortened by [`Program::optimize`], and run by the [`Replay`] that [`Program::compile`]
//! returns, on the backend that it was recorded on.

mod call;
mod fold;
mod fuse;
mod live;
mod memory;
mod record;
mod replay;

use std::fmt;

pub use call::{Call, call};
pub use record::{Recorded, is_recording, record, refuse};
pub(crate) use record::{note, note_draw};
pub(crate) use replay::compile;

use crate::{AnyDevice, AnyTensor, DType, Distribution, Op, RandomKey, Result, Scalar, Shape};

/// The ops of a computation on the device that it was recorded on.
pub struct Program {
    device: AnyDevice,
    /// The type of each value; the first values are the inputs.
    types: Vec<(Shape, DType)>,
    inputs: usize,
    constants: Vec<(Slot, AnyTensor)>,
    steps: Vec<Step>,
    outputs: Vec<Slot>,
    draws: Vec<Draw>,
}

/// The number of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Slot(u32);

/// A recorded call.
#[derive(Clone, Debug, PartialEq)]
struct Step {
    action: Action,
    inputs: Vec<Slot>,
    outputs: Vec<Slot>,
    /// The values that no later step uses.
    last: Vec<Slot>,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Op(Op),
    Full {
        shape: Shape,
        value: Scalar,
        dtype: DType,
    },
    Iota {
        len: usize,
        start: Scalar,
        step: Scalar,
        dtype: DType,
    },
    /// A draw with a new key in each run.
    Random {
        shape: Shape,
        distribution: Distribution,
        dtype: DType,
    },
    Call(call::Shared),
}

/// A recorded draw of random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The key with which it was made.
    pub key: RandomKey,
    /// The number of random numbers.
    pub count: usize,
}

/// A program that is ready to be run.
pub trait Replay: Send + Sync {
    /// Computes the outputs from inputs of the shapes, dtypes and device with which it was recorded. `key` is called
    /// with the number of random numbers of each draw, in the order of [`Program::draws`], and returns the draw's key.
    ///
    /// # Errors
    /// When the device fails, naming the op; or there are more or fewer inputs, or one has another shape or dtype or
    /// belongs to another backend.
    fn run(&self, inputs: &[AnyTensor], key: &mut dyn FnMut(usize) -> RandomKey) -> Result<Vec<AnyTensor>>;
}

impl Slot {
    fn index(self) -> usize {
        self.0 as usize
    }
}

impl Action {
    fn name(&self) -> &'static str {
        match self {
            Self::Op(op) => op.name(),
            Self::Full { .. } => "full",
            Self::Iota { .. } => "arange",
            Self::Random { .. } => "random",
            Self::Call(call) => call.0.name(),
        }
    }
}

impl Program {
    /// The names of its ops, in order.
    pub fn ops(&self) -> impl Iterator<Item = &'static str> {
        self.steps.iter().map(|step| step.action.name())
    }

    /// The draws of random numbers that were recorded, in order.
    pub fn draws(&self) -> &[Draw] {
        &self.draws
    }

    /// How it differs from a second recording of the same computation; `None` if it does not. A replay would wrongly
    /// freeze a number, constant or op that differs between recordings.
    ///
    /// # Errors
    /// When the device fails while constants are compared.
    pub fn difference(&self, other: &Self) -> Result<Option<String>> {
        for (a, b) in self.steps.iter().zip(&other.steps) {
            if a.action != b.action {
                return Ok(Some(format!("{:?} became {:?}", a.action, b.action)));
            }
        }
        if self.steps != other.steps || self.outputs != other.outputs || self.types != other.types {
            return Ok(Some("the ops were not the same ones the second time".to_owned()));
        }
        for ((_, a), (_, b)) in self.constants.iter().zip(&other.constants) {
            if a.address() != b.address() && !same_values(a, b)? {
                let what = format!("a tensor that is no input, {}{},", a.dtype(), a.shape());
                return Ok(Some(format!("{what} had other values the second time")));
            }
        }
        Ok(None)
    }

    /// The bytes of constants that are other tensors in `other`, a second recording of the same computation. The
    /// computation makes these anew each time, while this program keeps them.
    pub fn bytes_made(&self, other: &Self) -> usize {
        let pairs = self.constants.iter().zip(&other.constants);
        let made = pairs.filter(|((_, a), (_, b))| a.address() != b.address());
        made.map(|((_, a), _)| a.shape().numel() * a.dtype().size()).sum()
    }

    /// Folds constants, fuses ops, removes unused steps, and moves calls without results forward.
    ///
    /// # Errors
    /// When the device fails.
    pub fn optimize(&mut self) -> Result<()> {
        fold::constants(self)?;
        fuse::fuse(self)?;
        live::sweep(self);
        call::hoist(self);
        Ok(())
    }

    /// Prepares it to run.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the backend must see each call separately.
    pub fn compile(self) -> Result<Box<dyn Replay>> {
        self.device.backend().compile(self)
    }

    /// The number of uses of each value, as inputs of steps and as outputs.
    fn uses(&self) -> Vec<u32> {
        let mut uses = vec![0; self.types.len()];
        let asked = self.steps.iter().flat_map(|step| &step.inputs).chain(&self.outputs);
        for slot in asked {
            uses[slot.index()] += 1;
        }
        uses
    }
}

/// Whether two tensors hold the same bytes.
fn same_values(a: &AnyTensor, b: &AnyTensor) -> Result<bool> {
    if (a.dtype(), a.shape()) != (b.dtype(), b.shape()) {
        return Ok(false);
    }
    Ok(a.backend().to_host(a)?.bytes() == b.backend().to_host(b)?.bytes())
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("device", &self.device)
            .field("steps", &self.steps)
            .field("outputs", &self.outputs)
            .finish_non_exhaustive()
    }
}
