#!/usr/bin/env bash
# candle's LayerNorm: for a contiguous input, `backward` gives no gradients and no error.
#
# Guess, written down first: candle_nn::LayerNorm is a layer to train with, so `backward` gives gradients of its weight,
# its bias and its input, as for candle_nn::Linear. If an op had no gradient, `backward` would fail.
#
# Seen on 2026-11-29 with candle-core and candle-nn 0.11.1 (CPU, x86-64, Rust 1.95): for a contiguous input, none of the
# three has a gradient, and `backward` succeeds. With the same numbers as a transposed view, all three have one: that
# input takes the layer's other code path. RmsNorm behaves the same way.
#
# Source: candle-nn's layer_norm.rs and ops.rs, which pass contiguous inputs to `apply_op3_no_bwd`; the fused op is
# meant for inference. candle's guide to training names no layer that cannot be trained.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/src"
cat >"$folder/Cargo.toml" <<'TOML'
[package]
name = "layer-norm"
version = "0.1.0"
edition = "2021"

[dependencies]
candle-core = "=0.11.1"
candle-nn = "=0.11.1"
TOML
cat >"$folder/src/main.rs" <<'RS'
use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{LayerNorm, Module, RmsNorm};

/// Which of the tensors have a gradient.
fn found(y: Tensor, of: &[&Var]) -> Result<Vec<bool>> {
    let grads = y.sqr()?.sum_all()?.backward()?;
    Ok(of.iter().map(|var| grads.get(var).is_some()).collect())
}

fn main() -> Result<()> {
    let device = Device::Cpu;
    let weight = Var::ones(3, DType::F32, &device)?;
    let bias = Var::zeros(3, DType::F32, &device)?;
    let norm = LayerNorm::new(weight.as_tensor().clone(), bias.as_tensor().clone(), 1e-5);
    let x = Var::new(&[[1f32, 2., 4.], [3., 5., 9.]], &device)?;
    let turned = Var::new(&[[1f32, 3.], [2., 5.], [4., 9.]], &device)?;
    let plain = norm.forward(x.as_tensor())?;
    let view = norm.forward(&turned.t()?)?;
    assert_eq!(plain.to_vec2::<f32>()?[0].len(), view.to_vec2::<f32>()?[0].len());
    let plain = found(plain, &[&weight, &bias, &x])?;
    let view = found(view, &[&weight, &bias, &turned])?;
    println!("LayerNorm, gradients of weight, bias and input: contiguous {plain:?}, transposed view {view:?}");
    assert_eq!((plain, view), (vec![false; 3], vec![true; 3]));
    let norm = RmsNorm::new(weight.as_tensor().clone(), 1e-5);
    let plain = found(norm.forward(x.as_tensor())?, &[&weight, &x])?;
    println!("RmsNorm, of weight and input: contiguous {plain:?}");
    assert_eq!(plain, [false; 2]);
    Ok(())
}
RS
cargo run --quiet --manifest-path "$folder/Cargo.toml" --target-dir "$folder/target"
