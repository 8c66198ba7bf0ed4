//! A call as a value.

use super::touched::{Each, Part};
use super::{
    ArgReduce, Attention, Batch, Binary, ComputeBackend, Conv2d, CrossEntropy, CumSum, DevicePtr, Elementwise, Fill,
    Gather, Gemm, Kernel, LayerNorm, Operand, Pool2d, Random, Reduce, ReduceAxes, Scatter, Softmax, Sort, Unary,
};
use crate::{Error, Result};

/// A call of a driver's kernel as a value, for those who look at calls before they make them: what it touches, how much work it is, and the
/// same call in other memory.
///
/// There is one for each method that computes, but for the `_strided` ones, which are programs for [`ComputeBackend::elementwise`].
/// [`forward_calls!`](crate::forward_calls) writes a driver that takes each as such a value.
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
/// assert_eq!((call.name(), call.work()?), ("unary", 10));
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

/// A row for each call: where its dtype is, the method, what [`ComputeBackend::supports`] is asked for it, and how its operands are gone
/// through. Those with more than one argument, or dtype, are written out.
macro_rules! table {
    ($($variant:ident($($dtype:ident).+) = $method:ident, $kernel:expr, |$call:ident, $each:ident| $touch:expr;)*) => {
        impl Call<'_> {
            /// The method's name.
            pub const fn name(&self) -> &'static str {
                match self {
                    Self::BatchedGemm(..) => "batched_gemm",
                    Self::Elementwise(_) => "elementwise",
                    $(Self::$variant(_) => stringify!($method),)*
                }
            }

            /// What [`ComputeBackend::supports`] is asked for it; nothing for the methods that every driver has.
            pub const fn kernel(&self) -> Option<Kernel> {
                match self {
                    Self::BatchedGemm(..) => None,
                    Self::Elementwise(_) => Some(Kernel::Elementwise),
                    $(Self::$variant(_) => $kernel,)*
                }
            }

            /// Whether a driver says that it runs it. Methods that every driver has may still decline a dtype.
            pub fn is_supported(&self, driver: &dyn ComputeBackend) -> bool {
                let Some(kernel) = self.kernel() else { return true };
                match self {
                    Self::BatchedGemm(call, _) => driver.supports(kernel, call.dtype),
                    Self::Elementwise(call) => call.program.dtypes().all(|dtype| driver.supports(kernel, dtype)),
                    $(Self::$variant(call) => driver.supports(kernel, call.$($dtype).+),)*
                }
            }

            /// Makes the call.
            ///
            /// # Errors
            /// The method's.
            pub fn run(&self, driver: &dyn ComputeBackend) -> Result<()> {
                match *self {
                    Self::BatchedGemm(call, batch) => driver.batched_gemm(call, batch),
                    Self::Elementwise(call) => driver.elementwise(call),
                    $(Self::$variant(call) => driver.$method(call),)*
                }
            }

            /// Goes through the operands and, if there is a driver, makes the call with the pointers that come back.
            fn touch(&self, driver: Option<&dyn ComputeBackend>, each: Each<'_>) -> Result<()> {
                match *self {
                    Self::BatchedGemm(call, batch) => {
                        let call = call.touch(Some(batch), each)?;
                        driver.map_or(Ok(()), |driver| driver.batched_gemm(&call, batch))
                    }
                    Self::Elementwise(call) => {
                        let [inputs, outputs] = call.touch(each)?;
                        let call = Elementwise {
                            inputs: &inputs,
                            outputs: &outputs,
                            ..*call
                        };
                        driver.map_or(Ok(()), |driver| driver.elementwise(&call))
                    }
                    $(Self::$variant($call) => {
                        let $each = each;
                        let call = $touch?;
                        driver.map_or(Ok(()), |driver| driver.$method(&call))
                    })*
                }
            }
        }
    };
}

table! {
    Gemm(dtype) = gemm, None, |call, each| call.touch(None, each);
    Conv2dForward(dtype) = conv2d_forward, Some(Kernel::Conv2dForward), |call, each| call.touch(Part::Output, each);
    Conv2dInputGrad(dtype) = conv2d_input_grad, Some(Kernel::Conv2dInputGrad), |call, each| call.touch(Part::Input, each);
    Conv2dWeightGrad(dtype) = conv2d_weight_grad, Some(Kernel::Conv2dWeightGrad), |call, each| call.touch(Part::Weight, each);
    Attention(dtype) = attention, Some(Kernel::Attention), |call, each| call.touch(each);
    Unary(dtype) = unary, None, |call, each| call.touch(each);
    Binary(dtype) = binary, None, |call, each| call.touch(each);
    Fill(dtype) = fill, None, |call, each| call.touch(each);
    Random(dtype) = random, None, |call, each| call.touch(each);
    Reduce(dtype) = reduce, None, |call, each| call.touch(each);
    ReduceAxes(input.dtype) = reduce_axes, Some(Kernel::ReduceAxes), |call, each| call.touch(each);
    ArgReduce(input.dtype) = arg_reduce, Some(Kernel::ArgReduce), |call, each| call.touch(each);
    CumSum(input.dtype) = cumsum, Some(Kernel::CumSum), |call, each| call.touch(each);
    Sort(input.dtype) = sort, Some(Kernel::Sort), |call, each| call.touch(each);
    Softmax(dtype) = softmax, Some(Kernel::Softmax), |call, each| call.touch(false, each);
    SoftmaxBackward(dtype) = softmax_backward, Some(Kernel::SoftmaxBackward), |call, each| call.touch(true, each);
    LayerNorm(dtype) = layer_norm, Some(Kernel::LayerNorm), |call, each| call.touch(each);
    CrossEntropy(dtype) = cross_entropy, Some(Kernel::CrossEntropy), |call, each| call.touch(false, each);
    CrossEntropyBackward(dtype) = cross_entropy_backward, Some(Kernel::CrossEntropyBackward), |call, each| call.touch(true, each);
    MaxPool2d(dtype) = max_pool2d, Some(Kernel::MaxPool2d), |call, each| call.touch(true, each);
    AvgPool2d(dtype) = avg_pool2d, Some(Kernel::AvgPool2d), |call, each| call.touch(false, each);
    Gather(input.dtype) = gather, Some(Kernel::Gather), |call, each| call.touch(each);
    Scatter(target.dtype) = scatter, Some(Kernel::Scatter), |call, each| call.touch(each);
    ScatterAdd(target.dtype) = scatter_add, Some(Kernel::ScatterAdd), |call, each| call.touch(each);
}

