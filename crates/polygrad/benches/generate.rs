//! Tokens per second of greedy generation: `cargo bench -p polygrad --bench generate [-- DEVICE]`; with many sequences
//! that join a batch one after another: `cargo bench -p polygrad --bench generate -- DEVICE continuous`.

use std::time::Instant;

use polygrad::nn::models::{CausalLm, ContinuousBatch, GenerateConfig, Gpt2, Gpt2Config, Llama, LlamaConfig};
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

/// Sequences of a model of SmolLM2-135M's size with random weights, with prompts of 16 to 47 tokens.
fn measure_continuous(device: &Device) -> Result<()> {
    let config = LlamaConfig {
        vocab_size: 49_152,
        hidden_size: 576,
        intermediate_size: 1536,
        num_hidden_layers: 30,
        num_attention_heads: 9,
        num_key_value_heads: Some(3),
        max_position_embeddings: 2048,
        tie_word_embeddings: true,
        ..LlamaConfig::default()
    };
    let (model, count) = (Llama::new(&config, device)?, 24);
    model.eval();
    let prompt = |i: usize| {
        (0..16 + i)
            .map(|at| ((i * 7919 + at * 104_729) % config.vocab_size) as i64)
            .collect()
    };
    let prompts: Vec<Vec<i64>> = (0..32).map(prompt).collect();
    let run = |sequences: usize| -> Result<(f64, Vec<Vec<i64>>)> {
        let mut batch = ContinuousBatch::new(&model)?;
        let mut rows = vec![Vec::new(); sequences];
        for prompt in &prompts[..sequences] {
            batch.join(prompt, count, &GenerateConfig::greedy(), 0)?;
        }
        // Prompts are read in one step, which is not measured.
        let (mut began, mut tokens) = (None, 0);
        while !batch.is_empty() {
            for (sequence, next) in batch.step(usize::MAX)? {
                rows[sequence].push(next?.token);
                tokens += usize::from(began.is_some());
            }
            began.get_or_insert_with(Instant::now);
        }
        let seconds = began.map_or(0.0, |began| began.elapsed().as_secs_f64());
        Ok((tokens as f64 / seconds, rows))
    };
    run(1)?;
    let (mut rates, mut alone) = ([Vec::new(), Vec::new(), Vec::new()], Vec::new());
    for _ in 0..3 {
        for (rates, sequences) in rates.iter_mut().zip([1, 8, 32]) {
            let (rate, rows) = run(sequences)?;
            rates.push(rate);
            alone = rows;
        }
    }
    for (rates, sequences) in rates.iter_mut().zip([1, 8, 32]) {
        rates.sort_by(f64::total_cmp);
        println!("SmolLM2-135M's size, {sequences} sequences: {:.1} tokens/s", rates[1]);
    }
    let single = |i: usize| model.generate_batch(&prompts[i..=i], count, &GenerateConfig::greedy());
    let same = (0..8).filter(|&i| single(i).is_ok_and(|rows| rows[0][prompts[i].len()..] == alone[i][..]));
    println!("{} of 8 texts are those written alone", same.count());
    Ok(())
}

fn main() -> Result<()> {
    let device = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let device = Device::new(device.as_deref().unwrap_or("cpu"))?;
    polygrad::manual_seed(0);
    if std::env::args().any(|argument| argument == "continuous") {
        return measure_continuous(&device);
    }
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
