//! Training steps of `mlp-rl`, `mlp-big`, `cnn` and `gpt` on Burn's CPU engine, through Polygrad and with Burn's own modules, autodiff and
//! optimizers, in turn, on one thread, from the same weights: `cargo run --release [WORKLOAD…]`.

mod ours;
mod theirs;

use std::time::{Duration, Instant};

/// What both sides train on.
pub struct Data {
    pub x: Vec<f32>,
    pub tokens: Vec<i64>,
    pub targets: Vec<i64>,
}

/// Which optimizer.
#[derive(Clone, Copy, PartialEq)]
pub enum Optim {
    Sgd,
    Adam,
    AdamW,
}

pub const RATE: f64 = 1e-3;

/// Numbers from 0 to 1 that are the same on both sides.
pub fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..count)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 24) as f32
        })
        .collect()
}

fn classes(count: usize, of: usize, seed: u64) -> Vec<i64> {
    noise(count, seed)
        .into_iter()
        .map(|x| ((x * of as f32) as i64).min(of as i64 - 1))
        .collect()
}

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

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let runs = |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.starts_with(w.as_str()));
    println!("| step | ours, µs | Burn, µs | ratio | ours, fastest | Burn, fastest | ratio | losses |");
    println!("|---|---|---|---|---|---|---|---|");
    let mlps: [(&str, &[usize], usize); 2] = [("mlp-rl", &[4, 64, 64, 2], 32), ("mlp-big", &[784, 512, 512, 10], 128)];
    for (name, sizes, batch) in mlps {
        for (kind, optim) in [("SGD", Optim::Sgd), ("Adam", Optim::Adam)] {
            if runs(name) {
                let classes = classes(batch, sizes[sizes.len() - 1], 2);
                let data = Data {
                    x: noise(batch * sizes[0], 1),
                    tokens: Vec::new(),
                    targets: classes,
                };
                let (ours, weights) = ours::mlp(sizes, batch, &data, optim);
                compare(
                    &format!("{name}, {kind}"),
                    ours,
                    theirs::mlp(sizes, batch, &data, optim, weights),
                );
            }
        }
    }
    if runs("cnn") {
        let data = Data {
            x: noise(64 * 784, 1),
            tokens: Vec::new(),
            targets: classes(64, 10, 2),
        };
        let (ours, weights) = ours::cnn(&data);
        compare("cnn, Adam", ours, theirs::cnn(&data, weights));
    }
    if runs("gpt") {
        let data = Data {
            x: Vec::new(),
            tokens: classes(16 * 64, 1024, 1),
            targets: classes(16 * 64, 1024, 2),
        };
        let (ours, weights) = ours::gpt(&data);
        compare("gpt, AdamW", ours, theirs::gpt(&data, weights));
    }
}
