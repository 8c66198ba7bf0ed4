//! Gradients of the recorded cases, without PyTorch: compared with differences of values in f64, to second order if the
//! op is smooth. Also checks that results without a gradient have none.

use std::collections::BTreeMap;
use std::sync::Arc;

use polygrad_core::{DType, Error, ErrorKind, HostTensor, Result};
use polygrad_tensor::{AnyBackend, Device, Tensor};

use super::adapter;
use super::call::{Call, CaseError};
use super::check::tensors;
use super::set::{Vector, VectorSet};
use super::slopes::{self, Values};
use crate::case::{Case, Outcome, Source, Status};

type Any = Tensor<AnyBackend>;

/// The most elements of all inputs together, since differences would take too long beyond it. The second order takes
/// the square of their number.
const FIRST: usize = 120;
const SECOND: usize = 24;
/// The number of cases of one op at each order.
const PER_OP: usize = 6;

/// Ops whose results carry no gradient, whatever they are given.
const WITHOUT: &[&str] = &[
    "argmax",
    "argmin",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "isnan",
    "isfinite",
    "logical_and",
    "logical_or",
    "logical_not",
];

/// Ops for whose samples differences of values are meaningless, and why. They are still compared with PyTorch's
/// gradients.
const SKIPPED: &[(&str, &str)] = &[
    ("round", "steps"),
    ("floor", "steps"),
    ("ceil", "steps"),
    ("sign", "a step"),
    (
        "pow",
        "the samples' powers reach 1e20, and differences of such numbers are noise",
    ),
];

/// The cases of a set, in f64.
pub(crate) fn cases(set: &Arc<VectorSet>) -> Vec<Case> {
    let mut order: Vec<usize> = (0..set.cases.len()).collect();
    order.sort_by_key(|&i| elements(set, &set.cases[i]));
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut chosen = Vec::new();
    for i in order {
        let vector = &set.cases[i];
        let size = elements(set, vector);
        let without = WITHOUT.contains(&vector.op.as_str());
        let skipped = SKIPPED.iter().any(|(op, _)| *op == vector.op);
        // By definition, whatever the values are, the gradient of the padding row is 0, and that of a variance below
        // the minimum is not.
        let given = |name: &str| vector.kwargs.contains_key(name);
        let defined = given("padding_idx") || vector.op == "nn.GaussianNLLLoss" && given("eps");
        for (order, limit, applies) in [
            ("none", usize::MAX, without),
            ("numerical", FIRST, !without && !skipped && !defined && size > 0),
            ("second", SECOND, !without && !skipped && !defined && size > 0),
        ] {
            let count = counts.entry((&vector.op, order)).or_default();
            if applies && size <= limit && *count < PER_OP {
                *count += 1;
                chosen.push((i, order));
            }
        }
    }
    chosen.sort_unstable();
    let case = |(i, order): (usize, &'static str)| {
        let vector = &set.cases[i];
        let set = Arc::clone(set);
        let run = move |device: &Device<AnyBackend>| Outcome::gradient(run(&set, &set.cases[i], order, device));
        Case::new(
            Source::Gradients,
            format!("{}/{order}", vector.k),
            vector.op.clone(),
            DType::F64,
            run,
        )
    };
    chosen.into_iter().map(case).collect()
}

/// Elements of the arguments that a gradient is known for.
fn elements(set: &VectorSet, vector: &Vector) -> usize {
    let known = tensors(vector).filter(|key| matches!(set.get(&format!("{key}/g")), Ok(Some(_))));
    known.filter_map(|key| Some(set.get(key).ok()??.shape().numel())).sum()
}

fn run(set: &VectorSet, vector: &Vector, order: &str, device: &Device<AnyBackend>) -> Status {
    let done = match order {
        "none" => none(set, vector, device),
        order => differences(set, vector, order == "second", device),
    };
    match done {
        Ok(()) => Status::Pass,
        Err(error) if error.kind() == ErrorKind::Unsupported => Status::Unsupported(error.to_string()),
        Err(error) => Status::Fail(error.to_string()),
    }
}

