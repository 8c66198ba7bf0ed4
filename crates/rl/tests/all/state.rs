//! Saved and restored environments continue bit for bit, in all kinds of stepping; damaged states are rejected.

use crate::common::{Cards, Guess, MaskFlaw, choose, play_on};
use polygrad_rl::{
    Acrobot, ActionRepeat, CartPole, ConnectFour, Env, FrameStack, GridWorld, MountainCar, MountainCarContinuous,
    NormalizeObservation, NormalizeReward, Pendulum, RecordEpisodeStatistics, Rng, Space, Step, StepBuffers,
    StepSlices, TMaze, TicTacToe, TimeLimit, VectorEnv, Vectorized,
};
use serde_json::{Value, json};

/// Converts to text and back, as a file does.
fn written(state: &Value) -> Value {
    serde_json::from_str(&state.to_string()).unwrap()
}

/// Saves after some steps, restores into others, and compares everything that follows.
fn resumes<V: VectorEnv>(name: &str, mut envs: V, others: Vec<V>, steps: usize) {
    let mut buffers = StepBuffers::new(&envs);
    let mut rng = Rng::new(5);
    envs.reset(8, &mut buffers.observations).unwrap();
    let before = play_on(&mut envs, &mut buffers, &mut rng, steps);
    let state = envs.state().unwrap();
    assert_eq!(envs.state().unwrap(), state, "{name}");
    let (shown, resumed) = (buffers.observations.clone(), rng.clone());
    let masks = envs.action_masks().map(<[bool]>::to_vec);
    let expected = play_on(&mut envs, &mut buffers, &mut rng, steps);
    let all = || before.iter().chain(&expected);
    assert!(
        all().any(|(seen, _)| seen.terminated.contains(&true) || seen.truncated.contains(&true)),
        "{name}"
    );
    for (i, mut other) in others.into_iter().enumerate() {
        // Final observations of other rows are unchanged.
        let mut buffers = StepBuffers {
            observations: vec![0.0; shown.len()],
            ..before.last().unwrap().0.clone()
        };
        other.restore(&written(&state), &mut buffers.observations).unwrap();
        assert_eq!(buffers.observations, shown, "{name}, {i}");
        assert_eq!(other.action_masks().map(<[bool]>::to_vec), masks, "{name}, {i}");
        assert_eq!(other.state().unwrap(), state, "{name}, {i}");
        let seen = play_on(&mut other, &mut buffers, &mut resumed.clone(), steps);
        assert!(seen == expected, "{name}, {i}");
    }
}

fn each<E: Env<A> + Send + 'static, const A: usize>(name: &str, make: impl Fn() -> E + Copy, steps: usize) {
    let n = 9;
    let others = || {
        let mut used = Vectorized::new(|_| make(), n).unwrap();
        let mut buffers = StepBuffers::new(&used);
        used.reset(77, &mut buffers.observations).unwrap();
        play_on(&mut used, &mut buffers, &mut Rng::new(1), 7);
        vec![
            Vectorized::new(|_| make(), n).unwrap(),
            used,
            Vectorized::threaded(|_| make(), n, 2).unwrap(),
            Vectorized::threaded(|_| make(), n, 5).unwrap(),
            Vectorized::asynchronous(|_| make(), n, 1).unwrap(),
            Vectorized::asynchronous(|_| make(), n, 2).unwrap(),
        ]
    };
    resumes(name, Vectorized::new(|_| make(), n).unwrap(), others(), steps);
    resumes(name, Vectorized::threaded(|_| make(), n, 3).unwrap(), others(), steps);
    resumes(
        name,
        Vectorized::asynchronous(|_| make(), n, 2).unwrap(),
        others(),
        steps,
    );
}

