//! Functions common to HTTP and gRPC.

use std::time::Duration;

use crate::{Failure, NamedValue, Reason, Signature, TensorSpec, VersionState};

/// Parses a version number.
///
/// # Errors
/// A text that is no number.
pub(crate) fn version(text: &str) -> Result<u64, Failure> {
    let wrong = |_| Failure::invalid(format!("a version is a number from 1, and this is {text:?}"));
    text.parse().map_err(wrong)
}

/// The index in the signature of a requested output.
///
/// # Errors
/// No such output.
pub(crate) fn output_place(signature: &Signature, name: &str) -> Result<usize, Failure> {
    let place = signature.outputs.iter().position(|spec| spec.name == name);
    place.ok_or_else(|| {
        let names: Vec<&str> = signature.outputs.iter().map(|spec| spec.name.as_str()).collect();
        Failure::invalid(format!(
            "the model has no output {name:?}; it gives {}",
            names.join(", ")
        ))
    })
}

/// The value of a requested output.
///
/// # Errors
/// The state of a sequence, which is not returned.
pub(crate) fn output<'a>(given: &'a [NamedValue], spec: &TensorSpec) -> Result<&'a NamedValue, Failure> {
    given.iter().find(|output| output.name == spec.name).ok_or_else(|| {
        Failure::invalid(format!(
            "the output {:?} is a state, which the server keeps for a sequence: do not ask for it",
            spec.name
        ))
    })
}

/// The error for an input or output in shared memory.
pub(crate) fn in_shared_memory(name: &str) -> Failure {
    Failure::invalid(format!(
        "{name:?} is in shared memory, which this server does not read: send the bytes"
    ))
}

/// Fails unless requests may load and unload models.
///
/// # Errors
/// If they may not.
pub(crate) fn control(is_allowed: bool) -> Result<(), Failure> {
    match is_allowed {
        true => Ok(()),
        false => Err(Failure::new(
            Reason::Forbidden,
            "models of this server are not loaded and unloaded by request: it was started without control",
        )),
    }
}

/// A time in the protocol's unit.
pub(crate) fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The state and its reason in the form of the protocol's index.
pub(crate) fn state(state: &VersionState) -> (&'static str, &str) {
    match state {
        VersionState::Ready => ("READY", ""),
        VersionState::Unloaded => ("UNAVAILABLE", "unloaded"),
        VersionState::Failed(reason) => ("UNAVAILABLE", reason),
    }
}