impl Call<'_> {
    /// What is computed, where the method is for many things: an op's name, a program's.
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

    /// The memory that it touches, always in the same order.
    ///
    /// # Errors
    /// When the call makes no sense: [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for extents that cannot be counted or do not fit
    /// each other and for a reduction over nothing that has no value, [`OutOfRange`](crate::ErrorKind::OutOfRange) for an axis that is not
    /// there, [`DType`](crate::ErrorKind::DType) for an op that is not defined for its dtype.
    pub fn operands(&self) -> Result<Vec<Operand>> {
        let mut all = Vec::new();
        self.touch(None, &mut |operand| {
            let ptr = operand.ptr;
            all.push(operand);
            Ok(ptr)
        })?;
        Ok(all)
    }

    /// Makes the call in other memory: `ptrs` are those of [`Call::operands`], one for each.
    ///
    /// # Errors
    /// As [`Call::operands`], and the method's.
    pub fn run_at(&self, driver: &dyn ComputeBackend, ptrs: &[DevicePtr]) -> Result<()> {
        let mut ptrs = ptrs.iter();
        self.touch(Some(driver), &mut |operand| {
            let none = || Error::invalid(format!("{} of {} is given no pointer", operand.name, self.name()));
            ptrs.next().copied().ok_or_else(none)
        })
    }

    /// How much work it is, roughly: multiply-adds of products, convolutions and attention; of other calls the elements of the largest
    /// operand.
    ///
    /// # Errors
    /// As [`Call::operands`].
    pub fn work(&self) -> Result<u64> {
        let product = |factors: &[usize]| factors.iter().fold(1u64, |n, &x| n.saturating_mul(x as u64));
        Ok(match self {
            Self::Gemm(call) => product(&[call.m, call.n, call.k]),
            Self::BatchedGemm(call, batch) => product(&[call.m, call.n, call.k, batch.count]),
            Self::Conv2dForward(call) | Self::Conv2dInputGrad(call) | Self::Conv2dWeightGrad(call) => {
                product(&call.output_shape()?).saturating_mul(product(&call.weight_shape[1..]))
            }
            Self::Attention(call) => {
                let each = call.head_dim.saturating_add(call.value_dim);
                product(&[call.batch, call.heads, call.seq_q, call.seq_kv, each])
            }
            Self::Elementwise(call) => call.shape.numel() as u64,
            other => {
                let all = other.operands()?;
                all.iter().map(|operand| operand.elements).max().unwrap_or(0) as u64
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::{Access, Transpose};
    use crate::{ConvParams, DType};

    const GEMM: Gemm = Gemm {
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

    #[test]
    fn a_product_that_adds_reads_its_result() {
        let c = |gemm: &Gemm| Call::Gemm(gemm).operands().unwrap().remove(2);
        assert!(c(&GEMM).is_replaced());
        assert!(!c(&Gemm { ldc: 5, ..GEMM }).is_replaced());
        assert_eq!(c(&Gemm { beta: 0.5, ..GEMM }).access, Access::ReadWrite);
        let batch = |stride_c| Batch {
            count: 5,
            stride_a: 0,
            stride_b: 12,
            stride_c,
        };
        let c = |batch: &Batch| Call::BatchedGemm(&GEMM, batch).operands().unwrap().remove(2);
        assert!(c(&batch(6)).is_replaced() && !c(&batch(7)).is_replaced());
        assert_eq!(Call::BatchedGemm(&GEMM, &batch(6)).work().unwrap(), 2 * 3 * 4 * 5);
    }

    #[test]
    fn work_is_counted_in_multiply_adds_or_elements() {
        let conv = Conv2d {
            dtype: DType::F32,
            input_shape: [2, 3, 5, 5],
            weight_shape: [4, 3, 2, 2],
            params: ConvParams::default(),
            input: DevicePtr::NULL,
            weight: DevicePtr::NULL,
            output: DevicePtr::NULL,
        };
        for call in [Call::Conv2dForward(&conv), Call::Conv2dWeightGrad(&conv)] {
            assert_eq!(call.work().unwrap(), (2 * 4 * 4 * 4) * (3 * 2 * 2));
        }
        let none = Gemm {
            m: 0,
            k: usize::MAX,
            n: usize::MAX,
            lda: usize::MAX,
            ldb: usize::MAX,
            ..GEMM
        };
        assert_eq!(Call::Gemm(&none).work().unwrap(), 0);
        let huge = Gemm { k: usize::MAX, ..GEMM };
        assert_eq!(Call::Gemm(&huge).work().unwrap(), u64::MAX);
        let sum = Reduce {
            op: crate::ReduceOp::Sum,
            dtype: DType::F32,
            outer: 2,
            len: 7,
            inner: 3,
            input: DevicePtr::NULL,
            output: DevicePtr::NULL,
        };
        assert_eq!(Call::Reduce(&sum).work().unwrap(), 42);
    }
}