#[test]
fn every_environment_goes_on_bit_for_bit() {
    each("CartPole", CartPole::v1, 103);
    each("Acrobot", Acrobot::v1, 555);
    each("MountainCar", MountainCar::v0, 222);
    each("MountainCarContinuous", MountainCarContinuous::v0, 1111);
    each("Pendulum", Pendulum::v1, 222);
    each("TMaze", || TimeLimit::new(TMaze::new(3).unwrap(), 20).unwrap(), 33);
    each(
        "GridWorld",
        || TimeLimit::new(GridWorld::new(4).unwrap(), 30).unwrap(),
        44,
    );
    each("Guess", Guess::default, 33);
    each("ConnectFour", ConnectFour::new, 51);
    each("TicTacToe", TicTacToe::new, 51);
    each("Cards", || Cards::new(MaskFlaw::None), 11);
    let wrapped = || FrameStack::new(ActionRepeat::new(CartPole::v1(), 2).unwrap(), 3).unwrap();
    each("wrapped", wrapped, 77);
}

#[test]
fn wrappers_go_on_bit_for_bit() {
    let make = |threads: usize| {
        let envs = RecordEpisodeStatistics::new(Vectorized::threaded(|_| CartPole::v1(), 6, threads).unwrap());
        let envs = NormalizeObservation::new(envs).unwrap().clip(5.0).unwrap();
        let mut envs = NormalizeReward::new(envs, 0.97).unwrap();
        envs.freeze(threads == 3);
        envs
    };
    resumes("wrappers", make(1), vec![make(1), make(2), make(3)], 150);
    resumes("frozen", make(3), vec![make(1), make(2)], 150);
    let boxed = |threads| Box::new(make(threads)) as Box<dyn VectorEnv>;
    resumes("boxed", boxed(2), vec![boxed(1)], 150);

    // Returns and lengths continue to be counted.
    let (mut envs, mut other) = (make(1), make(1));
    let mut buffers = StepBuffers::new(&envs);
    let mut rng = Rng::new(0);
    envs.reset(0, &mut buffers.observations).unwrap();
    play_on(&mut envs, &mut buffers, &mut rng, 100);
    other
        .restore(&written(&envs.state().unwrap()), &mut buffers.observations)
        .unwrap();
    let mut again = (buffers.clone(), rng.clone());
    let mut episodes = 0;
    for _ in 0..50 {
        play_on(&mut envs, &mut buffers, &mut rng, 1);
        play_on(&mut other, &mut again.0, &mut again.1, 1);
        let (ours, theirs) = (envs.env().env().finished(), other.env().env().finished());
        assert_eq!(ours, theirs);
        episodes += ours.len();
    }
    assert!(episodes > 5, "{episodes}");
    assert_eq!(envs.normalizer(), other.normalizer());
    assert_eq!(envs.env().normalizer(), other.env().normalizer());
}

/// The state of three poles after some steps, the poles, and memory for their observations.
fn poles() -> (Value, Vectorized<CartPole2>, Vec<f32>) {
    let mut envs = Vectorized::new(|_| CartPole::v1(), 3).unwrap();
    let mut buffers = StepBuffers::new(&envs);
    envs.reset(2, &mut buffers.observations).unwrap();
    play_on(&mut envs, &mut buffers, &mut Rng::new(3), 40);
    (envs.state().unwrap(), envs, buffers.observations)
}

type CartPole2 = TimeLimit<CartPole>;

/// The path of every place in a value, as a JSON pointer.
fn places(value: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    match value {
        Value::Object(fields) => fields
            .iter()
            .for_each(|(name, inside)| places(inside, &format!("{at}/{name}"), all)),
        Value::Array(inside) => {
            inside
                .iter()
                .enumerate()
                .for_each(|(i, inside)| places(inside, &format!("{at}/{i}"), all));
        }
        _ => {}
    }
}

