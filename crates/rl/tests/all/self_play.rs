//! Self-play: opponents, ratings, and training that can be stopped anywhere.

use polygrad_nn::Module;
use polygrad_rl::zoo::{self, Algorithm};
use polygrad_rl::*;
use polygrad_tensor::{Device, Result, Tensor, manual_seed};
use polygrad_train::Learner;

fn device() -> Device {
    Device::<polygrad_cpu::Cpu>::default().into_any()
}

/// Takes the free field of the highest index, regardless of the observation.
fn last_field() -> ActorCritic {
    let policy = ActorCritic::new(&PolicyConfig::mlp(19, ActionSpace::Discrete(9)), &device()).unwrap();
    for (name, param) in policy.named_parameters() {
        let shape = param.shape();
        let values: Vec<f32> = match (name.starts_with("actor"), shape.numel()) {
            (true, 9) => (0..9).map(|field| field as f32).collect(),
            (_, numel) => vec![0.0; numel],
        };
        param.set(&Tensor::from_vec(values, shape, &device()).unwrap()).unwrap();
    }
    policy
}

fn fields(board: &TicTacToe, mover: usize) -> Vec<usize> {
    let mut mask = [true; 18];
    board.action_mask(&mut mask);
    (0..9).filter(|field| mask[9 * mover + field]).collect()
}

/// All games of one side against any replies: won, drawn, lost.
fn by_hand(board: &TicTacToe, side: usize, moves: usize) -> [usize; 3] {
    let mover = moves % 2;
    let all = fields(board, mover);
    let chosen = if mover == side { &all[all.len() - 1..] } else { &all[..] };
    let mut found = [0; 3];
    for field in chosen {
        let (mut next, mut action) = (board.clone(), [0.0; 2]);
        action[mover] = *field as f32;
        let step = next.step(&action, &mut Rng::new(0), &mut [0.0; 38]);
        if step.terminated {
            found[(1.0 - step.rewards[side]) as usize] += 1;
            continue;
        }
        let deeper = by_hand(&next, side, moves + 1);
        found.iter_mut().zip(deeper).for_each(|(x, y)| *x += y);
    }
    found
}

#[test]
fn every_game_is_played_once() {
    let policy = last_field();
    let found = contest_in_full(&policy, &TicTacToe::new(), Scripted::Random).unwrap();
    for (side, outcome) in found.sides.iter().enumerate() {
        let expected = by_hand(&TicTacToe::new(), side, 0);
        assert_eq!([outcome.won, outcome.drawn, outcome.lost], expected, "player {side}");
        assert!(outcome.games() > 100 && outcome.lost > 0);
    }
    // The solver finds a way to win against it, and never loses.
    let solved = contest_in_full(&policy, &TicTacToe::new(), Scripted::Solver).unwrap();
    assert!(
        solved.sides.iter().all(|side| side.won == 0 && side.lost > 0),
        "{solved:?}"
    );
}

#[test]
fn scripts_are_as_strong_as_they_should_be() {
    let game = TicTacToe::new();
    let config = EvaluateConfig {
        episodes: 400,
        ..EvaluateConfig::default()
    };
    let score = |script| {
        let found = contest(&last_field(), &game, Rival::Script(script), &config).unwrap();
        assert!(found.sides.iter().all(|side| side.games() == 200), "{found:?}");
        (found.score(), found)
    };
    let ((random, _), (greedy, _), (solver, solved)) = (
        score(Scripted::Random),
        score(Scripted::Greedy),
        score(Scripted::Solver),
    );
    assert!(random > greedy + 0.15 && greedy > solver, "{random} {greedy} {solver}");
    assert!(solved.sides.iter().all(|side| side.won == 0));
    // Against itself the moves of both are known, so that the games are, too; the first player wins them.
    let found = contest(
        &last_field(),
        &game,
        Rival::Policy(Box::new(last_field()), false),
        &config,
    )
    .unwrap();
    let (first, second) = (found.sides[0], found.sides[1]);
    assert!(
        (first.won, second.lost) == (200, 200) || (first.lost, second.won) == (200, 200),
        "{found:?}"
    );
    assert_eq!(found.score(), 0.5);
    assert_eq!(found.elo(), 0.0);
}

