//! Convolutions.

use polygrad_core::{ConvParams, DType, Error, Result, Shape, SliceRange};
use polygrad_tensor::{Tensor, inference};
use smallvec::smallvec;

use super::matmul::requantized;
use super::row::{Row, rows};
use super::whole::{self, Bytes};
use crate::graph::malformed;
use crate::import::call::{Call, List, Results, one, sizes};
use crate::import::value::Value;

rows! {
    Row::new("Conv", 1, |c| {
        let y = convolve(c, &c.x(0)?, &c.x(1)?)?;
        one(biased(y, c.opt(2)?)?)
    });
    Row::new("ConvTranspose", 1, transposed);
    Row::new("ConvInteger", 10, conv_integer);
    Row::new("QLinearConv", 10, qlinear_conv);
}

/// How a window moves over the spatial axes: the attributes that Conv and the pools share.
pub(super) struct Window {
    pub(super) kernel: List<usize>,
    pub(super) stride: List<usize>,
    pub(super) dilation: List<usize>,
    /// Padding before and after each axis; for a transposed convolution, elements cut off.
    pub(super) pads: List<(usize, usize)>,
    /// `auto_pad`, if the padding follows from the extents.
    pub(super) same: Option<Same>,
}

/// On which side `auto_pad` puts the odd element of the padding.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Same {
    Upper,
    Lower,
}

impl Window {
    pub(super) fn read(c: &Call<'_>, kernel: List<usize>) -> Result<Self> {
        let spatial = kernel.len();
        if !(1..=3).contains(&spatial) {
            return Err(Error::unsupported(format!(
                "{spatial} spatial axes: windows have 1 to 3"
            )));
        }
        let list = |name: &str, default: usize, count: usize| match c.int_list(name)? {
            None => Ok(List::from_elem(default, count)),
            Some(list) if list.len() == count => sizes(list),
            Some(list) => Err(malformed(format!("{name} {list:?} for {spatial} spatial axes"))),
        };
        let (stride, dilation) = (list("strides", 1, spatial)?, list("dilations", 1, spatial)?);
        let pads = list("pads", 0, 2 * spatial)?;
        let all = kernel.iter().chain(&stride).chain(&dilation);
        if all.clone().any(|&extent| extent == 0 || extent > 1 << 31) || pads.iter().any(|&pad| pad > 1 << 31) {
            return Err(malformed("a kernel, stride, dilation or pad that makes no sense"));
        }
        let (same, pads) = match c.text("auto_pad", "NOTSET")? {
            "NOTSET" => (None, (0..spatial).map(|i| (pads[i], pads[spatial + i])).collect()),
            "VALID" => (None, List::from_elem((0, 0), spatial)),
            "SAME_UPPER" => (Some(Same::Upper), List::from_elem((0, 0), spatial)),
            "SAME_LOWER" => (Some(Same::Lower), List::from_elem((0, 0), spatial)),
            other => return Err(malformed(format!("there is no auto_pad {other:?}"))),
        };
        Ok(Self {
            kernel,
            stride,
            dilation,
            pads,
            same,
        })
    }

    /// The number of elements that the kernel spans along an axis.
    pub(super) fn reach(&self, axis: usize) -> usize {
        (self.kernel[axis] - 1) * self.dilation[axis] + 1
    }

    /// Computes the padding of `auto_pad`.
    pub(super) fn settle(&mut self, extents: &[usize]) {
        let Some(same) = self.same else { return };
        for (axis, &extent) in extents.iter().enumerate() {
            let positions = extent.div_ceil(self.stride[axis]);
            let covered = positions.saturating_sub(1) * self.stride[axis] + self.reach(axis);
            let total = covered.saturating_sub(extent);
            let (less, more) = (total / 2, total - total / 2);
            self.pads[axis] = if same == Same::Upper {
                (less, more)
            } else {
                (more, less)
            };
        }
    }

    pub(super) fn params(&self, groups: usize) -> ConvParams {
        let three = |list: &[usize], rest: usize| std::array::from_fn(|i| list.get(i).copied().unwrap_or(rest));
        ConvParams {
            stride: three(&self.stride, 1),
            padding: [0; 3],
            dilation: three(&self.dilation, 1),
            groups,
        }
    }
}

/// The extents after `[N, C]`.
pub(super) fn spatial(shape: &Shape) -> Result<&[usize]> {
    match shape.dims() {
        [_, _, spatial @ ..] if !spatial.is_empty() => Ok(spatial),
        _ => Err(Error::shape(format!("{shape} is not [N, C, spatial…]"))),
    }
}

/// The kernel's extents: those of the weight. If the attribute gives them too, they must agree.
fn kernel(c: &Call<'_>, weight: &Shape) -> Result<List<usize>> {
    let extents = spatial(weight)?;
    match c.int_list("kernel_shape")? {
        Some(list) if sizes(list)?.as_slice() != extents => Err(Error::shape(format!(
            "kernel_shape {list:?} and a weight of shape {weight}"
        ))),
        _ => Ok(List::from_slice(extents)),
    }
}

