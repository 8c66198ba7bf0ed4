// Says: takes `&device` or `(&device, dtype)`
// Says: put `?` behind it

use polygrad::prelude::*;

fn zeros() -> Result<Tensor> {
    Tensor::zeros([2], &Device::new("cpu"))
}

fn main() {}
