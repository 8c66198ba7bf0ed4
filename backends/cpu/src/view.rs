//! Layouts of tensors in their buffers, behind handles whose memory is reused.

use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;

use polygrad_core::Layout;

/// Views that a thread keeps for reuse: 72 KiB.
const KEPT: usize = 256;

/// A tensor's view of its buffer.
pub(crate) struct View {
    pub(crate) layout: Layout,
    /// The packed form of a weight, which kernels made. A tensor that has one must not be changed in place.
    pub(crate) packed: Option<Packed>,
}

/// A weight in the form that kernels use; only they know its type.
pub(crate) type Packed = Box<dyn Any + Send + Sync>;

/// A shared view, or none for a tensor that fills the shape that its buffer was made for. The last clone leaves its
/// memory for the next view on its thread, since runs of a model make the same views again and again.
#[derive(Clone)]
pub(crate) struct Handle(Option<Arc<View>>);

thread_local! {
    /// Unused views of this thread, without packed weights.
    static FREE: Cell<Vec<Arc<View>>> = const { Cell::new(Vec::new()) };
}

impl Handle {
    /// No view.
    pub(crate) const NONE: Self = Self(None);

    pub(crate) fn new(layout: Layout, packed: Option<Packed>) -> Self {
        let view = View { layout, packed };
        let Some(mut free) = with_free(Vec::pop) else {
            return Self(Some(Arc::new(view)));
        };
        match Arc::get_mut(&mut free) {
            Some(place) => *place = view,
            None => free = Arc::new(view),
        }
        Self(Some(free))
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<&View> {
        self.0.as_deref()
    }
}

impl Drop for Handle {
    #[inline]
    fn drop(&mut self) {
        if let Some(view) = self.0.take() {
            leave(view);
        }
    }
}

/// Keeps a view's memory for reuse if this was the last handle.
fn leave(mut view: Arc<View>) {
    let Some(last) = Arc::get_mut(&mut view) else {
        return;
    };
    last.packed = None;
    with_free(|free| {
        if free.len() < KEPT {
            free.push(view);
        }
        None
    });
}

/// `None` if the thread is ending.
fn with_free(work: impl FnOnce(&mut Vec<Arc<View>>) -> Option<Arc<View>>) -> Option<Arc<View>> {
    let found = FREE.try_with(|cell| {
        let mut free = cell.take();
        let found = work(&mut free);
        cell.set(free);
        found
    });
    found.ok().flatten()
}

#[cfg(test)]
mod tests {
    use polygrad_core::Shape;

    use super::*;

    #[test]
    fn the_last_handle_leaves_its_memory() {
        let layout = |extent: usize| Layout::contiguous(Shape::from([extent]));
        let first = Handle::new(layout(1), None);
        let second = first.clone();
        let place = std::ptr::from_ref(first.get().unwrap());
        drop(first);
        let other = Handle::new(layout(2), None);
        assert_ne!(std::ptr::from_ref(other.get().unwrap()), place);
        assert_eq!(second.get().unwrap().layout.shape().dims(), [1]);
        drop(second);
        let again = Handle::new(layout(3), None);
        assert_eq!(std::ptr::from_ref(again.get().unwrap()), place);
        assert_eq!(again.get().unwrap().layout.shape().dims(), [3]);
    }
}
