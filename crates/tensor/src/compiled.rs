//! Compiled computations without gradients.

use std::fmt;

use polygrad_core::program::Replay;
use polygrad_core::{AnyBackend, AnyTensor, Backend, Error, ErrorKind, Result, Shape};

use crate::capture::{Replayed, recorded, replay, shared, tensors};
use crate::graph::needs_graph;
use crate::random::next_key;
use crate::{Tensor, no_grad};

/// A computation that was recorded for inputs of certain shapes and dtypes, with constants folded and ops fused.
/// Several threads may run it at the same time.
///
/// Whatever the computation used besides its inputs is frozen, numbers as well as tensors. Random numbers are
/// drawn anew in each run.
///
/// `model.compile(&example)` of polygrad-nn uses it.
pub struct Compiled {
    replay: Box<dyn Replay>,
    ops: Vec<&'static str>,
    /// A tensor on the device, to compare devices with.
    witness: Tensor,
}

impl Compiled {
    /// Records `f`, which computes its outputs from `inputs`, at least one. `f` is called twice, to check that it does
    /// the same each time.
    ///
    /// # Errors
    /// Those of `f`; [`ErrorKind::Unsupported`] if it cannot be recorded, since it reads values on the host
    /// ([`Tensor::item`], [`Tensor::to_vec`]), moves tensors between devices, or uses numbers that change between
    /// calls; or if two inputs are the same tensor.
    pub fn new(inputs: &[Tensor], f: impl Fn() -> Result<Vec<Tensor>>) -> Result<Self> {
        let inputs: Vec<AnyTensor> = inputs.iter().map(|x| x.value.clone()).collect();
        if let Some((a, b)) = shared(&inputs).first() {
            let error = refused(format!(
                "inputs {a} and {b} are one tensor, and could not be told apart"
            ));
            return Err(error.with_hint("give a tensor of its own for each input"));
        }
        let record = || {
            let (_, (), program) = recorded(&inputs, || no_grad(|| Ok((f()?, ()))))?;
            program.map_err(refused)
        };
        let (first, second) = (record()?, record()?);
        let Replayed { replay, ops, .. } = replay(&first, second).map_err(refused)?;
        let device = AnyBackend::device(&inputs[0]);
        let witness = AnyBackend::zeros(Shape::SCALAR, inputs[0].dtype(), &device)?;
        Ok(Self {
            replay,
            ops,
            witness: Tensor::from_inner(witness),
        })
    }

    /// The outputs for inputs of the shapes, dtypes and device that it was recorded with.
    ///
    /// # Errors
    /// When the number of inputs, a shape, a dtype or a device differs; [`ErrorKind::NoGradient`] when an input
    /// requires a gradient, which would be lost silently; when the device fails.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        for input in inputs {
            self.witness.check_device(input)?;
            if needs_graph(&[input]) {
                return Err(
                    Error::new(ErrorKind::NoGradient, "a compiled computation passes no gradient on")
                        .with_hint("run the model as it is, or run the compiled one within no_grad"),
                );
            }
        }
        let inputs: Vec<AnyTensor> = inputs.iter().map(|x| x.value.clone()).collect();
        self.replay.run(&inputs, &mut next_key).map(tensors)
    }

    /// The names of the ops of a run, in order.
    pub fn ops(&self) -> &[&'static str] {
        &self.ops
    }
}

#[cold]
fn refused(why: String) -> Error {
    Error::unsupported(format!("this cannot be compiled: {why}"))
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiled")
            .field("ops", &self.ops)
            .finish_non_exhaustive()
    }
}
