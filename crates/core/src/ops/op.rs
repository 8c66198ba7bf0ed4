//! Any op as a value: for the gradient graph, for erased backends, and for asking what a backend supports.

use super::methods::op_pattern;
use super::{
    Activation, AdamParams, ArgOp, BinaryOp, BlockScheme, CompareOp, ConvParams, CrossEntropyParams, PoolParams,
    Prepack, ReduceOp, SgdParams, SliceRange, UnaryOp,
};
use crate::{Axes, DType, Error, Result, Scalar, Shape, for_each_op};

macro_rules! define {
    ($($(#[$doc:meta])* $kind:ident $method:ident($($x:ident : $type:tt),* $(,)?) -> $count:ident
        as $variant:ident $fields:tt, named $name:tt, for $dtypes:tt gives $results:tt $(saves $saves:tt)? $(steps $steps:tt)?;)*) => {
        define! { @variants [] $($variant $fields)* }

        impl Op {
            /// PyTorch's name for it, if PyTorch has one.
            #[allow(unused_variables, reason = "few names depend on the arguments")]
            pub fn name(&self) -> &'static str {
                match self {
                    $(op_pattern!($variant $fields) => define!(@name $name),)*
                    Self::AccumulateGrad => "accumulate_grad",
                    Self::SliceScatter { .. } => "slice_scatter",
                    Self::SgdStep(_) => "sgd_step",
                    Self::AdamStep(_) => "adam_step",
                }
            }

            /// Whether the op is defined if its first tensor has this dtype. A backend may still lack the dtype.
            #[allow(unused_variables, reason = "few answers depend on the arguments")]
            pub fn accepts(&self, dtype: DType) -> bool {
                match self {
                    $(op_pattern!($variant $fields) => define!(@accepts $dtypes dtype),)*
                    Self::AccumulateGrad => BinaryOp::Add.accepts(dtype),
                    Self::SliceScatter { .. } => true,
                    Self::SgdStep(_) | Self::AdamStep(_) => dtype.is_float(),
                }
            }

            /// Whether the op has a default that is composed of others, so that a backend need not implement it.
            #[allow(unused_variables, reason = "no answer depends on the arguments")]
            pub fn is_fused(&self) -> bool {
                match self {
                    $(op_pattern!($variant $fields) => define!(@fused $kind),)*
                    Self::AccumulateGrad | Self::SliceScatter { .. } | Self::SgdStep(_) | Self::AdamStep(_) => true,
                }
            }

            /// Whether the op only occurs in training.
            #[allow(unused_variables, reason = "no answer depends on the arguments")]
            pub fn is_training(&self) -> bool {
                match self {
                    $(op_pattern!($variant $fields) => define!(@training $kind),)*
                    Self::AccumulateGrad | Self::SgdStep(_) | Self::AdamStep(_) => true,
                    Self::SliceScatter { .. } => false,
                }
            }

            /// Whether its gradient takes several steps that round or overflow, so that f16 and bf16 must be computed
            /// in f32. False for fused ops, whose gradient is one op of the backend.
            #[allow(unused_variables, reason = "few answers depend on the arguments")]
            pub fn gradient_takes_steps(&self) -> bool {
                match self {
                    $(op_pattern!($variant $fields) => define!(@steps $($steps)?),)*
                    Self::AccumulateGrad | Self::SliceScatter { .. } | Self::SgdStep(_) | Self::AdamStep(_) => false,
                }
            }

            /// The tensors that its gradient rule reads, in this order.
            #[allow(unused_variables, reason = "few answers depend on the arguments")]
            #[inline]
            pub const fn saved(&self) -> &'static [SavedTensor] {
                match self {
                    $(op_pattern!($variant $fields) => define!(@saved $($saves)?),)*
                    Self::AccumulateGrad | Self::SliceScatter { .. } | Self::SgdStep(_) | Self::AdamStep(_) => &[],
                }
            }

            /// The variant's name, as `Debug` writes it.
            pub fn variant(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => stringify!($variant),)*
                    Self::AccumulateGrad => "AccumulateGrad",
                    Self::SliceScatter { .. } => "SliceScatter",
                    Self::SgdStep(_) => "SgdStep",
                    Self::AdamStep(_) => "AdamStep",
                }
            }

            /// The names of all variants.
            pub const VARIANTS: &[&str] = &[$(stringify!($variant),)* "AccumulateGrad", "SliceScatter", "SgdStep", "AdamStep"];
        }
    };

    (@variants [$($done:tt)*]) => {
        /// An op with its arguments, except the tensors. Each variant is the [`Backend`](crate::Backend) method of the
        /// same name, whose documentation says which tensors it takes and gives, in order; optional tensors come last.
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        #[allow(
            missing_docs,
            reason = "the method of the same name documents the op and its arguments"
        )]
        pub enum Op {
            $($done)*
            AccumulateGrad,
            SliceScatter { axis: usize, start: usize },
            SgdStep(SgdParams),
            AdamStep(AdamParams),
        }
    };
    (@variants [$($done:tt)*] $variant:ident () $($rest:tt)*) => {
        define! { @variants [$($done)* $variant,] $($rest)* }
    };
    (@variants [$($done:tt)*] $variant:ident ($field:ident : $type:ty) $($rest:tt)*) => {
        define! { @variants [$($done)* $variant($type),] $($rest)* }
    };
    (@variants [$($done:tt)*] $variant:ident { $($fields:tt)* } $($rest:tt)*) => {
        define! { @variants [$($done)* $variant { $($fields)* },] $($rest)* }
    };

    (@name ($op:ident)) => { $op.name() };
    (@name $name:literal) => { $name };

    (@accepts ($op:ident) $dtype:ident) => { $op.accepts($dtype) };
    (@accepts any $dtype:ident) => { true };
    (@accepts bool $dtype:ident) => { $dtype == DType::Bool };
    (@accepts bytes $dtype:ident) => { $dtype == DType::U8 };
    (@accepts words $dtype:ident) => { $dtype == DType::I32 };
    (@accepts numbers $dtype:ident) => { $dtype != DType::Bool };
    (@accepts floats $dtype:ident) => { $dtype.is_float() };

    (@saved) => { &[] };
    (@saved [$($what:ident $($place:literal)?),*]) => { &[$(define!(@tensor $what $($place)?)),*] };
    (@saved ($op:ident)) => { $op.saved() };
    (@saved ($($saved:tt)*)) => { $($saved)* };
    (@tensor input $place:literal) => { SavedTensor::Input($place) };
    (@tensor inputs) => { SavedTensor::Inputs };
    (@tensor output $place:literal) => { SavedTensor::Output($place) };

    (@fused core) => { false };
    (@fused $kind:ident) => { true };

    (@training training) => { true };
    (@training $kind:ident) => { false };

    (@steps) => { false };
    (@steps ($($steps:tt)*)) => { $($steps)* };
}

