//! What the tests of several crates share. Crates have it as a dev-dependency by path alone, since it is not published.

pub mod fuzz;
pub mod memory;
#[cfg(feature = "node-cases")]
pub mod node_cases;
#[cfg(feature = "ranks")]
pub mod ranks;
#[cfg(feature = "zoo")]
pub mod zoo;