fn training(change: impl FnOnce(&mut SelfPlayConfig)) -> Result<SelfPlay> {
    manual_seed(5);
    let policy = PolicyConfig::mlp(19, ActionSpace::Discrete(9));
    let algorithm = Algorithm::Ppo(PpoConfig {
        seed: 5,
        total_steps: 6_000,
        num_steps: 16,
        learning_rate: 1e-3.into(),
        ..PpoConfig::default()
    });
    let mut config = SelfPlayConfig {
        snapshots: 2,
        snapshot_every: 900,
        opening: 6,
        ..SelfPlayConfig::default()
    };
    change(&mut config);
    zoo::find("tic-tac-toe")?.self_play(6, &config, (&algorithm, &policy), &device())
}

/// Everything in a checkpoint, as bytes.
fn bytes(agent: &SelfPlay) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    agent.checkpoint().unwrap().save(file.path()).unwrap();
    std::fs::read(file.path()).unwrap()
}

#[test]
fn a_training_goes_on_bit_for_bit() {
    let mut whole = training(|_| {}).unwrap();
    let mut numbers = Vec::new();
    while !whole.is_done() {
        numbers = whole.advance().unwrap().metrics;
    }
    assert_eq!(numbers.len(), whole.metrics().len());
    assert_eq!(
        whole.metrics()[6..],
        [
            "elo",
            "score",
            "elo_random",
            "elo_greedy",
            "elo_snapshot_1",
            "elo_snapshot_2"
        ]
    );
    assert!(numbers[6..].iter().all(|x| x.is_finite()), "{numbers:?}");
    let mut parts = training(|_| {}).unwrap();
    let (mut stops, mut iterations) = (0, 0);
    while !parts.is_done() {
        parts.advance().unwrap();
        iterations += 1;
        if iterations % 17 == 0 {
            let checkpoint = parts.checkpoint().unwrap();
            parts = training(|_| {}).unwrap();
            parts.restore(&checkpoint).unwrap();
            stops += 1;
        }
    }
    assert!(stops >= 3, "{stops}");
    assert!(bytes(&parts) == bytes(&whole));
    assert_eq!(parts.standings(), whole.standings());
}

#[test]
fn points_go_from_one_rating_to_the_other() {
    let mut agent = training(|config| (config.snapshots, config.itself) = (0, 0.0)).unwrap();
    while !agent.is_done() {
        agent.advance().unwrap();
    }
    let standings = agent.standings();
    let names: Vec<&str> = standings.iter().map(|x| x.name.as_str()).collect();
    assert_eq!(names, ["policy", "random", "greedy"]);
    let sum: f64 = standings.iter().map(|x| x.rating).sum();
    assert!((sum - 3000.0).abs() < 1e-6, "{standings:?}");
    assert_eq!(standings[0].games, standings[1].games + standings[2].games);
    assert!(standings[0].rating > standings[1].rating && standings[2].rating > standings[1].rating);
    // With `elo_k` 0, ratings do not change.
    let mut agent = training(|config| config.elo_k = 0.0).unwrap();
    (0..5).for_each(|_| drop(agent.advance().unwrap()));
    assert!(agent.standings().iter().all(|x| x.rating == 1000.0));
}

#[test]
fn snapshots_are_taken_in_time_or_after_success() {
    let taken = |change: fn(&mut SelfPlayConfig)| {
        let mut agent = training(change).unwrap();
        while !agent.is_done() {
            agent.advance().unwrap();
        }
        agent
            .standings()
            .into_iter()
            .skip(3)
            .map(|x| x.name)
            .collect::<Vec<_>>()
    };
    // An iteration has 96 steps: snapshots are taken at the first iteration end not before 900, and so on; two are
    // kept.
    assert_eq!(taken(|_| {}), ["snapshot of step 4800", "snapshot of step 5760"]);
    let early = taken(|config| (config.snapshot_every, config.snapshot_score) = (1 << 40, 0.0));
    assert_eq!(early.len(), 2);
    assert!(taken(|config| (config.snapshot_every, config.snapshot_score) = (1 << 40, 1.0)).is_empty());
}

/// Both players choose a number at once; the greater one wins.
#[derive(Clone, Default)]
struct Bid;

