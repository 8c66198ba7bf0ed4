//! PPO on several ranks: one policy, separate environments, and one checkpoint for any number of ranks.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polygrad_core::communicator::Communicator;
use polygrad_core::{Error, ErrorKind, Result};
use polygrad_nn::optim::{AdamConfig, Optimizer, clip_grad_norm};
use polygrad_nn::{Checkpoint, Module};
use polygrad_rl::*;
use polygrad_tensor::{Device, Tensor, manual_seed, no_grad};
use polygrad_threads::Threads;
use polygrad_train::{Control, Ended, Event, Progress, Run, RunConfig, RunFolder, Summary};

const ROWS: usize = 6;
const STEPS: usize = 16;
const ITERATIONS: u64 = 4;

fn device() -> Device {
    Device::<polygrad_cpu::Cpu>::default().into_any()
}

/// Runs `f` on `size` ranks; returns the results in their order.
fn ranks<R: Send>(size: usize, f: impl Fn(Arc<dyn Communicator>) -> R + Sync) -> Vec<R> {
    let ends = Threads::group(size, Duration::from_secs(60)).unwrap();
    std::thread::scope(|scope| {
        let f = &f;
        let started: Vec<_> = ends
            .into_iter()
            .map(|end| scope.spawn(move || f(Arc::new(end))))
            .collect();
        started.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

const CASES: [&str; 4] = ["mlp", "target_kl", "lstm", "continuous"];

/// A training of each kind with different data to exchange between ranks; its length is that of `size` ranks.
fn training(case: &str, size: usize) -> Ppo {
    let device = device();
    manual_seed(5);
    let config = PpoConfig {
        total_steps: ITERATIONS * (size * ROWS * STEPS) as u64,
        num_steps: STEPS,
        num_minibatches: 2,
        update_epochs: 3,
        learning_rate: Annealed::Linear(1e-2, 0.0),
        seed: 7,
        ..PpoConfig::default()
    };
    let poles = || Vectorized::new(|_| CartPole::v1(), ROWS).unwrap();
    let policy = |config: &PolicyConfig| ActorCritic::new(config, &device).unwrap();
    let made = match case {
        "mlp" => Ppo::new(poles(), policy(&PolicyConfig::mlp(4, ActionSpace::Discrete(2))), config),
        "target_kl" => {
            let config = PpoConfig {
                update_epochs: 8,
                target_kl: Some(0.006),
                normalize_advantages: AdvantageNorm::Batch,
                ..config
            };
            Ppo::new(poles(), policy(&PolicyConfig::mlp(4, ActionSpace::Discrete(2))), config)
        }
        "lstm" => {
            let memory = PolicyConfig {
                memory: Some(MemoryConfig::new(MemoryKind::Lstm, 8)),
                ..PolicyConfig::mlp(3, ActionSpace::Discrete(4))
            };
            let maze = |_| TimeLimit::new(TMaze::new(3).unwrap(), 12).unwrap();
            let segment_len = Some(8);
            let config = PpoConfig { segment_len, ..config };
            Ppo::new(Vectorized::new(maze, ROWS).unwrap(), policy(&memory), config)
        }
        _ => {
            let config = PpoConfig {
                normalize_observations: Some(10.0),
                normalize_rewards: Some(10.0),
                ..config
            };
            // Episodes of 30 steps, so that some end.
            let pendulum = |_| TimeLimit::new(ActionRepeat::new(Pendulum::v1(), 4).unwrap(), 30).unwrap();
            let continuous = PolicyConfig::mlp(3, ActionSpace::Continuous(1));
            Ppo::new(Vectorized::new(pendulum, ROWS).unwrap(), policy(&continuous), config)
        }
    };
    made.unwrap()
}

fn joined(case: &str, group: &Arc<dyn Communicator>) -> Ppo {
    training(case, group.size()).parallel(Arc::clone(group)).unwrap()
}

fn weights(policy: &impl Module) -> Vec<Vec<u32>> {
    let bits = |x: Vec<f32>| x.into_iter().map(f32::to_bits).collect();
    let params = policy.parameters();
    params
        .iter()
        .map(|param| bits(param.tensor().to_vec().unwrap()))
        .collect()
}

/// Everything in a checkpoint, including the weights.
fn everything(ppo: &Ppo) -> Vec<u8> {
    ppo.checkpoint().unwrap().to_bytes().unwrap()
}

/// The result of an iteration, without the seconds.
fn given(mut given: Iteration) -> Iteration {
    (given.env_seconds, given.act_seconds, given.learn_seconds) = (0.0, 0.0, 0.0);
    if given.explained_variance.is_nan() {
        // NaN would not be equal to itself.
        given.explained_variance = f64::INFINITY;
    }
    given
}

#[test]
fn all_ranks_have_one_policy_and_environments_of_their_own() {
    for (size, case) in [2, 3].into_iter().flat_map(|size| CASES.map(|case| (size, case))) {
        let found = ranks(size, |group| {
            let mut ppo = joined(case, &group);
            let mut seen = Vec::new();
            while !ppo.is_done() {
                let iteration = given(ppo.iterate().unwrap());
                let recent = ppo.mean_return();
                seen.push((weights(ppo.policy()), ppo.normalizer().cloned(), recent, iteration));
            }
            assert_eq!(ppo.refusal(), None, "{case}");
            assert_eq!(ppo.steps(), ITERATIONS * (size * ROWS * STEPS) as u64, "{case}");
            seen
        });
        for other in &found[1..] {
            assert_eq!(other.len() as u64, ITERATIONS);
            for (ours, theirs) in found[0].iter().zip(other) {
                assert!(ours.0 == theirs.0, "{case}: weights");
                assert_eq!(ours.1, theirs.1, "{case}: statistics of observations");
                assert_eq!(ours.2, theirs.2, "{case}: mean returns");
                assert_eq!(ours.3, theirs.3, "{case}");
            }
        }
        // Every rank has its own episodes, different from the others'.
        let of = |rank: usize| {
            let iterations = found[0].iter().flat_map(|(_, _, _, iteration)| &iteration.episodes);
            let own = iterations.filter(|episode| episode.row / ROWS == rank);
            let own = own.map(|episode| (episode.row % ROWS, episode.total_reward.to_bits(), episode.length));
            own.collect::<Vec<_>>()
        };
        for rank in 0..size {
            assert!(!of(rank).is_empty(), "{case}: no episodes of rank {rank}");
            assert!((0..rank).all(|other| of(other) != of(rank)), "{case}");
        }
        if case == "target_kl" {
            let epochs: Vec<usize> = found[0].iter().map(|(_, _, _, iteration)| iteration.epochs).collect();
            assert!(epochs.iter().any(|epochs| (2..8).contains(epochs)), "{epochs:?}");
        }
    }
}

#[test]
fn a_group_of_one_gives_what_no_group_gives() {
    for case in CASES {
        let mut alone = training(case, 1);
        let mut found = Vec::new();
        while !alone.is_done() {
            found.push(given(alone.iterate().unwrap()));
        }
        let alone = everything(&alone);
        ranks(1, |group| {
            let mut ppo = joined(case, &group);
            for expected in &found {
                assert_eq!(given(ppo.iterate().unwrap()), *expected, "{case}");
            }
            assert!(everything(&ppo) == alone, "{case}");
        });
    }
}

#[test]
fn statistics_are_of_all_observations_once() {
    let counts = ranks(3, |group| {
        let mut ppo = joined("continuous", &group);
        for _ in 0..2 {
            ppo.iterate().unwrap();
        }
        ppo.normalizer().unwrap().statistics().count()
    });
    let rows = 3 * ROWS * (1 + 2 * STEPS);
    assert!((counts[0] - rows as f64 - 1e-4).abs() < 1e-9, "{counts:?}");
}

#[test]
fn it_goes_on_as_if_it_had_not_stopped() {
    for case in CASES {
        let ends = ranks(2, |group| {
            let mut whole = joined(case, &group);
            let mut parts = joined(case, &group);
            while !whole.is_done() {
                let bytes = everything(&parts);
                parts = joined(case, &group);
                parts.restore(&Checkpoint::from_bytes(&bytes).unwrap()).unwrap();
                let (a, b) = (whole.iterate().unwrap(), parts.iterate().unwrap());
                assert_eq!(given(a), given(b), "{case}");
            }
            let whole = everything(&whole);
            assert!(whole == everything(&parts), "{case}");
            whole
        });
        assert!(ends[0] == ends[1], "every rank has the same checkpoint");
    }
}

#[test]
fn another_number_of_ranks_goes_on() {
    let per_rank = (ROWS * STEPS) as u64;
    for case in CASES {
        let saved = ranks(2, |group| {
            let mut ppo = joined(case, &group);
            ppo.iterate().unwrap();
            everything(&ppo)
        });
        let checkpoint = Checkpoint::from_bytes(&saved[0]).unwrap();
        let mut alone = training(case, 2);
        alone.restore(&checkpoint).unwrap();
        assert_eq!((alone.steps(), alone.iterations()), (2 * per_rank, 7), "{case}");
        alone.iterate().unwrap();
        assert_eq!(alone.steps(), 3 * per_rank, "{case}");
        let saved = everything(&alone);
        // One rank more than at first, including one that was dropped in between.
        let checkpoint = Checkpoint::from_bytes(&saved).unwrap();
        let ends = ranks(3, |group| {
            let mut ppo = training(case, 4).parallel(Arc::clone(&group)).unwrap();
            ppo.restore(&checkpoint).unwrap();
            while !ppo.is_done() {
                ppo.iterate().unwrap();
            }
            assert_eq!(ppo.steps(), 15 * per_rank, "{case}");
            everything(&ppo)
        });
        assert!(ends.iter().all(|end| *end == ends[0]), "{case}");
    }
}

/// Observations that follow from a number, and rewards that follow from actions.
struct Wave {
    phase: f32,
}

impl Wave {
    fn observe(&self, observation: &mut [f32]) {
        observation.copy_from_slice(&[self.phase.sin(), (1.7 * self.phase).cos()]);
    }
}

impl Env for Wave {
    fn observation_space(&self) -> Space {
        Space::boxed(&[-1.0; 2], &[1.0; 2])
    }
    fn action_space(&self) -> Space {
        Space::discrete(3)
    }
    fn reset(&mut self, rng: &mut Rng, observation: &mut [f32]) {
        self.phase = 10.0 * rng.uniform() as f32;
        self.observe(observation);
    }
    fn step(&mut self, action: &[f32], rng: &mut Rng, observation: &mut [f32]) -> Step {
        self.phase += 0.3 + 0.1 * rng.uniform() as f32;
        self.observe(observation);
        Step::new(f64::from(action[0] * self.phase.sin()), false)
    }
}

/// The actions and outputs of environments.
#[derive(Default)]
struct Log {
    observations: Vec<f32>,
    actions: Vec<f32>,
    rewards: Vec<f32>,
}

struct Logged {
    envs: Vectorized<Wave>,
    log: Arc<Mutex<Log>>,
}

impl VectorEnv for Logged {
    fn num_envs(&self) -> usize {
        self.envs.num_envs()
    }
    fn observation_space(&self) -> &Space {
        self.envs.observation_space()
    }
    fn action_space(&self) -> &Space {
        self.envs.action_space()
    }
    fn reset(&mut self, seed: u64, observations: &mut [f32]) -> Result<()> {
        self.envs.reset(seed, observations)?;
        self.log.lock().unwrap().observations.extend_from_slice(observations);
        Ok(())
    }
    fn step(&mut self, actions: &[f32], out: &mut StepSlices<'_>) -> Result<()> {
        self.envs.step(actions, out)?;
        let mut log = self.log.lock().unwrap();
        log.actions.extend_from_slice(actions);
        log.rewards.extend_from_slice(out.rewards);
        log.observations.extend_from_slice(out.observations);
        Ok(())
    }
}

#[test]
fn a_step_of_all_ranks_is_that_of_one_process_on_the_joined_minibatch() {
    let device = device();
    let config = PpoConfig {
        num_steps: STEPS,
        num_minibatches: 1,
        update_epochs: 1,
        learning_rate: 1e-3.into(),
        normalize_advantages: AdvantageNorm::None,
        max_grad_norm: 1e3,
        ..PpoConfig::default()
    };
    let new_policy = || {
        manual_seed(3);
        ActorCritic::new(&PolicyConfig::mlp(2, ActionSpace::Discrete(3)), &device).unwrap()
    };
    let found = ranks(2, |group| {
        let log = Arc::new(Mutex::new(Log::default()));
        let envs = Logged {
            envs: Vectorized::new(|_| Wave { phase: 0.0 }, ROWS).unwrap(),
            log: Arc::clone(&log),
        };
        let mut ppo = Ppo::new(envs, new_policy(), config.clone())
            .unwrap()
            .parallel(group)
            .unwrap();
        let iteration = ppo.iterate().unwrap();
        let params = ppo.policy().parameters();
        let values: Vec<Vec<f32>> = params.iter().map(|param| param.tensor().to_vec().unwrap()).collect();
        drop(ppo);
        (values, iteration, Arc::into_inner(log).unwrap().into_inner().unwrap())
    });

    // The same in one process: all steps of both ranks in one batch.
    let policy = new_policy();
    let before = weights(&policy);
    let (mut columns, mut observations) = (<[Vec<f32>; 5]>::default(), Vec::new());
    for (_, _, log) in &found {
        let seen = Tensor::from_vec(log.observations.clone(), [(STEPS + 1) * ROWS, 2], &device).unwrap();
        let actions = [&log.actions[..], &[0.0; ROWS]].concat();
        let actions = Tensor::from_vec(actions, [(STEPS + 1) * ROWS, 1], &device).unwrap();
        let (log_probs, values) = no_grad(|| {
            use polygrad_nn::distributions::Distribution;
            let output = policy.forward(&seen, &PolicyState::new(Vec::new())).unwrap();
            let distribution = output.action.distribution(None).unwrap();
            let log_probs = distribution.log_prob(&actions).unwrap();
            (
                log_probs.to_vec::<f32>().unwrap(),
                output.value().unwrap().to_vec::<f32>().unwrap(),
            )
        });
        let (values, last_values) = values.split_at(STEPS * ROWS);
        let outcomes = Outcomes {
            rewards: &log.rewards,
            values,
            ended: &[false; STEPS * ROWS],
            final_values: &[0.0; STEPS * ROWS],
            last_values,
        };
        let (advantages, returns) = gae(outcomes, config.gamma, config.gae_lambda).unwrap();
        let own = [&log.actions, &log_probs[..STEPS * ROWS], &advantages, &returns, values];
        for (column, own) in columns.iter_mut().zip(own) {
            column.extend_from_slice(own);
        }
        observations.extend_from_slice(&log.observations[..STEPS * ROWS * 2]);
    }
    let len = 2 * STEPS * ROWS;
    let tensor = |values: Vec<f32>| Tensor::from_vec(values, [len], &device).unwrap();
    let [actions, log_probs, advantages, returns, values] = columns;
    let batch = PpoBatch {
        observations: Tensor::from_vec(observations, [len, 2], &device).unwrap(),
        actions: tensor(actions).reshape([len, 1]).unwrap(),
        masks: None,
        log_probs: tensor(log_probs),
        advantages: tensor(advantages),
        returns: tensor(returns),
        values: tensor(values),
        sequence: None,
    };
    let number = |x: f64| Tensor::from_vec(vec![x as f32], (), &device).unwrap();
    let step_weights = PpoWeights {
        clip: number(config.clip.at(0.0)),
        entropy: number(config.entropy_coefficient.at(0.0)),
        value: config.value_coefficient,
        clip_value: config.clip_value,
        normalize_advantages: false,
    };
    let losses = ppo_loss(&policy, &batch, &step_weights).unwrap();
    let mut adam = AdamConfig::new(1e-3).eps(1e-5).build(policy.parameters()).unwrap();
    let mut gradients = losses.loss.backward().unwrap();
    clip_grad_norm(&mut gradients, config.max_grad_norm).unwrap();
    adam.step(&gradients).unwrap();
    assert!(weights(&policy) != before);
    for (own, iteration, _) in &found {
        for (param, own) in policy.parameters().iter().zip(own) {
            for (a, b) in param.tensor().to_vec::<f32>().unwrap().iter().zip(own) {
                assert!((a - b).abs() < 1e-6, "{a} and {b}");
            }
        }
        let value_loss = losses.value.item().unwrap();
        assert!(
            (iteration.value_loss - value_loss).abs() < 1e-5 * value_loss,
            "{iteration:?}"
        );
    }
}

/// Trains in the folder of a run that rank 0 keeps; also returns the notices.
fn trained(
    case: &str,
    path: &Path,
    group: Option<&Arc<dyn Communicator>>,
    size: usize,
    callback: impl FnMut(Event<'_>, &Progress<'_>) -> Result<Control> + 'static,
) -> Result<(Summary, Vec<String>, Ppo)> {
    let mut ppo = training(case, size);
    let mut options = RunConfig::steps(ppo.config().total_steps).checkpoint_every(1);
    let rank = group.map_or(0, |group| group.rank());
    if let Some(group) = group {
        ppo = ppo.parallel(Arc::clone(group))?;
        options = options.parallel(Arc::clone(group));
    }
    if rank == 0 {
        options = options.run(Run::resume(path).or_else(|_| Run::create(path))?);
    }
    let notices = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&notices);
    let tell = move |event: Event<'_>, _: &Progress<'_>| {
        if let Event::Notice(notice) = event {
            told.lock().unwrap().push(notice.to_owned());
        }
        Ok(Control::Continue)
    };
    let summary = options.callback(tell).callback(callback).train(&mut ppo)?;
    let notices = notices.lock().unwrap().clone();
    Ok((summary, notices, ppo))
}

fn go_on(_: Event<'_>, _: &Progress<'_>) -> Result<Control> {
    Ok(Control::Continue)
}

#[test]
fn a_run_is_stopped_by_any_rank_and_goes_on_with_any_number() {
    for case in ["lstm", "continuous"] {
        let scene = tempfile::tempdir().unwrap();
        let whole = scene.path().join("whole");
        let expected = ranks(2, |group| {
            let (summary, _, ppo) = trained(case, &whole, Some(&group), 2, go_on).unwrap();
            assert_eq!((summary.ended, summary.steps), (Ended::Done, ppo.steps()));
            everything(&ppo)
        });
        let path = scene.path().join("parts");
        let per_iteration = (2 * ROWS * STEPS) as u64;
        ranks(2, |group| {
            let rank = group.rank();
            let stop = move |_: Event<'_>, progress: &Progress<'_>| {
                let is_due = rank == 1 && progress.step == 2 * per_iteration;
                Ok(if is_due { Control::Stop } else { Control::Continue })
            };
            let (summary, _, _) = trained(case, &path, Some(&group), 2, stop).unwrap();
            assert_eq!((summary.ended, summary.steps), (Ended::Stopped, 2 * per_iteration));
        });
        let resumed = ranks(2, |group| {
            let (summary, notices, ppo) = trained(case, &path, Some(&group), 2, go_on).unwrap();
            assert_eq!((summary.ended, notices), (Ended::Done, vec![]));
            everything(&ppo)
        });
        assert!(resumed == expected, "{case}");
        let rows = |path: &Path| std::fs::read_to_string(RunFolder::new(path).metrics()).unwrap();
        let timeless = |text: String| {
            let lines = text.lines().map(|line| line.rsplit_once(',').unwrap().0.to_owned());
            lines.collect::<Vec<_>>()
        };
        assert_eq!(timeless(rows(&path)), timeless(rows(&whole)), "{case}");

        // The file fits any number of ranks, and a training without a group.
        ranks(3, |group| {
            let (summary, notices, _) = trained(case, &path, Some(&group), 4, go_on).unwrap();
            assert_eq!(summary.ended, Ended::Done);
            let expected = "3 instead of 2; those that are new begin new episodes";
            assert!(notices[0].contains(expected), "{notices:?}");
        });
        let (summary, notices, _) = trained(case, &path, None, 5, go_on).unwrap();
        assert_eq!(summary.ended, Ended::Done);
        assert!(
            notices[0].contains("1 instead of 3; the running episodes"),
            "{notices:?}"
        );
        let policy = training(case, 1);
        let used = policy.trained_policy().unwrap();
        used.load(RunFolder::new(&path).model()).unwrap();
    }
}

#[test]
fn a_rank_that_fails_is_named_to_the_others() {
    let scene = tempfile::tempdir().unwrap();
    let errors = ranks(3, |group| {
        let rank = group.rank();
        let fails = move |event: Event<'_>, progress: &Progress<'_>| match (event, rank, progress.step) {
            (Event::Step, 2, 1..) => Err(Error::new(ErrorKind::Io, "the disk is full")),
            _ => Ok(Control::Continue),
        };
        let outcome = trained("mlp", &scene.path().join("run"), Some(&group), 3, fails);
        outcome.err().unwrap()
    });
    for (rank, error) in errors.iter().enumerate() {
        match rank {
            2 => assert_eq!(error.kind(), ErrorKind::Io),
            _ => {
                assert_eq!(error.kind(), ErrorKind::Communication);
                assert!(
                    error.to_string().contains("rank 2 gave up: the disk is full"),
                    "{error}"
                );
            }
        }
    }
}

#[test]
fn a_rank_that_is_not_alike_is_named() {
    let told = |make: &(dyn Fn(usize) -> Ppo + Sync)| {
        let errors = ranks(3, |group| make(group.rank()).parallel(group).err().unwrap().to_string());
        assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
        errors[0].clone()
    };
    let made = |seed: u64, rank: usize, config: PpoConfig, rows: usize| {
        manual_seed(if rank == 2 { seed } else { 0 });
        let policy = ActorCritic::new(&PolicyConfig::mlp(4, ActionSpace::Discrete(2)), &device()).unwrap();
        Ppo::new(Vectorized::new(|_| CartPole::v1(), rows).unwrap(), policy, config).unwrap()
    };
    let error = told(&|rank| made(1, rank, PpoConfig::default(), 4));
    assert!(
        error.contains("rank 2 has a model of other weights than rank 0"),
        "{error}"
    );
    let error = told(&|rank| {
        let seed = u64::from(rank == 1);
        let config = PpoConfig {
            seed,
            ..PpoConfig::default()
        };
        made(0, rank, config, 4)
    });
    assert!(error.contains("rank 1 has other options than rank 0"), "{error}");
    let error = told(&|rank| made(0, rank, PpoConfig::default(), if rank == 1 { 8 } else { 4 }));
    assert!(error.contains("rank 1 has another number of environments"), "{error}");

    let begun = ranks(1, |group| {
        let mut ppo = training("mlp", 1);
        ppo.iterate().unwrap();
        ppo.parallel(group).err().unwrap().to_string()
    });
    assert!(begun[0].contains("begun already"), "{begun:?}");
}

#[test]
fn a_trainer_and_its_learner_are_of_one_group() {
    let scene = tempfile::tempdir().unwrap();
    let stopped = Arc::new(AtomicBool::new(true));
    ranks(2, |group| {
        let options = || RunConfig::steps(1000).stop_flag(Arc::clone(&stopped));
        let told = |options: RunConfig, ppo: &mut Ppo, part: &str| {
            let error = options.train(ppo).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        let mut alone = training("mlp", 2);
        told(
            options().parallel(Arc::clone(&group)),
            &mut alone,
            "not one of the ranks",
        );
        let mut ppo = joined("mlp", &group);
        told(options(), &mut ppo, "not one of the ranks");
        if group.rank() == 1 {
            let run = Run::create(scene.path().join("run")).unwrap();
            let options = options().parallel(Arc::clone(&group)).run(run);
            told(options, &mut ppo, "rank 1 has a run, which rank 0 alone keeps");
        }
        // A request to stop before the beginning stops the training there.
        let summary = options().parallel(group).train(&mut ppo).unwrap();
        assert_eq!((summary.ended, summary.steps), (Ended::Stopped, 0));
    });
}
