//! Trains a small GPT on characters and generates text: `cargo run --release --example char_gpt [FILE] [STEPS]`.

use std::collections::{BTreeSet, HashMap};

use polygrad::nn::TrainStep;
use polygrad::nn::loss::cross_entropy;
use polygrad::nn::models::{GenerateConfig, Gpt2, Gpt2Config};
use polygrad::optim::{AdamConfig, CosineAnnealingLR, LinearLR, Schedule, SequentialLR};
use polygrad::prelude::*;

const CONTEXT: usize = 64;
const BATCH: usize = 16;

/// Sequences from random places of a text, and the character that follows each of their characters.
fn batch(text: &Tensor) -> Result<[Tensor; 2]> {
    let device = text.device();
    let starts = Tensor::randint(0, (text.numel() - CONTEXT) as i64, [BATCH, 1], &device)?;
    let places = (starts + Tensor::arange(0, CONTEXT as i64, 1, &device)?)?;
    let at = |places: Tensor| text.index_select(0, &places.flatten(0, 1)?)?.reshape([BATCH, CONTEXT]);
    Ok([at(places.clone())?, at((places + 1)?)?])
}

fn loss(model: &Gpt2, batch: &[Tensor]) -> Result<Tensor> {
    cross_entropy(&model.forward(&batch[0])?.flatten(0, 1)?, &batch[1].flatten(0, 1)?)
}

/// The loss of predicting each character from the one before it by its frequency, the best that a table can do.
fn pair_loss(train: &[i64], test: &[i64], vocabulary: usize) -> f64 {
    let mut counts = vec![1.0; vocabulary * vocabulary];
    for pair in train.windows(2) {
        counts[pair[0] as usize * vocabulary + pair[1] as usize] += 1.0;
    }
    let nats = test.windows(2).map(|pair| {
        let row = &counts[pair[0] as usize * vocabulary..][..vocabulary];
        -(row[pair[1] as usize] / row.iter().sum::<f64>()).ln()
    });
    nats.sum::<f64>() / (test.len() - 1) as f64
}

fn main() -> Result<()> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/onnx.md");
    let path = std::env::args().nth(1).unwrap_or_else(|| default.into());
    let steps: u64 = std::env::args().nth(2).and_then(|n| n.parse().ok()).unwrap_or(1000);
    let text = std::fs::read_to_string(&path).map_err(|e| Error::io("read", path.as_ref(), e))?;
    let characters: Vec<char> = text.chars().collect::<BTreeSet<_>>().into_iter().collect();
    let ids: HashMap<char, i64> = characters.iter().copied().zip(0..).collect();
    let all: Vec<i64> = text.chars().map(|c| ids[&c]).collect();
    let (train, test) = all.split_at(all.len() * 9 / 10);

    let device = Device::new("cpu")?;
    polygrad::manual_seed(0);
    let (train_text, test_text) = (Tensor::new(train, &device)?, Tensor::new(test, &device)?);
    let model = Gpt2::new(
        &Gpt2Config {
            vocab_size: characters.len(),
            n_positions: CONTEXT,
            n_embd: 64,
            n_layer: 2,
            n_head: 4,
            resid_pdrop: 0.0,
            embd_pdrop: 0.0,
            attn_pdrop: 0.0,
            ..Gpt2Config::default()
        },
        &device,
    )?;
    println!(
        "{} characters of {} kinds, {} parameters",
        all.len(),
        characters.len(),
        model.num_parameters()
    );
    println!(
        "test loss of a table of pairs: {:.3} nats a character",
        pair_loss(train, test, characters.len())
    );

    let optimizer = AdamConfig::adamw(4e-3)
        .betas(0.9, 0.99)
        .weight_decay(0.1)
        .build(model.parameters())?;
    let schedule = SequentialLR::new(LinearLR::warm_up(50)).then(50, CosineAnnealingLR::new(steps.saturating_sub(50)));
    // Recorded in its first two steps and replayed afterwards.
    let mut train_step = TrainStep::new(model, optimizer, loss).clip_grad_norm(1.0).captured();
    for step in 0..=steps {
        schedule.apply(train_step.optimizer_mut(), step)?;
        let loss_now = train_step.step(&batch(&train_text)?)?;
        if step % 200 == 0 {
            let tests = 10;
            let model = train_step.model();
            let test_loss: f64 = no_grad(|| {
                (0..tests)
                    .map(|_| loss(model, &batch(&test_text)?)?.item())
                    .sum::<Result<f64>>()
            })?;
            println!(
                "step {step:4}  loss {:.3}  test loss {:.3}",
                loss_now.item()?,
                test_loss / tests as f64
            );
        }
    }

    let model = train_step.model();
    model.eval();
    let mut written: Vec<i64> = "The ".chars().filter_map(|c| ids.get(&c).copied()).collect();
    while written.len() < 400 {
        // The model sees at most 64 characters: the last 32 of the text, and the 32 that it generates.
        let seen = &written[written.len().saturating_sub(CONTEXT / 2)..];
        let sampling = GenerateConfig::sample().temperature(0.7);
        let longer = model.generate(&Tensor::new([seen], &device)?, CONTEXT / 2, &sampling)?;
        written.extend_from_slice(&longer.to_vec::<i64>()?[seen.len()..]);
    }
    let written: String = written.iter().map(|&id| characters[id as usize]).collect();
    println!("---\n{written}");
    Ok(())
}
