//! The tensor: a backend's tensor with its node in the gradient graph.

use std::fmt;
use std::sync::Arc;

use polygrad_core::{AnyBackend, Backend, DType, Element, Error, ErrorKind, HostTensor, Result, Shape};

use crate::Device;
use crate::activity::{Active, Activity};
use crate::graph::{Leaf, Node};
use crate::ops::context;

/// An array of up to eight dimensions on a device, which records how it was computed if a gradient is needed.
///
/// Cloning is cheap and shares the values; tensors do not change once made. `Tensor` without a parameter runs on a
/// backend chosen at run time; `Tensor<B>` on one chosen at compile time.
pub struct Tensor<B: Backend = AnyBackend> {
    pub(crate) value: B::Tensor,
    pub(crate) node: Option<Arc<Node<B>>>,
}

impl<B: Backend> Tensor<B> {
    /// Wraps a backend's own tensor; no gradient flows into it.
    #[inline]
    pub fn from_inner(value: B::Tensor) -> Self {
        Self { value, node: None }
    }

    /// The backend's own tensor.
    pub fn inner(&self) -> &B::Tensor {
        &self.value
    }

    /// The shape.
    #[inline]
    pub fn shape(&self) -> Shape {
        B::shape(&self.value)
    }

    /// The extents, outermost first.
    pub fn dims(&self) -> Vec<usize> {
        self.shape().to_vec()
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape().rank()
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.shape().numel()
    }

    /// The dtype.
    #[inline]
    pub fn dtype(&self) -> DType {
        B::dtype(&self.value)
    }

    /// The device.
    pub fn device(&self) -> Device<B> {
        Device::from_inner(B::device(&self.value))
    }

    /// A named leaf of the gradient graph: [`Gradients::by_name`](crate::Gradients::by_name) finds its gradient.
    ///
    /// # Errors
    /// When the dtype is not a float.
    pub fn var(name: &str, value: Self) -> Result<Self> {
        let leaf = Leaf::default();
        leaf.set_name(name);
        value.into_leaf(leaf)
    }

    /// This tensor as a leaf of the gradient graph, detached from its own graph.
    ///
    /// # Errors
    /// When the dtype is not a float.
    pub fn requires_grad(self) -> Result<Self> {
        self.into_leaf(Leaf::default())
    }

    fn into_leaf(self, leaf: Leaf) -> Result<Self> {
        if !self.dtype().is_float() {
            return Err(Error::dtype(format!(
                "a tensor of {} cannot require a gradient: only floats can",
                self.dtype()
            ))
            .with_hint("convert it with to_dtype(DType::F32)"));
        }
        Ok(Self {
            value: self.value,
            node: Some(Arc::new(Node::leaf(leaf))),
        })
    }

    /// The same values, outside the gradient graph.
    #[must_use]
    pub fn detach(&self) -> Self {
        Self::from_inner(self.value.clone())
    }

    /// Whether a gradient flows through this tensor.
    #[inline]
    pub fn is_tracked(&self) -> bool {
        self.graph_node().is_some()
    }

    /// Whether it is a leaf that requires a gradient.
    pub fn is_leaf(&self) -> bool {
        self.node.as_ref().is_some_and(|node| node.as_leaf().is_some())
    }

    /// The name of a leaf.
    pub fn name(&self) -> Option<Arc<str>> {
        self.node.as_ref()?.as_leaf()?.name()
    }

    /// Names a leaf that has no name yet; does nothing to other tensors.
    pub fn set_name(&self, name: &str) {
        if let Some(leaf) = self.node.as_ref().and_then(|node| node.as_leaf()) {
            leaf.set_name(name);
        }
    }

