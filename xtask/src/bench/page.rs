//! docs/benchmarks.md.

use std::fmt::Write;

use serde_json::Value;

use super::build::Build;

/// Groups of workloads, one for each table.
const TABLES: [(&str, &[&str]); 5] = [
    (
        "Training and acting",
        &[
            "mlp-act",
            "mlp-rl",
            "mlp-small",
            "mlp-big",
            "cnn",
            "resnet",
            "gpt",
            "lstm",
        ],
    ),
    ("An op on 64 numbers", &["dispatch"]),
    ("Elementwise", &["elementwise"]),
    ("Matrix products (m × n × k)", &["gemm"]),
    ("Attention (batch × heads × queries × keys × width)", &["attention"]),
];

/// The whole page, including the command that wrote it; writing to a string cannot fail.
pub(super) fn page(command: &str, reports: &[Value], builds: &[Build]) -> String {
    let mut text = format!(
        "# Benchmarks\n\nWritten by `{command}`, which sets the peers up and times them in turn with Polygrad, a few milliseconds each, in one run. \
         A cell has the median time of a step, and how many times Polygrad's that is; **bold** where the peer is faster. Polygrad's own has the distance \
         of the quartiles as a share of the median; its training steps are captured (`TrainStep::captured`), and stand as they are written, without that, in a column of their own. What a workload is stands in [performance.md](performance.md#the-workloads), the peers' \
         programs in `benches/peers`; `floor` is no library, but what this machine gives without one.\n",
    );
    if let Some(report) = reports.first() {
        let _ = writeln!(
            text,
            "\n{}, {}. {}.",
            string(&report["machine"]),
            string(&report["date"]),
            versions(reports).join(", ")
        );
    }
    for report in reports {
        let threads = report["threads"].as_u64().unwrap_or(0);
        let many = if threads == 1 {
            "one thread".to_owned()
        } else {
            format!("{threads} threads")
        };
        let _ = writeln!(text, "\n## On {many}\n\n![Ratios on {many}](benchmarks-{threads}.png)");
        for (title, workloads) in TABLES {
            table(&mut text, title, report, workloads);
        }
        losses(&mut text, report);
        failures(&mut text, report);
    }
    memory(&mut text, reports);
    build(&mut text, builds);
    text
}

fn cases<'a>(report: &'a Value, workloads: &[&str]) -> Vec<&'a Value> {
    let of = |case: &&Value| workloads.contains(&string(&case["workload"]).as_str());
    list(&report["cases"]).iter().filter(of).collect()
}

/// A row for each case, a column for each contestant.
fn table(text: &mut String, title: &str, report: &Value, workloads: &[&str]) {
    let cases = cases(report, workloads);
    let Some(first) = cases.first() else { return };
    head(text, title, first);
    for case in cases {
        let _ = write!(text, "| {} |", string(&case["case"]));
        for (i, result) in list(&case["results"]).iter().enumerate() {
            let _ = write!(text, " {} |", cell(i, result));
        }
        text.push('\n');
    }
}

fn head(text: &mut String, title: &str, case: &Value) {
    let names: Vec<String> = list(&case["results"])
        .iter()
        .map(|result| short(&result["name"]))
        .collect();
    let _ = writeln!(
        text,
        "\n### {title}\n\n| case | {} |\n|---|{}",
        names.join(" | "),
        "---|".repeat(names.len())
    );
}

fn cell(i: usize, result: &Value) -> String {
    let Some(median) = result["median"].as_f64() else {
        return "–".to_owned();
    };
    let quartile = |i: usize| result["quartiles"][i].as_f64().unwrap_or(median);
    match (i, result["ratio"].as_f64()) {
        (0, _) => format!(
            "{} ± {:.0} %",
            duration(median),
            100.0 * (quartile(1) - quartile(0)) / median
        ),
        (_, Some(ratio)) if ratio < 1.0 => format!("**{} · {ratio:.2}**", duration(median)),
        (_, Some(ratio)) => format!("{} · {ratio:.2}", duration(median)),
        (_, None) => duration(median),
    }
}

/// The losses of the fifth step, which show that the work is the same.
fn losses(text: &mut String, report: &Value) {
    let has_loss = |case: &&Value| list(&case["results"]).iter().any(|result| result["loss"].is_number());
    let cases: Vec<&Value> = list(&report["cases"]).iter().filter(has_loss).collect();
    let Some(first) = cases.first() else { return };
    head(text, "The loss of the fifth step", first);
    for case in cases {
        let losses = list(&case["results"])
            .iter()
            .map(|result| match result["loss"].as_f64() {
                Some(loss) => format!("{loss:.6}"),
                None => "–".to_owned(),
            });
        let _ = writeln!(
            text,
            "| {} | {} |",
            string(&case["case"]),
            losses.collect::<Vec<_>>().join(" | ")
        );
    }
}

