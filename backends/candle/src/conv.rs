//! Convolution and its gradients.

use candle_core::Tensor;
use polygrad_core::{Axes, ConvParams, DType, ReduceOp, Result, Scalar, Shape};

use crate::CandleTensor;
use crate::binary::cast;
use crate::engine::filled;
use crate::matmul::matmul;
use crate::movement::{permute, reshape};
use crate::reduce::reduce;
use crate::values::{Item, floats};

pub(crate) fn conv(x: &CandleTensor, weight: &CandleTensor, params: &ConvParams) -> Result<CandleTensor> {
    let shape = params.output_shape(&x.shape(), &weight.shape())?;
    let dtype = x.dtype();
    if shape.numel() == 0 || weight.shape().numel() == 0 {
        return CandleTensor::full(shape, Scalar::Int(0), dtype, &x.device());
    }
    if is_narrow(dtype) {
        return cast(&conv(&cast(x, DType::F32)?, &cast(weight, DType::F32)?, params)?, dtype);
    }
    if let Some(call) = engines(shape.rank() - 2, params) {
        let (x, weight) = (x.dense("conv")?, weight.dense("conv")?);
        return CandleTensor::made("conv", shape.numel(), dtype, || call(&x, &weight, params));
    }
    let walk = Walk::new(x.shape(), weight.shape(), shape, params);
    let patches = floats!("conv", dtype, T => walk.patches::<T>(x))?;
    reshape(&matmul(&reshape(weight, walk.filters())?, &patches)?, shape)
}

type Call = fn(&Tensor, &Tensor, &ConvParams) -> candle_core::Result<Tensor>;

/// candle's own convolutions: over one or two axes, with the same stride, padding and dilation for all axes.
fn engines(spatial: usize, params: &ConvParams) -> Option<Call> {
    let same = |numbers: [usize; 3]| numbers[..spatial].iter().all(|&n| n == numbers[0]);
    let even = same(params.stride) && same(params.padding) && same(params.dilation);
    match spatial {
        1 => Some(|x, w, p| x.conv1d(w, p.padding[0], p.stride[0], p.dilation[0], p.groups)),
        2 if even => Some(|x, w, p| x.conv2d(w, p.padding[0], p.stride[0], p.dilation[0], p.groups)),
        _ => None,
    }
}

pub(crate) fn conv_input_grad(
    grad: &CandleTensor,
    weight: &CandleTensor,
    input_shape: Shape,
    params: &ConvParams,
) -> Result<CandleTensor> {
    let dtype = grad.dtype();
    if input_shape.numel() == 0 || grad.shape().numel() == 0 || weight.shape().numel() == 0 {
        return CandleTensor::full(input_shape, Scalar::Int(0), dtype, &grad.device());
    }
    if is_narrow(dtype) {
        let (grad, weight) = (cast(grad, DType::F32)?, cast(weight, DType::F32)?);
        return cast(&conv_input_grad(&grad, &weight, input_shape, params)?, dtype);
    }
    let walk = Walk::new(input_shape, weight.shape(), grad.shape(), params);
    let filters = permute(&reshape(weight, walk.filters())?, Axes::new([0, 1, 3, 2])?)?;
    let patches = matmul(&filters, &reshape(grad, walk.outputs())?)?;
    floats!("conv_input_grad", dtype, T => walk.gathered::<T>(&patches, input_shape))
}

pub(crate) fn conv_weight_grad(
    grad: &CandleTensor,
    x: &CandleTensor,
    weight_shape: Shape,
    params: &ConvParams,
) -> Result<CandleTensor> {
    let dtype = grad.dtype();
    if weight_shape.numel() == 0 || grad.shape().numel() == 0 {
        return CandleTensor::full(weight_shape, Scalar::Int(0), dtype, &grad.device());
    }
    if is_narrow(dtype) {
        let (grad, x) = (cast(grad, DType::F32)?, cast(x, DType::F32)?);
        return cast(&conv_weight_grad(&grad, &x, weight_shape, params)?, dtype);
    }
    let walk = Walk::new(x.shape(), weight_shape, grad.shape(), params);
    let patches = floats!("conv_weight_grad", dtype, T => walk.patches::<T>(x))?;
    let patches = permute(&patches, Axes::new([0, 1, 3, 2])?)?;
    let images = matmul(&reshape(grad, walk.outputs())?, &patches)?;
    reshape(&reduce(ReduceOp::Sum, &images, Axes::one(0), false)?, weight_shape)
}

