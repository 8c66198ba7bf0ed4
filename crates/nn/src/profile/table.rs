//! Formats a profile as text.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::record::{Pass, Profile, Sample, Span};

/// Default number of rows of a table.
const ROWS: usize = 25;

/// The totals of a row.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    calls: u64,
    time: Duration,
    flops: u64,
    bytes: u64,
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.time += other.time;
        self.flops += other.flops;
        self.bytes += other.bytes;
    }

    fn of<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> Self {
        let mut sum = Self::default();
        for sample in samples {
            sum.add(Self {
                calls: 1,
                time: sample.span.duration(),
                flops: sample.flops,
                bytes: sample.bytes,
            });
        }
        sum
    }
}

/// Costs of allocating the device's tensors.
#[derive(Clone, Copy, Debug)]
pub struct Allocator {
    /// Number of allocations and deallocations.
    pub calls: u64,
    /// Bytes allocated.
    pub bytes: u64,
    /// Time spent on them.
    pub time: Duration,
}

impl Profile {
    /// A table of the time of each op for each combination of shapes, longest first, with the bytes of the tensors that
    /// it took and made. All rows after the first `rows` are merged into one.
    pub fn ops(&self, rows: usize) -> String {
        ops(self, rows)
    }

    /// A table of the time of each module in each pass, longest first. All rows after the first `rows` are merged into
    /// one.
    pub fn modules(&self, rows: usize) -> String {
        modules(self, rows)
    }

    /// A table of how the time of the steps was spent, with the costs of tensor memory if these are known.
    pub fn totals(&self, allocator: Option<Allocator>) -> String {
        whole(self, allocator)
    }

    /// A message about parameters that were copied because they had another owner; `None` if there were none.
    pub fn copies(&self) -> Option<String> {
        copies(self)
    }

    /// The median time of a step, formatted.
    pub fn median(&self) -> String {
        median(&self.steps)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.samples.is_empty() {
            return f.write_str(
                "no calls of a device were seen: nothing was computed on this thread, or on a backend that was chosen when the \
                 program was compiled",
            );
        }
        write!(
            f,
            "{}\n\n{}\n\n{}",
            self.ops(ROWS),
            self.modules(ROWS),
            self.totals(None)
        )?;
        match self.copies() {
            Some(warning) => write!(f, "\n\n{warning}"),
            None => Ok(()),
        }
    }
}

