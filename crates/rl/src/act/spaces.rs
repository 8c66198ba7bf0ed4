//! Converts observations to the form a policy sees, and actions to the form an environment takes.

use polygrad_core::{Error, Result};

use crate::Space;

/// The shape of an observation as a policy sees it.
pub(crate) fn observation_shape(space: &Space) -> Vec<usize> {
    match space {
        Space::Box { shape, .. } => shape.clone(),
        _ => vec![space.flat_len()],
    }
}

/// Fails unless a policy can observe and act in these spaces.
pub(crate) fn check_spaces(observation: &Space, action: &Space) -> Result<()> {
    for (name, space) in [("observation_space", observation), ("action_space", action)] {
        space.check().map_err(|error| error.in_module(name))?;
        if space.len() == 0 {
            return Err(Error::invalid(format!("the {name} has no numbers")).with_op("reinforcement learning"));
        }
    }
    Ok(())
}

/// Observations as a policy sees them: integers as one-hot vectors.
pub(crate) fn flatten(space: &Space, raw: &[f32], seen: &mut [f32]) -> Result<()> {
    if matches!(space, Space::Box { .. } | Space::MultiBinary { .. }) {
        seen.copy_from_slice(raw);
        return Ok(());
    }
    let rows = raw.chunks(space.len()).zip(seen.chunks_mut(space.flat_len()));
    rows.into_iter().try_for_each(|(raw, seen)| space.flatten(raw, seen))
}

/// An action as an environment takes it: integers counted from the start of its space, other numbers within bounds.
pub(crate) fn for_environment(space: &Space, action: &[f32], out: &mut [f32]) {
    let numbers = out.iter_mut().zip(action);
    match space {
        Space::Discrete { start, .. } => out[0] = action[0] + *start as f32,
        Space::MultiDiscrete { start, .. } => {
            numbers
                .zip(start)
                .for_each(|((out, x), start)| *out = x + *start as f32);
        }
        Space::MultiBinary { .. } => out.copy_from_slice(action),
        Space::Box { low, high, .. } => {
            let bounds = low.iter().zip(high);
            numbers
                .zip(bounds)
                .for_each(|((out, x), (low, high))| *out = x.clamp(*low, *high));
        }
    }
}
