//! Statistics of the training on a rollout.

use polygrad_tensor::Result;

use super::config::wrong;
use super::minibatch::Seen;
use super::ranks::Ranks;

/// Statistics of the training over the rollouts of all ranks together.
pub(super) struct Learnt {
    /// The mean losses, in their order.
    pub(super) means: [f64; 5],
    pub(super) last_kl: f64,
    pub(super) explained_variance: f64,
    pub(super) epochs: usize,
}

impl Learnt {
    pub(super) fn new(
        seen: &[Seen],
        (values, returns): (&[f32], &[f32]),
        epochs: usize,
        ranks: &Ranks,
    ) -> Result<Self> {
        let mut own = [0.0; 10];
        for (_, policy, value, entropy, approx_kl, clip_fraction) in seen {
            own[5] = approx_kl.item()?;
            let values = [
                policy.item()?,
                value.item()?,
                entropy.item()?,
                own[5],
                clip_fraction.item()?,
            ];
            for (mean, value) in own.iter_mut().zip(values) {
                *mean += value / seen.len() as f64;
            }
        }
        let errors: Vec<f32> = returns.iter().zip(values).map(|(a, b)| a - b).collect();
        (own[6], own[7]) = moments(returns);
        (own[8], own[9]) = moments(&errors);
        let all = ranks.gather_all(own)?;
        let mean = |at: usize| all.iter().map(|own| own[at]).sum::<f64>() / all.len() as f64;
        // Around the mean of all ranks. It is the mean of their means, since all have the same number of steps.
        let squares = |at: usize| {
            let between = all.iter().map(|own| (own[at] - mean(at)).powi(2)).sum::<f64>();
            all.iter().map(|own| own[at + 1]).sum::<f64>() + returns.len() as f64 * between
        };
        let means = [0, 1, 2, 3, 4].map(mean);
        match means.iter().all(|mean| mean.is_finite()) {
            true => Ok(Self {
                means,
                last_kl: mean(5),
                explained_variance: match squares(6) {
                    0.0 => f64::NAN,
                    whole => 1.0 - squares(8) / whole,
                },
                epochs,
            }),
            false => Err(wrong("the loss is NaN or infinite".to_owned()).with_hint("take a lower learning rate")),
        }
    }
}

/// The mean, and the sum of squared differences from it.
fn moments(values: &[f32]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().map(|x| f64::from(*x)).sum::<f64>() / count;
    let squares: f64 = values.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum();
    (mean, squares)
}

/// Normalizes to mean 0 and sample standard deviation 1.
pub(super) fn normalize(values: &mut [f32]) {
    let (mean, squares) = moments(values);
    let std = (squares / (values.len() as f64 - 1.0).max(1.0)).sqrt() + 1e-8;
    for x in values {
        *x = ((f64::from(*x) - mean) / std) as f32;
    }
}
