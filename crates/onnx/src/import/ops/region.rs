//! Parts of images: regions of interest, and deformable windows that sample between elements.

use polygrad_core::{DType, Error};
use polygrad_tensor::Tensor;

use super::conv::Window;
use super::row::{Row, rows};
use super::sample::{Outside, Sampler, Taps, flat, tap_lists};
use crate::graph::malformed;
use crate::import::call::{Call, List, Results, one, size, sizes};

rows! {
    Row::new("RoiAlign", 10, roi_align);
    Row::new("DeformConv", 19, deform_conv);
    Row::new("Col2Im", 18, col2im).like(0);
}

fn roi_align(c: &Call<'_>) -> Results {
    let (x, rois, batches) = (c.host(0)?, c.host(1)?, c.ints(2)?);
    let &[n, channels, height, width] = x.shape().dims() else {
        return Err(Error::shape(format!("{} is not [N, C, H, W]", x.shape())));
    };
    if rois.shape().dims() != [batches.len(), 4] || height == 0 || width == 0 {
        return Err(Error::shape(format!(
            "{} batch indices for regions of shape {}",
            batches.len(),
            rois.shape()
        )));
    }
    let (rows, columns) = (c.count("output_height", 1)?, c.count("output_width", 1)?);
    let (ratio, scale) = (c.count("sampling_ratio", 0)?, c.float("spatial_scale", 1.0)?);
    let half = c.version >= 16
        && match c.text("coordinate_transformation_mode", "half_pixel")? {
            "half_pixel" => true,
            "output_half_pixel" => false,
            other => {
                return Err(malformed(format!(
                    "RoiAlign has no coordinate_transformation_mode {other:?}"
                )));
            }
        };
    let largest = match c.text("mode", "avg")? {
        "avg" => false,
        "max" => true,
        other => return Err(malformed(format!("RoiAlign has no mode {other:?}"))),
    };
    let dims = c.reserve(&[batches.len(), channels, rows, columns], DType::F64)?;
    let (values, dtype) = (c.floats(0)?, x.dtype());
    let mut y = c.list(dims.numel())?;
    for (region, &batch) in c.floats(1)?.chunks_exact(4).zip(&batches) {
        let batch = size(batch)?;
        if batch >= n {
            return Err(Error::out_of_range(format!("batch index {batch} of {n}")));
        }
        // In the operand's precision, as in other implementations: the number of samples, and which of them lie inside,
        // must not depend on digits that an f32 does not have.
        let held = |v: f64| if dtype == DType::F64 { v } else { f64::from(v as f32) };
        let offset = if half { 0.5 } else { 0.0 };
        let [left, top, right, bottom] = std::array::from_fn(|i| held(held(region[i] * scale) - offset));
        let least = if half { f64::NEG_INFINITY } else { 1.0 };
        let step = [
            held(held(bottom - top).max(least) / rows as f64),
            held(held(right - left).max(least) / columns as f64),
        ];
        let samples = step.map(|step| {
            if ratio > 0 {
                ratio
            } else {
                step.ceil().clamp(0.0, 1e6) as usize
            }
        });
        c.limits
            .check_bytes(samples[0].saturating_mul(samples[1]).saturating_mul(64))?;
        for channel in 0..channels {
            let image = &values[(batch * channels + channel) * height * width..][..height * width];
            for bin in 0..rows * columns {
                c.limits.step()?;
                let start = [
                    held(top + held((bin / columns) as f64 * step[0])),
                    held(left + held((bin % columns) as f64 * step[1])),
                ];
                let (mut sum, mut most) = (0.0, None::<f64>);
                for i in 0..samples[0] * samples[1] {
                    let at = |axis: usize, k: usize| {
                        held(start[axis] + held(held((k as f64 + 0.5) * step[axis]) / samples[axis] as f64))
                    };
                    let corners = corners(image, [height, width], [at(0, i / samples[1]), at(1, i % samples[1])]);
                    sum += corners.iter().sum::<f64>();
                    let here = corners.into_iter().fold(f64::NEG_INFINITY, f64::max);
                    most = Some(most.map_or(here, |most| most.max(here)));
                }
                let count = (samples[0] * samples[1]).max(1) as f64;
                y.push(if largest { most.unwrap_or(0.0) } else { sum / count });
            }
        }
    }
    one(c.make_as(y, &dims, dtype)?)
}

