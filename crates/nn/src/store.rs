//! A flat view of parameters, for models written as functions.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polygrad_tensor::{AnyBackend, Backend, Device, Error, IntoShape, Result};

use crate::{Init, Module, Param, Visit, Visitor};

/// Named parameters of a model that is written without [`Module`]. It is itself a module, so that all of `Module`'s
/// methods and the optimizers work on it.
///
/// ```
/// # use polygrad_nn::{Init, VarStore};
/// # use polygrad_tensor::{Backend, Device, Result, Tensor};
/// fn predict<B: Backend>(vs: &VarStore<B>, x: &Tensor<B>) -> Result<Tensor<B>> {
///     let w = vs.param("w", [1, 3], Init::xavier_uniform())?;
///     let b = vs.sub("head").param("b", [1], Init::ZEROS)?;
///     x.linear(&w.tensor(), Some(&b.tensor()))
/// }
/// ```
pub struct VarStore<B: Backend = AnyBackend> {
    device: Device<B>,
    prefix: String,
    /// Shared by all views of one store.
    params: Arc<Mutex<BTreeMap<String, Param<B>>>>,
}

impl<B: Backend> VarStore<B> {
    /// An empty store that creates its parameters on a device.
    pub fn new(device: &Device<B>) -> Self {
        Self {
            device: device.clone(),
            prefix: String::new(),
            params: Arc::default(),
        }
    }

    /// The parameter with a name; created with values from `init` if it does not exist.
    ///
    /// # Errors
    /// When it exists with another shape, the name is empty, or `init` fails.
    pub fn param(&self, name: &str, shape: impl IntoShape, init: Init) -> Result<Param<B>> {
        let shape = shape.into_shape()?;
        if name.is_empty() {
            return Err(Error::invalid("a parameter's name is empty").with_op("VarStore::param"));
        }
        let name = format!("{}{name}", self.prefix);
        let mut params = self.lock();
        if let Some(param) = params.get(&name) {
            if param.shape() == shape {
                return Ok(param.clone());
            }
            return Err(
                Error::shape(format!("the parameter {name} has shape {}, not {shape}", param.shape()))
                    .with_op("VarStore::param")
                    .with_hint("give each parameter a name of its own"),
            );
        }
        let param: Param<B> = init.param(shape, &self.device).map_err(|e| e.in_module(name.clone()))?;
        param.set_name(&name);
        params.insert(name, param.clone());
        Ok(param)
    }

    /// A view of the same store whose names begin with `name.`.
    #[must_use]
    pub fn sub(&self, name: &str) -> Self {
        Self {
            device: self.device.clone(),
            prefix: format!("{}{name}.", self.prefix),
            params: Arc::clone(&self.params),
        }
    }

    /// The device.
    pub fn device(&self) -> &Device<B> {
        &self.device
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Param<B>>> {
        self.params.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Backend> Clone for VarStore<B> {
    fn clone(&self) -> Self {
        Self {
            device: self.device.clone(),
            prefix: self.prefix.clone(),
            params: Arc::clone(&self.params),
        }
    }
}

impl<B: Backend> Visit<B> for VarStore<B> {
    /// The parameters under this view's prefix, without the prefix, in sorted order.
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        // Not under the lock, since visitors may use the store.
        let params: Vec<(String, Param<B>)> = self
            .lock()
            .iter()
            .filter_map(|(name, param)| Some((name.strip_prefix(&self.prefix)?.to_owned(), param.clone())))
            .collect();
        for (name, param) in params {
            visitor.field(&name, &param);
        }
    }
}

impl<B: Backend> Module<B> for VarStore<B> {}

impl<B: Backend> fmt::Debug for VarStore<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.lock().iter()).finish()
    }
}
