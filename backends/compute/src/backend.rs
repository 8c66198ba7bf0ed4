//! The backend's ops, each in terms of the driver.

use std::fmt;
use std::marker::PhantomData;

use polygrad_core::compute::{Driver, Random};
use polygrad_core::{
    Activation, AdamParams, ArgOp, Axes, Backend, BinaryOp, Capabilities, CompareOp, Computation, ConvParams,
    CrossEntropyParams, DType, DeviceGraph, Distribution, HostTensor, PoolParams, RandomKey, ReduceOp, Result, Scalar,
    SgdParams, Shape, SliceRange, UnaryOp, check_distribution, decompose, random_host,
};

use crate::array::Array;
use crate::graph::Graph;
use crate::index::Mode;
use crate::{ComputeDevice, ComputeTensor, elementwise, fused, index, matmul, movement, reduce, window};

/// The backend that a driver is turned into: see the [crate's documentation](crate).
pub struct Compute<D>(PhantomData<fn() -> D>);

impl<D> Clone for Compute<D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for Compute<D> {}

impl<D> Default for Compute<D> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<D: Driver> fmt::Debug for Compute<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Compute({})", D::NAME)
    }
}

type T<D> = ComputeTensor<D>;

fn one<D>(array: Result<Array>) -> Result<T<D>> {
    array.map(T::new)
}

fn two<D>(arrays: Result<(Array, Array)>) -> Result<(T<D>, T<D>)> {
    arrays.map(|(a, b)| (T::new(a), T::new(b)))
}

impl<D: Driver> Backend for Compute<D> {
    type Tensor = ComputeTensor<D>;
    type Device = ComputeDevice<D>;

