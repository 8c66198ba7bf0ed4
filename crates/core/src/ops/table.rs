//! The table of ops: their names, parameters, results and saved tensors. Gradient rules are in `polygrad-tensor`,
//! samples in the conformance suite.
//!
//! A row reads
//!
//! ```text
//! /// What it computes: the documentation of the method.
//! fused softmax(x: tensor, axis: usize) -> one
//!     as Softmax { axis: usize }, named "softmax", for floats
//!     gives [x]
//!     saves [output 0];
//! ```
//!
//! - A backend must implement `core` ops. `fused` ops have a default of the same name in
//!   [`decompose`](crate::decompose), and so do `training` ops, which only occur in training.
//! - The parameters are those of the [`Backend`](crate::Backend) method: a `tensor`, `tensors`, a `pair` of them, an
//!   `optional` one, an `optional_pair`, or the type of an argument. `-> one`, `two`, `one_or_two` or `three` is the
//!   number of results.
//! - `as` is the variant of [`Op`](crate::Op) with its fields: the arguments that are not tensors.
//! - `named` is PyTorch's name for it, if PyTorch has one; `(op)` is the name of the family's member.
//! - `for` says for which dtypes of the first tensor it is defined: `any`, `bool`, `bytes` (u8), `words` (i32),
//!   `numbers` (all but bool), `floats`, or `(op)`, as the family's member defines.
//! - `saves` are the tensors that the gradient rule reads, in this order: `input` and `output` by index, or all
//!   `inputs` that are present; `(op)` is what the family's member saves; any other expression gives the list. Default:
//!   none.
//! - `steps` is an expression: whether the gradient takes several steps that round or overflow, so that f16 and bf16
//!   must be computed in f32. Default: no, as for fused ops, whose gradient is one op of the backend.
//! - `gives` are the results' types, from the types of the tensors and from the arguments, with the functions in
//!   [`results`](super::results).
//!
//! The table generates the methods of `Backend`, the type `Op`, the calls by value
//! ([`DynBackend::execute`](crate::DynBackend::execute)), those of [`AnyBackend`](crate::AnyBackend) and of every
//! backend that uses [`call_methods!`](crate::call_methods), the signatures in
//! [`backend_methods!`](crate::backend_methods), and the results' shapes.

