//! Runs a case on a backend and compares with PyTorch's results.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use polygrad_core::HostTensor;
use polygrad_reference::Reference;
use polygrad_tensor::{AnyBackend, BackwardOptions, DType, Device, Tensor};

use super::adapter;
use super::call::{Call, CaseError, CaseResult};
use super::proof::{self, Others};
use super::rounding;
use super::set::{Vector, VectorSet, keys};
use crate::case::{Outcome, Status};
use crate::compare::{Comparison, compare};
use crate::tolerance::tolerance;

/// The results of a case: its outputs, and the gradients by the arguments' keys, or why there are none.
pub(super) struct Given {
    pub(super) outputs: Vec<HostTensor>,
    pub(super) gradients: CaseResult<BTreeMap<String, HostTensor>>,
}

/// Runs a case in a dtype and judges outputs and gradients separately.
///
/// In a dtype narrower than f64 the inputs are rounded. An answer is correct if it is near PyTorch's, or near the
/// result of PyTorch's op for the rounded inputs. That result is computed by the reference backend, provided that it
/// agrees with PyTorch without rounding. Intermediate values of some cases exceed a dtype's range or precision. Such a
/// case is unsupported if there is proof: PyTorch itself is as far off, according to the set; or the reference is, with
/// each step computed in f64 and rounded to the dtype's digits. Exceeding the range alone is no proof of the second
/// kind, since the reference's steps do not overflow.
pub(crate) fn run(set: &VectorSet, case: &Vector, dtype: DType, device: &Device<AnyBackend>) -> Outcome {
    let wants_gradients = match wants_gradients(set, case) {
        Ok(wanted) => wanted,
        Err(reason) => return Outcome::forward(Status::Fail(reason)),
    };
    let given = match give(set, case, dtype, dtype, device) {
        Ok(given) => given,
        Err(stop) => {
            let status = status(stop);
            let gradient = wants_gradients.then(|| status.clone());
            return Outcome {
                forward: Some(status),
                gradient,
            };
        }
    };
    let judge = Judge::new(set, case, dtype);
    let forward = judge.outputs(&given.outputs);
    let gradient = wants_gradients.then(|| match given.gradients {
        Ok(gradients) => judge.gradients(&gradients),
        Err(stop) => status(stop),
    });
    Outcome {
        forward: Some(forward),
        gradient,
    }
}

/// The verdict on zeros in place of each recorded float tensor that is not all zeros in this dtype, by the tensor's
/// key.
pub(super) fn zeros(set: &VectorSet, case: &Vector, dtype: DType) -> Result<BTreeMap<String, Status>, String> {
    let judge = Judge::new(set, case, dtype);
    let mut found = BTreeMap::new();
    let mut ask = |key: String, pick: Pick<'_>| -> Result<(), String> {
        let Some(truth) = set.get(&key)?.filter(|truth| truth.dtype().is_float()) else {
            return Ok(());
        };
        let zeros = HostTensor::new(*truth.shape(), vec![0.0; truth.shape().numel()]);
        let zeros = zeros.map_err(|error| error.to_string())?.cast(dtype);
        let is_zero = |host: &HostTensor| host.cast(dtype).to_f64_vec() == zeros.to_f64_vec();
        if is_zero(truth) {
            return Ok(());
        }
        let status = judge.judge(&zeros, &key, truth, pick);
        // A truth that is only the rounding error of 0, or that is 0 for the rounded inputs.
        let left_over = || {
            judge
                .stand()
                .rounded
                .as_ref()
                .and_then(pick)
                .is_some_and(|truth| is_zero(&truth))
        };
        if !status.passes() || !left_over() {
            found.insert(key.clone(), status);
        }
        Ok(())
    };
    for i in 0..case.outputs {
        ask(format!("{}/o.{i}", case.k), &|given| given.outputs.get(i).cloned())?;
    }
    if wants_gradients(set, case)? {
        for key in tensors(case) {
            ask(format!("{key}/g"), &|given| {
                given.gradients.as_ref().ok()?.get(key).cloned()
            })?;
        }
    }
    Ok(found)
}

fn status(stop: CaseError) -> Status {
    match stop {
        CaseError::Unsupported(reason) => Status::Unsupported(reason),
        CaseError::Failed(reason) => Status::Fail(reason),
        CaseError::OtherFamily => Status::Unsupported("the adapter does not know this op".to_owned()),
    }
}

fn failed<T>(reason: impl Into<String>) -> CaseResult<T> {
    Err(CaseError::Failed(reason.into()))
}

/// The keys of a case's tensors, in the order of its arguments.
pub(super) fn tensors(case: &Vector) -> impl Iterator<Item = &str> {
    case.args.iter().chain(case.kwargs.values()).flat_map(keys)
}

