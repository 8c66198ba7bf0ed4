//! `polygrad list`: the environments for policies to learn in.

use polygrad::rl::Space;
use polygrad::rl::zoo::{self, EnvSpec, Stepping};

use super::settings::network;
use crate::failure::Result;
use crate::outcome::Outcome;
use crate::progress::{grouped, say, short};

/// Lists the environments that are known by name, with what is observed and done in them.
///
/// # Errors
/// Those of the environments.
pub(crate) fn command() -> Result<Outcome> {
    for spec in zoo::all() {
        describe(spec)?;
    }
    say(
        "policies: mlp, lstm, gru, mingru (polygrad train NAME --policy KIND); environments of your own are for a program of yours",
    );
    Ok(Outcome::Done)
}

fn describe(spec: &EnvSpec) -> Result<()> {
    let envs = spec.make(1, Stepping::Serial)?;
    let settings = spec.hyperparameters();
    say(&format!("{}: {}", spec.name, spec.description));
    say(&format!(
        "  observation  {}: {}",
        shown(envs.observation_space()),
        spec.observations.join(", ")
    ));
    let masked = if envs.action_masks().is_some() {
        ", not all always allowed"
    } else {
        ""
    };
    say(&format!(
        "  action       {}{masked}: {}",
        shown(envs.action_space()),
        spec.actions.join(", ")
    ));
    let agents = match envs.agents() {
        1 => String::new(),
        agents => format!("{agents} players, "),
    };
    let solved = match spec.reward_threshold {
        Some(threshold) => format!(", solved from a mean return of {} on", short(threshold)),
        None => String::new(),
    };
    say(&format!(
        "  episode      {agents}at most {} steps{solved}",
        spec.max_episode_steps
    ));
    say(&format!(
        "  training     {} environments, {}, {} steps",
        settings.num_envs,
        network(&settings.policy),
        grouped(settings.ppo.total_steps)
    ));
    Ok(())
}

/// A space in few words.
pub(super) fn shown(space: &Space) -> String {
    let extents = |shape: &[usize]| shape.iter().map(usize::to_string).collect::<Vec<_>>().join(" x ");
    match space {
        Space::Discrete { n, .. } => format!("one of {n}"),
        Space::MultiDiscrete { nvec, .. } => format!("whole numbers below {}", extents(nvec).replace(" x", ",")),
        Space::MultiBinary { n } => format!("{n} bits"),
        Space::Box { low, high, shape, .. } => {
            let end = |bounds: &[f32], pick: fn(f32, f32) -> f32| bounds.iter().copied().reduce(pick).unwrap_or(0.0);
            let (low, high) = (end(low, f32::min), end(high, f32::max));
            match low.is_finite() && high.is_finite() {
                true => format!("{} numbers from {low:.4} to {high:.4}", extents(shape)).replace("0000 ", " "),
                false => format!("{} numbers", extents(shape)),
            }
        }
    }
}
