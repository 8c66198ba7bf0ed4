// Says: the trait bound `B: polygrad::Backend` is not satisfied
// Says: consider restricting type parameter `B`

use polygrad::prelude::*;

fn double<B>(x: &Tensor<B>) -> Result<Tensor<B>> {
    x.mul(2.0)
}

fn main() {}
