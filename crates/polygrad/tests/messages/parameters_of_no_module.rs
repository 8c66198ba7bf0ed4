// Says: the trait `polygrad::nn::Module` must be implemented

use polygrad::{nn::Linear, optim::Adam, prelude::*};

struct Net {
    fc: Linear,
}

fn optimizer(net: &Net) -> Result<Adam> {
    Adam::new(net.parameters(), 0.1)
}

fn main() {}
