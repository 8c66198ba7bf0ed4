//! Times as text.

use std::fmt::Write;

use super::measure::{Outcome, Series};
use crate::progress::grouped;

/// A table of times and throughputs: a row for each size, a column for each device; then who is fastest where, and what failed.
pub(crate) fn table(series: &Series) -> String {
    let work = series.work;
    let cell = |size: usize, outcome: &Outcome| match outcome {
        Outcome::Time(seconds) => format!("{} {:>9}", duration(*seconds), number(work.amount(size) / seconds)),
        Outcome::Failed(_) => "failed".to_owned(),
        Outcome::Skipped => "too slow".to_owned(),
    };
    let mut rows: Vec<Vec<String>> = vec![vec![work.axis().to_owned()]];
    rows[0].extend(series.devices.iter().cloned());
    for (size, outcomes) in &series.rows {
        let mut row = vec![grouped(*size as u64)];
        row.extend(outcomes.iter().map(|outcome| cell(*size, outcome)));
        rows.push(row);
    }
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = format!("{} ({}): time, {}\n", work.name(), work.description(), work.unit());
    for row in rows {
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(text, "  {cell:>width$}");
        }
        text.push('\n');
    }
    let _ = writeln!(text, "  fastest: {}", fastest(series));
    for failure in failures(series) {
        let _ = writeln!(text, "  {failure}");
    }
    text
}

/// Which device is fastest from which size to which.
fn fastest(series: &Series) -> String {
    let mut spans: Vec<(&str, usize, usize)> = Vec::new();
    for (size, outcomes) in &series.rows {
        let timed = series.devices.iter().zip(outcomes);
        let best = timed
            .filter_map(|(device, outcome)| outcome.seconds().map(|seconds| (device.as_str(), seconds)))
            .min_by(|a, b| a.1.total_cmp(&b.1));
        match (best, spans.last_mut()) {
            (Some((device, _)), Some(span)) if span.0 == device => span.2 = *size,
            (Some((device, _)), _) => spans.push((device, *size, *size)),
            (None, _) => {}
        }
    }
    let text: Vec<String> = spans
        .iter()
        .map(|&(device, from, to)| match from == to {
            true => format!("{device} at {}", grouped(from as u64)),
            false => format!("{device} from {} to {}", grouped(from as u64), grouped(to as u64)),
        })
        .collect();
    if text.is_empty() {
        "none".to_owned()
    } else {
        text.join(", ")
    }
}

/// The first reason of each device that failed.
fn failures(series: &Series) -> Vec<String> {
    let of_device = |(column, device): (usize, &String)| {
        series.rows.iter().find_map(|(size, outcomes)| match &outcomes[column] {
            Outcome::Failed(reason) => Some(format!("{device} failed at {}: {reason}", grouped(*size as u64))),
            _ => None,
        })
    };
    series.devices.iter().enumerate().filter_map(of_device).collect()
}

/// Seconds in a unit that suits them, nine characters wide.
pub(crate) fn duration(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s < 1e-6 => (s * 1e9, "ns"),
        s if s < 1e-3 => (s * 1e6, "µs"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s => (s, "s "),
    };
    format!("{value:>6.1} {unit}")
}

/// Three digits or so.
fn number(value: f64) -> String {
    match value {
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v => grouped(v.round() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::compare::work::Work;

    #[test]
    fn says_who_is_fastest_where_and_what_failed() {
        let time = Outcome::Time;
        let series = Series {
            work: Work::Matmul,
            devices: vec!["cpu".into(), "torch".into(), "mine".into()],
            rows: vec![
                (16, vec![time(1e-6), time(4e-6), Outcome::Failed("matmul: no".into())]),
                (64, vec![time(9e-6), time(2e-5), Outcome::Skipped]),
                (1024, vec![time(3e-2), time(2e-2), Outcome::Skipped]),
            ],
        };
        assert_eq!(
            table(&series),
            "\
matmul (n×n by n×n): time, GFLOP/s
      n                  cpu                torch      mine
     16     1.0 µs      8.19     4.0 µs      2.05    failed
     64     9.0 µs      58.3    20.0 µs      26.2  too slow
  1,024    30.0 ms      71.6    20.0 ms       107  too slow
  fastest: cpu from 16 to 64, torch at 1,024
  mine failed at 16: matmul: no
"
        );
    }

    #[test]
    fn times_take_the_unit_that_suits_them() {
        assert_eq!(
            [5e-8, 2.5e-5, 0.012, 3.0].map(duration),
            ["  50.0 ns", "  25.0 µs", "  12.0 ms", "   3.0 s "]
        );
    }
}
