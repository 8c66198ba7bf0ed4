//! Hooks: observe the results of a model's layers, and of tensor methods between them, and find the layer in which an
//! error arose.
//!
//! ```
//! use polygrad_nn::{Linear, ReLU, Sequential, watch};
//! # use polygrad_reference::Reference;
//! # use polygrad_tensor::{Device, Result, Tensor};
//! # fn main() -> Result<()> {
//! let device = Device::<Reference>::default();
//! let model = Sequential::new().push(Linear::new(3, 4, &device)?).push(ReLU).push(Linear::new(4, 2, &device)?);
//! let x = Tensor::ones([5, 3], &device)?;
//! let (y, seen) = watch::activations(&model, || model.forward(&x)?.softmax(1));
//! assert_eq!(y?.dims(), [5, 2]);
//! assert_eq!((&*seen[1].path, &*seen[1].layer), ("1", "ReLU"));
//! assert_eq!(seen[1].output.dims(), [5, 4]);
//! // After the model's three layers and itself, a method of a tensor.
//! assert_eq!((&*seen[4].layer, seen[4].is_method), ("softmax", true));
//! # Ok(())
//! # }
//! ```

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::Instant;

use polygrad_tensor::{AnyBackend, Backend, OpCall, Result, Tensor, flops_counted, next_node_id, with_op_hook};

pub use crate::locate::locate;
use crate::locate::{full_name, located};
use crate::{Item, ModuleId, Visit, Visitor};

/// One call of a layer, or of a method of a tensor.
#[derive(Debug)]
#[non_exhaustive]
pub struct Activation<B: Backend = AnyBackend> {
    /// Path of the layer in the model, as in `encoder.layers.0.linear1`; empty for the model itself. Paths joined by
    /// `|` cannot be told apart: a shared layer, or layers without contents in a struct, such as two fields of type
    /// `ReLU`.
    pub path: String,
    /// The type of the layer, as in `Linear`; for a method, the op, as in `relu`.
    pub layer: String,
    /// Whether this is not a layer but a tensor method that no layer of this crate has called. Its path is that of the
    /// user's module that called it, if that module uses [`layer`], and otherwise empty. A method that consists of
    /// several ops is reported as these ops.
    pub is_method: bool,
    /// Its first input.
    pub input: Tensor<B>,
    /// Its first output.
    pub output: Tensor<B>,
    /// Floating-point operations of its products, as counted by [`count_flops`](polygrad_tensor::count_flops).
    pub flops: u64,
    /// When its forward began; it has just ended. For a method, when it ended.
    pub began: Instant,
    /// The nodes of the gradient graph ([`Tensor::node_id`]) created meanwhile, including those of other threads.
    pub nodes: Range<u64>,
}

impl<B: Backend> Clone for Activation<B> {
    fn clone(&self) -> Self {
        Self {
            path: self.path.clone(),
            layer: self.layer.clone(),
            is_method: self.is_method,
            input: self.input.clone(),
            output: self.output.clone(),
            flops: self.flops,
            began: self.began,
            nodes: self.nodes.clone(),
        }
    }
}

/// The output of a layer's forward: a tensor, or a tensor and more.
pub trait Output<B: Backend> {
    /// The tensor that hooks see.
    fn activation(&self) -> &Tensor<B>;
}

impl<B: Backend> Output<B> for Tensor<B> {
    fn activation(&self) -> &Self {
        self
    }
}

impl<B: Backend, S> Output<B> for (Tensor<B>, S) {
    fn activation(&self) -> &Tensor<B> {
        &self.0
    }
}

/// An installed hook.
struct Watcher {
    /// The paths of the model's modules. Without a model, the hook sees all layers, by the names of their parameters.
    places: Option<Rc<Places>>,
    hook: Box<Hook>,
}

/// Takes the path and a `Call<B>`.
type Hook = dyn FnMut(String, &dyn Any);

/// A call, before its path in a model is known.
struct Call<B: Backend> {
    /// The layer, or the layer that called the method.
    layer: Option<ModuleId>,
    method: Option<&'static str>,
    input: Tensor<B>,
    output: Tensor<B>,
    flops: u64,
    began: Instant,
    nodes: Range<u64>,
}

thread_local! {
    static WATCHERS: RefCell<Vec<Watcher>> = const { RefCell::new(Vec::new()) };
    /// Whether there are hooks, and none of them is running.
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    /// The container that is calling one of its parts, and the part's index.
    static CALLER: Cell<Option<(ModuleId, usize)>> = const { Cell::new(None) };
    /// The innermost layer that is currently computing.
    static INSIDE: Cell<Option<ModuleId>> = const { Cell::new(None) };
    /// Operations counted when the last call ended.
    static FLOPS: Cell<u64> = const { Cell::new(0) };
}