/// Passes all rows to another macro, after the tokens in brackets.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_op {
    ([$($first:tt)*] $($callback:tt)*) => { $($callback)* ! { $($first)*
        // Element by element.

        /// Applies a function. The dtype stays, except for predicates, which give bool.
        core unary(op: UnaryOp, x: tensor) -> one
            as Unary (op: UnaryOp), named (op), for (op)
            gives [of(x, if op.is_predicate() { DType::Bool } else { x.dtype })]
            saves (op)
            steps (op.gradient_takes_steps());

        /// Combines two tensors of one dtype that broadcast.
        core binary(op: BinaryOp, a: tensor, b: tensor) -> one
            as Binary (op: BinaryOp), named (op), for (op)
            gives [shaped(a, a.shape.broadcast(&b.shape)?)]
            saves (op)
            steps (op.gradient_takes_steps());

        /// Compares two tensors of one dtype that broadcast; gives bool.
        core compare(op: CompareOp, a: tensor, b: tensor) -> one
            as Compare (op: CompareOp), named (op), for any
            gives [result(a.shape.broadcast(&b.shape)?, DType::Bool)];

        /// `condition ? a : b`; the condition is bool, `a` and `b` have one dtype; all three broadcast.
        core select(condition: tensor, a: tensor, b: tensor) -> one
            as Select (), named "where", for bool
            gives [shaped(a, condition.shape.broadcast(&a.shape)?.broadcast(&b.shape)?)]
            saves [input 0];

        /// Converts to another dtype, as [`Element::from_scalar`](crate::Element::from_scalar) does.
        core cast(x: tensor, dtype: DType) -> one
            as Cast (dtype: DType), named "to_dtype", for any
            gives [result(x.shape, *dtype)];

        // Reductions and scans.

        /// Reduces over axes, which are kept with extent 1 if `keepdims`. Without axes, gives the tensor itself.
        core reduce(op: ReduceOp, x: tensor, axes: Axes, keepdims: bool) -> one
            as Reduce { op: ReduceOp, axes: Axes, keepdims: bool }, named (op), for (op)
            gives [shaped(x, x.shape.reduced(*axes, *keepdims))]
            saves (op)
            steps (op.gradient_takes_steps());

        /// Position of the extreme along an axis, i64.
        core arg_reduce(op: ArgOp, x: tensor, axis: usize, keepdims: bool) -> one
            as ArgReduce { op: ArgOp, axis: usize, keepdims: bool }, named (op), for any
            gives [result(x.shape.reduced(Axes::one(*axis), *keepdims), DType::I64)];

        /// Running sum along an axis, inclusive.
        core cumsum(x: tensor, axis: usize) -> one
            as CumSum { axis: usize }, named "cumsum", for numbers
            gives [x];

        // Linear algebra.

        /// `[…, m, k] × […, k, n] → […, m, n]`, both of rank 2 or more and one dtype but bool; leading axes broadcast.
        /// Integers wrap in their dtype and never become floats: an engine without such products calls
        /// [`decompose::integer_matmul`].
        core matmul(a: tensor, b: tensor) -> one
            as Matmul (), named "matmul", for numbers
            gives [shaped(a, product(&a.shape, &b.shape)?)]
            saves [input 0, input 1];

        // Views.

        /// The same elements in row-major order under another shape of as many elements.
        core reshape(x: tensor, shape: Shape) -> one
            as Reshape (shape: Shape), named "reshape", for any
            gives [shaped(x, *shape)];

        /// Axes reordered: output axis `i` is input axis `axes[i]`.
        core permute(x: tensor, axes: Axes) -> one
            as Permute (axes: Axes), named "permute", for any
            gives [shaped(x, permuted(&x.shape, *axes)?)];

        /// Broadcast to a shape.
        core expand(x: tensor, shape: Shape) -> one
            as Expand (shape: Shape), named "expand", for any
            gives [shaped(x, *shape)];

        /// One range for each axis.
        core slice(x: tensor, ranges: (&[SliceRange])) -> one
            as Slice (ranges: Box<[SliceRange]>), named "slice", for any
            gives [shaped(x, sliced(ranges)?)];

        // Joining and moving.

        /// Adds a border of `value`: for each axis the number of elements before and after.
        core pad(x: tensor, padding: (&[(usize, usize)]), value: Scalar) -> one
            as Pad { padding: Box<[(usize, usize)]>, value: Scalar }, named "pad", for any
            gives [shaped(x, padded(&x.shape, padding)?)];

        /// Joins tensors of one dtype, at least one, along an axis; other extents are equal.
        core concat(xs: tensors, axis: usize) -> one
            as Concat { axis: usize }, named "cat", for any
            gives [joined(&xs, *axis)?];

        /// `out[i][j][k] = x[i][index[i][j][k]][k]` for axis 1 and likewise for others; `index` is i64, of the same
        /// rank, no larger than `x` on the other axes.
        core gather(x: tensor, axis: usize, index: tensor) -> one
            as Gather { axis: usize }, named "gather", for any
            gives [shaped(x, index.shape)]
            saves [input 1];

        /// `x` with `out[i][index[i][j][k]][k] = src[i][j][k]`; `src` is at least as large as `index`. If several write
        /// to the same element, any may win.
        core scatter(x: tensor, axis: usize, index: tensor, src: tensor) -> one
            as Scatter { axis: usize }, named "scatter", for any
            gives [x]
            saves [input 1];

        /// Like [`Backend::scatter`], but adds to the elements of `x`. If several add to the same element, all count.
        core scatter_add(x: tensor, axis: usize, index: tensor, src: tensor) -> one
            as ScatterAdd { axis: usize }, named "scatter_add", for numbers
            gives [x]
            saves [input 1];

        /// Whole slices of `x` along an axis, in the order of `index` (rank 1, i64).
        core index_select(x: tensor, axis: usize, index: tensor) -> one
            as IndexSelect { axis: usize }, named "index_select", for any
            gives [shaped(x, with_dim(&x.shape, *axis, index.shape.numel())?)]
            saves [input 1];

        /// Sorted values along an axis, and the original position of each (i64). Stable; NaN counts as the largest.
        core sort(x: tensor, axis: usize, descending: bool) -> two
            as Sort { axis: usize, descending: bool }, named "sort", for any
            gives [x, of(x, DType::I64)]
            saves [output 1];

        // Windows.

        /// Cross-correlation of `x [N, C, spatial…]` with `weight [O, C / groups, kernel…]`, one to three spatial axes;
        /// plus `bias [O]`, plus a residual of the result's shape (a residual needs a bias), and then an activation
        /// function. A backend without kernels for such an epilogue calls [`decompose::epilogue`]. No gradient is
        /// defined with a residual or an activation.
        core conv(
            x: tensor, weight: tensor, bias: optional, residual: optional, activation: (Option<Activation>), params: (&ConvParams)
        ) -> one
            as Conv { activation: Option<Activation>, params: ConvParams }, named "conv", for floats
            gives [shaped(x, params.output_shape(&x.shape, &weight.shape)?)]
            saves [input 0, input 1];

        /// Largest value of each window of `x [N, C, spatial…]`, and, if `positions`, its index in the flattened
        /// spatial axes (i64). The first wins a tie; NaN counts as the largest. No gradient is defined without
        /// positions.
        core max_pool(x: tensor, params: (&PoolParams), positions: bool) -> one_or_two
            as MaxPool { params: Box<PoolParams>, positions: bool }, named "max_pool", for numbers
            gives [
                shaped(x, params.output_shape(&x.shape)?),
                positions.then_some(result(params.output_shape(&x.shape)?, DType::I64))
            ]
            saves [output 1];

        /// Mean of each window of `x [N, C, spatial…]`.
        core avg_pool(x: tensor, params: (&PoolParams)) -> one
            as AvgPool (params: Box<PoolParams>), named "avg_pool", for floats
            gives [shaped(x, params.output_shape(&x.shape)?)];

        // Fused ops: a backend overrides those that it computes faster than their decomposition.

        /// [`Backend::binary`] with a number, converted to the tensor's dtype, on the right, or on the left if
        /// `reverse`. f16 and bf16 may round the number; [`decompose::binary_number`] does not.
        fused binary_scalar(op: BinaryOp, x: tensor, scalar: Scalar, reverse: bool) -> one
            as BinaryScalar { op: BinaryOp, scalar: Scalar, reverse: bool }, named (op), for (op)
            gives [x]
            saves (op.saved_with_scalar(*reverse))
            steps (op.gradient_takes_steps_with_scalar(*reverse));

        /// [`Backend::compare`] with a number, converted to the tensor's dtype, on the right.
        fused compare_scalar(op: CompareOp, x: tensor, scalar: Scalar) -> one
            as CompareScalar { op: CompareOp, scalar: Scalar }, named (op), for any
            gives [of(x, DType::Bool)];

        /// Adds slices of `src` along an axis to those of `x` that `index` (rank 1, i64) names.
        fused index_add(x: tensor, axis: usize, index: tensor, src: tensor) -> one
            as IndexAdd { axis: usize }, named "index_add", for numbers
            gives [x]
            saves [input 1];

        /// Sums over the axes along which `shape` was broadcast to `x`'s shape: the gradient of [`Backend::expand`].
        fused sum_to(x: tensor, shape: Shape) -> one
            as SumTo (shape: Shape), named "sum_to", for numbers
            gives [shaped(x, *shape)];

        /// The sum of the squares of all elements of tensors of one dtype, at least one, such as the gradients of a
        /// model: of rank 0, and f32 for f16 and bf16, whose squares could overflow.
        training square_sum(xs: tensors) -> one
            as SquareSum (), named "square_sum", for floats
            gives [result(Shape::SCALAR, xs[0].dtype.promote(DType::F32))];

        /// `x Wᵀ + b` for `x […, in]`, `weight [out, in]`, `bias [out]`, and then an activation function. No gradient
        /// is defined for an activation whose gradient is not computed from the output ([`Activation::saves_output`]).
        fused linear(x: tensor, weight: tensor, bias: optional, activation: (Option<Activation>)) -> one
            as Linear { activation: Option<Activation> }, named "linear", for floats
            gives [shaped(x, with_last(&x.shape, weight.shape[0])?)]
            saves (match activation {
                None => &[SavedTensor::Input(0), SavedTensor::Input(1)],
                Some(_) => &[SavedTensor::Input(0), SavedTensor::Input(1), SavedTensor::Output(0)],
            });

        /// Gradients of [`Backend::linear`] wrt the weight `[out, in]` and the bias `[out]`, from the output's gradient
        /// `[…, out]` and the input `[…, in]`.
        training linear_weight_grad(grad: tensor, x: tensor) -> two
            as LinearWeightGrad (), named "linear_weight_grad", for floats
            gives [shaped(grad, Shape::from([last(grad), last(x)])), shaped(grad, Shape::from([last(grad)]))];

        /// Applies an activation function to floats.
        fused activation(op: Activation, x: tensor) -> one
            as Activation (op: Activation), named (op), for floats
            gives [x]
            saves (op);

        /// Gradient of [`Backend::activation`] from the output's gradient and the saved tensor: the output where
        /// [`Activation::saves_output`], else the input.
        training activation_backward(op: Activation, grad: tensor, saved: tensor) -> one
            as ActivationBackward (op: Activation), named "activation_backward", for floats
            gives [grad];

        /// `e^x / Σ e^x` along an axis.
        fused softmax(x: tensor, axis: usize) -> one
            as Softmax { axis: usize }, named "softmax", for floats
            gives [x]
            saves [output 0];

        /// Gradient of [`Backend::softmax`] from the output's gradient and the output.
        training softmax_backward(grad: tensor, output: tensor, axis: usize) -> one
            as SoftmaxBackward { axis: usize }, named "softmax_backward", for floats
            gives [grad];

        /// `x - ln Σ e^x` along an axis.
        fused log_softmax(x: tensor, axis: usize) -> one
            as LogSoftmax { axis: usize }, named "log_softmax", for floats
            gives [x]
            saves [output 0];

        /// Gradient of [`Backend::log_softmax`] from the output's gradient and the output.
        training log_softmax_backward(grad: tensor, output: tensor, axis: usize) -> one
            as LogSoftmaxBackward { axis: usize }, named "log_softmax_backward", for floats
            gives [grad];

        /// Cross entropy of `logits [N, C]` against class indices `target [N]` (i64). Gives the losses `[N]`, which are
        /// 0 for ignored rows, or with [`CrossEntropyParams::mean`] their mean over the other rows, of rank 0, which is
        /// NaN if all are ignored; and each row's `ln Σ e^x` `[N]`.
        fused cross_entropy(logits: tensor, target: tensor, params: (&CrossEntropyParams)) -> two
            as CrossEntropy (params: CrossEntropyParams), named "cross_entropy", for floats
            gives [shaped(logits, if params.mean { Shape::SCALAR } else { target.shape }), shaped(logits, target.shape)]
            saves [output 1, inputs];

        /// Gradient of [`Backend::cross_entropy`] wrt the logits, from that of the losses `[N]` or their mean and the
        /// saved `ln Σ e^x` `[N]`.
        training cross_entropy_backward(
            grad: tensor, logits: tensor, target: tensor, logsumexp: tensor, params: (&CrossEntropyParams)
        ) -> one
            as CrossEntropyBackward (params: CrossEntropyParams), named "cross_entropy_backward", for floats
            gives [logits];

        /// Normalises over the last `axes` axes, then scales and shifts: weight and bias have the shape of those axes;
        /// a bias needs a weight. Gives the output, and mean and `1 / sqrt(variance + eps)` with those axes kept as 1.
        ///
        /// Source: Ba, Kiros and Hinton, "Layer normalization" (2016).
        fused layer_norm(x: tensor, weight: optional, bias: optional, axes: usize, eps: f64) -> three
            as LayerNorm { axes: usize, eps: f64 }, named "layer_norm", for floats
            gives [x, statistic(x, *axes)?, statistic(x, *axes)?]
            saves [output 1, output 2, inputs];

        /// Gradients of [`Backend::layer_norm`] wrt input, weight and bias.
        training layer_norm_backward(
            grad: tensor, x: tensor, mean: tensor, rstd: tensor, weight: optional, axes: usize
        ) -> three
            as LayerNormBackward { axes: usize }, named "layer_norm_backward", for floats
            gives [x, inner(x, *axes)?, inner(x, *axes)?];

        /// Divides by the root of the mean square over the last `axes` axes, then scales. Gives the output, and
        /// `1 / sqrt(mean(x²) + eps)` with those axes kept as 1.
        ///
        /// Source: Zhang and Sennrich, "Root mean square layer normalization" (2019).
        fused rms_norm(x: tensor, weight: optional, axes: usize, eps: f64) -> two
            as RmsNorm { axes: usize, eps: f64 }, named "rms_norm", for floats
            gives [x, statistic(x, *axes)?]
            saves [output 1, inputs];

        /// Gradients of [`Backend::rms_norm`] wrt input and weight.
        training rms_norm_backward(grad: tensor, x: tensor, rstd: tensor, weight: optional, axes: usize) -> two
            as RmsNormBackward { axes: usize }, named "rms_norm_backward", for floats
            gives [x, inner(x, *axes)?];

        /// Batch normalisation in training: normalises each channel of `x [N, C, …]` by the batch's own statistics,
        /// then scales and shifts by `weight [C]` and `bias [C]` (a bias needs a weight). Gives the output, and the
        /// batch's mean and biased variance `[C]`. For f16 and bf16 these are f32 ([`DType::wide`]), since a square may
        /// overflow.
        ///
        /// Source: Ioffe and Szegedy, "Batch normalization" (2015).
        fused batch_norm(x: tensor, weight: optional, bias: optional, eps: f64) -> three
            as BatchNorm { eps: f64 }, named "batch_norm", for floats
            gives [x, result(channels(x), x.dtype.wide()), result(channels(x), x.dtype.wide())]
            saves [output 1, output 2, inputs];

        /// Gradients of [`Backend::batch_norm`] wrt input, weight and bias, from the mean and variance that it gave.
        training batch_norm_backward(grad: tensor, x: tensor, mean: tensor, var: tensor, weight: optional, eps: f64) -> three
            as BatchNormBackward { eps: f64 }, named "batch_norm_backward", for floats
            gives [x, shaped(x, channels(x)), shaped(x, channels(x))];

        /// Batch normalisation in evaluation: normalises each channel of `x [N, C, …]` by a given `mean [C]` and
        /// `var [C]`, then scales and shifts by `weight [C]` and `bias [C]` (a bias needs a weight). For f16 and bf16,
        /// mean and variance may also be f32.
        fused batch_norm_running(x: tensor, mean: tensor, var: tensor, weight: optional, bias: optional, eps: f64) -> one
            as BatchNormRunning { eps: f64 }, named "batch_norm_running", for floats
            gives [x];

        /// `softmax(scale · Q Kᵀ + mask) V` for `q […, S, D]`, `k […, T, D]`, `v […, T, E]`. A bool mask is true for
        /// visible keys, a float mask is added to the scores; it broadcasts to `[…, S, T]`. `causal` is aligned to the
        /// bottom right: query i sees keys up to i + T − S. A row that sees no key is 0.
        fused attention(q: tensor, k: tensor, v: tensor, mask: optional, scale: f64, causal: bool) -> one
            as Attention { scale: f64, causal: bool }, named "scaled_dot_product_attention", for floats
            gives [shaped(q, attended(&q.shape, &k.shape, &v.shape)?)]
            saves [inputs];

        /// Gradients of [`Backend::attention`] wrt `q`, `k` and `v`, each of its shape, from the output's gradient
        /// `[…, S, E]`; the mask gets none. The weights are recomputed, so that they need not be saved.
        ///
        /// Source: Dao, Fu, Ermon, Rudra and Ré, "FlashAttention: fast and memory-efficient exact attention with
        /// IO-awareness" (2022).
        training attention_backward(
            grad: tensor, q: tensor, k: tensor, v: tensor, mask: optional, scale: f64, causal: bool
        ) -> three
            as AttentionBackward { scale: f64, causal: bool }, named "scaled_dot_product_attention_backward", for floats
            gives [q, k, v];

        /// Rotates the pairs of elements `i` and `i + D / 2` of each row of `x […, D]`, D even, by angles whose
        /// cosines and sines `[…, D / 2]` broadcast to the pairs.
        ///
        /// Source: Su et al., "RoFormer: enhanced transformer with rotary position embedding" (2021).
        fused rotary(x: tensor, cos: tensor, sin: tensor) -> one
            as Rotary (), named "rotary", for floats
            gives [x]
            saves [input 1, input 2];

        /// Rows of `weight [num, dim]` for `index` (i64, any shape): `[…, dim]`. The row `padding_idx` gets no
        /// gradient; here it is ignored.
        fused embedding(weight: tensor, index: tensor, padding_idx: (Option<usize>)) -> one
            as Embedding { padding_idx: Option<usize> }, named "embedding", for any
            gives [shaped(weight, joined_dims(&index.shape, &weight.shape[1..])?)]
            saves [input 1];

        /// Gradient of [`Backend::embedding`] wrt the weight; the row `padding_idx` gets none.
        training embedding_backward(grad: tensor, index: tensor, num_embeddings: usize, padding_idx: (Option<usize>)) -> one
            as EmbeddingBackward { num_embeddings: usize, padding_idx: Option<usize> }, named "embedding_backward", for floats
            gives [shaped(grad, Shape::from([*num_embeddings, last(grad)]))];

        /// The element-wise part of an LSTM cell: from `gates [N, 4H]` (input, forget, cell, output; before their
        /// activations) and `cell [N, H]` to the new hidden state and the new cell state, both `[N, H]`.
        fused lstm_cell(gates: tensor, cell: tensor) -> two
            as LstmCell (), named "lstm_cell", for floats
            gives [cell, cell];

        /// [`Backend::lstm`] for training, with the sum of its biases `[4H]`: gives the states after each step
        /// `[T, N, 2H]`, hidden before cell, and the gates after their activations `[T, N, 4H]`, in the order of
        /// [`Backend::lstm_cell`].
        fused lstm_steps(x: tensor, hidden: tensor, cell: tensor, weights: pair, bias: optional, reverse: bool) -> two
            as LstmSteps { reverse: bool }, named "lstm_steps", for floats
            gives [shaped(x, steps(x, hidden, 2)?), shaped(x, steps(x, hidden, 4)?)]
            saves [output 0, output 1, inputs];

        /// Gradient of [`Backend::lstm_steps`] wrt the gates before their activations `[T, N, 4H]`, `hidden` and
        /// `cell`, from the gradient of the states. Those of input, weights and bias follow from the first as in
        /// [`Backend::linear`].
        training lstm_steps_backward(
            grad: tensor, cell: tensor, weight_hh: tensor, states: tensor, activations: tensor, reverse: bool
        ) -> three
            as LstmStepsBackward { reverse: bool }, named "lstm_steps_backward", for floats
            gives [activations, cell, cell];

        /// The element-wise part of a GRU cell: from the gates of the input and of the hidden state, both `[N, 3H]`
        /// (reset, update, new; before their activations), and `hidden [N, H]` to the new hidden state `[N, H]`.
        fused gru_cell(input_gates: tensor, hidden_gates: tensor, hidden: tensor) -> one
            as GruCell (), named "gru_cell", for floats
            gives [hidden];

        /// One layer of an Elman network in one direction: from `x [T, N, C]`, `T` at least 1, and `hidden [N, H]` by
        /// `h' = f(W_ih x + b_ih + W_hh h + b_hh)`, with `weight_ih [H, C]`, `weight_hh [H, H]`, the two biases `[H]`
        /// and the activation `f`, to the hidden states of all steps `[T, N, H]` and the last one `[N, H]`. `reverse`
        /// begins with the last step; outputs keep their places.
        fused rnn(
            x: tensor, hidden: tensor, weights: pair, biases: optional_pair, activation: Activation, reverse: bool
        ) -> two
            as Rnn { activation: Activation, reverse: bool }, named "rnn", for floats
            gives [shaped(x, steps(x, hidden, 1)?), hidden];

        /// One layer of an LSTM in one direction, as [`Backend::rnn`] with the cell of [`Backend::lstm_cell`] and its
        /// `cell [N, H]`: `weight_ih [4H, C]`, `weight_hh [4H, H]`, biases `[4H]`. Gives the outputs, the last hidden
        /// state and the last cell state.
        fused lstm(x: tensor, hidden: tensor, cell: tensor, weights: pair, biases: optional_pair, reverse: bool) -> three
            as Lstm { reverse: bool }, named "lstm", for floats
            gives [shaped(x, steps(x, hidden, 1)?), hidden, cell];

        /// One layer of a GRU in one direction, as [`Backend::rnn`] with the cell of [`Backend::gru_cell`]:
        /// `weight_ih [3H, C]`, `weight_hh [3H, H]`, biases `[3H]`. With `reset_after` the reset gate scales the
        /// product for the new gate, including its bias; without, it scales the state before that product.
        fused gru(
            x: tensor, hidden: tensor, weights: pair, biases: optional_pair, reset_after: bool, reverse: bool
        ) -> two
            as Gru { reset_after: bool, reverse: bool }, named "gru", for floats
            gives [shaped(x, steps(x, hidden, 1)?), hidden];

        // Quantized numbers.

        /// `[…, m, k] × […, k, n] → […, m, n]` of u8, both of rank 2 or more, whose leading axes broadcast: the sums of
        /// products of `a` minus `zero_a` and `b` minus `zero_b`, exactly, in i32, which wraps. Zero points are u8 too,
        /// one for all, `[1]`, or for each row of `a`, `[m]`, and each column of `b`, `[n]`. An i8 is stored as a byte
        /// that is 128 larger, and so is its zero point. No gradient is defined.
        fused matmul_u8(a: tensor, b: tensor, zero_a: tensor, zero_b: tensor) -> one
            as MatmulU8 (), named "matmul_u8", for bytes
            gives [result(product(&a.shape, &b.shape)?, DType::I32)];

        /// [`Backend::conv`] of `x [N, C, spatial…]` and `weight [O, C / groups, kernel…]` of u8, as
        /// [`Backend::matmul_u8`]: one zero point `[1]` for the input, with which its border is filled, too, and one
        /// for the weight, `[1]`, or for each of its outputs, `[O]`. No gradient is defined.
        fused conv_u8(x: tensor, weight: tensor, zero_x: tensor, zero_weight: tensor, params: (&ConvParams)) -> one
            as ConvU8 (params: Box<ConvParams>), named "conv_u8", for bytes
            gives [result(params.output_shape(&x.shape, &weight.shape)?, DType::I32)];

        /// What [`Backend::matmul_u8`] gives, as u8: `(sum + bias) · scale + zero`, where the bias is i32 and its sum
        /// wraps, `scale` is f32 and the product is rounded to f32 and then to a whole number, halves to even; `zero`
        /// is u8, `[1]`, and what lies outside 0 to 255 is cut off. Scale and bias are `[1]`, or one for each column,
        /// `[n]`. No gradient is defined.
        fused matmul_requantize_u8(
            a: tensor, b: tensor, zeros: pair, scale: tensor, zero: tensor, bias: optional
        ) -> one
            as MatmulRequantizeU8 (), named "matmul_requantize_u8", for bytes
            gives [result(product(&a.shape, &b.shape)?, DType::U8)];

        /// What [`Backend::matmul_u8`] gives, as f32: `sum · scale + bias`, where the sum is rounded to f32, and so is
        /// the product. Scale and bias are f32, `[1]`, or one for each column, `[n]`; a bias of i32 is added to the
        /// sum, which wraps. No gradient is defined.
        fused matmul_rescale_u8(a: tensor, b: tensor, zeros: pair, scale: tensor, bias: optional) -> one
            as MatmulRescaleU8 (), named "matmul_rescale_u8", for bytes
            gives [result(product(&a.shape, &b.shape)?, scale.dtype)];

        /// What [`Backend::conv_u8`] gives, as [`Backend::matmul_requantize_u8`], with scale and bias for each output.
        fused conv_requantize_u8(
            x: tensor, weight: tensor, zeros: pair, scale: tensor, zero: tensor, bias: optional,
            params: (&ConvParams)
        ) -> one
            as ConvRequantizeU8 (params: Box<ConvParams>), named "conv_requantize_u8", for bytes
            gives [result(params.output_shape(&x.shape, &weight.shape)?, DType::U8)];

        /// Quantizes to u8: `x / scale + zero`, where `scale` is f32, to which `x` is converted, and the quotient is
        /// rounded to f32 and then to a whole number, halves to even; `zero` is u8, and the result is clamped to 0 to
        /// 255. Scale and zero point are `[1]`. No gradient is defined.
        fused quantize_u8(x: tensor, scale: tensor, zero: tensor) -> one
            as QuantizeU8 (), named "quantize_u8", for floats
            gives [of(x, DType::U8)];

        /// [`Backend::quantize_u8`] with the scale and the zero point of its own numbers: from the smallest to the
        /// largest of them and 0, of which NaN is none, 255 steps; scale 1 where all are 0. Gives the bytes, the scale
        /// and the zero point, both `[1]`; there must be an element. No gradient is defined.
        fused dynamic_quantize_u8(x: tensor) -> three
            as DynamicQuantizeU8 (), named "dynamic_quantize_u8", for floats
            gives [of(x, DType::U8), result(Shape::from([1]), DType::F32), result(Shape::from([1]), DType::U8)];

        /// Numbers of u8 as f32: `(x - zero) · scale`. Scale, of f32, and zero point, of u8, are `[1]`. No gradient is
        /// defined.
        fused dequantize_u8(x: tensor, scale: tensor, zero: tensor) -> one
            as DequantizeU8 (), named "dequantize_u8", for bytes
            gives [of(x, scale.dtype)];

        /// For each byte the number in its place of a table, `[256]`. No gradient is defined.
        fused lookup_u8(x: tensor, table: tensor) -> one
            as LookupU8 (), named "lookup_u8", for bytes
            gives [of(x, table.dtype)];

        /// A sum or a product of numbers of u8, which broadcast, as u8: `p op q`, where `p` is
        /// `(a - zero_a) · scale_a` and `q` likewise, rounded to a whole number, halves to even, plus `zero`, clamped
        /// to 0 to 255. Scales, of f32, and zero points, of u8, are `[1]`; a product is that of the whole numbers and
        /// of the two scales. No gradient is defined.
        fused binary_requantize_u8(
            op: BinaryOp, a: tensor, b: tensor, zeros: pair, scales: pair, zero: tensor
        ) -> one
            as BinaryRequantizeU8 { op: BinaryOp }, named "binary_requantize_u8", for bytes
            gives [result(a.shape.broadcast(&b.shape)?, DType::U8)];

        /// `x Wᵀ` for `x […, k]`, or, if `transposed`, `x W` for `x […, n]`, where `W [n, k]` is made of numbers of few
        /// bits in blocks: `(number - zero point) · scale`. The numbers are in u8 `[n, k · bits / 8]` as the
        /// [scheme](BlockScheme) says, the scales are floats, `[n, k / size]`, and the zero points, u8 or floats, are
        /// as many, or `[1]`; or all are interleaved, as the scheme says. Only `x` has a gradient, which is the same
        /// op, transposed.
        fused quantized_linear(
            x: tensor, weight: tensor, scales: tensor, zeros: tensor, scheme: BlockScheme, transposed: bool
        ) -> one
            as QuantizedLinear { scheme: BlockScheme, transposed: bool }, named "quantized_linear", for floats
            gives [shaped(x, outputs(x, weight, *scheme, *transposed)?)]
            saves [input 1, input 2, input 3];

        /// Numbers rounded to integers and back, which trains models that will be quantized: `(q - zero) · scale`,
        /// where `q` is `x / scale`, rounded to a whole number, halves to even, plus `zero`, clamped to `bounds`; for
        /// NaN the lower one, as PyTorch has it.
        /// `zero` is a whole number; it and `scale` are of the dtype of `x`, `[1]`, or one for each position of an
        /// axis.
        fused fake_quantize(x: tensor, scale: tensor, zero: tensor, bounds: ([i32; 2]), axis: usize) -> one
            as FakeQuantize { bounds: [i32; 2], axis: usize }, named "fake_quantize", for floats
            gives [x]
            saves [inputs]
            steps (true);

        /// Prepares a weight that is used many times without being changed. Gives a tensor of the same values, for
        /// which the work that ops of that kind do on their weight each time, such as changing its layout, is done
        /// once. It may take twice the memory.
        fused prepack(weight: tensor, kind: Prepack) -> one
            as Prepack (kind: Prepack), named "prepack", for (kind)
            gives [weight];

        /// Gradient of [`Backend::conv`] wrt its input; this is also the transposed convolution.
        fused conv_input_grad(grad: tensor, weight: tensor, input_shape: Shape, params: (&ConvParams)) -> one
            as ConvInputGrad { input_shape: Shape, params: Box<ConvParams> }, named "conv_input_grad", for floats
            gives [shaped(grad, *input_shape)]
            saves [input 0, input 1];

        /// Gradient of [`Backend::conv`] wrt its weight.
        training conv_weight_grad(grad: tensor, x: tensor, weight_shape: Shape, params: (&ConvParams)) -> one
            as ConvWeightGrad { weight_shape: Shape, params: Box<ConvParams> }, named "conv_weight_grad", for floats
            gives [shaped(grad, *weight_shape)]
            saves [input 0, input 1];

        /// Gradient of [`Backend::max_pool`], from the output's gradient and the positions.
        training max_pool_backward(grad: tensor, indices: tensor, input_shape: Shape) -> one
            as MaxPoolBackward { input_shape: Shape }, named "max_pool_backward", for numbers
            gives [shaped(grad, *input_shape)];

        /// Gradient of [`Backend::avg_pool`].
        training avg_pool_backward(grad: tensor, input_shape: Shape, params: (&PoolParams)) -> one
            as AvgPoolBackward { input_shape: Shape, params: Box<PoolParams> }, named "avg_pool_backward", for floats
            gives [shaped(grad, *input_shape)];
    } };
    ($($callback:tt)*) => { $crate::for_each_op! { [] $($callback)* } };
}