fn ops(profile: &Profile, rows: usize) -> String {
    let key = |sample: &Sample| (sample.pass(), sample.op, sample.shapes());
    let mut lines = vec![
        [
            "pass", "op", "shapes", "calls", "total", "share", "mean", "MB", "GFLOP/s",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for (group, sum) in grouped(profile, key, rows) {
        let (pass, op, shapes) = match &group {
            Ok((pass, op, shapes)) => (pass.name(), *op, shapes.clone()),
            Err(others) => ("", "others", format!("{others} more")),
        };
        let mut line = vec![pass.to_owned(), op.to_owned(), shapes];
        line.extend([sum.calls.to_string(), time(sum.time), share(profile, sum.time)]);
        line.extend([time(mean(sum.time, sum.calls)), megabytes(sum.bytes), rate(sum)]);
        lines.push(line);
    }
    aligned(&lines, 3)
}

fn modules(profile: &Profile, rows: usize) -> String {
    let is_there = |pass: &Pass| *pass != Pass::Replay || profile.samples.iter().any(|s| s.pass() == Pass::Replay);
    let passes: Vec<Pass> = Pass::ALL.into_iter().filter(is_there).collect();
    let names = passes.iter().map(|pass| pass.name());
    let head = ["module"].into_iter().chain(names).chain(["total", "share", "GFLOP/s"]);
    let mut lines = vec![head.map(str::to_owned).collect()];
    let key = |sample: &Sample| sample.module.clone();
    let groups = grouped(profile, key, rows);
    let shown: Vec<_> = groups
        .iter()
        .filter_map(|(group, _)| group.as_ref().ok().cloned())
        .collect();
    for (group, sum) in groups {
        let here = |sample: &&Sample| match &group {
            Ok(module) => sample.module == *module,
            Err(_) => !shown.contains(&sample.module),
        };
        let mut line = vec![match &group {
            Ok(module) => profile.label(module.as_deref()),
            Err(others) => format!("{others} more"),
        }];
        for &pass in &passes {
            let of_pass = Sum::of(
                profile
                    .samples
                    .iter()
                    .filter(here)
                    .filter(|sample| sample.pass() == pass),
            );
            line.push(if of_pass.calls == 0 {
                String::new()
            } else {
                time(of_pass.time)
            });
        }
        line.extend([time(sum.time), share(profile, sum.time), rate(sum)]);
        lines.push(line);
    }
    aligned(&lines, 1)
}

fn whole(profile: &Profile, allocator: Option<Allocator>) -> String {
    let all = Sum::of(&profile.samples);
    let between = steps_time(profile).saturating_sub(all.time);
    let mut lines = vec![
        ["in all", "calls", "total", "share", "mean", "GFLOP/s"]
            .map(str::to_owned)
            .to_vec(),
        vec![
            "ops".to_owned(),
            all.calls.to_string(),
            time(all.time),
            share(profile, all.time),
            time(mean(all.time, all.calls)),
            rate(all),
        ],
        [
            "between ops".to_owned(),
            String::new(),
            time(between),
            share(profile, between),
        ]
        .to_vec(),
    ];
    if let Some(Allocator {
        calls,
        bytes,
        time: spent,
    }) = allocator
    {
        let each = bytes as f64 / profile.steps.len().max(1) as f64;
        lines.push(vec![
            format!("allocator, in both ({:.1} MB a step)", each * 1e-6),
            calls.to_string(),
            time(spent),
            share(profile, spent),
            time(mean(spent, calls)),
            String::new(),
        ]);
    }
    aligned(&lines, 1)
}

fn copies(profile: &Profile) -> Option<String> {
    let updates = profile.samples.iter().filter(|sample| sample.pass() == Pass::Optimizer);
    let bytes: u64 = updates.map(|sample| sample.copied).sum();
    let each = bytes as f64 / profile.steps.len().max(1) as f64;
    (bytes > 0).then(|| {
        format!(
            "warning: the optimizer copies {:.3} MB of parameters a step, since something else still holds them: a loss that is alive, or a clone\n\
             fix: optimizer.backward_step(loss) takes the loss",
            each * 1e-6
        )
    })
}

fn median(steps: &[Span]) -> String {
    let mut times: Vec<Duration> = steps.iter().map(Span::duration).collect();
    times.sort_unstable();
    time(times.get(times.len() / 2).copied().unwrap_or_default())
}

/// Groups of samples, the longest time first; groups after the first `rows` are merged into one, with their number.
fn grouped<K: Ord>(profile: &Profile, key: impl Fn(&Sample) -> K, rows: usize) -> Vec<(Result<K, usize>, Sum)> {
    let mut groups: BTreeMap<K, Sum> = BTreeMap::new();
    for sample in &profile.samples {
        groups.entry(key(sample)).or_default().add(Sum::of([sample]));
    }
    let mut groups: Vec<(K, Sum)> = groups.into_iter().collect();
    groups.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.time));
    // A single further group takes no more room than a row that stands for it.
    let others = if groups.len() > rows + 1 {
        groups.split_off(rows)
    } else {
        Vec::new()
    };
    let mut out: Vec<(Result<K, usize>, Sum)> = groups.into_iter().map(|(key, sum)| (Ok(key), sum)).collect();
    if !others.is_empty() {
        let mut all = Sum::default();
        others.iter().for_each(|(_, sum)| all.add(*sum));
        out.push((Err(others.len()), all));
    }
    out
}

fn steps_time(profile: &Profile) -> Duration {
    profile.steps.iter().map(Span::duration).sum()
}

fn share(profile: &Profile, time: Duration) -> String {
    let all = steps_time(profile).as_secs_f64();
    format!("{:.1} %", 100.0 * time.as_secs_f64() / all.max(f64::MIN_POSITIVE))
}

fn mean(time: Duration, calls: u64) -> Duration {
    Duration::from_secs_f64(time.as_secs_f64() / calls.max(1) as f64)
}

