//! The floor as a peer of `polygrad bench`: the time that a program without a tensor API takes for the same work on
//! this machine.
//!
//! The perceptrons are hand-written training loops with the workloads' weights and data, and therefore the same losses.
//! Single products and passes over memory are the best of several implementations. A network's floor is plain products
//! with as many operations as its step.

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
