//! Environments that begin an episode in the step after the one that ends another.

use polygrad_core::Result;
use polygrad_reference::Reference;
use polygrad_rl::{
    ActionSpace, ActorCritic, Dqn, DqnConfig, EncoderConfig, EvaluateConfig, MemoryConfig, MemoryKind,
    MlpEncoderConfig, NormalizeReward, PolicyConfig, Ppo, PpoConfig, QNetwork, RecordEpisodeStatistics, Space,
    StepBuffers, StepSlices, VectorEnv, evaluate,
};
use polygrad_tensor::Device;

const ROWS: usize = 2;

/// The observation is the number of the step, and the reward of each step is 1. The episodes of row `r` have `r + 3`
/// steps.
struct Counting {
    spaces: [Space; 2],
    steps: [usize; ROWS],
    ended: [bool; ROWS],
    begun: [bool; ROWS],
}

impl Counting {
    fn new() -> Self {
        Self {
            spaces: [Space::boxed(&[0.0], &[9.0]), Space::discrete(2)],
            steps: [0; ROWS],
            ended: [false; ROWS],
            begun: [false; ROWS],
        }
    }
}

impl VectorEnv for Counting {
    fn num_envs(&self) -> usize {
        ROWS
    }

    fn observation_space(&self) -> &Space {
        &self.spaces[0]
    }

    fn action_space(&self) -> &Space {
        &self.spaces[1]
    }

    fn begun(&self) -> Option<&[bool]> {
        Some(&self.begun)
    }

    fn reset(&mut self, _seed: u64, observations: &mut [f32]) -> Result<()> {
        *self = Self::new();
        observations.fill(0.0);
        Ok(())
    }

    fn step(&mut self, _actions: &[f32], out: &mut StepSlices<'_>) -> Result<()> {
        self.begun = self.ended;
        for row in 0..ROWS {
            self.steps[row] = if self.begun[row] { 0 } else { self.steps[row] + 1 };
            self.ended[row] = self.steps[row] == row + 3;
            out.observations[row] = self.steps[row] as f32;
            out.final_observations[row] = self.steps[row] as f32;
            out.rewards[row] = f32::from(!self.begun[row]);
            out.terminated[row] = self.ended[row];
            out.truncated[row] = false;
        }
        Ok(())
    }
}

fn device() -> Device {
    Device::<Reference>::default().into_any()
}

fn policy() -> ActorCritic {
    ActorCritic::new(&PolicyConfig::mlp(1, ActionSpace::Discrete(2)), &device()).unwrap()
}

fn config() -> PpoConfig {
    PpoConfig {
        total_steps: 64,
        num_steps: 16,
        num_minibatches: 2,
        ..PpoConfig::default()
    }
}

#[test]
fn steps_that_begin_an_episode_are_not_its_own() {
    let mut ppo = Ppo::new(Counting::new(), policy(), config()).unwrap();
    let mut episodes = Vec::new();
    while !ppo.is_done() {
        episodes.extend(ppo.iterate().unwrap().episodes);
    }
    // 32 steps of each row, in rounds of 4 and 5.
    assert_eq!(episodes.len(), 8 + 6);
    for episode in episodes {
        assert_eq!(
            (episode.length, episode.total_reward),
            (episode.row + 3, (episode.row + 3) as f64)
        );
    }
}

#[test]
fn wrappers_let_it_through() {
    let envs = NormalizeReward::new(RecordEpisodeStatistics::new(Counting::new()), 0.99).unwrap();
    let mut envs = RecordEpisodeStatistics::new(envs);
    let mut buffers = StepBuffers::new(&envs);
    envs.reset(0, &mut buffers.observations).unwrap();
    let mut lengths = Vec::new();
    for _ in 0..20 {
        envs.step(&[0.0; ROWS], &mut buffers.as_mut()).unwrap();
        lengths.extend(envs.finished().iter().map(|episode| (episode.row, episode.length)));
    }
    lengths.sort_unstable();
    assert_eq!(lengths, [vec![(0, 3); 5], vec![(1, 4); 4]].concat());
    assert_eq!(envs.begun(), Some(&[true, true][..]));
}

#[test]
fn evaluations_count_as_others_do() {
    let config = EvaluateConfig {
        episodes: 6,
        ..EvaluateConfig::default()
    };
    let found = evaluate(&policy(), &mut Counting::new(), &config).unwrap();
    assert_eq!((found.mean(), found.mean_length()), (3.5, 3.5));
}

#[test]
fn nothing_of_them_is_replayed() {
    let config = DqnConfig {
        total_steps: 80,
        learning_starts: 60,
        batch_size: 8,
        ..DqnConfig::default()
    };
    let encoder = EncoderConfig::Mlp(MlpEncoderConfig::new(1));
    let make = || QNetwork::new(&encoder, 2, false, &device());
    let mut dqn = Dqn::new(Counting::new(), make, config).unwrap();
    while !dqn.is_done() {
        dqn.iterate().unwrap();
    }
    // 40 steps of each row, of which every fourth or every fifth begins an episode.
    assert_eq!(dqn.replay().len(), 80 - 10 - 8);
}

#[test]
fn what_needs_every_step_is_refused() {
    let with_memory = PolicyConfig {
        memory: Some(MemoryConfig::new(MemoryKind::Gru, 4)),
        ..PolicyConfig::mlp(1, ActionSpace::Discrete(2))
    };
    let with_memory = ActorCritic::new(&with_memory, &device()).unwrap();
    let error = Ppo::new(Counting::new(), with_memory, config())
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("SAME_STEP"), "{error}");
    let of_one = PpoConfig {
        num_steps: 1,
        num_minibatches: 1,
        ..config()
    };
    let mut ppo = Ppo::new(Counting::new(), policy(), of_one).unwrap();
    let error = (0..32).find_map(|_| ppo.iterate().err()).unwrap().to_string();
    assert!(error.contains("take more num_steps"), "{error}");
}
