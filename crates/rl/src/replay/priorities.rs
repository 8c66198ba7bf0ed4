//! Priorities by which some transitions are sampled more often than others.

use polygrad_core::{Error, Result, room};

/// A number for each index, in a tree in which every node is the sum of its two children, so that changing a number and
/// finding an index take a number of steps equal to the tree's height.
///
/// Every sum is computed from the two children, never by a difference, so that trees with equal leaves are equal in all
/// bits, regardless of earlier changes.
pub(super) struct Priorities {
    /// Node 1 is the root, and the children of node `i` are `2i` and `2i + 1`; the leaves come last.
    sums: Vec<f64>,
    leaves: usize,
    /// The greatest number so far, which new transitions get.
    pub(super) greatest: f64,
}

impl Priorities {
    /// All numbers are 0.
    pub(super) fn new(places: usize) -> Result<Self> {
        let leaves = places
            .checked_next_power_of_two()
            .filter(|leaves| *leaves <= usize::MAX / 2)
            .ok_or_else(|| Error::invalid(format!("{places} transitions are too many")).with_op("ReplayBuffer"))?;
        let mut sums = room(2 * leaves)?;
        sums.resize(2 * leaves, 0.0);
        Ok(Self {
            sums,
            leaves,
            greatest: 1.0,
        })
    }

    pub(super) fn get(&self, place: usize) -> f64 {
        self.sums[self.leaves + place]
    }

    pub(super) fn set(&mut self, place: usize, priority: f64) {
        let mut node = self.leaves + place;
        self.sums[node] = priority;
        self.greatest = self.greatest.max(priority);
        while node > 1 {
            node /= 2;
            self.sums[node] = self.sums[2 * node] + self.sums[2 * node + 1];
        }
    }

    pub(super) fn total(&self) -> f64 {
        self.sums[1]
    }

    /// The first index up to which the sum of all numbers exceeds `mass`, which is at least 0 and below the total.
    pub(super) fn find(&self, mut mass: f64) -> usize {
        let mut node = 1;
        while node < self.leaves {
            let left = self.sums[2 * node];
            // Rounding may leave a rest greater than the right subtree's sum; an index with the number 0 is never
            // found.
            if mass < left || self.sums[2 * node + 1] == 0.0 {
                node *= 2;
            } else {
                mass -= left;
                node = 2 * node + 1;
            }
        }
        node - self.leaves
    }
}
