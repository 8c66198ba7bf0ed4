//! Convolution and pooling.

mod bytes;
mod columns;
mod max_rows;
mod max_values;
mod pool;
mod product;

pub(crate) use bytes::{conv_requantize_u8, conv_u8, prepack_u8};
pub(crate) use pool::{avg_pool, avg_pool_backward, max_pool, max_pool_backward};

use polygrad_core::{Activation, ConvParams, DType, Error, Result, Scalar, Shape, decompose};
use polygrad_cpu_kernels::conv::geometry::Geometry;
use polygrad_cpu_kernels::conv::lanes::{self, Fold};
use polygrad_cpu_kernels::conv::{Epilogue, Filters, direct, few, filters, winograd};

use crate::fused::vectors;
use crate::math::Pointwise;
use crate::ops::half::{Half, Wide};
use crate::ops::{convert, create, floats, same_dtype};
use crate::{Cpu, CpuDevice, CpuTensor, Kernels};

/// Calls a function of the module `product` for the dtype.
macro_rules! for_real {
    ($dtype:expr, $function:ident($($argument:expr),*)) => {
        if $dtype == DType::F32 {
            product::$function::<f32>($($argument),*)
        } else {
            product::$function::<f64>($($argument),*)
        }
    };
}

/// See [`polygrad_core::Backend::conv`].
pub(crate) fn conv(
    x: &CpuTensor,
    weight: &CpuTensor,
    bias: Option<&CpuTensor>,
    residual: Option<&CpuTensor>,
    activation: Option<Activation>,
    params: &ConvParams,
) -> Result<CpuTensor> {
    let fused = activation.map_or(bias.or(residual).is_some(), Pointwise::knows);
    let tensors = [x, weight].into_iter().chain(bias).chain(residual);
    let dtype = x.dtype();
    if fused && Half::of(dtype).is_some() && tensors.clone().all(|x| x.dtype() == dtype) {
        let bias = bias.map(wide).transpose()?;
        let y = conv(&wide(x)?, &wide(weight)?, bias.as_ref(), None, None, params)?;
        // Rounded before the epilogue, as if these were separate calls, so that a recording gives the same bits.
        return decompose::epilogue::<Cpu>(convert::cast(&y, dtype)?, None, residual, activation);
    }
    let Some(level) = vectors(tensors).filter(|_| fused) else {
        let y = convolve(x, weight, params, None)?;
        return decompose::epilogue::<Cpu>(y, bias, residual, activation);
    };
    let shape = output_shape("conv", x.shape(), weight.shape(), params)?;
    let channels = Shape::from([shape[1]]);
    if bias.is_some_and(|bias| *bias.shape() != channels) || residual.is_some_and(|residual| *residual.shape() != shape)
    {
        return Err(Error::shape(format!("takes a bias {channels} and a residual {shape}")).with_op("conv"));
    }
    let bias = match bias {
        Some(bias) => bias.contiguous()?,
        None => create::full(channels, Scalar::Float(0.0), DType::F32, x.device())?,
    };
    let residual = residual.map(CpuTensor::contiguous).transpose()?;
    let epilogue = Epilogue {
        level,
        bias: bias.slice()?,
        residual: residual.as_ref().map(CpuTensor::slice).transpose()?,
        activation,
    };
    convolve(x, weight, params, Some(&epilogue))
}

