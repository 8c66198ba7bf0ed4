//! The loss for a large vocabulary, of all logits at once and in chunks: `cargo bench -p polygrad --bench
//! cross_entropy`. Time of forward and backward pass, and how much they add to peak memory, each in a separate process.

use std::process::Command;
use std::time::Instant;

use polygrad::nn::loss::{CrossEntropyLoss, cross_entropy};
use polygrad::prelude::*;

const TOKENS: usize = 512;
const WIDTH: usize = 576;
const VOCABULARY: usize = 49_152;

/// The peak memory of this process so far, in MB.
fn peak() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.map_or(f64::NAN, |kilobytes| kilobytes * 1024.0 / 1e6)
}

fn measure(rows: usize, is_trained: bool) -> Result<()> {
    let device = Device::new("cpu")?;
    polygrad::manual_seed(0);
    let x = Tensor::randn([TOKENS, WIDTH], &device)?.requires_grad()?;
    let weight = (Tensor::randn([VOCABULARY, WIDTH], &device)? * 0.05)?;
    let weight = if is_trained { weight.requires_grad()? } else { weight };
    let target = Tensor::randint(0, VOCABULARY as i64, [TOKENS], &device)?;
    let step = || -> Result<f64> {
        let head = weight.clone();
        let loss = match rows {
            TOKENS => cross_entropy(&x.linear(&weight, None)?, &target)?,
            rows => CrossEntropyLoss::new().forward_chunked(&x, &target, rows, move |x| x.linear(&head, None))?,
        };
        let gradients = loss.backward()?;
        let gradient = gradients.get(&x).ok_or_else(|| Error::invalid("no gradient"))?;
        gradient.square()?.sum(())?.item()
    };
    let before = peak();
    step()?;
    let mut seconds = Vec::new();
    for _ in 0..5 {
        let began = Instant::now();
        step()?;
        seconds.push(began.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    let weight = if is_trained { "trained" } else { "frozen" };
    println!(
        "{rows} rows at a time, {weight} weight: {:.3} s, {:.0} MB",
        seconds[2],
        peak() - before
    );
    Ok(())
}

fn main() -> Result<()> {
    let given: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    if let [rows, is_trained] = given[..] {
        return measure(rows, is_trained == 1);
    }
    let own = std::env::current_exe().map_err(|e| Error::invalid(e.to_string()))?;
    for is_trained in ["0", "1"] {
        for rows in [TOKENS, 85, 32] {
            let run = Command::new(&own).args([&rows.to_string(), is_trained]).status();
            run.map_err(|e| Error::invalid(e.to_string()))?;
        }
    }
    Ok(())
}
