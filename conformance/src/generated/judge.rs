//! Runs a sample on a backend and on the reference, and compares.

use polygrad_core::{
    AnyDevice, AnyTensor, Axes, DType, ErrorKind, HostTensor, Op, OpDesc, Result, Shape, SliceRange, observe,
};
use polygrad_reference::Reference;
use polygrad_tensor::{AnyBackend, Device};

use super::sample::{Layout, Operand, Origin, Sample};
use crate::case::{Outcome, Status};
use crate::compare::{Comparison, compare};
use crate::tolerance::{Bounds, is_exact, tolerance};

/// The host tensors that a sample's operands are made of.
type Bases = Vec<HostTensor>;

/// Runs a sample in a dtype and a layout.
pub(crate) fn run(sample: &Sample, dtype: DType, layout: Layout, seed: u64, device: &Device<AnyBackend>) -> Outcome {
    Outcome::forward(match judge(sample, dtype, layout, seed, device.inner()) {
        Ok(status) => status,
        Err(error) => Status::Fail(format!("the case itself is malformed: {error}")),
    })
}

fn judge(sample: &Sample, dtype: DType, layout: Layout, seed: u64, device: &AnyDevice) -> Result<Status> {
    let desc = OpDesc {
        op: &sample.op,
        dtype: sample.first(dtype),
    };
    let support = device.backend().supports(device, &desc);
    let reference = Device::<Reference>::default().into_any();
    let bases = bases(sample, dtype, layout, seed, reference.inner())?;
    // Casts, and powers of two of the tested dtype, are exact in it but not in f64; all other reals are compared in
    // f64.
    let judged_in = |dtype: DType| match &sample.op {
        Op::Cast(_) => dtype,
        _ if dtype.is_float() => DType::F64,
        _ => dtype,
    };
    let truth = execute(sample, &bases, layout, reference.inner(), judged_in)?;
    let answer = match (execute(sample, &bases, layout, device, |dtype| dtype), support) {
        (Ok(answer), Ok(())) => answer,
        (Ok(_), Err(reason)) => {
            return Ok(Status::Fail(format!(
                "it is computed, although the backend says: {reason}"
            )));
        }
        (Err(_), Err(reason)) => return Ok(Status::Unsupported(reason.to_string())),
        (Err(error), Ok(())) if error.kind() == ErrorKind::Unsupported => {
            return Ok(Status::Fail(format!(
                "{error}, although the backend says that it is computed"
            )));
        }
        (Err(error), Ok(())) => return Ok(Status::Fail(error.to_string())),
    };
    if answer.len() != truth.len() {
        return Ok(Status::Fail(format!(
            "{} results, {} are right",
            answer.len(),
            truth.len()
        )));
    }
    for (i, (answer, truth)) in answer.iter().zip(&truth).enumerate() {
        let expected = match &sample.op {
            Op::Cast(dtype) => *dtype,
            // Mean and variance, and squares, which could overflow.
            Op::BatchNorm { .. } if i > 0 => dtype.wide(),
            Op::SquareSum => dtype.wide(),
            Op::DynamicQuantizeU8 if i > 0 => truth.dtype(),
            // What becomes of integers, as of bytes and sums of their products.
            _ if truth.dtype().is_float() && !dtype.is_float() => DType::F32,
            _ if truth.dtype().is_float() => dtype,
            _ => truth.dtype(),
        };
        let with = Comparison {
            truth,
            dtype: expected,
            bounds: if is_exact(&sample.op) {
                Bounds::EXACT
            } else {
                tolerance(expected, sample.op.name())
            },
        };
        if let Err(difference) = compare(answer, &with) {
            return Ok(Status::Fail(format!("result {i}: {difference}")));
        }
    }
    Ok(Status::Pass)
}

/// How a device computes a sample, if it does, in one word.
pub(crate) fn how(sample: &Sample, dtype: DType, device: &AnyDevice) -> Result<Option<&'static str>> {
    let op = &sample.op;
    let desc = OpDesc {
        op,
        dtype: sample.first(dtype),
    };
    if device.backend().supports(device, &desc).is_err() {
        return Ok(None);
    }
    let reference = Device::<Reference>::default().into_any();
    let bases = bases(sample, dtype, Layout::Contiguous, 1, reference.inner())?;
    let (result, seen) = observe::observe(|| execute(sample, &bases, Layout::Contiguous, device, |dtype| dtype));
    result?;
    Ok(Some(match seen {
        seen if seen.decomposed.contains(&op.variant()) => "decomposed",
        seen if seen.on_host => "on the host",
        _ => "native",
    }))
}