#[test]
fn damaged_states_are_refused() {
    let (state, mut envs, mut seen) = poles();
    let shown = seen.clone();
    let mut all = Vec::new();
    places(&state, "", &mut all);
    let instead = [
        json!(null),
        json!(-1),
        json!(1),
        json!(0.5),
        json!(1e300),
        json!(u64::MAX),
        json!("x"),
        json!([]),
        json!({}),
    ];
    let mut tried = 0;
    for place in &all {
        for value in &instead {
            let mut damaged = state.clone();
            let old = std::mem::replace(damaged.pointer_mut(place).unwrap(), value.clone());
            if old == *value || old.as_f64().is_some() && old.as_f64() == value.as_f64() {
                continue;
            }
            let error = envs
                .restore(&damaged, &mut seen)
                .expect_err(&format!("{value} at {place}"));
            assert!(!error.message().is_empty() && error.to_string().len() < 1000, "{error}");
            tried += 1;
        }
        // An element with a parent can be missing or duplicated.
        let Some((parent, name)) = place.rsplit_once('/') else {
            continue;
        };
        for twice in [false, true] {
            let mut damaged = state.clone();
            match damaged.pointer_mut(parent).unwrap() {
                Value::Object(fields) if !twice => drop(fields.remove(name)),
                Value::Array(inside) => {
                    let i: usize = name.parse().unwrap();
                    let old = inside.remove(i);
                    (0..2 * usize::from(twice)).for_each(|_| inside.insert(i, old.clone()));
                }
                _ => continue,
            }
            assert!(envs.restore(&damaged, &mut seen).is_err(), "{place}");
            tried += 1;
        }
    }
    assert!(tried > 500, "{tried}");
    envs.restore(&state, &mut seen).unwrap();
    assert_eq!(seen, shown);
}

#[test]
fn states_of_others_are_refused() {
    let (state, _, _) = poles();
    let refused = |mut envs: Box<dyn VectorEnv>, state: &Value| {
        let mut seen = vec![0.0; envs.rows() * envs.observation_space().len()];
        envs.restore(state, &mut seen).unwrap_err().to_string()
    };
    let four = Vectorized::new(|_| CartPole::v1(), 4).unwrap();
    let message = refused(Box::new(four), &state);
    assert!(
        message.contains("the state is of 3 environments of 1 agents, here are 4 of 1"),
        "{message}"
    );
    let cars = || Box::new(Vectorized::new(|_| MountainCar::v0(), 3).unwrap());
    assert!(refused(cars(), &state).contains("other spaces"));
    // The spaces are alike, but the observations are not.
    let moody = Vectorized::new(|_| TimeLimit::new(CartPole::new(), 2).unwrap(), 3).unwrap();
    let message = refused(Box::new(moody), &state);
    assert!(
        message.contains("environment 0 ended its saved episode before"),
        "{message}"
    );
    let wrapped = NormalizeReward::new(cars(), 0.9).unwrap();
    let message = refused(Box::new(wrapped), &state);
    assert!(
        message.contains("the state has nothing of a NormalizeReward around environments"),
        "{message}"
    );
    let inside = RecordEpisodeStatistics::new(Vectorized::new(|_| CartPole::v1(), 3).unwrap());
    let mut recorded = json!({ "RecordEpisodeStatistics": { "totals": [0.0], "lengths": [0] }, "env": state });
    assert!(refused(Box::new(inside), &recorded).contains("the episodes are of 1 rows, the environments have 3"));
    recorded["RecordEpisodeStatistics"]["lengths"] = json!([]);
    let inside = RecordEpisodeStatistics::new(Vectorized::new(|_| CartPole::v1(), 3).unwrap());
    assert!(refused(Box::new(inside), &recorded).contains("1 returns of episodes, but 0 lengths"));
}

/// Accumulates its actions over all of its episodes, which no environment may do.
#[derive(Default)]
struct Forgetful {
    total: f32,
    steps: usize,
    keeps: bool,
}

