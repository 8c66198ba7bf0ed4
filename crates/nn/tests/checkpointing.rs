//! Gradient checkpointing halves the memory and gives the same gradients. The CPU backend's counters are per process,
//! hence one test in this file.

use polygrad_cpu::Cpu;
use polygrad_cpu::memory::{reset_peak, stats};
use polygrad_nn::loss::cross_entropy;
use polygrad_nn::models::{Gpt2, Gpt2Config};
use polygrad_nn::*;
use polygrad_tensor::{Device, Tensor, manual_seed};

#[test]
fn twelve_checkpointed_blocks_need_at_most_half_the_memory() {
    let device = Device::<Cpu>::default();
    // With dropout: recomputation must drop the same elements.
    let config = Gpt2Config {
        vocab_size: 31,
        n_positions: 64,
        n_embd: 32,
        n_layer: 12,
        n_head: 4,
        ..Gpt2Config::default()
    };
    manual_seed(1);
    let model = Gpt2::new(&config, &device).unwrap();
    let params = model.named_parameters();
    let ids = Tensor::from_vec((0..8 * 64).map(|i| i * 7 % 31).collect::<Vec<i64>>(), [8, 64], &device).unwrap();
    let run = |checkpointing: bool| {
        model.set_gradient_checkpointing(checkpointing);
        manual_seed(2);
        let before = stats().live_bytes;
        reset_peak();
        let logits = model.forward(&ids).unwrap().flatten(0, 1).unwrap();
        let loss = cross_entropy(&logits, &ids.flatten(0, 1).unwrap()).unwrap();
        drop(logits);
        let gradients = loss.backward().unwrap();
        let peak = stats().peak_bytes - before;
        let values = |param: &Param<Cpu>| gradients.require(param).unwrap().to_vec::<f32>().unwrap();
        let gradients: Vec<_> = params.iter().map(|(_, param)| values(param)).collect();
        (peak, loss.item().unwrap(), gradients)
    };
    run(false);
    let (plain_peak, plain_loss, plain) = run(false);
    let (peak, loss, gradients) = run(true);
    // The gradients themselves exist in both cases.
    let held: usize = plain.iter().map(|gradient| 4 * gradient.len()).sum();
    println!("peak {plain_peak} bytes, with checkpoints {peak}, of which gradients {held}");
    assert!(2 * peak <= plain_peak, "{peak} of {plain_peak} bytes");
    assert_eq!(loss, plain_loss);
    for ((name, _), (gradient, plain)) in params.iter().zip(gradients.iter().zip(&plain)) {
        assert_eq!(gradient, plain, "{name}");
    }
}
