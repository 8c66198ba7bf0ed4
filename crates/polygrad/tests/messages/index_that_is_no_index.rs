// Says: is no index of a tensor on the backend `AnyBackend`
// Says: takes integers, ranges, tensors of i64 or bool, and tuples of these

use polygrad::prelude::*;

fn pick(x: &Tensor) -> Result<Tensor> {
    x.i((1, 1.0))
}

fn main() {}
