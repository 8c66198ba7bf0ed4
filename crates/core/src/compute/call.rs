//! A driver call as a value.

use super::touched::Part;
use super::{
    ArgReduce, Attention, AttentionBackward, Batch, Binary, ComputeBackend, Conv2d, CrossEntropy, CumSum, Elementwise,
    Fill, Gather, Gemm, LayerNorm, Operand, Pool2d, Random, Reduce, ReduceAxes, Scatter, Softmax, Sort, Unary,
};
use crate::Result;

/// A kernel call of a driver as a value, for code that inspects calls before it makes them, or instead of making them.
///
/// There is a variant for each method that computes, except the `_strided` ones, which are programs for
/// [`ComputeBackend::elementwise`]. [`forward_calls!`](crate::forward_calls) writes the methods of a driver that
/// handles all calls as such values.
///
/// ```
/// use polygrad_core::compute::{Access, Call, DevicePtr, Unary};
/// use polygrad_core::{DType, UnaryOp};
///
/// # fn main() -> polygrad_core::Result<()> {
/// let (input, output) = (DevicePtr::new(512), DevicePtr::new(1024));
/// let unary = Unary { op: UnaryOp::IsNan, dtype: DType::F32, len: 10, input, output };
/// let call = Call::Unary(&unary);
/// let operands = call.operands()?;
/// assert_eq!((operands[0].span.clone(), operands[0].access), (0..40, Access::Read));
/// assert_eq!((operands[1].span.clone(), operands[1].access), (0..10, Access::Write));
/// assert_eq!((call.name(), call.detail().as_deref()), ("unary", Some("isnan")));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the method of the same name documents each")]
pub enum Call<'a> {
    Gemm(&'a Gemm),
    BatchedGemm(&'a Gemm, &'a Batch),
    Conv2dForward(&'a Conv2d),
    Conv2dInputGrad(&'a Conv2d),
    Conv2dWeightGrad(&'a Conv2d),
    Attention(&'a Attention),
    AttentionBackward(&'a AttentionBackward),
    Unary(&'a Unary),
    Binary(&'a Binary),
    Elementwise(&'a Elementwise<'a>),
    Fill(&'a Fill),
    Random(&'a Random),
    Reduce(&'a Reduce),
    ReduceAxes(&'a ReduceAxes),
    ArgReduce(&'a ArgReduce),
    CumSum(&'a CumSum),
    Sort(&'a Sort),
    Softmax(&'a Softmax),
    SoftmaxBackward(&'a Softmax),
    LayerNorm(&'a LayerNorm),
    CrossEntropy(&'a CrossEntropy),
    CrossEntropyBackward(&'a CrossEntropy),
    MaxPool2d(&'a Pool2d),
    AvgPool2d(&'a Pool2d),
    Gather(&'a Gather),
    Scatter(&'a Scatter),
    ScatterAdd(&'a Scatter),
}

/// A row for each call: the method and its operands. The only call with two arguments is written out.
macro_rules! table {
    ($($variant:ident = $method:ident, |$call:ident| $operands:expr;)*) => {
        impl Call<'_> {
            /// The method's name.
            pub const fn name(&self) -> &'static str {
                match self {
                    Self::BatchedGemm(..) => "batched_gemm",
                    $(Self::$variant(_) => stringify!($method),)*
                }
            }

            /// Makes the call.
            ///
            /// # Errors
            /// The method's.
            pub fn run(&self, driver: &dyn ComputeBackend) -> Result<()> {
                match *self {
                    Self::BatchedGemm(call, batch) => driver.batched_gemm(call, batch),
                    $(Self::$variant(call) => driver.$method(call),)*
                }
            }

            /// The memory that the call touches, always in the same order.
            ///
            /// # Errors
            /// When the call makes no sense: [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for extents that
            /// overflow or do not match, and for a reduction over nothing that has no value;
            /// [`OutOfRange`](crate::ErrorKind::OutOfRange) for an axis that does not exist;
            /// [`DType`](crate::ErrorKind::DType) for an op that is not defined for its dtype.
            pub fn operands(&self) -> Result<Vec<Operand>> {
                match *self {
                    Self::BatchedGemm(call, batch) => call.touched(Some(batch)),
                    $(Self::$variant($call) => $operands,)*
                }
            }
        }
    };
}

table! {
    Gemm = gemm, |call| call.touched(None);
    Conv2dForward = conv2d_forward, |call| call.touched(Part::Output);
    Conv2dInputGrad = conv2d_input_grad, |call| call.touched(Part::Input);
    Conv2dWeightGrad = conv2d_weight_grad, |call| call.touched(Part::Weight);
    Attention = attention, |call| call.touched();
    AttentionBackward = attention_backward, |call| call.touched();
    Unary = unary, |call| call.touched();
    Binary = binary, |call| call.touched();
    Elementwise = elementwise, |call| call.touched();
    Fill = fill, |call| call.touched();
    Random = random, |call| call.touched();
    Reduce = reduce, |call| call.touched();
    ReduceAxes = reduce_axes, |call| call.touched();
    ArgReduce = arg_reduce, |call| call.touched();
    CumSum = cumsum, |call| call.touched();
    Sort = sort, |call| call.touched();
    Softmax = softmax, |call| call.touched(false);
    SoftmaxBackward = softmax_backward, |call| call.touched(true);
    LayerNorm = layer_norm, |call| call.touched();
    CrossEntropy = cross_entropy, |call| call.touched(false);
    CrossEntropyBackward = cross_entropy_backward, |call| call.touched(true);
    MaxPool2d = max_pool2d, |call| call.touched(true);
    AvgPool2d = avg_pool2d, |call| call.touched(false);
    Gather = gather, |call| call.touched();
    Scatter = scatter, |call| call.touched();
    ScatterAdd = scatter_add, |call| call.touched();
}

impl Call<'_> {
    /// The name of the op or program, for a method that computes many ops; `None` for other methods.
    pub fn detail(&self) -> Option<String> {
        Some(match self {
            Self::Unary(call) => call.op.name().to_owned(),
            Self::Binary(call) => call.op.name().to_owned(),
            Self::Elementwise(call) => call.program.name(),
            Self::Reduce(call) => call.op.name().to_owned(),
            Self::ReduceAxes(call) => call.op.name().to_owned(),
            Self::ArgReduce(call) => call.op.name().to_owned(),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::compute::{Access, DevicePtr, Transpose};

    #[test]
    fn a_product_that_adds_reads_its_result() {
        let gemm = Gemm {
            dtype: DType::F32,
            dtype_c: DType::F32,
            trans_a: Transpose::No,
            trans_b: Transpose::No,
            m: 2,
            n: 3,
            k: 4,
            alpha: 1.0,
            beta: 0.0,
            a: DevicePtr::NULL,
            lda: 4,
            b: DevicePtr::NULL,
            ldb: 3,
            c: DevicePtr::NULL,
            ldc: 3,
        };
        let access = |gemm: &Gemm| Call::Gemm(gemm).operands().unwrap()[2].access;
        assert_eq!(access(&gemm), Access::Write);
        assert_eq!(access(&Gemm { beta: 0.5, ..gemm }), Access::ReadWrite);
    }
}
