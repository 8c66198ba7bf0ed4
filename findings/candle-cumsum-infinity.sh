#!/usr/bin/env bash
# Candle: cumsum of numbers of which one is infinite is NaN everywhere, before it, too.
#
# Guess, written down first: a running sum adds from the front, so that what comes after a number does not change the
# sums before it: of [1, 2, -inf, 3] it is [1, 3, -inf, -inf], as in PyTorch and NumPy. Log-probabilities have -inf.
#
# Seen on 2026-11-30 with candle-core 0.11.1 (CPU, x86-64): [NaN, NaN, -inf, -inf]. The sum is a matrix product with a
# triangle of ones, in which each of the triangle's zeros is multiplied by what comes later, and 0 · inf is NaN. Rows of
# a matrix stay apart. For the same reason it takes n² multiplications for n numbers, and memory for n² ones.
#
# Source: https://docs.rs/candle-core/0.11.1/candle_core/struct.Tensor.html#method.cumsum ("Returns the cumulative sum
# of elements of the input tensor summed over the specified dimension"); src/tensor.rs, cumsum: triu2 and matmul.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir src
cat >Cargo.toml <<'TOML'
[package]
name = "cumsum"
version = "0.0.0"
edition = "2024"

[dependencies]
candle-core = "=0.11.1"
TOML
cat >src/main.rs <<'RUST'
use candle_core::{Device, Result, Tensor};

fn main() -> Result<()> {
    let low = f32::NEG_INFINITY;
    let sum = Tensor::new(&[1f32, 2.0, low, 3.0], &Device::Cpu)?.cumsum(0)?.to_vec1::<f32>()?;
    let finite = Tensor::new(&[1f32, 2.0, -1e30, 3.0], &Device::Cpu)?.cumsum(0)?.to_vec1::<f32>()?;
    let rows = Tensor::new(&[[1f32, 2.0], [3.0, low]], &Device::Cpu)?.cumsum(1)?.to_vec2::<f32>()?;
    println!("with -inf: {sum:?}; with -1e30: {finite:?}; two rows: {rows:?}");
    assert!(sum[0].is_nan() && sum[1].is_nan());
    assert_eq!(sum[2..], [low, low]);
    assert_eq!(finite[..2], [1.0, 3.0]);
    assert_eq!(rows[0], [1.0, 3.0]);
    assert!(rows[1][0].is_nan() && rows[1][1] == low);
    Ok(())
}
RUST
CARGO_TARGET_DIR="$folder/target" cargo run --quiet
