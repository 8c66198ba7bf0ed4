// Says: expected `&Tensor`, found `&Tensor<Reference>`

use polygrad::{nn::Linear, prelude::*};
use polygrad_reference::Reference;

fn forward(layer: &Linear, x: &Tensor<Reference>) -> Result<Tensor> {
    layer.forward(x)
}

fn main() {}