fn is_narrow(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// How windows move over an input with three spatial axes.
struct Walk {
    images: usize,
    groups: usize,
    /// Channels per group, of the input and of the output.
    channels: usize,
    filters: usize,
    input: [usize; 3],
    kernel: [usize; 3],
    output: [usize; 3],
    stride: [usize; 3],
    padding: [usize; 3],
    dilation: [usize; 3],
}

impl Walk {
    fn new(input: Shape, weight: Shape, output: Shape, params: &ConvParams) -> Self {
        let spatial = input.rank() - 2;
        // Missing axes are prepended, with extent 1.
        let three = |numbers: &[usize]| {
            let mut out = [1; 3];
            out[3 - spatial..].copy_from_slice(&numbers[..spatial]);
            out
        };
        let mut padding = [0; 3];
        padding[3 - spatial..].copy_from_slice(&params.padding[..spatial]);
        Self {
            images: input[0],
            groups: params.groups,
            channels: weight[1],
            filters: weight[0] / params.groups,
            input: three(&input[2..]),
            kernel: three(&weight[2..]),
            output: three(&output[2..]),
            stride: three(&params.stride),
            padding,
            dilation: three(&params.dilation),
        }
    }

    /// Number of terms of an output element.
    fn terms(&self) -> usize {
        self.channels * self.kernel.iter().product::<usize>()
    }

    fn positions(&self) -> usize {
        self.output.iter().product()
    }

    fn filters(&self) -> Shape {
        Shape::from([1, self.groups, self.filters, self.terms()])
    }

    fn outputs(&self) -> Shape {
        Shape::from([self.images, self.groups, self.filters, self.positions()])
    }

    /// Calls `f` for each run of output positions in one row and each kernel element, with the first element of the
    /// input, the step between elements, the place among the patches, and the number of positions. Positions in the
    /// border are left out.
    fn runs(&self, mut f: impl FnMut(usize, usize, usize, usize)) {
        let [depth, height, width] = self.input;
        let [out_depth, out_height, out_width] = self.output;
        let meets = |axis: usize, out: usize, k: usize| {
            let at = (out * self.stride[axis] + k * self.dilation[axis]).checked_sub(self.padding[axis])?;
            (at < self.input[axis]).then_some(at)
        };
        let mut row = 0;
        for plane in 0..self.images * self.groups * self.channels {
            for kz in 0..self.kernel[0] {
                for ky in 0..self.kernel[1] {
                    for kx in 0..self.kernel[2] {
                        let reach = kx * self.dilation[2];
                        let first = self.padding[2].saturating_sub(reach).div_ceil(self.stride[2]);
                        let end = (width + self.padding[2]).saturating_sub(reach).div_ceil(self.stride[2]);
                        let (first, end) = (first.min(out_width), end.min(out_width));
                        for z in 0..out_depth {
                            for y in 0..out_height {
                                if let (Some(z), Some(y)) = (meets(0, z, kz), meets(1, y, ky))
                                    && first < end
                                {
                                    let x = first * self.stride[2] + reach - self.padding[2];
                                    let from = ((plane * depth + z) * height + y) * width + x;
                                    f(from, self.stride[2], row + first, end - first);
                                }
                                row += out_width;
                            }
                        }
                    }
                }
            }
        }
    }

    /// The patches that the windows cover: `[N, groups, terms, positions]`.
    fn patches<T: Item>(&self, x: &CandleTensor) -> Result<CandleTensor> {
        let shape = Shape::new(&[self.images, self.groups, self.terms(), self.positions()])?;
        let held = x.held("conv")?;
        let values = held.values::<T>()?;
        let mut out = filled(shape.numel(), T::from_i64(0))?;
        self.runs(|from, step, to, count| {
            let out = &mut out[to..to + count];
            if step == 1 {
                out.copy_from_slice(&values[from..from + count]);
            } else {
                let seen = values[from..].iter().step_by(step);
                out.iter_mut().zip(seen).for_each(|(out, &value)| *out = value);
            }
        });
        CandleTensor::of(shape, out, &x.device())
    }

    /// Sums up the patches' values of each element: the reverse of [`Walk::patches`].
    fn gathered<T: Item + std::ops::AddAssign>(&self, patches: &CandleTensor, shape: Shape) -> Result<CandleTensor> {
        let held = patches.held("conv_input_grad")?;
        let values = held.values::<T>()?;
        let mut out = filled(shape.numel(), T::from_i64(0))?;
        self.runs(|to, step, from, count| {
            let seen = &values[from..from + count];
            if step == 1 {
                out[to..to + count]
                    .iter_mut()
                    .zip(seen)
                    .for_each(|(out, &value)| *out += value);
            } else {
                let target = out[to..].iter_mut().step_by(step);
                target.zip(seen).for_each(|(out, &value)| *out += value);
            }
        });
        CandleTensor::of(shape, out, &patches.device())
    }
}
