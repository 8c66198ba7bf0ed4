//! Many environments at once: the same results for any number of threads, and errors that name the faulty environment.

use crate::common::Guess;
use polygrad_rl::{
    CartPole, Env, Pendulum, RecordEpisodeStatistics, Rng, Space, Step, StepBuffers, TMaze, TimeLimit, VectorEnv,
    Vectorized, episode_rng,
};

/// Everything written by some steps.
fn play<V: VectorEnv>(envs: V, seed: u64, steps: usize) -> Vec<StepBuffers> {
    crate::common::play(envs, seed, steps)
        .into_iter()
        .map(|(buffers, _)| buffers)
        .collect()
}

#[test]
fn threads_change_nothing() {
    let expected = play(Vectorized::new(|_| CartPole::v1(), 7).unwrap(), 3, 300);
    assert!(expected.iter().any(|step| step.terminated.contains(&true)));
    let guesses = play(Vectorized::new(|_| Guess::default(), 5).unwrap(), 3, 50);
    assert!(guesses.iter().any(|step| step.terminated.contains(&true)));
    for threads in [1, 2, 4, 16] {
        let envs = Vectorized::threaded(|_| CartPole::v1(), 7, threads).unwrap();
        assert!(play(envs, 3, 300) == expected, "{threads} threads");
        let envs = Vectorized::threaded(|_| Guess::default(), 5, threads).unwrap();
        assert!(play(envs, 3, 50) == guesses, "{threads} threads");
    }
    let boxed: Box<dyn VectorEnv> = Box::new(Vectorized::new(|_| CartPole::v1(), 7).unwrap());
    assert!(play(boxed, 3, 300) == expected);
    assert!(play(Vectorized::new(|_| CartPole::v1(), 7).unwrap(), 4, 300) != expected);
}

#[test]
fn rows_are_agents_of_environments() {
    let envs = Vectorized::new(|_| Guess::default(), 5).unwrap();
    assert_eq!((envs.num_envs(), envs.agents(), envs.rows()), (5, 2, 10));
    for step in play(envs, 1, 40) {
        for (row, seen) in step.observations.chunks(2).enumerate() {
            assert_eq!(seen[0], (row % 2) as f32);
        }
        for ended in step.terminated.chunks(2) {
            assert_eq!(ended[0], ended[1]);
        }
    }
}

#[test]
fn an_episode_can_be_played_again_alone() {
    let (seed, index) = (11, 2);
    let seen = play(Vectorized::new(|_| CartPole::v1(), 4).unwrap(), seed, 200);
    let mut env = CartPole::v1();
    let mut observation = [0.0; 4];
    let mut actions = Rng::new(9);
    let (mut episode, mut ended) = (0, 0);
    let mut rng = episode_rng(seed, index, episode);
    env.reset(&mut rng, &mut observation);
    assert_eq!(observation, seen[0].observations[8..12]);
    for seen in &seen[1..] {
        let mut chosen = [0.0; 4];
        chosen
            .chunks_mut(1)
            .for_each(|action| Space::discrete(2).sample(&mut actions, action));
        let step = env.step(&chosen[index..=index], &mut rng, &mut observation);
        assert_eq!(
            (step.terminated, step.truncated),
            (seen.terminated[index], seen.truncated[index])
        );
        assert_eq!(step.rewards[0] as f32, seen.rewards[index]);
        if step.ended() {
            // The step that ends an episode gives its last observation separately, and the first one of the next
            // episode.
            assert_eq!(observation, seen.final_observations[8..12]);
            ended += 1;
            episode += 1;
            rng = episode_rng(seed, index, episode);
            env.reset(&mut rng, &mut observation);
        }
        assert_eq!(observation, seen.observations[8..12]);
    }
    assert!(ended > 3, "{ended}");
}

#[test]
fn no_step_is_without_a_reward() {
    // With resets in separate steps, the sum would be less by their number.
    let steps = play(Vectorized::new(|_| CartPole::v1(), 16).unwrap(), 0, 500);
    let total: f32 = steps[1..].iter().flat_map(|step| &step.rewards).sum();
    assert_eq!(total, 16.0 * 500.0);
}

#[test]
fn a_time_limit_truncates() {
    let envs = Vectorized::new(|_| Pendulum::v1(), 2).unwrap();
    for (number, step) in play(envs, 0, 400).iter().enumerate() {
        let due = number > 0 && number % 200 == 0;
        assert_eq!((step.truncated[0], step.terminated[0]), (due, false), "step {number}");
    }
}

/// The fault of an environment in the third step of its second episode, which the other environments never reach.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    Panic,
    Observation,
    Reward,
    Reset,
}

struct Flawed {
    flaw: Option<Flaw>,
    episode: usize,
    steps: usize,
}

impl Env for Flawed {
    fn observation_space(&self) -> Space {
        Space::boxed(&[0.0, 0.0], &[5.0, 5.0])
    }
    fn action_space(&self) -> Space {
        Space::boxed(&[-1.0], &[1.0])
    }
    fn reset(&mut self, _rng: &mut Rng, observation: &mut [f32]) {
        self.episode += 1;
        self.steps = 0;
        assert!(self.flaw != Some(Flaw::Reset) || self.episode < 2, "no second episode");
        observation.fill(0.0);
    }
    fn step(&mut self, _action: &[f32], _rng: &mut Rng, observation: &mut [f32]) -> Step {
        self.steps += 1;
        observation.fill(self.steps as f32);
        let due = self.episode == 2 && self.steps == 3;
        match self.flaw.filter(|_| due) {
            Some(Flaw::Panic) => panic!("the tower fell"),
            Some(Flaw::Observation) => observation[1] = f32::INFINITY,
            Some(Flaw::Reward) => return Step::new(1e300, false),
            Some(Flaw::Reset) | None => {}
        }
        Step::new(0.0, self.steps == 5)
    }
}

