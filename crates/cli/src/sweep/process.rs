//! A Gaussian process: predicts the cost of a trial from known ones, with its uncertainty.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// The most trials used for fitting, the last ones: the time grows with their cube.
const MOST: usize = 256;

/// Candidate length scales, as shares of a setting's range, and candidate noise levels, as shares of the variance. The
/// likeliest are selected.
const SCALES: [f64; 6] = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2];
const NOISES: [f64; 4] = [1e-3, 1e-2, 5e-2, 2e-1];

/// A process with the Matérn 5/2 kernel, for costs of mean 0 and variance 1.
pub(super) struct Process<'a> {
    points: Vec<&'a [f64]>,
    /// Which coordinates are unordered: two of their values are either equal or at the maximum distance.
    choices: &'a [bool],
    scales: Vec<f64>,
    noise: f64,
    /// The lower triangle of the Cholesky factor of the covariances, row by row.
    factor: Vec<Vec<f64>>,
    /// The inverse of the covariances times the costs.
    weights: Vec<f64>,
    lowest: f64,
}

impl<'a> Process<'a> {
    /// Fits points between 0 and 1 and their costs. `None` if the costs are all equal.
    pub(super) fn fit(seen: &'a [(Vec<f64>, f64)], choices: &'a [bool]) -> Option<Self> {
        let seen = &seen[seen.len().saturating_sub(MOST)..];
        let count = seen.len() as f64;
        let mean = seen.iter().map(|seen| seen.1).sum::<f64>() / count;
        let deviation = (seen.iter().map(|seen| (seen.1 - mean).powi(2)).sum::<f64>() / count).sqrt();
        if !(deviation.is_finite() && deviation > 0.0) {
            return None;
        }
        let costs: Vec<f64> = seen.iter().map(|seen| (seen.1 - mean) / deviation).collect();
        let points: Vec<&[f64]> = seen.iter().map(|seen| &seen.0[..]).collect();
        let mut best = (f64::NEG_INFINITY, vec![0.4; choices.len()], NOISES[2]);
        // Each parameter in turn, twice since they depend on each other.
        for at in (0..=choices.len()).chain(0..=choices.len()) {
            for &value in if at < choices.len() { &SCALES[..] } else { &NOISES } {
                let (mut scales, mut noise) = (best.1.clone(), best.2);
                match scales.get_mut(at) {
                    Some(scale) => *scale = value,
                    None => noise = value,
                }
                let likelihood = Self::with(&points, choices, scales.clone(), noise, &costs).map(|own| own.0);
                if let Some(likelihood) = likelihood.filter(|&likelihood| likelihood > best.0) {
                    best = (likelihood, scales, noise);
                }
            }
        }
        Self::with(&points, choices, best.1, best.2, &costs).map(|own| own.1)
    }

