//! The floor as a peer of `polygrad bench`: what a program without a tensor API takes for the same
//! work on this machine.
//!
//! The perceptrons are training loops written by hand, with the workloads' weights and data, and so with their losses;
//! single products and passes over memory are the best of several ways; a network's floor is as many operations of
//! plain products as its step has.

mod loss;
mod mlp;
mod network;
mod product;
mod rows;
mod stream;
mod turn;
mod update;
mod ways;

use polygrad_peer::{Result, Step, extents, serve, threads};

fn make(case: &[&str]) -> Result<Option<Step>> {
    let threads = threads();
    Ok(match case {
        ["mlp-rl" | "mlp-small" | "mlp-big", _] if threads > 1 => None,
        ["mlp-rl", optimizer] => mlp::training(&[4, 64, 64, 2], 32, optimizer),
        ["mlp-small", optimizer] => mlp::training(&[784, 128, 10], 64, optimizer),
        ["mlp-big", optimizer] => mlp::training(&[784, 512, 512, 10], 128, optimizer),
        ["gemm", text] => Some(product::step(extents(text)?, threads)),
        ["elementwise", op, size] => stream::step(op, size.parse()?, threads),
        [name] => network::step(name, threads),
        _ => None,
    })
}

fn main() -> Result<()> {
    serve(concat!("floor ", env!("CARGO_PKG_VERSION")), make)
}
