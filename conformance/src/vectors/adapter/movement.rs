//! Shapes, slices and concatenation.

use polygrad_tensor::{Backend, PadMode, Result, Scalar, Tensor};

use crate::vectors::call::{Call, CaseError, CaseOutputs, CaseResult, one, unsupported};

/// A shape in which −1 stands for the remaining extent.
fn resolved(shape: &[isize], numel: usize) -> Vec<usize> {
    let known = shape.iter().filter_map(|&dim| usize::try_from(dim).ok());
    let known = known.fold(1, usize::saturating_mul);
    shape
        .iter()
        .map(|&dim| if dim >= 0 { dim as usize } else { numel / known.max(1) })
        .collect()
}

/// A shape in which −1 keeps the current extent.
fn kept(shape: &[isize], from: &[usize]) -> CaseResult<Vec<usize>> {
    let there = |axis: usize| from.get((axis + from.len()).checked_sub(shape.len())?).copied();
    let dims = shape.iter().enumerate();
    let dims = dims.map(|(axis, &dim)| usize::try_from(dim).ok().or_else(|| there(axis)));
    match dims.collect() {
        Some(dims) => Ok(dims),
        None => unsupported(format!("argument size: {shape:?} for a tensor of {from:?}")),
    }
}

/// PyTorch leaves an axis unchanged if its extent is not 1.
fn squeeze<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let x = call.tensor(0, "input")?;
    let Some(axes) = call.ints(1, "dim")? else {
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

fn split<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let x = call.tensor(0, "input")?;
    let axis = call.int(2, "dim", 0)?;
    let name = "split_size_or_sections";
    Ok(match call.scalar(1, name) {
        Some(_) => x.split(call.size(1, name, 1)?, axis)?,
        None => x.split_with_sizes(&call.sizes(1, name)?.unwrap_or_default(), axis)?,
    })
}

fn roll<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let x = call.tensor(0, "input")?;
    let shifts = call.ints(1, "shifts")?.unwrap_or_default();
    match call.ints(2, "dims")? {
        Some(axes) => one(x.roll(&shifts, &axes)?),
        // Without axes PyTorch rolls the flattened tensor.
        None => one(x.reshape([x.numel()])?.roll(&shifts, &[0])?.reshape(x.shape())?),
    }
}

/// PyTorch lists pairs from the last axis to the first.
fn pad<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let x = call.tensor(0, "input")?;
    // OpInfo's variants are functions with a bound mode, whose samples need not repeat it.
    let mode = match call.text(2, "mode")?.unwrap_or(call.variant()) {
        "reflect" => PadMode::Reflect,
        "replicate" | "replicate_negative" => PadMode::Replicate,
        "circular" => PadMode::Circular,
        "constant" | "" | "own" => PadMode::Constant(call.scalar(3, "value").unwrap_or(Scalar::Int(0))),
        other => return unsupported(format!("argument mode={other}")),
    };
    let widths = call.ints(1, "pad")?.unwrap_or_default();
    let mut borders = vec![(0, 0); x.rank()];
    let (pairs, []) = widths.as_chunks::<2>() else {
        return unsupported(format!("argument pad: {widths:?} are no pairs"));
    };
    if pairs.len() > borders.len() {
        return unsupported(format!("argument pad: {widths:?} for a tensor of {}", x.shape()));
    }
    for (border, &[before, after]) in borders.iter_mut().rev().zip(pairs) {
        *border = (before, after);
    }
    one(x.pad_with(&borders, mode)?)
}

pub(super) fn answer<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let x = || call.tensor(0, "input");
    match call.op() {
        "transpose" => one(x()?.transpose(call.int(1, "dim0", 0)?, call.int(2, "dim1", 0)?)?),
        "permute" => one(x()?.permute(&call.ints(1, "dims")?.unwrap_or_default())?),
        "reshape" | "view" => {
            let shape = call.ints(1, "shape")?.unwrap_or_default();
            one(x()?.reshape(resolved(&shape, x()?.numel()))?)
        }
        "expand" => {
            let shape = call.ints(1, "size")?.unwrap_or_default();
            one(x()?.expand(kept(&shape, &x()?.dims())?)?)
        }
        "squeeze" => squeeze(call),
        "unsqueeze" => one(x()?.unsqueeze(call.int(1, "dim", 0)?)?),
        "cat" => one(Tensor::cat(&call.tensors(0, "tensors")?, call.int(1, "dim", 0)?)?),
        "stack" => one(Tensor::stack(&call.tensors(0, "tensors")?, call.int(1, "dim", 0)?)?),
        "split" => split(call),
        "chunk" => Ok(x()?.chunk(call.size(1, "chunks", 1)?, call.int(2, "dim", 0)?)?),
        "flip" => one(x()?.flip(&call.ints(1, "dims")?.unwrap_or_default())?),
        "roll" => roll(call),
        "tile" => one(x()?.tile(&call.sizes(1, "dims")?.unwrap_or_default())?),
        "triu" | "tril" => {
            let diagonal = call.int(1, "diagonal", 0)?;
            let triangle: Result<Tensor<B>> = if call.op() == "triu" {
                x()?.triu(diagonal)
            } else {
                x()?.tril(diagonal)
            };
            one(triangle?)
        }
        "diagonal" => one(x()?.diagonal(
            call.int(1, "offset", 0)?,
            call.int(2, "dim1", 0)?,
            call.int(3, "dim2", 1)?,
        )?),
        "nn.functional.pad" => pad(call),
        _ => Err(CaseError::OtherFamily),
    }
}
