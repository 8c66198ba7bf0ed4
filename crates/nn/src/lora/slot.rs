//! The slot of a layer that holds its adapters.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use polygrad_tensor::{AnyBackend, Backend, Error, Result, Tensor};

use super::adapter::Adapter;
use super::layer::{Kind, Layer, Weight};
use crate::qat::Quantizers;
use crate::{Item, Param, Visitor};

/// The adapters of one layer, or the [rounding](crate::qat) of its operands. Empty until [`attach`](super::attach) or
/// [`qat::attach`](crate::qat::attach) adds something. The forward pass of a layer with an empty slot only checks a
/// flag.
pub struct AdapterSlot<B: Backend = AnyBackend>(Arc<Inner<B>>);

struct Inner<B: Backend> {
    /// Whether the state holds anything, so that a layer without adapters takes no lock.
    used: AtomicBool,
    state: RwLock<State<B>>,
}

/// A layer's state besides its own parameters.
pub(super) struct State<B: Backend> {
    /// In the order in which they were attached.
    pub(super) adapters: Vec<Arc<Adapter<B>>>,
    /// The adapters that add to the output.
    pub(super) active: Arc<[Arc<Adapter<B>>]>,
    /// The layer's own weight, while it is replaced by a weight merged with the active adapters.
    pub(super) unmerged: Option<Tensor<B>>,
    /// The rounding of the layer's operands; the layer then has no adapters.
    pub(super) quantizers: Option<Arc<Quantizers<B>>>,
}

/// A layer that can have adapters, as a visitor meets it.
pub struct Adaptable<'a, B: Backend> {
    pub(super) slot: &'a AdapterSlot<B>,
    pub(super) layer: Layer<'a, B>,
}

impl<B: Backend> AdapterSlot<B> {
    /// The adapters that currently add to the layer's output, if there are any.
    #[inline]
    pub(crate) fn active(&self) -> Option<Arc<[Arc<Adapter<B>>]>> {
        match self.0.used.load(Ordering::Acquire) {
            false => None,
            true => self.active_now(),
        }
    }

    #[cold]
    fn active_now(&self) -> Option<Arc<[Arc<Adapter<B>>]>> {
        let state = self.read();
        (state.unmerged.is_none() && !state.active.is_empty()).then(|| Arc::clone(&state.active))
    }

    /// The rounding of the layer's operands, if there is any.
    #[inline]
    pub(crate) fn quantizers(&self) -> Option<Arc<Quantizers<B>>> {
        match self.0.used.load(Ordering::Acquire) {
            false => None,
            true => self.read().quantizers.clone(),
        }
    }

    pub(crate) fn set_quantizers(&self, quantizers: Option<Arc<Quantizers<B>>>) {
        self.change(|state| state.quantizers = quantizers);
    }

    /// A second handle to the same slot.
    pub(crate) fn handle(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    /// An id, the same for all handles of one slot.
    pub(super) fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, State<B>> {
        self.0.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut State<B>) -> R) -> R {
        let mut state: RwLockWriteGuard<'_, State<B>> = self.0.state.write().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut state);
        let used = !state.adapters.is_empty() || state.quantizers.is_some();
        self.0.used.store(used, Ordering::Release);
        result
    }

    /// Hashes the active adapters, which, besides shapes, determine the ops of the layer. Without active adapters it
    /// adds nothing.
    #[inline]
    pub(crate) fn hash_active(&self, hasher: &mut impl Hasher) {
        for adapter in self.active().iter().flat_map(|active| active.iter()) {
            adapter.id().hash(hasher);
        }
        if let Some(quantizers) = self.quantizers() {
            Some(quantizers.id()).hash(hasher);
        }
    }

    /// Visits a layer's slot and the parameters of its adapters, under the names that PEFT gives them.
    pub(crate) fn visit(&self, layer: Layer<'_, B>, visitor: &mut Visitor<'_, B>) {
        visitor.item(Item::Adapters(Adaptable { slot: self, layer }));
        if !self.0.used.load(Ordering::Acquire) {
            return;
        }
        // The lock is released first, so that a visitor may change the slot.
        let (adapters, quantizers) = {
            let state = self.read();
            (state.adapters.clone(), state.quantizers.clone())
        };
        for adapter in &adapters {
            adapter.visit(visitor);
        }
        if let Some(quantizers) = quantizers {
            quantizers.visit(visitor);
        }
    }
}

impl<B: Backend> Default for AdapterSlot<B> {
    fn default() -> Self {
        Self(Arc::new(Inner {
            used: AtomicBool::new(false),
            state: RwLock::new(State {
                adapters: Vec::new(),
                active: Arc::new([]),
                unmerged: None,
                quantizers: None,
            }),
        }))
    }
}

impl<B: Backend> Adaptable<'_, B> {
    /// A handle to the slot, for later use.
    pub(crate) fn handle(&self) -> AdapterSlot<B> {
        self.slot.handle()
    }

    /// An id, the same for all places of one layer.
    pub(crate) fn id(&self) -> usize {
        self.slot.id()
    }

    /// Whether the layer is one whose operands can be rounded.
    pub(crate) fn can_be_rounded(&self) -> bool {
        self.weight().is_some() && !matches!(self.layer.kind, Kind::Embedding { .. })
    }

    /// The layer, if it has no adapters and no rounding.
    pub(crate) fn layer_to_round(&self) -> Result<&Layer<'_, B>> {
        let state = self.slot.read();
        let (what, fix) = match (&state.quantizers, state.adapters.is_empty()) {
            (None, true) => return Ok(&self.layer),
            (Some(_), _) => ("is rounded already", "call `qat::remove` before"),
            (None, false) => ("has adapters", "call `lora::merge_and_unload` before"),
        };
        Err(Error::invalid(format!("the layer {what}")).with_hint(fix))
    }

    /// [`AdapterSlot::hash_active`].
    pub(crate) fn hash_active(&self, hasher: &mut impl Hasher) {
        self.slot.hash_active(hasher);
    }

    /// The weight of the layer, without adapters; `None` if it is packed.
    pub fn weight(&self) -> Option<&Param<B>> {
        match self.layer.weight {
            Weight::Param(param) => Some(param),
            Weight::Packed(_) => None,
        }
    }
}

impl<B: Backend> fmt::Debug for AdapterSlot<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.read().adapters.iter().map(|adapter| adapter.name()))
            .finish()
    }
}

impl<B: Backend> fmt::Debug for Adaptable<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.slot.fmt(f)
    }
}
