//! Training steps of `mlp-rl`, `mlp-big`, `cnn` and `gpt` on Burn's CPU engine, through Polygrad and with Burn's own modules, autodiff and
//! optimizers, in turn, on one thread, from the same weights: `cargo run --release [WORKLOAD…]`.

mod theirs;

use std::time::{Duration, Instant};

use polygrad_burn::Burn;
use polygrad_tensor::{Device, Result};
use polygrad_workloads::select;

/// A training step, which gives the loss.
type Step = Box<dyn FnMut() -> f64>;

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Runs both in turn and prints a row: medians, ratio, the ratio of the fastest, and the last losses.
fn compare(name: &str, mut ours: Step, mut theirs: Step) {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    let (mut loss_a, mut loss_b) = (0.0, 0.0);
    for _ in 0..5 {
        (loss_a, loss_b) = (ours(), theirs());
    }
    let start = Instant::now();
    // Small steps are timed in bundles.
    let probe = Instant::now();
    (loss_a, loss_b) = {
        let _ = (loss_a, loss_b);
        (ours(), theirs())
    };
    let bundle = (Duration::from_millis(2).as_secs_f64() / probe.elapsed().as_secs_f64()).ceil() as usize;
    while a.len() < 30 || start.elapsed() < Duration::from_secs(4) {
        for (times, step, loss) in [(&mut a, &mut ours, &mut loss_a), (&mut b, &mut theirs, &mut loss_b)] {
            let start = Instant::now();
            for _ in 0..bundle {
                *loss = step();
            }
            times.push(start.elapsed().as_secs_f64() * 1e6 / bundle as f64);
        }
    }
    let (median_a, median_b) = (median(&mut a), median(&mut b));
    println!(
        "| {name} | {median_a:.0} | {median_b:.0} | {:.2} | {:.0} | {:.0} | {:.2} | {loss_a:.6} / {loss_b:.6} |",
        median_a / median_b,
        a[0],
        b[0],
        a[0] / b[0],
    );
}

fn main() -> Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    println!("| step | ours, µs | Burn, µs | ratio | ours, fastest | Burn, fastest | ratio | losses |");
    println!("|---|---|---|---|---|---|---|---|");
    for name in ["mlp-rl", "mlp-big", "cnn", "gpt"] {
        for case in select(name)? {
            let name = case.name();
            if !wanted.is_empty() && !wanted.iter().any(|word| name.starts_with(word.as_str())) {
                continue;
            }
            let mut prepared = case.prepare(&Device::<Burn>::default())?;
            let theirs = theirs::step(&name, prepared.weights()?);
            let ours = move || prepared.step().unwrap().unwrap();
            compare(&name, Box::new(ours), theirs);
        }
    }
    Ok(())
}
