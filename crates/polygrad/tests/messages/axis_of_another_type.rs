// Says: `usize` names no axes
// Says: write `axis as isize`

use polygrad::prelude::*;

fn total(x: &Tensor, axis: usize) -> Result<Tensor> {
    x.sum(axis)
}

fn main() {}