pub(super) fn convolve(c: &Call<'_>, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let (borders, params) = windows(c, &x.shape(), &weight.shape(), x.dtype())?;
    match borders {
        Some(borders) => x.pad(&borders, 0.0)?.conv(weight, None, &params),
        None => x.conv(weight, None, &params),
    }
}

/// Padding before and after the input, along each axis.
type Borders = Vec<(usize, usize)>;

/// The parameters of a convolution, and the padding that is applied to the input first if it differs between the two
/// sides.
fn windows(c: &Call<'_>, shape: &Shape, kernels: &Shape, dtype: DType) -> Result<(Option<Borders>, ConvParams)> {
    if shape.rank() != kernels.rank() {
        return Err(Error::shape(format!(
            "input {shape} and weight {kernels} are not of one rank"
        )));
    }
    let mut window = Window::read(c, kernel(c, kernels)?)?;
    window.settle(spatial(shape)?);
    let mut params = window.params(c.count("group", 1)?);
    let mut borders = vec![(0, 0); 2];
    borders.extend(&window.pads);
    let dims: Vec<usize> = shape
        .iter()
        .zip(&borders)
        .map(|(extent, (a, b))| extent + a + b)
        .collect();
    let padded = c.reserve(&dims, dtype)?;
    let even = window.pads.iter().all(|(before, after)| before == after);
    if even {
        params.padding = std::array::from_fn(|i| window.pads.get(i).map_or(0, |pad| pad.0));
    }
    let output = params.output_shape(if even { shape } else { &padded }, kernels)?;
    c.limits.check(&output, dtype)?;
    windows_fit(c, kernels, &output, dtype)?;
    Ok(((!even).then_some(borders), params))
}

/// Checks the size of the unfolded windows of an image, one for each position of the result, which a device may
/// materialize.
pub(crate) fn windows_fit(c: &Call<'_>, weight: &Shape, positions: &Shape, dtype: DType) -> Result<()> {
    let window = weight[1..].iter().product::<usize>();
    let positions = positions[2..].iter().product::<usize>();
    c.limits
        .check_bytes(window.saturating_mul(positions).saturating_mul(dtype.size()))
}

pub(super) fn biased(y: Tensor, bias: Option<Tensor>) -> Result<Tensor> {
    let Some(bias) = bias else { return Ok(y) };
    if bias.dims() != [y.shape()[1]] {
        return Err(Error::shape(format!(
            "a bias of shape {} for {}",
            bias.shape(),
            y.shape()
        )));
    }
    let mut dims = vec![1; y.rank()];
    dims[1] = bias.numel();
    y + bias.reshape(dims)?
}

fn transposed(c: &Call<'_>) -> Results {
    let (x, weight) = (c.x(0)?, c.x(1)?);
    let (shape, kernels) = (x.shape(), weight.shape());
    let extents = spatial(&shape)?;
    let mut window = Window::read(c, kernel(c, &kernels)?)?;
    let count = extents.len();
    if kernels.rank() != shape.rank() {
        return Err(Error::shape(format!(
            "input {shape} and weight {kernels} are not of one rank"
        )));
    }
    let longer = match c.int_list("output_padding")? {
        Some(list) if list.len() == count => sizes(list)?,
        Some(list) => return Err(malformed(format!("output_padding {list:?} for {count} spatial axes"))),
        None => List::from_elem(0, count),
    };
    let wanted = match c.int_list("output_shape")? {
        Some(list) if list.len() == count => Some(sizes(list)?),
        Some(list) if list.len() == count + 2 => Some(sizes(&list[2..])?),
        Some(list) => return Err(malformed(format!("output_shape {list:?} for {count} spatial axes"))),
        None => None,
    };
    let mut full = Vec::with_capacity(count);
    for axis in 0..count {
        if extents[axis] == 0 {
            return Err(Error::shape(format!("{shape} has nothing to convolve")));
        }
        let grown = (extents[axis] - 1)
            .saturating_mul(window.stride[axis])
            .saturating_add(window.reach(axis));
        full.push(grown.saturating_add(longer[axis]));
        let target = match (&wanted, window.same) {
            (Some(wanted), _) => Some(wanted[axis]),
            (None, Some(_)) => Some(extents[axis] * window.stride[axis]),
            (None, None) => None,
        };
        if let Some(target) = target {
            let total = full[axis].saturating_sub(target);
            let (less, more) = (total / 2, total - total / 2);
            window.pads[axis] = if window.same == Some(Same::Upper) {
                (less, more)
            } else {
                (more, less)
            };
            // Larger than the natural extent: the rest is zeros.
            full[axis] = full[axis].max(target);
        }
    }
    let groups = c.count("group", 1)?;
    let mut dims = vec![shape[0], kernels[1].saturating_mul(groups)];
    dims.extend(&full);
    c.reserve(&dims, x.dtype())?;
    windows_fit(c, &kernels, &shape, x.dtype())?;
    let y = x.conv_transpose(&weight, &window.params(groups), [0; 3])?;
    let made = y.shape();
    let mut borders = vec![(0, 0); 2];
    borders.extend((0..count).map(|axis| (0, full[axis].saturating_sub(made[axis + 2]))));
    let y = if borders.iter().any(|border| border.1 > 0) {
        y.pad(&borders, 0.0)?
    } else {
        y
    };
    let made = y.shape();
    let mut cut = vec![SliceRange::full(made[0]), SliceRange::full(made[1])];
    for (axis, &(before, after)) in window.pads.iter().enumerate() {
        let len = made[axis + 2].checked_sub(before + after);
        let len = len.ok_or_else(|| Error::shape(format!("pads {:?} leave nothing of {made}", window.pads)))?;
        cut.push(SliceRange::new(before, len, 1));
    }
    one(biased(y.slice(&cut)?, c.opt(2)?)?)
}

