//! The seam: what each op's results look like.

use polygrad_core::{
    Activation, AdamParams, ArgOp, Axes, Backend, BinaryOp, Capabilities, CompareOp, ConvParams, CrossEntropyParams,
    DType, Distribution, Error, HostTensor, OpDesc, PoolParams, RandomKey, ReduceOp, Result, Scalar, SgdParams, Shape,
    SliceRange, Support, UnaryOp,
};

use crate::{NullDevice, NullTensor};

/// The backend: see the [crate's documentation](crate).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Null;

type T = NullTensor;

impl Backend for Null {
    type Tensor = NullTensor;
    type Device = NullDevice;

    fn name() -> &'static str {
        "null"
    }

    fn capabilities(_: &NullDevice) -> Capabilities {
        Capabilities::host(DType::ALL)
    }

    /// Everything: it computes nothing, and so refuses nothing.
    fn supports(_: &NullDevice, _: &OpDesc<'_>) -> Support {
        Support::Native
    }

    fn synchronize(_: &NullDevice) -> Result<()> {
        Ok(())
    }

    fn shape(x: &T) -> Shape {
        x.shape()
    }

    fn dtype(x: &T) -> DType {
        x.dtype()
    }

    fn device(x: &T) -> NullDevice {
        x.device().clone()
    }

    fn from_host(host: HostTensor, device: &NullDevice) -> Result<T> {
        T::result(device, *host.shape(), host.dtype())
    }

    fn to_host(x: &T) -> Result<HostTensor> {
        Err(Error::unsupported("this backend keeps no values, only shapes")
            .with_op("to_host")
            .with_operands([(x.shape(), x.dtype())])
            .with_device(x.device())
            .with_hint("run what needs values on a backend that computes, such as cpu"))
    }

    fn full(shape: Shape, _: Scalar, dtype: DType, device: &NullDevice) -> Result<T> {
        T::result(device, shape, dtype)
    }

    fn iota(len: usize, _: Scalar, _: Scalar, dtype: DType, device: &NullDevice) -> Result<T> {
        T::result(device, Shape::new(&[len])?, dtype)
    }

    fn random(shape: Shape, _: Distribution, dtype: DType, _: RandomKey, device: &NullDevice) -> Result<T> {
        T::result(device, shape, dtype)
    }

    fn unary(op: UnaryOp, x: &T) -> Result<T> {
        let dtype = if op.is_predicate() { DType::Bool } else { x.dtype() };
        T::result(x.device(), x.shape(), dtype)
    }

    fn binary(_: BinaryOp, a: &T, b: &T) -> Result<T> {
        a.gives(a.shape().broadcast(&b.shape())?)
    }

    fn compare(_: CompareOp, a: &T, b: &T) -> Result<T> {
        T::result(a.device(), a.shape().broadcast(&b.shape())?, DType::Bool)
    }

    fn select(condition: &T, a: &T, b: &T) -> Result<T> {
        a.gives(condition.shape().broadcast(&a.shape())?.broadcast(&b.shape())?)
    }

    fn cast(x: &T, dtype: DType) -> Result<T> {
        T::result(x.device(), x.shape(), dtype)
    }

    fn reduce(_: ReduceOp, x: &T, axes: Axes, keepdims: bool) -> Result<T> {
        x.gives(x.shape().reduced(axes, keepdims))
    }

    fn arg_reduce(_: ArgOp, x: &T, axis: usize, keepdims: bool) -> Result<T> {
        let shape = x.shape().reduced(Axes::one(axis), keepdims);
        T::result(x.device(), shape, DType::I64)
    }

    fn cumsum(x: &T, _: usize) -> Result<T> {
        x.like()
    }

    fn matmul(a: &T, b: &T) -> Result<T> {
        let (left, right) = (a.shape(), b.shape());
        let (&[ref lead_a @ .., m, _], &[ref lead_b @ .., _, n]) = (left.dims(), right.dims()) else {
            return Err(Error::shape(format!("{left} × {right} is no product of matrices")).with_op("matmul"));
        };
        let lead = Shape::new(lead_a)?.broadcast(&Shape::new(lead_b)?)?;
        a.gives(Shape::new(&[lead.dims(), &[m, n]].concat())?)
    }

    fn reshape(x: &T, shape: Shape) -> Result<T> {
        match x.layout().reshape(shape) {
            Some(layout) => x.view(layout),
            None => x.gives(shape),
        }
    }

    fn permute(x: &T, axes: Axes) -> Result<T> {
        x.view(x.layout().permute(axes))
    }

    fn expand(x: &T, shape: Shape) -> Result<T> {
        x.view(x.layout().expand(shape))
    }

    fn slice(x: &T, ranges: &[SliceRange]) -> Result<T> {
        x.view(x.layout().slice(ranges))
    }

    fn pad(x: &T, padding: &[(usize, usize)], _: Scalar) -> Result<T> {
        let shape = x.shape();
        let dims = shape.iter().zip(padding);
        let dims: Vec<usize> = dims.map(|(&dim, &(before, after))| before + dim + after).collect();
        x.gives(Shape::new(&dims)?)
    }

    fn concat(xs: &[&T], axis: usize) -> Result<T> {
        let Some(first) = xs.first() else {
            return Err(Error::invalid("nothing to join").with_op("cat"));
        };
        let dim = xs.iter().map(|x| x.shape()[axis]).sum();
        first.gives(Shape::new(&first.shape().with_dim(axis, dim))?)
    }

    fn gather(x: &T, _: usize, index: &T) -> Result<T> {
        x.gives(index.shape())
    }

    fn scatter(x: &T, _: usize, _: &T, _: &T) -> Result<T> {
        x.like()
    }

    fn scatter_add(x: &T, _: usize, _: &T, _: &T) -> Result<T> {
        x.like()
    }

    fn index_select(x: &T, axis: usize, index: &T) -> Result<T> {
        x.gives(Shape::new(&x.shape().with_dim(axis, index.shape().numel()))?)
    }

    fn sort(x: &T, _: usize, _: bool) -> Result<(T, T)> {
        two(x, (x.shape(), x.dtype()), (x.shape(), DType::I64))
    }

    fn conv(x: &T, weight: &T, params: &ConvParams) -> Result<T> {
        x.gives(params.output_shape(&x.shape(), &weight.shape())?)
    }

    fn max_pool(x: &T, params: &PoolParams) -> Result<(T, T)> {
        let shape = params.output_shape(&x.shape())?;
        two(x, (shape, x.dtype()), (shape, DType::I64))
    }

    fn avg_pool(x: &T, params: &PoolParams) -> Result<T> {
        x.gives(params.output_shape(&x.shape())?)
    }

    // Fused ops: their decompositions would count memory that a kernel does not take.

    fn binary_scalar(_: BinaryOp, x: &T, _: Scalar, _: bool) -> Result<T> {
        x.like()
    }

    fn compare_scalar(_: CompareOp, x: &T, _: Scalar) -> Result<T> {
        T::result(x.device(), x.shape(), DType::Bool)
    }

    fn index_add(x: &T, _: usize, _: &T, _: &T) -> Result<T> {
        x.like()
    }

    fn sum_to(x: &T, shape: Shape) -> Result<T> {
        if x.shape() == shape {
            Ok(x.clone())
        } else {
            x.gives(shape)
        }
    }

    fn linear(x: &T, weight: &T, _: Option<&T>) -> Result<T> {
        with_last(x, weight.shape()[0])
    }

    fn linear_weight_grad(grad: &T, x: &T) -> Result<(T, T)> {
        let last = |x: &T| x.shape()[x.shape().rank() - 1];
        let (outputs, inputs, dtype) = (last(grad), last(x), grad.dtype());
        two(
            grad,
            (Shape::from([outputs, inputs]), dtype),
            (Shape::from([outputs]), dtype),
        )
    }

    fn activation(_: Activation, x: &T) -> Result<T> {
        x.like()
    }

    fn activation_backward(_: Activation, grad: &T, _: &T) -> Result<T> {
        grad.like()
    }

    fn softmax(x: &T, _: usize) -> Result<T> {
        x.like()
    }

    fn softmax_backward(grad: &T, _: &T, _: usize) -> Result<T> {
        grad.like()
    }

    fn log_softmax(x: &T, _: usize) -> Result<T> {
        x.like()
    }

    fn log_softmax_backward(grad: &T, _: &T, _: usize) -> Result<T> {
        grad.like()
    }

    fn cross_entropy(logits: &T, target: &T, _: &CrossEntropyParams) -> Result<(T, T)> {
        let rows = (target.shape(), logits.dtype());
        two(logits, rows, rows)
    }

    fn cross_entropy_mean(logits: &T, target: &T, _: &CrossEntropyParams) -> Result<(T, T)> {
        two(
            logits,
            (Shape::SCALAR, logits.dtype()),
            (target.shape(), logits.dtype()),
        )
    }

    fn cross_entropy_mean_backward(_: &T, logits: &T, _: &T, _: &T, _: &CrossEntropyParams) -> Result<T> {
        logits.like()
    }

    fn cross_entropy_backward(_: &T, logits: &T, _: &T, _: &T, _: &CrossEntropyParams) -> Result<T> {
        logits.like()
    }

    fn layer_norm(x: &T, _: Option<&T>, _: Option<&T>, axes: usize, _: f64) -> Result<(T, T, T)> {
        let statistic = x.shape().reduced(last_axes(x, axes)?, true);
        three(x, [x.shape(), statistic, statistic])
    }

    fn layer_norm_backward(_: &T, x: &T, _: &T, _: &T, _: Option<&T>, axes: usize) -> Result<(T, T, T)> {
        let inner = inner_shape(x, axes)?;
        three(x, [x.shape(), inner, inner])
    }

    fn rms_norm(x: &T, _: Option<&T>, axes: usize, _: f64) -> Result<(T, T)> {
        let statistic = x.shape().reduced(last_axes(x, axes)?, true);
        two(x, (x.shape(), x.dtype()), (statistic, x.dtype()))
    }

    fn rms_norm_backward(_: &T, x: &T, _: &T, _: Option<&T>, axes: usize) -> Result<(T, T)> {
        two(x, (x.shape(), x.dtype()), (inner_shape(x, axes)?, x.dtype()))
    }

    fn batch_norm(x: &T, _: Option<&T>, _: Option<&T>, _: f64) -> Result<(T, T, T)> {
        let channels = Shape::from([x.shape()[1]]);
        three(x, [x.shape(), channels, channels])
    }

    fn batch_norm_backward(_: &T, x: &T, _: &T, _: &T, _: Option<&T>, _: f64) -> Result<(T, T, T)> {
        let channels = Shape::from([x.shape()[1]]);
        three(x, [x.shape(), channels, channels])
    }

    fn attention(q: &T, k: &T, v: &T, _: Option<&T>, _: f64, _: bool) -> Result<T> {
        // Keys and values shared by all heads may have fewer leading axes than queries.
        let (q_shape, k_shape, v_shape) = (q.shape(), k.shape(), v.shape());
        let lead = |shape: &Shape| Shape::new(&shape[..shape.rank() - 2]);
        let lead = lead(&q_shape)?
            .broadcast(&lead(&k_shape)?)?
            .broadcast(&lead(&v_shape)?)?;
        let last = [q_shape[q_shape.rank() - 2], v_shape[v_shape.rank() - 1]];
        q.gives(Shape::new(&[lead.dims(), &last].concat())?)
    }

    fn attention_backward(_: &T, q: &T, k: &T, v: &T, _: Option<&T>, _: f64, _: bool) -> Result<(T, T, T)> {
        three(q, [q.shape(), k.shape(), v.shape()])
    }

    fn embedding(weight: &T, index: &T) -> Result<T> {
        weight.gives(Shape::new(&[index.shape().dims(), &weight.shape()[1..]].concat())?)
    }

    fn embedding_backward(grad: &T, _: &T, num_embeddings: usize, _: Option<usize>) -> Result<T> {
        let shape = grad.shape();
        grad.gives(Shape::new(&[num_embeddings, shape[shape.rank() - 1]])?)
    }

    fn batch_norm_running(x: &T, _: &T, _: &T, _: Option<&T>, _: Option<&T>, _: f64) -> Result<T> {
        x.like()
    }

    fn rnn(x: &T, hidden: &T, _: [&T; 2], _: Option<[&T; 2]>, _: Activation, _: bool) -> Result<(T, T)> {
        let (outputs, state) = sequence(x, hidden)?;
        two(x, (outputs, x.dtype()), (state, x.dtype()))
    }

    fn lstm(x: &T, hidden: &T, _: &T, _: [&T; 2], _: Option<[&T; 2]>, _: bool) -> Result<(T, T, T)> {
        let (outputs, state) = sequence(x, hidden)?;
        three(x, [outputs, state, state])
    }

    fn gru(x: &T, hidden: &T, _: [&T; 2], _: Option<[&T; 2]>, _: bool) -> Result<(T, T)> {
        let (outputs, state) = sequence(x, hidden)?;
        two(x, (outputs, x.dtype()), (state, x.dtype()))
    }

    fn lstm_cell(_: &T, cell: &T) -> Result<(T, T)> {
        let state = (cell.shape(), cell.dtype());
        two(cell, state, state)
    }

    fn gru_cell(_: &T, _: &T, hidden: &T) -> Result<T> {
        hidden.like()
    }

    fn conv_input_grad(grad: &T, _: &T, input_shape: Shape, _: &ConvParams) -> Result<T> {
        grad.gives(input_shape)
    }

    fn conv_weight_grad(grad: &T, _: &T, weight_shape: Shape, _: &ConvParams) -> Result<T> {
        grad.gives(weight_shape)
    }

    fn max_pool_backward(grad: &T, _: &T, input_shape: Shape) -> Result<T> {
        grad.gives(input_shape)
    }

    fn avg_pool_backward(grad: &T, input_shape: Shape, _: &PoolParams) -> Result<T> {
        grad.gives(input_shape)
    }

    fn accumulate_grad(mut acc: T, _: &T) -> Result<T> {
        T::write([Some(&mut acc)])?;
        Ok(acc)
    }

    fn sgd_step(param: &mut T, _: &T, momentum: Option<&mut T>, _: &SgdParams) -> Result<()> {
        T::write([Some(param), momentum])
    }

    fn adam_step(
        param: &mut T,
        _: &T,
        first: &mut T,
        second: &mut T,
        max_second: Option<&mut T>,
        _: &AdamParams,
    ) -> Result<()> {
        T::write([Some(param), Some(first), Some(second), max_second])
    }
}

fn two(x: &T, first: (Shape, DType), second: (Shape, DType)) -> Result<(T, T)> {
    T::results(x.device(), [first, second]).map(|[a, b]| (a, b))
}

/// The shapes of the outputs and the last state of a recurrent layer.
fn sequence(x: &T, hidden: &T) -> Result<(Shape, Shape)> {
    let state = hidden.shape();
    Ok((Shape::new(&[&x.shape()[..1], state.dims()].concat())?, state))
}

/// Of the dtype of `x`.
fn three(x: &T, shapes: [Shape; 3]) -> Result<(T, T, T)> {
    T::results(x.device(), shapes.map(|shape| (shape, x.dtype()))).map(|[a, b, c]| (a, b, c))
}

fn with_last(x: &T, dim: usize) -> Result<T> {
    let shape = x.shape();
    x.gives(Shape::new(&shape.with_dim(shape.rank() - 1, dim))?)
}

fn last_axes(x: &T, axes: usize) -> Result<Axes> {
    let rank = x.shape().rank();
    Axes::new(rank - axes..rank)
}

fn inner_shape(x: &T, axes: usize) -> Result<Shape> {
    let shape = x.shape();
    Shape::new(&shape[shape.rank() - axes..])
}
