//! Training steps of the workloads on the candle backend and by candle itself with candle-nn, from the same weights and on the same data, in turn
//! (ours, candle's, ours, …). Run with `RAYON_NUM_THREADS=1`; arguments choose workloads by name.
//!
//! candle's side is as its user would write it, but for layer norm: candle-nn's fused one gives its parameters no gradient, so that it is made of
//! plain ops, as candle-nn's own `layer_norm_slow` is.

mod ours;
mod theirs;
mod work;

use std::time::{Duration, Instant};

use work::{Optim, Work};

type AnyResult<T> = Result<T, Box<dyn std::error::Error>>;

/// One training step; gives the loss.
pub(crate) type Step = Box<dyn FnMut() -> AnyResult<f64>>;

const SECONDS: f64 = 4.0;
const LEAST: usize = 15;

fn median(times: &mut [Duration]) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn compare(name: &str, work: &Work, optim: Optim) -> AnyResult<()> {
    let mut sides: [Step; 2] = [ours::step(work, optim)?, theirs::step(work, optim)?];
    let mut losses = [0.0; 2];
    for _ in 0..3 {
        for (loss, step) in losses.iter_mut().zip(&mut sides) {
            *loss = step()?;
        }
    }
    let mut times = [Vec::new(), Vec::new()];
    let start = Instant::now();
    while times[0].len() < LEAST || start.elapsed().as_secs_f64() < SECONDS {
        for ((loss, step), times) in losses.iter_mut().zip(&mut sides).zip(&mut times) {
            let start = Instant::now();
            *loss = step()?;
            times.push(start.elapsed());
        }
    }
    let [mut a, mut b] = times;
    let least = [&a, &b].map(|times| times.iter().min().map_or(0.0, Duration::as_secs_f64) * 1e6);
    let (a, b) = (median(&mut a), median(&mut b));
    println!(
        "{name:<14} ours {a:>9.0} µs (least {:>9.0})   candle {b:>9.0} µs (least {:>9.0})   ratio {:.2} (of least {:.2})   losses {:.6} {:.6}",
        least[0],
        least[1],
        a / b,
        least[0] / least[1],
        losses[0],
        losses[1],
    );
    Ok(())
}

fn main() -> AnyResult<()> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let all = [
        ("mlp-rl sgd", Work::mlp(&[4, 64, 64, 2], 32)?, Optim::Sgd),
        ("mlp-rl adam", Work::mlp(&[4, 64, 64, 2], 32)?, Optim::Adam),
        ("mlp-big sgd", Work::mlp(&[784, 512, 512, 10], 128)?, Optim::Sgd),
        ("mlp-big adam", Work::mlp(&[784, 512, 512, 10], 128)?, Optim::Adam),
        ("cnn adam", Work::cnn(64)?, Optim::Adam),
        ("gpt adamw", Work::gpt(16)?, Optim::AdamW),
    ];
    for (name, work, optim) in all {
        if wanted.is_empty() || wanted.iter().any(|word| name.starts_with(word.as_str())) {
            compare(name, &work, optim)?;
        }
    }
    Ok(())
}
