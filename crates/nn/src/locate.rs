//! Locates the module of a model in which an error arose.

use polygrad_core::FailedLayer;
use polygrad_tensor::{Backend, Error};

use crate::{Item, ModuleId, Visit, Visitor};

/// Adds to an error of a model's forward pass the path of the module that failed, as in `encoder.layers.0.linear1`:
/// [`Error::module_path`]. Training, compiling and watching a model do this already. Call it yourself for a model with
/// a handwritten forward that runs before [`Module::parameters`](crate::Module::parameters) has named its parameters.
///
/// ```
/// # use polygrad_nn::{Linear, Module, watch};
/// # use polygrad_tensor::{Backend, Result, Tensor};
/// # #[derive(Module)]
/// # struct Net<B: Backend> {
/// #     fc1: Linear<B>,
/// # }
/// # impl<B: Backend> Net<B> {
/// #     fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
/// #         self.fc1.forward(x)
/// #     }
/// # }
/// fn run<B: Backend>(net: &Net<B>, x: &Tensor<B>) -> Result<Tensor<B>> {
///     net.forward(x).map_err(|e| watch::locate(net, e))
/// }
/// ```
#[cold]
pub fn locate<B: Backend>(model: &(impl Visit<B> + ?Sized), error: Error) -> Error {
    // An error from outside all layers is not attributed to one.
    match error.layer() {
        Some(_) => located(model, own_id(model), error),
        None => error,
    }
}

/// Adds to an error that it arose in a module, or where within it. `own` is the module's id as visitors see it.
#[cold]
pub(crate) fn located<B: Backend>(module: &(impl Visit<B> + ?Sized), own: ModuleId, error: Error) -> Error {
    located_in(&module, own, error)
}

/// [`located`], compiled once for all types of modules.
fn located_in<B: Backend>(module: &dyn Visit<B>, own: ModuleId, error: Error) -> Error {
    let name = full_name(module);
    let Some(layer) = error.layer() else {
        let root = name.is_none().then(|| described(module, own));
        return error.with_layer(FailedLayer {
            id: own.parts(),
            path: name.unwrap_or_default(),
            root,
        });
    };
    let Some(place) = find(module, layer) else {
        return error;
    };
    if layer.root.is_none() && is_end(&place, &layer.path) {
        // The error already has its path in the whole model.
        return error;
    }
    let root = name.is_none().then(|| described(module, own));
    let path = joined(&name.unwrap_or_default(), &place);
    let id = layer.id;
    error.with_layer(FailedLayer { id, path, root })
}

/// Adds to an error that it arose in part `i` of a container.
#[cold]
pub(crate) fn located_in_part<B: Backend>(
    container: &(impl Visit<B> + ?Sized),
    i: usize,
    part: &(impl Visit<B> + ?Sized),
    error: Error,
) -> Error {
    let error = located(part, own_id(part), error);
    let Some(layer) = error.layer().filter(|layer| layer.root.is_some()) else {
        return error;
    };
    let own = ModuleId::of(container);
    let container: &dyn Visit<B> = &container;
    let name = full_name(container);
    let root = name.is_none().then(|| described(container, own));
    let path = joined(&joined(&name.unwrap_or_default(), &i.to_string()), &layer.path);
    let id = layer.id;
    error.with_layer(FailedLayer { id, path, root })
}

/// The id under which visitors see a module.
fn own_id<B: Backend>(module: &(impl Visit<B> + ?Sized)) -> ModuleId {
    let mut id = None;
    Visitor::walk(module, |path, item| {
        if let (Item::Module(found), true) = (item, path.is_empty()) {
            id.get_or_insert(found);
        }
    });
    id.unwrap_or(ModuleId::of(module))
}

/// The name of a module in the whole model (empty for the model itself), if its parameters have been named.
pub(crate) fn full_name<B: Backend>(module: &dyn Visit<B>) -> Option<String> {
    let mut prefix = None;
    Visitor::walk(module, |name, item| {
        if let (Item::Param(param), None) = (item, &prefix) {
            prefix = param.name().and_then(|full| Some(full.strip_suffix(name)?.to_owned()));
        }
    });
    prefix.map(|prefix| prefix.trim_end_matches('.').to_owned())
}

/// The type of a module and, if it has parameters of its own, the line of user code that made them.
fn described<B: Backend>(module: &dyn Visit<B>, own: ModuleId) -> String {
    let mut made = None;
    Visitor::walk(module, |name, item| {
        if let (Item::Param(param), false) = (item, name.contains('.')) {
            made.get_or_insert(param.made_at());
        }
    });
    let this_crate = file!().trim_end_matches("locate.rs");
    match made.filter(|place| !place.file().starts_with(this_crate)) {
        Some(place) => format!("the {} made at {place}", own.type_name()),
        None => format!("the {}", own.type_name()),
    }
}

/// The path of a layer within a module. Paths joined by `|` cannot be told apart.
fn find<B: Backend>(module: &dyn Visit<B>, layer: &FailedLayer) -> Option<String> {
    let mut places = Vec::new();
    Visitor::walk(module, |path, item| {
        if let Item::Module(found) = item
            && found.parts() == layer.id
        {
            places.push(path.to_owned());
        }
    });
    if places.len() > 1 && !layer.path.is_empty() {
        places.retain(|place| is_end(&layer.path, place));
    }
    (!places.is_empty()).then(|| places.join("|"))
}

/// Whether a path ends with the components of another one.
fn is_end(end: &str, path: &str) -> bool {
    let before = path.strip_suffix(end);
    end.is_empty() || before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

fn joined(path: &str, place: &str) -> String {
    match (path, place) {
        ("", place) => place.to_owned(),
        (path, "") => path.to_owned(),
        (path, place) => format!("{path}.{place}"),
    }
}
