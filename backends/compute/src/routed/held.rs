//! Which side holds what of an allocation.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Side;

/// Whether the small and the large side hold what was last written. Neither: nothing was.
type Holders = [bool; 2];

/// Which side holds each byte of an allocation, in stretches of bytes that are held alike.
#[derive(Clone, Debug)]
pub(super) struct Held(BTreeMap<usize, Holders>);

impl Default for Held {
    /// Nothing was written yet.
    fn default() -> Self {
        Self(BTreeMap::from([(0, [false; 2])]))
    }
}

impl Held {
    /// A side has written these bytes.
    pub(super) fn written(&mut self, bytes: Range<usize>, side: Side) {
        self.update(bytes, |holders| {
            *holders = [false; 2];
            holders[side.index()] = true;
        });
    }

    /// A side has got these bytes from the other.
    pub(super) fn copied(&mut self, bytes: Range<usize>, side: Side) {
        self.update(bytes, |holders| holders[side.index()] = true);
    }

    /// A side may have written some of these bytes, or not: where the other side holds them too, that is what counts.
    pub(super) fn doubted(&mut self, bytes: Range<usize>, side: Side) {
        self.update(bytes, |holders| {
            if holders[side.other().index()] {
                holders[side.index()] = false;
            }
        });
    }

    /// The stretches of these bytes that only the other side holds.
    pub(super) fn missing(&self, bytes: &Range<usize>, side: Side) -> Vec<Range<usize>> {
        let (here, there) = (side.index(), side.other().index());
        let wanted = self
            .stretches(bytes)
            .filter(|(_, holders)| holders[there] && !holders[here]);
        wanted.map(|(stretch, _)| stretch).collect()
    }

    /// These bytes, in stretches, each with the side to read it from.
    pub(super) fn sources(&self, bytes: &Range<usize>) -> Vec<(Range<usize>, Side)> {
        let side = |[small, _]: Holders| if small { Side::Small } else { Side::Large };
        self.stretches(bytes)
            .map(|(stretch, holders)| (stretch, side(holders)))
            .collect()
    }

    fn stretches(&self, bytes: &Range<usize>) -> impl Iterator<Item = (Range<usize>, Holders)> {
        let (start, end) = (bytes.start, bytes.end);
        let first = self.0.range(..=start).next_back().map_or(0, |(&at, _)| at);
        let ends = self.0.range(first..).skip(1).map(|(&at, _)| at).chain([usize::MAX]);
        let all = self.0.range(first..end.max(first)).zip(ends);
        all.map(move |((&from, &holders), to)| (from.max(start)..to.min(end), holders))
            .filter(|(stretch, _)| !stretch.is_empty())
    }

    fn update(&mut self, bytes: Range<usize>, change: impl Fn(&mut Holders)) {
        if bytes.is_empty() {
            return;
        }
        for at in [bytes.start, bytes.end] {
            let before = self
                .0
                .range(..=at)
                .next_back()
                .map_or([false; 2], |(_, &holders)| holders);
            self.0.entry(at).or_insert(before);
        }
        self.0.range_mut(bytes.clone()).for_each(|(_, holders)| change(holders));
        // Stretches that are alike become one.
        let before = self.0.range(..bytes.start).next_back().map(|(_, &holders)| holders);
        let mut last = before;
        let ends: Vec<usize> = self.0.range(bytes.start..=bytes.end).map(|(&at, _)| at).collect();
        for at in ends {
            let holders = self.0.get(&at).copied();
            if holders == last {
                self.0.remove(&at);
            }
            last = holders;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 24;

    #[test]
    fn stretches_are_what_single_bytes_would_be() {
        let (mut held, mut right) = (Held::default(), [[false; 2]; BYTES]);
        let mut state = 1u64;
        let mut draw = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        for _ in 0..5000 {
            let (a, b) = (draw(BYTES + 1), draw(BYTES + 1));
            let bytes = a.min(b)..a.max(b);
            let side = [Side::Small, Side::Large][draw(2)];
            let (here, there) = (side.index(), side.other().index());
            match draw(3) {
                0 => {
                    held.written(bytes.clone(), side);
                    right[bytes].iter_mut().for_each(|holders| {
                        holders[here] = true;
                        holders[there] = false;
                    });
                }
                1 => {
                    held.copied(bytes.clone(), side);
                    right[bytes].iter_mut().for_each(|holders| holders[here] = true);
                }
                _ => {
                    held.doubted(bytes.clone(), side);
                    right[bytes]
                        .iter_mut()
                        .for_each(|holders| holders[here] &= !holders[there]);
                }
            }
            let (a, b) = (draw(BYTES + 1), draw(BYTES + 1));
            let bytes = a.min(b)..a.max(b);
            let missing: Vec<usize> = held.missing(&bytes, side).into_iter().flatten().collect();
            let wanted = bytes.clone().filter(|&at| right[at][there] && !right[at][here]);
            assert_eq!(missing, wanted.collect::<Vec<_>>());
            let read: Vec<usize> = held
                .sources(&bytes)
                .into_iter()
                .flat_map(|(stretch, _)| stretch)
                .collect();
            assert_eq!(read, bytes.clone().collect::<Vec<_>>());
            for (stretch, side) in held.sources(&bytes) {
                assert!(!stretch.is_empty());
                assert!(
                    right[stretch]
                        .iter()
                        .all(|holders| holders[side.index()] || *holders == [false; 2])
                );
            }
        }
        held.written(0..BYTES, Side::Large);
        // One for the bytes, one for what is behind them.
        assert!(held.0.len() <= 2, "{held:?}");
    }
}
