//! `polygrad quantize` of runs in environments: policies in 8 bits, judged by their returns.

use std::sync::{Mutex, PoisonError};

use polygrad::backend::HostTensor;
use polygrad::nn::{Module, Visit, Visitor};
use polygrad::rl::zoo::Stepping;
use polygrad::rl::{ActionParams, ActionSpace, EvaluateConfig, Policy, PolicyOutput, PolicyState, evaluate};
use polygrad::{AnyBackend, DType, Device, Tensor};
use polygrad_onnx::{Int8, OnnxModel, Opset, Options};

use super::Settings;
use super::export::{metadata, record};
use crate::failure::{Failure, Result};
use crate::kind::Kind;
use crate::onnx::quantize::{self, QuantizeFile};
use crate::outcome::Outcome;
use crate::progress::{grouped, say};
use crate::trained;

/// How many environments play at once, as in `polygrad eval`.
const ENVIRONMENTS: usize = 10;

/// The number of calibration episodes.
const CALIBRATION: usize = 20;

/// A different seed, so that the calibration episodes differ from those that judge the policy.
const CALIBRATION_SEED: u64 = 0x1234_5678;

/// Quantizes the policy of a run, calibrated on observations of its own episodes, and plays with both policies.
///
/// # Errors
/// A run that is missing or damaged; a policy that cannot be quantized, or loses more return than allowed.
pub(crate) fn command(args: &QuantizeFile) -> Result<Outcome> {
    if args.calibrate.is_some() {
        let wanted = [Kind::Images, Kind::Table, Kind::Chargpt];
        return Err(Kind::Rl.foreign("--calibrate", &wanted));
    }
    let trained = trained::load::<Settings>(&args.model, args.backend.as_deref(), args.threads)?;
    let (config, device) = (&trained.config, &trained.device);
    let policy: &dyn Policy = &*trained.model;
    let mut graph = record(&trained, Opset::V20, true)?;
    graph.header.metadata.extend(metadata(config, &args.model)?);
    let masks = graph.body.inputs.iter().any(|&id| graph.body.name_of(id) == "mask");
    let spec = config.spec()?;
    let play = |policy: &dyn Policy, episodes: usize, seed: u64| -> Result<f64> {
        let mut envs = spec.make(ENVIRONMENTS.min(episodes), Stepping::Serial)?;
        let options = EvaluateConfig {
            episodes,
            seed,
            sample: false,
        };
        Ok(evaluate(policy, &mut envs, &options)?.mean())
    };
    let seen = match args.int8() {
        Int8::Dynamic => Vec::new(),
        Int8::Static => {
            let watched = Watched::new(policy, masks);
            play(&watched, CALIBRATION, CALIBRATION_SEED)?;
            watched.chosen(args.rows, device)?
        }
    };
    let rows = seen.iter().map(|batch| batch[0].dims()[0]).sum();
    let made = quantize::run(args, &graph, &seen, device)?;
    let model = OnnxModel::from_graph(&made.graph, device, Options::default())?;
    let file = InFile {
        model,
        policy,
        space: &config.policy.action,
        draws: made
            .graph
            .body
            .outputs
            .iter()
            .any(|&id| made.graph.body.name_of(id) == "std"),
        masks,
    };
    let episodes = args.episodes.unwrap_or(100);
    let (before, after) = (play(policy, episodes, 0)?, play(&file, episodes, 0)?);
    let change = change(before, after);
    say(&format!(
        "mean return in {} episodes of {}: {before:.2} before, {after:.2} after ({change})",
        grouped(episodes as u64),
        spec.name
    ));
    let allowed = args.allowed();
    let least = before - before.abs() * allowed / 100.0;
    if after.is_nan() || after < least {
        return Err(Failure::new(format!(
            "the return changes by {change}, more than --max-drop {allowed} down: no file is written"
        ))
        .fix("try --per-channel, --calibration percentile or mse, leave layers out with --skip, or allow more"));
    }
    quantize::write(args, &graph, &made, rows)
}

/// The change in percent, if the original is not 0.
fn change(before: f64, after: f64) -> String {
    match before {
        0.0 => format!("{:+.2}", after - before),
        _ => format!("{:+.2} %", 100.0 * (after - before) / before.abs()),
    }
}

/// A policy whose observations are recorded. They are read to the host, so that no step is replayed, since a replay
/// would bypass this code.
struct Watched<'a> {
    policy: &'a dyn Policy,
    masks: bool,
    seen: Mutex<Vec<Vec<HostTensor>>>,
}

