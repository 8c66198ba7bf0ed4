//! Walks through all contents of a module.

use polygrad_tensor::Backend;

use super::{Buffer, Mode, Param};
use crate::SyncSlot;
use crate::lora::Adaptable;

/// Anything that can be a field of a module: parameters, buffers, modules, containers of them, and plain data, which
/// has nothing to visit.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a field of a module on the backend `{B}`",
    label = "neither a parameter, a buffer, nor a module on `{B}`",
    note = "a tensor that is trained is a `Param`, one that belongs to the state and is not trained a `Buffer`",
    note = "put #[module(skip)] on any other field: it is not saved, loaded, or moved to another device",
    note = "a module is on the backend that a type parameter bounded by `Backend` names, else on `AnyBackend`; #[module(backend = …)] on \
            the type says otherwise"
)]
pub trait Visit<B: Backend> {
    /// Passes everything in this value to the visitor, in a fixed order.
    fn visit(&self, visitor: &mut Visitor<'_, B>);
}

/// An item that a visitor meets.
pub enum Item<'a, B: Backend> {
    /// A parameter.
    Param(&'a Param<B>),
    /// A buffer.
    Buffer(&'a Buffer<B>),
    /// A switch between training and evaluation.
    Mode(&'a Mode),
    /// The slot for the ranks over which a batch normalisation is synchronized.
    Sync(&'a SyncSlot),
    /// The slot for a layer's adapters, before the adapters' parameters.
    Adapters(Adaptable<'a, B>),
    /// A module, before its contents.
    Module(ModuleId),
    /// The name of a tensor that files of other libraries have here but that is not needed.
    Unused,
}

/// Identifies a module during a visit: its type, and its address for as long as it is borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModuleId {
    address: usize,
    type_name: &'static str,
}

impl ModuleId {
    /// The id of this module.
    pub(crate) fn of<T: ?Sized>(module: &T) -> Self {
        Self {
            address: std::ptr::from_ref(module).addr(),
            type_name: std::any::type_name::<T>(),
        }
    }

    /// With a name other than the type's, for a generic type that implements several layers.
    pub(crate) fn named(self, name: &'static str) -> Self {
        Self {
            type_name: name,
            ..self
        }
    }

    /// In the form that an error stores.
    pub(crate) fn parts(self) -> (usize, &'static str) {
        (self.address, self.type_name)
    }

    /// Whether the module's type belongs to this library, whose internals are not shown to users.
    pub(crate) fn is_of_library(self) -> bool {
        ["polygrad_nn::", "polygrad_rl::"]
            .iter()
            .any(|krate| self.type_name.starts_with(krate))
            || !self.type_name.contains("::")
    }

    /// The type without path and parameters, as in `Linear`; layers of this crate over `D` axes are named as in
    /// `Conv2d`.
    pub fn type_name(self) -> String {
        let (path, parameters) = self.type_name.split_once('<').unwrap_or((self.type_name, ""));
        let name = path.rsplit("::").next().unwrap_or(path);
        let first = parameters.split([',', '>']).next().unwrap_or_default();
        if path.starts_with(concat!(env!("CARGO_CRATE_NAME"), "::")) && first.parse::<usize>().is_ok() {
            format!("{name}{first}d")
        } else {
            name.to_owned()
        }
    }
}

/// Walks through a module and keeps the path of the current place.
pub struct Visitor<'a, B: Backend> {
    /// `None` if names are not needed.
    path: Option<String>,
    sink: &'a mut dyn FnMut(&str, Item<'_, B>),
}

impl<B: Backend> Visitor<'_, B> {
    /// Passes every item of a module, with its full name, to `sink`.
    pub fn walk(module: &(impl Visit<B> + ?Sized), mut sink: impl FnMut(&str, Item<'_, B>)) {
        module.visit(&mut Visitor {
            path: Some(String::new()),
            sink: &mut sink,
        });
    }

    /// The same without names, which take most of the time of a walk.
    pub(crate) fn walk_unnamed(module: &(impl Visit<B> + ?Sized), mut sink: impl FnMut(Item<'_, B>)) {
        module.visit(&mut Visitor {
            path: None,
            sink: &mut |_, item| sink(item),
        });
    }

    /// Visits a part of the module under a name.
    pub fn field(&mut self, name: &str, part: &(impl Visit<B> + ?Sized)) {
        self.named(name, |visitor| part.visit(visitor));
    }

    /// Visits a part of the module under its index.
    pub fn index(&mut self, i: usize, part: &(impl Visit<B> + ?Sized)) {
        match self.path {
            Some(_) => self.field(&i.to_string(), part),
            None => part.visit(self),
        }
    }

    /// Calls `f` at the place of a part of this name.
    fn named(&mut self, name: &str, f: impl FnOnce(&mut Self)) {
        let Some(path) = &mut self.path else { return f(self) };
        let len = path.len();
        if len > 0 {
            path.push('.');
        }
        path.push_str(name);
        f(self);
        if let Some(path) = &mut self.path {
            path.truncate(len);
        }
    }

    /// Visits a part of the module at the current place, skipping the items that `keep` rejects.
    pub(super) fn filtered(&mut self, part: &(impl Visit<B> + ?Sized), keep: impl Fn(&Item<'_, B>) -> bool) {
        let sink = &mut *self.sink;
        part.visit(&mut Visitor {
            path: self.path.clone(),
            sink: &mut |path, item| {
                if keep(&item) {
                    sink(path, item);
                }
            },
        });
    }

    /// Announces a module: handwritten [`Visit::visit`]s call this first.
    pub fn module<T: ?Sized>(&mut self, module: &T) {
        self.item(Item::Module(ModuleId::of(module)));
    }

    /// Announces that files of other libraries have a tensor of this name here that is not needed, so that
    /// [`Module::load`](crate::Module::load) ignores it.
    pub fn unused(&mut self, name: &str) {
        self.named(name, |visitor| visitor.item(Item::Unused));
    }

    /// Passes one item, with the current path, to the sink.
    pub fn item(&mut self, item: Item<'_, B>) {
        (self.sink)(self.path.as_deref().unwrap_or_default(), item);
    }
}
