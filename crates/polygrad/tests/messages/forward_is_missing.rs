// Says: multiple `forward` found
// Says: `ForwardIsMissing`

use polygrad::{nn::Linear, prelude::*};

#[derive(Module)]
#[module(forward)]
struct Net {
    fc: Linear,
}

fn main() {}