/// A convolution and its epilogue, which is supported only for f32.
pub(crate) fn convolve(
    x: &CpuTensor,
    weight: &CpuTensor,
    params: &ConvParams,
    epilogue: Option<&Epilogue<'_>>,
) -> Result<CpuTensor> {
    let dtype = same_dtype("conv", x, weight)?;
    floats("conv", dtype)?;
    let shape = output_shape("conv", x.shape(), weight.shape(), params)?;
    if Half::of(dtype).is_some() {
        return convert::cast(&convolve(&wide(x)?, &wide(weight)?, params, None)?, dtype);
    }
    let mut out = CpuTensor::empty(shape, dtype, x.device())?;
    if shape.numel() == 0 {
        return Ok(out);
    }
    let (x, weight) = (x.contiguous()?, weight.contiguous()?);
    let geometry = Geometry::of_conv(x.shape(), weight.shape(), &shape, params);
    if let Some(device) = few_on(&x, &geometry) {
        by_positions(device, &geometry, (&x, &weight), epilogue, &mut out)?;
        return Ok(out);
    }
    if let Some(device) = direct_on(&x, &geometry).filter(|_| !product::suits(&geometry)) {
        let kept = weight.packed::<Filters>();
        let (x, from, to) = (x.typed::<f32>()?, weight.typed::<f32>()?, out.ptr_mut().cast());
        // SAFETY: all three are contiguous and have the shapes of the geometry.
        unsafe {
            if winograd::fits(&geometry, kept.is_some()) {
                filters::with(
                    kept.map(|kept| &kept.winograd),
                    |filters| filters.are_of(device, &geometry),
                    || winograd::Filters::new(device, &geometry, from),
                    |filters| winograd::forward(device, &geometry, x, filters, epilogue, to),
                )?;
            } else {
                filters::with(
                    kept.map(|kept| &kept.direct),
                    |filters| filters.are_of(device, &geometry),
                    || direct::Filters::new(device, &geometry, from),
                    |filters| direct::forward(device, &geometry, x, filters, epilogue, to),
                )?;
            }
        }
        return Ok(out);
    }
    for_real!(dtype, forward(&x, &weight, &mut out, &geometry, epilogue))?;
    Ok(out)
}

/// A convolution to few channels, for which [`few::suits`] holds; all tensors are contiguous.
fn by_positions(
    device: CpuDevice,
    g: &Geometry,
    (x, weight): (&CpuTensor, &CpuTensor),
    epilogue: Option<&Epilogue<'_>>,
    out: &mut CpuTensor,
) -> Result<()> {
    let kept = weight.packed::<Filters>();
    let (x, weight, to) = (x.typed::<f32>()?, weight.typed::<f32>()?, out.ptr_mut().cast());
    // SAFETY: all three are contiguous and have the shapes of the geometry.
    unsafe {
        if !lanes::suits(device, g) {
            return few::forward(device, g, x, weight, epilogue, to);
        }
        filters::with(
            kept.map(|kept| &kept.lanes),
            |filters| filters.are_of(device, g),
            || lanes::Filters::new(device, g, weight),
            |filters| lanes::forward(device, g, x, &Fold::Sum(filters, epilogue), to),
        )
    }
}

/// See [`polygrad_core::Backend::prepack`]: adds a slot for the filters in the layout of the kernels, and the f32
/// form of filters of 16 bits.
pub(crate) fn prepack(weight: &CpuTensor) -> Result<CpuTensor> {
    if Half::of(weight.dtype()).is_some() {
        return Ok(weight.with_packed(Wide(prepack(&wide(weight)?)?)));
    }
    let packs = weight.dtype() == DType::F32 && weight.device().kernels() == Kernels::Simd;
    Ok(if packs {
        weight.with_packed(Filters::default())
    } else {
        weight.clone()
    })
}

/// See [`polygrad_core::Backend::conv_input_grad`].
pub(crate) fn conv_input_grad(
    grad: &CpuTensor,
    weight: &CpuTensor,
    input_shape: Shape,
    params: &ConvParams,
) -> Result<CpuTensor> {
    let name = "conv_input_grad";
    let dtype = same_dtype(name, grad, weight)?;
    floats(name, dtype)?;
    expect(
        name,
        grad.shape(),
        &output_shape(name, &input_shape, weight.shape(), params)?,
    )?;
    if Half::of(dtype).is_some() {
        return convert::cast(
            &conv_input_grad(&wide(grad)?, &wide(weight)?, input_shape, params)?,
            dtype,
        );
    }
    if grad.numel() == 0 || weight.numel() == 0 {
        return create::full(input_shape, Scalar::Float(0.0), dtype, grad.device());
    }
    let mut out = CpuTensor::empty(input_shape, dtype, grad.device())?;
    let (grad, weight) = (grad.contiguous()?, weight.contiguous()?);
    let geometry = Geometry::of_conv(&input_shape, weight.shape(), grad.shape(), params);
    if let Some(turned) = direct::of_input_grad(&geometry)
        && let Some(device) = direct_on(&grad, &turned)
    {
        let (grad, weight, to) = (grad.typed::<f32>()?, weight.typed::<f32>()?, out.ptr_mut().cast());
        // SAFETY: all three are contiguous and have the shapes of the geometry.
        unsafe {
            if winograd::fits(&turned, false) {
                let filters = winograd::Filters::reversed(device, &turned, weight)?;
                winograd::forward(device, &turned, grad, &filters, None, to)?;
            } else {
                let filters = direct::Filters::reversed(device, &turned, weight)?;
                direct::forward(device, &turned, grad, &filters, None, to)?;
            }
        }
        return Ok(out);
    }
    for_real!(dtype, input_grad(&grad, &weight, &mut out, &geometry))?;
    Ok(out)
}