    /// A process with these scales, and the log likelihood of the costs up to a constant.
    fn with(
        points: &[&'a [f64]],
        choices: &'a [bool],
        scales: Vec<f64>,
        noise: f64,
        costs: &[f64],
    ) -> Option<(f64, Self)> {
        let mut process = Self {
            points: points.to_vec(),
            choices,
            scales,
            noise,
            factor: Vec::new(),
            weights: Vec::new(),
            lowest: costs.iter().copied().fold(f64::INFINITY, f64::min),
        };
        for (i, point) in points.iter().enumerate() {
            let mut row = process.forward(&process.covariances(point, i));
            let left = 1.0 + process.noise - row.iter().map(|x| x * x).sum::<f64>();
            if left <= 0.0 {
                return None;
            }
            row.push(left.sqrt());
            process.factor.push(row);
        }
        let half = process.forward(costs);
        let determinant: f64 = process.factor.iter().filter_map(|row| row.last()).map(|x| x.ln()).sum();
        let likelihood = -0.5 * half.iter().map(|x| x * x).sum::<f64>() - determinant;
        process.weights = process.backward(half);
        Some((likelihood, process))
    }

    /// The covariances with the first `count` points.
    fn covariances(&self, point: &[f64], count: usize) -> Vec<f64> {
        let covariance = |other: &&[f64]| {
            let distances = point.iter().zip(*other).zip(&self.scales).zip(self.choices);
            let squares = distances.map(|(((a, b), scale), is_choice)| match is_choice {
                true => f64::from(u8::from(a != b)) / (scale * scale),
                false => ((a - b) / scale).powi(2),
            });
            let far = (5.0 * squares.sum::<f64>()).sqrt();
            (1.0 + far + far * far / 3.0) * (-far).exp()
        };
        self.points[..count].iter().map(covariance).collect()
    }

    /// Solves with the rows of the factor computed so far.
    fn forward(&self, values: &[f64]) -> Vec<f64> {
        let mut solved: Vec<f64> = Vec::with_capacity(values.len());
        for (row, value) in self.factor.iter().zip(values) {
            let known: f64 = row.iter().zip(&solved).map(|(a, b)| a * b).sum();
            solved.push((value - known) / row[solved.len()]);
        }
        solved
    }

    /// Solves with the transposed factor.
    fn backward(&self, mut values: Vec<f64>) -> Vec<f64> {
        for (i, row) in self.factor.iter().enumerate().rev() {
            values[i] /= row[i];
            let (before, solved) = values.split_at_mut(i);
            before
                .iter_mut()
                .zip(row)
                .for_each(|(value, a)| *value -= a * solved[0]);
        }
        values
    }

    /// Mean and standard deviation of the cost at a point, without noise.
    fn predict(&self, point: &[f64]) -> (f64, f64) {
        let covariances = self.covariances(point, self.points.len());
        let mean = covariances.iter().zip(&self.weights).map(|(a, b)| a * b).sum();
        let known: f64 = self.forward(&covariances).iter().map(|x| x * x).sum();
        (mean, (1.0 - known).max(0.0).sqrt())
    }

    /// The expected improvement of a trial there over the cheapest one so far.
    pub(super) fn improvement(&self, point: &[f64]) -> f64 {
        let (mean, deviation) = self.predict(point);
        let gain = self.lowest - mean;
        if deviation < 1e-9 {
            return gain.max(0.0);
        }
        let z = gain / deviation;
        gain * below(z) + deviation * (-0.5 * z * z).exp() / (2.0 * PI).sqrt()
    }
}

/// The cumulative normal distribution at `z`, to 1e-7: Abramowitz and Stegun, 7.1.26.
fn below(z: f64) -> f64 {
    let x = z.abs() * FRAC_1_SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let series = [
        1.061_405_429,
        -1.453_152_027,
        1.421_413_741,
        -0.284_496_736,
        0.254_829_592,
    ];
    let tail = 0.5 * t * series.iter().fold(0.0, |sum, c| sum * t + c) * (-x * x).exp();
    if z < 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `GaussianProcessRegressor(Matern([.4, .8], nu=2.5), alpha=.05, optimizer=None)` of scikit-learn 1.9.1 on the
    /// same costs, and the expected improvement computed with SciPy's `norm`.
    #[test]
    fn it_predicts_what_scikit_learn_predicts() {
        let points = [[0.1, 0.9], [0.4, 0.2], [0.8, 0.5], [0.35, 0.3], [0.6, 0.75]];
        let costs = [3.0, 1.0, 2.0, 0.5, 4.0];
        let mean = costs.iter().sum::<f64>() / 5.0;
        let deviation = (costs.iter().map(|cost| (cost - mean).powi(2)).sum::<f64>() / 5.0).sqrt();
        let costs = costs.map(|cost| (cost - mean) / deviation);
        let points: Vec<&[f64]> = points.iter().map(|point| &point[..]).collect();
        let (likelihood, process) = Process::with(&points, &[false; 2], vec![0.4, 0.8], 0.05, &costs).unwrap();
        let close = |a: f64, b: f64| assert!((a - b).abs() < 2e-7, "{a} {b}");
        close(likelihood, -9.834_177_349_504_303 + 4.594_692_666_023_363);
        for (point, mean, deviation, improvement) in [
            ([0.3, 0.25], -1.120_132_66, 0.243_028_47, 0.045_724_32),
            ([0.9, 0.1], -0.598_131_84, 0.597_977_17, 0.041_924_75),
            ([0.4, 0.2], -0.993_514_82, 0.177_140_65, 0.005_884_88),
        ] {
            let found = process.predict(&point);
            close(found.0, mean);
            close(found.1, deviation);
            close(process.improvement(&point), improvement);
        }
    }

    #[test]
    fn it_finds_out_what_matters() {
        let seen: Vec<(Vec<f64>, f64)> = (0..40)
            .map(|i| {
                let at = |step: usize| (i * step % 41) as f64 / 41.0;
                (vec![at(7), at(11)], (6.0 * at(7)).sin())
            })
            .collect();
        let process = Process::fit(&seen, &[false; 2]).unwrap();
        assert!(
            process.scales[0] < process.scales[1] && process.noise == NOISES[0],
            "{:?}",
            process.scales
        );
        // For a choice only equality matters.
        let process = Process::fit(&seen, &[false, true]).unwrap();
        assert_eq!(process.predict(&[0.3, 2.0]), process.predict(&[0.3, 9.0]));
        assert!(Process::fit(&seen[..1], &[false; 2]).is_none());
        let same: Vec<(Vec<f64>, f64)> = seen.iter().map(|seen| (vec![0.5; 2], seen.1)).collect();
        assert!(Process::fit(&same, &[false; 2]).is_some_and(|process| process.improvement(&[0.5; 2]).is_finite()));
    }
}
