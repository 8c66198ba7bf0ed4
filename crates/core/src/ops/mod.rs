//! The vocabulary of ops: enums for the families, and [`Op`], which names any op together with its arguments.

mod blocks;
mod family;
mod meaning;
mod methods;
mod op;
mod operands;
mod params;
mod results;
mod table;

pub use blocks::BlockScheme;
pub use family::{Activation, ArgOp, BinaryOp, CompareOp, ReduceOp, UnaryOp};
pub(crate) use methods::op_pattern;
pub use op::{Op, OpDesc, SavedTensor};
pub(crate) use operands::{Operands, malformed};
pub use operands::{Owned, Tensors};
pub use params::{
    AdamParams, ConvParams, CrossEntropyParams, PoolParams, Prepack, SgdParams, SliceRange, window_positions,
};
pub use results::TensorType;
