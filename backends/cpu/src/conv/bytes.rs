//! Convolution of bytes. If a group has hardly any outputs, as in depthwise convolutions, making words of the image
//! would cost more than the product, so each tap is added directly from the image.

use polygrad_core::{ConvParams, DType, Result};

use super::output_shape;
use crate::Pointer;
use crate::buffers::Buffer;
use crate::gemm::bytes::Zeros;
use crate::gemm::bytes::windows::{Convolution, Filters, Out};
use crate::ops::quantized::{numbers_for, operand};
use crate::ops::rescale::{self, Rows};
use crate::simd::{Kernel, Level, Simd};
use crate::{CpuDevice, CpuTensor};
use polygrad_cpu_kernels::conv::geometry::{Geometry, spread};

/// The most outputs of a group for which words are not worth their way.
const FEW: usize = 2;

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
    let convolution = Whole {
        filters: weight.packed(),
        g: Geometry::of_conv(x.shape(), weight.shape(), &shape, params),
        x: x.slice()?,
        weight: weight.slice()?,
        zero_x: zero_x.slice::<u8>()?[0],
        zero_weight: Zeros(zero_weight.slice()?),
        to: Pointer(out.ptr_mut()),
        bytes,
    };
    if convolution.g.outputs <= FEW || convolution.g.rows() == 0 {
        convolution.by_taps(device)?;
    } else {
        convolution.by_words(device)?;
    }
    Ok(out)
}

/// See [`polygrad_core::Backend::prepack`], for the weight of a convolution of bytes in one group.
pub(crate) fn prepack_u8(weight: &CpuTensor) -> Result<CpuTensor> {
    if weight.dtype() != DType::U8 || weight.shape().rank() < 3 || weight.numel() == 0 {
        return Ok(weight.clone());
    }
    let weight = weight.contiguous()?;
    let shape = weight.shape();
    let dims = (1, shape[0], shape[1]);
    let filters = Filters::new(
        weight.device(),
        dims,
        spread(&shape[2..], shape.rank() - 2, 1),
        weight.slice()?,
    )?;
    Ok(weight.with_packed(filters))
}

struct Whole<'a> {
    g: Geometry,
    /// The weight, if it was packed before.
    filters: Option<&'a Filters>,
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
        let packed;
        let filters = match self.filters.filter(|filters| filters.are(device, g)) {
            Some(filters) => filters,
            None => {
                packed = Filters::new(device, (g.groups, g.outputs, g.inputs), g.kernel, self.weight)?;
                &packed
            }
        };
        let bias = self.bytes.as_ref().map_or(&[0][..], |bytes| bytes.bias);
        let convolution = Convolution {
            g,
            filters,
            x: self.x,
            zero_x: self.zero_x,
            zero_weight: self.zero_weight,
            bias,
        };
        let out = match &self.bytes {
            Some(bytes) => Out::Bytes(self.to.at(0), bytes.scale, bytes.zero),
            None => Out::Sums(self.to.at(0).cast()),
        };
        // SAFETY: the operands are as large as the geometry says; the output is new.
        unsafe { convolution.run(device, out) }
    }

    fn by_taps(&self, device: CpuDevice) -> Result<()> {
        let (g, places) = (&self.g, self.g.out_plane());
        let ns = (g.outputs * g.inputs * g.taps() * places) as f32 * 0.1;
        device.try_each(g.batch * g.groups, ns, |image| {
            for output in 0..g.outputs {
                let plane = image * g.outputs + output;
                let filter = image % g.groups * g.outputs + output;
                let room;
                let sums = match &self.bytes {
                    Some(_) => {
                        room = Buffer::alloc(places * size_of::<i32>())?;
                        room.as_ptr().cast()
                    }
                    None => self.to.at(0).cast::<i32>().wrapping_add(plane * places),
                };
                // SAFETY: the output is new, and each of its planes belongs to one task; sums are set to 0 before they
                // are read.
                let sums = unsafe {
                    sums.write_bytes(0, places);
                    std::slice::from_raw_parts_mut(sums, places)
                };
                let work = Taps {
                    of: self,
                    image: &self.x[image * g.inputs * g.plane()..],
                    filter,
                    to: &mut *sums,
                };
                Level::run_loops(device.vectors(), work);
                if let Some(bytes) = &self.bytes {
                    // SAFETY: as above.
                    let to = unsafe { std::slice::from_raw_parts_mut(self.to.at(plane * places), places) };
                    bytes.write(device, filter, sums, to);
                }
            }
            Ok(())
        })
    }
}

impl Bytes<'_> {
    fn write(&self, device: CpuDevice, output: usize, from: &[i32], to: &mut [u8]) {
        let bias = self.bias.get(output).unwrap_or(&self.bias[0]);
        let scale = self.scale.get(output).unwrap_or(&self.scale[0]);
        let row = Rows {
            sums: from,
            columns: from.len(),
            to: to.as_mut_ptr(),
            step: from.len(),
        };
        rescale::bytes(device, &row, (&[*scale], &[*bias]), self.zero);
    }
}

/// Position of a tap along each axis.
fn tap_at(g: &Geometry, tap: usize) -> [usize; 3] {
    let [_, height, width] = g.kernel;
    [tap / (height * width), tap / width % height, tap % width]
}

/// Start of the input row that a tap reads for an output line, or `None` if that row lies in the border.
fn input_line(g: &Geometry, channel: usize, tap: [usize; 3], line: [usize; 2]) -> Option<usize> {
    let mut input = channel;
    for axis in 0..2 {
        let place = (line[axis] * g.stride[axis] + tap[axis] * g.dilation[axis]).checked_sub(g.padding[axis])?;
        input = input * g.input[axis] + Some(place).filter(|&place| place < g.input[axis])?;
    }
    Some(input * g.input[2])
}

/// One plane of the result, to which each tap of its filter is added.
struct Taps<'a, 'b> {
    of: &'a Whole<'b>,
    image: &'a [u8],
    filter: usize,
    to: &'a mut [i32],
}

impl Kernel for Taps<'_, '_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { of, image, filter, to } = self;
        let (g, zero) = (&of.g, i16::from(of.zero_x));
        let filters = &of.weight[filter * g.inputs * g.taps()..][..g.inputs * g.taps()];
        let zero_weight = of.zero_weight.get(filter) as i16;
        let (width, stride) = (g.output[2], g.stride[2]);
        for (row, &weight) in filters.iter().enumerate() {
            let (channel, tap) = (row / g.taps(), tap_at(g, row % g.taps()));
            let (inside, past, start) = g.positions_inside(2, tap[2]);
            let factor = i16::from(weight) - zero_weight;
            for (line, to) in to.chunks_exact_mut(width).enumerate() {
                let place = [line / g.output[1], line % g.output[1]];
                let Some(input) = input_line(g, channel, tap, place).filter(|_| inside < past) else {
                    continue;
                };
                let (to, from) = (&mut to[inside..past], &image[input + start..]);
                // Both factors are between -255 and 255. They are i16, so that the compiler multiplies 16 bits by 16.
                let add = |to: &mut i32, x: u8| {
                    *to = to.wrapping_add(i32::from(i16::from(x) - zero) * i32::from(factor));
                };
                if stride == 1 {
                    to.iter_mut().zip(from).for_each(|(to, x)| add(to, *x));
                } else {
                    to.iter_mut()
                        .zip(from.iter().step_by(stride))
                        .for_each(|(to, x)| add(to, *x));
                }
            }
        }
    }
}
