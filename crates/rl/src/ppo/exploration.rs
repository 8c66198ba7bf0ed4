//! State-dependent exploration in a rollout.

use polygrad_core::Rng;

use crate::policy::StateDependent;

/// The noise of all rows. Each rollout begins with other matrices, so that a checkpoint, which is made between
/// rollouts, needs none.
pub(super) struct Exploration {
    sample_freq: i64,
    /// Of each row, `[features, actions]`.
    matrices: Vec<Vec<f64>>,
    /// What was made last.
    noise: Vec<f64>,
}

impl Exploration {
    pub(super) fn new(sample_freq: i64, rows: usize) -> Self {
        Self {
            sample_freq,
            matrices: vec![Vec::new(); rows],
            noise: Vec::new(),
        }
    }

    /// The noise of a row at a step of the rollout, by its features and the logarithms of a matrix's standard
    /// deviations, `[features, actions]`.
    pub(super) fn noise(
        &mut self,
        (row, step): (usize, usize),
        features: &[f32],
        log_std: &[f32],
        rng: &mut Rng,
    ) -> &[f64] {
        let matrix = &mut self.matrices[row];
        if StateDependent::renews(step, self.sample_freq) {
            let numbers = log_std.iter().map(|log_std| f64::from(*log_std).exp() * rng.normal());
            *matrix = numbers.collect();
        }
        let actions = matrix.len() / features.len().max(1);
        self.noise.clear();
        self.noise.resize(actions, 0.0);
        for (feature, weights) in features.iter().zip(matrix.chunks(actions.max(1))) {
            let terms = self.noise.iter_mut().zip(weights);
            terms.for_each(|(sum, weight)| *sum += f64::from(*feature) * weight);
        }
        &self.noise
    }
}