    /// Gives a leaf further names, by which [`Gradients::by_name`](crate::Gradients::by_name) finds its gradient as
    /// well, for a parameter that a model uses in several places. Only the first call has an effect; does nothing to
    /// other tensors.
    pub fn set_other_names<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        if let Some(leaf) = self.node.as_ref().and_then(|node| node.as_leaf()) {
            leaf.set_others(|| names.into_iter().map(Box::from).collect());
        }
    }

    /// The id of this tensor in the gradient graph; `None` if it is outside.
    pub fn node_id(&self) -> Option<u64> {
        self.graph_node().map(|node| node.id())
    }

    /// Changes the values of a leaf, or of a tensor outside the graph. Graphs made before keep the old values. If
    /// `update` fails, panics, or changes shape or dtype, the tensor stays as it was. For this, the old values are held
    /// until `update` returns.
    ///
    /// # Errors
    /// Those of `update`; [`ErrorKind::InvalidArgument`] for a tensor in the middle of a graph; [`ErrorKind::Shape`] or
    /// [`ErrorKind::DType`] if its shape or dtype changes.
    pub fn update(&mut self, update: impl FnOnce(&mut B::Tensor) -> Result<()>) -> Result<()> {
        /// Restores the old values, unless they have been taken out.
        struct Restore<'a, T>(&'a mut T, Option<T>);
        impl<T> Drop for Restore<'_, T> {
            fn drop(&mut self) {
                if let Some(old) = self.1.take() {
                    *self.0 = old;
                }
            }
        }
        let name = self.name();
        self.update_in_place(|value| {
            let old = value.clone();
            let mut guard = Restore(value, Some(old));
            update(guard.0)?;
            if let Some(old) = &guard.1 {
                expect_same::<B>(name, old, guard.0)?;
            }
            guard.1 = None;
            Ok(())
        })
    }

    /// Sets the values to those of a tensor of the same shape, dtype and device; otherwise as [`Tensor::update`].
    ///
    /// # Errors
    /// As [`Tensor::update`]; [`ErrorKind::Device`] for a tensor on another device.
    pub fn set(&mut self, value: &Self) -> Result<()> {
        self.check_device(value)?;
        self.update(|own| {
            *own = value.value.clone();
            Ok(())
        })
    }

    /// [`Tensor::update`] in the tensor's own memory, if it is not shared: this is how optimizers change parameters.
    /// The old values cannot be restored, so `update` must not change the value if it fails, and must keep its shape
    /// and dtype.
    ///
    /// # Errors
    /// Those of `update`; [`ErrorKind::InvalidArgument`] for a tensor in the middle of a graph.
    pub fn update_in_place(&mut self, update: impl FnOnce(&mut B::Tensor) -> Result<()>) -> Result<()> {
        if self.is_tracked() && !self.is_leaf() {
            return Err(Error::invalid("only a leaf can be changed in place").with_hint("detach it first"));
        }
        let _active = self.node_id().map(|leaf| Active::begin(Activity::Update(leaf)));
        update(&mut self.value)
    }

    // Values on the host.

    /// The values on the host. Waits until they are computed.
    ///
    /// # Errors
    /// When the device fails.
    pub fn to_host(&self) -> Result<HostTensor> {
        B::to_host(&self.value).map_err(|e| context(e, "to_host", &[self]))
    }

    /// A copy of the values in row-major order.
    ///
    /// # Errors
    /// When `T` is not the tensor's dtype, or the device fails.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.to_host()?.to_vec().map_err(|e| e.with_op("to_vec"))
    }

    /// The values as real numbers, whatever the dtype, in row-major order. An i64 beyond ±2⁵³ is rounded:
    /// [`Tensor::to_vec`] does not.
    ///
    /// # Errors
    /// When the device fails.
    pub fn to_f64_vec(&self) -> Result<Vec<f64>> {
        Ok(self.to_host()?.to_f64_vec())
    }

    /// The value of a tensor with a single element, as a real number. An i64 beyond ±2⁵³ is rounded:
    /// [`Tensor::to_vec`] does not.
    ///
    /// # Errors
    /// When it has more or fewer elements, or the device fails.
    pub fn item(&self) -> Result<f64> {
        match self.to_f64_vec()?.as_slice() {
            [value] => Ok(*value),
            values => Err(Error::shape(format!(
                "a tensor of shape {} has {} elements, not one",
                self.shape(),
                values.len()
            ))
            .with_op("item")
            .with_hint("reduce it first, or read it with to_vec")),
        }
    }

    // Between devices and backends.

    /// The values on another device of the same backend; the gradient graph ends here.
    ///
    /// # Errors
    /// When the device fails.
    pub fn to_device(&self, device: &Device<B>) -> Result<Self> {
        if self.device() == *device {
            return Ok(self.detach());
        }
        Self::from_host(self.to_host()?, device)
    }

    /// The values on another backend; the gradient graph ends here. Memory is shared if both are in host memory.
    ///
    /// # Errors
    /// When a device fails, or the other backend lacks the dtype.
    pub fn to_backend<C: Backend>(&self, device: &Device<C>) -> Result<Tensor<C>> {
        Tensor::from_host(self.to_host()?, device)
    }

    /// This tensor with its backend erased; the gradient graph ends here.
    pub fn into_any(self) -> Tensor {
        Tensor::from_inner(polygrad_core::AnyTensor::new::<B>(self.value))
    }

    /// Fails if two tensors cannot be operands of one op, since they are on different devices.
    #[inline]
    pub(crate) fn check_device(&self, other: &Self) -> Result<()> {
        if B::same_device(&self.value, &other.value) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Device,
            format!("operands are on {} and {}", self.device(), other.device()),
        )
        .with_hint("move one of them with to_device or to_backend"))
    }
}

