//! Hooks: seeing what the layers of a model compute.
//!
//! ```
//! use std::sync::mpsc;
//!
//! use polygrad_nn::{Linear, ReLU, Sequential, watch};
//! # use polygrad_reference::Reference;
//! # use polygrad_tensor::{Device, Result, Tensor};
//! # fn main() -> Result<()> {
//! let device = Device::<Reference>::default();
//! let model = Sequential::new().push(Linear::new(3, 4, &device)?).push(ReLU).push(Linear::new(4, 2, &device)?);
//! let (sender, seen) = mpsc::channel();
//! let x = Tensor::ones([5, 3], &device)?;
//! watch::with_hook(&model, move |layer| sender.send(layer.clone()).unwrap(), || model.forward(&x))?;
//!
//! let seen: Vec<_> = seen.iter().collect();
//! assert_eq!(seen[1].path, "1");
//! assert_eq!(seen[1].layer, "ReLU");
//! assert_eq!(seen[1].output.dims(), [5, 4]);
//! # Ok(())
//! # }
//! ```

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::time::Instant;

use polygrad_tensor::{AnyBackend, Backend, Result, Tensor, count_flops, next_node_id};

use crate::{Item, ModuleId, Visit, Visitor};

/// One call of a layer.
#[derive(Debug)]
#[non_exhaustive]
pub struct Activation<B: Backend = AnyBackend> {
    /// Where the layer stands in the model, as in `encoder.layers.0.linear1`; empty for the model itself. Places joined by `|` are those
    /// that cannot be told apart: one layer that is shared, or layers without anything in them, in a struct, such as two fields of type
    /// `ReLU`.
    pub path: String,
    /// What it is, as in `Linear`.
    pub layer: String,
    /// Its first input.
    pub input: Tensor<B>,
    /// Its first output.
    pub output: Tensor<B>,
    /// Floating-point operations of its products, as [`count_flops`] counts them.
    pub flops: u64,
    /// When its forward began; it ended just now.
    pub began: Instant,
    /// The nodes of the gradient graph ([`Tensor::node_id`]) that were made meanwhile; by other threads, too.
    pub nodes: Range<u64>,
}

impl<B: Backend> Clone for Activation<B> {
    fn clone(&self) -> Self {
        Self {
            path: self.path.clone(),
            layer: self.layer.clone(),
            input: self.input.clone(),
            output: self.output.clone(),
            flops: self.flops,
            began: self.began,
            nodes: self.nodes.clone(),
        }
    }
}

/// What a layer's forward gives: a tensor, or a tensor and more.
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

/// A hook that is in place.
struct Watcher {
    places: HashMap<ModuleId, Vec<String>>,
    hook: Box<Hook>,
}

/// Takes the place and a `Call<B>`.
type Hook = dyn FnMut(String, &dyn Any);

/// A call of a layer, before its place in a model is known.
struct Call<B: Backend> {
    layer: ModuleId,
    input: Tensor<B>,
    output: Tensor<B>,
    flops: u64,
    began: Instant,
    nodes: Range<u64>,
}

thread_local! {
    static WATCHERS: RefCell<Vec<Watcher>> = const { RefCell::new(Vec::new()) };
    /// Whether there are any, and no hook is running.
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    /// The container that is calling its part of this number.
    static CALLER: Cell<Option<(ModuleId, usize)>> = const { Cell::new(None) };
}

/// Runs `forward`, and calls `hook` after each layer of the model that computes on this thread meanwhile, inner ones before outer ones.
///
/// All layers of this crate are seen, and modules of one's own that call [`layer`]; methods of tensors are not. What a hook itself
/// computes is not watched.
pub fn with_hook<B: Backend, R>(
    model: &(impl Visit<B> + ?Sized),
    mut hook: impl FnMut(&Activation<B>) + 'static,
    forward: impl FnOnce() -> R,
) -> R {
    /// Takes the hook away when `forward` panics, too.
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

    let mut places: HashMap<ModuleId, Vec<String>> = HashMap::new();
    Visitor::walk(model, |path, item| {
        if let Item::Module(module) = item {
            places.entry(module).or_default().push(path.to_owned());
        }
    });
    let hook = move |path: String, call: &dyn Any| {
        // A layer on another backend is none of the model's.
        if let Some(call) = call.downcast_ref::<Call<B>>() {
            hook(&Activation {
                path,
                layer: call.layer.type_name(),
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
    let _remove = Remove;
    forward()
}

/// Runs the forward of a layer so that hooks see it: for modules of one's own that shall be seen as a whole.
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
    layer: &impl ?Sized,
    input: &Tensor<B>,
    forward: impl FnOnce() -> Result<T>,
) -> Result<T> {
    named_layer(|| ModuleId::of(layer), input, forward)
}

/// [`layer`], for one that visitors meet under another name than its type's.
pub(crate) fn named_layer<B: Backend, T: Output<B>>(
    id: impl FnOnce() -> ModuleId,
    input: &Tensor<B>,
    forward: impl FnOnce() -> Result<T>,
) -> Result<T> {
    if !WATCHED.get() {
        return forward();
    }
    let id = id();
    let caller = CALLER.take();
    let (began, first) = (Instant::now(), next_node_id());
    let (output, flops) = count_flops(forward);
    let nodes = first..next_node_id();
    CALLER.set(caller);
    let output = output?;
    report(&Call {
        layer: id,
        input: input.clone(),
        output: output.activation().clone(),
        flops,
        began,
        nodes,
    });
    Ok(output)
}

/// Runs part `index` of a container, so that parts that look the same are told apart.
pub(crate) fn part<R>(container: &impl ?Sized, index: usize, forward: impl FnOnce() -> R) -> R {
    if !WATCHED.get() {
        return forward();
    }
    let before = CALLER.replace(Some((ModuleId::of(container), index)));
    let result = forward();
    CALLER.set(before);
    result
}

fn report<B: Backend>(call: &Call<B>) {
    /// Puts the hooks back when one of them panics, too.
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
        if let Some(path) = place(&watcher.places, call.layer) {
            (watcher.hook)(path, call);
        }
    }
}

/// Where a layer stands in a model, if it is in it.
fn place(places: &HashMap<ModuleId, Vec<String>>, layer: ModuleId) -> Option<String> {
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
