//! Runs a program: its values, its gradients, and second-order gradients.

use polygrad_core::{DType, Error, HostTensor, Result};
use polygrad_tensor::{AnyBackend, BackwardOptions, Device, Gradients, Tensor};

use super::program::{Dtypes, Kind, Program, Role};

type T = Tensor<AnyBackend>;

/// The inputs on a device.
///
/// # Errors
/// Errors of the device.
pub(crate) fn placed(hosts: &[HostTensor], device: &Device) -> Result<Vec<T>> {
    hosts
        .iter()
        .map(|host| Tensor::from_host(host.clone(), device))
        .collect()
}

impl Program {
    /// Computes its outputs from its inputs. Values are dropped after their last use.
    ///
    /// # Errors
    /// Errors of the calls; a number of inputs, or of results of a call, that differs from the program's.
    pub fn forward(&self, inputs: &[T], dtypes: Dtypes) -> Result<Vec<T>> {
        if inputs.len() != self.inputs.len() {
            let (given, wanted) = (inputs.len(), self.inputs.len());
            return Err(Error::invalid(format!(
                "a program of {wanted} inputs was given {given}"
            )));
        }
        let last = self.last_uses();
        let mut values: Vec<Option<T>> = inputs.iter().cloned().map(Some).collect();
        for (i, step) in self.steps.iter().enumerate() {
            let mut operands = Vec::with_capacity(step.operands.len());
            for (k, &operand) in step.operands.iter().enumerate() {
                let goes = last[operand] == Some(i) && !step.operands[k + 1..].contains(&operand);
                let value = if goes {
                    values[operand].take()
                } else {
                    values[operand].clone()
                };
                operands.push(value.expect("a value is there until its last use"));
            }
            let results = step.call.run(operands, &step.args, dtypes)?;
            if results.len() != step.results {
                let (name, given) = (step.call.name, results.len());
                return Err(Error::invalid(format!(
                    "{name} gives {given} tensors, not {}",
                    step.results
                )));
            }
            values.extend(results.into_iter().map(Some));
        }
        let output = |&output: &usize| values[output].clone().expect("outputs stay");
        Ok(self.outputs.iter().map(output).collect())
    }
}

/// The inputs, with those that are leaves tracked.
///
/// # Errors
/// If one is not a float, which only happens in programs that were edited by hand.
pub(crate) fn leaves(program: &Program, inputs: &[T]) -> Result<Vec<T>> {
    let leaf = |(x, input): (&T, &super::program::Input)| match input.role {
        Role::Leaf if program.order > 0 => x.detach().requires_grad(),
        _ => Ok(x.detach()),
    };
    inputs.iter().zip(&program.inputs).map(leaf).collect()
}

/// The scalar that is differentiated: the sum of all float outputs that depend on a leaf, each element with its own
/// weight.
///
/// # Errors
/// Errors of the device.
pub(crate) fn objective(outputs: &[T], dtypes: Dtypes) -> Result<Option<T>> {
    let mut total: Option<T> = None;
    for (i, output) in outputs.iter().enumerate() {
        if !output.is_tracked() || !output.dtype().is_float() || output.numel() == 0 {
            continue;
        }
        let weights = weights(output, i)?;
        let sum = output.mul(&weights)?.sum_all()?.to_dtype(dtypes.of(Kind::Tested))?;
        total = Some(match total {
            None => sum,
            Some(total) => total.add(&sum)?,
        });
    }
    Ok(total)
}

/// Numbers that are exact in any dtype, with no two adjacent ones alike.
pub(crate) const WEIGHTS: [f64; 7] = [1.0, -0.5, 0.75, 0.25, -1.0, 0.5, -0.75];

fn weights(like: &T, first: usize) -> Result<T> {
    let numbers: Vec<f64> = (0..like.numel())
        .map(|i| WEIGHTS[(i + first) % WEIGHTS.len()])
        .collect();
    let host = HostTensor::new(like.shape(), numbers)?.cast(like.dtype());
    Tensor::from_host(host, &like.device())
}

/// The results of a run, with their names.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) names: Vec<String>,
    pub(crate) tensors: Vec<T>,
}

impl Answers {
    pub(crate) fn push(&mut self, name: String, tensor: T) {
        self.names.push(name);
        self.tensors.push(tensor);
    }
}

/// The outputs, the gradients of their [objective], and the gradients of the objective of these.
///
/// # Errors
/// Errors of the calls and of the device.
pub(crate) fn everything(program: &Program, inputs: &[T], dtypes: Dtypes) -> Result<Answers> {
    let leaves = leaves(program, inputs)?;
    let outputs = program.forward(&leaves, dtypes)?;
    let mut answers = Answers::default();
    for (i, output) in outputs.iter().enumerate() {
        answers.push(format!("output {i}"), output.detach());
    }
    if program.order == 0 {
        return Ok(answers);
    }
    let Some(objective) = objective(&outputs, dtypes)? else {
        return Ok(answers);
    };
    drop(outputs);
    let first = objective.backward_with(&BackwardOptions::default().create_graph(program.order > 1))?;
    drop(objective);
    let found = of_leaves(&leaves, &first);
    for (i, gradient) in &found {
        answers.push(format!("gradient of v{i}"), gradient.detach());
    }
    if program.order == 1 {
        return Ok(answers);
    }
    let gradients: Vec<T> = found.into_iter().map(|(_, gradient)| gradient).collect();
    drop(first);
    if let Some(objective) = self::objective(&gradients, dtypes)? {
        drop(gradients);
        let second = objective.backward()?;
        for (i, gradient) in of_leaves(&leaves, &second) {
            answers.push(format!("second gradient of v{i}"), gradient.detach());
        }
    }
    Ok(answers)
}

fn of_leaves(leaves: &[T], gradients: &Gradients) -> Vec<(usize, T)> {
    let leaves = leaves.iter().enumerate().filter(|(_, leaf)| leaf.is_leaf());
    let of = |(i, leaf): (usize, &T)| Some((i, gradients.get(leaf)?.clone()));
    leaves.filter_map(of).collect()
}

/// Copies tensors to the host.
///
/// # Errors
/// Errors of the device.
pub(crate) fn fetched(tensors: &[T]) -> Result<Vec<HostTensor>> {
    tensors.iter().map(Tensor::to_host).collect()
}

/// The narrowest float dtype among the values that a program computes in these dtypes.
pub(crate) fn narrowest(program: &Program, tested: DType) -> DType {
    use super::calls::Arg;
    use crate::tolerance::digits;
    let kinds = program.inputs.iter().map(|input| input.kind);
    let args = program.steps.iter().flat_map(|step| &step.args);
    let casts = args.filter_map(|arg| match arg {
        Arg::Kind(kind) => Some(*kind),
        _ => None,
    });
    let dtypes = kinds.chain(casts).map(|kind| Dtypes { tested, wide: false }.of(kind));
    let floats = dtypes.filter(|dtype| dtype.is_float()).chain([tested]);
    floats.min_by_key(|&dtype| digits(dtype)).unwrap_or(tested)
}