/// Runs `forward`, and returns everything that [`with_hook`] would see of it, which stays in memory until dropped.
pub fn activations<B: Backend, R>(
    model: &(impl Visit<B> + ?Sized),
    forward: impl FnOnce() -> R,
) -> (R, Vec<Activation<B>>) {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let hook = {
        let seen = Rc::clone(&seen);
        move |activation: &Activation<B>| seen.borrow_mut().push(activation.clone())
    };
    let result = with_hook(model, hook, forward);
    (result, seen.take())
}

/// Runs `forward`, and calls `hook` after each layer of the model that computes on this thread meanwhile, inner ones
/// before outer ones, and after each tensor method that no layer of this crate calls.
///
/// All layers of this crate are seen, and the user's modules that call [`layer`]. The hook's own computations are not.
/// A hook must not borrow, since the layers need to keep it; to process the values with borrowed data, use
/// [`activations`].
pub fn with_hook<B: Backend, R>(
    model: &(impl Visit<B> + ?Sized),
    hook: impl FnMut(&Activation<B>) + 'static,
    forward: impl FnOnce() -> R,
) -> R {
    with_hook_at(Some(Rc::new(places(model))), hook, forward)
}

/// The paths of each module of a model.
pub(crate) type Places = HashMap<ModuleId, Vec<String>>;

pub(crate) fn places<B: Backend>(model: &(impl Visit<B> + ?Sized)) -> Places {
    let mut places = Places::new();
    Visitor::walk(model, |path, item| {
        if let Item::Module(module) = item {
            places.entry(module).or_default().push(path.to_owned());
        }
    });
    places
}

/// [`with_hook`] for a model given by the paths of its modules, or without a model.
pub(crate) fn with_hook_at<B: Backend, R>(
    places: Option<Rc<Places>>,
    mut hook: impl FnMut(&Activation<B>) + 'static,
    forward: impl FnOnce() -> R,
) -> R {
    /// Also removes the hook when `forward` panics.
    struct Remove;
    impl Drop for Remove {
        fn drop(&mut self) {
            let left = WATCHERS.with_borrow_mut(|watchers| {
                watchers.pop();
                watchers.len()
            });
            WATCHED.set(left > 0);
        }
    }

    let hook = move |path: String, call: &dyn Any| {
        // A layer on another backend is not part of the model.
        if let Some(call) = call.downcast_ref::<Call<B>>() {
            hook(&Activation {
                path,
                layer: match (call.method, call.layer) {
                    (Some(method), _) => method.to_owned(),
                    (None, layer) => layer.map(ModuleId::type_name).unwrap_or_default(),
                },
                is_method: call.method.is_some(),
                input: call.input.clone(),
                output: call.output.clone(),
                flops: call.flops,
                began: call.began,
                nodes: call.nodes.clone(),
            });
        }
    };
    let hook = Box::new(hook);
    WATCHERS.with_borrow_mut(|watchers| watchers.push(Watcher { places, hook }));
    WATCHED.set(true);
    FLOPS.set(flops_counted());
    let _remove = Remove;
    with_op_hook(Rc::new(method::<B>), forward)
}

/// Reports a tensor method that has finished.
fn method<B: Backend>(op: &'static str, call: &dyn Any) {
    let inside = INSIDE.get();
    // Methods on another backend are not part of the model.
    if let Some(OpCall { input, output }) = call.downcast_ref::<OpCall<B>>()
        && WATCHED.get()
        && !inside.is_some_and(ModuleId::is_of_library)
    {
        let first = output.node_id();
        let next = next_node_id();
        report(
            &Call {
                layer: inside,
                method: Some(op),
                input: input.clone(),
                output: output.clone(),
                flops: flops_counted().wrapping_sub(FLOPS.get()),
                began: Instant::now(),
                nodes: first.map_or(next..next, |first| first..first + 1),
            },
            &|| None,
        );
        FLOPS.set(flops_counted());
    }
}

/// Runs the forward of a layer so that hooks see it, and so that an error contains its path: for your own modules that
/// should be seen as a whole.
///
/// ```
/// # use polygrad_nn::{Linear, Module, watch};
/// # use polygrad_tensor::{Backend, Result, Tensor};
/// #[derive(Module)]
/// struct Block<B: Backend> {
///     fc1: Linear<B>,
///     fc2: Linear<B>,
/// }
///
/// impl<B: Backend> Block<B> {
///     fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
///         watch::layer(self, x, || self.fc2.forward(&self.fc1.forward(x)?.relu()?)? + x)
///     }
/// }
/// ```
///
/// # Errors
/// Those of `forward`.
pub fn layer<B: Backend, T: Output<B>>(
    layer: &(impl Visit<B> + ?Sized),
    input: &Tensor<B>,
    forward: impl FnOnce() -> Result<T>,
) -> Result<T> {
    named_layer(layer, ModuleId::of(layer), input, forward)
}

