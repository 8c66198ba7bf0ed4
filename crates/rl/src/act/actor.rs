//! Runs a policy for actions and values.

use polygrad_tensor::{Compiled, DType, Device, Error, ErrorKind, Result, Tensor, no_grad};

use super::sampler::RowParams;
use crate::{ActionSpace, Policy, PolicyState};

/// Outputs of a policy for several rows, on the host.
pub(crate) struct Answer {
    /// Logits or means, of all rows one after another.
    pub(crate) output: Vec<f32>,
    /// Logarithms of standard deviations, of all rows or the same for each; empty if the actions have none.
    pub(crate) log_std: Vec<f32>,
    /// Empty if values are not requested.
    pub(crate) values: Vec<f32>,
    /// Of a policy with state-dependent exploration, where it is asked for: features of all rows, and the logarithms of
    /// the standard deviations of a matrix.
    pub(crate) noise: [Vec<f32>; 2],
    pub(crate) state: PolicyState,
}

impl Answer {
    /// The parameters of row `row` of `rows`.
    pub(crate) fn row<'a>(&'a self, row: usize, rows: usize, mask: Option<&'a [bool]>) -> RowParams<'a> {
        let outputs = self.output.len() / rows;
        let own = row * outputs..(row + 1) * outputs;
        RowParams {
            log_std: match self.log_std.len() == self.output.len() {
                true => &self.log_std[own.clone()],
                false => &self.log_std,
            },
            output: &self.output[own],
            noise: &[],
            mask,
        }
    }
}

/// What is asked of a policy beside actions.
#[derive(Clone, Copy, Default)]
pub(crate) struct Asked {
    pub(crate) values: bool,
    /// What actions are explored by, which depends on the state.
    pub(crate) noise: bool,
}

/// Runs a policy step by step, compiled for its weights as they are.
pub(crate) struct Actor {
    device: Device,
    actions: ActionSpace,
    /// What is asked for beside actions.
    asked: Asked,
    /// For each number of rows; none where the policy cannot be compiled.
    compiled: Vec<(usize, Option<Compiled>)>,
    refusal: Option<String>,
}

impl Actor {
    /// For a policy on this device, which chooses among `actions`, and of which `asked` names the other results.
    pub(crate) fn new(device: Device, actions: ActionSpace, asked: Asked) -> Self {
        Self {
            device,
            actions,
            asked,
            compiled: Vec::new(),
            refusal: None,
        }
    }

    /// Drops the compiled policies, since the weights have changed.
    pub(crate) fn forget(&mut self) {
        self.compiled.clear();
    }

    /// The policy's answer to observations of a shape; `starts` marks the rows whose episodes begin.
    pub(crate) fn run(
        &mut self,
        policy: &(impl Policy + ?Sized),
        (observations, shape): (&[f32], &[usize]),
        starts: &[f32],
        state: &PolicyState,
    ) -> Result<Answer> {
        let rows = starts.len();
        let dims: Vec<usize> = [&[rows], shape].concat();
        let mut inputs = vec![Tensor::from_vec(observations.to_vec(), dims, &self.device)?];
        if !state.parts().is_empty() {
            inputs.push(Tensor::from_vec(starts.to_vec(), [rows], &self.device)?);
            inputs.extend(state.parts().iter().cloned());
        }
        let compute = || computed(policy, &self.actions, self.asked, &inputs);
        let index = match self.compiled.iter().position(|(other, _)| *other == rows) {
            Some(index) => index,
            None => {
                let compiled = match Compiled::new(&inputs, compute) {
                    Ok(compiled) => Some(compiled),
                    Err(error) if error.kind() == ErrorKind::Unsupported => {
                        self.refusal = Some(error.message().to_owned());
                        None
                    }
                    Err(error) => return Err(error),
                };
                self.compiled.push((rows, compiled));
                self.compiled.len() - 1
            }
        };
        let outputs = match &self.compiled[index].1 {
            Some(compiled) => compiled.run(&inputs)?,
            None => no_grad(compute)?,
        };
        // Of the rest, one are the logarithms of standard deviations, where something is drawn by them.
        let Asked { values, noise } = self.asked;
        let draws = outputs.len() > 1 + usize::from(values) + 2 * usize::from(noise) + state.parts().len();
        let mut outputs = outputs.into_iter().peekable();
        let mut next = |is_there: bool| match outputs.next_if(|_| is_there) {
            Some(x) => x.to_vec::<f32>(),
            None => Ok(Vec::new()),
        };
        Ok(Answer {
            output: next(true)?,
            values: next(values)?,
            log_std: next(draws)?,
            noise: [next(noise)?, next(noise)?],
            state: PolicyState::new(outputs.collect()),
        })
    }

    /// The reason why the policy could not be compiled.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }
}

/// The results of a policy, in this order: outputs, values if asked for, logarithms of standard deviations if it has
/// them, the noise of exploration if asked for, and the next state. The inputs are observations and, for a policy with
/// memory, the rows that begin episodes, and the state.
///
/// # Errors
/// Those of the policy; when it does not choose among `actions`, or lacks a result that is asked for.
fn computed(
    policy: &(impl Policy + ?Sized),
    actions: &ActionSpace,
    asked: Asked,
    inputs: &[Tensor],
) -> Result<Vec<Tensor>> {
    let state = match &inputs[1..] {
        [] => PolicyState::new(Vec::new()),
        [starts, parts @ ..] => PolicyState::new(parts.to_vec()).reset(starts)?,
    };
    let answer = policy.forward(&inputs[0], &state)?;
    let (own, rows) = (answer.action.space(), inputs[0].shape()[0]);
    if own != *actions {
        let text = format!("the policy chooses among {own:?}, the environments have {actions:?}");
        return Err(Error::invalid(text)
            .with_op("policy")
            .with_hint("make the policy for the environments' action space"));
    }
    let value = asked.values.then(|| answer.value()).transpose()?;
    if let Some(value) = value
        && value.dims() != [rows]
    {
        let text = format!("the policy gives values {} for {rows} observations", value.shape());
        return Err(Error::shape(text).with_op("policy"));
    }
    let log_std = answer.action.log_std();
    if asked.noise && answer.noise.is_none() {
        let error = Error::invalid("use_sde is set, and the policy has no noise that depends on the state");
        return Err(error
            .with_op("policy")
            .with_hint("make it by ActorCritic::use_sde, or set use_sde to false"));
    }
    let noise = answer.noise.as_ref().filter(|_| asked.noise);
    let [features, weights] = [noise.map(|own| &own.features), noise.map(|own| &own.log_std)];
    let numbers = [Some(answer.action.output()), value, log_std, features, weights];
    let numbers = numbers.into_iter().flatten().map(|x| x.to_dtype(DType::F32));
    let mut outputs = numbers.collect::<Result<Vec<_>>>()?;
    outputs.extend(answer.state.parts().iter().cloned());
    Ok(outputs)
}
