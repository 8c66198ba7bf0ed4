//! Messages about faults of environments.

use std::any::Any;

use polygrad_core::panic_message;

#[cold]
pub(crate) fn panicked(panic: &(dyn Any + Send)) -> String {
    format!("panicked: {}", panic_message(panic).unwrap_or("without a message"))
}

/// Names the first number of an observation that is not finite.
#[cold]
pub(crate) fn not_finite(observation: &[f32]) -> String {
    let found = observation.iter().position(|x| !x.is_finite());
    let (i, x) = found.map_or((0, f32::NAN), |i| (i, observation[i]));
    format!("gave an observation whose number {i} is {x}")
}
