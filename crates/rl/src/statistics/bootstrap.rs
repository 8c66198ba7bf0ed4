//! Statistics of a sample of values.

use polygrad_core::Rng;

/// The number of resamples.
const RESAMPLES: usize = 2000;

/// NaN without values.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Of the mean; NaN for fewer than two values.
pub(crate) fn std_error(values: &[f64]) -> f64 {
    let (count, mean) = (values.len() as f64, mean(values));
    let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
    if values.len() < 2 {
        return f64::NAN;
    }
    (squares / (count - 1.0) / count).sqrt()
}

/// The mean without the least and the greatest quarter of the values, each rounded down: SciPy's
/// `trim_mean(values, 0.25)`.
pub(crate) fn iqm(values: &[f64]) -> f64 {
    let cut = values.len() / 4;
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    mean(&sorted[cut..sorted.len() - cut])
}

/// The interval between quantiles of `statistic` over samples drawn from the values with replacement.
///
/// Source: Efron, "Bootstrap methods: another look at the jackknife" (1979).
pub(crate) fn bootstrap_interval(values: &[f64], statistic: fn(&[f64]) -> f64, level: f64) -> (f64, f64) {
    if values.is_empty() {
        return (f64::NAN, f64::NAN);
    }
    let mut rng = Rng::new(0);
    let mut drawn = vec![0.0; values.len()];
    let mut found: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            drawn.iter_mut().for_each(|x| *x = values[rng.below(values.len())]);
            statistic(&drawn)
        })
        .collect();
    found.sort_by(f64::total_cmp);
    let at = |share: f64| quantile(&found, share);
    (at((1.0 - level) / 2.0), at((1.0 + level) / 2.0))
}

/// The quantile of sorted values, with linear interpolation as in NumPy.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interquartile_means_are_those_of_scipy() {
        // scipy.stats.trim_mean(range(n), 0.25), and of squares.
        for (n, expected) in [(1, 0.0), (2, 0.5), (3, 1.0), (4, 1.5), (7, 3.0), (8, 3.5)] {
            let values: Vec<f64> = (0..n).rev().map(f64::from).collect();
            assert_eq!(iqm(&values), expected, "{n}");
        }
        let squares: Vec<f64> = (0..8).map(|x| f64::from(x * x)).collect();
        assert_eq!(iqm(&squares), (4.0 + 9.0 + 16.0 + 25.0) / 4.0);
        // Two outliers among eight values change nothing.
        assert_eq!(iqm(&[1e9, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, -1e9]), 2.0);
    }

    #[test]
    fn errors_of_means_have_a_closed_form() {
        assert_eq!(std_error(&[1.0, 3.0]), 1.0);
        let values: Vec<f64> = (1..=10).map(f64::from).collect();
        assert!((std_error(&values) - (55.0f64 / 6.0 / 10.0).sqrt()).abs() < 1e-12);
        assert!(std_error(&[1.0]).is_nan() && mean(&[]).is_nan());
    }

    #[test]
    fn intervals_of_coins_are_those_of_the_binomial_distribution() {
        // The sum of 100 draws from equally many zeros and ones is binomial: its quantiles of 2.5 % and 97.5 % are 40
        // and 60.
        let coins: Vec<f64> = (0..100).map(|i| f64::from(i % 2)).collect();
        let (low, high) = bootstrap_interval(&coins, mean, 0.95);
        assert!(
            (low - 0.40).abs() < 0.011 && (high - 0.60).abs() < 0.011,
            "{low} {high}"
        );
        // Those of 25 % and 75 % are 47 and 53.
        let (low, high) = bootstrap_interval(&coins, mean, 0.5);
        assert!(
            (low - 0.47).abs() < 0.011 && (high - 0.53).abs() < 0.011,
            "{low} {high}"
        );
    }

    #[test]
    fn intervals_of_means_are_nearly_normal() {
        let mut rng = Rng::new(5);
        let values: Vec<f64> = (0..400).map(|_| 10.0 + 3.0 * rng.normal()).collect();
        let (low, high) = bootstrap_interval(&values, mean, 0.95);
        let (mean, error) = (mean(&values), std_error(&values));
        assert!((low - (mean - 1.96 * error)).abs() < 0.15 * error, "{low}");
        assert!((high - (mean + 1.96 * error)).abs() < 0.15 * error, "{high}");
        let (low, high) = bootstrap_interval(&values, iqm, 0.95);
        assert!(low < iqm(&values) && iqm(&values) < high);
    }

    #[test]
    fn values_that_do_not_differ_leave_no_doubt() {
        assert_eq!(bootstrap_interval(&[7.5; 12], iqm, 0.95), (7.5, 7.5));
        assert_eq!(bootstrap_interval(&[3.0], mean, 0.95), (3.0, 3.0));
        let (low, high) = bootstrap_interval(&[], mean, 0.95);
        assert!(low.is_nan() && high.is_nan());
    }
}
