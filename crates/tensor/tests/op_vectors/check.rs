//! Running a case on a backend and comparing with PyTorch's answer.

use std::collections::BTreeMap;

use polygrad_core::HostTensor;
use polygrad_tensor::{Backend, BackwardOptions, DType, Device, Result, Tensor};

use crate::adapter;
use crate::call::{Call, Stop};
use crate::set::{Case, VectorSet, keys};
use crate::tolerance::tolerance;

/// How a case ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Forward is right, and the gradients (of so many arguments) too.
    Pass { gradients: usize },
    /// Forward or gradients are wrong.
    Fail(String),
    /// The library does not offer it.
    Unsupported(String),
}

pub(crate) fn run<B: Backend>(set: &VectorSet, case: &Case, dtype: DType, device: &Device<B>) -> Outcome {
    match attempt(set, case, dtype, device) {
        Ok(gradients) => Outcome::Pass { gradients },
        Err(Stop::Unsupported(reason)) => Outcome::Unsupported(reason),
        Err(Stop::Failed(error)) => Outcome::Fail(error.to_string()),
        Err(Stop::OtherFamily) => unreachable!("the adapter ends the search"),
    }
}

fn failed<T>(message: String) -> Result<T, Stop> {
    Err(Stop::Failed(polygrad_tensor::Error::invalid(message)))
}

/// Floats in the dtype that is tested, others as they are.
fn in_dtype(host: &HostTensor, dtype: DType) -> HostTensor {
    if host.dtype().is_float() {
        host.cast(dtype)
    } else {
        host.clone()
    }
}

fn attempt<B: Backend>(set: &VectorSet, case: &Case, dtype: DType, device: &Device<B>) -> Result<usize, Stop> {
    let names: Vec<&str> = case.args.iter().chain(case.kwargs.values()).flat_map(keys).collect();
    let mut tensors = BTreeMap::new();
    for &name in &names {
        let value = Tensor::from_host(in_dtype(set.expect(name), dtype), device)?;
        let value = if set.get(&format!("{name}/g")).is_some() {
            value.requires_grad()?
        } else {
            value
        };
        tensors.insert(name.to_owned(), value);
    }
    let outputs = adapter::answer(&Call::new(case, &tensors))?;
    if outputs.len() != case.outputs {
        return failed(format!("{} outputs, PyTorch has {}", outputs.len(), case.outputs));
    }
    let (relative, absolute) = tolerance(dtype, &case.op);
    let mut loss: Option<Tensor<B>> = None;
    for (i, output) in outputs.iter().enumerate() {
        let truth = set.expect(&format!("{}/o.{i}", case.k));
        compare(&output.to_host()?, &in_dtype(truth, dtype), truth, relative, absolute)
            .or_else(|difference| failed(format!("output {i}: {difference}")))?;
        if let Some(cotangent) = set.get(&format!("{}/ct.{i}", case.k)) {
            let cotangent = Tensor::from_host(in_dtype(cotangent, dtype), device)?;
            let weighted = output.mul(&cotangent)?.sum_all()?;
            loss = Some(match loss {
                Some(sum) => (sum + weighted)?,
                None => weighted,
            });
        }
    }
    let Some(loss) = loss else {
        return Ok(0);
    };
    let leaves: Vec<_> = tensors.iter().filter(|(_, tensor)| tensor.is_leaf()).collect();
    if leaves.is_empty() {
        return Ok(0);
    }
    let gradients = loss.backward_with(&BackwardOptions::default())?;
    for (name, leaf) in &leaves {
        let truth = set.expect(&format!("{name}/g"));
        let gradient = gradients.require(*leaf)?.to_host()?;
        compare(&gradient, &in_dtype(truth, dtype), truth, relative, absolute)
            .or_else(|difference| failed(format!("gradient of {name}: {difference}")))?;
    }
    Ok(leaves.len())
}

/// Where an answer first differs from the truth, of which `shape_of` has the dtype to expect.
fn compare(
    answer: &HostTensor,
    shape_of: &HostTensor,
    truth: &HostTensor,
    relative: f64,
    absolute: f64,
) -> Result<(), String> {
    if answer.shape() != shape_of.shape() || answer.dtype() != shape_of.dtype() {
        return Err(format!(
            "{}{} where PyTorch has {}{}",
            answer.dtype(),
            answer.shape(),
            shape_of.dtype(),
            shape_of.shape()
        ));
    }
    let exact = !truth.dtype().is_float();
    for (i, (a, t)) in answer.to_f64_vec().into_iter().zip(truth.to_f64_vec()).enumerate() {
        let same = a == t || (a.is_nan() && t.is_nan());
        if !same && (exact || (a - t).is_nan() || (a - t).abs() > absolute + relative * t.abs()) {
            return Err(format!("element {i} is {a:e}, PyTorch has {t:e}"));
        }
    }
    Ok(())
}
