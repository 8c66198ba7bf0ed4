//! Training for 8 bits.

use polygrad::data::DataLoader;
use polygrad::nn::Sequential;
use polygrad::nn::qat::{self, QatConfig};

use crate::failure::{Failure, Result};
use crate::task::Batch;
use crate::team::Team;

/// The rows that ranges begin with, as many as `polygrad quantize` takes.
const ROWS: usize = 512;

/// A model whose layers are rounded, if that is wanted.
///
/// # Errors
/// When memory runs out.
pub(crate) fn attached(model: Sequential, wanted: bool) -> Result<Sequential> {
    if wanted {
        qat::attach(&model, &QatConfig::new())?;
    }
    Ok(model)
}

/// Finds the ranges that training begins with. They follow the numbers for three quarters of its steps, in which these
/// grow, and are learned in the last.
///
/// # Errors
/// Those of the data and of the device.
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

/// Fails where several processes train: each would find ranges of its own.
///
/// # Errors
/// That.
pub(crate) fn must_be_alone(team: &Team) -> Result<()> {
    match team.group() {
        None => Ok(()),
        Some(_) => Err(
            Failure::new("--qat is for one process: several would find ranges of their own")
                .fix("leave --parallel or --qat out"),
        ),
    }
}

/// What is added to the name of a network.
pub(crate) fn title(wanted: bool) -> &'static str {
    match wanted {
        true => " for 8 bits",
        false => "",
    }
}
