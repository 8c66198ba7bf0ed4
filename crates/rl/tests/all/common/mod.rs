//! Environments and loops shared by several tests.

use polygrad_rl::{Env, Rng, Space, Step, StepBuffers, VectorEnv};

/// Random actions that masks allow.
pub(crate) fn choose<V: VectorEnv>(envs: &V, rng: &mut Rng, actions: &mut [f32]) {
    let space = envs.action_space();
    let entries = space.flat_len();
    for (row, action) in actions.chunks_mut(space.len()).enumerate() {
        match envs.action_masks() {
            Some(masks) => space.sample_masked(&masks[row * entries..(row + 1) * entries], rng, action),
            None => space.sample(rng, action),
        }
    }
}

/// The output of a step, and the masks after it.
pub(crate) type Seen = (StepBuffers, Option<Vec<bool>>);

/// Takes some steps from the current state, with actions from `rng`.
pub(crate) fn play_on<V: VectorEnv>(envs: &mut V, buffers: &mut StepBuffers, rng: &mut Rng, steps: usize) -> Vec<Seen> {
    let mut actions = vec![0.0; envs.rows() * envs.action_space().len()];
    (0..steps)
        .map(|_| {
            choose(envs, rng, &mut actions);
            envs.step(&actions, &mut buffers.as_mut()).unwrap();
            (buffers.clone(), envs.action_masks().map(<[bool]>::to_vec))
        })
        .collect()
}

/// Everything written by a reset and some steps.
pub(crate) fn play<V: VectorEnv>(mut envs: V, seed: u64, steps: usize) -> Vec<Seen> {
    let mut buffers = StepBuffers::new(&envs);
    envs.reset(seed, &mut buffers.observations).unwrap();
    let mut seen = vec![(buffers.clone(), envs.action_masks().map(<[bool]>::to_vec))];
    seen.extend(play_on(&mut envs, &mut buffers, &mut Rng::new(9), steps));
    seen
}

/// Two agents guess a random number; a right guess gives a point, and ten points end the episode.
#[derive(Clone, Default)]
pub(crate) struct Guess {
    number: usize,
    points: usize,
}

impl Env<2> for Guess {
    fn observation_space(&self) -> Space {
        Space::boxed(&[0.0, 0.0], &[1.0, 20.0])
    }
    fn action_space(&self) -> Space {
        Space::discrete(3)
    }
    fn reset(&mut self, rng: &mut Rng, observation: &mut [f32]) {
        self.points = 0;
        self.number = rng.below(3);
        observation.copy_from_slice(&[0.0, 0.0, 1.0, 0.0]);
    }
    fn step(&mut self, action: &[f32], rng: &mut Rng, observation: &mut [f32]) -> Step<2> {
        let rewards = [0, 1].map(|agent| f64::from(u8::from(action[agent] == self.number as f32)));
        self.points += rewards.iter().sum::<f64>() as usize;
        self.number = rng.below(3);
        let points = self.points as f32;
        observation.copy_from_slice(&[0.0, points, 1.0, points]);
        Step {
            rewards,
            terminated: self.points >= 10,
            truncated: false,
        }
    }
}

/// The fault of a mask of [`Cards`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum MaskFlaw {
    None,
    Empty,
    EmptyLater,
    Panic,
    Chance,
}

/// Two agents that play each of their five cards once.
#[derive(Clone)]
pub(crate) struct Cards {
    left: [[bool; 5]; 2],
    played: usize,
    flaw: MaskFlaw,
    asked: std::cell::Cell<usize>,
}

impl Cards {
    pub(crate) fn new(flaw: MaskFlaw) -> Self {
        Self {
            left: [[true; 5]; 2],
            played: 0,
            flaw,
            asked: std::cell::Cell::new(0),
        }
    }
}

impl Env<2> for Cards {
    fn observation_space(&self) -> Space {
        Space::boxed(&[0.0], &[5.0])
    }
    fn action_space(&self) -> Space {
        Space::Discrete { n: 5, start: 1 }
    }
    fn reset(&mut self, rng: &mut Rng, observation: &mut [f32]) {
        self.left = [[true; 5]; 2];
        // One card of each agent is lost.
        for own in &mut self.left {
            own[rng.below(5)] = false;
        }
        self.played = 0;
        observation.fill(0.0);
    }
    fn step(&mut self, action: &[f32], _rng: &mut Rng, observation: &mut [f32]) -> Step<2> {
        for (own, action) in self.left.iter_mut().zip(action) {
            assert!(
                self.played >= 4 || std::mem::take(&mut own[*action as usize - 1]),
                "no such card"
            );
        }
        self.played = (self.played + 1).min(4);
        observation.fill(self.played as f32);
        let reward = f64::from(action[0] - action[1]);
        Step {
            rewards: [reward, -reward],
            terminated: self.played == 4,
            truncated: false,
        }
    }
    fn has_action_mask(&self) -> bool {
        true
    }
    fn action_mask(&self, mask: &mut [bool]) {
        assert!(self.left != [[false; 5]; 2], "asked after the end of the episode");
        mask.copy_from_slice(self.left.as_flattened());
        self.asked.set(self.asked.get() + 1);
        match self.flaw {
            MaskFlaw::Empty => mask[5..].fill(false),
            MaskFlaw::EmptyLater if self.played == 2 => mask[..5].fill(false),
            MaskFlaw::Panic if self.played == 3 => panic!("no mask"),
            // Three episodes ask for the mask twelve times.
            MaskFlaw::Chance if self.played == 0 && self.asked.get() > 12 => mask[..5].fill(true),
            _ => {}
        }
    }
}
