// Says: `Net` cannot be called as a layer
// Says: put #[module(forward)] below #[derive(Module)]

use polygrad::nn::{Linear, Sequential};
use polygrad::prelude::*;

#[derive(Module)]
struct Net {
    fc: Linear,
}

fn model(net: Net) -> Sequential {
    Sequential::new().push(net)
}

fn main() {}
