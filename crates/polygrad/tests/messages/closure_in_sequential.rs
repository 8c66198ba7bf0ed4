// Says: cannot be called as a layer
// Says: a function: write `Lambda::new(|x| …)`

use polygrad::{nn::Sequential, prelude::*};

fn model() -> Sequential {
    Sequential::new().push(|x: &Tensor| x.relu())
}

fn main() {}
