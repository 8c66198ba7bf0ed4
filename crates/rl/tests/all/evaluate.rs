//! Evaluations of policies, and policies that play.

use polygrad_nn::{Linear, Module};
use polygrad_reference::Reference;
use polygrad_rl::zoo::{self, Stepping};
use polygrad_rl::{
    ActionParams, ActionSpace, ActorCritic, CartPole, ConnectFour, Env, EvaluateConfig, Play, Player, Policy,
    PolicyConfig, PolicyOutput, PolicyState, Rng, Space, Step, TMaze, TimeLimit, VectorEnv, Vectorized, evaluate,
};
use polygrad_tensor::{Device, Result, Tensor};

fn device() -> Device {
    Device::<Reference>::default().into_any()
}

fn episodes(episodes: usize) -> EvaluateConfig {
    EvaluateConfig {
        episodes,
        ..EvaluateConfig::default()
    }
}

/// Episodes of `length` steps, with a return of the same number, and random observations.
#[derive(Clone)]
struct Lasting {
    length: usize,
    left: usize,
}

impl Env for Lasting {
    fn observation_space(&self) -> Space {
        Space::boxed(&[0.0], &[1.0])
    }
    fn action_space(&self) -> Space {
        Space::discrete(3)
    }
    fn reset(&mut self, rng: &mut Rng, observation: &mut [f32]) {
        self.left = self.length;
        observation[0] = rng.uniform() as f32;
    }
    fn step(&mut self, _action: &[f32], _rng: &mut Rng, observation: &mut [f32]) -> Step {
        self.left = self.left.saturating_sub(1);
        observation[0] = 0.5;
        Step::new(1.0, self.left == 0)
    }
}

/// One step, whose reward is the action plus the first observation.
#[derive(Clone, Default)]
struct Told {
    seen: f64,
}

impl Env for Told {
    fn observation_space(&self) -> Space {
        Space::boxed(&[0.0], &[1.0])
    }
    fn action_space(&self) -> Space {
        Space::Discrete { n: 4, start: 10 }
    }
    fn reset(&mut self, rng: &mut Rng, observation: &mut [f32]) {
        observation[0] = rng.uniform() as f32;
        self.seen = f64::from(observation[0]);
    }
    fn step(&mut self, action: &[f32], _rng: &mut Rng, _observation: &mut [f32]) -> Step {
        Step::new(f64::from(action[0]) + self.seen, true)
    }
}

fn mlp(observations: usize, actions: usize) -> ActorCritic {
    ActorCritic::new(
        &PolicyConfig::mlp(observations, ActionSpace::Discrete(actions)),
        &device(),
    )
    .unwrap()
}

/// A policy with the same preference for all actions.
fn undecided(actions: usize) -> ActorCritic {
    let policy = mlp(1, actions);
    for param in policy.actor.parameters() {
        param.set(&param.tensor().zeros_like().unwrap()).unwrap();
    }
    policy
}

#[test]
fn short_episodes_do_not_count_more_often() {
    for (wanted, expected) in [
        (10, vec![1, 1, 1, 2, 2, 2, 30, 30, 40, 40]),
        (4, vec![1, 2, 30, 40]),
        (3, vec![1, 2, 30]),
    ] {
        let lengths = [1, 2, 30, 40];
        let make = |index: usize| Lasting {
            length: lengths[index],
            left: 0,
        };
        let mut envs = Vectorized::new(make, 4).unwrap();
        let evaluation = evaluate(&mlp(1, 3), &mut envs, &episodes(wanted)).unwrap();
        assert_eq!(evaluation.lengths, expected);
        let returns: Vec<f64> = expected.iter().map(|length| *length as f64).collect();
        assert_eq!(evaluation.returns, returns);
        assert_eq!(evaluation.mean(), evaluation.mean_length());
    }
}

