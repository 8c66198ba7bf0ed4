//! The range that bytes are to cover, from the observed values.

use super::Calibration;
use super::numbers::Bytes;

/// The bins of a histogram: eight for each byte.
const BINS: usize = 2048;

/// The smallest and the largest number observed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extremes {
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Extremes {
    pub(super) const NONE: Self = Self {
        low: f64::INFINITY,
        high: f64::NEG_INFINITY,
    };

    pub(super) fn see(&mut self, x: f64) {
        (self.low, self.high) = (self.low.min(x), self.high.max(x));
    }
}

/// The distribution of numbers between two extremes.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    extremes: Extremes,
    counts: Vec<u64>,
}

impl Histogram {
    pub(super) fn new(extremes: Extremes) -> Self {
        Self {
            extremes,
            counts: vec![0; BINS],
        }
    }

    fn width(&self) -> f64 {
        (self.extremes.high - self.extremes.low) / BINS as f64
    }

    pub(super) fn see(&mut self, x: f64) {
        let width = self.width();
        let at = if width > 0.0 {
            (x - self.extremes.low) / width
        } else {
            0.0
        };
        self.counts[(at as usize).min(BINS - 1)] += 1;
    }

    /// The range to be covered.
    pub(super) fn range(&self, calibration: Calibration) -> [f64; 2] {
        let Extremes { low, high } = self.extremes;
        match calibration {
            Calibration::MinMax => [low, high],
            Calibration::Percentile(percent) => self.percentile(percent),
            Calibration::Mse => self.least_error(),
        }
    }

    /// The range of the bins that remain if at most half of the excess percentage is cut off at each end.
    fn percentile(&self, percent: f64) -> [f64; 2] {
        let total: u64 = self.counts.iter().sum();
        let cut = total as f64 * (100.0 - percent) / 200.0;
        let uncut = |counts: &mut dyn Iterator<Item = &u64>| {
            let mut sum = 0u64;
            counts
                .take_while(|count| {
                    sum += **count;
                    sum as f64 <= cut
                })
                .count()
        };
        let below = uncut(&mut self.counts.iter());
        let above = uncut(&mut self.counts.iter().rev());
        let Extremes { low, high } = self.extremes;
        let width = self.width();
        [low + below as f64 * width, high - above as f64 * width]
    }

    /// Of the full range, shrunk by multiples of a hundredth, the one with the least squared error; if equal, the
    /// largest.
    fn least_error(&self) -> [f64; 2] {
        let Extremes { low, high } = self.extremes;
        let mut best = (f64::INFINITY, [low, high]);
        for part in (1..=100).rev() {
            let range = [low, high].map(|end| end * f64::from(part) / 100.0);
            let bytes = Bytes::of(range);
            let error = self
                .seen()
                .map(|(x, count)| count as f64 * (x - bytes.round(x)).powi(2));
            let error = error.sum::<f64>();
            if error < best.0 {
                best = (error, range);
            }
        }
        best.1
    }

    /// The center of each bin that is not empty, and its count.
    fn seen(&self) -> impl Iterator<Item = (f64, u64)> {
        let width = self.width();
        let bins = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        bins.map(move |(i, &count)| (self.extremes.low + (i as f64 + 0.5) * width, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: &[f64]) -> Histogram {
        let mut extremes = Extremes::NONE;
        values.iter().for_each(|&x| extremes.see(x));
        let mut histogram = Histogram::new(extremes);
        values.iter().for_each(|&x| histogram.see(x));
        histogram
    }

    #[test]
    fn percentiles_cut_both_ends_evenly() {
        // 0 to 999, and 2048 in the last bin: a bin is one number wide.
        let values: Vec<f64> = (0..1000).map(f64::from).chain([2048.0]).collect();
        let histogram = histogram(&values);
        assert_eq!(histogram.range(Calibration::MinMax), [0.0, 2048.0]);
        // 0.1 % of 1001 numbers at each end is one: 0 and 2048.
        assert_eq!(histogram.range(Calibration::Percentile(99.8)), [1.0, 1000.0]);
        // 5 % are 50.05: 0 to 49, and 951 to 999 with 2048.
        assert_eq!(histogram.range(Calibration::Percentile(90.0)), [50.0, 951.0]);
        assert_eq!(histogram.range(Calibration::Percentile(100.0)), [0.0, 2048.0]);
    }

    #[test]
    fn the_least_error_gives_up_rare_numbers() {
        // Without outliers the whole range is best: each number has a byte of its own.
        let even: Vec<f64> = (0..=255).map(f64::from).collect();
        let [low, high] = histogram(&even).range(Calibration::Mse);
        assert!(low == 0.0 && high > 250.0, "{low} {high}");
        // 100,000 numbers up to 1 and one of 4: a step of s costs s²/12 for each, cutting at c costs (4 − c)² once.
        // The sum 100000 (c / 255)² / 12 + (4 − c)² is least at c = 4 / (1 + 100000 / (12 · 255²)) = 3.55.
        let mut rare: Vec<f64> = (0..100_000).map(|i| f64::from(i) / 100_000.0).collect();
        rare.push(4.0);
        let [low, high] = histogram(&rare).range(Calibration::Mse);
        assert!(low == 0.0 && (high - 3.55).abs() < 0.15, "{low} {high}");
    }

    #[test]
    fn bytes_hold_zero_and_the_range() {
        let bytes = Bytes::of([-1.0, 3.0]);
        assert_eq!(bytes.zero, 64);
        assert_eq!(bytes.scale, (4.0f64 / 255.0) as f32);
        assert_eq!([bytes.round(0.0), Bytes::of([1.0, 2.0]).round(0.0)], [0.0; 2]);
        assert_eq!(Bytes::of([0.0, 0.0]), Bytes { scale: 1.0, zero: 0 });
        assert_eq!(Bytes::of([-5.0, -1.0]).zero, 255);
    }
}
