//! Models that are made ready to be run many times.

use std::fmt;
use std::hash::{DefaultHasher, Hasher};

use polygrad_core::Identity;
use polygrad_tensor::{AnyBackend, Compiled, Error, Result, Tensor};

use crate::locate::locate;
use crate::lora::AdapterSlot;
use crate::{Evaluation, Forward, Item, Target, Visitor};

/// What makes a model ready to be run many times, without gradients.
pub trait Compile: Forward {
    /// The model in evaluation, recorded on an example of its input and made faster: what depends on the parameters
    /// alone is computed once, batch normalization becomes part of the convolution before it, biases, residuals and
    /// activations become part of products and convolutions, and weights are laid out as the backend likes them, which
    /// may take twice their memory. Results are the model's, to rounding.
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
    /// Those of the model; [`ErrorKind::Unsupported`](polygrad_tensor::ErrorKind::Unsupported) where it cannot be
    /// recorded, as [`Compiled::new`] says.
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

/// A model that [`Compile::compile`] made ready. Several threads may run it at the same time.
pub struct CompiledModel {
    compiled: Compiled,
    /// The model's parameters and buffers by name, and which tensors they were.
    parts: Vec<(String, Target<AnyBackend>, Identity)>,
    /// The places of adapters in the model's layers, and which were active.
    slots: Vec<AdapterSlot>,
    active: u64,
}

impl CompiledModel {
    /// The model's output for an input of the example's shape, dtype and device.
    ///
    /// # Errors
    /// When the input is another one; when a parameter or buffer of the model was changed since, or other adapters are
    /// active: then it has to be compiled again; [`ErrorKind::NoGradient`](polygrad_tensor::ErrorKind::NoGradient) when
    /// the input requires a gradient; when the device fails.
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

    /// The names of the ops that a run goes through, in order.
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

/// What says which adapters are active.
fn active(slots: &[AdapterSlot]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for slot in slots {
        slot.hash_active(&mut hasher);
    }
    hasher.finish()
}
