//! The seam for engines that have tensors.

use std::fmt::{Debug, Display};

use crate::{
    Activation, AdamParams, ArgOp, Axes, BinaryOp, Capabilities, CompareOp, ConvParams, CrossEntropyParams, DType,
    Distribution, HostTensor, OpDesc, PoolParams, Prepack, RandomKey, ReduceOp, Result, Scalar, SgdParams, Shape,
    SliceRange, Support, UnaryOp, decompose, random_host,
};

/// An engine that has tensors and computes on them.
///
/// A backend is a type without values of its own; its methods are static and are monomorphized. Every backend is also a
/// [`DynBackend`](crate::DynBackend), by a blanket impl, and can be chosen at run time through [`AnyBackend`](crate::AnyBackend).
///
/// # Contract
///
/// **What callers guarantee**, so that backends need not check it again: all tensors of one call live on devices for which
/// [`Backend::same_device`] holds; operands have the dtypes and shapes that the method states; axes are in range and distinct; a
/// slice fits; a reshape keeps the number of elements; reductions without identity have elements. `polygrad-tensor` is such a
/// caller. Values of index tensors are *not* checked by callers.
///
/// **What backends guarantee:**
/// - A tensor is a value: no op changes one that somebody else can still see. Updates in place ([`Backend::adam_step`] and others
///   that take `&mut` or by value) copy first when the memory is shared. A step that fails has changed nothing.
/// - Views ([`Backend::reshape`], [`permute`](Backend::permute), [`expand`](Backend::expand), [`slice`](Backend::slice)) are cheap, and
///   every op takes their results as it takes any other tensor.
/// - There are f32, i64 and bool at least: positions are i64 and answers to comparisons bool. Other dtypes are offered, by
///   [`Backend::capabilities`], or are an [`Unsupported`](crate::ErrorKind::Unsupported) error where a tensor would be made.
/// - NaN propagates through max, min and relu. Sums are accurate: pairwise, compensated or in a wider type.
/// - Elementary functions of f32 and f64 are within 2 units in the last place over their whole range; sine, cosine and tangent of f32
///   within 4.
/// - f16 and bf16 are computed in f32 or better and rounded once.
/// - An index outside its axis is an [`OutOfRange`](crate::ErrorKind::OutOfRange) error.
/// - Whatever cannot be computed is an [`Unsupported`](crate::ErrorKind::Unsupported) error, and so says [`Backend::supports`]. Memory that
///   cannot be had is an [`OutOfMemory`](crate::ErrorKind::OutOfMemory) error. Nothing panics.
pub trait Backend: Copy + Default + Debug + Send + Sync + 'static {
    /// A tensor: cheap to clone.
    type Tensor: Clone + Send + Sync + 'static;
    /// A place where tensors live: cheap to clone.
    type Device: Clone + PartialEq + Debug + Display + Send + Sync + 'static;

    // What it is.

    /// The backend's name, as in device strings.
    fn name() -> &'static str;

    /// What a device offers.
    fn capabilities(device: &Self::Device) -> Capabilities;

    /// How one op would be computed on a device. What an op is defined for says [`Op::accepts`](crate::Op::accepts), and which ones have a
    /// default [`Op::is_fused`](crate::Op::is_fused).
    fn supports(device: &Self::Device, op: &OpDesc<'_>) -> Support;

    /// Waits until all work given to a device is done.
    ///
    /// # Errors
    /// When work given earlier failed.
    fn synchronize(device: &Self::Device) -> Result<()>;

    /// A tensor's shape.
    fn shape(x: &Self::Tensor) -> Shape;

    /// A tensor's dtype.
    fn dtype(x: &Self::Tensor) -> DType;

    /// A tensor's device.
    fn device(x: &Self::Tensor) -> Self::Device;

    /// Whether two tensors can meet in one op.
    #[inline]
    fn same_device(a: &Self::Tensor, b: &Self::Tensor) -> bool {
        Self::device(a) == Self::device(b)
    }

    // In and out.

    /// A tensor with the host's values, shared rather than copied where the backend can.
    fn from_host(host: HostTensor, device: &Self::Device) -> Result<Self::Tensor>;

    /// The values, on the host; waits for them.
    fn to_host(x: &Self::Tensor) -> Result<HostTensor>;

    /// A tensor of one value.
    fn full(shape: Shape, value: Scalar, dtype: DType, device: &Self::Device) -> Result<Self::Tensor>;

    /// `start + i * step` for `i` in `0..len`, rank 1. Computed from `i`, not by repeated addition.
    fn iota(len: usize, start: Scalar, step: Scalar, dtype: DType, device: &Self::Device) -> Result<Self::Tensor>;

    /// Random numbers: those of [`random_host`], on every backend.
    fn random(
        shape: Shape,
        distribution: Distribution,
        dtype: DType,
        key: RandomKey,
        device: &Self::Device,
    ) -> Result<Self::Tensor> {
        Self::from_host(random_host(shape, distribution, dtype, key)?, device)
    }

    // Element by element.

    /// Applies a function. The dtype stays, but for predicates, which give bool.
    fn unary(op: UnaryOp, x: &Self::Tensor) -> Result<Self::Tensor>;

    /// Combines two tensors of one dtype that broadcast.
    fn binary(op: BinaryOp, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor>;

    /// Compares two tensors of one dtype that broadcast; gives bool.
    fn compare(op: CompareOp, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor>;

    /// `condition ? a : b`; the condition is bool, `a` and `b` have one dtype; all three broadcast.
    fn select(condition: &Self::Tensor, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor>;

    /// Converts to another dtype, as [`Element::from_scalar`](crate::Element::from_scalar) does.
    fn cast(x: &Self::Tensor, dtype: DType) -> Result<Self::Tensor>;

    // Reductions and scans.

    /// Reduces over axes, which stay as extents of 1 if `keepdims`. No axes: the tensor itself.
    fn reduce(op: ReduceOp, x: &Self::Tensor, axes: Axes, keepdims: bool) -> Result<Self::Tensor>;

    /// Position of the extreme along an axis, i64.
    fn arg_reduce(op: ArgOp, x: &Self::Tensor, axis: usize, keepdims: bool) -> Result<Self::Tensor>;

    /// Running sum along an axis, inclusive.
    fn cumsum(x: &Self::Tensor, axis: usize) -> Result<Self::Tensor>;

    // Linear algebra.

    /// `[…, m, k] × […, k, n] → […, m, n]`, both of rank 2 or more and one float dtype; leading axes broadcast.
    fn matmul(a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor>;

    // Views.

    /// The same elements in row-major order under another shape of as many elements.
    fn reshape(x: &Self::Tensor, shape: Shape) -> Result<Self::Tensor>;

    /// Axes reordered: output axis `i` is input axis `axes[i]`.
    fn permute(x: &Self::Tensor, axes: Axes) -> Result<Self::Tensor>;

    /// Broadcast to a shape.
    fn expand(x: &Self::Tensor, shape: Shape) -> Result<Self::Tensor>;

    /// One range for each axis.
    fn slice(x: &Self::Tensor, ranges: &[SliceRange]) -> Result<Self::Tensor>;

    // Joining and moving.

    /// Adds a border of `value`: for each axis how many before and after.
    fn pad(x: &Self::Tensor, padding: &[(usize, usize)], value: Scalar) -> Result<Self::Tensor>;

    /// Joins tensors of one dtype, at least one, along an axis; other extents are equal.
    fn concat(xs: &[&Self::Tensor], axis: usize) -> Result<Self::Tensor>;

    /// `out[i][j][k] = x[i][index[i][j][k]][k]` for axis 1 and likewise for others; `index` is i64, of the same rank, no larger than
    /// `x` on the other axes.
    fn gather(x: &Self::Tensor, axis: usize, index: &Self::Tensor) -> Result<Self::Tensor>;

    /// `x` with `out[i][index[i][j][k]][k] = src[i][j][k]`; `src` is at least as large as `index`. Of several writes to one
    /// place any may win.
    fn scatter(x: &Self::Tensor, axis: usize, index: &Self::Tensor, src: &Self::Tensor) -> Result<Self::Tensor>;

    /// Like [`Backend::scatter`], but adds to what is there; of several, each counts.
    fn scatter_add(x: &Self::Tensor, axis: usize, index: &Self::Tensor, src: &Self::Tensor) -> Result<Self::Tensor>;

    /// Whole slices of `x` along an axis, in the order of `index` (rank 1, i64).
    fn index_select(x: &Self::Tensor, axis: usize, index: &Self::Tensor) -> Result<Self::Tensor>;

    /// Sorted values along an axis and where each came from (i64). Stable; NaN counts as the largest.
    fn sort(x: &Self::Tensor, axis: usize, descending: bool) -> Result<(Self::Tensor, Self::Tensor)>;

    // Windows.

    /// Cross-correlation of `x [N, C, spatial…]` with `weight [O, C / groups, kernel…]`, one to three spatial axes.
    fn conv(x: &Self::Tensor, weight: &Self::Tensor, params: &ConvParams) -> Result<Self::Tensor>;

    /// Largest value of each window of `x [N, C, spatial…]`, and its position in the flattened spatial axes (i64). The first
    /// wins a tie, NaN wins over all.
    fn max_pool(x: &Self::Tensor, params: &PoolParams) -> Result<(Self::Tensor, Self::Tensor)>;

    /// Mean of each window of `x [N, C, spatial…]`.
    fn avg_pool(x: &Self::Tensor, params: &PoolParams) -> Result<Self::Tensor>;

    // Fused ops: a backend overrides those that it does better than their decomposition.

    /// [`Backend::binary`] with a number, converted to the tensor's dtype, on the right, or on the left if `reverse`.
    fn binary_scalar(op: BinaryOp, x: &Self::Tensor, scalar: Scalar, reverse: bool) -> Result<Self::Tensor> {
        decompose::binary_scalar::<Self>(op, x, scalar, reverse)
    }

    /// [`Backend::compare`] with a number, converted to the tensor's dtype, on the right.
    fn compare_scalar(op: CompareOp, x: &Self::Tensor, scalar: Scalar) -> Result<Self::Tensor> {
        decompose::compare_scalar::<Self>(op, x, scalar)
    }

    /// Adds slices of `src` along an axis to those of `x` that `index` (rank 1, i64) names.
    fn index_add(x: &Self::Tensor, axis: usize, index: &Self::Tensor, src: &Self::Tensor) -> Result<Self::Tensor> {
        decompose::index_add::<Self>(x, axis, index, src)
    }

    /// Sums over the axes along which `shape` was broadcast to `x`'s shape: the gradient of [`Backend::expand`].
    fn sum_to(x: &Self::Tensor, shape: Shape) -> Result<Self::Tensor> {
        decompose::sum_to::<Self>(x, shape)
    }

    /// `x Wᵀ + b` for `x […, in]`, `weight [out, in]`, `bias [out]`.
    fn linear(x: &Self::Tensor, weight: &Self::Tensor, bias: Option<&Self::Tensor>) -> Result<Self::Tensor> {
        decompose::linear::<Self>(x, weight, bias)
    }

    /// Gradients of [`Backend::linear`] wrt the weight `[out, in]` and the bias `[out]`, from the output's gradient `[…, out]` and the
    /// input `[…, in]`.
    fn linear_weight_grad(grad: &Self::Tensor, x: &Self::Tensor) -> Result<(Self::Tensor, Self::Tensor)> {
        decompose::linear_weight_grad::<Self>(grad, x)
    }

    /// [`Backend::linear`] and then an activation function. For inference: no gradient is defined.
    fn linear_activation(
        x: &Self::Tensor,
        weight: &Self::Tensor,
        bias: Option<&Self::Tensor>,
        op: Activation,
    ) -> Result<Self::Tensor> {
        decompose::linear_activation::<Self>(x, weight, bias, op)
    }

    /// Applies an activation function to floats.
    fn activation(op: Activation, x: &Self::Tensor) -> Result<Self::Tensor> {
        decompose::activation::<Self>(op, x)
    }

    /// Gradient of [`Backend::activation`] from the output's gradient and the saved tensor: the output where
    /// [`Activation::saves_output`], else the input.
    fn activation_backward(op: Activation, grad: &Self::Tensor, saved: &Self::Tensor) -> Result<Self::Tensor> {
        decompose::activation_backward::<Self>(op, grad, saved)
    }

    /// `e^x / Σ e^x` along an axis.
    fn softmax(x: &Self::Tensor, axis: usize) -> Result<Self::Tensor> {
        decompose::softmax::<Self>(x, axis)
    }

    /// Gradient of [`Backend::softmax`] from the output's gradient and the output.
    fn softmax_backward(grad: &Self::Tensor, output: &Self::Tensor, axis: usize) -> Result<Self::Tensor> {
        decompose::softmax_backward::<Self>(grad, output, axis)
    }

    /// `x - ln Σ e^x` along an axis.
    fn log_softmax(x: &Self::Tensor, axis: usize) -> Result<Self::Tensor> {
        decompose::log_softmax::<Self>(x, axis)
    }

    /// Gradient of [`Backend::log_softmax`] from the output's gradient and the output.
    fn log_softmax_backward(grad: &Self::Tensor, output: &Self::Tensor, axis: usize) -> Result<Self::Tensor> {
        decompose::log_softmax_backward::<Self>(grad, output, axis)
    }

    /// Cross entropy of `logits [N, C]` against class indices `target [N]` (i64), for each row; ignored rows are 0. Gives the losses
    /// `[N]` and each row's `ln Σ e^x` `[N]`.
    fn cross_entropy(
        logits: &Self::Tensor,
        target: &Self::Tensor,
        params: &CrossEntropyParams,
    ) -> Result<(Self::Tensor, Self::Tensor)> {
        decompose::cross_entropy::<Self>(logits, target, params)
    }

    /// Gradient of [`Backend::cross_entropy`] wrt the logits, from the losses' gradient `[N]` and the saved `ln Σ e^x` `[N]`.
    fn cross_entropy_backward(
        grad: &Self::Tensor,
        logits: &Self::Tensor,
        target: &Self::Tensor,
        logsumexp: &Self::Tensor,
        params: &CrossEntropyParams,
    ) -> Result<Self::Tensor> {
        decompose::cross_entropy_backward::<Self>(grad, logits, target, logsumexp, params)
    }

    /// The mean of [`Backend::cross_entropy`]'s losses over the rows that are not ignored, of rank 0; NaN where all are. Gives the mean
    /// and each row's `ln Σ e^x` `[N]`.
    fn cross_entropy_mean(
        logits: &Self::Tensor,
        target: &Self::Tensor,
        params: &CrossEntropyParams,
    ) -> Result<(Self::Tensor, Self::Tensor)> {
        decompose::cross_entropy_mean::<Self>(logits, target, params)
    }

    /// Gradient of [`Backend::cross_entropy_mean`] wrt the logits, from the mean's gradient, of rank 0, and the saved `ln Σ e^x` `[N]`.
    fn cross_entropy_mean_backward(
        grad: &Self::Tensor,
        logits: &Self::Tensor,
        target: &Self::Tensor,
        logsumexp: &Self::Tensor,
        params: &CrossEntropyParams,
    ) -> Result<Self::Tensor> {
        decompose::cross_entropy_mean_backward::<Self>(grad, logits, target, logsumexp, params)
    }

    /// Normalises over the last `axes` axes, then scales and shifts: weight and bias have the shape of those axes; a bias needs a weight.
    /// Gives the output, and mean and `1 / sqrt(variance + eps)` with those axes kept as 1.
    ///
    /// Source: Ba, Kiros and Hinton, "Layer normalization" (2016).
    fn layer_norm(
        x: &Self::Tensor,
        weight: Option<&Self::Tensor>,
        bias: Option<&Self::Tensor>,
        axes: usize,
        eps: f64,
    ) -> Result<(Self::Tensor, Self::Tensor, Self::Tensor)> {
        decompose::layer_norm::<Self>(x, weight, bias, axes, eps)
    }

    /// Gradients of [`Backend::layer_norm`] wrt input, weight and bias.
    fn layer_norm_backward(
        grad: &Self::Tensor,
        x: &Self::Tensor,
        mean: &Self::Tensor,
        rstd: &Self::Tensor,
        weight: Option<&Self::Tensor>,
        axes: usize,
    ) -> Result<(Self::Tensor, Self::Tensor, Self::Tensor)> {
        decompose::layer_norm_backward::<Self>(grad, x, mean, rstd, weight, axes)
    }

    /// Divides by the root of the mean square over the last `axes` axes, then scales. Gives the output, and
    /// `1 / sqrt(mean(x²) + eps)` with those axes kept as 1.
    ///
    /// Source: Zhang and Sennrich, "Root mean square layer normalization" (2019).
    fn rms_norm(
        x: &Self::Tensor,
        weight: Option<&Self::Tensor>,
        axes: usize,
        eps: f64,
    ) -> Result<(Self::Tensor, Self::Tensor)> {
        decompose::rms_norm::<Self>(x, weight, axes, eps)
    }

    /// Gradients of [`Backend::rms_norm`] wrt input and weight.
    fn rms_norm_backward(
        grad: &Self::Tensor,
        x: &Self::Tensor,
        rstd: &Self::Tensor,
        weight: Option<&Self::Tensor>,
        axes: usize,
    ) -> Result<(Self::Tensor, Self::Tensor)> {
        decompose::rms_norm_backward::<Self>(grad, x, rstd, weight, axes)
    }

    /// Batch normalisation in training: normalises each channel of `x [N, C, …]` by the batch's own statistics, then scales and shifts
    /// by `weight [C]` and `bias [C]` (a bias needs a weight). Gives the output, and the batch's mean and biased variance `[C]`.
    ///
    /// Source: Ioffe and Szegedy, "Batch normalization" (2015).
    fn batch_norm(
        x: &Self::Tensor,
        weight: Option<&Self::Tensor>,
        bias: Option<&Self::Tensor>,
        eps: f64,
    ) -> Result<(Self::Tensor, Self::Tensor, Self::Tensor)> {
        decompose::batch_norm::<Self>(x, weight, bias, eps)
    }

    /// Gradients of [`Backend::batch_norm`] wrt input, weight and bias.
    fn batch_norm_backward(
        grad: &Self::Tensor,
        x: &Self::Tensor,
        mean: &Self::Tensor,
        var: &Self::Tensor,
        weight: Option<&Self::Tensor>,
        eps: f64,
    ) -> Result<(Self::Tensor, Self::Tensor, Self::Tensor)> {
        decompose::batch_norm_backward::<Self>(grad, x, mean, var, weight, eps)
    }

    /// Batch normalisation in evaluation: normalises each channel of `x [N, C, …]` by a given `mean [C]` and `var [C]`, then scales and
    /// shifts by `weight [C]` and `bias [C]` (a bias needs a weight).
    fn batch_norm_running(
        x: &Self::Tensor,
        mean: &Self::Tensor,
        var: &Self::Tensor,
        weight: Option<&Self::Tensor>,
        bias: Option<&Self::Tensor>,
        eps: f64,
    ) -> Result<Self::Tensor> {
        decompose::batch_norm_running::<Self>(x, mean, var, weight, bias, eps)
    }

    /// `softmax(scale · Q Kᵀ + mask) V` for `q […, S, D]`, `k […, T, D]`, `v […, T, E]`. A bool mask says which keys take part, a float
    /// mask is added; it broadcasts to `[…, S, T]`. `causal` is aligned to the bottom right: query i sees keys up to i + T − S. A row
    /// that sees no key is 0.
    fn attention(
        q: &Self::Tensor,
        k: &Self::Tensor,
        v: &Self::Tensor,
        mask: Option<&Self::Tensor>,
        scale: f64,
        causal: bool,
    ) -> Result<Self::Tensor> {
        decompose::attention::<Self>(q, k, v, mask, scale, causal)
    }

    /// Gradients of [`Backend::attention`] wrt `q`, `k` and `v`, each of its shape, from the output's gradient `[…, S, E]`; the mask gets
    /// none. The weights are computed again, so that they need not be kept.
    ///
    /// Source: Dao, Fu, Ermon, Rudra and Ré, "FlashAttention: fast and memory-efficient exact attention with IO-awareness" (2022).
    fn attention_backward(
        grad: &Self::Tensor,
        q: &Self::Tensor,
        k: &Self::Tensor,
        v: &Self::Tensor,
        mask: Option<&Self::Tensor>,
        scale: f64,
        causal: bool,
    ) -> Result<(Self::Tensor, Self::Tensor, Self::Tensor)> {
        decompose::attention_backward::<Self>(grad, q, k, v, mask, scale, causal)
    }

    /// Rows of `weight [num, dim]` for `index` (i64, any shape): `[…, dim]`.
    fn embedding(weight: &Self::Tensor, index: &Self::Tensor) -> Result<Self::Tensor> {
        decompose::embedding::<Self>(weight, index)
    }

    /// Gradient of [`Backend::embedding`] wrt the weight; the row `padding_idx` gets none.
    fn embedding_backward(
        grad: &Self::Tensor,
        index: &Self::Tensor,
        num_embeddings: usize,
        padding_idx: Option<usize>,
    ) -> Result<Self::Tensor> {
        decompose::embedding_backward::<Self>(grad, index, num_embeddings, padding_idx)
    }

    /// The element-wise part of an LSTM cell: from `gates [N, 4H]` (input, forget, cell, output; before their activations) and
    /// `cell [N, H]` to the new hidden state and the new cell state, both `[N, H]`.
    fn lstm_cell(gates: &Self::Tensor, cell: &Self::Tensor) -> Result<(Self::Tensor, Self::Tensor)> {
        decompose::lstm_cell::<Self>(gates, cell)
    }

    /// [`Backend::lstm`] for training, with the sum of its biases `[4H]`: gives the states after each step `[T, N, 2H]`, hidden before cell, and
    /// the gates after their activations `[T, N, 4H]`, in the order of [`Backend::lstm_cell`].
    fn lstm_steps(
        x: &Self::Tensor,
        hidden: &Self::Tensor,
        cell: &Self::Tensor,
        weights: [&Self::Tensor; 2],
        bias: Option<&Self::Tensor>,
        reverse: bool,
    ) -> Result<(Self::Tensor, Self::Tensor)> {
        decompose::lstm_steps::<Self>(x, hidden, cell, weights, bias, reverse)
    }

    /// Gradient of [`Backend::lstm_steps`] wrt the gates before their activations `[T, N, 4H]`, `hidden` and `cell`, from the gradient of the
    /// states. Those of input, weights and bias follow from the first as in [`Backend::linear`].
    fn lstm_steps_backward(
        grad: &Self::Tensor,
        cell: &Self::Tensor,
        weight_hh: &Self::Tensor,
        states: &Self::Tensor,
        activations: &Self::Tensor,
        reverse: bool,
    ) -> Result<(Self::Tensor, Self::Tensor, Self::Tensor)> {
        decompose::lstm_steps_backward::<Self>(grad, cell, weight_hh, states, activations, reverse)
    }

    /// The element-wise part of a GRU cell: from the input's and the hidden state's `[N, 3H]` (reset, update, new; before their
    /// activations) and `hidden [N, H]` to the new hidden state `[N, H]`.
    fn gru_cell(
        input_gates: &Self::Tensor,
        hidden_gates: &Self::Tensor,
        hidden: &Self::Tensor,
    ) -> Result<Self::Tensor> {
        decompose::gru_cell::<Self>(input_gates, hidden_gates, hidden)
    }

    /// One layer of an Elman network in one direction: from `x [T, N, C]`, `T` at least 1, and `hidden [N, H]` by
    /// `h' = f(W_ih x + b_ih + W_hh h + b_hh)`, with `weight_ih [H, C]`, `weight_hh [H, H]`, the two biases `[H]` and the activation `f`, to
    /// the hidden states of all steps `[T, N, H]` and the last one `[N, H]`. `reverse` begins with the last step; outputs keep their places.
    fn rnn(
        x: &Self::Tensor,
        hidden: &Self::Tensor,
        weights: [&Self::Tensor; 2],
        biases: Option<[&Self::Tensor; 2]>,
        activation: Activation,
        reverse: bool,
    ) -> Result<(Self::Tensor, Self::Tensor)> {
        decompose::rnn::<Self>(x, hidden, weights, biases, activation, reverse)
    }

    /// One layer of an LSTM in one direction, as [`Backend::rnn`] with the cell of [`Backend::lstm_cell`] and its `cell [N, H]`:
    /// `weight_ih [4H, C]`, `weight_hh [4H, H]`, biases `[4H]`. Gives the outputs, the last hidden state and the last cell state.
    fn lstm(
        x: &Self::Tensor,
        hidden: &Self::Tensor,
        cell: &Self::Tensor,
        weights: [&Self::Tensor; 2],
        biases: Option<[&Self::Tensor; 2]>,
        reverse: bool,
    ) -> Result<(Self::Tensor, Self::Tensor, Self::Tensor)> {
        decompose::lstm::<Self>(x, hidden, cell, weights, biases, reverse)
    }

    /// One layer of a GRU in one direction, as [`Backend::rnn`] with the cell of [`Backend::gru_cell`]: `weight_ih [3H, C]`,
    /// `weight_hh [3H, H]`, biases `[3H]`.
    fn gru(
        x: &Self::Tensor,
        hidden: &Self::Tensor,
        weights: [&Self::Tensor; 2],
        biases: Option<[&Self::Tensor; 2]>,
        reverse: bool,
    ) -> Result<(Self::Tensor, Self::Tensor)> {
        decompose::gru::<Self>(x, hidden, weights, biases, reverse)
    }

    /// [`Backend::conv`] plus `bias [O]`, plus a residual of the result's shape, and then an activation function. With the bias alone it is
    /// for training too; with more no gradient is defined.
    fn conv_activation(
        x: &Self::Tensor,
        weight: &Self::Tensor,
        bias: &Self::Tensor,
        residual: Option<&Self::Tensor>,
        op: Option<Activation>,
        params: &ConvParams,
    ) -> Result<Self::Tensor> {
        decompose::conv_activation::<Self>(x, weight, bias, residual, op, params)
    }

    /// The values of [`Backend::max_pool`], without the positions. For inference: no gradient is defined.
    fn max_pool_values(x: &Self::Tensor, params: &PoolParams) -> Result<Self::Tensor> {
        Self::max_pool(x, params).map(|(values, _)| values)
    }

    /// A weight that is used many times without being changed: a tensor of the same values, for which what ops of that kind do to their
    /// weight each time, such as bringing it into another layout, is done once. It may take twice the memory.
    fn prepack(weight: &Self::Tensor, _: Prepack) -> Result<Self::Tensor> {
        Ok(weight.clone())
    }

    /// Gradient of [`Backend::conv`] wrt its input: also the transposed convolution.
    fn conv_input_grad(
        grad: &Self::Tensor,
        weight: &Self::Tensor,
        input_shape: Shape,
        params: &ConvParams,
    ) -> Result<Self::Tensor> {
        decompose::conv_input_grad::<Self>(grad, weight, input_shape, params)
    }

    /// Gradient of [`Backend::conv`] wrt its weight.
    fn conv_weight_grad(
        grad: &Self::Tensor,
        x: &Self::Tensor,
        weight_shape: Shape,
        params: &ConvParams,
    ) -> Result<Self::Tensor> {
        decompose::conv_weight_grad::<Self>(grad, x, weight_shape, params)
    }

    /// Gradient of [`Backend::max_pool`], from the output's gradient and the positions.
    fn max_pool_backward(grad: &Self::Tensor, indices: &Self::Tensor, input_shape: Shape) -> Result<Self::Tensor> {
        decompose::max_pool_backward::<Self>(grad, indices, input_shape)
    }

    /// Gradient of [`Backend::avg_pool`].
    fn avg_pool_backward(grad: &Self::Tensor, input_shape: Shape, params: &PoolParams) -> Result<Self::Tensor> {
        decompose::avg_pool_backward::<Self>(grad, input_shape, params)
    }

    // Updates, in place where the memory is not shared.

    /// `acc + grad`, both of one shape and dtype.
    fn accumulate_grad(acc: Self::Tensor, grad: &Self::Tensor) -> Result<Self::Tensor> {
        Self::binary(BinaryOp::Add, &acc, grad)
    }

    /// One step of SGD. With momentum, `momentum` is its buffer, of the parameter's shape.
    fn sgd_step(
        param: &mut Self::Tensor,
        grad: &Self::Tensor,
        momentum: Option<&mut Self::Tensor>,
        params: &SgdParams,
    ) -> Result<()> {
        decompose::sgd_step::<Self>(param, grad, momentum, params)
    }

    /// One step of Adam or AdamW. `max_second` holds the largest second moment so far, for AMSGrad.
    fn adam_step(
        param: &mut Self::Tensor,
        grad: &Self::Tensor,
        first: &mut Self::Tensor,
        second: &mut Self::Tensor,
        max_second: Option<&mut Self::Tensor>,
        params: &AdamParams,
    ) -> Result<()> {
        decompose::adam_step::<Self>(param, grad, first, second, max_second, params)
    }

    // Named forms of the families, for readable decompositions.

    /// `a + b`.
    fn add(a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor> {
        Self::binary(BinaryOp::Add, a, b)
    }

    /// `a - b`.
    fn sub(a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor> {
        Self::binary(BinaryOp::Sub, a, b)
    }

    /// `a * b`.
    fn mul(a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor> {
        Self::binary(BinaryOp::Mul, a, b)
    }

    /// `a / b`.
    fn div(a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor> {
        Self::binary(BinaryOp::Div, a, b)
    }

    /// `x + scalar`.
    fn add_scalar(x: &Self::Tensor, scalar: f64) -> Result<Self::Tensor> {
        Self::binary_scalar(BinaryOp::Add, x, Scalar::Float(scalar), false)
    }

    /// `x * scalar`.
    fn mul_scalar(x: &Self::Tensor, scalar: f64) -> Result<Self::Tensor> {
        Self::binary_scalar(BinaryOp::Mul, x, Scalar::Float(scalar), false)
    }

    /// `scalar - x`.
    fn scalar_sub(scalar: f64, x: &Self::Tensor) -> Result<Self::Tensor> {
        Self::binary_scalar(BinaryOp::Sub, x, Scalar::Float(scalar), true)
    }

    /// `e^x`.
    fn exp(x: &Self::Tensor) -> Result<Self::Tensor> {
        Self::unary(UnaryOp::Exp, x)
    }

    /// Sum over axes, kept as 1.
    fn sum_keep(x: &Self::Tensor, axes: Axes) -> Result<Self::Tensor> {
        Self::reduce(ReduceOp::Sum, x, axes, true)
    }

    /// Mean over axes, kept as 1.
    fn mean_keep(x: &Self::Tensor, axes: Axes) -> Result<Self::Tensor> {
        Self::reduce(ReduceOp::Mean, x, axes, true)
    }

    /// Zeros.
    fn zeros(shape: Shape, dtype: DType, device: &Self::Device) -> Result<Self::Tensor> {
        Self::full(shape, Scalar::Float(0.0), dtype, device)
    }
}
