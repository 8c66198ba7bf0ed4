//! Models compiled so that they run faster many times.

use std::fmt;
use std::hash::{DefaultHasher, Hasher};

use polygrad_core::Identity;
use polygrad_tensor::{AnyBackend, Compiled, Error, Result, Tensor};

use crate::locate::locate;
use crate::lora::AdapterSlot;
use crate::{Evaluation, Forward, Item, Target, Visitor};

/// Compiles a model so that it runs faster, many times and without gradients.
pub trait Compile: Forward {
    /// Compiles the model in evaluation mode, by recording it on an example of its input. Everything that depends only
    /// on the parameters is computed once, batch normalization is folded into the convolution before it, biases,
    /// residuals and activations are fused into products and convolutions, and weights get the layout that the backend
    /// prefers, which may take twice their memory. Results equal the model's up to rounding.
    ///
    /// ```
    /// use polygrad_nn::{Compile, Linear, ReLU, Sequential};
    /// use polygrad_tensor::{Device, Result, Tensor};
    /// # fn run(device: &Device) -> Result<()> {
    /// let model = Sequential::new().push(Linear::new(4, 64, device)?).push(ReLU).push(Linear::new(64, 2, device)?);
    /// let policy = model.compile(&Tensor::zeros([1, 4], device)?)?;
    /// let actions = policy.forward(&Tensor::ones([1, 4], device)?)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of the model; [`ErrorKind::Unsupported`](polygrad_tensor::ErrorKind::Unsupported) if it cannot be
    /// recorded, as described at [`Compiled::new`].
    fn compile(&self, example: &Tensor) -> Result<CompiledModel> {
        let _mode = Evaluation::of(self);
        let example = example.detach();
        let compiled = Compiled::new(std::slice::from_ref(&example), || {
            Ok(vec![self.forward(&example).map_err(|e| locate(self, e))?])
        })?;
        let parts = Target::all(&self).into_iter().map(|(name, target)| {
            let identity = target.value().inner().identity();
            (name, target, identity)
        });
        let parts = parts.collect();
        let mut slots = Vec::new();
        Visitor::walk(self, |_, item: Item<'_, AnyBackend>| {
            if let Item::Adapters(adapters) = item {
                slots.push(adapters.handle());
            }
        });
        let active = active(&slots);
        Ok(CompiledModel {
            compiled,
            parts,
            slots,
            active,
        })
    }
}

impl<M: Forward + ?Sized> Compile for M {}

/// A model compiled by [`Compile::compile`]. Several threads may run it at the same time.
pub struct CompiledModel {
    compiled: Compiled,
    /// The model's parameters and buffers by name, with the identity of their tensors when it was compiled.
    parts: Vec<(String, Target<AnyBackend>, Identity)>,
    /// The adapter slots of the model's layers, and a hash of the adapters that were active.
    slots: Vec<AdapterSlot>,
    active: u64,
}

impl CompiledModel {
    /// The model's output for an input of the example's shape, dtype and device.
    ///
    /// # Errors
    /// When the input has another shape, dtype or device; when a parameter or buffer was changed since or other
    /// adapters are active, so that the model must be compiled again;
    /// [`ErrorKind::NoGradient`](polygrad_tensor::ErrorKind::NoGradient) when the input requires a gradient; when the
    /// device fails.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        for (name, target, identity) in &self.parts {
            if !target.with(|value| identity.is_of(value.inner())) {
                return Err(
                    Error::invalid(format!("{name} has changed since the model was compiled"))
                        .with_hint("compile it again"),
                );
            }
        }
        if active(&self.slots) != self.active {
            let error = Error::invalid("other adapters are active than when the model was compiled");
            return Err(error.with_hint("compile it again"));
        }
        let mut outputs = self.compiled.run(std::slice::from_ref(x))?;
        match outputs.pop() {
            Some(output) => Ok(output),
            None => unreachable!("one output was recorded"),
        }
    }

    /// The names of the ops that a run executes, in order.
    pub fn ops(&self) -> &[&'static str] {
        self.compiled.ops()
    }
}

impl fmt::Debug for CompiledModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledModel")
            .field("ops", &self.ops())
            .finish_non_exhaustive()
    }
}

/// A hash of the active adapters.
fn active(slots: &[AdapterSlot]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for slot in slots {
        slot.hash_active(&mut hasher);
    }
    hasher.finish()
}
