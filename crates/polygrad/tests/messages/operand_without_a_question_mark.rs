// Says: is neither a tensor of backend `AnyBackend` nor a number
// Says: put `?` behind it

use polygrad::prelude::*;

fn thrice(x: &Tensor) -> Result<Tensor> {
    x.add(x.mul(2.0))
}

fn main() {}
