//! Conversions that let a generic function call its version for [`AnyBackend`](polygrad_core::AnyBackend), which is
//! compiled once, with the library.
//!
//! If [`Backend::ERASED`](polygrad_core::Backend::ERASED) holds, `Tensor<B>` and `Tensor<AnyBackend>` are the same
//! type. The compiler cannot see that, so these functions convert between them.

use std::any::Any;

/// Converts a value between two names of the same type.
#[inline]
pub(crate) fn into_same<A: 'static, B: 'static>(value: A) -> B {
    let mut value = Some(value);
    let any: &mut dyn Any = &mut value;
    match any.downcast_mut::<Option<B>>().and_then(Option::take) {
        Some(value) => value,
        None => unreachable!("the erased backend is one type"),
    }
}

/// [`into_same`] for a reference.
#[inline]
pub(crate) fn same<A: 'static, B: 'static>(value: &A) -> &B {
    let any: &dyn Any = value;
    match any.downcast_ref() {
        Some(value) => value,
        None => unreachable!("the erased backend is one type"),
    }
}
