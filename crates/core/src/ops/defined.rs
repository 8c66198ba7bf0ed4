//! Which ops are defined for which dtypes, and which are made of others: what every [`Backend::supports`](crate::Backend::supports)
//! starts from.

use super::{BinaryOp, Op, ReduceOp, UnaryOp};
use crate::DType;

impl UnaryOp {
    /// Whether the function is defined for a dtype.
    pub const fn accepts(self, dtype: DType) -> bool {
        match dtype {
            DType::Bool => self.is_predicate(),
            _ => dtype.is_float() || !self.needs_float(),
        }
    }
}

impl BinaryOp {
    /// Whether the function is defined for a dtype.
    pub const fn accepts(self, dtype: DType) -> bool {
        match self {
            Self::Add | Self::Mul | Self::Maximum | Self::Minimum => true,
            Self::Sub | Self::Div | Self::Remainder | Self::Pow => !matches!(dtype, DType::Bool),
            Self::Atan2 => dtype.is_float(),
            Self::And | Self::Or | Self::Xor => !dtype.is_float(),
        }
    }
}

impl ReduceOp {
    /// Whether the reduction is defined for a dtype.
    pub const fn accepts(self, dtype: DType) -> bool {
        match self {
            Self::Max | Self::Min => true,
            Self::Sum | Self::Prod => !matches!(dtype, DType::Bool),
            Self::Mean => dtype.is_float(),
            Self::Any | Self::All => matches!(dtype, DType::Bool),
        }
    }
}

impl Op {
    /// Whether the op is defined when its first tensor has this dtype; a backend may lack the dtype all the same.
    pub fn accepts(&self, dtype: DType) -> bool {
        match self {
            Self::Unary(op) => op.accepts(dtype),
            Self::Binary(op) | Self::BinaryScalar { op, .. } => op.accepts(dtype),
            Self::Reduce { op, .. } => op.accepts(dtype),
            Self::AccumulateGrad => BinaryOp::Add.accepts(dtype),
            Self::Select => dtype == DType::Bool,
            Self::CumSum { .. }
            | Self::ScatterAdd { .. }
            | Self::IndexAdd { .. }
            | Self::SumTo(_)
            | Self::MaxPool(_)
            | Self::MaxPoolValues(_)
            | Self::MaxPoolBackward { .. } => dtype != DType::Bool,
            Self::Compare(_)
            | Self::CompareScalar { .. }
            | Self::Cast(_)
            | Self::ArgReduce { .. }
            | Self::Reshape(_)
            | Self::Permute(_)
            | Self::Expand(_)
            | Self::Slice(_)
            | Self::Pad { .. }
            | Self::Concat { .. }
            | Self::Gather { .. }
            | Self::Scatter { .. }
            | Self::IndexSelect { .. }
            | Self::Embedding { .. }
            | Self::Sort { .. } => true,
            _ => dtype.is_float(),
        }
    }

    /// Whether a backend need not implement the op, since it has a default that is made of others.
    pub fn is_fused(&self) -> bool {
        !matches!(
            self,
            Self::Unary(_)
                | Self::Binary(_)
                | Self::Compare(_)
                | Self::Select
                | Self::Cast(_)
                | Self::Reduce { .. }
                | Self::ArgReduce { .. }
                | Self::CumSum { .. }
                | Self::Matmul
                | Self::Reshape(_)
                | Self::Permute(_)
                | Self::Expand(_)
                | Self::Slice(_)
                | Self::Pad { .. }
                | Self::Concat { .. }
                | Self::Gather { .. }
                | Self::Scatter { .. }
                | Self::ScatterAdd { .. }
                | Self::IndexSelect { .. }
                | Self::Sort { .. }
                | Self::Conv(_)
                | Self::MaxPool(_)
                | Self::AvgPool(_)
        )
    }
}
