//! tch, with LibTorch's autograd and tch's optimizers, as a peer of `polygrad bench`.

mod models;
mod ops;
mod resnet;
mod training;

use polygrad_peer::{Result, Step, extents, serve, threads};

fn make(case: &[&str]) -> Result<Option<Step>> {
    Ok(Some(match case {
        ["mlp-act"] => models::act(),
        ["mlp-rl", optimizer] => models::mlp(&[4, 64, 64, 2], 32, optimizer)?,
        ["mlp-small", optimizer] => models::mlp(&[784, 128, 10], 64, optimizer)?,
        ["mlp-big", optimizer] => models::mlp(&[784, 512, 512, 10], 128, optimizer)?,
        ["cnn"] => models::cnn()?,
        ["resnet"] => resnet::resnet()?,
        ["gpt"] => models::gpt()?,
        ["lstm"] => models::lstm()?,
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
    tch::set_num_threads(threads() as i32);
    serve("tch 0.26.0", make)
}