impl<'a> Watched<'a> {
    fn new(policy: &'a dyn Policy, masks: bool) -> Self {
        Self {
            policy,
            masks,
            seen: Mutex::default(),
        }
    }

    /// The graph's inputs for about `most` rows, spread evenly over all steps.
    fn chosen(self, most: usize, device: &Device) -> Result<Vec<Vec<Tensor>>> {
        let seen = self.seen.into_inner().unwrap_or_else(PoisonError::into_inner);
        let rows = seen.iter().map(|batch| batch[0].shape()[0]).max().unwrap_or(1);
        let wanted = (most / rows.max(1)).clamp(1, seen.len().max(1));
        let batches = (0..wanted).filter_map(|i| seen.get(i * seen.len() / wanted));
        let batch = |batch: &Vec<HostTensor>| {
            let tensors = batch.iter().map(|host| Tensor::from_host(host.clone(), device));
            Ok(tensors.collect::<polygrad::Result<_>>()?)
        };
        batches.map(batch).collect()
    }
}

/// The inputs of a policy's graph. The player itself excludes forbidden actions, so all are allowed here.
fn operands(observations: &Tensor, masks: Option<usize>, state: &PolicyState) -> polygrad::Result<Vec<Tensor>> {
    let mut operands = vec![observations.to_dtype(DType::F32)?];
    if let Some(actions) = masks {
        let rows = observations.dims()[0];
        operands.push(Tensor::full(
            [rows, actions],
            true,
            (&observations.device(), DType::Bool),
        )?);
    }
    operands.extend(state.parts().iter().cloned());
    Ok(operands)
}

impl Visit<AnyBackend> for Watched<'_> {
    fn visit(&self, visitor: &mut Visitor<'_, AnyBackend>) {
        self.policy.visit(visitor);
    }
}

impl Module for Watched<'_> {}

impl Policy for Watched<'_> {
    fn initial_state(&self, batch: usize) -> polygrad::Result<PolicyState> {
        self.policy.initial_state(batch)
    }

    fn forward(&self, observations: &Tensor, state: &PolicyState) -> polygrad::Result<PolicyOutput> {
        let output = self.policy.forward(observations, state)?;
        let actions = output.action.output().dims().last().copied().unwrap_or(0);
        let operands = operands(observations, self.masks.then_some(actions), state)?;
        let hosts = operands.iter().map(Tensor::to_host).collect::<polygrad::Result<_>>()?;
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(hosts);
        Ok(output)
    }
}

/// A policy whose answers are computed by a graph.
struct InFile<'a> {
    model: OnnxModel,
    /// The original policy, for the form of its state.
    policy: &'a dyn Policy,
    space: &'a ActionSpace,
    /// Whether continuous actions have standard deviations.
    draws: bool,
    masks: bool,
}

impl Visit<AnyBackend> for InFile<'_> {
    /// The device of play is that of the parameters, and a graph has none, so the original policy is visited.
    fn visit(&self, visitor: &mut Visitor<'_, AnyBackend>) {
        self.policy.visit(visitor);
    }
}

impl Module for InFile<'_> {}

impl Policy for InFile<'_> {
    fn initial_state(&self, batch: usize) -> polygrad::Result<PolicyState> {
        self.policy.initial_state(batch)
    }

    fn forward(&self, observations: &Tensor, state: &PolicyState) -> polygrad::Result<PolicyOutput> {
        let masks = self.masks.then_some(self.space.outputs());
        let answer = self.model.forward(&operands(observations, masks, state)?)?;
        let output = answer.tensor(0)?;
        let action = match self.space {
            ActionSpace::Discrete(_) => ActionParams::Categorical(output),
            ActionSpace::MultiDiscrete(nvec) => ActionParams::MultiDiscrete(output, nvec.clone().into()),
            ActionSpace::MultiBinary(_) => ActionParams::Bernoulli(output),
            ActionSpace::Continuous(_) if self.draws => ActionParams::Normal {
                mean: output,
                log_std: answer.named("std")?.log()?,
            },
            ActionSpace::Continuous(_) => ActionParams::Deterministic(output),
        };
        let parts = 0..state.parts().len();
        let parts = parts.map(|i| answer.named(&format!("next_state_{i}")));
        Ok(PolicyOutput {
            action,
            value: None,
            noise: None,
            state: PolicyState::new(parts.collect::<polygrad::Result<_>>()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::change;

    #[test]
    fn a_change_of_nothing_has_no_percentage() {
        assert_eq!(change(-200.0, -190.0), "+5.00 %");
        assert_eq!(change(0.0, 1.5), "+1.50");
    }
}
