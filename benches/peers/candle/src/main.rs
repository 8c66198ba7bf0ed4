//! candle with candle-nn as a peer of `polygrad bench`.
//!
//! Written as a user of candle would, except for layer norm in training: candle-nn's fused layer norm computes no
//! gradients for its parameters, so that this uses candle-nn's own `layer_norm_slow`. The same holds for softmax, for
//! which it uses the unfused `ops::softmax`.

mod models;
mod ops;
mod resnet;
mod training;

use polygrad_peer::{Result, Step, extents, serve};

fn make(case: &[&str]) -> Result<Option<Step>> {
    Ok(Some(match case {
        ["mlp-act"] => models::act()?,
        ["mlp-rl", optimizer] => models::mlp(&[4, 64, 64, 2], 32, optimizer)?,
        ["mlp-small", optimizer] => models::mlp(&[784, 128, 10], 64, optimizer)?,
        ["mlp-big", optimizer] => models::mlp(&[784, 512, 512, 10], 128, optimizer)?,
        ["cnn"] => models::cnn()?,
        ["resnet"] => resnet::resnet()?,
        ["gpt"] => models::gpt()?,
        ["lstm"] => models::lstm()?,
        ["dispatch", which] => ops::dispatch(which)?,
        ["elementwise", op, size] => ops::elementwise(op, size.parse()?)?,
        ["gemm", text] => ops::gemm(extents(text)?)?,
        _ => return Ok(None),
    }))
}

fn main() -> Result<()> {
    serve("candle 0.11.1", make)
}
