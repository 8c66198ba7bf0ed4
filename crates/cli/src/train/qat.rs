//! Training for 8 bits.

use polygrad::data::DataLoader;
use polygrad::nn::Sequential;
use polygrad::nn::qat::{self, QatConfig};

use crate::failure::{Failure, Result};
use crate::task::Batch;
use crate::team::Team;

/// The number of rows for the initial ranges, the same as in `polygrad quantize`.
const ROWS: usize = 512;

/// The model, with rounding attached to its layers if wanted.
///
/// # Errors
/// If memory runs out.
pub(crate) fn attached(model: Sequential, wanted: bool) -> Result<Sequential> {
    if wanted {
        qat::attach(&model, &QatConfig::new())?;
    }
    Ok(model)
}

/// Finds the initial ranges. They follow the numbers for the first three quarters of the steps, in which the numbers
/// grow, and are learned in the last quarter.
///
/// # Errors
/// Errors of the data and of the device.
pub(crate) fn calibrate(model: &Sequential, batches: &DataLoader<Batch>, steps: u64) -> Result<()> {
    let (mut inputs, mut rows) = (Vec::new(), 0);
    for batch in batches {
        let (x, _) = batch?;
        rows += x.dims().first().copied().unwrap_or(0);
        inputs.push(x);
        if rows >= ROWS {
            break;
        }
    }
    qat::calibrate(model, || inputs.iter().try_for_each(|x| model.forward(x).map(drop)))?;
    Ok(qat::follow(model, steps / 4 * 3)?)
}

/// Fails if several processes train, since each would find different ranges.
///
/// # Errors
/// In that case.
pub(crate) fn must_be_alone(team: &Team) -> Result<()> {
    match team.group() {
        None => Ok(()),
        Some(_) => Err(
            Failure::new("--qat is for one process: several would find ranges of their own")
                .fix("leave --parallel or --qat out"),
        ),
    }
}

/// The suffix of the network's name.
pub(crate) fn title(wanted: bool) -> &'static str {
    match wanted {
        true => " for 8 bits",
        false => "",
    }
}
