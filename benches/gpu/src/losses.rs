//! `losses`: compares the losses of the same training on a device and on the CPU, step by step.

use crate::trainer::Trainer;

const STEPS: usize = 100;
/// Until this step, rounding differences are still small.
const EARLY: usize = 10;
/// The largest allowed differences as shares of the first loss: early, and to the end.
const SHARES: (f64, f64) = (1e-3, 2e-2);
const CASES: [&str; 7] = [
    "mlp-small sgd",
    "mlp-small adam",
    "mlp-big adam",
    "cnn",
    "gpt",
    "lstm",
    "resnet",
];

/// Trains each case (all if none is named) for 100 steps on both, and prints the results.
///
/// # Errors
/// If a device is missing, or losses differ by more than rounding explains.
pub(crate) fn command(device: &str, cases: &[&str]) -> Result<(), String> {
    let (mut host, mut card) = (Trainer::ours("cpu")?, Trainer::ours(device)?);
    println!(
        "losses of {STEPS} steps, on the CPU and on {device}; the largest difference is a share of the first loss"
    );
    println!(
        "{:<16} {:>12} {:>12} {:>12} {:>12} {:>12}",
        "case", "first", "last, cpu", "last, here", "to step 10", "to the end"
    );
    let mut wrong = Vec::new();
    for case in if cases.is_empty() { &CASES[..] } else { cases } {
        let losses = (host.losses(case, STEPS)).and_then(|right| Ok((right, card.losses(case, STEPS)?)));
        let (right, found) = match losses {
            Ok(losses) => losses,
            Err(reason) => {
                println!("{case:<16} failed: {reason}");
                wrong.push(*case);
                continue;
            }
        };
        let (early, late) = differences(&right, &found);
        println!(
            "{case:<16} {:>12.6} {:>12.6} {:>12.6} {early:>12.2e} {late:>12.2e}",
            right[0],
            right[STEPS - 1],
            found[STEPS - 1]
        );
        // A NaN loss is not within any bound.
        if !(early <= SHARES.0 && late <= SHARES.1) {
            wrong.push(case);
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "{} of {device} part from the CPU's by more than rounding explains",
            wrong.join(", ")
        )),
    }
}

/// The largest difference of the first steps and of all steps, as shares of the first loss; NaN if a loss is NaN.
fn differences(right: &[f64], found: &[f64]) -> (f64, f64) {
    let shares = || right.iter().zip(found).map(|(a, b)| (a - b).abs() / right[0].abs());
    let largest = |shares: &mut dyn Iterator<Item = f64>| {
        shares.fold(0.0, |largest, share| match share.is_nan() || f64::is_nan(largest) {
            true => f64::NAN,
            false => share.max(largest),
        })
    };
    (largest(&mut shares().take(EARLY)), largest(&mut shares()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_shares_of_the_first_loss_and_nan_is_one() {
        let right = vec![2.0; STEPS];
        let mut found = right.clone();
        (found[3], found[50]) = (2.002, 1.9);
        let (early, late) = differences(&right, &found);
        assert!((early - 1e-3).abs() < 1e-9 && (late - 0.05).abs() < 1e-9);
        found[60] = f64::NAN;
        let (early, late) = differences(&right, &found);
        assert!(early.is_finite() && late.is_nan());
    }
}
