#!/usr/bin/env bash
# Candle: round takes halves away from 0, so that quantizing by it gives other integers than PyTorch and ONNX.
#
# Guess, written down first: Tensor::round is torch.round, as other methods of Candle are named and work as PyTorch's.
# So halves go to the even neighbour: [0.5, 1.5, 2.5, -0.5] becomes [0, 2, 2, 0], as IEEE 754, NumPy and ONNX's Round
# have it.
#
# Seen on 2026-11-30 with candle-core 0.11.1 (CPU, x86-64): [1, 2, 3, -1]. So positive ties all go up: the numbers from
# 0.5 to 99.5, whose sum is 5000, are rounded to a sum of 5050; to even it stays 5000. round_to has the same, so that
# 0.25 to one digit is 0.3. Activations of a quantized layer, which are multiples of a scale, often lie on ties.
#
# Source: https://docs.rs/candle-core/0.11.1/candle_core/struct.Tensor.html#method.round ("Element-wise round to nearest
# integer"), f32::round; https://onnx.ai/onnx/operators/onnx__Round.html and torch.round say "half to even".
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir src
cat >Cargo.toml <<'TOML'
[package]
name = "halves"
version = "0.0.0"
edition = "2024"

[dependencies]
candle-core = "=0.11.1"
TOML
cat >src/main.rs <<'RUST'
use candle_core::{Device, Result, Tensor};

fn main() -> Result<()> {
    let halves = Tensor::new(&[0.5f32, 1.5, 2.5, -0.5], &Device::Cpu)?;
    let rounded = halves.round()?.to_vec1::<f32>()?;
    let sum = (Tensor::arange(0f32, 100.0, &Device::Cpu)? + 0.5)?.round()?.sum_all()?.to_scalar::<f32>()?;
    let digit = Tensor::new(&[0.25f32], &Device::Cpu)?.round_to(1)?.to_vec1::<f32>()?;
    println!("{rounded:?}, the sum {sum}, 0.25 to one digit {digit:?}");
    assert_eq!(rounded, [1.0, 2.0, 3.0, -1.0]);
    assert_eq!(sum, 5050.0);
    assert!((digit[0] - 0.3).abs() < 1e-6);
    let even: f32 = (0u8..100).map(|i| (f32::from(i) + 0.5).round_ties_even()).sum();
    assert_eq!(even, 5000.0);
    Ok(())
}
RUST
CARGO_TARGET_DIR="$folder/target" cargo run --quiet
