//! Resize and Upsample: interpolation along one axis after the other.

use polygrad_core::{DType, Error, Result};
use polygrad_tensor::Tensor;

use super::row::{Row, rows};
use crate::graph::malformed;
use crate::import::call::{Call, List, Results, axes, one, sizes};

rows! {
    Row::new("Resize", 10, resize).like(0);
    Row::new("Upsample", 7, resize).like(0);
}

/// How an axis is resized.
struct Axis {
    axis: usize,
    scale: Scale,
    from: usize,
    to: usize,
    /// The part of the input that is resized, in units of its extent.
    roi: (f32, f32),
}

/// The ratio of output to input elements.
#[derive(Clone, Copy)]
enum Scale {
    /// A ratio of extents. Positions are computed as products of integers and a single division, so that whole
    /// positions and midpoints are exact.
    Ratio { to: usize, from: usize },
    /// The factor in the file, an f32. Positions are computed in f32, as in ONNX Runtime, so that 3 / 0.6 is 5.
    Factor(f32),
}

impl Scale {
    fn value(self) -> f64 {
        match self {
            Self::Ratio { to, from } => to as f64 / from as f64,
            Self::Factor(factor) => f64::from(factor),
        }
    }

    fn is_one(self) -> bool {
        match self {
            Self::Ratio { to, from } => to == from,
            Self::Factor(factor) => factor == 1.0,
        }
    }
}

/// How output positions map to input positions, and how elements are mixed there.
struct Method<'a> {
    mode: &'a str,
    /// `None` before version 11, when a smaller image rounded up and a larger one down.
    nearest: Option<&'a str>,
    coordinates: &'a str,
    cubic: f64,
    antialias: bool,
    exclude_outside: bool,
}

/// The input positions, and their weights, that an output position is computed from.
struct Taps {
    /// `[to, taps]`, in row-major order.
    index: Vec<i64>,
    weight: Vec<f64>,
    taps: usize,
    outside: Vec<bool>,
}

fn resize(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let shape = x.shape();
    let old = c.version < 11 || c.node.op_type == "Upsample";
    let which = match c.int_list("axes")? {
        Some(list) => axes(list, shape.rank())?,
        None => (0..shape.rank()).collect(),
    };
    let method = Method {
        mode: c.text("mode", "nearest")?,
        nearest: if old {
            None
        } else {
            Some(c.text("nearest_mode", "round_prefer_floor")?)
        },
        coordinates: if old {
            "asymmetric"
        } else {
            c.text("coordinate_transformation_mode", "half_pixel")?
        },
        cubic: c.float("cubic_coeff_a", -0.75)?,
        antialias: c.flag("antialias", false)?,
        exclude_outside: c.flag("exclude_outside", false)?,
    };
    let list =
        |i: usize| -> Result<Option<Vec<f32>>> {
            match c.value(i) {
                Some(_) => Ok(Some(c.floats(i)?.into_iter().map(|v| v as f32).collect())
                    .filter(|list: &Vec<f32>| !list.is_empty())),
                None => Ok(None),
            }
        };
    let scales = match (old, c.float_list("scales")?) {
        (true, Some(list)) => Some(list.to_vec()),
        (true, None) => list(1)?,
        (false, _) => list(2)?,
    };
    let wanted = if old {
        None
    } else {
        c.opt_ints(3)?.filter(|list| !list.is_empty())
    };
    let roi = if method.coordinates == "tf_crop_and_resize" {
        list(1)?
    } else {
        None
    };
    let plan = plan(
        &shape,
        &which,
        scales,
        wanted,
        roi.as_deref(),
        c.text("keep_aspect_ratio_policy", "stretch")?,
    )?;
    let mut dims = shape.to_vec();
    plan.iter().for_each(|axis| dims[axis.axis] = axis.to);
    // If the factors leave all extents the same, so is the input, as in PyTorch and ONNX Runtime. For cubics only ONNX
    // Runtime does that.
    if dims == *shape && matches!(method.mode, "nearest" | "linear") && roi.is_none() {
        return one(x);
    }
    c.reserve(&dims, x.dtype())?;
    let fill = c.float("extrapolation_value", 0.0)?;
    let dtype = x.dtype();
    let mixed = !dtype.is_float() && method.mode != "nearest";
    let mut y = if mixed { x.to_dtype(c.wide())? } else { x };
    for axis in &plan {
        let whole = axis.scale.is_one() && axis.to == axis.from && axis.roi == (0.0, 1.0);
        if !whole {
            y = along(c, &y, axis, &method, fill)?;
        }
    }
    // Truncated towards 0, as in ONNX Runtime and the reference.
    if let Some((low, high)) = c.element(0)?.range().filter(|_| mixed) {
        y = y.clamp(Some(low), Some(high))?;
    }
    one(y.to_dtype(dtype)?)
}

