//! Training steps of the workloads on the candle backend and by candle itself with candle-nn, from the same weights and on the same data, in turn
//! (ours, candle's, ours, …). Run with `RAYON_NUM_THREADS=1`; arguments choose workloads by name.
//!
//! candle's side is as its user would write it, but for layer norm: candle-nn's fused one gives its parameters no gradient, so that it is made of
//! plain ops, as candle-nn's own `layer_norm_slow` is.

mod theirs;

use std::time::{Duration, Instant};

use polygrad_candle::Candle;
use polygrad_tensor::Device;
use polygrad_workloads::{Case, select};

type AnyResult<T> = Result<T, Box<dyn std::error::Error>>;

/// One training step; gives the loss.
pub(crate) type Step = Box<dyn FnMut() -> AnyResult<Option<f64>>>;

const SECONDS: f64 = 4.0;
const LEAST: usize = 15;

fn median(times: &mut [Duration]) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn compare(case: &Case) -> AnyResult<()> {
    let name = case.name();
    let mut prepared = case.prepare(&Device::<Candle>::default())?;
    let theirs = theirs::step(&name, prepared.weights()?)?;
    let mut sides: [Step; 2] = [Box::new(move || Ok(prepared.step()?)), theirs];
    let mut losses = [None; 2];
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
        "{name:<14} ours {a:>9.0} µs (least {:>9.0})   candle {b:>9.0} µs (least {:>9.0})   ratio {:.2} (of least {:.2})   losses {:?} {:?}",
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
    for name in ["mlp-rl", "mlp-big", "cnn", "gpt"] {
        for case in select(name)? {
            if wanted.is_empty() || wanted.iter().any(|word| case.name().starts_with(word.as_str())) {
                compare(&case)?;
            }
        }
    }
    Ok(())
}
