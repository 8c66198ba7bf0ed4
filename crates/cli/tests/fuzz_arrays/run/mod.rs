//! What the readers stand beside.

#[allow(dead_code, unused_imports, reason = "of the program, only the readers are tried out")]
#[path = "../../../src/run/atomic.rs"]
pub(crate) mod atomic;