/// [`layer`], for a layer that visitors meet under a name other than its type's.
#[inline]
pub(crate) fn named_layer<B: Backend, T: Output<B>>(
    layer: &(impl Visit<B> + ?Sized),
    id: ModuleId,
    input: &Tensor<B>,
    forward: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let output = match WATCHED.get() {
        false => forward(),
        true => watched(layer, id, input, forward),
    };
    output.map_err(|e| located(layer, id, e))
}

fn watched<B: Backend, T: Output<B>>(
    layer: &(impl Visit<B> + ?Sized),
    id: ModuleId,
    input: &Tensor<B>,
    forward: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let running = Running::begin(id);
    let output = forward()?;
    running.end(&layer, input, output.activation());
    Ok(output)
}

/// A watched layer that is computing. Dropping it, also in a panic, restores the layer that was computing before.
struct Running {
    id: ModuleId,
    caller: Option<(ModuleId, usize)>,
    inside: Option<ModuleId>,
    flops: u64,
    first_node: u64,
    began: Instant,
}

impl Running {
    fn begin(id: ModuleId) -> Self {
        FLOPS.set(flops_counted());
        Self {
            id,
            caller: CALLER.take(),
            inside: INSIDE.replace(Some(id)),
            flops: flops_counted(),
            first_node: next_node_id(),
            began: Instant::now(),
        }
    }

    /// Reports the call to the hooks.
    fn end<B: Backend>(self, layer: &dyn Visit<B>, input: &Tensor<B>, output: &Tensor<B>) {
        let call = Call {
            layer: Some(self.id),
            method: None,
            input: input.clone(),
            output: output.clone(),
            flops: flops_counted().wrapping_sub(self.flops),
            began: self.began,
            nodes: self.first_node..next_node_id(),
        };
        drop(self);
        report(&call, &|| full_name(layer));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        CALLER.set(self.caller);
        INSIDE.set(self.inside);
        FLOPS.set(flops_counted());
    }
}

/// Runs part `index` of a container, so that parts that look the same can be told apart.
pub(crate) fn part<R>(container: &impl ?Sized, index: usize, forward: impl FnOnce() -> R) -> R {
    if !WATCHED.get() {
        return forward();
    }
    let before = CALLER.replace(Some((ModuleId::of(container), index)));
    let result = forward();
    CALLER.set(before);
    result
}

/// Calls the hooks. `name` is the layer's name according to its parameters, if they have one.
fn report<B: Backend>(call: &Call<B>, name: &dyn Fn() -> Option<String>) {
    /// Also restores the hooks when one of them panics.
    struct Restore(Vec<Watcher>);
    impl Drop for Restore {
        fn drop(&mut self) {
            WATCHERS.set(std::mem::take(&mut self.0));
            WATCHED.set(true);
        }
    }

    WATCHED.set(false);
    let mut watchers = Restore(WATCHERS.take());
    for watcher in &mut watchers.0 {
        let path = match (&watcher.places, call.layer) {
            (None, _) => {
                Some(name().unwrap_or_else(|| format!("({})", call.layer.map(ModuleId::type_name).unwrap_or_default())))
            }
            // A method that no module of the user calls belongs to the model itself.
            (Some(_), None) => Some(String::new()),
            (Some(places), Some(layer)) => place(places, layer).or(call.method.map(|_| String::new())),
        };
        if let Some(path) = path {
            (watcher.hook)(path, call);
        }
    }
}

/// The path of a layer in a model; `None` if it is not part of it.
fn place(places: &Places, layer: ModuleId) -> Option<String> {
    let candidates = places.get(&layer)?;
    if let [place] = &candidates[..] {
        return Some(place.clone());
    }
    let (container, index) = CALLER.get().unzip();
    let by_caller = container
        .and_then(|container| places.get(&container))
        .zip(index)
        .and_then(|(containers, index)| match &containers[..] {
            [container] if container.is_empty() => Some(index.to_string()),
            [container] => Some(format!("{container}.{index}")),
            _ => None,
        })
        .filter(|place| candidates.contains(place));
    Some(by_caller.unwrap_or_else(|| candidates.join("|")))
}
