//! The vocabulary of ops: enums for the families, and [`Op`], which names any op together with its arguments.

mod defined;
mod family;
mod integers;
mod op;
mod params;

pub use family::{Activation, ArgOp, BinaryOp, CompareOp, ReduceOp, UnaryOp};
pub use op::{Op, OpDesc};
pub use params::{AdamParams, ConvParams, CrossEntropyParams, PoolParams, Prepack, SgdParams, SliceRange};
