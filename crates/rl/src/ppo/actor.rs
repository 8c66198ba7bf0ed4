//! Running a policy for actions and values.

use polygrad_nn::{Module, Param};
use polygrad_tensor::{Capture, DType, Device, Result, Tensor, no_grad};

use crate::{Policy, PolicyState};

/// What a policy says of some rows, on the host.
pub(super) struct Answer {
    /// Logits or means, of all rows one after another.
    pub(super) output: Vec<f32>,
    /// Logarithms of standard deviations, of all rows or the same for each; empty for choices.
    pub(super) log_std: Vec<f32>,
    pub(super) values: Vec<f32>,
    pub(super) state: PolicyState,
}

/// Replays a policy's forward for one step.
pub(super) struct Actor {
    params: Vec<Param>,
    capture: Capture<Parts>,
    device: Device,
}

/// Which outputs of the recording are what.
#[derive(Clone, Copy)]
struct Parts {
    has_std: bool,
}

impl Actor {
    pub(super) fn new(policy: &impl Module, device: Device) -> Self {
        Self {
            params: policy.parameters(),
            capture: Capture::new(),
            device,
        }
    }

    /// The answer to observations of a shape, where `starts` says which are the first of their episodes.
    pub(super) fn run(
        &mut self,
        policy: &impl Policy,
        (observations, shape): (&[f32], &[usize]),
        starts: &[f32],
        state: &PolicyState,
    ) -> Result<Answer> {
        let rows = starts.len();
        let dims: Vec<usize> = [&[rows], shape].concat();
        let observations = Tensor::from_vec(observations.to_vec(), dims, &self.device)?;
        let mut inputs = vec![observations.clone()];
        let has_state = !state.parts().is_empty();
        let starts = match has_state {
            true => Some(Tensor::from_vec(starts.to_vec(), [rows], &self.device)?),
            false => None,
        };
        inputs.extend(starts.clone());
        inputs.extend(state.parts().iter().cloned());
        inputs.extend(self.params.iter().map(|param| param.tensor().detach()));
        let (outputs, parts) = self.capture.run(0, inputs, || {
            no_grad(|| {
                let state = match &starts {
                    Some(starts) => state.reset(starts)?,
                    None => state.clone(),
                };
                let answer = policy.forward(&observations, &state)?;
                let as_f32 = |x: &Tensor| x.to_dtype(DType::F32);
                let mut outputs = vec![as_f32(answer.action.output())?, as_f32(&answer.value)?];
                let log_std = answer.action.log_std();
                if let Some(log_std) = log_std {
                    outputs.push(as_f32(log_std)?);
                }
                let parts = Parts {
                    has_std: log_std.is_some(),
                };
                outputs.extend(answer.state.parts().iter().cloned());
                Ok((outputs, parts))
            })
        })?;
        let mut outputs = outputs.into_iter();
        let mut next = || outputs.next().map_or_else(|| Ok(Vec::new()), |x| x.to_vec::<f32>());
        Ok(Answer {
            output: next()?,
            values: next()?,
            log_std: if parts.has_std { next()? } else { Vec::new() },
            state: PolicyState::new(outputs.collect()),
        })
    }

    /// Why its last run was no replay, if none will be.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.capture.refusal()
    }
}
