//! Helpers that the tests of several crates share. It is a dev-dependency by path only, since it is not published.

mod backends;
pub mod fuzz;
pub mod memory;
#[cfg(feature = "node-cases")]
pub mod node_cases;
#[cfg(feature = "ranks")]
pub mod ranks;
#[cfg(feature = "zoo")]
pub mod zoo;
