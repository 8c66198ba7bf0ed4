// Says: `&str` is no number, and no array of numbers
// Says: `Tensor::from_vec(values, shape, &device)`

use polygrad::prelude::*;

fn tensor(device: &Device) -> Result<Tensor> {
    Tensor::new("1, 2", device)
}

fn main() {}
