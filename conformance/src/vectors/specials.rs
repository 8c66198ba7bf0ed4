//! Differences from PyTorch's results for NaN, infinities, and tensors without elements.

use std::panic::{AssertUnwindSafe, catch_unwind};

use polygrad_core::HostTensor;
use polygrad_tensor::{DType, Device};

use super::call::CaseError;
use super::check::{Given, give, tensors};
use super::set::{Vector, VectorSet};
use crate::compare::{Comparison, compare, largest};
use crate::differences::{Difference, kind, word};
use crate::tolerance::tolerance;

/// All differences of a device, each once.
pub(super) fn differences(set: &VectorSet, device: &Device) -> Vec<Difference> {
    let mut all = Vec::new();
    for dtype in [DType::F64, DType::F32] {
        for case in &set.cases {
            all.extend(of_case(set, case, dtype, device));
        }
    }
    all.sort();
    all.dedup();
    all
}

fn of_case(set: &VectorSet, case: &Vector, dtype: DType, device: &Device) -> Vec<Difference> {
    let differs = |side: &str, ours: &str, theirs: &str| Difference {
        given: format!("{}{side}", given(case)),
        ours: ours.to_owned(),
        theirs: theirs.to_owned(),
        op: match case.variant.as_str() {
            // These are names of sets, not variants of the op.
            "" | "own" | "edge" => case.op.clone(),
            variant => format!("{}.{variant}", case.op),
        },
    };
    let run = || give(set, case, dtype, dtype, device);
    let found = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(found) => found,
        Err(_) => return vec![differs("", "a panic", "")],
    };
    let found = match found {
        Ok(found) => found,
        // Unsupported by the library.
        Err(CaseError::Unsupported(_) | CaseError::OtherFamily) => return Vec::new(),
        Err(CaseError::Failed(_)) if case.refused => return Vec::new(),
        Err(CaseError::Failed(_)) => {
            let theirs = set.get(&format!("{}/o.0", case.k)).ok().flatten();
            return vec![differs("", "an error", &theirs.map_or_else(String::new, kind))];
        }
    };
    if case.refused {
        let ours = found.outputs.first().map_or_else(String::new, kind);
        return vec![differs("", &ours, "an error")];
    }
    let mut all = Vec::new();
    let mut judge = |side: &str, ours: &HostTensor, key: &str| {
        if let Ok(Some(theirs)) = set.get(key)
            && let Some((ours, theirs)) = difference(ours, theirs, dtype, &case.op)
        {
            all.push(differs(side, &ours, &theirs));
        }
    };
    let Given { outputs, gradients } = found;
    for (i, output) in outputs.iter().enumerate() {
        judge("", output, &format!("{}/o.{i}", case.k));
    }
    match gradients {
        Ok(gradients) => gradients
            .iter()
            .for_each(|(key, gradient)| judge(", its gradient", gradient, &format!("{key}/g"))),
        Err(_) if tensors(case).any(|key| matches!(set.get(&format!("{key}/g")), Ok(Some(_)))) => {
            all.push(differs(", its gradient", "an error", "a gradient"));
        }
        Err(_) => {}
    }
    all
}

/// The input, in words.
fn given(case: &Vector) -> &str {
    match case.special.as_str() {
        "nan" => "NaN",
        "inf" => "∞",
        "-inf" => "−∞",
        _ => "no elements",
    }
}

/// The first element that differs, in words: ours and theirs.
fn difference(ours: &HostTensor, theirs: &HostTensor, dtype: DType, op: &str) -> Option<(String, String)> {
    let float = theirs.dtype().is_float();
    let dtype = if float { dtype } else { theirs.dtype() };
    let bounds = tolerance(dtype, op);
    compare(
        ours,
        &Comparison {
            truth: theirs,
            dtype,
            bounds,
        },
    )
    .err()?;
    if ours.shape() != theirs.shape() || ours.dtype() != dtype {
        let shape = |host: &HostTensor| format!("shape {}", host.shape());
        return Some((shape(ours), shape(theirs)));
    }
    let largest = largest(theirs);
    let is_near = |a: f64, b: f64| (a - b).abs() <= bounds.around(b, largest);
    let pairs = ours.to_f64_vec().into_iter().zip(theirs.to_f64_vec());
    let far = pairs.filter(|&(a, b)| a != b && !(a.is_nan() && b.is_nan()) && !is_near(a, b));
    let mut words: Vec<_> = far.map(|(a, b)| (word(a), word(b))).collect();
    // An element where only one of both is a number says more than those that follow from it.
    words.sort_by_key(|(a, b)| a == b);
    let both = match words[..] {
        [(a, b), ..] if a != b => (a, b),
        // Numbers are compared in f64, without rounded operands as an excuse; underflowing counts as a number, too.
        _ if dtype == DType::F32 => return None,
        _ => ("a number", "another number"),
    };
    Some((both.0.to_owned(), both.1.to_owned()))
}
