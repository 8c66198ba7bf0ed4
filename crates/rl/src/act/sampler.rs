//! Chooses actions on the host, where environments need them: with the same random numbers on every backend.

use polygrad_core::Rng;

use crate::ActionSpace;

/// The parameters of one row's distribution, as computed by a policy.
pub(crate) struct RowParams<'a> {
    /// Logits or means.
    pub(crate) output: &'a [f32],
    /// Logarithms of standard deviations, for continuous actions; empty if these are not sampled.
    pub(crate) log_std: &'a [f32],
    /// What takes the place of a random number for each continuous action, if something does.
    pub(crate) noise: &'a [f64],
    pub(crate) mask: Option<&'a [bool]>,
}

/// Writes an action, sampled with `rng` or, without it, the likeliest. Returns the logarithm of its probability, as
/// [`ActionDistribution`](crate::ActionDistribution) defines it; NaN if the policy's outputs are not finite.
pub(crate) fn choose(
    space: &ActionSpace,
    params: &RowParams<'_>,
    mut rng: Option<&mut Rng>,
    action: &mut [f32],
) -> f32 {
    let log_prob = match space {
        ActionSpace::Discrete(_) => {
            let (choice, log_prob) = choice(params.output, params.mask, rng);
            action[0] = choice as f32;
            log_prob
        }
        ActionSpace::MultiDiscrete(nvec) => {
            let (mut begin, mut total) = (0, 0.0);
            for (x, n) in action.iter_mut().zip(nvec) {
                let own = begin..begin + n;
                let mask = params.mask.map(|mask| &mask[own.clone()]);
                let (choice, log_prob) = choice(&params.output[own.clone()], mask, rng.as_deref_mut());
                *x = choice as f32;
                total += log_prob;
                begin = own.end;
            }
            total
        }
        ActionSpace::MultiBinary(_) => {
            let terms = action.iter_mut().zip(params.output).map(|(x, logit)| {
                let logit = f64::from(*logit);
                let p = 1.0 / (1.0 + (-logit).exp());
                let yes = rng.as_deref_mut().map_or(p > 0.5, |rng| rng.uniform() < p);
                *x = f32::from(yes);
                // ln σ(x) = −ln (1 + e⁻ˣ)
                -softplus(if yes { -logit } else { logit })
            });
            terms.sum()
        }
        ActionSpace::Continuous(_) if params.log_std.is_empty() => {
            action.copy_from_slice(params.output);
            let finite = action.iter().all(|x| x.is_finite());
            if finite { 0.0 } else { f64::NAN }
        }
        ActionSpace::Continuous(_) => {
            let half_log_tau = 0.5 * std::f64::consts::TAU.ln();
            let numbers = action.iter_mut().zip(params.output).zip(params.log_std);
            let terms = numbers.enumerate().map(|(i, ((x, mean), log_std))| {
                let (mean, log_std) = (f64::from(*mean), f64::from(*log_std));
                let std = log_std.exp();
                let apart = match (params.noise.get(i), rng.as_deref_mut()) {
                    (Some(noise), _) => *noise,
                    (None, Some(rng)) => std * rng.normal(),
                    (None, None) => 0.0,
                };
                *x = (mean + apart) as f32;
                // Of the number as it was rounded.
                let apart = (f64::from(*x) - mean) / std;
                -0.5 * apart * apart - log_std - half_log_tau
            });
            terms.sum()
        }
    };
    log_prob as f32
}

/// `ln (1 + eˣ)`.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// Chooses an index by logits; returns it and the logarithm of its probability.
fn choice(logits: &[f32], mask: Option<&[bool]>, rng: Option<&mut Rng>) -> (usize, f64) {
    let allowed = |i: usize| mask.is_none_or(|mask| mask[i]);
    let mut best = None;
    for (i, logit) in logits.iter().enumerate() {
        if allowed(i) && best.is_none_or(|best: usize| *logit > logits[best]) {
            best = Some(i);
        }
    }
    let Some(best) = best else { return (0, f64::NAN) };
    let most = f64::from(logits[best]);
    let weight = |i: usize| {
        if allowed(i) {
            (f64::from(logits[i]) - most).exp()
        } else {
            0.0
        }
    };
    let total: f64 = (0..logits.len()).map(weight).sum();
    let mut chosen = best;
    if let Some(rng) = rng {
        let mut left = rng.uniform() * total;
        for i in (0..logits.len()).filter(|i| allowed(*i)) {
            left -= weight(i);
            if left < 0.0 {
                chosen = i;
                break;
            }
        }
    }
    (chosen, f64::from(logits[chosen]) - most - total.ln())
}
