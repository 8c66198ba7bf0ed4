//! The mean of several state dicts.

use polygrad_tensor::{Error, ErrorKind, HostTensor, Result};

use super::StateDict;

const OP: &str = "StateDict::average";

impl StateDict {
    /// The average of several models' values, such as those of a run's last checkpoints, which often performs better
    /// than each of them. Floats are averaged in f64 and keep their dtype; integers, such as counts of batches, are
    /// taken from the last model.
    ///
    /// ```
    /// # use polygrad_nn::{Linear, Module, StateDict};
    /// # use polygrad_reference::Reference;
    /// # use polygrad_tensor::{Device, Result};
    /// # fn main() -> Result<()> {
    /// # let device = Device::<Reference>::default();
    /// # let model = Linear::new(3, 2, &device)?;
    /// # let (a, b) = (model.state_dict()?, Linear::new(3, 2, &device)?.state_dict()?);
    /// // Of files: StateDict::load("a.safetensors")?
    /// model.load_state_dict(&StateDict::average([&a, &b])?, true)?;
    /// model.load_state_dict(&StateDict::weighted_average([(&a, 0.3), (&b, 0.7)])?, true)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Source: Izmailov et al., "Averaging weights leads to wider optima and better generalization" (2018).
    ///
    /// # Errors
    /// [`ErrorKind::StateDict`] when there are no models, or one has other names, shapes or dtypes than the first.
    pub fn average<'a>(states: impl IntoIterator<Item = &'a Self>) -> Result<Self> {
        Self::weighted_average(states.into_iter().map(|state| (state, 1.0)))
    }

    /// [`StateDict::average`] with a weight for each model; only the ratios of the weights matter.
    ///
    /// # Errors
    /// As [`StateDict::average`]; when a weight is negative or not a number, or all are 0.
    pub fn weighted_average<'a>(states: impl IntoIterator<Item = (&'a Self, f64)>) -> Result<Self> {
        let states: Vec<(&Self, f64)> = states.into_iter().collect();
        let [(first, _), rest @ ..] = &states[..] else {
            return Err(differing("there are no state dicts".to_owned()));
        };
        for (i, (state, _)) in rest.iter().enumerate() {
            same(first, state)
                .map_err(|what| differing(format!("state dict {} of {}: {what}", i + 2, states.len())))?;
        }
        let total: f64 = states.iter().map(|(_, weight)| weight).sum();
        let wrong = |weight: f64| weight < 0.0 || !weight.is_finite();
        if states.iter().any(|&(_, weight)| wrong(weight)) || total <= 0.0 || !total.is_finite() {
            let weights: Vec<f64> = states.iter().map(|&(_, weight)| weight).collect();
            return Err(Error::invalid(format!("the weights {weights:?} have no mean"))
                .with_op(OP)
                .with_hint("each is 0 or above, and one is above 0"));
        }
        let of = |name: &str, value: &HostTensor| {
            let all = || {
                states
                    .iter()
                    .filter_map(|(state, weight)| Some((state.get(name)?, *weight)))
            };
            if !value.dtype().is_float() {
                return Ok(all()
                    .next_back()
                    .map_or_else(|| value.clone(), |(last, _)| last.clone()));
            }
            let mut sums = vec![0.0; value.shape().numel()];
            for (value, weight) in all().filter(|&(_, weight)| weight > 0.0) {
                for (sum, value) in sums.iter_mut().zip(value.to_f64_vec()) {
                    *sum += weight / total * value;
                }
            }
            Ok(HostTensor::new(*value.shape(), sums)?.cast(value.dtype()))
        };
        first
            .iter()
            .map(|(name, value)| Ok((name.to_owned(), of(name, value)?)))
            .collect()
    }
}

/// Describes how a state dict differs from the first one.
fn same(first: &StateDict, other: &StateDict) -> std::result::Result<(), String> {
    let lacks = |a: &StateDict, b: &StateDict| -> Vec<String> {
        a.keys().filter(|name| !b.contains(name)).map(str::to_owned).collect()
    };
    let (missing, unexpected) = (lacks(first, other), lacks(other, first));
    let mut differences = Vec::new();
    if !missing.is_empty() {
        differences.push(format!("missing: {}", missing.join(", ")));
    }
    if !unexpected.is_empty() {
        differences.push(format!("unexpected: {}", unexpected.join(", ")));
    }
    let kind = |value: &HostTensor| format!("{}{}", value.dtype(), value.shape());
    let unlike = first.iter().filter_map(|(name, value)| {
        let (first, other) = (kind(value), kind(other.get(name)?));
        (first != other).then(|| format!("{name} ({first} in the first, {other} here)"))
    });
    let unlike: Vec<String> = unlike.collect();
    if !unlike.is_empty() {
        differences.push(format!("mismatched: {}", unlike.join(", ")));
    }
    match differences.is_empty() {
        true => Ok(()),
        false => Err(differences.join("; ")),
    }
}

fn differing(text: String) -> Error {
    Error::new(ErrorKind::StateDict, text)
        .with_op(OP)
        .with_hint("average models of one architecture, saved in one dtype")
}
