//! All kernels of a driver as one method.

/// Inside an `impl ComputeBackend`: writes every method that computes. Each passes its call as a
/// [`Call`](crate::compute::Call) to the method that is named. For drivers that inspect calls instead of computing
/// them.
///
/// ```
/// # use polygrad_core::compute::{Call, ComputeBackend, DevicePtr, DriverCapabilities, Kernel};
/// # use polygrad_core::{DType, Result};
/// /// Passes every call on.
/// #[derive(Debug)]
/// struct Around<D>(D);
///
/// impl<D: ComputeBackend> Around<D> {
///     fn kernel(&self, call: &Call<'_>) -> Result<()> {
///         call.run(&self.0)
///     }
/// }
///
/// impl<D: ComputeBackend> ComputeBackend for Around<D> {
///     polygrad_core::forward_calls!(kernel);
///
///     // Memory, and what it is.
/// #   fn name(&self) -> &str { self.0.name() }
/// #   fn init(&self) -> Result<()> { self.0.init() }
/// #   fn is_initialized(&self) -> bool { self.0.is_initialized() }
/// #   fn capabilities(&self) -> DriverCapabilities { self.0.capabilities() }
/// #   fn supports(&self, kernel: Kernel, dtype: DType) -> bool { self.0.supports(kernel, dtype) }
/// #   fn alloc(&self, bytes: usize) -> Result<DevicePtr> { self.0.alloc(bytes) }
/// #   fn free(&self, ptr: DevicePtr) -> Result<()> { self.0.free(ptr) }
/// #   fn copy_htod(&self, dst: DevicePtr, src: &[u8]) -> Result<()> { self.0.copy_htod(dst, src) }
/// #   fn copy_dtoh(&self, dst: &mut [u8], src: DevicePtr) -> Result<()> { self.0.copy_dtoh(dst, src) }
/// #   fn synchronize(&self) -> Result<()> { self.0.synchronize() }
/// }
/// ```
#[macro_export]
macro_rules! forward_calls {
    ($to:ident) => {
        $crate::forward_calls! {
            @each $to,
            gemm(Gemm) = Gemm;
            conv2d_forward(Conv2d) = Conv2dForward;
            conv2d_input_grad(Conv2d) = Conv2dInputGrad;
            conv2d_weight_grad(Conv2d) = Conv2dWeightGrad;
            attention(Attention) = Attention;
            attention_backward(AttentionBackward) = AttentionBackward;
            unary(Unary) = Unary;
            binary(Binary) = Binary;
            elementwise(Elementwise<'_>) = Elementwise;
            fill(Fill) = Fill;
            random(Random) = Random;
            reduce(Reduce) = Reduce;
            reduce_axes(ReduceAxes) = ReduceAxes;
            arg_reduce(ArgReduce) = ArgReduce;
            cumsum(CumSum) = CumSum;
            sort(Sort) = Sort;
            softmax(Softmax) = Softmax;
            softmax_backward(Softmax) = SoftmaxBackward;
            layer_norm(LayerNorm) = LayerNorm;
            cross_entropy(CrossEntropy) = CrossEntropy;
            cross_entropy_backward(CrossEntropy) = CrossEntropyBackward;
            max_pool2d(Pool2d) = MaxPool2d;
            avg_pool2d(Pool2d) = AvgPool2d;
            gather(Gather) = Gather;
            scatter(Scatter) = Scatter;
            scatter_add(Scatter) = ScatterAdd;
        }

        fn batched_gemm(&self, call: &$crate::compute::Gemm, batch: &$crate::compute::Batch) -> $crate::Result<()> {
            self.$to(&$crate::compute::Call::BatchedGemm(call, batch))
        }
    };
    (@each $to:ident, $($method:ident($type:ident $(<$life:lifetime>)?) = $variant:ident;)*) => {$(
        fn $method(&self, call: &$crate::compute::$type $(<$life>)?) -> $crate::Result<()> {
            self.$to(&$crate::compute::Call::$variant(call))
        }
    )*};
}
