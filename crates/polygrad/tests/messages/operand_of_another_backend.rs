// Says: is neither a tensor of backend `AnyBackend` nor a number
// Says: comes over with `to_backend(&device)`

use polygrad::prelude::*;
use polygrad_reference::Reference;

fn add(x: &Tensor, y: &Tensor<Reference>) -> Result<Tensor> {
    x.add(y)
}

fn main() {}
