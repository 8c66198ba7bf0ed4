// Says: `polygrad::Tensor` cannot be a field of a module
// Says: a tensor that is trained is a `Param`
// Says: not trained a `Buffer`

use polygrad::prelude::*;

#[derive(Module)]
struct Net {
    scale: Tensor,
}

fn main() {}