/// The four elements around a point, each times its weight.
fn corners(image: &[f64], extents: [usize; 2], at: [f64; 2]) -> [f64; 4] {
    let inside = |axis: usize| at[axis] >= -1.0 && at[axis] <= extents[axis] as f64;
    if !inside(0) || !inside(1) {
        return [0.0; 4];
    }
    let [(y0, y1, y), (x0, x1, x)] = std::array::from_fn(|axis| {
        let (at, last) = (at[axis].max(0.0), extents[axis] - 1);
        let low = at as usize;
        if low >= last {
            (last, last, 0.0)
        } else {
            (low, low + 1, at - low as f64)
        }
    });
    let pixel = |row: usize, column: usize| image[row * extents[1] + column];
    [
        (1.0 - y) * (1.0 - x) * pixel(y0, x0),
        (1.0 - y) * x * pixel(y0, x1),
        y * (1.0 - x) * pixel(y1, x0),
        y * x * pixel(y1, x1),
    ]
}

fn deform_conv(c: &Call<'_>) -> Results {
    let (x, weight) = (c.x(0)?, c.x(1)?);
    let (shape, kernels, moved) = (x.shape(), weight.shape(), c.shape(2)?);
    let (&[n, channels, height, width], &[out, _, kh, kw], &[_, _, oh, ow]) =
        (shape.dims(), kernels.dims(), moved.dims())
    else {
        return Err(Error::shape(format!(
            "{shape}, {kernels} and {moved} are not all of rank 4"
        )));
    };
    let (groups, shifts) = (c.count("group", 1)?, c.count("offset_group", 1)?);
    let window = Window::read(c, List::from_slice(&[kh, kw]))?;
    let taps = kh.saturating_mul(kw);
    let fits = groups > 0
        && shifts > 0
        && channels % groups == 0
        && out % groups == 0
        && channels % shifts == 0
        && kernels[1] == channels / groups
        && moved[0] == n
        && moved[1] == shifts.saturating_mul(taps).saturating_mul(2)
        && height > 0
        && width > 0;
    if !fits {
        return Err(Error::shape(format!(
            "{shape}, {kernels} and offsets of shape {moved} do not fit each other"
        )));
    }
    let offsets = c.floats(2)?;
    let mask = match c.value(4) {
        Some(_) if c.shape(4)?.dims() == [n, shifts * taps, oh, ow] => Some(c.floats(4)?),
        Some(_) => {
            return Err(Error::shape(format!(
                "a mask of shape {} for offsets of shape {moved}",
                c.shape(4)?
            )));
        }
        None => None,
    };
    let points = taps * oh * ow;
    c.reserve(&[n, channels, points], DType::F64)?;
    // Columns of all channels of one offset group at a time: [N, channels / shifts, taps · oh · ow].
    let sampler = Sampler {
        extents: &[height, width],
        outside: Outside::Zeros,
        corners: true,
        width: 2,
    };
    let each = channels / shifts;
    let flat = flat(&x)?;
    let mut columns = Vec::with_capacity(shifts);
    for shift in 0..shifts {
        let mut lists = tap_lists(c, 4, n * points)?;
        for point in 0..n * points {
            let (sample, rest) = (point / points, point % points);
            let (tap, place) = (rest / (oh * ow), rest % (oh * ow));
            let offset =
                |axis: usize| offsets[((sample * shifts + shift) * taps * 2 + tap * 2 + axis) * oh * ow + place];
            let base = |axis: usize, i: usize, k: usize| {
                (i * window.stride[axis] + k * window.dilation[axis]) as f64 - window.pads[axis].0 as f64
            };
            let y = base(0, place / ow, tap / kw) + offset(0);
            let x = base(1, place % ow, tap % kw) + offset(1);
            sampler.element(y, x, &mut lists);
            if let Some(mask) = &mask {
                let factor = mask[((sample * shifts + shift) * taps + tap) * oh * ow + place];
                lists.iter_mut().for_each(|(_, weights)| {
                    if let Some(weight) = weights.last_mut() {
                        *weight *= factor;
                    }
                });
            }
        }
        columns.push(Taps { points, taps: lists }.of(c, &flat.narrow(1, shift * each, each)?)?);
    }
    let columns = Tensor::cat(&columns.iter().collect::<Vec<_>>(), 1)?;
    let per_group = channels / groups * taps;
    let columns = columns.reshape([n, groups, per_group, oh * ow])?;
    let y = weight
        .reshape([groups, out / groups, per_group])?
        .matmul(&columns)?
        .reshape([n, out, oh, ow])?;
    one(match c.opt(3)? {
        Some(bias) => (y + bias.reshape([1, out, 1, 1])?)?,
        None => y,
    })
}

