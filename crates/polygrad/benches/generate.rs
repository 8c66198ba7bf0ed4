//! Tokens a second of greedy generation: `cargo bench -p polygrad --bench generate [-- DEVICE]`.

use std::time::Instant;

use polygrad::nn::models::{GenerateConfig, Gpt2, Gpt2Config};
use polygrad::prelude::*;

fn measure(name: &str, config: &Gpt2Config, sequences: usize, count: usize, device: &Device) -> Result<()> {
    let model = Gpt2::new(config, device)?;
    model.eval();
    let prompt = Tensor::randint(0, config.vocab_size as i64, [sequences, 8], device)?;
    let run = |count| -> Result<f64> {
        let began = Instant::now();
        model.generate(&prompt, count, &GenerateConfig::greedy())?;
        Ok(began.elapsed().as_secs_f64())
    };
    run(2)?;
    let mut seconds = (0..3).map(|_| run(count)).collect::<Result<Vec<f64>>>()?;
    seconds.sort_by(f64::total_cmp);
    println!(
        "{name}, {sequences} x {count} tokens: {:.0} tokens/s",
        (sequences * count) as f64 / seconds[1]
    );
    Ok(())
}

fn main() -> Result<()> {
    let device = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let device = Device::new(device.as_deref().unwrap_or("cpu"))?;
    polygrad::manual_seed(0);
    let small = Gpt2Config::default();
    let char_sized = Gpt2Config {
        vocab_size: 100,
        n_positions: 256,
        n_embd: 128,
        n_layer: 4,
        n_head: 4,
        ..Gpt2Config::default()
    };
    measure("4 layers of 128", &char_sized, 1, 248, &device)?;
    measure("4 layers of 128", &char_sized, 8, 248, &device)?;
    measure("GPT-2 small", &small, 1, 120, &device)?;
    measure("GPT-2 small", &small, 1, 1000, &device)
}
