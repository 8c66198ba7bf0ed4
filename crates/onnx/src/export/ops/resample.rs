//! Resizing of spatial axes, and padding with a tensor's own elements.

use polygrad_core::{Backend, BorderMode, Composite, HostTensor, InterpolateMode, Result, Shape, SliceRange};

use crate::export::call::Call;
use crate::export::extent::Extent;
use crate::export::{Onnx, OnnxTensor};

type T = OnnxTensor;

/// See [`Backend::composite`]. For constants it is computed at once, from other ops.
pub(crate) fn composite(op: &Composite<'_>, x: &T) -> Result<Option<T>> {
    if x.anonymous_constant().is_some() {
        return Ok(None);
    }
    match *op {
        Composite::Interpolate {
            to,
            factors,
            mode,
            align_corners,
        } => interpolate(x, to, factors, mode, align_corners),
        Composite::Border { widths, mode } => border(x, widths, mode).map(Some),
        _ => Ok(None),
    }
}

fn interpolate(
    x: &T,
    to: &[usize],
    factors: Option<&[f64]>,
    mode: InterpolateMode,
    align_corners: bool,
) -> Result<Option<T>> {
    let shape = Shape::new(to)?;
    let places = match mode {
        InterpolateMode::Nearest => "asymmetric",
        _ if align_corners => "align_corners",
        _ => "half_pixel",
    };
    let call = Call::of("Resize", [x])
        .input(None)
        .text("coordinate_transformation_mode", places);
    let call = match mode {
        InterpolateMode::Nearest => call.text("mode", "nearest").text("nearest_mode", "floor"),
        InterpolateMode::NearestExact => call.text("mode", "nearest").text("nearest_mode", "round_prefer_ceil"),
        InterpolateMode::Cubic => call.text("mode", "cubic").float("cubic_coeff_a", -0.75),
        _ => call.text("mode", "linear"),
    };
    // With aligned corners ONNX uses the extent before rounding, and PyTorch the extent after it.
    let by_factors = factors.filter(|factors| !align_corners || factors.iter().all(|factor| factor.fract() == 0.0));
    let mut state = x.recording.state();
    let call = match by_factors {
        // The new extents are computed from the old ones.
        Some(factors) => {
            let factors: Vec<f32> = [1.0; 2].iter().chain(factors).map(|&v| v as f32).collect();
            let scales = state.constant(HostTensor::new(Shape::from([factors.len()]), factors)?);
            call.input(scales).walks(x)
        }
        None => {
            let extents = to
                .iter()
                .map(|&dim| state.symbols.read(dim))
                .collect::<Result<Vec<Extent>>>();
            let to = match (extents, factors) {
                (Err(_), Some(_)) => return Ok(None),
                (extents, _) => extents?,
            };
            let sizes = state.extents(&to)?;
            call.input(None).input(sizes)
        }
    };
    drop(state);
    x.recording.one(call.gives(shape, x.dtype)).map(Some)
}

fn border(x: &T, widths: &[(usize, usize)], mode: BorderMode) -> Result<T> {
    let name = match mode {
        BorderMode::Reflect => "reflect",
        BorderMode::Replicate => "edge",
        BorderMode::Circular if x.recording.state().opset.has_wrapping_pad() => "wrap",
        BorderMode::Circular => return wrapped(x, widths),
    };
    let dims = x
        .shape
        .iter()
        .zip(widths)
        .map(|(dim, (before, after))| dim + before + after);
    let shape = Shape::new(&dims.collect::<Vec<_>>())?;
    let (before, after) = (widths.iter().map(|width| width.0), widths.iter().map(|width| width.1));
    let pads: Vec<i64> = before.chain(after).map(|width| width as i64).collect();
    let pads = x.recording.state().ints(&pads)?;
    let call = Call::of("Pad", [x]).input(pads).text("mode", name);
    x.recording.one(call.gives(shape, x.dtype))
}

/// Pads each axis with the opposite end of the axis, before and after.
fn wrapped(x: &T, widths: &[(usize, usize)]) -> Result<T> {
    let mut out = x.clone();
    for (axis, &(before, after)) in widths.iter().enumerate() {
        let part = |start: usize, len: usize| {
            let mut ranges: Vec<SliceRange> = out.shape.iter().map(|&dim| SliceRange::full(dim)).collect();
            ranges[axis] = SliceRange::new(start, len, 1);
            Onnx::slice(&out, &ranges)
        };
        let (last, first) = (part(out.shape[axis] - before, before)?, part(0, after)?);
        let parts = [(before, &last), (usize::MAX, &out), (after, &first)];
        let parts: Vec<&T> = parts
            .into_iter()
            .filter(|(width, _)| *width > 0)
            .map(|(_, part)| part)
            .collect();
        if parts.len() > 1 {
            let joined = Onnx::concat(&parts, axis)?;
            out = joined;
        }
    }
    Ok(out)
}
