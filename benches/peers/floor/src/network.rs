//! Networks: as many operations as a step has, as products of the size at which this machine is fastest, with operands
//! that stay in the cache.

#[path = "flops.rs"]
mod flops;

use std::convert::Infallible;

use polygrad_peer::{Step, call};

use crate::product::{Product, Way, ways};
use crate::ways::fastest;

/// Extents of a square product; each performs the operations of the largest.
const SQUARES: [usize; 2] = [256, 512];

fn operations(square: usize) -> u64 {
    2 * (square * square * square) as u64
}

/// Products of one size: whole ones and a part of one more.
struct Squares {
    product: Product,
    square: usize,
}

impl Squares {
    fn compute(&mut self, way: Way, operations_wanted: u64) {
        let of_one = operations(self.square);
        for _ in 0..operations_wanted / of_one {
            self.product.compute(way, self.square);
        }
        let rest = (operations_wanted % of_one) * self.square as u64 / of_one;
        if rest > 0 {
            self.product.compute(way, rest as usize);
        }
    }
}

/// The floor of a network's step; `None` if its operations are unknown.
pub fn step(name: &str, threads: usize) -> Option<Step> {
    let &(_, wanted) = flops::FLOPS.iter().find(|(known, _)| *known == name)?;
    let mut all = SQUARES.map(|square| Squares {
        product: Product::new([square; 3]),
        square,
    });
    let crates = ways(threads);
    let choices: Vec<_> = (0..SQUARES.len())
        .flat_map(|i| crates.iter().map(move |&way| (i, way)))
        .collect();
    let (chosen, way) = fastest(&choices, |(i, way)| all[i].compute(way, operations(512)));
    Some(call(move || {
        all[chosen].compute(way, wanted);
        Ok::<_, Infallible>(())
    }))
}
