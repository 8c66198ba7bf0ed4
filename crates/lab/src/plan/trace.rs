//! Steps of several ranks as a trace.

use polygrad::nn::profile::Span;
use serde_json::json;

use super::trial::Taken;
use crate::trace::Trace;

/// The track of steps and their parts on this rank, which are nested.
const STEPS: usize = 0;

/// The track of the exchanges meanwhile.
const SUMS: usize = 1;

/// Steps of the case `title` on this many ranks, as seen by one of them.
pub(super) fn trace(title: &str, ranks: usize, steps: &[Taken]) -> Trace {
    let tracks = ["rank 0 computes", "gradients are exchanged"];
    let mut trace = Trace::new(&format!("{title} by {ranks} ranks"), &tracks);
    let Some(origin) = steps.first().map(|step| step.begin) else {
        return trace;
    };
    let between = |begin, end| Span::since(origin, begin, end);
    for (number, step) in steps.iter().enumerate() {
        let Taken {
            begin,
            computed,
            unpacked,
            end,
            sums,
        } = step;
        let name = format!("step {}", number + 1);
        trace.add(&name, "step", STEPS, &between(*begin, *end), json!({}));
        for (name, begin, end) in [
            ("forward and backward", begin, computed),
            ("waiting for gradients", computed, unpacked),
            ("optimizer", unpacked, end),
        ] {
            trace.add(name, "pass", STEPS, &between(*begin, *end), json!({}));
        }
        for sum in sums {
            let name = format!("all_reduce of bucket {}", sum.bucket);
            let waited = sum.begin.saturating_duration_since(sum.ready).as_secs_f64();
            let about = json!({"bytes": sum.bytes, "waited_us": waited * 1e6});
            trace.add(&name, "all_reduce", SUMS, &between(sum.begin, sum.end), about);
        }
    }
    trace
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn sums_stand_beside_what_was_computed_meanwhile() {
        let origin = Instant::now();
        let at = |ms| origin + Duration::from_millis(ms);
        let sum = |bucket, ready, begin, end| polygrad::train::Span {
            bucket,
            bytes: 8,
            ready: at(ready),
            begin: at(begin),
            end: at(end),
        };
        let step = |from| Taken {
            begin: at(from),
            computed: at(from + 10),
            unpacked: at(from + 14),
            end: at(from + 15),
            sums: vec![
                sum(0, from + 4, from + 4, from + 7),
                sum(1, from + 6, from + 7, from + 13),
            ],
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        let file = polygrad_console::atomic::AtomicFile::create(&path).unwrap();
        trace("cnn", 2, &[step(0), step(20)]).write(file).unwrap();
        let all: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let shown = |event: &serde_json::Value| {
            let number = |name: &str| event[name].as_f64().unwrap() as u64;
            let name = event["name"].as_str().unwrap().to_owned();
            (number("tid"), name, number("ts") / 1000, number("dur") / 1000)
        };
        let events: Vec<_> = all["traceEvents"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| event["ph"] == "X")
            .collect();
        let of = |tid, name: &str, ts, dur| (tid, name.to_owned(), ts, dur);
        assert_eq!(
            events[6..].iter().map(|event| shown(event)).collect::<Vec<_>>(),
            [
                of(0, "step 2", 20, 15),
                of(0, "forward and backward", 20, 10),
                of(0, "waiting for gradients", 30, 4),
                of(0, "optimizer", 34, 1),
                of(1, "all_reduce of bucket 0", 24, 3),
                of(1, "all_reduce of bucket 1", 27, 6),
            ]
        );
        assert_eq!(events[5]["args"]["waited_us"], 1000.0);
        assert_eq!(step(0).times().ready, [0.004, 0.006]);
    }
}
