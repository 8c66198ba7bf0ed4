//! `polygrad list`: the environments for policies to learn in.

use polygrad::rl::Space;
use polygrad::rl::zoo::{self, EnvSpec, Stepping};

use super::settings::{environments, network};
use crate::failure::Result;
use crate::outcome::Outcome;
use crate::progress::{grouped, say, short};

/// Lists the environments that are known by name, with their observations and actions.
///
/// # Errors
/// Errors of the environments.
pub(crate) fn command() -> Result<Outcome> {
    for spec in zoo::all() {
        describe(spec)?;
    }
    say("algorithms and presets: polygrad train NAME --algorithm ALGORITHM --preset PRESET");
    say("Gymnasium environments, in Python: polygrad train gym:ID, gym:MODULE:ID or gym:FILE.py:CLASS");
    say("policies: mlp, lstm, gru, mingru (polygrad train NAME --policy KIND)");
    Ok(Outcome::Done)
}

fn describe(spec: &EnvSpec) -> Result<()> {
    let envs = spec.make(1, Stepping::Serial)?;
    let masked = match envs.action_masks() {
        Some(_) => "; not all are always allowed",
        None => "",
    };
    let players = match envs.agents() {
        1 => String::new(),
        agents => format!("{agents} players, "),
    };
    let solved = match spec.reward_threshold {
        Some(threshold) => format!(", solved from a mean return of {} on", short(threshold)),
        None => String::new(),
    };
    say(&format!("{}: {}", spec.name, spec.description));
    say(&format!(
        "  observation  {}",
        shown(envs.observation_space(), spec.observations)
    ));
    say(&format!(
        "  action       {}{masked}",
        shown(envs.action_space(), spec.actions)
    ));
    say(&format!(
        "  episode      {players}at most {} steps{solved}",
        spec.max_episode_steps.unwrap_or_default()
    ));
    for preset in spec.presets() {
        say(&format!(
            "  training     {} {}: {}, {}{}, {} steps",
            preset.algorithm.name(),
            preset.name,
            environments(preset.num_envs),
            network(&preset.policy),
            if preset.self_play.is_some() { ", self-play" } else { "" },
            grouped(preset.algorithm.total_steps())
        ));
    }
    Ok(())
}

/// A short description of a space, with the names of its numbers or choices.
fn shown(space: &Space, names: &[&str]) -> String {
    let numbers = |values: &[usize]| values.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let what = match space {
        Space::Discrete { n, .. } => format!("one of {n}"),
        Space::MultiDiscrete { nvec, .. } => format!("whole numbers below {}", numbers(nvec)),
        Space::MultiBinary { n } => format!("{n} bits"),
        Space::Box { shape, .. } => format!("box [{}]", numbers(shape)),
    };
    let bounds: Vec<String> = match space {
        Space::Box { low, high, .. } if low.len() == names.len() => low.iter().zip(high).map(range).collect(),
        _ => vec![String::new(); names.len()],
    };
    let named = names
        .iter()
        .zip(&bounds)
        .map(|(name, bounds)| format!("{name}{bounds}"));
    format!("{what}: {}", named.collect::<Vec<_>>().join(", "))
}

fn range((low, high): (&f32, &f32)) -> String {
    let rounded = |x: f32| short((f64::from(x) * 1e4).round() / 1e4);
    match low.is_finite() && high.is_finite() {
        true => format!(" ({} to {})", rounded(*low), rounded(*high)),
        false => String::new(),
    }
}
