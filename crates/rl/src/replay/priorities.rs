//! Numbers by which some transitions are drawn more often than others.

use polygrad_core::{Error, Result, room};

/// A number for each place, in a tree in which every node is the sum of the two below it, so that changing one of them
/// and finding a place take as many steps as the tree is high.
///
/// Every sum is computed from the two below it, never by a difference, so that a tree made of the same leaves is the
/// same to the last bit, whatever happened before.
pub(super) struct Priorities {
    /// Node 1 is the root, and below node `i` are `2i` and `2i + 1`; the leaves come last.
    sums: Vec<f64>,
    leaves: usize,
    /// The greatest number so far, which new transitions have.
    pub(super) greatest: f64,
}

impl Priorities {
    /// All 0.
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

    /// The place where the sum of all numbers up to it first exceeds `mass`, which is at least 0 and below the total.
    pub(super) fn find(&self, mut mass: f64) -> usize {
        let mut node = 1;
        while node < self.leaves {
            let left = self.sums[2 * node];
            // Rounding may leave more than there is on the right; a place of 0 is never found.
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
