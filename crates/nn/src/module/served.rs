//! Models that other threads use while they are replaced.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// A model in service: each reader takes it as a whole, and it is replaced as a whole.
///
/// [`Module::load`](crate::Module::load) changes the parameters of a model one after the other, so that a forward pass
/// on another thread may meanwhile see some old and some new ones. To change weights while requests are answered, load
/// them into a second model and put it in the place of the first. Requests that have begun end with the old one.
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
    /// Puts a model into service.
    pub fn new(model: M) -> Self {
        Self(RwLock::new(Arc::new(model)))
    }

    /// The model as it is now; who holds it keeps it, whatever comes after. Take it once for each request. It waits for
    /// nobody longer than a pointer takes to be copied.
    pub fn current(&self) -> Arc<M> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts another model in its place, and gives back the one before, which lives until its last
    /// reader is done with it.
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
