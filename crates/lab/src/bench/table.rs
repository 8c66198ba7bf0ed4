//! Results as lines of text.

use polygrad_workloads::Case;

use super::limits::Limits;
use super::memory::Peak;
use super::report::{Report, throughput};
use super::rounds::Outcome;

/// The subject of the measurement, and the column names.
pub(crate) fn head(report: &Report) -> String {
    let columns = ["median", "fastest", "spread"]
        .map(|name| format!("{name:>10}"))
        .concat();
    let limits = report.limits.map(|limits| limits.line() + "\n").unwrap_or_default();
    format!(
        "{} on {}, {}\n{limits}{:<28}{columns}  throughput; loss of the fifth step",
        report.device, report.machine, report.date, "case"
    )
}

/// A line for each contestant. The first has the share of the limits that it reaches, the others their time relative to
/// the first.
pub(crate) fn times(case: &Case, outcomes: &[Outcome], limits: Option<&Limits>) -> String {
    let native = outcomes.first().and_then(|outcome| outcome.figures.as_ref().ok());
    let row = |(i, outcome): (usize, &Outcome)| {
        let name = match i {
            0 => case.name(),
            _ => format!("  {}", outcome.name),
        };
        let figures = match &outcome.figures {
            Err(reason) => return format!("{name:<28}  failed: {reason}"),
            Ok(figures) => figures,
        };
        let units: Vec<String> = throughput(case, figures.median)
            .into_iter()
            .map(|(value, unit)| format!("{} {unit}", digits(value)))
            .collect();
        let mut line = format!(
            "{name:<28} {:>9} {:>9} {:>7.1} %  {}",
            duration(figures.median),
            duration(figures.minimum),
            100.0 * figures.spread(),
            units.join(", ")
        );
        if let Some(share) = limits
            .filter(|_| i == 0)
            .and_then(|limits| limits.share(case, figures.median))
        {
            line += &format!(" ({share:.2} of the limit)");
        }
        if let Some(loss) = figures.loss {
            line += &format!("; loss {loss:.6}");
        }
        if let (1.., Some(native)) = (i, native) {
            line += &format!("; {:.2} times ours", figures.median / native.median);
        }
        line
    };
    outcomes.iter().enumerate().map(row).collect::<Vec<_>>().join("\n")
}

/// A line for each contestant. Those after the first have their memory relative to the first.
pub(crate) fn peaks(case: &str, peaks: &[Peak]) -> String {
    let native = peaks.first().and_then(|peak| peak.bytes.as_ref().ok());
    let row = |(i, peak): (usize, &Peak)| {
        let name = match i {
            0 => format!("memory {case}"),
            _ => format!("  {}", peak.name),
        };
        match (&peak.bytes, native) {
            (Err(reason), _) => format!("{name:<28}  failed: {reason}"),
            (Ok(bytes), Some(native)) if i > 0 => format!(
                "{name:<28} {:>6.1} MB; {:.2} times ours",
                *bytes as f64 * 1e-6,
                *bytes as f64 / *native as f64
            ),
            (Ok(bytes), _) => format!("{name:<28} {:>6.1} MB", *bytes as f64 * 1e-6),
        }
    };
    peaks.iter().enumerate().map(row).collect::<Vec<_>>().join("\n")
}

/// Seconds in a suitable unit, nine characters wide.
pub(crate) fn duration(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s < 1e-6 => (s * 1e9, "ns"),
        s if s < 1e-3 => (s * 1e6, "µs"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s => (s, "s "),
    };
    format!("{value:>6.1} {unit}")
}

/// About three digits.
fn digits(value: f64) -> String {
    match value {
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::rounds::Figures;

    #[test]
    fn a_row_each_with_the_ratio_to_ours() {
        let outcome = |name: &str, median: f64, loss| Outcome {
            name: name.to_owned(),
            figures: Ok(Figures {
                median,
                minimum: median * 0.9,
                quartiles: [median * 0.98, median * 1.02],
                steps: 30,
                loss,
            }),
        };
        let case = polygrad_workloads::select("gemm/64x64x64").unwrap()[0];
        let failed = Outcome {
            name: "jax 0.8".into(),
            figures: Err("it ended".into()),
        };
        let outcomes = [
            outcome("polygrad", 1e-5, None),
            outcome("torch 2.13.0", 1.5e-5, Some(0.5)),
            failed,
        ];
        assert_eq!(
            times(&case, &outcomes, None),
            "\
gemm 64x64x64                  10.0 µs    9.0 µs     4.0 %  52.4 GFLOP/s
  torch 2.13.0                 15.0 µs   13.5 µs     4.0 %  35.0 GFLOP/s; loss 0.500000; 1.50 times ours
  jax 0.8                     failed: it ended"
        );
    }
}
