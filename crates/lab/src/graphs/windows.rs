//! Nodes with windows over spatial axes.

use polygrad_onnx::graph::{Attribute, ElementType};

use super::make::Maker;
use super::nodes::{Attributes, batch_norm, int};

/// Attributes of a window over these axes. ONNX Runtime rejects `SAME` with dilations.
fn window(m: &mut Maker<'_>, kernel: &[i64], paddings: &[&'static str], dilated: bool) -> Attributes {
    let count = kernel.len();
    let mut attributes: Attributes = vec![("kernel_shape", Attribute::Ints(kernel.to_vec()))];
    let strides: Vec<i64> = (0..count).map(|_| m.draw.between(1, 2)).collect();
    // It also rejects `SAME` if a stride is longer than the kernel.
    let is_short = strides.iter().zip(kernel).any(|(stride, kernel)| stride > kernel);
    attributes.push(("strides", Attribute::Ints(strides)));
    if !is_short && m.draw.one_in(2) && !paddings.is_empty() {
        let padding = m.draw.of(paddings);
        attributes.push(("auto_pad", Attribute::String(padding.into())));
        return attributes;
    }
    if dilated && m.draw.one_in(3) {
        let dilations = (0..count).map(|_| m.draw.between(1, 2)).collect();
        attributes.push(("dilations", Attribute::Ints(dilations)));
    }
    let pads: Vec<i64> = [kernel, kernel]
        .concat()
        .iter()
        .map(|&k| m.draw.between(0, k / 2))
        .collect();
    attributes.push(("pads", Attribute::Ints(pads)));
    attributes
}

const PADDINGS: [&str; 3] = ["SAME_UPPER", "SAME_LOWER", "VALID"];

pub(super) fn conv(m: &mut Maker<'_>) -> Option<()> {
    let x = m.real_of_rank(3..=4)?;
    let (channels, spatial) = (x.dims()[1], &x.dims()[2..]);
    let kernel: Vec<i64> = spatial
        .iter()
        .map(|&extent| m.draw.between(1, (extent as i64).min(3)))
        .collect();
    let groups = if m.draw.one_in(3) { channels } else { 1 };
    let out = groups * m.draw.between(1, 3) as usize;
    let transposed = m.draw.one_in(4);
    let extents = kernel.iter().map(|&k| k as usize);
    let dims: Vec<usize> = match transposed {
        true => [channels, out / groups].into_iter().chain(extents).collect(),
        false => [out, channels / groups].into_iter().chain(extents).collect(),
    };
    let w = m.reals_fixed(&dims, 1.0);
    let bias = m.reals_fixed(&[out], 1.0);
    let bias = if m.draw.one_in(3) { None } else { Some(&bias) };
    // If the stride is longer than the kernel, ONNX Runtime's `SAME` is shorter than ONNX specifies.
    let paddings = if transposed { &[][..] } else { &PADDINGS[..] };
    let mut attributes = window(m, &kernel, paddings, !transposed);
    attributes.push(("group", int(groups as i64)));
    let op = if transposed { "ConvTranspose" } else { "Conv" };
    let found = m.node(op, &[Some(&x), Some(&w), bias], 1, attributes)?.remove(0);
    match m.draw.below(4) {
        0 => m.node("Relu", &[Some(&found)], 1, vec![]).map(drop),
        1 => batch_norm(m, &found),
        2 => {
            let other = m.pick(|made| made.value.element() == ElementType::F32 && made.dims() == found.dims())?;
            let sum = m.node("Add", &[Some(&found), Some(&other)], 1, vec![])?.remove(0);
            m.node("Relu", &[Some(&sum)], 1, vec![]).map(drop)
        }
        _ => Some(()),
    }
}

pub(super) fn pool(m: &mut Maker<'_>) -> Option<()> {
    let x = m.real_of_rank(3..=4)?;
    let kernel: Vec<i64> = x.dims()[2..]
        .iter()
        .map(|&extent| m.draw.between(1, (extent as i64).min(3)))
        .collect();
    match m.draw.below(4) {
        0 => m.node("GlobalAveragePool", &[Some(&x)], 1, vec![]).map(drop),
        1 => m.node("GlobalMaxPool", &[Some(&x)], 1, vec![]).map(drop),
        kind => {
            let mut attributes = window(m, &kernel, &PADDINGS, kind == 2);
            let by_pads = attributes.iter().any(|(name, _)| *name == "pads");
            if !windows_fit(&attributes, &x.dims()[2..]) {
                return None;
            }
            // The shapes that ONNX Runtime infers include a last window that begins after the data; its kernel does
            // not.
            if by_pads && last_windows_begin_inside(&attributes, &x.dims()[2..]) {
                attributes.push(("ceil_mode", int(m.draw.between(0, 1))));
            }
            if kind == 3 {
                attributes.push(("count_include_pad", int(m.draw.between(0, 1))));
            }
            m.node(
                if kind == 2 { "MaxPool" } else { "AveragePool" },
                &[Some(&x)],
                1,
                attributes,
            )
            .map(drop)
        }
    }
}

/// The numbers of a window's attribute along each axis; for pads, the first ones.
fn numbers(attributes: &Attributes, name: &str, axis: usize) -> Option<i64> {
    attributes.iter().find_map(|(found, value)| match value {
        Attribute::Ints(values) if *found == name => Some(values[axis]),
        _ => None,
    })
}

/// For each axis: the number of elements that the window can move over beyond its first position, its stride, the
/// padding before, and the extent.
fn moves<'a>(attributes: &'a Attributes, spatial: &'a [usize]) -> impl Iterator<Item = (i64, i64, i64, i64)> + 'a {
    let count = spatial.len();
    spatial.iter().enumerate().map(move |(axis, &extent)| {
        let of = |name, axis, default| numbers(attributes, name, axis).unwrap_or(default);
        let window = (of("kernel_shape", axis, 1) - 1) * of("dilations", axis, 1) + 1;
        let (before, after) = (of("pads", axis, 0), of("pads", count + axis, 0));
        (
            extent as i64 + before + after - window,
            of("strides", axis, 1),
            before,
            extent as i64,
        )
    })
}

/// Whether windows fit into the padded axes. If one is too long by less than a stride, ONNX Runtime returns no
/// elements.
fn windows_fit(attributes: &Attributes, spatial: &[usize]) -> bool {
    let is_same = attributes.iter().any(|(name, value)| {
        *name == "auto_pad" && matches!(value, Attribute::String(text) if text.starts_with("SAME"))
    });
    is_same || moves(attributes, spatial).all(|(room, ..)| room >= 0)
}

/// Whether with `ceil_mode` the last window of each axis begins before the padding after the data.
fn last_windows_begin_inside(attributes: &Attributes, spatial: &[usize]) -> bool {
    moves(attributes, spatial).all(|(room, stride, before, extent)| {
        let last = (room + stride - 1) / stride;
        last * stride < extent + before
    })
}