/// The reasons for empty cells, except for cases that a peer does not support.
fn failures(text: &mut String, report: &Value) {
    let mut failures: Vec<(String, Vec<String>)> = Vec::new();
    for (kind, before) in [("cases", ""), ("memory", "memory ")] {
        for case in list(&report[kind]) {
            for result in list(&case["results"]) {
                let reason = string(&result["failed"]);
                if reason.is_empty() || reason.starts_with("it has no ") {
                    continue;
                }
                let said = format!("{}: {}", short(&result["name"]), reason.replace('\n', " "));
                let name = format!("{before}{}", string(&case["case"]));
                match failures.iter_mut().find(|(known, _)| *known == said) {
                    Some((_, names)) => names.push(name),
                    None => failures.push((said, vec![name])),
                }
            }
        }
    }
    if !failures.is_empty() {
        text.push_str("\n### What failed\n\n");
    }
    for (said, names) in failures {
        let _ = writeln!(text, "- {said} ({})", names.join(", "));
    }
}

fn memory(text: &mut String, reports: &[Value]) {
    let mut begun = false;
    for report in reports {
        for case in list(&report["memory"]) {
            if !begun {
                head(text, "The most memory in use while training", case);
                begun = true;
            }
            let results = list(&case["results"]);
            let ours = results.first().and_then(|result| result["bytes"].as_f64());
            let cell = |(i, result): (usize, &Value)| match (result["bytes"].as_f64(), ours) {
                (None, _) => "–".to_owned(),
                (Some(bytes), Some(ours)) if i > 0 => {
                    let cell = format!("{:.0} MB · {:.2}", bytes * 1e-6, bytes / ours);
                    if bytes < ours { format!("**{cell}**") } else { cell }
                }
                (Some(bytes), _) => format!("{:.0} MB", bytes * 1e-6),
            };
            let cells: Vec<String> = results.iter().enumerate().map(cell).collect();
            let threads = report["threads"].as_u64().unwrap_or(0);
            let _ = writeln!(
                text,
                "| {}, threads: {threads} | {} |",
                string(&case["case"]),
                cells.join(" | ")
            );
        }
    }
}

fn build(text: &mut String, builds: &[Build]) {
    if builds.is_empty() {
        return;
    }
    text.push_str(
        "\n### A clean release build of a program that trains `mlp-small`\n\n| library | seconds | crates | stripped program |\n|---|---|---|---|\n",
    );
    for build in builds {
        let _ = writeln!(
            text,
            "| {} | {:.0} | {} | {:.1} MB |",
            build.name,
            build.seconds,
            build.crates,
            build.bytes as f64 * 1e-6
        );
    }
}

/// Names with versions, each once.
fn versions(reports: &[Value]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for case in reports.iter().flat_map(|report| list(&report["cases"])) {
        for result in list(&case["results"]) {
            let name = string(&result["name"]);
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A name without its version.
fn short(name: &Value) -> String {
    string(name).split(' ').next().unwrap_or_default().to_owned()
}

/// Seconds with three digits and a unit.
fn duration(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s < 1e-6 => (s * 1e9, "ns"),
        s if s < 1e-3 => (s * 1e6, "µs"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    match value {
        v if v < 10.0 => format!("{v:.2} {unit}"),
        v if v < 100.0 => format!("{v:.1} {unit}"),
        v => format!("{v:.0} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_where_a_peer_is_faster_are_bold() {
        let result = |name: &str, median: f64| {
            json!({"name": name, "median": median, "quartiles": [median * 0.99, median * 1.01],
                   "ratio": median / 2e-5, "loss": 0.25})
        };
        let failed = json!({"name": "none 1", "failed": "it ended"});
        let lacks = json!({"name": "none 1", "failed": "it has no gpt"});
        let results = [
            result("polygrad 0.1.0", 2e-5),
            result("torch 2.13.0", 3e-4),
            result("fast 1", 1e-5),
            failed,
        ];
        let report = json!({
            "machine": "a machine", "date": "2026-11-22", "threads": 1,
            "cases": [{"case": "mlp-rl adam", "workload": "mlp-rl", "results": results}],
            "memory": [{"case": "gpt", "results": [{"name": "polygrad 0.1.0", "bytes": 2e8}, {"name": "torch 2.13.0", "bytes": 1e8}, lacks]}],
        });
        let build = Build {
            name: "polygrad",
            seconds: 30.2,
            crates: 40,
            bytes: 2_500_000,
        };
        let page = page("cargo xtask bench", &[report], &[build]);
        for line in [
            "a machine, 2026-11-22. polygrad 0.1.0, torch 2.13.0, fast 1, none 1.",
            "| case | polygrad | torch | fast | none |",
            "| mlp-rl adam | 20.0 µs ± 2 % | 300 µs · 15.00 | **10.0 µs · 0.50** | – |",
            "| mlp-rl adam | 0.250000 | 0.250000 | 0.250000 | – |",
            "\n- none: it ended (mlp-rl adam)\n",
            "| gpt, threads: 1 | 200 MB | **100 MB · 0.50** | – |",
            "| polygrad | 30 | 40 | 2.5 MB |",
        ] {
            assert!(page.contains(line), "{page}\nhas no line {line}");
        }
    }
}
