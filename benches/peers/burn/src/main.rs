//! Burn's CPU engine, with Burn's modules, autodiff and optimizers, as a peer of `polygrad bench`.

mod models;
mod ops;
mod resnet;
mod training;

use polygrad_peer::{Result, Step, extents, serve};

fn make(case: &[&str]) -> Result<Option<Step>> {
    Ok(Some(match case {
        ["mlp-act"] => models::act(),
        ["mlp-rl", optimizer] => models::mlp(&[4, 64, 64, 2], 32, optimizer),
        ["mlp-small", optimizer] => models::mlp(&[784, 128, 10], 64, optimizer),
        ["mlp-big", optimizer] => models::mlp(&[784, 512, 512, 10], 128, optimizer),
        ["cnn"] => models::cnn(),
        ["resnet"] => resnet::resnet(),
        ["gpt"] => models::gpt(),
        ["lstm"] => models::lstm(),
        ["dispatch", which] => ops::dispatch(which),
        ["elementwise", op, size] => match ops::elementwise(op, size.parse()?) {
            Some(step) => step,
            None => return Ok(None),
        },
        ["gemm", text] => ops::gemm(extents(text)?),
        _ => return Ok(None),
    }))
}

fn main() -> Result<()> {
    serve("burn-flex 0.22.1", make)
}
