//! Compares with Gymnasium 1.4.0: tests/data/gymnasium.json, by scripts/make_environment_steps.py.

use polygrad_rl::{
    Acrobot, CartPole, Env, MountainCar, MountainCarContinuous, NormalizeReward, Pendulum, Rng, RunningMeanStd, Space,
    Step, StepBuffers, StepSlices, TimeLimit, VectorEnv, check_env,
};
use serde_json::Value;

fn recorded() -> Value {
    serde_json::from_str(include_str!("../data/gymnasium.json")).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn flags(value: &Value) -> Vec<bool> {
    value.as_array().unwrap().iter().map(|x| x.as_bool().unwrap()).collect()
}

/// An environment whose state can be set.
trait Known: Env {
    fn set(&mut self, state: &[f64], after_reset: bool);
    fn get(&self) -> Vec<f64>;
}

macro_rules! known {
    ($($env:ty),*) => {$(
        impl Known for $env {
            fn set(&mut self, state: &[f64], _after_reset: bool) {
                self.set_state(state.try_into().unwrap());
            }
            fn get(&self) -> Vec<f64> {
                self.state().to_vec()
            }
        }
    )*};
}
known!(CartPole, Acrobot, MountainCar, Pendulum);

impl Known for MountainCarContinuous {
    fn set(&mut self, state: &[f64], after_reset: bool) {
        self.set_state(state.try_into().unwrap(), after_reset);
    }
    fn get(&self) -> Vec<f64> {
        self.state().to_vec()
    }
}

struct Recorded {
    states: Vec<Vec<f64>>,
    actions: Vec<f64>,
    rewards: Vec<f64>,
    terminated: bool,
    truncated: bool,
    first: Vec<f64>,
    last: Vec<f64>,
}

impl Recorded {
    fn new(episode: &Value) -> Self {
        Self {
            states: episode["states"].as_array().unwrap().iter().map(numbers).collect(),
            actions: numbers(&episode["actions"]),
            rewards: numbers(&episode["rewards"]),
            terminated: episode["terminated"].as_bool().unwrap(),
            truncated: episode["truncated"].as_bool().unwrap(),
            first: numbers(&episode["first"]),
            last: numbers(&episode["last"]),
        }
    }
}

fn furthest(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

fn close(name: &str, what: &str, step: usize, (ours, theirs): (&[f64], &[f64]), tolerance: f64) {
    let far = furthest(ours, theirs);
    assert!(
        far <= tolerance,
        "{name}, {what} {step}: {ours:?}, recorded {theirs:?}, {far:e} apart"
    );
}

fn wide(observation: &[f32]) -> Vec<f64> {
    observation.iter().map(|x| f64::from(*x)).collect()
}

/// Compares every step from its recorded state, and the first 100 in sequence.
fn compare<E: Known>(name: &str, limited: TimeLimit<E>, tolerance: f64, of_replay: f64) {
    let recorded = &recorded()["environments"][name];
    assert_eq!(recorded["limit"].as_u64().unwrap(), limited.limit() as u64, "{name}");
    let mut limited = limited;
    let mut rng = Rng::new(0);
    let mut observation = vec![0.0; limited.observation_space().len()];
    for episode in recorded["episodes"].as_array().unwrap() {
        let episode = Recorded::new(episode);
        // Restarts the time limit, which counts from here.
        limited.reset(&mut rng, &mut observation);
        let mut last = Step::new(0.0, false);
        for (i, action) in episode.actions.iter().enumerate() {
            limited.env_mut().set(&episode.states[i], i == 0);
            assert!(!last.ended(), "{name}, step {i}");
            last = limited.step(&[*action as f32], &mut rng, &mut observation);
            close(
                name,
                "state",
                i,
                (&limited.env().get(), &episode.states[i + 1]),
                tolerance,
            );
            close(name, "reward", i, (&last.rewards, &episode.rewards[i..=i]), 1e-9);
        }
        assert_eq!(
            (last.terminated, last.truncated),
            (episode.terminated, episode.truncated),
            "{name}"
        );
        // Differs by the last digits of f32.
        close(name, "observation", 0, (&wide(&observation), &episode.last), 1e-6);

        let env = limited.env_mut();
        env.set(&episode.states[0], true);
        assert_eq!(episode.first.len(), observation.len());
        for (i, action) in episode.actions.iter().enumerate().take(100) {
            env.step(&[*action as f32], &mut rng, &mut observation);
            close(
                name,
                "replayed state",
                i,
                (&env.get(), &episode.states[i + 1]),
                of_replay,
            );
        }
    }
}

/// Exact with the sine of glibc; another one may differ in its last bit.
const EXACT: f64 = if cfg!(target_env = "gnu") { 0.0 } else { 1e-7 };

#[test]
fn cart_pole_is_gymnasiums() {
    compare("CartPole-v1", CartPole::v1(), 1e-14, 1e-12);
}

#[test]
fn acrobot_is_gymnasiums() {
    compare("Acrobot-v1", Acrobot::v1(), 1e-13, 1e-9);
}

#[test]
fn mountain_car_is_gymnasiums() {
    compare("MountainCar-v0", MountainCar::v0(), 1e-14, 1e-12);
}

#[test]
fn mountain_car_continuous_is_gymnasiums_bit_for_bit() {
    compare("MountainCarContinuous-v0", MountainCarContinuous::v0(), EXACT, EXACT);
}

#[test]
fn pendulum_is_gymnasiums_bit_for_bit() {
    compare("Pendulum-v1", Pendulum::v1(), EXACT, EXACT);
}

#[test]
fn first_states_are_where_gymnasiums_are() {
    fn extremes<E: Known>(mut env: E) -> Vec<[f64; 2]> {
        let mut observation = vec![0.0; env.observation_space().len()];
        let states: Vec<_> = (0..2000)
            .map(|seed| {
                env.reset(&mut Rng::new(seed), &mut observation);
                env.get()
            })
            .collect();
        let of = |i: usize, f: fn(f64, f64) -> f64| states.iter().map(|state| state[i]).reduce(f).unwrap();
        (0..states[0].len())
            .map(|i| [of(i, f64::min), of(i, f64::max)])
            .collect()
    }
    let check = |found: Vec<[f64; 2]>, expected: &[[f64; 2]]| {
        assert_eq!(found.len(), expected.len());
        for ([low, high], [least, most]) in found.into_iter().zip(expected) {
            let near = 0.01 * (most - least);
            assert!(low >= *least && low <= least + near, "{low} and {least}");
            assert!(high <= *most && high >= most - near, "{high} and {most}");
        }
    };
    let pi = std::f64::consts::PI;
    check(extremes(CartPole::new()), &[[-0.05, 0.05]; 4]);
    check(extremes(Acrobot::new()), &[[-0.100_000_01, 0.100_000_01]; 4]);
    check(extremes(MountainCar::new()), &[[-0.6, -0.4], [0.0, 0.0]]);
    check(extremes(MountainCarContinuous::new()), &[[-0.6, -0.4], [0.0, 0.0]]);
    check(extremes(Pendulum::new()), &[[-pi, pi], [-1.0, 1.0]]);
}

#[test]
fn every_environment_keeps_the_contract() {
    check_env(&mut CartPole::v1()).unwrap();
    check_env(&mut CartPole::new().sutton_barto_reward()).unwrap();
    check_env(&mut Acrobot::v1()).unwrap();
    check_env(&mut MountainCar::v0()).unwrap();
    check_env(&mut MountainCarContinuous::v0()).unwrap();
    check_env(&mut Pendulum::v1()).unwrap();
    check_env(&mut polygrad_rl::TMaze::new(4).unwrap()).unwrap();
    check_env(&mut polygrad_rl::GridWorld::new(4).unwrap()).unwrap();
}

#[test]
fn a_pole_falls_once() {
    let play = |mut env: CartPole| -> Vec<f64> {
        let mut observation = [0.0; 4];
        env.set_state([0.0, 0.0, 0.2, 1.0]);
        let mut step = || env.step(&[1.0], &mut Rng::new(0), &mut observation).rewards[0];
        (0..3).map(|_| step()).collect()
    };
    assert_eq!(play(CartPole::new()), [1.0, 0.0, 0.0]);
    assert_eq!(play(CartPole::new().sutton_barto_reward()), [-1.0; 3]);
}

#[test]
fn running_statistics_are_gymnasiums() {
    let recorded = &recorded()["running"];
    let mut statistics = RunningMeanStd::new(3);
    for batch in recorded["batches"].as_array().unwrap() {
        let rows: Vec<f32> = batch
            .as_array()
            .unwrap()
            .iter()
            .flat_map(numbers)
            .map(|x| x as f32)
            .collect();
        statistics.update(&rows).unwrap();
    }
    assert!(furthest(statistics.mean(), &numbers(&recorded["mean"])) < 1e-12);
    let relative = |(ours, theirs): (&f64, &f64)| (ours / theirs - 1.0).abs();
    assert!(
        statistics
            .var()
            .iter()
            .zip(&numbers(&recorded["var"]))
            .map(relative)
            .all(|far| far < 1e-12)
    );
    assert_eq!(statistics.count(), recorded["count"].as_f64().unwrap());
}

/// Three environments with recorded rewards and ends.
struct Told {
    steps: std::vec::IntoIter<[Value; 3]>,
    space: Space,
}

impl VectorEnv for Told {
    fn num_envs(&self) -> usize {
        3
    }
    fn observation_space(&self) -> &Space {
        &self.space
    }
    fn action_space(&self) -> &Space {
        &self.space
    }
    fn reset(&mut self, _seed: u64, _observations: &mut [f32]) -> polygrad_core::Result<()> {
        Ok(())
    }
    fn step(&mut self, _actions: &[f32], out: &mut StepSlices<'_>) -> polygrad_core::Result<()> {
        let [rewards, terminated, truncated] = self.steps.next().unwrap();
        for (to, from) in out.rewards.iter_mut().zip(numbers(&rewards)) {
            *to = from as f32;
        }
        out.terminated.copy_from_slice(&flags(&terminated));
        out.truncated.copy_from_slice(&flags(&truncated));
        Ok(())
    }
}

#[test]
fn normalized_rewards_are_gymnasiums() {
    let recorded = &recorded()["normalized"];
    let rows = |name: &str| recorded[name].as_array().unwrap().clone();
    let steps: Vec<[Value; 3]> = rows("rewards")
        .into_iter()
        .zip(rows("terminated"))
        .zip(rows("truncated"))
        .map(|((rewards, terminated), truncated)| [rewards, terminated, truncated])
        .collect();
    let told = Told {
        steps: steps.into_iter(),
        space: Space::boxed(&[0.0], &[0.0]),
    };
    let mut envs = NormalizeReward::new(told, 0.9).unwrap();
    let mut buffers = StepBuffers::new(&envs);
    for (i, expected) in rows("normalized").iter().enumerate() {
        envs.step(&[0.0; 3], &mut buffers.as_mut()).unwrap();
        close(
            "NormalizeReward",
            "rewards",
            i,
            (&wide(&buffers.rewards), &numbers(expected)),
            1e-5,
        );
    }
}