impl Env<2> for Bid {
    fn observation_space(&self) -> Space {
        Space::boxed(&[0.0], &[1.0])
    }

    fn action_space(&self) -> Space {
        Space::discrete(3)
    }

    fn reset(&mut self, _rng: &mut Rng, observation: &mut [f32]) {
        observation.fill(1.0);
    }

    fn step(&mut self, action: &[f32], _rng: &mut Rng, observation: &mut [f32]) -> Step<2> {
        observation.fill(0.0);
        let gain = f64::from((action[0] - action[1]).clamp(-1.0, 1.0));
        Step {
            rewards: [gain, -gain],
            terminated: true,
            truncated: false,
        }
    }
}

#[test]
fn players_may_move_at_once() {
    manual_seed(0);
    let policy = PolicyConfig::mlp(1, ActionSpace::Discrete(3));
    let algorithm = Algorithm::Ppo(PpoConfig {
        total_steps: 8_000,
        num_steps: 16,
        learning_rate: 1e-2.into(),
        ..PpoConfig::default()
    });
    let (kind, by) = (policy.clone(), algorithm.clone());
    let config = SelfPlayConfig {
        scripted: vec![Scripted::Random],
        ..SelfPlayConfig::default()
    };
    let make = move || by.policy(&kind, &device());
    let learn = |games| algorithm.agent(games, &policy, &device(), None);
    let mut agent = SelfPlay::new(&Bid, 8, config, make, learn).unwrap();
    while !agent.is_done() {
        agent.advance().unwrap();
    }
    let policy = agent.trained_policy().unwrap();
    let config = EvaluateConfig::default();
    let found = contest(&*policy, &Bid, Rival::Script(Scripted::Random), &config).unwrap();
    assert!(
        found.sides.iter().all(|side| side.lost == 0 && side.won > 20),
        "{found:?}"
    );
    let error = contest(&*policy, &Bid, Rival::Script(Scripted::Greedy), &config).unwrap_err();
    assert!(error.message().contains("do not move by turns"), "{error}");
}

#[test]
fn what_cannot_be_played_is_told() {
    let refused = |change: fn(&mut SelfPlayConfig)| training(change).err().unwrap().to_string();
    assert!(refused(|config| config.itself = 2.0).contains("itself is not from 0 to 1"));
    assert!(refused(|config| config.snapshot_every = 0).contains("snapshot_every is not at least 1"));
    assert!(refused(|config| config.scripted = vec![Scripted::Random; 2]).contains("free of repetitions"));
    let pool = |config: &SelfPlayConfig, policy: &PolicyConfig, name| {
        let algorithm = Algorithm::Ppo(PpoConfig::default());
        let made = zoo::find(name)
            .unwrap()
            .self_play(4, config, (&algorithm, policy), &device());
        made.err().unwrap().to_string()
    };
    let policy = PolicyConfig::mlp(19, ActionSpace::Discrete(9));
    assert!(pool(&SelfPlayConfig::default(), &policy, "cartpole").contains("cartpole is no game for two"));
    let solver = SelfPlayConfig {
        scripted: vec![Scripted::Solver],
        ..SelfPlayConfig::default()
    };
    assert!(pool(&solver, &policy, "connect-four").contains("too large to be solved"));
    let remembers = PolicyConfig {
        memory: Some(MemoryConfig::new(MemoryKind::Gru, 8)),
        ..policy
    };
    assert!(pool(&SelfPlayConfig::default(), &remembers, "tic-tac-toe").contains("a policy with memory"));
    // A checkpoint of another pool, and one without a pool.
    let checkpoint = training(|_| {}).unwrap().checkpoint().unwrap();
    let other = |change: fn(&mut SelfPlayConfig)| training(change).unwrap().restore(&checkpoint).unwrap_err();
    assert!(
        other(|config| config.scripted.clear())
            .to_string()
            .contains("its pool has other places")
    );
    let none = checkpoint.clone().with_config(serde_json::json!({ "ppo": {} }));
    let error = training(|_| {}).unwrap().restore(&none).unwrap_err();
    assert!(error.to_string().contains("it has no pool of opponents"), "{error}");
}