/// See [`polygrad_core::Backend::conv_weight_grad`].
pub(crate) fn conv_weight_grad(
    grad: &CpuTensor,
    x: &CpuTensor,
    weight_shape: Shape,
    params: &ConvParams,
) -> Result<CpuTensor> {
    let name = "conv_weight_grad";
    let dtype = same_dtype(name, grad, x)?;
    floats(name, dtype)?;
    expect(
        name,
        grad.shape(),
        &output_shape(name, x.shape(), &weight_shape, params)?,
    )?;
    if Half::of(dtype).is_some() {
        return convert::cast(&conv_weight_grad(&wide(grad)?, &wide(x)?, weight_shape, params)?, dtype);
    }
    if grad.numel() == 0 || weight_shape.numel() == 0 {
        return create::full(weight_shape, Scalar::Float(0.0), dtype, grad.device());
    }
    let mut out = CpuTensor::empty(weight_shape, dtype, grad.device())?;
    let (grad, x) = (grad.contiguous()?, x.contiguous()?);
    let geometry = Geometry::of_conv(x.shape(), &weight_shape, grad.shape(), params);
    if let Some(device) = direct_on(&x, &geometry) {
        let (grad, x, to) = (grad.typed::<f32>()?, x.typed::<f32>()?, out.ptr_mut().cast());
        // SAFETY: all three are contiguous and have the shapes of the geometry.
        unsafe {
            if winograd::fits(&geometry, false) {
                winograd::weight_grad(device, &geometry, grad, x, to)?;
            } else {
                direct::weight_grad(device, &geometry, grad, x, to)?;
            }
        }
        return Ok(out);
    }
    for_real!(dtype, weight_grad(&grad, &x, &mut out, &geometry))?;
    Ok(out)
}

/// The device, if it convolves images of this geometry directly.
fn direct_on(x: &CpuTensor, g: &Geometry) -> Option<CpuDevice> {
    vectors_on(x).filter(|_| direct::fits(g))
}

/// The device, if it computes this convolution, which must have few output channels, by shifted lines.
fn few_on(x: &CpuTensor, g: &Geometry) -> Option<CpuDevice> {
    vectors_on(x).filter(|&device| few::suits(device, g))
}

fn vectors_on(x: &CpuTensor) -> Option<CpuDevice> {
    let device = x.device();
    (x.dtype() == DType::F32 && device.kernels() == Kernels::Simd).then_some(device)
}

fn wide(x: &CpuTensor) -> Result<CpuTensor> {
    convert::cast(x, DType::F32)
}

fn output_shape(op: &'static str, x: &Shape, weight: &Shape, params: &ConvParams) -> Result<Shape> {
    params.output_shape(x, weight).map_err(|error| {
        error
            .with_op(op)
            .with_hint(format!("the input has shape {x}, the weight {weight}"))
    })
}

fn expect(op: &'static str, found: &Shape, wanted: &Shape) -> Result<()> {
    if found == wanted {
        return Ok(());
    }
    Err(Error::shape(format!("the gradient must have shape {wanted}, not {found}")).with_op(op))
}