/// The operands of a convolution of bytes: image and weight with their zero points.
struct Whole {
    x: Bytes,
    weight: Bytes,
    params: ConvParams,
}

impl Whole {
    /// `None` if the operands are not bytes, or have other kinds of zero points.
    fn read(c: &Call<'_>, operands: [usize; 2], zeros: [usize; 2]) -> Result<Option<Self>> {
        let outputs = c.shape(operands[1])?.first().copied().unwrap_or(0);
        let (Some(mut x), Some(weight)) = (
            Bytes::read(c, operands[0], zeros[0], 1)?,
            Bytes::read(c, operands[1], zeros[1], outputs)?,
        ) else {
            return Ok(None);
        };
        let (borders, params) = windows(c, &x.values.shape(), &weight.values.shape(), DType::I32)?;
        if let Some(borders) = borders {
            // The padding value is the zero point.
            x.values = x.values.pad(&borders, c.off_device(&x.zero)?.to_f64_vec()[0] as i64)?;
        }
        Ok(Some(Self { x, weight, params }))
    }

    fn zeros(&self) -> [&Tensor; 2] {
        [&self.x.zero, &self.weight.zero]
    }
}

/// A convolution of integers minus their zero points, which may differ between output channels, as i32 with wrapping.
fn whole_convolution(c: &Call<'_>, operands: [usize; 2], zeros: [usize; 2]) -> Result<Tensor> {
    if let Some(whole) = Whole::read(c, operands, zeros)? {
        return inference::conv_u8(&whole.x.values, &whole.weight.values, whole.zeros(), &whole.params);
    }
    let [x, weight] = [0, 1].map(|k| {
        let rank = c.shape(operands[k])?.rank();
        let zero = c.opt(zeros[k])?.map(|zero| per_channel(&zero, rank, 0)).transpose()?;
        whole::centred(c, operands[k], zero)
    });
    convolve(c, &x?, &weight?)
}

fn per_channel(x: &Tensor, rank: usize, axis: usize) -> Result<Tensor> {
    let mut dims = vec![1; rank];
    dims[axis] = x.numel();
    x.reshape(dims)
}

fn conv_integer(c: &Call<'_>) -> Results {
    one(whole_convolution(c, [0, 1], [2, 3])?)
}

pub(super) fn qlinear_conv(c: &Call<'_>) -> Results {
    let outputs = c.shape(3)?.first().copied().unwrap_or(0);
    let bias = c.opt(8)?;
    let fits = bias
        .as_ref()
        .is_none_or(|bias| bias.dims() == [outputs] && bias.dtype() == DType::I32);
    if let (Some((element, zero)), true) = (whole::result_zero(c, 7)?, fits)
        && let Some(scale) = whole::rescale(c, [1, 4], Some(6), outputs)?
        && let Some(whole) = Whole::read(c, [0, 3], [2, 5])?
    {
        let rescale = (&scale, &zero, bias.as_ref());
        let (x, weight) = (&whole.x.values, &whole.weight.values);
        let y = inference::conv_requantize_u8(x, weight, whole.zeros(), rescale, &whole.params)?;
        return Ok(smallvec![whole::numbers(y, element)?]);
    }
    let y = whole_convolution(c, [0, 3], [2, 5])?;
    let wide = c.wide();
    let scale = |i| c.x(i)?.to_dtype(wide);
    let bias = bias.map(|bias| bias.to_dtype(wide)).transpose()?;
    let y = biased(y.to_dtype(wide)?, bias)?;
    let by_channel = per_channel(&scale(4)?, y.rank(), 1)?;
    let y = (((y * scale(1)?.reshape(())?)? * by_channel)? / scale(6)?.reshape(())?)?;
    let value: Value = requantized(&y, &c.x(7)?.reshape(())?, c.element(7)?)?;
    Ok(smallvec![value])
}
