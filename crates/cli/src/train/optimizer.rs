//! Optimizers and schedules.

use polygrad::nn::Param;
use polygrad::optim::{Adam, AdamConfig, CosineAnnealingLR, LinearLR, RMSprop, SGDConfig, SequentialLR};

use crate::failure::Result;
use crate::run::config::Optimizer;
use crate::team::Team;

/// Creates the optimizer for `params`, or for this process's shards of them.
///
/// # Errors
/// No parameters, or an invalid learning rate.
pub(crate) fn build(
    optimizer: Optimizer,
    lr: f64,
    params: Vec<Param>,
    team: &Team,
) -> Result<Box<dyn polygrad::optim::Optimizer>> {
    Ok(match optimizer {
        Optimizer::Sgd => {
            let sgd = SGDConfig::new(lr).momentum(0.9).nesterov(true);
            team.optimizer(params, move |params| sgd.build(params))
        }
        Optimizer::Adam => team.optimizer(params, move |params| Adam::new(params, lr)),
        Optimizer::AdamW => team.optimizer(params, move |params| AdamConfig::adamw(lr).build(params)),
        Optimizer::RmsProp => team.optimizer(params, move |params| RMSprop::new(params, lr)),
    }?)
}

/// A linear warm-up over a twentieth of all steps, then half a cosine wave down to 0.
pub(crate) fn schedule(steps: u64) -> SequentialLR {
    let warm_up = steps / 20;
    SequentialLR::new(LinearLR::warm_up(warm_up)).then(warm_up, CosineAnnealingLR::new((steps - warm_up).max(1)))
}

#[cfg(test)]
mod tests {
    use polygrad::optim::Schedule;

    use super::*;

    #[test]
    fn the_rate_rises_and_falls() {
        let schedule = schedule(200);
        let rates: Vec<f64> = (0..200).map(|step| schedule.lr(0.3, step)).collect();
        assert!((rates[0] - 0.1).abs() < 1e-12 && rates[10] == 0.3);
        assert!(rates[..=10].is_sorted() && rates[10..].is_sorted_by(|a, b| a > b));
        assert!(rates[199] > 0.0 && rates[199] < 1e-3);
        assert_eq!(super::schedule(1).lr(0.3, 0), 0.3);
    }
}
