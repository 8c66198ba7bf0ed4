//! Convolution of bytes. If a group has few outputs, as in depthwise convolutions, packing the image into words would
//! cost more than the product, so that such sums are computed in floats, which hold them exactly.

use std::sync::OnceLock;

use polygrad_core::{ConvParams, DType, Result, Shape};

use super::{by_positions, few_on, output_shape, product};
use crate::Pointer;
use crate::gemm::bytes::Zeros;
use crate::gemm::bytes::windows::{Convolution, Filters, Out};
use crate::ops::convert;
use crate::ops::quantized::{numbers_for, operand};
use crate::ops::rescale::{self, Rows};
use crate::{CpuDevice, CpuTensor};
use polygrad_cpu_kernels::conv::filters;
use polygrad_cpu_kernels::conv::geometry::Geometry;

/// The most outputs of a group that are computed in floats.
const FEW: usize = 2;

/// The most products of two numbers between -255 and 255 whose sum f32 holds exactly, in any order.
const EXACT: usize = (1 << 24) / (255 * 255);

/// See [`polygrad_core::Backend::conv_u8`].
pub(crate) fn conv_u8(
    x: &CpuTensor,
    weight: &CpuTensor,
    zero_x: &CpuTensor,
    zero_weight: &CpuTensor,
    params: &ConvParams,
) -> Result<CpuTensor> {
    convolved("conv_u8", (x, weight), (zero_x, zero_weight), params, None)
}

/// See [`polygrad_core::Backend::conv_requantize_u8`].
pub(crate) fn conv_requantize_u8(
    x: &CpuTensor,
    weight: &CpuTensor,
    [zero_x, zero_weight]: [&CpuTensor; 2],
    scale: &CpuTensor,
    zero: &CpuTensor,
    bias: Option<&CpuTensor>,
    params: &ConvParams,
) -> Result<CpuTensor> {
    let op = "conv_requantize_u8";
    let outputs = weight.shape().first().copied().unwrap_or(0);
    let scale = numbers_for(op, scale, DType::F32, outputs)?;
    let zero = numbers_for(op, zero, DType::U8, 1)?;
    let bias = bias
        .map(|bias| numbers_for(op, bias, DType::I32, outputs))
        .transpose()?;
    let bytes = Bytes {
        scale: scale.slice()?,
        bias: bias.as_ref().map(CpuTensor::slice).transpose()?.unwrap_or(&[0]),
        zero: zero.slice::<u8>()?[0],
    };
    convolved(op, (x, weight), (zero_x, zero_weight), params, Some(bytes))
}

/// The scales and biases that turn sums into bytes: one for all outputs, or one for each.
struct Bytes<'a> {
    scale: &'a [f32],
    bias: &'a [i32],
    zero: u8,
}

fn convolved(
    op: &'static str,
    (x, weight): (&CpuTensor, &CpuTensor),
    (zero_x, zero_weight): (&CpuTensor, &CpuTensor),
    params: &ConvParams,
    bytes: Option<Bytes<'_>>,
) -> Result<CpuTensor> {
    let shape = output_shape(op, x.shape(), weight.shape(), params)?;
    let zero_x = numbers_for(op, zero_x, DType::U8, 1)?;
    let zero_weight = numbers_for(op, zero_weight, DType::U8, weight.shape()[0])?;
    let (x, weight) = (operand(op, x, DType::U8)?, operand(op, weight, DType::U8)?);
    let dtype = if bytes.is_some() { DType::U8 } else { DType::I32 };
    let mut out = CpuTensor::empty(shape, dtype, x.device())?;
    if shape.numel() == 0 {
        return Ok(out);
    }
    let device = x.device();
    let g = Geometry::of_conv(x.shape(), weight.shape(), &shape, params);
    let zero_weight = Zeros(zero_weight.slice()?);
    let zero_x = zero_x.slice::<u8>()?[0];
    if g.rows() == 0 || g.outputs <= FEW && g.rows() <= EXACT {
        let (x, weight) = (rescale::centred(&x, zero_x)?, centred_filters(&weight, zero_weight)?);
        let sums = convert::cast(&exact_sums(&x, &weight, shape, &g)?, DType::I32)?;
        let Some(bytes) = bytes else { return Ok(sums) };
        bytes.write(device, &g, sums.slice()?, Pointer(out.ptr_mut()));
        return Ok(out);
    }
    let convolution = Whole {
        filters: weight.packed(),
        g,
        x: x.slice()?,
        weight: weight.slice()?,
        zero_x,
        zero_weight,
        to: Pointer(out.ptr_mut()),
        bytes,
    };
    convolution.by_words(device)?;
    Ok(out)
}

