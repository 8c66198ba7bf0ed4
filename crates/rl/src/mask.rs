//! Which actions are allowed.

use polygrad_core::Rng;

use crate::Space;

impl Space {
    /// The number of values and the first value of each choice; empty if the space is not discrete.
    fn choices(&self) -> impl Iterator<Item = (usize, i64)> {
        let (nvec, start) = match self {
            Self::Discrete { n, start } => (std::slice::from_ref(n), std::slice::from_ref(start)),
            Self::MultiDiscrete { nvec, start } => (&nvec[..], &start[..]),
            Self::Box { .. } | Self::MultiBinary { .. } => (&[][..], &[][..]),
        };
        nvec.iter().copied().zip(start.iter().copied())
    }

    /// Whether actions of this space can be masked: those of [`Discrete`](Self::Discrete) and
    /// [`MultiDiscrete`](Self::MultiDiscrete) can.
    pub fn is_maskable(&self) -> bool {
        matches!(self, Self::Discrete { .. } | Self::MultiDiscrete { .. })
    }

    /// Whether a mask of [`flat_len`](Self::flat_len) entries allows a value of this space.
    pub fn allows(&self, mask: &[bool], value: &[f32]) -> bool {
        let mut from = 0;
        self.choices().zip(value).all(|((n, start), value)| {
            let place = f64::from(*value) - start as f64;
            let allowed = place >= 0.0 && place < n as f64 && mask.get(from + place as usize) == Some(&true);
            from += n;
            allowed
        })
    }

    /// Writes a random value that a mask of [`flat_len`](Self::flat_len) entries allows, like Gymnasium's
    /// `sample(mask)`: in each choice all allowed values are equally likely. A choice without an allowed value stays as
    /// it was.
    ///
    /// With a mask that allows everything, or for spaces that cannot be masked, it is [`sample`](Self::sample).
    pub fn sample_masked(&self, mask: &[bool], rng: &mut Rng, value: &mut [f32]) {
        if !self.is_maskable() {
            return self.sample(rng, value);
        }
        let mut rest = mask;
        for ((n, start), value) in self.choices().zip(value) {
            let (own, after) = rest.split_at(n.min(rest.len()));
            let allowed = || own.iter().enumerate().filter(|(_, allowed)| **allowed);
            let drawn = rng.below(allowed().count());
            if let Some((drawn, _)) = allowed().nth(drawn) {
                *value = (drawn as f64 + start as f64) as f32;
            }
            rest = after;
        }
    }

    /// The fault of the masks of agents, one after another, if one allows nothing.
    pub(crate) fn check_masks(&self, masks: &[bool]) -> Result<(), String> {
        for (agent, mask) in masks.chunks(self.flat_len().max(1)).enumerate() {
            let mut rest = mask;
            for (choice, (n, _)) in self.choices().enumerate() {
                let (own, after) = rest.split_at(n.min(rest.len()));
                if !own.contains(&true) {
                    return Err(match self {
                        Self::Discrete { .. } => format!("allows no action to agent {agent}"),
                        _ => format!("allows no value of choice {choice} to agent {agent}"),
                    });
                }
                rest = after;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_allowed_is_drawn() {
        let space = Space::MultiDiscrete {
            nvec: vec![3, 2],
            start: vec![-1, 5],
        };
        let mask = [true, false, true, false, true];
        let (mut rng, mut value) = (Rng::new(0), [9.0; 2]);
        let mut seen = [0; 3];
        for _ in 0..1000 {
            space.sample_masked(&mask, &mut rng, &mut value);
            assert!(space.contains(&value) && space.allows(&mask, &value) && value[1] == 6.0);
            seen[(value[0] + 1.0) as usize] += 1;
        }
        assert!(seen[0] > 400 && seen[1] == 0 && seen[2] > 400, "{seen:?}");
        for outside in [[0.0, 6.0], [-1.0, 5.0], [2.0, 6.0], [-2.0, 6.0]] {
            assert!(!space.allows(&mask, &outside), "{outside:?}");
        }
    }

    #[test]
    fn a_mask_that_allows_everything_changes_nothing() {
        for space in [
            Space::discrete(7),
            Space::multi_discrete(&[2, 5]),
            Space::boxed(&[0.0], &[1.0]),
        ] {
            let all = vec![true; space.flat_len()];
            let (mut masked, mut free) = (Rng::new(4), Rng::new(4));
            for _ in 0..100 {
                let (mut a, mut b) = (vec![0.0; space.len()], vec![0.0; space.len()]);
                space.sample_masked(&all, &mut masked, &mut a);
                space.sample(&mut free, &mut b);
                assert_eq!(a, b);
            }
        }
    }

    #[test]
    fn a_mask_that_allows_nothing_is_told() {
        let two = Space::discrete(2);
        assert_eq!(two.check_masks(&[true, false, false, true]), Ok(()));
        assert_eq!(
            two.check_masks(&[true, false, false, false]).unwrap_err(),
            "allows no action to agent 1"
        );
        let error = Space::multi_discrete(&[2, 1])
            .check_masks(&[true, true, false])
            .unwrap_err();
        assert_eq!(error, "allows no value of choice 1 to agent 0");
        // Nothing is drawn, and nothing panics.
        let mut value = [1.0];
        two.sample_masked(&[false; 2], &mut Rng::new(0), &mut value);
        two.sample_masked(&[], &mut Rng::new(0), &mut value);
        assert_eq!(value, [1.0]);
    }
}