/// Creates the operands' host tensors. Derived ones are computed by the reference in f64 and rounded.
fn bases(sample: &Sample, dtype: DType, layout: Layout, seed: u64, reference: &AnyDevice) -> Result<Bases> {
    let mut bases: Bases = Vec::with_capacity(sample.operands.len());
    for (i, operand) in sample.operands.iter().enumerate() {
        bases.push(match &operand.origin {
            Origin::Drawn(fill) => operand.base(fill, layout, dtype, seed.wrapping_add(i as u64))?,
            Origin::Derived { op, operands, output } => {
                let inputs = operands
                    .iter()
                    .map(|&i| view(&sample.operands[i], &widened(&bases[i]), layout, reference))
                    .collect::<Result<Vec<_>>>()?;
                let inputs: Vec<&AnyTensor> = inputs.iter().collect();
                let result = reference.backend().execute(op, &inputs)?.take(*output)?;
                let host = reference.backend().to_host(&result)?;
                let rounded = host.cast(operand.dtype(dtype));
                // Derived operands have the memory layout in which a backend returned them.
                rounded.reshape(Shape::new(&operand.shape)?)?
            }
        });
    }
    Ok(bases)
}

fn widened(host: &HostTensor) -> HostTensor {
    if host.dtype().is_float() {
        host.cast(DType::F64)
    } else {
        host.clone()
    }
}

/// The operand on a device: its host tensor, and the views that give it its layout.
fn view(operand: &Operand, base: &HostTensor, layout: Layout, device: &AnyDevice) -> Result<AnyTensor> {
    let backend = device.backend();
    let x = backend.from_host(base.clone(), device)?;
    if matches!(operand.origin, Origin::Derived { .. }) {
        return Ok(x);
    }
    let shape = Shape::new(&operand.shape)?;
    let rank = shape.rank();
    let op = match operand.effective(layout) {
        Layout::Contiguous => return Ok(x),
        Layout::Permuted => Op::Permute(Axes::new((0..rank).rev())?),
        Layout::Sliced => Op::Slice(shape.dims().iter().map(|&dim| SliceRange::new(1, dim, 2)).collect()),
        Layout::Flipped => {
            let back = |&dim: &usize| SliceRange::new(dim.saturating_sub(1), dim, -1);
            Op::Slice(shape.dims().iter().map(back).collect())
        }
        Layout::Expanded => Op::Expand(shape),
    };
    backend.execute(&op, &[&x])?.take(0)
}

/// The operands on a device, without helper operands.
pub(crate) fn operands(
    sample: &Sample,
    dtype: DType,
    layout: Layout,
    seed: u64,
    device: &AnyDevice,
) -> Result<Vec<AnyTensor>> {
    let reference = Device::<Reference>::default().into_any();
    let bases = bases(sample, dtype, layout, seed, reference.inner())?;
    placed(sample, &bases, layout, device, |dtype| dtype)
}

fn placed(
    sample: &Sample,
    bases: &[HostTensor],
    layout: Layout,
    device: &AnyDevice,
    held: impl Fn(DType) -> DType,
) -> Result<Vec<AnyTensor>> {
    let pairs = sample.operands.iter().zip(bases).filter(|(operand, _)| !operand.helper);
    pairs
        .map(|(operand, base)| view(operand, &base.cast(held(base.dtype())), layout, device))
        .collect()
}

fn execute(
    sample: &Sample,
    bases: &[HostTensor],
    layout: Layout,
    device: &AnyDevice,
    held: impl Fn(DType) -> DType,
) -> Result<Vec<HostTensor>> {
    let backend = device.backend();
    let mut inputs = placed(sample, bases, layout, device, held)?;
    if !is_update(&sample.op) {
        let inputs: Vec<&AnyTensor> = inputs.iter().collect();
        let outputs = backend.execute(&sample.op, &inputs)?;
        return outputs.iter().map(|output| backend.to_host(output)).collect();
    }
    // Further handles to the tensors that change: their values must not change.
    let seen = inputs.clone();
    let before = seen.iter().map(|x| backend.to_host(x)).collect::<Result<Vec<_>>>()?;
    let Some(grad) = inputs.pop() else {
        return Err(polygrad_core::Error::invalid("an update without operands"));
    };
    let mut targets: Vec<&mut AnyTensor> = inputs.iter_mut().collect();
    backend.update(&sample.op, &mut targets, &grad)?;
    for (seen, before) in seen.iter().zip(before) {
        if backend.to_host(seen)?.bytes() != before.bytes() {
            return Err(polygrad_core::Error::invalid(
                "the update changed a tensor that somebody else still sees",
            ));
        }
    }
    inputs.iter().map(|x| backend.to_host(x)).collect()
}

/// Whether an op updates its tensors: then its last operand is the gradient, or the values to write.
pub(crate) fn is_update(op: &Op) -> bool {
    matches!(
        op,
        Op::AccumulateGrad | Op::SliceScatter { .. } | Op::SgdStep(_) | Op::AdamStep(_)
    )
}