/// See [`polygrad_core::Backend::prepack`]: adds a slot for the packed filters, which depend on the number of groups.
pub(crate) fn prepack_u8(weight: &CpuTensor) -> CpuTensor {
    match weight.dtype() {
        DType::U8 => weight.with_packed(OnceLock::<Filters>::new()),
        _ => weight.clone(),
    }
}

struct Whole<'a> {
    g: Geometry,
    /// Where the packed weight is kept, if it is.
    filters: Option<&'a OnceLock<Filters>>,
    x: &'a [u8],
    weight: &'a [u8],
    zero_x: u8,
    zero_weight: Zeros<'a>,
    /// The result, as u8 or i32.
    to: Pointer<u8>,
    bytes: Option<Bytes<'a>>,
}

impl Whole<'_> {
    fn by_words(&self, device: CpuDevice) -> Result<()> {
        let g = &self.g;
        let bias = self.bytes.as_ref().map_or(&[0][..], |bytes| bytes.bias);
        let out = match &self.bytes {
            Some(bytes) => Out::Bytes(self.to.at(0), bytes.scale, bytes.zero),
            None => Out::Sums(self.to.at(0).cast()),
        };
        filters::with(
            self.filters,
            |filters| filters.are(device, g),
            || Filters::new(device, (g.groups, g.outputs, g.inputs), g.kernel, self.weight),
            |filters| {
                let convolution = Convolution {
                    g,
                    filters,
                    x: self.x,
                    zero_x: self.zero_x,
                    zero_weight: self.zero_weight,
                    bias,
                };
                // SAFETY: the operands are as large as the geometry says; the output is new.
                unsafe { convolution.run(device, out) }
            },
        )
    }
}

impl Bytes<'_> {
    /// Makes bytes of the sums of all images.
    fn write(&self, device: CpuDevice, g: &Geometry, sums: &[i32], to: Pointer<u8>) {
        let (places, channels) = (g.out_plane(), g.groups * g.outputs);
        device.each(g.batch * channels, places as f32 * 0.3, |plane| {
            let channel = plane % channels;
            let bias = self.bias.get(channel).unwrap_or(&self.bias[0]);
            let scale = self.scale.get(channel).unwrap_or(&self.scale[0]);
            let row = Rows {
                sums: &sums[plane * places..][..places],
                columns: places,
                to: to.at(plane * places),
                step: places,
            };
            rescale::bytes(device, &row, (&[*scale], &[*bias]), self.zero);
        });
    }
}

/// The weight minus its zero points.
fn centred_filters(weight: &CpuTensor, zeros: Zeros<'_>) -> Result<CpuTensor> {
    let mut out = CpuTensor::empty(*weight.shape(), DType::F32, weight.device())?;
    let each = weight.numel() / weight.shape()[0];
    let to = Pointer(out.ptr_mut().cast::<f32>());
    for (i, &x) in weight.slice::<u8>()?.iter().enumerate() {
        // SAFETY: the output is new and of the weight's shape.
        unsafe { to.at(i).write(f32::from(x) - zeros.get(i / each) as f32) };
    }
    Ok(out)
}

/// A convolution of whole numbers in f32, by a kernel that only adds products.
fn exact_sums(x: &CpuTensor, weight: &CpuTensor, shape: Shape, g: &Geometry) -> Result<CpuTensor> {
    let mut out = CpuTensor::empty(shape, DType::F32, x.device())?;
    match few_on(x, g) {
        Some(device) => by_positions(device, g, (x, weight), None, &mut out)?,
        None => product::forward::<f32>(x, weight, &mut out, g, None)?,
    }
    Ok(out)
}
