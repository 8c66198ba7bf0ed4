//! The proof that a wrong answer is as near as possible, since a dtype cannot represent what an op computes.

use polygrad_core::{DType, HostTensor};

use crate::compare::largest;
use crate::tolerance::{Bounds, digits};

/// The number of reference runs with randomly rounded steps.
pub(super) const RUNS: u64 = 4;

/// The error of an answer, as a multiple of that of others, up to which it counts as no larger. The rounding errors of
/// a few numbers differ by that much with the order of their terms, which is unspecified.
const FACTOR: f64 = 4.0;

/// The error relative to the largest number up to which an answer still counts as more than nothing.
const SOMETHING_OF_IT: f64 = 0.9;

/// The digits of f64 itself cannot be removed in f64, so this many fewer are kept, which shows the same effect
/// enlarged.
const LOST: i32 = 4;

/// The number of digits that the steps of the reference keep, to show the effect of a dtype's digits.
pub(super) fn digits_of_steps(dtype: DType) -> i32 {
    match digits(dtype) {
        Some(digits) => digits.min(53 - LOST),
        None => 53,
    }
}

/// The divisor for the differences of such runs.
pub(super) fn scale(dtype: DType) -> f64 {
    let digits = digits(dtype).unwrap_or(53);
    f64::powi(2.0, digits - digits_of_steps(dtype))
}

/// Other results to compare a wrong answer with.
pub(super) struct Others<'a> {
    /// Their source.
    pub(super) name: &'a str,
    /// The results.
    pub(super) results: &'a [HostTensor],
    /// The divisor for their differences from the truth.
    pub(super) scale: f64,
    /// Whether the answer may be anything at elements where one of them is infinite or NaN and the truth is not, or the
    /// other way round. If not, such elements prove nothing.
    pub(super) beyond_range: bool,
}

/// The error of the others, if an answer is no farther from the truth.
pub(super) fn as_far_off(
    answer: &HostTensor,
    truth: &HostTensor,
    others: &Others<'_>,
    bounds: Bounds,
) -> Option<String> {
    let results: Vec<Vec<f64>> = others.results.iter().map(HostTensor::to_f64_vec).collect();
    if results.is_empty() || others.results.iter().any(|other| other.shape() != truth.shape()) {
        return None;
    }
    let (answers, truths) = (answer.to_f64_vec(), truth.to_f64_vec());
    let off = |i: usize| {
        results
            .iter()
            .map(|other| distance(other[i], truths[i]))
            .fold(0.0, f64::max)
    };
    let each: Vec<f64> = (0..truths.len()).map(|i| off(i) / others.scale).collect();
    let most = each.iter().copied().filter(|off| off.is_finite()).fold(0.0, f64::max);
    let largest = largest(truth);
    // An answer that is entirely wrong counts as no farther off only if the others' error is as large as the truth.
    let limit = match most < largest {
        true => (FACTOR * most).min(SOMETHING_OF_IT * largest),
        false => FACTOR * most,
    };
    let (mut worst, mut beyond) = (0.0, false);
    for ((&a, &t), off) in answers.iter().zip(&truths).zip(each) {
        let own = distance(a, t);
        if own <= bounds.around(t, largest) {
            continue;
        }
        if others.beyond_range && off == f64::INFINITY {
            beyond = true;
        } else if own <= limit {
            worst = f64::max(worst, own);
        } else {
            return None;
        }
    }
    let name = others.name;
    Some(match (beyond, worst > 0.0) {
        (true, false) => format!("{name} leaves its range there"),
        (true, true) => format!("{name} leaves its range there, and is {most:.1e} off where this is {worst:.1e} off"),
        (false, _) => format!("{name} is {most:.1e} off where this is {worst:.1e} off"),
    })
}

/// The distance of two numbers: infinite if only one of them is a number or finite.
fn distance(a: f64, b: f64) -> f64 {
    let difference = (a - b).abs();
    match a == b || (a.is_nan() && b.is_nan()) {
        true => 0.0,
        false if difference.is_nan() => f64::INFINITY,
        false => difference,
    }
}

#[cfg(test)]
mod tests {
    use polygrad_core::Shape;

    use super::*;
    use crate::tolerance::tolerance;

    fn row(values: &[f64]) -> HostTensor {
        HostTensor::new(Shape::from([values.len()]), values.to_vec()).unwrap()
    }

    fn excused(answer: &[f64], truth: &[f64], other: &[f64], beyond_range: bool) -> bool {
        let others = Others {
            name: "another",
            results: &[row(other)],
            scale: 1.0,
            beyond_range,
        };
        as_far_off(&row(answer), &row(truth), &others, tolerance(DType::F16, "add")).is_some()
    }

    #[test]
    fn no_farther_off_than_four_times_as_far() {
        let truth = [1e-3, 1.0];
        assert!(excused(&[0.2, 1.0], &truth, &[-0.05, 1.0], false));
        assert!(!excused(&[0.3, 1.0], &truth, &[-0.05, 1.0], false));
        assert!(
            excused(&[1e-3, 1.0], &truth, &truth, false),
            "what is right needs no excuse"
        );
        assert!(!excused(&[f64::NAN, 1.0], &truth, &[-0.05, 1.0], true));
        let (truth, noise) = ([1e-3, 2e-3], [9e-4, 1.4e-3]);
        assert!(excused(&[1e-3, 5e-4], &truth, &noise, false));
        assert!(
            !excused(&[0.0, 0.0], &truth, &noise, false),
            "the others have something of it"
        );
        assert!(
            excused(&[0.0, 0.0], &truth, &[-1e-3, -1e-3], false),
            "the others have nothing of it"
        );
    }

    #[test]
    fn only_another_s_own_range_excuses_and_only_where_it_ends() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        assert!(excused(&[inf, 1.0], &[7e4, 1.0], &[nan, 1.0], true));
        assert!(!excused(&[inf, 1.0], &[7e4, 1.0], &[nan, 1.0], false));
        assert!(!excused(&[inf, 0.0], &[7e4, 1.0], &[inf, 1.0], true));
        assert!(excused(&[3.0], &[nan], &[1.0], true));
        assert!(!excused(&[3.0], &[nan], &[1.0], false));
    }
}