/// Whether PyTorch's gradient is known for any argument, and a cotangent for any output.
pub(super) fn wants_gradients(set: &VectorSet, case: &Vector) -> Result<bool, String> {
    let mut cotangents = false;
    for i in 0..case.outputs {
        cotangents |= set.get(&format!("{}/ct.{i}", case.k))?.is_some();
        // No op has that many outputs: an invalid number must not cause a long loop.
        if !cotangents && set.get(&format!("{}/o.{i}", case.k))?.is_none() {
            break;
        }
    }
    let mut gradients = false;
    for key in tensors(case) {
        gradients |= set.get(&format!("{key}/g"))?.is_some();
    }
    Ok(cotangents && gradients)
}

/// Floats rounded to one dtype and stored in another; others unchanged.
fn rounded(host: &HostTensor, to: DType, held: DType) -> HostTensor {
    if host.dtype().is_float() {
        host.cast(to).cast(held)
    } else {
        host.clone()
    }
}

/// Runs a case with its inputs rounded to one dtype, computing in another.
pub(super) fn give(
    set: &VectorSet,
    case: &Vector,
    inputs_in: DType,
    dtype: DType,
    device: &Device<AnyBackend>,
) -> CaseResult<Given> {
    let mut arguments = BTreeMap::new();
    for key in tensors(case) {
        let host = set.require(key).or_else(failed)?;
        let value = Tensor::from_host(rounded(host, inputs_in, dtype), device)?;
        let known = set.get(&format!("{key}/g")).or_else(failed)?.is_some();
        let value = if known { value.requires_grad()? } else { value };
        arguments.insert(key.to_owned(), value);
    }
    let call = Call::new(case, &arguments, dtype);
    let outputs = adapter::answer(&call)?;
    let replaced = call.into_replaced();
    arguments.extend(replaced);
    let hosts = outputs.iter().map(Tensor::to_host).collect::<Result<_, _>>()?;
    Ok(Given {
        outputs: hosts,
        gradients: gradients(set, case, inputs_in, dtype, device, &arguments, &outputs),
    })
}

fn gradients(
    set: &VectorSet,
    case: &Vector,
    inputs_in: DType,
    dtype: DType,
    device: &Device<AnyBackend>,
    arguments: &BTreeMap<String, Tensor<AnyBackend>>,
    outputs: &[Tensor<AnyBackend>],
) -> CaseResult<BTreeMap<String, HostTensor>> {
    let mut loss: Option<Tensor<AnyBackend>> = None;
    for (i, output) in outputs.iter().enumerate() {
        let Some(cotangent) = set.get(&format!("{}/ct.{i}", case.k)).or_else(failed)? else {
            continue;
        };
        if *cotangent.shape() != output.shape() {
            let shapes = (output.shape(), cotangent.shape());
            return failed(format!("output {i} has shape {}, its cotangent {}", shapes.0, shapes.1));
        }
        let cotangent = Tensor::from_host(rounded(cotangent, inputs_in, dtype), device)?;
        let weighted = output.mul(&cotangent)?.sum_all()?;
        loss = Some(match loss {
            Some(sum) => (sum + weighted)?,
            None => weighted,
        });
    }
    let leaves: Vec<_> = arguments.iter().filter(|(_, tensor)| tensor.is_leaf()).collect();
    let (Some(loss), false) = (loss, leaves.is_empty()) else {
        return Ok(BTreeMap::new());
    };
    let gradients = loss.backward_with(&BackwardOptions::default())?;
    let read = leaves.into_iter().map(|(key, leaf)| {
        let gradient = gradients
            .require(leaf)
            .map_err(|e| CaseError::Failed(format!("{key}: {e}")))?;
        Ok((key.clone(), gradient.to_host()?))
    });
    read.collect()
}

/// The reference's answers to a case.
struct Stand {
    /// Computed in f64, for PyTorch's own inputs.
    exact: Option<Given>,
    /// Computed in f64, for the rounded inputs.
    rounded: Option<Given>,
}

/// Selects one result of a case.
type Pick<'a> = &'a dyn Fn(&Given) -> Option<HostTensor>;

/// Compares with the truth, and if that differs, with the truth for the rounded inputs.
struct Judge<'a> {
    set: &'a VectorSet,
    case: &'a Vector,
    dtype: DType,
    stand: OnceCell<Stand>,
    roundings: [OnceCell<Vec<Given>>; 2],
}

impl<'a> Judge<'a> {
    fn new(set: &'a VectorSet, case: &'a Vector, dtype: DType) -> Self {
        Self {
            set,
            case,
            dtype,
            stand: OnceCell::new(),
            roundings: [const { OnceCell::new() }; 2],
        }
    }

    /// The reference's results, computed at first use.
    fn stand(&self) -> &Stand {
        self.stand.get_or_init(|| {
            let device = Device::<Reference>::default().into_any();
            let compute = |inputs_in| give(self.set, self.case, inputs_in, DType::F64, &device).ok();
            Stand {
                exact: compute(DType::F64),
                rounded: compute(self.dtype),
            }
        })
    }