impl Tensor {
    /// This tensor as one of backend `C`, if it belongs to it; the gradient graph ends here.
    pub fn downcast<C: Backend>(&self) -> Option<Tensor<C>> {
        self.value.downcast_ref::<C>().cloned().map(Tensor::from_inner)
    }
}

/// Fails when a tensor's new value has another shape or dtype than the old one, or is on another device.
fn expect_same<B: Backend>(name: Option<Arc<str>>, old: &B::Tensor, new: &B::Tensor) -> Result<()> {
    let (shape, dtype) = (B::shape(old), B::dtype(old));
    let what = || name.map_or_else(|| "a tensor".to_owned(), |name| format!("the tensor {name:?}"));
    if B::shape(new) == shape && B::dtype(new) == dtype {
        if B::same_device(old, new) {
            return Ok(());
        }
        let text = format!(
            "{} on {} cannot become one on {}",
            what(),
            B::device(old),
            B::device(new)
        );
        return Err(
            Error::new(ErrorKind::Device, text).with_hint("move the new values with to_device, or the whole model")
        );
    }
    let what = what();
    let text = format!(
        "{what} of {dtype}{shape} cannot become {}{}",
        B::dtype(new),
        B::shape(new)
    );
    Err(if B::shape(new) == shape {
        Error::dtype(text).with_hint("convert the new values with to_dtype")
    } else {
        Error::shape(text)
    })
}

/// Conversion of whole values (tensors, models) to another backend.
pub trait IntoBackend<C: Backend> {
    /// The converted value.
    type Output;

    /// Converts, sharing host memory where possible.
    ///
    /// # Errors
    /// When a device fails, or the other backend lacks a dtype.
    fn into_backend(self, device: &Device<C>) -> Result<Self::Output>;
}

impl<B: Backend, C: Backend> IntoBackend<C> for Tensor<B> {
    type Output = Tensor<C>;

    fn into_backend(self, device: &Device<C>) -> Result<Tensor<C>> {
        self.to_backend(device)
    }
}

impl<B: Backend> Clone for Tensor<B> {
    #[inline]
    fn clone(&self) -> Self {
        Self {
            value: self.value.clone(),
            node: self.node.clone(),
        }
    }
}

impl<B: Backend> fmt::Debug for Tensor<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
