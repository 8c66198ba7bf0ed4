//! Models that can be replaced while other threads use them.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// A model in use: readers get it as a whole, and it is replaced as a whole.
///
/// [`Module::load`](crate::Module::load) changes the parameters of a model one after another, so that a forward pass on
/// another thread may see a mixture of old and new ones. To change weights while requests are answered, load them into
/// a second model and replace the first one by it. Requests that have already begun finish with the old model.
///
/// ```
/// use polygrad_nn::{Forward, Linear, Module, Served};
/// # use polygrad_reference::Reference;
/// # use polygrad_tensor::{Device, Result, Tensor, no_grad};
/// # fn main() -> Result<()> {
/// # let device = Device::<Reference>::default();
/// let served = Served::new(Linear::new(3, 2, &device)?);
/// # let path = std::env::temp_dir().join(format!("served-{}.safetensors", std::process::id()));
/// # served.current().save(&path)?;
///
/// // On any number of threads: one model for the whole of a request.
/// let model = served.current();
/// let y = no_grad(|| model.forward(&Tensor::zeros([1, 3], &device)?))?;
///
/// // On another one.
/// let next = Linear::new(3, 2, &device)?;
/// next.load(&path)?;
/// next.eval();
/// served.replace(next);
/// # std::fs::remove_file(path).unwrap();
/// # Ok(())
/// # }
/// ```
pub struct Served<M>(RwLock<Arc<M>>);

impl<M> Served<M> {
    /// Wraps a model.
    pub fn new(model: M) -> Self {
        Self(RwLock::new(Arc::new(model)))
    }

    /// The current model; a caller's `Arc` keeps it alive even after it is replaced. Call this once per request. It
    /// waits at most for a pointer to be copied.
    pub fn current(&self) -> Arc<M> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the model, and returns the old one, which lives until its last reader drops it.
    pub fn replace(&self, model: M) -> Arc<M> {
        let next = Arc::new(model);
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut current, next)
    }
}

impl<M: fmt::Debug> fmt::Debug for Served<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Served").field(&self.current()).finish()
    }
}
