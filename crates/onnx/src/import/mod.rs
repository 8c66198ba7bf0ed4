//! Running a graph on a backend.
//!
//! [`planner`] turns a graph into steps once: ops are looked up in the table of [`ops`], constants are folded, and
//! unused nodes are dropped. [`run`] executes the steps. A [`Value`] is a tensor on the device, or a small one on the
//! host, where shapes are computed ([`host`]), so that a run never waits for the device to know an extent. Results
//! computed there are kept for the next run ([`memo`]). [`fuse`] replaces several ops by one. [`replay`] runs the ops
//! of earlier runs again, without the steps.

mod call;
mod fit;
mod fuse;
mod host;
mod inline;
mod limits;
mod memo;
mod memory;
mod model;
mod ops;
mod options;
mod outputs;
mod plan;
mod planner;
mod qdq;
mod replay;
mod rows;
mod run;
mod unknown;
mod value;
mod workspace;

#[cfg(feature = "rten")]
pub(crate) use inline::inline;
pub use model::OnnxModel;
pub use ops::op_versions;
#[cfg(feature = "rten")]
pub(crate) use ops::row as row_of;
pub use options::Options;
pub use outputs::Outputs;
pub(crate) use planner::needed;
pub(crate) use qdq::{MOVES, plain_gemm};
pub use value::Value;
