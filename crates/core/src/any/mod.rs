//! A backend chosen at run time, as a [`Backend`].

mod backend;
mod device;
mod tensor;

pub use backend::AnyBackend;
pub use device::{AnyDevice, DynDevice};
pub use tensor::{AnyTensor, Identity};

use crate::{Backend, DynBackend};

/// The one value of a backend, as an object. Backends have no fields, so this allocates nothing.
#[inline]
fn instance<B: Backend>() -> &'static dyn DynBackend {
    const {
        assert!(
            size_of::<B>() == 0,
            "a backend has no fields: state belongs into its devices"
        )
    };
    Box::leak(Box::<B>::default())
}
