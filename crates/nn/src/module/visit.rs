//! Walking through all that a module holds.

use polygrad_tensor::Backend;

use super::{Buffer, Mode, Param};
use crate::SyncSlot;
use crate::lora::Adaptable;

/// Anything that can be a field of a module: parameters, buffers, modules, containers of them, and plain data, in which
/// there is nothing to visit.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a field of a module on the backend `{B}`",
    label = "neither a parameter, a buffer, nor a module on `{B}`",
    note = "a tensor that is trained is a `Param`, one that belongs to the state and is not trained a `Buffer`",
    note = "put #[module(skip)] on any other field: it is not saved, loaded, or moved to another device",
    note = "a module is on the backend that a type parameter bounded by `Backend` names, else on `AnyBackend`; #[module(backend = …)] on \
            the type says otherwise"
)]
pub trait Visit<B: Backend> {
    /// Shows everything in this value to the visitor, in a fixed order.
    fn visit(&self, visitor: &mut Visitor<'_, B>);
}

/// What a visitor meets.
pub enum Item<'a, B: Backend> {
    /// A parameter.
    Param(&'a Param<B>),
    /// A buffer.
    Buffer(&'a Buffer<B>),
    /// A switch between training and evaluation.
    Mode(&'a Mode),
    /// Where a batch normalisation has the ranks that it is synchronized over.
    Sync(&'a SyncSlot),
    /// Where a layer has its adapters, before the parameters of these.
    Adapters(Adaptable<'a, B>),
    /// A module, before all that it holds.
    Module(ModuleId),
    /// The name of a tensor that others' files have here and nobody needs.
    Unused,
}

/// Which module a visitor meets: its type, and its address for as long as it is borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModuleId {
    address: usize,
    type_name: &'static str,
}

impl ModuleId {
    /// Of this module.
    pub(crate) fn of<T: ?Sized>(module: &T) -> Self {
        Self {
            address: std::ptr::from_ref(module).addr(),
            type_name: std::any::type_name::<T>(),
        }
    }

    /// Under another name than the type's, for one generic type that stands for several layers.
    pub(crate) fn named(self, name: &'static str) -> Self {
        Self {
            type_name: name,
            ..self
        }
    }

    /// As an error has it.
    pub(crate) fn parts(self) -> (usize, &'static str) {
        (self.address, self.type_name)
    }

    /// Whether it is one of this library, whose inner workings are nobody's business.
    pub(crate) fn is_of_library(self) -> bool {
        ["polygrad_nn::", "polygrad_rl::"]
            .iter()
            .any(|krate| self.type_name.starts_with(krate))
            || !self.type_name.contains("::")
    }

    /// The type without path and parameters, as in `Linear`; for layers of this crate over `D` axes as in `Conv2d`.
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

/// Walks through a module and knows the name of the place where it stands.
pub struct Visitor<'a, B: Backend> {
    path: String,
    sink: &'a mut dyn FnMut(&str, Item<'_, B>),
}

impl<B: Backend> Visitor<'_, B> {
    /// Shows every item of a module, with its full name, to `sink`.
    pub fn walk(module: &(impl Visit<B> + ?Sized), mut sink: impl FnMut(&str, Item<'_, B>)) {
        module.visit(&mut Visitor {
            path: String::new(),
            sink: &mut sink,
        });
    }

    /// Visits a part of the module under a name.
    pub fn field(&mut self, name: &str, part: &(impl Visit<B> + ?Sized)) {
        let len = self.path.len();
        if len > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        part.visit(self);
        self.path.truncate(len);
    }

    /// Visits a part of the module under its index.
    pub fn index(&mut self, i: usize, part: &(impl Visit<B> + ?Sized)) {
        self.field(&i.to_string(), part);
    }

    /// Visits a part of the module in the place where this stands, without the items that `keep` rejects.
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

    /// Says that here is a module: what a [`Visit::visit`] written by hand begins with.
    pub fn module<T: ?Sized>(&mut self, module: &T) {
        self.item(Item::Module(ModuleId::of(module)));
    }

    /// Says that others' files have a tensor of this name here, which nobody needs:
    /// [`Module::load`](crate::Module::load) passes over it.
    pub fn unused(&mut self, name: &str) {
        let len = self.path.len();
        if len > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        self.item(Item::Unused);
        self.path.truncate(len);
    }

    /// Shows one item under the name of the place.
    pub fn item(&mut self, item: Item<'_, B>) {
        (self.sink)(&self.path, item);
    }
}
