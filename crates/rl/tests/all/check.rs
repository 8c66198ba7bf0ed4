//! `check_env` finds each kind of fault.

use std::sync::atomic::{AtomicUsize, Ordering};

use polygrad_rl::{Env, Rng, Space, Step, check_env};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    None,
    Bounds,
    Infinite,
    Unwritten,
    TooLong,
    Reward,
    Outside,
    Kept,
    OtherChance,
    AfterEnd,
    Changing,
    Length,
}

/// A walk of ten steps, with one flaw.
struct Walk {
    flaw: Flaw,
    place: usize,
    resets: usize,
}

static CHANCE: AtomicUsize = AtomicUsize::new(0);

impl Env for Walk {
    fn observation_space(&self) -> Space {
        match self.flaw {
            Flaw::Bounds => Space::boxed(&[0.0, 0.0], &[10.0]),
            Flaw::Changing if self.resets > 0 => Space::boxed(&[0.0, 0.0], &[11.0, 1.0]),
            _ => Space::boxed(&[0.0, 0.0], &[10.0, 1.0]),
        }
    }
    fn action_space(&self) -> Space {
        match self.flaw {
            Flaw::Infinite => Space::discrete(0),
            _ => Space::discrete(2),
        }
    }
    fn reset(&mut self, rng: &mut Rng, observation: &mut [f32]) {
        self.place = 0;
        self.resets += 1;
        observation[0] = 0.0;
        match self.flaw {
            Flaw::Unwritten => {}
            Flaw::TooLong => observation[2] = 0.0,
            Flaw::Kept => observation[1] = 1.0 / self.resets as f32,
            Flaw::OtherChance => observation[1] = 1.0 / (1 + CHANCE.fetch_add(1, Ordering::Relaxed)) as f32,
            _ => observation[1] = rng.uniform() as f32,
        }
    }
    fn step(&mut self, _action: &[f32], rng: &mut Rng, observation: &mut [f32]) -> Step {
        assert!(self.flaw != Flaw::AfterEnd || self.place < 10, "out of the field");
        self.place += 1;
        observation[0] = (self.place as f32).min(10.0);
        observation[1] = rng.uniform() as f32;
        if self.flaw == Flaw::Outside && self.place == 7 {
            observation[0] = 12.0;
        }
        let reward = if self.flaw == Flaw::Reward && self.place == 4 {
            f64::NAN
        } else {
            1.0
        };
        Step::new(reward, self.flaw != Flaw::Length && self.place >= 10)
    }
}

#[test]
fn each_flaw_is_named() {
    for (flaw, message) in [
        (
            Flaw::Bounds,
            "observation_space: a box of shape [2] has 2 numbers, but 2 lower and 1 upper bounds",
        ),
        (Flaw::Infinite, "action_space: a discrete space has no values"),
        (
            Flaw::Unwritten,
            "episode 0, reset: number 1 of the observation is NaN, or was not written",
        ),
        (Flaw::TooLong, "episode 0, reset: panicked: index out of bounds"),
        (Flaw::Reward, "episode 0, step 4: the reward of agent 0 is NaN"),
        (
            Flaw::Outside,
            "episode 0, step 7: number 0 of the observation is 12, outside of its bounds 0 and 10",
        ),
        (
            Flaw::Kept,
            "episode 0, reset: something else was seen when the same seed was played again",
        ),
        (Flaw::OtherChance, "episode 0, reset: something else was seen"),
        (
            Flaw::AfterEnd,
            "episode 0, step 10, after the end of the episode: panicked: out of the field",
        ),
        (Flaw::Changing, "the spaces are not what they were"),
    ] {
        let error = check_env(&mut Walk {
            flaw,
            place: 0,
            resets: 0,
        })
        .unwrap_err();
        assert!(error.message().contains(message), "{flaw:?}: {error}");
    }
}

#[test]
fn what_keeps_the_contract_passes() {
    // Also without an end of the episode.
    for flaw in [Flaw::None, Flaw::Length] {
        check_env(&mut Walk {
            flaw,
            place: 0,
            resets: 0,
        })
        .unwrap();
    }
}