impl Env for Forgetful {
    fn observation_space(&self) -> Space {
        Space::boxed(&[0.0], &[f32::INFINITY])
    }
    fn action_space(&self) -> Space {
        Space::discrete(2)
    }
    fn reset(&mut self, _rng: &mut Rng, observation: &mut [f32]) {
        if !self.keeps {
            self.total = 0.0;
        }
        self.steps = 0;
        observation[0] = self.total;
    }
    fn step(&mut self, action: &[f32], _rng: &mut Rng, observation: &mut [f32]) -> Step {
        self.total += action[0];
        self.steps += 1;
        observation[0] = self.total;
        Step::new(0.0, false)
    }
}

#[test]
fn who_breaks_the_contract_is_named() {
    let make = |index| Forgetful {
        keeps: index == 1,
        ..Forgetful::default()
    };
    for threads in [1, 3] {
        let mut envs = Vectorized::threaded(make, 3, threads).unwrap();
        let mut buffers = StepBuffers::new(&envs);
        envs.reset(0, &mut buffers.observations).unwrap();
        envs.step(&[1.0; 3], &mut buffers.as_mut()).unwrap();
        let state = envs.state().unwrap();
        // Restoring into new environments works.
        let mut new = Vectorized::threaded(make, 3, threads).unwrap();
        new.restore(&state, &mut buffers.observations).unwrap();
        let error = envs.restore(&state, &mut buffers.observations).unwrap_err();
        assert_eq!(
            error.message(),
            "environment 1 shows something else than it did when it was saved (seed 0, episode 0, step 1)"
        );
        assert!(
            error.to_string().contains("`check_env` tests an environment"),
            "{error}"
        );
        // Only a reset helps.
        let message = |result: polygrad_core::Result<()>| result.unwrap_err().message().to_owned();
        assert!(message(envs.state().map(drop)).contains("`state` before `reset`, or after a step that failed"));
        assert!(message(envs.step(&[1.0; 3], &mut buffers.as_mut())).contains("`step` before `reset`"));
        envs.reset(0, &mut buffers.observations).unwrap();
    }
}

#[test]
fn what_cannot_be_saved_is_told() {
    let mut envs = Vectorized::new(|_| Forgetful::default(), 1).unwrap();
    assert!(envs.state().unwrap_err().message().contains("`state` before `reset`"));
    let mut buffers = StepBuffers::new(&envs);
    envs.reset(0, &mut buffers.observations).unwrap();
    for _ in 0..1 << 17 {
        envs.step(&[1.0], &mut buffers.as_mut()).unwrap();
    }
    let state = envs.state().unwrap();
    envs.step(&[1.0], &mut buffers.as_mut()).unwrap();
    let error = envs.state().unwrap_err();
    assert_eq!(
        error.message(),
        "environment 0 has done 131073 steps in its episode, of which only 131072 are kept"
    );
    assert!(error.to_string().contains("`TimeLimit`"), "{error}");
    envs.restore(&state, &mut buffers.observations).unwrap();
    assert_eq!(buffers.observations, [131_072.0]);

    /// A minimal environment with only a step.
    struct Plain(Space);
    impl VectorEnv for Plain {
        fn num_envs(&self) -> usize {
            1
        }
        fn observation_space(&self) -> &Space {
            &self.0
        }
        fn action_space(&self) -> &Space {
            &self.0
        }
        fn reset(&mut self, _seed: u64, _observations: &mut [f32]) -> polygrad_core::Result<()> {
            Ok(())
        }
        fn step(&mut self, _actions: &[f32], _out: &mut StepSlices<'_>) -> polygrad_core::Result<()> {
            Ok(())
        }
    }
    let mut plain = Plain(Space::discrete(2));
    let error = plain.state().unwrap_err();
    assert_eq!(error.kind(), polygrad_core::ErrorKind::Unsupported);
    assert!(
        error.to_string().contains("implement `VectorEnv::state` and `restore`"),
        "{error}"
    );
    assert!(plain.restore(&state, &mut [0.0]).is_err());
    let mut actions = [0.0];
    choose(&plain, &mut Rng::new(0), &mut actions);
    assert!(plain.0.contains(&actions));
}
