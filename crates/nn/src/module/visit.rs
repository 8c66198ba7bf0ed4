//! Walking through all that a module holds.

use polygrad_tensor::Backend;

use super::{Buffer, Mode, Param};

/// Anything that can be a field of a module: parameters, buffers, modules, containers of them, and plain data, in which there is
/// nothing to visit.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a field of a module on the backend `{B}`",
    label = "neither a parameter, a buffer, nor a module on `{B}`",
    note = "put #[module(skip)] on a field with nothing to visit",
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

    /// Shows one item under the name of the place.
    pub fn item(&mut self, item: Item<'_, B>) {
        (self.sink)(&self.path, item);
    }
}