for_each_op!(define);

// Every node of a gradient graph holds an op. The largest is a convolution's parameters with an activation.
const _: () = assert!(size_of::<Op>() <= 104);

/// A tensor of a call that is saved for its gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedTensor {
    /// An input, by its index.
    Input(usize),
    /// All inputs that are present, in order.
    Inputs,
    /// A result, by its index.
    Output(usize),
}

/// A description of a call, for [`Backend::supports`](crate::Backend::supports).
#[derive(Clone, Copy, Debug)]
pub struct OpDesc<'a> {
    /// The op.
    pub op: &'a Op,
    /// The dtype of its first input.
    pub dtype: DType,
}

impl OpDesc<'_> {
    /// Fails unless the op is defined for its dtype, and `dtypes`, those of a device, include all dtypes that the op
    /// needs.
    ///
    /// # Errors
    /// A dtype that the device lacks, or for which the op is not defined.
    pub fn check(&self, dtypes: &[DType]) -> Result<()> {
        let other = match self.op {
            Op::Cast(to) => *to,
            Op::QuantizeU8 | Op::DynamicQuantizeU8 | Op::QuantizedLinear { .. } => DType::U8,
            Op::DequantizeU8 | Op::MatmulRescaleU8 | Op::BinaryRequantizeU8 { .. } => DType::F32,
            _ => self.dtype,
        };
        let error = match [self.dtype, other].into_iter().find(|dtype| !dtypes.contains(dtype)) {
            Some(missing) => {
                let there: Vec<&str> = dtypes.iter().map(|dtype| dtype.name()).collect();
                Error::unsupported(format!("there is no {missing}"))
                    .with_hint(format!("there are {}", there.join(", ")))
            }
            None if self.op.accepts(self.dtype) => return Ok(()),
            None => Error::dtype(format!("not defined for {}", self.dtype)),
        };
        Err(error.with_op(self.op.name()))
    }
}