    /// The reference's results for inputs in a dtype with each step rounded to the dtype's digits, several times.
    fn rounded_steps(&self, dtype: DType) -> &[Given] {
        let [exact, own] = &self.roundings;
        let cell = if dtype == DType::F64 { exact } else { own };
        cell.get_or_init(|| {
            let run = |seed| {
                let device = rounding::device(proof::digits_of_steps(dtype), seed);
                give(self.set, self.case, dtype, DType::F64, &device).ok()
            };
            (0..proof::RUNS).filter_map(run).collect()
        })
    }

    fn compare(&self, answer: &HostTensor, truth: &HostTensor, dtype: DType) -> Result<(), String> {
        let bounds = tolerance(dtype, &self.case.op);
        let dtype = if truth.dtype().is_float() { dtype } else { truth.dtype() };
        compare(answer, &Comparison { truth, dtype, bounds })
    }

    /// Why an answer that differs from the truth in a dtype is as near as possible: PyTorch itself, or the reference
    /// with each step rounded to the dtype's digits, is as far off.
    fn excused(
        &self,
        answer: &HostTensor,
        key: &str,
        truth: &HostTensor,
        dtype: DType,
        pick: Pick<'_>,
    ) -> Option<String> {
        if !truth.dtype().is_float() || !answer.dtype().is_float() {
            return None;
        }
        let bounds = tolerance(dtype, &self.case.op);
        let own = self.set.get(&format!("{key}@{dtype}")).ok().flatten();
        let by_pytorch = Others {
            name: &format!("PyTorch's own {dtype}"),
            results: own.map(std::slice::from_ref).unwrap_or_default(),
            scale: 1.0,
            beyond_range: true,
        };
        if let Some(found) = proof::as_far_off(answer, truth, &by_pytorch, bounds) {
            return Some(found);
        }
        let runs: Vec<HostTensor> = self.rounded_steps(dtype).iter().filter_map(pick).collect();
        let by_rounding = Others {
            name: &format!("the reference with each step rounded to {dtype}'s digits"),
            results: &runs,
            scale: proof::scale(dtype),
            beyond_range: false,
        };
        proof::as_far_off(answer, truth, &by_rounding, bounds)
    }

    fn judge(&self, answer: &HostTensor, key: &str, truth: &HostTensor, pick: Pick<'_>) -> Status {
        let Err(difference) = self.compare(answer, truth, self.dtype) else {
            return Status::Pass;
        };
        // Rounding does not change shapes and dtypes.
        let held = if truth.dtype().is_float() {
            self.dtype
        } else {
            truth.dtype()
        };
        if answer.shape() != truth.shape() || answer.dtype() != held {
            return Status::Fail(difference);
        }
        let stand = self.stand();
        let [exact, rounded] = [&stand.exact, &stand.rounded].map(|given| pick(given.as_ref()?));
        // If the reference does not agree with PyTorch, it cannot replace it.
        let trusted = exact.is_some_and(|exact| {
            self.compare(&exact, truth, DType::F64).is_ok()
                || self.excused(&exact, key, truth, DType::F64, pick).is_some()
        });
        let dtype = self.dtype;
        if let (true, Some(rounded)) = (trusted, &rounded) {
            if self.compare(answer, rounded, dtype).is_ok() {
                return Status::Pass;
            }
            if let Some(why) = self.excused(answer, key, rounded, dtype, pick) {
                return Status::Unsupported(format!("{dtype} does not carry this: {difference}; {why}"));
            }
        }
        Status::Fail(difference)
    }

    fn outputs(&self, answers: &[HostTensor]) -> Status {
        if answers.len() != self.case.outputs {
            return Status::Fail(format!("{} outputs, PyTorch has {}", answers.len(), self.case.outputs));
        }
        let each = answers.iter().enumerate().map(|(i, answer)| {
            let pick = move |given: &Given| given.outputs.get(i).cloned();
            let key = format!("{}/o.{i}", self.case.k);
            (format!("output {i}"), key, answer, pick)
        });
        self.all(each)
    }

    fn gradients(&self, answers: &BTreeMap<String, HostTensor>) -> Status {
        let each = answers.iter().map(|(key, answer)| {
            let pick = move |given: &Given| given.gradients.as_ref().ok()?.get(key).cloned();
            (format!("gradient of {key}"), format!("{key}/g"), answer, pick)
        });
        self.all(each)
    }

    /// Checks each of these and returns the first that is wrong. Each has a name, the key of its truth, a value, and
    /// the way to select it from the reference's results.
    fn all<'b, P: Fn(&Given) -> Option<HostTensor>>(
        &self,
        each: impl Iterator<Item = (String, String, &'b HostTensor, P)>,
    ) -> Status {
        for (what, key, answer, pick) in each {
            let status = match self.set.require(&key) {
                Ok(truth) => self.judge(answer, &key, truth, &pick),
                Err(reason) => Status::Fail(reason),
            };
            match status {
                Status::Pass => {}
                Status::Fail(why) => return Status::Fail(format!("{what}: {why}")),
                Status::Unsupported(why) => return Status::Unsupported(format!("{what}: {why}")),
            }
        }
        Status::Pass
    }
}
