//! Shapes, cuts and joins.

use polygrad_core::SliceRange;
use polygrad_tensor::{Backend, Result, Tensor};

use crate::call::{Answer, Call, Stop, one, unsupported};

/// A shape in which −1 stands for what is left.
fn resolved(shape: &[isize], numel: usize) -> Vec<usize> {
    let known: usize = shape.iter().filter(|&&dim| dim >= 0).map(|&dim| dim as usize).product();
    shape
        .iter()
        .map(|&dim| if dim >= 0 { dim as usize } else { numel / known.max(1) })
        .collect()
}

/// A shape in which −1 stands for the extent that is there.
fn kept(shape: &[isize], from: &[usize]) -> Vec<usize> {
    let new = shape.len() - from.len();
    let dims = shape.iter().enumerate();
    dims.map(|(axis, &dim)| if dim >= 0 { dim as usize } else { from[axis - new] })
        .collect()
}

/// PyTorch leaves an axis alone that is not of extent 1.
fn squeeze<B: Backend>(call: &Call<'_, B>) -> Answer<B> {
    let x = call.tensor(0, "input");
    let Some(axes) = call.ints(1, "dim") else {
        return one(x.squeeze_all()?);
    };
    let rank = x.rank() as isize;
    let gone: Vec<isize> = axes
        .iter()
        .map(|&axis| if axis < 0 { axis + rank } else { axis })
        .collect();
    let shape: Vec<usize> = x.dims();
    let left = shape.iter().enumerate();
    let left = left.filter(|&(axis, &dim)| dim != 1 || !gone.contains(&(axis as isize)));
    one(x.reshape(left.map(|(_, &dim)| dim).collect::<Vec<_>>())?)
}

fn split<B: Backend>(call: &Call<'_, B>) -> Answer<B> {
    let x = call.tensor(0, "input");
    let axis = call.int(2, "dim").unwrap_or(0);
    let sizes: Vec<usize> = call
        .ints(1, "split_size_or_sections")
        .unwrap_or_default()
        .iter()
        .map(|&size| size as usize)
        .collect();
    Ok(match call.scalar(1, "split_size_or_sections") {
        Some(_) => x.split(sizes[0], axis)?,
        None => x.split_with_sizes(&sizes, axis)?,
    })
}

fn roll<B: Backend>(call: &Call<'_, B>) -> Answer<B> {
    let x = call.tensor(0, "input");
    let shifts = call.ints(1, "shifts").unwrap_or_default();
    match call.ints(2, "dims") {
        Some(axes) => one(x.roll(&shifts, &axes)?),
        // Without axes PyTorch rolls the flattened tensor.
        None => one(x.reshape([x.numel()])?.roll(&shifts, &[0])?.reshape(x.shape())?),
    }
}

/// PyTorch lists pairs from the last axis to the first; negative ones cut.
fn pad<B: Backend>(call: &Call<'_, B>) -> Answer<B> {
    if let Some(mode) = call.text(2, "mode").filter(|&mode| mode != "constant") {
        return unsupported(format!("mode={mode}"));
    }
    let x = call.tensor(0, "input");
    let shape = x.dims();
    let mut ranges: Vec<_> = shape.iter().map(|&dim| SliceRange::full(dim)).collect();
    let mut borders = vec![(0, 0); shape.len()];
    for (i, pair) in call.ints(1, "pad").unwrap_or_default().chunks(2).enumerate() {
        let axis = shape.len() - 1 - i;
        let cut = |border: isize| border.min(0).unsigned_abs();
        ranges[axis] = SliceRange::new(cut(pair[0]), shape[axis] - cut(pair[0]) - cut(pair[1]), 1);
        borders[axis] = (pair[0].max(0) as usize, pair[1].max(0) as usize);
    }
    one(x.slice(&ranges)?.pad(&borders, call.float(3, "value", 0.0))?)
}

fn counts(list: Option<Vec<isize>>) -> Vec<usize> {
    list.unwrap_or_default().iter().map(|&count| count as usize).collect()
}

pub(super) fn answer<B: Backend>(call: &Call<'_, B>) -> Answer<B> {
    let x = || call.tensor(0, "input");
    match call.op() {
        "transpose" => {
            let (a, b) = (call.int(1, "dim0"), call.int(2, "dim1"));
            one(x().transpose(a.unwrap_or(0), b.unwrap_or(0))?)
        }
        "permute" => one(x().permute(&call.ints(1, "dims").unwrap_or_default())?),
        "reshape" | "view" => {
            let shape = call.ints(1, "shape").unwrap_or_default();
            one(x().reshape(resolved(&shape, x().numel()))?)
        }
        "expand" => {
            let shape = call.ints(1, "size").unwrap_or_default();
            one(x().expand(kept(&shape, &x().dims()))?)
        }
        "squeeze" => squeeze(call),
        "unsqueeze" => one(x().unsqueeze(call.int(1, "dim").unwrap_or(0))?),
        "cat" => one(Tensor::cat(
            &call.tensors(0, "tensors"),
            call.int(1, "dim").unwrap_or(0),
        )?),
        "stack" => one(Tensor::stack(
            &call.tensors(0, "tensors"),
            call.int(1, "dim").unwrap_or(0),
        )?),
        "split" => split(call),
        "chunk" => Ok(x().chunk(
            call.int(1, "chunks").unwrap_or(1) as usize,
            call.int(2, "dim").unwrap_or(0),
        )?),
        "flip" => one(x().flip(&call.ints(1, "dims").unwrap_or_default())?),
        "roll" => roll(call),
        "tile" => one(x().tile(&counts(call.ints(1, "dims")))?),
        "triu" | "tril" => {
            let diagonal = call.int(1, "diagonal").unwrap_or(0);
            let triangle: Result<Tensor<B>> = if call.op() == "triu" {
                x().triu(diagonal)
            } else {
                x().tril(diagonal)
            };
            one(triangle?)
        }
        "diagonal" => one(x().diagonal(
            call.int(1, "offset").unwrap_or(0),
            call.int(2, "dim1").unwrap_or(0),
            call.int(3, "dim2").unwrap_or(1),
        )?),
        "nn.functional.pad" => pad(call),
        _ => Err(Stop::OtherFamily),
    }
}
