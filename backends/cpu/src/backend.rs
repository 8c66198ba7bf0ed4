//! The seam's methods.

use polygrad_core::{
    Activation, AdamParams, ArgOp, Axes, Backend, BinaryOp, BlockScheme, Capabilities, CompareOp, ConvParams,
    CrossEntropyParams, DType, Distribution, Error, HostTensor, OpDesc, PoolParams, Prepack, RandomKey, ReduceOp,
    Result, Scalar, SgdParams, Shape, SliceRange, UnaryOp, decompose,
};

use crate::fused::{
    attention, batch_norm, cross_entropy, embedding, gru, linear_grad, lstm, lstm_steps, norm, optim, rotary, softmax,
    square_sum,
};
use crate::ops::{
    activation, binary, compare, convert, create, index, join, matmul, quantized, quantized_linear, reduce, rescale,
    scan, select, sort, unary,
};
use crate::{Cpu, CpuDevice, CpuTensor, buffers, conv};

type T = CpuTensor;

impl Backend for Cpu {
    type Tensor = CpuTensor;
    type Device = CpuDevice;

    fn name() -> &'static str {
        "cpu"
    }

    fn capabilities(device: &CpuDevice) -> Capabilities {
        let mut capabilities = Capabilities::host(DType::ALL);
        capabilities.interleaves_blocks = device.vectors().is_some();
        capabilities
    }

    /// Like the default, but without allocating a list: recurrent layers call this in each step.
    fn supports(device: &CpuDevice, op: &OpDesc<'_>) -> Result<()> {
        op.check(&DType::ALL).map_err(|e| e.with_device(device))
    }

    fn synchronize(_: &CpuDevice) -> Result<()> {
        buffers::verdict()
    }

    #[inline]
    fn shape(x: &T) -> Shape {
        *x.shape()
    }

    #[inline]
    fn dtype(x: &T) -> DType {
        x.dtype()
    }

    #[inline]
    fn device(x: &T) -> CpuDevice {
        x.device()
    }

    /// Always: all CPU devices share the host's memory.
    #[inline]
    fn same_device(_: &T, _: &T) -> bool {
        true
    }

    fn from_host(host: HostTensor, device: &CpuDevice) -> Result<T> {
        CpuTensor::from_host(&host, *device)
    }

    fn to_host(x: &T) -> Result<HostTensor> {
        x.to_host()
    }

    fn full(shape: Shape, value: Scalar, dtype: DType, device: &CpuDevice) -> Result<T> {
        create::full(shape, value, dtype, *device)
    }

    fn iota(len: usize, start: Scalar, step: Scalar, dtype: DType, device: &CpuDevice) -> Result<T> {
        create::iota(len, start, step, dtype, *device)
    }

    fn random(shape: Shape, distribution: Distribution, dtype: DType, key: RandomKey, device: &CpuDevice) -> Result<T> {
        create::random(shape, distribution, dtype, key, *device)
    }

    polygrad_core::backend_methods! {
        unary => unary::unary,
        compare => compare::compare,
        select => select::select,
        cast => convert::cast,
        reduce => reduce::reduce,
        arg_reduce => scan::arg_reduce,
        cumsum => scan::cumsum,
        matmul => matmul::matmul,
        #[inline]
        reshape(x, shape) => x.reshaped(shape),
        pad => join::pad,
        concat => join::concat,
        gather => index::gather,
        scatter => index::scatter,
        scatter_add => index::scatter_add,
        index_select => index::index_select,
        sort => sort::sort,
        conv => conv::conv,
        conv_input_grad => conv::conv_input_grad,
        conv_weight_grad => conv::conv_weight_grad,
        max_pool => conv::max_pool,
        avg_pool => conv::avg_pool,
        compare_scalar => compare::compare_scalar,
        index_add => index::index_add,
        linear => matmul::linear,
        matmul_u8 => quantized::matmul_u8,
        quantized_linear => quantized_linear::quantized_linear,
        conv_u8 => conv::conv_u8,
        conv_requantize_u8 => conv::conv_requantize_u8,
        matmul_requantize_u8 => quantized::matmul_requantize_u8,
        matmul_rescale_u8 => quantized::matmul_rescale_u8,
        quantize_u8 => rescale::quantize_u8,
        dynamic_quantize_u8 => rescale::dynamic_quantize_u8,
        dequantize_u8 => rescale::dequantize_u8,
        lookup_u8 => rescale::lookup_u8,
        binary_requantize_u8 => rescale::binary_requantize_u8,
        fake_quantize => rescale::fake_quantize,
        square_sum => square_sum::square_sum,
        linear_weight_grad => linear_grad::linear_weight_grad,
        attention => attention::attention,
        attention_backward => attention::attention_backward,
        lstm => lstm::lstm,
        lstm_cell => lstm::lstm_cell,
        gru => gru::gru,
        max_pool_backward => conv::max_pool_backward,
        avg_pool_backward => conv::avg_pool_backward,
        activation => activation::activation,
        activation_backward => activation::activation_backward,
        softmax => softmax::softmax,
        softmax_backward => softmax::softmax_backward,
        log_softmax => softmax::log_softmax,
        log_softmax_backward => softmax::log_softmax_backward,
        cross_entropy => cross_entropy::cross_entropy,
        cross_entropy_backward => cross_entropy::cross_entropy_backward,
        layer_norm => norm::layer_norm,
        layer_norm_backward => norm::layer_norm_backward,
        rms_norm => norm::rms_norm,
        rotary => rotary::rotary,
        rms_norm_backward => norm::rms_norm_backward,
        batch_norm => batch_norm::batch_norm,
        batch_norm_backward => batch_norm::batch_norm_backward,
        lstm_steps => lstm_steps::lstm_steps,
        lstm_steps_backward => lstm_steps::lstm_steps_backward,
        embedding_backward => embedding::embedding_backward,
    }

    #[inline]
    fn binary(op: BinaryOp, a: &T, b: &T) -> Result<T> {
        if op.is_fused() {
            return decompose::binary::<Self>(op, a, b);
        }
        binary::binary(op, a, b)
    }

    #[inline]
    fn permute(x: &T, axes: Axes) -> Result<T> {
        if axes.len() != x.shape().rank() || axes.iter().any(|axis| axis >= axes.len()) {
            return Err(
                Error::invalid(format!("{axes:?} does not reorder the axes of {}", x.shape())).with_op("permute"),
            );
        }
        Ok(x.with_layout(x.layout().permute(axes)))
    }

    #[inline]
    fn expand(x: &T, shape: Shape) -> Result<T> {
        if !x.shape().broadcasts_to(&shape) {
            return Err(Error::shape(format!("{} does not broadcast to {shape}", x.shape())).with_op("expand"));
        }
        Ok(x.with_layout(x.layout().expand(shape)))
    }

    fn slice(x: &T, ranges: &[SliceRange]) -> Result<T> {
        let fits = ranges.len() == x.shape().rank() && ranges.iter().zip(x.shape().iter()).all(|(r, &dim)| r.fits(dim));
        if !fits {
            return Err(Error::out_of_range(format!("{ranges:?} does not fit shape {}", x.shape())).with_op("slice"));
        }
        Ok(x.with_layout(x.layout().slice(ranges)))
    }

    fn binary_scalar(op: BinaryOp, x: &T, scalar: Scalar, reverse: bool) -> Result<T> {
        if op.is_fused() {
            return decompose::binary_scalar::<Self>(op, x, scalar, reverse);
        }
        binary::binary_scalar(op, x, scalar, reverse)
    }

    fn prepack(weight: &T, kind: Prepack) -> Result<T> {
        match kind {
            // A vector is multiplied fastest by contiguous rows.
            Prepack::Linear => matmul::prepack(&weight.contiguous()?),
            Prepack::LinearRows if weight.dtype() == DType::F32 => matmul::prepack(weight),
            Prepack::Conv => conv::prepack(weight),
            Prepack::MatmulU8 => quantized::prepack(weight),
            Prepack::ConvU8 => Ok(conv::prepack_u8(weight)),
            Prepack::Memory => weight.in_huge_pages(),
            _ => Ok(weight.clone()),
        }
    }

    fn sgd_step(param: &mut T, grad: &T, momentum: Option<&mut T>, params: &SgdParams) -> Result<()> {
        optim::sgd_step(param, grad, momentum, params)
    }

    fn adam_step(
        param: &mut T,
        grad: &T,
        first: &mut T,
        second: &mut T,
        max_second: Option<&mut T>,
        params: &AdamParams,
    ) -> Result<()> {
        optim::adam_step(param, grad, first, second, max_second, params)
    }

    fn accumulate_grad(mut acc: T, grad: &T) -> Result<T> {
        if acc.is_writable() && acc.shape() == grad.shape() && acc.dtype() == grad.dtype() {
            binary::in_place(BinaryOp::Add, &mut acc, grad)?;
            return Ok(acc);
        }
        binary::binary(BinaryOp::Add, &acc, grad)
    }

    fn slice_scatter(x: &mut T, src: &T, axis: usize, start: usize) -> Result<()> {
        join::slice_scatter(x, src, axis, start)
    }
}
