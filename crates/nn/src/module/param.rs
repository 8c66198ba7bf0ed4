//! Parameters.

use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use polygrad_tensor::{AnyBackend, Backend, DType, Device, GradId, Result, Shape, Tensor};

use super::{Item, Visit, Visitor};

/// A trainable tensor of a module. Cloning gives a second handle to the same parameter: that is how weights are tied.
///
/// The tensor inside is a leaf of the gradient graph, and stays the same leaf when an optimizer changes its values.
pub struct Param<B: Backend = AnyBackend>(Arc<Shared<B>>);

struct Shared<B: Backend> {
    leaf: RwLock<Tensor<B>>,
    trainable: AtomicBool,
    made_at: &'static Location<'static>,
}

impl<B: Backend> Param<B> {
    /// A trainable parameter with these values, detached from their computation.
    ///
    /// # Errors
    /// When the dtype is not a float.
    #[track_caller]
    pub fn new(value: Tensor<B>) -> Result<Self> {
        Ok(Self(Arc::new(Shared {
            leaf: RwLock::new(value.requires_grad()?),
            trainable: AtomicBool::new(true),
            made_at: Location::caller(),
        })))
    }

    /// The parameter as a tensor: a leaf of the gradient graph, or a constant if it is frozen.
    #[inline]
    pub fn tensor(&self) -> Tensor<B> {
        self.with(Tensor::clone)
    }

    /// Calls a function with [`Param::tensor`], without cloning it. The value cannot change until the function returns.
    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&Tensor<B>) -> R) -> R {
        let leaf = self.read();
        if self.is_trainable() {
            f(&leaf)
        } else {
            f(&leaf.detach())
        }
    }

    /// Its value, outside the graph, whether it is trainable or not.
    pub(crate) fn value(&self) -> Tensor<B> {
        self.read().detach()
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        self.read().shape()
    }

    /// The dtype.
    pub fn dtype(&self) -> DType {
        self.read().dtype()
    }

    /// The device.
    pub fn device(&self) -> Device<B> {
        self.read().device()
    }

    /// The name, such as `fc1.weight`, that it got when it was first visited as part of a whole model.
    pub fn name(&self) -> Option<Arc<str>> {
        self.read().name()
    }

    /// Sets the name, if it has none yet; [`Gradients::by_name`](polygrad_tensor::Gradients::by_name) uses it.
    pub fn set_name(&self, name: &str) {
        self.read().set_name(name);
    }

    /// The place in the program that created it: for a parameter of one of this crate's layers, the line that created
    /// the layer.
    pub(crate) fn made_at(&self) -> &'static Location<'static> {
        self.0.made_at
    }

    /// Whether gradients flow into it and optimizers change it. Default: true.
    #[inline]
    pub fn is_trainable(&self) -> bool {
        self.0.trainable.load(Ordering::Relaxed)
    }

    /// Makes it trainable, or freezes it.
    pub fn set_trainable(&self, trainable: bool) {
        self.0.trainable.store(trainable, Ordering::Relaxed);
    }

    /// Sets new values; graphs made before keep the old ones.
    ///
    /// # Errors
    /// When shape or dtype differ; the parameter then keeps its values.
    pub fn set(&self, value: &Tensor<B>) -> Result<()> {
        self.update(|inner| {
            *inner = value.inner().clone();
            Ok(())
        })
    }

    /// Changes its values. If `update` fails or panics, or changes shape or dtype, the old values are restored: see
    /// [`Tensor::update`].
    ///
    /// # Errors
    /// Those of `update`, and when it changes shape or dtype.
    pub fn update(&self, update: impl FnOnce(&mut B::Tensor) -> Result<()>) -> Result<()> {
        self.write().update(update)
    }

    /// Changes its values in place, without a copy to restore, as optimizers do. `update` must leave the value
    /// unchanged if it fails, and must keep its shape and dtype: see [`Tensor::update_in_place`].
    ///
    /// # Errors
    /// Those of `update`.
    pub fn update_in_place(&self, update: impl FnOnce(&mut B::Tensor) -> Result<()>) -> Result<()> {
        self.write().update_in_place(update)
    }

    /// Sets values of any float dtype, on any device. The parameter becomes a new leaf of the gradient graph.
    pub(crate) fn replace(&self, value: Tensor<B>) -> Result<()> {
        let mut leaf = self.write();
        let new = value.requires_grad()?;
        if let Some(name) = leaf.name() {
            new.set_name(&name);
        }
        if let Some(others) = leaf.grad_other_names() {
            new.set_other_names(others.iter().map(|name| &**name));
        }
        *leaf = new;
        Ok(())
    }

    /// Adds the further names of a parameter that is at several places, unless its own name comes from another model.
    pub(crate) fn set_names(&self, names: &[String]) {
        let leaf = self.read();
        if let Some(own) = leaf.name()
            && names.iter().any(|name| **name == *own)
        {
            leaf.set_other_names(names.iter().map(String::as_str).filter(|name| *name != &*own));
        }
    }

    /// An id shared by all handles to a parameter.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Tensor<B>> {
        self.0.leaf.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tensor<B>> {
        self.0.leaf.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Backend> Clone for Param<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B: Backend> GradId for Param<B> {
    fn grad_id(&self) -> Option<u64> {
        self.read().node_id()
    }

    fn grad_name(&self) -> Option<Arc<str>> {
        self.name()
    }

    fn grad_other_names(&self) -> Option<Arc<[Box<str>]>> {
        self.read().grad_other_names()
    }
}

impl<B: Backend> Visit<B> for Param<B> {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        visitor.item(Item::Param(self));
    }
}

impl<B: Backend> fmt::Debug for Param<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leaf = self.read();
        let name = leaf.name();
        let frozen = if self.is_trainable() { "" } else { ", frozen" };
        write!(
            f,
            "Param({:?}, {}{}{frozen})",
            name.as_deref().unwrap_or(""),
            leaf.dtype(),
            leaf.shape()
        )
    }
}