#[test]
fn who_fails_is_named() {
    for (flaw, message) in [
        (
            Flaw::Panic,
            "environment 4 panicked: the tower fell (seed 6, episode 1, step 3)",
        ),
        (
            Flaw::Observation,
            "environment 4 gave an observation whose number 1 is inf (seed 6, episode 1, step 3)",
        ),
        (
            Flaw::Reward,
            "environment 4 gave the reward 1e300 to agent 0 (seed 6, episode 1, step 3)",
        ),
        (
            Flaw::Reset,
            "environment 4 panicked: no second episode (seed 6, episode 1, its reset)",
        ),
    ] {
        for threads in [1, 2, 3] {
            let make = |index: usize| Flawed {
                flaw: (index >= 4).then_some(flaw),
                episode: 0,
                steps: 0,
            };
            let mut envs = Vectorized::threaded(make, 6, threads).unwrap();
            let mut buffers = StepBuffers::new(&envs);
            envs.reset(6, &mut buffers.observations).unwrap();
            let error = (0..9)
                .find_map(|_| envs.step(&[0.0; 6], &mut buffers.as_mut()).err())
                .unwrap();
            assert_eq!(error.message(), message);
            assert!(error.to_string().contains("episode_rng(6, 4, 1)"), "{error}");
            let error = envs.step(&[0.0; 6], &mut buffers.as_mut()).unwrap_err();
            assert!(
                error
                    .message()
                    .contains("`step` before `reset`, or after a step that failed"),
                "{error}"
            );
            // After a reset it continues.
            let again = envs.reset(7, &mut buffers.observations);
            assert!(again.is_ok() || flaw == Flaw::Reset);
        }
    }
}

#[test]
fn wrong_calls_are_told() {
    let mut envs = Vectorized::new(|_| CartPole::v1(), 3).unwrap();
    let mut buffers = StepBuffers::new(&envs);
    let message = |result: polygrad_core::Result<()>| result.unwrap_err().message().to_owned();
    assert!(message(envs.step(&[0.0; 3], &mut buffers.as_mut())).contains("`step` before `reset`"));
    assert_eq!(
        message(envs.reset(0, &mut [0.0; 4])),
        "`observations` has 4 entries, but the environments need 12"
    );
    envs.reset(0, &mut buffers.observations).unwrap();
    assert!(message(envs.step(&[0.0; 2], &mut buffers.as_mut())).contains("`actions` has 2 entries"));
    let mut short = buffers.clone();
    short.truncated.pop();
    assert!(message(envs.step(&[0.0; 3], &mut short.as_mut())).contains("`truncated` has 2 entries"));
    // Neither call has had an effect.
    envs.step(&[1.0; 3], &mut buffers.as_mut()).unwrap();
    let error = message(envs.step(&[1.0, 2.0, 0.5], &mut buffers.as_mut()));
    assert!(error.contains("environment 1 was given the action [2.0]"), "{error}");
    envs.step(&[1.0; 3], &mut buffers.as_mut()).unwrap();
    let mut envs = Vectorized::new(|_| Pendulum::v1(), 1).unwrap();
    let mut buffers = StepBuffers::new(&envs);
    envs.reset(0, &mut buffers.observations).unwrap();
    envs.step(&[77.0], &mut buffers.as_mut()).unwrap();
    let error = message(envs.step(&[f32::NAN], &mut buffers.as_mut()));
    assert!(error.contains("[NaN], which is not finite"), "{error}");
}

#[test]
fn nothing_is_made_of_nothing() {
    let message = |result: polygrad_core::Result<_>| result.err().unwrap().to_string();
    assert!(message(Vectorized::new(|_| CartPole::v1(), 0)).contains("at least one environment"));
    assert!(message(Vectorized::threaded(|_| CartPole::v1(), 2, 0)).contains("0 threads"));
    let mazes = Vectorized::new(|index| polygrad_rl::GridWorld::new(2 + index / 2).unwrap(), 4);
    let error = mazes.err().unwrap().to_string();
    assert!(
        error.contains("environment 2 has other spaces than environment 0"),
        "{error}"
    );
}

#[test]
fn returns_and_lengths_are_kept() {
    let maze = TimeLimit::new(TMaze::new(2).unwrap(), 10).unwrap();
    let mut envs = RecordEpisodeStatistics::new(Vectorized::new(|_| maze.clone(), 3).unwrap());
    let mut buffers = StepBuffers::new(&envs);
    envs.reset(0, &mut buffers.observations).unwrap();
    // The first agent goes to the junction and turns, the others run against a wall.
    for (number, action) in [1.0, 1.0, 0.0].into_iter().enumerate() {
        assert!(envs.finished().is_empty());
        envs.step(&[action, 0.0, 2.0], &mut buffers.as_mut()).unwrap();
        assert_eq!(buffers.terminated[0], number == 2);
    }
    let [first] = envs.finished() else {
        panic!("{:?}", envs.finished());
    };
    let reward = f64::from(buffers.rewards[0]);
    assert_eq!((first.row, first.length, first.total_reward), (0, 3, reward));
    for _ in 3..10 {
        envs.step(&[0.0; 3], &mut buffers.as_mut()).unwrap();
    }
    let rows: Vec<usize> = envs.finished().iter().map(|episode| episode.row).collect();
    assert_eq!(rows, [1, 2]);
    assert!(
        envs.finished()
            .iter()
            .all(|episode| (episode.total_reward + 1.0).abs() < 1e-6 && episode.length == 10)
    );
}