fn into_error(stop: CaseError) -> Error {
    match stop {
        CaseError::Failed(reason) => Error::invalid(reason),
        CaseError::Unsupported(reason) => Error::unsupported(reason),
        CaseError::OtherFamily => Error::unsupported("the adapter does not know this op"),
    }
}

/// A case's tensors on a device.
fn arguments(set: &VectorSet, vector: &Vector, device: &Device<AnyBackend>) -> Result<BTreeMap<String, Any>> {
    let read = |key: &str| {
        let host = set.require(key).map_err(Error::unsupported)?;
        Ok((key.to_owned(), Tensor::from_host(host.clone(), device)?))
    };
    tensors(vector).map(read).collect()
}

fn differences(set: &VectorSet, vector: &Vector, second: bool, device: &Device<AnyBackend>) -> Result<()> {
    let constants = arguments(set, vector, device)?;
    let known = |key: &&String| matches!(set.get(&format!("{key}/g")), Ok(Some(_)));
    let names: Vec<&String> = constants.keys().filter(known).collect();
    let inputs: Vec<Any> = names.iter().filter_map(|&name| constants.get(name).cloned()).collect();
    let is_finite = |g: &HostTensor| g.to_f64_vec().iter().all(|x| x.is_finite());
    let finite = |name: &&String| matches!(set.get(&format!("{name}/g")), Ok(Some(g)) if is_finite(g));
    if !names.iter().all(finite) {
        return Err(Error::unsupported("PyTorch's gradient is infinite or no number"));
    }
    let counts = |i: &usize| matches!(set.get(&format!("{}/ct.{i}", vector.k)), Ok(Some(_)));
    let function = |xs: &[Any]| {
        let mut tensors = constants.clone();
        tensors.extend(names.iter().zip(xs).map(|(&name, x)| (name.clone(), x.clone())));
        let call = Call::new(vector, &tensors, DType::F64);
        let outputs = adapter::answer(&call).map_err(into_error)?;
        // A layer's parameters take over the values of its state, and so their roles.
        let replaced = call.into_replaced();
        let leaf = |(name, x): (&&String, &Any)| replaced.get(*name).unwrap_or(x).clone();
        Ok(Values {
            output: joined((0..outputs.len()).filter(counts).filter_map(|i| outputs.get(i)))?,
            leaves: names.iter().zip(xs).map(leaf).collect(),
        })
    };
    match second {
        true => slopes::second(&function, &inputs),
        false => slopes::first(&function, &inputs),
    }
}

/// All outputs flattened and concatenated into one tensor.
fn joined<'a>(outputs: impl Iterator<Item = &'a Any>) -> Result<Any> {
    let flat: Vec<Any> = outputs
        .map(|output| output.reshape([output.numel()]))
        .collect::<Result<_>>()?;
    match flat.as_slice() {
        [] => Err(Error::unsupported("no result has a gradient")),
        [one] => Ok(one.clone()),
        many => Tensor::cat(&many.iter().collect::<Vec<_>>(), 0),
    }
}

/// Checks that the results are not tracked, and that requesting a gradient is an error.
fn none(set: &VectorSet, vector: &Vector, device: &Device<AnyBackend>) -> Result<()> {
    let mut tensors = arguments(set, vector, device)?;
    let mut leaves = 0;
    for tensor in tensors.values_mut().filter(|tensor| tensor.dtype().is_float()) {
        *tensor = tensor.clone().requires_grad()?;
        leaves += 1;
    }
    if leaves == 0 {
        return Err(Error::unsupported("no argument is of a float dtype"));
    }
    for (i, output) in adapter::answer(&Call::new(vector, &tensors, DType::F64))
        .map_err(into_error)?
        .iter()
        .enumerate()
    {
        if output.is_tracked() {
            return Err(Error::new(
                ErrorKind::NoGradient,
                format!("output {i} is tracked, and has no gradient"),
            ));
        }
        let asked = output.to_dtype(DType::F64)?.sum_all()?.backward();
        match asked {
            Ok(_) => return Err(Error::invalid(format!("backward from output {i} is no error"))),
            Err(error) if error.kind() == ErrorKind::NoGradient => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
