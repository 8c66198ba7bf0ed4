//! Training steps of `mlp-rl`, `mlp-big`, `cnn` and `gpt`, through Polygrad on the torch backend and in tch with LibTorch's autograd and optimizers, in turn:
//! `cargo run --release [seconds] [workload]`.

mod theirs;

use std::time::{Duration, Instant};

use polygrad_tensor::{Device, Result};
use polygrad_torch::{Torch, tch};
use polygrad_workloads::{Step, select};

/// This thread's time on a core so far, which other programs disturb less than they do the clock; nothing where the system does not tell. It
/// is counted in steps of some milliseconds, so that only the sum over many training steps says something.
fn on_core() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let seconds: f64 = args.next().and_then(|text| text.parse().ok()).unwrap_or(4.0);
    let only = args.next();
    tch::set_num_threads(1);
    let device = Device::<Torch>::default();
    println!(
        "| workload | polygrad on torch, µs | tch, µs | ratio | of minima | on core, µs | tch, µs | ratio | loss | tch's |\n|---|---|---|---|---|---|---|---|---|---|"
    );
    for name in ["mlp-rl sgd", "mlp-rl adam", "mlp-big sgd", "mlp-big adam", "cnn", "gpt"] {
        if only.as_ref().is_some_and(|only| !name.starts_with(only.as_str())) {
            continue;
        }
        let mut prepared = select(name)?[0].prepare(&device)?;
        let mut theirs: Step = theirs::step(name, prepared.weights()?);
        let mut ours = || prepared.step();
        let mut losses = (None, None);
        for _ in 0..5 {
            losses = (ours()?, theirs()?);
        }
        let (mut a, mut b) = (Vec::new(), Vec::new());
        let (mut core_a, mut core_b) = (Duration::ZERO, Duration::ZERO);
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        while Instant::now() < end || a.len() < 15 {
            let (start, core_start) = (Instant::now(), on_core());
            losses.0 = ours()?;
            let (middle, core_middle) = (Instant::now(), on_core());
            losses.1 = theirs()?;
            b.push(middle.elapsed());
            core_b += on_core() - core_middle;
            a.push(middle - start);
            core_a += core_middle - core_start;
        }
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let (x, y) = (micros(median(&mut a)), micros(median(&mut b)));
        let (core_x, core_y) = (micros(core_a) / a.len() as f64, micros(core_b) / b.len() as f64);
        println!(
            "| {name} | {x:.0} | {y:.0} | {:.3} | {:.3} | {core_x:.0} | {core_y:.0} | {:.3} | {:?} | {:?} |",
            x / y,
            micros(a[0]) / micros(b[0]),
            core_x / core_y,
            losses.0,
            losses.1
        );
    }
    Ok(())
}
