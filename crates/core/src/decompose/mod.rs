//! Fused ops written in terms of core ops.
//!
//! Each function is the default of the [`Backend`] method of the same name, and its meaning: a backend's own kernel
//! must give the same values. Since they are generic over `Backend`, they are also used to differentiate a fused op
//! twice.

mod activation;
mod attention;
mod basic;
mod blocks;
mod conv;
mod epilogue;
mod integers;
mod norm;
mod optim;
mod quantized;
mod recurrent;
mod rotary;
mod softmax;
mod steps;
mod wide;

pub use attention::attention_weights;
pub use basic::{binary, binary_number};
pub use blocks::{deinterleaved, dequantized};
pub use epilogue::epilogue;
pub use integers::{integer_conv, integer_matmul};
pub use norm::fold_batch_norm;
pub use optim::{accumulate_grad, adam_step, check_slice_scatter, sgd_step, slice_scatter};

use crate::{
    Activation, Backend, BinaryOp, BlockScheme, CompareOp, ConvParams, CrossEntropyParams, PoolParams, Prepack, Result,
    Scalar, Shape, for_each_op, observe, op_parameter, op_results,
};

/// The functions that the generated ones below call.
mod bodies {
    pub(super) use super::activation::*;
    pub(super) use super::attention::*;
    pub(super) use super::basic::*;
    pub(super) use super::blocks::*;
    pub(super) use super::conv::*;
    pub(super) use super::epilogue::*;
    pub(super) use super::norm::*;
    pub(super) use super::quantized::*;
    pub(super) use super::recurrent::*;
    pub(super) use super::rotary::*;
    pub(super) use super::softmax::*;
    pub(super) use super::steps::*;
}

macro_rules! define {
    ($($(#[$doc:meta])* $kind:ident $method:ident($($x:ident : $type:tt),* $(,)?) -> $count:ident
        as $variant:ident $fields:tt, named $name:tt, for $dtypes:tt gives $results:tt $(saves $saves:tt)? $(steps $steps:tt)?;)*) => {
        $(define! { @$kind $method($($x: $type),*) -> $count as $variant })*
    };
    (@core $($rest:tt)*) => {};
    (@$kind:ident $method:ident($($x:ident : $type:tt),*) -> $count:ident as $variant:ident) => {
        #[doc = concat!("See [`Backend::", stringify!($method), "`].")]
        ///
        /// # Errors
        /// Those of the ops that it is made of.
        pub fn $method<B: Backend>($($x: op_parameter!(B::Tensor, $type)),*) -> Result<op_results!(B::Tensor, $count)> {
            observe::decomposed(stringify!($variant));
            bodies::$method::<B>($($x),*)
        }
    };
}

for_each_op!(define);