fn col2im(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let (extents, block) = (sizes(&c.ints(1)?)?, sizes(&c.ints(2)?)?);
    let window = Window::read(c, block)?;
    let &[n, rows, columns] = x.shape().dims() else {
        return Err(Error::shape(format!("{} is not [N, C · block, L]", x.shape())));
    };
    let count = extents.len();
    let kernel: usize = c.reserve(&window.kernel, DType::F64)?.numel();
    let elements = c.reserve(&extents, DType::F64)?.numel();
    if window.kernel.len() != count || kernel == 0 || rows % kernel != 0 {
        return Err(Error::shape(format!(
            "{} is no image of {extents:?} in blocks of {:?}",
            x.shape(),
            window.kernel
        )));
    }
    let mut positions = Vec::with_capacity(count);
    for axis in 0..count {
        let length = extents[axis] + window.pads[axis].0 + window.pads[axis].1;
        let room = length.checked_sub(window.reach(axis));
        let room = room.ok_or_else(|| Error::shape(format!("a block does not fit axis {axis} of {extents:?}")))?;
        positions.push(room / window.stride[axis] + 1);
    }
    if positions
        .iter()
        .try_fold(1usize, |product, &count| product.checked_mul(count))
        != Some(columns)
    {
        return Err(Error::shape(format!("{positions:?} blocks, but {columns} columns")));
    }
    c.reserve(&[kernel, columns], DType::F64)?;
    // Elements outside the image map to an index past its end.
    let mut index = c.list(kernel * columns)?;
    for i in 0..kernel * columns {
        let (mut tap, mut column, mut place, mut step) = (i / columns, i % columns, Some(0), 1);
        for axis in (0..count).rev() {
            let at =
                (column % positions[axis]) * window.stride[axis] + (tap % window.kernel[axis]) * window.dilation[axis];
            (column, tap) = (column / positions[axis], tap / window.kernel[axis]);
            let at = at.checked_sub(window.pads[axis].0).filter(|&at| at < extents[axis]);
            place = place.and_then(|place| Some(place + at? * step));
            step *= extents[axis];
        }
        index.push(place.unwrap_or(elements) as i64);
    }
    let channels = rows / kernel;
    let flat = x.reshape([n * channels, kernel * columns])?;
    let index = c
        .make(index, &[1, kernel * columns])?
        .expand([n * channels, kernel * columns])?;
    let image = c
        .full(&[n * channels, elements + 1], 0.0, x.dtype())?
        .scatter_add(1, &index, &flat)?;
    let mut dims = vec![n, channels];
    dims.extend(&extents);
    one(image.narrow(1, 0, elements)?.reshape(dims)?)
}