    fn name() -> &'static str {
        D::NAME
    }

    fn capabilities(device: &ComputeDevice<D>) -> Capabilities {
        let driver = &device.0.capabilities;
        let mut out = Capabilities::host(driver.dtypes.clone());
        out.asynchronous = driver.asynchronous || device.0.fuses;
        out.unified_memory = driver.unified_memory;
        // If each op must run by itself, graphs are not used.
        out.graphs = driver.records && device.0.fuses;
        out
    }

    fn synchronize(device: &ComputeDevice<D>) -> Result<()> {
        device.synchronize()
    }

    fn shape(x: &T<D>) -> Shape {
        *x.array.shape()
    }

    fn dtype(x: &T<D>) -> DType {
        x.array.dtype()
    }

    fn device(x: &T<D>) -> ComputeDevice<D> {
        ComputeDevice::of(x.array.context())
    }

    fn from_host(host: HostTensor, device: &ComputeDevice<D>) -> Result<T<D>> {
        one(Array::from_host(&device.0, &host))
    }

    fn to_host(x: &T<D>) -> Result<HostTensor> {
        x.array.to_host()
    }

    fn full(shape: Shape, value: Scalar, dtype: DType, device: &ComputeDevice<D>) -> Result<T<D>> {
        one(elementwise::full(&device.0, shape, value, dtype))
    }

    fn iota(len: usize, start: Scalar, step: Scalar, dtype: DType, device: &ComputeDevice<D>) -> Result<T<D>> {
        one(elementwise::iota(&device.0, len, start, step, dtype))
    }

    fn random(
        shape: Shape,
        distribution: Distribution,
        dtype: DType,
        key: RandomKey,
        device: &ComputeDevice<D>,
    ) -> Result<T<D>> {
        device.0.expect(dtype)?;
        if shape.numel() == 0 {
            return Self::from_host(random_host(shape, distribution, dtype, key)?, device);
        }
        check_distribution(distribution)?;
        let out = Array::empty(&device.0, shape, dtype)?;
        let call = Random {
            dtype,
            len: shape.numel(),
            distribution,
            key,
            output: out.start()?,
        };
        device.0.launch("random", |driver| driver.random(&call))?;
        Ok(T::new(out))
    }

    polygrad_core::backend_methods! {
        unary(op, x) => one(elementwise::unary(op, &x.array)),
        compare(op, a, b) => one(elementwise::compare(op, &a.array, &b.array)),
        select(condition, a, b) => one(elementwise::select(&condition.array, &a.array, &b.array)),
        cast(x, dtype) => one(elementwise::cast(&x.array, dtype)),
        reduce(op, x, axes, keepdims) => one(reduce::reduce(op, &x.array, axes, keepdims)),
        arg_reduce(op, x, axis, keepdims) => one(reduce::arg_reduce(op, &x.array, axis, keepdims)),
        cumsum(x, axis) => one(reduce::cumsum(&x.array, axis)),
        reshape(x, shape) => one(movement::reshape(&x.array, shape)),
        permute(x, axes) => Ok(T::new(movement::permute(&x.array, axes))),
        expand(x, shape) => Ok(T::new(movement::expand(&x.array, shape))),
        slice(x, ranges) => Ok(T::new(movement::slice(&x.array, ranges))),
        pad(x, padding, value) => one(movement::pad(&x.array, padding, value)),
        gather(x, axis, index) => one(index::gather(&x.array, axis, &index.array)),
        scatter(x, axis, index, src) => one(index::scatter(Mode::Write, &x.array, axis, &index.array, &src.array)),
        scatter_add(x, axis, index, src) => one(index::scatter(Mode::Add, &x.array, axis, &index.array, &src.array)),
        index_select(x, axis, index) => one(index::index_select(&x.array, axis, &index.array)),
        sort(x, axis, descending) => two(reduce::sort(&x.array, axis, descending)),
        conv(x, weight, bias, residual, activation, params) =>
            decompose::epilogue::<Self>(one(window::conv(&x.array, &weight.array, params))?, bias, residual, activation),
        max_pool(x, params, positions) =>
            two(window::max_pool(&x.array, params)).map(|(y, at)| (y, positions.then_some(at))),
        avg_pool(x, params) => one(window::avg_pool(&x.array, params)),
        compare_scalar(op, x, scalar) => one(elementwise::compare_scalar(op, &x.array, scalar)),
        index_add(x, axis, index, src) => one(index::index_add(&x.array, axis, &index.array, &src.array)),
    }

    fn binary(op: BinaryOp, a: &T<D>, b: &T<D>) -> Result<T<D>> {
        if op.is_fused() {
            return decompose::binary::<Self>(op, a, b);
        }
        one(elementwise::binary(op, &a.array, &b.array))
    }

    fn matmul(a: &T<D>, b: &T<D>) -> Result<T<D>> {
        if !a.array.dtype().is_float() {
            return decompose::integer_matmul::<Self>(a, b);
        }
        one(matmul::matmul(&a.array, &b.array))
    }

    fn concat(xs: &[&T<D>], axis: usize) -> Result<T<D>> {
        let arrays: Vec<_> = xs.iter().map(|x| &x.array).collect();
        one(movement::concat(&arrays, axis))
    }

    // Fused ops for which a driver may have kernels. The others are decomposed into ops that become a program again.

    fn binary_scalar(op: BinaryOp, x: &T<D>, scalar: Scalar, reverse: bool) -> Result<T<D>> {
        if op.is_fused() {
            return decompose::binary_scalar::<Self>(op, x, scalar, reverse);
        }
        one(elementwise::binary_scalar(op, &x.array, scalar, reverse))
    }

    fn softmax(x: &T<D>, axis: usize) -> Result<T<D>> {
        match fused::softmax(&x.array, axis, false)? {
            Some(out) => Ok(T::new(out)),
            None => decompose::softmax::<Self>(x, axis),
        }
    }

    fn softmax_backward(grad: &T<D>, output: &T<D>, axis: usize) -> Result<T<D>> {
        match fused::softmax_backward(&grad.array, &output.array, axis, false)? {
            Some(out) => Ok(T::new(out)),
            None => decompose::softmax_backward::<Self>(grad, output, axis),
        }
    }

    fn log_softmax(x: &T<D>, axis: usize) -> Result<T<D>> {
        match fused::softmax(&x.array, axis, true)? {
            Some(out) => Ok(T::new(out)),
            None => decompose::log_softmax::<Self>(x, axis),
        }
    }

    fn log_softmax_backward(grad: &T<D>, output: &T<D>, axis: usize) -> Result<T<D>> {
        match fused::softmax_backward(&grad.array, &output.array, axis, true)? {
            Some(out) => Ok(T::new(out)),
            None => decompose::log_softmax_backward::<Self>(grad, output, axis),
        }
    }

    fn cross_entropy(logits: &T<D>, target: &T<D>, params: &CrossEntropyParams) -> Result<(T<D>, T<D>)> {
        match fused::cross_entropy(&logits.array, &target.array, params)? {
            Some((loss, logsumexp)) => Ok((T::new(loss), T::new(logsumexp))),
            None => decompose::cross_entropy::<Self>(logits, target, params),
        }
    }

    fn cross_entropy_backward(
        grad: &T<D>,
        logits: &T<D>,
        target: &T<D>,
        logsumexp: &T<D>,
        params: &CrossEntropyParams,
    ) -> Result<T<D>> {
        let arrays = (&grad.array, &logits.array, &target.array, &logsumexp.array);
        match fused::cross_entropy_backward(arrays.0, arrays.1, arrays.2, arrays.3, params)? {
            Some(out) => Ok(T::new(out)),
            None => decompose::cross_entropy_backward::<Self>(grad, logits, target, logsumexp, params),
        }
    }

    fn layer_norm(
        x: &T<D>,
        weight: Option<&T<D>>,
        bias: Option<&T<D>>,
        axes: usize,
        eps: f64,
    ) -> Result<(T<D>, T<D>, T<D>)> {
        let arrays = (weight.map(|x| &x.array), bias.map(|x| &x.array));
        match fused::layer_norm(&x.array, arrays.0, arrays.1, axes, eps)? {
            Some([out, mean, rstd]) => Ok((T::new(out), T::new(mean), T::new(rstd))),
            None => decompose::layer_norm::<Self>(x, weight, bias, axes, eps),
        }
    }

    fn attention(q: &T<D>, k: &T<D>, v: &T<D>, mask: Option<&T<D>>, scale: f64, causal: bool) -> Result<T<D>> {
        if mask.is_none()
            && let Some(out) = fused::attention(&q.array, &k.array, &v.array, scale, causal)?
        {
            return Ok(T::new(out));
        }
        decompose::attention::<Self>(q, k, v, mask, scale, causal)
    }

    fn attention_backward(
        grad: &T<D>,
        q: &T<D>,
        k: &T<D>,
        v: &T<D>,
        mask: Option<&T<D>>,
        scale: f64,
        causal: bool,
    ) -> Result<(T<D>, T<D>, T<D>)> {
        if mask.is_none()
            && let Some(all) = fused::attention_backward(&grad.array, &q.array, &k.array, &v.array, scale, causal)?
        {
            return Ok(all.map(T::new).into());
        }
        decompose::attention_backward::<Self>(grad, q, k, v, mask, scale, causal)
    }

    fn conv_input_grad(grad: &T<D>, weight: &T<D>, input_shape: Shape, params: &ConvParams) -> Result<T<D>> {
        match window::conv_input_grad(&grad.array, &weight.array, input_shape, params)? {
            Some(out) => Ok(T::new(out)),
            None => decompose::conv_input_grad::<Self>(grad, weight, input_shape, params),
        }
    }

    fn conv_weight_grad(grad: &T<D>, x: &T<D>, weight_shape: Shape, params: &ConvParams) -> Result<T<D>> {
        match window::conv_weight_grad(&grad.array, &x.array, weight_shape, params)? {
            Some(out) => Ok(T::new(out)),
            None => decompose::conv_weight_grad::<Self>(grad, x, weight_shape, params),
        }
    }

    // Optimizer steps are computed at once: otherwise their operands would be kept alive, and a failing step could not
    // report its error.

    fn sgd_step(param: &mut T<D>, grad: &T<D>, mut momentum: Option<&mut T<D>>, params: &SgdParams) -> Result<()> {
        let mut new = param.clone();
        let mut new_momentum = momentum.as_deref().cloned();
        decompose::sgd_step::<Self>(&mut new, grad, new_momentum.as_mut(), params)?;
        finish(&[Some(&new), new_momentum.as_ref()])?;
        *param = new;
        store(&mut momentum, new_momentum);
        Ok(())
    }

    fn adam_step(
        param: &mut T<D>,
        grad: &T<D>,
        first: &mut T<D>,
        second: &mut T<D>,
        mut max_second: Option<&mut T<D>>,
        params: &AdamParams,
    ) -> Result<()> {
        let (mut new, mut new_first, mut new_second) = (param.clone(), first.clone(), second.clone());
        let mut largest = max_second.as_deref().cloned();
        decompose::adam_step::<Self>(
            &mut new,
            grad,
            &mut new_first,
            &mut new_second,
            largest.as_mut(),
            params,
        )?;
        finish(&[Some(&new), Some(&new_first), Some(&new_second), largest.as_ref()])?;
        (*param, *first, *second) = (new, new_first, new_second);
        store(&mut max_second, largest);
        Ok(())
    }

    fn graph(
        device: &ComputeDevice<D>,
        inputs: &[T<D>],
        f: Computation<'_, T<D>>,
    ) -> Result<Option<Box<dyn DeviceGraph<T<D>>>>> {
        let inputs: Vec<Array> = inputs.iter().map(|x| x.array.clone()).collect();
        let graph = Graph::record(&device.0, &inputs, &mut |inputs| {
            let inputs: Vec<T<D>> = inputs.iter().cloned().map(T::new).collect();
            Ok(f(&inputs)?.into_iter().map(|x| x.array).collect())
        })?;
        Ok(graph.map(|graph| Box::new(graph) as Box<dyn DeviceGraph<T<D>>>))
    }
}

impl<D: Driver> DeviceGraph<T<D>> for Graph {
    fn run(&self, inputs: &[T<D>]) -> Result<Vec<T<D>>> {
        let inputs: Vec<Array> = inputs.iter().map(|x| x.array.clone()).collect();
        let outputs = Self::run(self, &inputs)?;
        Ok(outputs.into_iter().map(T::new).collect())
    }
}

/// Computes pending tensors.
fn finish<D>(tensors: &[Option<&T<D>>]) -> Result<()> {
    tensors
        .iter()
        .flatten()
        .try_for_each(|tensor| tensor.array.storage.buffer().map(drop))
}

fn store<D>(target: &mut Option<&mut T<D>>, new: Option<T<D>>) {
    if let (Some(target), Some(new)) = (target, new) {
        **target = new;
    }
}