/// How each axis is resized.
fn plan(
    shape: &[usize],
    which: &[usize],
    scales: Option<Vec<f32>>,
    wanted: Option<List<i64>>,
    roi: Option<&[f32]>,
    policy: &str,
) -> Result<Vec<Axis>> {
    let count = which.len();
    let lengths = [
        scales.as_ref().map(Vec::len),
        wanted.as_ref().map(List::len),
        roi.map(|roi| roi.len() / 2),
    ];
    if lengths.into_iter().flatten().any(|length| length != count) {
        return Err(malformed(format!("scales, sizes or roi are not for {count} axes")));
    }
    let mut plan = Vec::with_capacity(count);
    for (i, &axis) in which.iter().enumerate() {
        let from = shape[axis];
        let (scale, to) = match (&wanted, &scales) {
            (Some(wanted), _) => {
                let to = sizes(&wanted[i..=i])?[0];
                if (from == 0) != (to == 0) {
                    return Err(Error::shape(format!("an axis of {from} cannot be resized to {to}")));
                }
                (Scale::Ratio { to, from }, to)
            }
            (None, Some(scales)) => {
                let factor = scales[i];
                // In f32, as in ONNX Runtime, so that 10 times 0.7 is 7, although 0.7 is no exact f32.
                let to = (factor * from as f32).floor();
                if !(factor > 0.0 && to.is_finite()) {
                    return Err(Error::shape(format!("an axis of {from} cannot be resized by {factor}")));
                }
                (Scale::Factor(factor), to as usize)
            }
            (None, None) => return Err(malformed("neither scales nor sizes are given")),
        };
        let roi = roi.map_or((0.0, 1.0), |roi| (roi[i], roi[i + count]));
        plan.push(Axis {
            axis,
            scale,
            from,
            to,
            roi,
        });
    }
    if wanted.is_some() && policy != "stretch" {
        let by_ratio = |a: &&Axis, b: &&Axis| (a.to as u128 * b.from as u128).cmp(&(b.to as u128 * a.from as u128));
        let axes = plan.iter().filter(|axis| axis.from > 0);
        let one = match policy {
            "not_larger" => axes.min_by(by_ratio),
            "not_smaller" => axes.max_by(by_ratio),
            other => return Err(malformed(format!("there is no keep_aspect_ratio_policy {other:?}"))),
        };
        if let Some(&Axis { to, from, .. }) = one {
            for axis in plan.iter_mut().filter(|axis| axis.from > 0) {
                // The product rounded to the nearest integer, halves up.
                let twice = 2 * to as u128 * axis.from as u128 + from as u128;
                (axis.scale, axis.to) = (Scale::Ratio { to, from }, (twice / (2 * from as u128)) as usize);
            }
        }
    }
    Ok(plan)
}

fn along(c: &Call<'_>, x: &Tensor, axis: &Axis, method: &Method<'_>, fill: f64) -> Result<Tensor> {
    let mut dims = x.dims();
    dims[axis.axis] = axis.to;
    c.reserve(&dims, x.dtype())?;
    let taps = taps(c, axis, method)?;
    let at = axis.axis as isize;
    let mut column = vec![1; x.rank()];
    column[axis.axis] = axis.to;
    let mut y: Option<Tensor> = None;
    for tap in 0..taps.taps {
        let index: Vec<i64> = taps.index.iter().skip(tap).step_by(taps.taps).copied().collect();
        let part = x.index_select(at, &c.make(index, &[axis.to])?)?;
        let part = if method.mode == "nearest" {
            part
        } else {
            let weight: Vec<f64> = taps.weight.iter().skip(tap).step_by(taps.taps).copied().collect();
            (part * c.make_as(weight, &column, x.dtype())?)?
        };
        y = Some(match y {
            Some(y) => (y + part)?,
            None => part,
        });
    }
    let y = y.ok_or_else(|| malformed("nothing to interpolate between"))?;
    if taps.outside.contains(&true) {
        return y.masked_fill(&c.make(taps.outside, &column)?, fill);
    }
    Ok(y)
}

