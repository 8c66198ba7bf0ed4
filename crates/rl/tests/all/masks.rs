//! Action masks: requesting them, passing them on, and errors.

use crate::common::{Cards, MaskFlaw, choose, play};
use polygrad_rl::{
    ActionRepeat, Env, FrameStack, NormalizeObservation, NormalizeReward, RecordEpisodeStatistics, Rng, Space, Step,
    StepBuffers, TimeLimit, VectorEnv, Vectorized, check_env,
};

/// The masks before each step, and the output of the steps.
fn masked(envs: impl VectorEnv, steps: usize) -> (Vec<Vec<bool>>, Vec<StepBuffers>) {
    let mut seen = play(envs, 1, steps);
    let last = seen.pop().unwrap();
    let masks = seen.iter().map(|(_, masks)| masks.clone().unwrap()).collect();
    let written = seen.into_iter().chain([last]).map(|(buffers, _)| buffers);
    (masks, written.collect())
}

#[test]
fn masks_are_those_of_the_next_step() {
    let expected = masked(Vectorized::new(|_| Cards::new(MaskFlaw::None), 5).unwrap(), 40);
    for (step, masks) in expected.0.iter().enumerate() {
        assert_eq!(masks.len(), 5 * 2 * 5);
        for mask in masks.chunks(5) {
            // Four cards initially, and again in the row's next episode.
            assert_eq!(mask.iter().filter(|allowed| **allowed).count(), 4 - step % 4);
        }
    }
    for threads in [2, 3, 5] {
        let envs = Vectorized::threaded(|_| Cards::new(MaskFlaw::None), 5, threads).unwrap();
        assert!(masked(envs, 40) == expected, "{threads} threads");
    }
}

#[test]
fn wrappers_pass_masks_on() {
    let expected = masked(Vectorized::new(|_| Cards::new(MaskFlaw::None), 3).unwrap(), 12).0;
    let wrapped = |_| FrameStack::new(TimeLimit::new(Cards::new(MaskFlaw::None), 100).unwrap(), 2).unwrap();
    let envs = RecordEpisodeStatistics::new(Vectorized::new(wrapped, 3).unwrap());
    let envs = NormalizeReward::new(NormalizeObservation::new(envs).unwrap(), 0.9).unwrap();
    let envs: Box<dyn VectorEnv> = Box::new(envs);
    assert_eq!(masked(envs, 12).0, expected);
    // A card cannot be played twice, so that no action is repeated.
    let repeated = |_| ActionRepeat::new(Cards::new(MaskFlaw::None), 3).unwrap();
    assert_eq!(masked(Vectorized::new(repeated, 3).unwrap(), 12).0, expected);
}

#[test]
fn what_a_mask_forbids_is_not_done() {
    for threads in [1, 2] {
        let mut envs = Vectorized::threaded(|_| Cards::new(MaskFlaw::None), 2, threads).unwrap();
        let mut buffers = StepBuffers::new(&envs);
        envs.reset(0, &mut buffers.observations).unwrap();
        let masks = envs.action_masks().unwrap().to_vec();
        let choose = |allowed: bool, row: usize| {
            let card = masks[row * 5..(row + 1) * 5].iter().position(|is| *is == allowed);
            card.unwrap() as f32 + 1.0
        };
        let mut actions = [0, 1, 2, 3].map(|row| choose(true, row));
        actions[3] = choose(false, 3);
        let error = envs.step(&actions, &mut buffers.as_mut()).unwrap_err();
        let expected = format!(
            "agent 1 of environment 1 was given the action [{:?}], which its mask does not allow",
            actions[3]
        );
        assert_eq!(error.message(), expected);
        actions[3] = choose(true, 3);
        envs.step(&actions, &mut buffers.as_mut()).unwrap();
    }
}

#[test]
fn wrong_masks_are_named() {
    let fail = |flaw, threads| {
        let make = |index| Cards::new(if index == 1 { flaw } else { MaskFlaw::None });
        let mut envs = Vectorized::threaded(make, 2, threads).unwrap();
        let mut buffers = StepBuffers::new(&envs);
        let mut rng = Rng::new(0);
        if let Err(error) = envs.reset(4, &mut buffers.observations) {
            return error;
        }
        loop {
            let mut actions = [0.0; 4];
            choose(&envs, &mut rng, &mut actions);
            if let Err(error) = envs.step(&actions, &mut buffers.as_mut()) {
                return error;
            }
        }
    };
    for threads in [1, 2] {
        let message = |flaw| fail(flaw, threads).message().to_owned();
        assert_eq!(
            message(MaskFlaw::Empty),
            "environment 1 allows no action to agent 1 (seed 4, episode 0, its reset)"
        );
        assert_eq!(
            message(MaskFlaw::EmptyLater),
            "environment 1 allows no action to agent 0 (seed 4, episode 0, step 2)"
        );
        assert_eq!(
            message(MaskFlaw::Panic),
            "environment 1 panicked: no mask (seed 4, episode 0, step 3)"
        );
    }
}

/// A mask in a space that cannot have one, or only in some environments.
struct Odd {
    space: Space,
    masked: bool,
}

impl Env for Odd {
    fn observation_space(&self) -> Space {
        Space::boxed(&[0.0], &[1.0])
    }
    fn action_space(&self) -> Space {
        self.space.clone()
    }
    fn reset(&mut self, _rng: &mut Rng, observation: &mut [f32]) {
        observation[0] = 0.0;
    }
    fn step(&mut self, _action: &[f32], _rng: &mut Rng, _observation: &mut [f32]) -> Step {
        Step::new(0.0, true)
    }
    fn has_action_mask(&self) -> bool {
        self.masked
    }
}

#[test]
fn masks_that_make_no_sense_are_refused() {
    let make = |space: Space, masked: fn(usize) -> bool| {
        let odd = move |index| Odd {
            space: space.clone(),
            masked: masked(index),
        };
        Vectorized::new(odd, 3)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    assert!(make(Space::boxed(&[0.0], &[1.0]), |_| true).contains("cannot be masked"));
    assert!(
        make(Space::discrete(2), |index| index < 2).contains("of the environments 0 and 2 only one has action masks")
    );
    assert_eq!(make(Space::discrete(2), |_| true), "");
}

#[test]
fn masks_are_checked() {
    check_env(&mut Cards::new(MaskFlaw::None)).unwrap();
    check_env(&mut ActionRepeat::new(Cards::new(MaskFlaw::None), 3).unwrap()).unwrap();
    for (flaw, message) in [
        (
            MaskFlaw::Empty,
            "episode 0, reset: the mask of actions allows no action to agent 1",
        ),
        (
            MaskFlaw::EmptyLater,
            "episode 0, step 2: the mask of actions allows no action to agent 0",
        ),
        (
            MaskFlaw::Panic,
            "episode 0, step 3: the mask of actions panicked: no mask",
        ),
        (MaskFlaw::Chance, "episode 0, reset: something else was seen"),
    ] {
        let error = check_env(&mut Cards::new(flaw)).unwrap_err();
        assert!(error.message().contains(message), "{flaw:?}: {error}");
    }
    let mut odd = Odd {
        space: Space::multi_binary(2),
        masked: true,
    };
    let error = check_env(&mut odd).unwrap_err();
    assert!(error.message().contains("cannot be masked"), "{error}");
}
