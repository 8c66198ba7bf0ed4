//! Computations that a driver records once, and then starts as a whole.

use std::sync::{Arc, Mutex, PoisonError};

use polygrad_core::compute::{ByteCopy, Recording};
use polygrad_core::{Computation, Error, Result};

use crate::Context;
use crate::array::Array;
use crate::memory::Arena;
use crate::movement::contiguous;

/// With at most this many kernels, copying inputs and outputs is not worth it.
const FEW: u64 = 4;

/// A recording, and the memory that it works in.
pub(crate) struct Graph {
    // Dropped first, since it works in the memory of the others.
    recording: Recording,
    inputs: Vec<Array>,
    outputs: Vec<Array>,
    /// Holds the rest of its memory.
    _arena: Arc<Arena>,
    context: Arc<Context>,
    /// Held while it is started: the inputs of another run must not be copied in between.
    starting: Mutex<()>,
}

impl Graph {
    /// Records `f`; `None` if it has only a few kernels. Runs `f` once before, so that memory and kernels are ready.
    pub(crate) fn record(context: &Arc<Context>, inputs: &[Array], f: Computation<'_, Array>) -> Result<Option<Self>> {
        let arena = Arena::new(context);
        let own = inputs
            .iter()
            .map(|x| Array::empty(context, *x.shape(), x.dtype()))
            .collect::<Result<Vec<_>>>()?;
        copy(context, inputs, &own)?;
        let mut run = || {
            let computed = f(&own)?;
            let in_memory = |x: &Array| {
                let x = contiguous(x)?;
                x.storage.buffer()?;
                Ok(x)
            };
            computed.iter().map(in_memory).collect::<Result<Vec<_>>>()
        };
        let (recording, outputs, kernels) = arena.within(|| {
            drop(run()?);
            let before = context.launches();
            let mut outputs = Vec::new();
            let recording = context.driver.record(&mut || {
                outputs = run()?;
                Ok(())
            })?;
            Ok::<_, Error>((recording, outputs, context.launches() - before))
        })?;
        if kernels <= FEW {
            return Ok(None);
        }
        // The memory of the first run is not needed a second time.
        context.release();
        Ok(Some(Self {
            recording,
            inputs: own,
            outputs,
            _arena: arena,
            context: Arc::clone(context),
            starting: Mutex::default(),
        }))
    }

    pub(crate) fn run(&self, inputs: &[Array]) -> Result<Vec<Array>> {
        let fits = |(x, own): (&Array, &Array)| {
            (x.shape(), x.dtype()) == (own.shape(), own.dtype()) && Arc::ptr_eq(x.context(), &self.context)
        };
        let device = self.context.driver.name();
        if inputs.len() != self.inputs.len() {
            let (wanted, given) = (self.inputs.len(), inputs.len());
            return Err(
                Error::invalid(format!("a recording of {wanted} inputs was given {given}")).with_device(device),
            );
        }
        if let Some(i) = inputs.iter().zip(&self.inputs).position(|pair| !fits(pair)) {
            let (own, given) = (&self.inputs[i], &inputs[i]);
            return Err(Error::invalid(format!(
                "input {i} of a recording is {}{} on its device, and it was given {}{} on {}",
                own.dtype(),
                own.shape(),
                given.dtype(),
                given.shape(),
                given.context().driver.name()
            ))
            .with_device(device)
            .with_hint("give inputs of the shapes and dtypes that it was made with, from the same device"));
        }
        let outputs = self
            .outputs
            .iter()
            .map(|x| Array::empty(&self.context, *x.shape(), x.dtype()))
            .collect::<Result<Vec<_>>>()?;
        let _starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        copy(&self.context, inputs, &self.inputs)?;
        self.context.replay(&self.recording)?;
        copy(&self.context, &self.outputs, &outputs)?;
        Ok(outputs)
    }
}

/// Copies tensors into contiguous ones of the same shapes and dtypes.
fn copy(context: &Context, from: &[Array], to: &[Array]) -> Result<()> {
    let from = from.iter().map(contiguous).collect::<Result<Vec<_>>>()?;
    let mut copies = Vec::with_capacity(from.len());
    for (from, to) in from.iter().zip(to) {
        let bytes = to.shape().numel() * to.dtype().size();
        if bytes > 0 {
            copies.push(ByteCopy {
                dst: to.start()?,
                src: from.start()?,
                bytes,
            });
        }
    }
    context.driver.copy_each(&copies)
}
