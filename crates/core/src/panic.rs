//! The message of a panic.

use std::any::Any;

/// The message of a panic that [`catch_unwind`](std::panic::catch_unwind) caught; `None` if its
/// payload is not a string.
///
/// ```
/// use polygrad_core::panic_message;
///
/// let panic = std::panic::catch_unwind(|| assert!(2 + 2 == 5, "{} is not 5", 2 + 2)).unwrap_err();
/// assert_eq!(panic_message(&*panic), Some("4 is not 5"));
/// ```
#[cold]
pub fn panic_message(panic: &(dyn Any + Send)) -> Option<&str> {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
}
