// Says: no method named `relu` found for enum
// Says: use the `?` operator

use polygrad::prelude::*;

fn doubled(x: &Tensor) -> Result<Tensor> {
    x.mul(2.0).relu()
}

fn main() {}