/// The input position of an output position.
fn source(axis: &Axis, coordinates: &str, i: usize) -> Result<f64> {
    let (from, to) = (axis.from as f64, axis.to as f64);
    let y = i as f64;
    match (coordinates, axis.scale) {
        ("align_corners", _) if axis.to == 1 => Ok(0.0),
        ("align_corners", _) => Ok(y * (from - 1.0) / (to - 1.0)),
        ("tf_crop_and_resize", _) => {
            let (start, end) = axis.roi;
            let (y, from, to) = (i as f32, axis.from as f32, axis.to as f32);
            Ok(f64::from(if axis.to == 1 {
                0.5 * (start + end) * (from - 1.0)
            } else {
                start * (from - 1.0) + y * (end - start) * (from - 1.0) / (to - 1.0)
            }))
        }
        ("pytorch_half_pixel", _) if axis.to == 1 => Ok(0.0),
        (_, Scale::Ratio { to: p, from: q }) => {
            let (p, q) = (p as f64, q as f64);
            let twice = (2.0 * y + 1.0) * q;
            match coordinates {
                "asymmetric" => Ok(y * q / p),
                // In versions 11 and 12.
                "tf_half_pixel_for_nn" => Ok(twice / (2.0 * p)),
                "pytorch_half_pixel" | "half_pixel" => Ok((twice - p) / (2.0 * p)),
                "half_pixel_symmetric" => Ok((from * p - to * q + twice - p) / (2.0 * p)),
                other => Err(no_coordinates(other)),
            }
        }
        (_, Scale::Factor(factor)) => {
            let (y, from, to) = (i as f32, axis.from as f32, axis.to as f32);
            Ok(f64::from(match coordinates {
                "asymmetric" => y / factor,
                "tf_half_pixel_for_nn" => (y + 0.5) / factor,
                "pytorch_half_pixel" | "half_pixel" => (y + 0.5) / factor - 0.5,
                "half_pixel_symmetric" => {
                    let offset = from / 2.0 * (1.0 - to / (factor * from));
                    // The rest is in f64, as in ONNX Runtime.
                    (f64::from(offset) + ((i as f64 + 0.5) / f64::from(factor) - 0.5)) as f32
                }
                other => return Err(no_coordinates(other)),
            }))
        }
    }
}

fn no_coordinates(name: &str) -> Error {
    malformed(format!("there is no coordinate_transformation_mode {name:?}"))
}

fn taps(c: &Call<'_>, axis: &Axis, method: &Method<'_>) -> Result<Taps> {
    let shrink = if method.antialias {
        axis.scale.value().min(1.0)
    } else {
        1.0
    };
    // The distance up to which an element has a weight.
    let radius = match method.mode {
        "nearest" => 0.0,
        "linear" => 1.0,
        "cubic" => 2.0,
        other => return Err(malformed(format!("Resize has no mode {other:?}"))),
    };
    let first = if radius == 0.0 {
        0
    } else {
        (-radius / shrink).floor() as i64 + 1
    };
    let count = if radius == 0.0 { 1 } else { (2 - 2 * first) as usize };
    c.reserve(&[axis.to, count], DType::F64)?;
    let mut taps = Taps {
        index: c.list(axis.to * count)?,
        weight: c.list(axis.to * count)?,
        taps: count,
        outside: c.list(axis.to)?,
    };
    let last = axis.from as i64 - 1;
    for i in 0..axis.to {
        let at = source(axis, method.coordinates, i)?;
        taps.outside
            .push(method.coordinates == "tf_crop_and_resize" && !(0.0..=last as f64).contains(&at));
        if radius == 0.0 {
            // A midpoint missed only by the rounding of a factor counts as a midpoint, as in ONNX Runtime.
            let base = at.floor();
            let rest = at - base - 0.5;
            let rest = if rest.abs() < 1e-6 { 0.0 } else { rest };
            let index = match method.nearest {
                Some("round_prefer_floor") => base + f64::from(rest > 0.0),
                Some("round_prefer_ceil") => base + f64::from(rest >= 0.0),
                Some("floor") => base,
                Some("ceil") => at.ceil(),
                None if axis.scale.value() < 1.0 => at.ceil(),
                None => base,
                Some(other) => return Err(malformed(format!("Resize has no nearest_mode {other:?}"))),
            };
            taps.index.push((index as i64).clamp(0, last));
            taps.weight.push(1.0);
            continue;
        }
        let (base, ratio) = (at.floor(), at - at.floor());
        let start = taps.weight.len();
        for k in first..first + count as i64 {
            let index = base as i64 + k;
            let distance = (shrink * (k as f64 - ratio)).abs();
            let weight = if radius == 1.0 {
                (1.0 - distance).max(0.0)
            } else {
                cubic(distance, method.cubic)
            };
            let dropped = method.exclude_outside && !(0..=last).contains(&index);
            taps.index.push(index.clamp(0, last));
            taps.weight.push(if dropped { 0.0 } else { weight });
        }
        let sum: f64 = taps.weight[start..].iter().sum();
        if (method.exclude_outside || method.antialias) && sum != 0.0 {
            taps.weight[start..].iter_mut().for_each(|weight| *weight /= sum);
        }
    }
    Ok(taps)
}

/// Keys' kernel. Source: Keys, "Cubic convolution interpolation for digital image processing" (1981).
fn cubic(x: f64, a: f64) -> f64 {
    if x <= 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    } else {
        0.0
    }
}
