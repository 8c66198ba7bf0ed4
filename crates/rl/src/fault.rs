//! What environments do wrong, in words.

use std::any::Any;

/// What a panic said.
#[cold]
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("without a message"))
}

/// Names the first number of an observation that is not finite.
#[cold]
pub(crate) fn not_finite(observation: &[f32]) -> String {
    let found = observation.iter().position(|x| !x.is_finite());
    let (i, x) = found.map_or((0, f32::NAN), |i| (i, observation[i]));
    format!("gave an observation whose number {i} is {x}")
}
