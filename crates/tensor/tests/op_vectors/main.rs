//! Every op against PyTorch's answers and gradients, as recorded by `scripts/make_op_vectors.py`.

mod adapter;
mod call;
mod check;
mod known;
mod set;
mod tolerance;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use check::Outcome;
use known::{DEVIATING, UNSUPPORTED};
use polygrad_cpu::{Cpu, CpuDevice, Kernels};
use polygrad_tensor::{AnyBackend, Backend, DType, Device};
use set::VectorSet;

/// Runs the whole set and fails unless every case ends as expected.
fn hold<B: Backend>(device: &Device<B>, dtype: DType) {
    let set = VectorSet::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/ops")));
    let mut counts: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut used = BTreeSet::new();
    for case in &set.cases {
        let [passes, with_gradients, others] = counts.entry(&case.op).or_default();
        let unsupported = known::find(UNSUPPORTED, &case.k);
        let deviating = known::find(DEVIATING, &case.k);
        match check::run(&set, case, dtype, device) {
            Outcome::Pass { gradients } if unsupported.or(deviating).is_none() => {
                *passes += 1;
                *with_gradients += usize::from(gradients > 0);
                continue;
            }
            Outcome::Pass { .. } => wrong.push(format!("{}: passes, though it is listed as one that does not", case.k)),
            Outcome::Unsupported(_) if unsupported.is_some() => {}
            Outcome::Fail(_) if deviating.is_some() => {}
            Outcome::Unsupported(reason) => wrong.push(format!("{}: unsupported and not listed: {reason}", case.k)),
            Outcome::Fail(difference) => wrong.push(format!("{}: {difference}", case.k)),
        }
        *others += 1;
        used.extend(unsupported.or(deviating));
    }
    for (op, [passes, with_gradients, others]) in &counts {
        println!("{op}: {passes} pass ({with_gradients} with gradients), {others} do not");
    }
    let listed = UNSUPPORTED
        .iter()
        .chain(DEVIATING)
        .filter(|(name, _)| !used.contains(name));
    wrong.extend(listed.map(|(name, _)| format!("{name}: listed, and no case is of that name")));
    assert!(
        wrong.is_empty(),
        "{} of {} cases in {dtype}:\n{}",
        wrong.len(),
        set.cases.len(),
        wrong.join("\n")
    );
}

#[test]
fn reference_in_f64() {
    hold(&Device::<polygrad_reference::Reference>::default(), DType::F64);
}

#[test]
fn reference_in_f32() {
    hold(&Device::<polygrad_reference::Reference>::default(), DType::F32);
}

#[test]
fn reference_with_its_backend_erased() {
    let device: Device<AnyBackend> = Device::<polygrad_reference::Reference>::default().into_any();
    hold(&device, DType::F64);
}

fn cpu(kernels: Kernels) -> Device<Cpu> {
    Device::from_inner(CpuDevice::new(2, kernels).unwrap())
}

#[test]
fn cpu_in_f64() {
    hold(&cpu(Kernels::Simd), DType::F64);
}

#[test]
fn cpu_in_f32() {
    hold(&cpu(Kernels::Simd), DType::F32);
}

#[test]
fn cpu_with_scalar_kernels() {
    hold(&cpu(Kernels::Scalar), DType::F64);
    hold(&cpu(Kernels::Scalar), DType::F32);
}