#[test]
fn episodes_are_not_those_of_a_training() {
    let policy = undecided(4);
    let mut envs = Vectorized::new(|_| Told::default(), 5).unwrap();
    let evaluation = evaluate(&policy, &mut envs, &episodes(50)).unwrap();
    let mut seen = [0.0; 5];
    envs.reset(0, &mut seen).unwrap();
    for own in &evaluation.returns {
        assert!((10.0..11.0).contains(own), "the first of equally likely actions: {own}");
        assert!(seen.iter().all(|seen| f64::from(*seen) != own - 10.0));
    }
    // The same result again, in threads too, and another one with another seed.
    let mut threads = Vectorized::threaded(|_| Told::default(), 5, 2).unwrap();
    assert_eq!(evaluate(&policy, &mut threads, &episodes(50)).unwrap(), evaluation);
    let other = EvaluateConfig {
        seed: 1,
        ..episodes(50)
    };
    let others = evaluate(&policy, &mut envs, &other).unwrap();
    assert!(others.returns.iter().all(|other| !evaluation.returns.contains(other)));
}

#[test]
fn actions_are_drawn_when_that_is_asked() {
    let mut envs = Vectorized::new(|_| Told::default(), 8).unwrap();
    let config = EvaluateConfig {
        sample: true,
        ..episodes(2000)
    };
    let evaluation = evaluate(&undecided(4), &mut envs, &config).unwrap();
    for action in 10..14 {
        let count = evaluation.returns.iter().filter(|own| **own as usize == action).count();
        assert!((430..570).contains(&count), "{action}: {count}");
    }
}

/// Remembers the sign of a maze, and turns accordingly.
#[derive(Module)]
struct Reminded {
    layer: Linear,
}

impl Policy for Reminded {
    fn initial_state(&self, batch: usize) -> Result<PolicyState> {
        Ok(PolicyState::new(vec![Tensor::zeros([1, batch, 1], &device())?]))
    }

    fn forward(&self, observations: &Tensor, state: &PolicyState) -> Result<PolicyOutput> {
        let part = |i: usize| observations.narrow(1, i, 1);
        let (a, b, c) = (part(0)?, part(1)?, part(2)?);
        let sign = (b.mul(&c)? - a.mul(&b)?)?;
        let sum = (state.parts()[0].squeeze(0)? + sign)?;
        let junction = b.sub(&a.mul(&b)?)?.sub(&b.mul(&c)?)?;
        let turn = (junction.mul(&sum)? * 10.0)?;
        let east = (junction.neg()? + 1.0)?;
        let logits = Tensor::cat(&[&turn, &east, &turn.neg()?, &(junction * -10.0)?], 1)?;
        Ok(PolicyOutput {
            value: Some(sum.squeeze(1)?),
            noise: None,
            state: PolicyState::new(vec![sum.unsqueeze(0)?]),
            action: ActionParams::Categorical(logits),
        })
    }
}

#[test]
fn memory_begins_anew_with_each_episode() {
    let policy = Reminded {
        layer: Linear::new(1, 1, &device()).unwrap(),
    };
    let maze = || TimeLimit::new(TMaze::new(5).unwrap(), 50).unwrap();
    let mut envs = Vectorized::new(|_| maze(), 3).unwrap();
    let evaluation = evaluate(&policy, &mut envs, &episodes(60)).unwrap();
    assert_eq!((evaluation.returns, evaluation.lengths), (vec![4.0; 60], vec![6; 60]));
    let mut play = Play::new(maze(), &policy, 0).unwrap();
    for _ in 0..20 {
        play.reset().unwrap();
        while !play.step().unwrap() {}
        assert_eq!((play.returns(), play.steps()), (&[4.0][..], 6));
    }
}