/// Formats a time in a suitable unit.
fn time(time: Duration) -> String {
    let (value, unit) = match time.as_secs_f64() {
        s if s < 1e-6 => (s * 1e9, "ns"),
        s if s < 1e-3 => (s * 1e6, "µs"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    format!("{value:.1} {unit}")
}

fn megabytes(bytes: u64) -> String {
    format!("{:.3}", bytes as f64 * 1e-6)
}

/// Empty if no operations were counted.
fn rate(sum: Sum) -> String {
    if sum.flops == 0 || sum.time.is_zero() {
        return String::new();
    }
    let rate = sum.flops as f64 / sum.time.as_secs_f64() * 1e-9;
    if rate < 10.0 {
        format!("{rate:.2}")
    } else {
        format!("{rate:.1}")
    }
}

/// Formats columns, the first `left` of them left-aligned, the others right-aligned.
fn aligned(lines: &[Vec<String>], left: usize) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |cells: &Vec<String>| {
        let cell = |(column, text): (usize, &String)| {
            let width = widths[column];
            if column < left {
                format!("{text:<width$}")
            } else {
                format!("{text:>width$}")
            }
        };
        let text = cells.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ");
        text.trim_end().to_owned()
    };
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use polygrad_tensor::{Activity, DType, Shape};

    use super::super::record::LayerCall;
    use super::*;

    fn profile() -> Profile {
        let at = |begin: u64, end: u64| Span {
            begin: Duration::from_micros(begin),
            end: Duration::from_micros(end),
        };
        let sample = |op, dtype, activity, module: Option<&str>, span, flops| Sample {
            op,
            operands: [(dtype, Shape::from([4, 2])), (DType::F32, Shape::from([2]))].into(),
            span,
            activity,
            module: module.map(Into::into),
            flops,
            bytes: 1_000,
            replayed: false,
            copied: 0,
        };
        let (direct, backward) = (Activity::Direct, Activity::Backward(1));
        Profile {
            steps: vec![at(0, 100), at(100, 200)],
            samples: vec![
                sample("linear", DType::F32, direct, Some("fc"), at(0, 40), 400_000),
                sample("linear", DType::F32, direct, Some("fc"), at(100, 140), 400_000),
                sample("matmul", DType::F32, backward, Some("fc"), at(50, 70), 0),
                sample("cross_entropy", DType::I64, direct, None, at(70, 80), 0),
                sample("adam_step", DType::F32, Activity::Update(2), Some(""), at(80, 85), 0),
            ],
            layers: vec![LayerCall {
                place: "fc".into(),
                kind: "Linear".into(),
                span: at(0, 40),
            }],
        }
    }

    #[test]
    fn ops_are_summed_up_by_shapes() {
        assert_eq!(
            ops(&profile(), 2),
            "\
pass      op      shapes      calls    total   share     mean     MB  GFLOP/s
forward   linear  [4, 2] [2]      2  80.0 µs  40.0 %  40.0 µs  0.002     10.0
backward  matmul  [4, 2] [2]      1  20.0 µs  10.0 %  20.0 µs  0.001
          others  2 more          2  15.0 µs   7.5 %   7.5 µs  0.002"
        );
        assert!(ops(&profile(), 3).contains("cross_entropy  i64[4, 2] [2]"));
    }

    #[test]
    fn modules_are_summed_up_by_passes() {
        assert_eq!(
            modules(&profile(), 9),
            "\
module               forward  backward  optimizer     total   share  GFLOP/s
fc (Linear)          80.0 µs   20.0 µs             100.0 µs  50.0 %     8.00
(outside the model)  10.0 µs                        10.0 µs   5.0 %
(model)                                    5.0 µs    5.0 µs   2.5 %"
        );
        let cut = modules(&profile(), 1);
        assert!(
            cut.ends_with("2 more       10.0 µs               5.0 µs   15.0 µs   7.5 %"),
            "{cut}"
        );
    }

    #[test]
    fn the_steps_are_accounted_for() {
        let allocator = Allocator {
            calls: 4,
            bytes: 3_000_000,
            time: Duration::from_micros(1),
        };
        assert_eq!(
            whole(&profile(), Some(allocator)),
            "\
in all                              calls     total   share      mean  GFLOP/s
ops                                     5  115.0 µs  57.5 %   23.0 µs     6.96
between ops                                 85.0 µs  42.5 %
allocator, in both (1.5 MB a step)      4    1.0 µs   0.5 %  250.0 ns"
        );
        assert_eq!(median(&profile().steps), "100.0 µs");
    }
}
