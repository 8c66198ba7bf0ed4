//! Checks of the settings of algorithms.

use polygrad_tensor::{Error, Result};

/// Fails at the first setting out of its range, and describes the range.
pub(crate) fn in_range(settings: &[(&str, bool, &str)]) -> Result<()> {
    match settings.iter().find(|(_, holds, _)| !holds) {
        Some((name, _, range)) => Err(Error::invalid(format!("{name} is not {range}"))),
        None => Ok(()),
    }
}

pub(crate) fn is_share(x: f64) -> bool {
    (0.0..=1.0).contains(&x)
}

/// Whether `x` is a valid learning rate.
pub(crate) fn is_rate(x: f64) -> bool {
    x.is_finite() && x >= 0.0
}

/// Whether `x` is a valid greatest norm or value.
pub(crate) fn is_bound(x: f64) -> bool {
    x.is_finite() && x > 0.0
}

/// The steps of a rollout, which are kept in memory until they are learnt from.
///
/// # Errors
/// If they are more than 2³¹.
pub(crate) fn rollout_steps(rows: usize, num_steps: usize) -> Result<usize> {
    let steps = rows.checked_mul(num_steps).filter(|&steps| steps <= 1 << 31);
    steps.ok_or_else(|| {
        Error::invalid(format!("{rows} times {num_steps} steps are too many"))
            .with_hint("take fewer num_steps or environments")
    })
}
