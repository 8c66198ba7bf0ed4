//! One layer in one direction, step by step.

use polygrad_tensor::{Backend, Result, Tensor};

use super::lengths::Lengths;
use super::recurrence::Recurrence;
use super::state::RecurrentState;
use super::weights::RecurrentWeights;

/// From an input `[T, N, C]` and a state of `[N, H]` to the outputs `[T, N, H]` and the last state.
pub(super) fn scan<K: Recurrence, B: Backend>(
    kind: K,
    weights: &RecurrentWeights<B>,
    x: &Tensor<B>,
    initial: K::State<B>,
    lengths: Option<&Lengths<B>>,
    reverse: bool,
) -> Result<(Tensor<B>, K::State<B>)> {
    let initial = if K::KEEPS_F32 {
        initial
    } else {
        K::State::merge(&[&initial], |parts| parts[0].autocast())?
    };
    if lengths.is_none()
        && let Some(done) = weights.sequence(kind, x, &initial, reverse)?
    {
        return Ok(done);
    }
    let gates = weights.input_gates::<K>(x)?.unbind(0)?;
    let step = weights.stepper(kind)?;
    let mut steps: Vec<_> = gates.iter().enumerate().collect();
    if reverse {
        steps.reverse();
    }
    let mut outputs = Vec::with_capacity(steps.len());
    let mut state = initial;
    for (t, gates) in steps {
        let new = step(gates, &state)?;
        let output;
        (state, output) = match lengths {
            None => {
                let output = new.hidden().clone();
                (new, output)
            }
            Some(lengths) => lengths.keep(t, &state, new)?,
        };
        outputs.push(output);
    }
    if reverse {
        outputs.reverse();
    }
    let outputs = Tensor::stack(&outputs.iter().collect::<Vec<_>>(), 0)?;
    Ok((outputs, state))
}