#[test]
fn of_two_agents_the_first_ones_returns_count() {
    let settings = zoo::find("connect-four").unwrap().preset(None, None).unwrap();
    let policy = ActorCritic::new(&settings.policy, &device()).unwrap();
    let mut envs = Vectorized::new(|_| ConnectFour::new(), 4).unwrap();
    let config = EvaluateConfig {
        sample: true,
        ..episodes(60)
    };
    let evaluation = evaluate(&policy, &mut envs, &config).unwrap();
    let count = |value: f64| evaluation.returns.iter().filter(|own| **own == value).count();
    // With random moves the first player wins more often.
    assert_eq!(count(1.0) + count(0.0) + count(-1.0), 60);
    assert!(count(1.0) > count(-1.0) && count(-1.0) > 0, "{:?}", evaluation.returns);
    assert!(evaluation.lengths.iter().all(|length| (7..=42).contains(length)));
    // If the winner began, the number of moves is odd.
    for (own, length) in evaluation.returns.iter().zip(&evaluation.lengths) {
        assert!(
            *own == 0.0 || (*own == 1.0) == (length % 2 == 1),
            "{own} after {length}"
        );
    }
}

#[test]
fn playing_shows_what_was_evaluated() {
    let policy = mlp(4, 2);
    let mut envs = Vectorized::new(|_| CartPole::v1(), 1).unwrap();
    let config = EvaluateConfig { seed: 3, ..episodes(5) };
    let evaluation = evaluate(&policy, &mut envs, &config).unwrap();
    let mut play = Play::new(CartPole::v1(), &policy, 3).unwrap();
    for (total, length) in evaluation.returns.iter().zip(&evaluation.lengths) {
        play.reset().unwrap();
        while !play.step().unwrap() {}
        assert_eq!((play.returns()[0], play.steps()), (*total, *length));
    }
    let error = play.step().unwrap_err();
    assert_eq!(error.message(), "there is no episode to go on with");
}

#[test]
fn what_makes_no_sense_is_told() {
    let policy = mlp(1, 3);
    let mut envs = Vectorized::new(|_| Lasting { length: 2, left: 0 }, 2).unwrap();
    let error = evaluate(&policy, &mut envs, &episodes(0)).unwrap_err();
    assert_eq!(error.message(), "0 episodes say nothing");
    let nan = Tensor::full([3], f32::NAN, &device()).unwrap();
    policy.actor.bias.as_ref().unwrap().set(&nan).unwrap();
    let error = evaluate(&policy, &mut envs, &episodes(1)).unwrap_err();
    assert_eq!(error.message(), "the policy computes NaN or infinity");
    // A policy for another environment.
    assert!(evaluate(&mlp(4, 2), &mut envs, &episodes(1)).is_err());
    let policy = mlp(1, 3);
    let mut player = Player::new(&policy, envs.observation_space(), envs.action_space(), 2).unwrap();
    assert!(
        player
            .act(&[0.0], None, &mut [0.0; 2])
            .unwrap_err()
            .message()
            .contains("observations")
    );
    assert!(
        player
            .act(&[0.0; 2], None, &mut [0.0; 3])
            .unwrap_err()
            .message()
            .contains("actions")
    );
    assert!(
        player
            .act(&[0.0; 2], Some(&[true]), &mut [0.0; 2])
            .unwrap_err()
            .message()
            .contains("masks")
    );
    assert!(player.begin(&[true]).is_err());
}

#[test]
fn environments_of_a_name_are_the_same_wherever_they_step() {
    for spec in zoo::all() {
        let settings = spec.preset(None, None).unwrap();
        let policy = ActorCritic::new(&settings.policy, &device()).unwrap();
        let config = EvaluateConfig {
            sample: true,
            ..episodes(2)
        };
        let found = [Stepping::Serial, Stepping::Threaded(2), Stepping::Asynchronous(2)].map(|stepping| {
            let mut envs = spec.make(2, stepping).unwrap();
            evaluate(&policy, &mut envs, &config).unwrap()
        });
        assert!(found[0] == found[1] && found[0] == found[2], "{}", spec.name);
        assert!(
            found[0]
                .lengths
                .iter()
                .all(|length| Some(*length) <= spec.max_episode_steps)
        );
    }
}
