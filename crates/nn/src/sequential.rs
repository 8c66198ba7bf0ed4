//! Sequences of modules.

use std::fmt;

use polygrad_tensor::{AnyBackend, Backend, Result, Tensor};

use crate::locate::located_in_part;
use crate::{Forward, Item, Module, Visit, Visitor, watch};

/// Modules that each take the output of the one before. Parameters are named by the index of their module; modules
/// without parameters count, too: `0.weight`, `2.weight`, as in PyTorch.
///
/// ```
/// # use polygrad_nn::{Linear, ReLU, Sequential};
/// # use polygrad_tensor::{Backend, Device, Result};
/// fn mlp<B: Backend>(device: &Device<B>) -> Result<Sequential<B>> {
///     Ok(Sequential::new()
///         .push(Linear::new(784, 128, device)?)
///         .push(ReLU)
///         .push(Linear::new(128, 10, device)?))
/// }
/// ```
pub struct Sequential<B: Backend = AnyBackend> {
    modules: Vec<Box<dyn Forward<B>>>,
}

impl<B: Backend> Sequential<B> {
    /// An empty sequence, which returns its input.
    pub fn new() -> Self {
        Self { modules: Vec::new() }
    }

    /// Appends a module.
    #[must_use]
    pub fn push(mut self, module: impl Forward<B> + 'static) -> Self {
        self.modules.push(Box::new(module));
        self
    }

    /// Number of modules.
    pub fn len(&self) -> usize {
        self.modules.len()
    }

    /// Whether there are no modules.
    pub fn is_empty(&self) -> bool {
        self.modules.is_empty()
    }

    /// The output of the last module.
    ///
    /// # Errors
    /// Those of the modules; the error names the module.
    pub fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || self.compute(x))
    }

    fn compute(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let mut y = None;
        for (i, module) in self.modules.iter().enumerate() {
            let x = y.as_ref().unwrap_or(x);
            let output = watch::part(self, i, || module.forward(x));
            y = Some(output.map_err(|e| located_in_part(self, i, module, e))?);
        }
        Ok(y.unwrap_or_else(|| x.clone()))
    }
}

impl<B: Backend> Default for Sequential<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend> fmt::Debug for Sequential<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_tuple("Sequential");
        for module in &self.modules {
            let mut name = String::from("?");
            Visitor::walk(module, |path, item| {
                if let (true, Item::Module(module)) = (path.is_empty(), item) {
                    name = module.type_name();
                }
            });
            list.field(&format_args!("{name}"));
        }
        list.finish()
    }
}

impl<B: Backend> Visit<B> for Sequential<B> {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        visitor.module(self);
        self.modules.visit(visitor);
    }
}

impl<B: Backend> Module<B> for Sequential<B> {}

impl<B: Backend> Forward<B> for Sequential<B> {
    fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.forward(x)
    }
}
