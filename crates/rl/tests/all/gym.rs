//! Environments of Gymnasium in Python processes. `POLYGRAD_PYTHON` has to name a Python with gymnasium, as
//! `cargo xtask test` does; without it all tests that need one are skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use polygrad_nn::Checkpoint;
use polygrad_rl::gym::{self, GymConfig};
use polygrad_rl::zoo::{Algorithm, EnvSpec, Stepping};
use polygrad_rl::*;
use polygrad_tensor::{Device, Result, manual_seed};
use polygrad_train::{Control, Event, Progress, Run, RunConfig};
use serde_json::{Value, json};

use crate::common::play;

/// Whether there is a Python with gymnasium.
pub(crate) fn is_set_up() -> bool {
    let named = std::env::var_os("POLYGRAD_PYTHON").is_some_and(|python| !python.is_empty());
    if !named {
        let strict = std::env::var_os("CI").is_some_and(|value| value == "true");
        assert!(!strict, "under CI nothing may be skipped");
        eprintln!("skipped, POLYGRAD_PYTHON names no Python with gymnasium");
    }
    named
}

fn device() -> Device {
    Device::<polygrad_cpu::Cpu>::default().into_any()
}

fn case(class: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/gym_cases.py");
    format!("{}:{class}", file.display())
}

fn made(args: Value) -> GymConfig {
    GymConfig {
        args: args.as_object().unwrap().clone(),
        timeout: 30.0,
        ..GymConfig::default()
    }
}

fn counter(args: Value) -> &'static EnvSpec {
    gym::find(&case("Counter"), &made(args)).unwrap()
}

fn fails(name: &str, config: &GymConfig) -> (String, String) {
    let error = gym::find(name, config).err().unwrap();
    (error.message().to_owned(), error.hint().unwrap_or_default().to_owned())
}

/// States are copied at the beginning of an episode; from there each side computes its own.
#[test]
fn cart_poles_agree() -> Result<()> {
    if !is_set_up() {
        return Ok(());
    }
    let spec = gym::find(&case("RoundedCartPole"), &made(json!({ "max_episode_steps": 30 })))?;
    assert_eq!(spec.max_episode_steps, Some(30));
    let mut theirs = spec.make(6, Stepping::Threaded(2))?;
    let mut ours: Vec<_> = (0..6).map(|_| TimeLimit::new(CartPole::new(), 30).unwrap()).collect();
    let mut buffers = StepBuffers::new(&theirs);
    let mut rng = Rng::new(4);
    let mut own = [0.0; 4];
    let begin = |env: &mut TimeLimit<CartPole>, first: &[f32]| {
        env.reset(&mut Rng::new(0), &mut [0.0; 4]);
        env.env_mut().set_state([0, 1, 2, 3].map(|i| f64::from(first[i])));
    };
    theirs.reset(7, &mut buffers.observations)?;
    ours.iter_mut()
        .zip(buffers.observations.chunks(4))
        .for_each(|(env, first)| begin(env, first));
    let (mut terminated, mut truncated) = (0, 0);
    for _ in 0..200 {
        let actions: Vec<f32> = (0..6).map(|_| rng.below(2) as f32).collect();
        theirs.step(&actions, &mut buffers.as_mut())?;
        for (row, env) in ours.iter_mut().enumerate() {
            let step = env.step(&actions[row..=row], &mut rng, &mut own);
            let flags = (buffers.terminated[row], buffers.truncated[row]);
            assert_eq!((step.terminated, step.truncated), flags);
            assert_eq!(step.rewards[0], f64::from(buffers.rewards[row]));
            let seen = if step.ended() {
                &buffers.final_observations
            } else {
                &buffers.observations
            };
            for (a, b) in own.iter().zip(&seen[4 * row..4 * row + 4]) {
                assert!((a - b).abs() <= 1e-6 * b.abs().max(1.0), "{a} {b}");
            }
            if step.ended() {
                begin(env, &buffers.observations[4 * row..4 * row + 4]);
            }
            terminated += usize::from(step.terminated);
            truncated += usize::from(step.truncated);
        }
    }
    assert!(terminated > 10 && truncated > 0, "{terminated} {truncated}");
    Ok(())
}

#[test]
fn ppo_learns_gymnasiums_cart_pole() -> Result<()> {
    if !is_set_up() {
        return Ok(());
    }
    manual_seed(1);
    let spec = zoo::find("gym:CartPole-v1")?;
    assert_eq!(
        (spec.name, spec.max_episode_steps, spec.reward_threshold),
        ("gym:CartPole-v1", Some(500), Some(475.0))
    );
    let preset = spec.preset(None, None)?;
    let envs = spec.make(preset.num_envs, Stepping::Serial)?;
    let mut agent = preset.algorithm.agent(envs, &preset.policy, &device(), None)?;
    while !agent.is_done() {
        agent.advance()?;
    }
    let config = EvaluateConfig {
        episodes: 20,
        ..EvaluateConfig::default()
    };
    let mut envs = spec.make(10, Stepping::Serial)?;
    let found = evaluate(&*agent.trained_policy()?, &mut envs, &config)?;
    assert!(found.mean() > 400.0, "{:?}", found.returns);
    Ok(())
}

#[test]
fn dqn_goes_on_with_new_episodes() -> Result<()> {
    if !is_set_up() {
        return Ok(());
    }
    let spec = counter(json!({ "length": 7 }));
    let mut preset = spec.preset(Some("dqn"), None)?;
    *preset.algorithm.total_steps_mut() = 400;
    let Algorithm::Dqn(config) = &mut preset.algorithm else {
        panic!("another algorithm")
    };
    (config.learning_starts, config.batch_size) = (100, 8);
    let agent = || {
        let envs = spec.make(3, Stepping::Serial).unwrap();
        preset.algorithm.agent(envs, &preset.policy, &device(), None).unwrap()
    };
    let mut first = agent();
    for _ in 0..5 {
        first.advance()?;
    }
    let saved = first.checkpoint()?;
    let mut second = agent();
    let notices = second.restore(&saved)?;
    assert!(notices[0].contains("begin their next episodes"), "{notices:?}");
    while !second.is_done() {
        second.advance()?;
        // Dropped episodes are not counted.
        assert!(second.episodes().iter().all(|episode| episode.length == 7));
    }
    Ok(())
}

#[test]
fn episodes_are_those_of_their_seeds_however_they_step() -> Result<()> {
    if !is_set_up() {
        return Ok(());
    }
    let spec = counter(json!({ "truncates": true }));
    let seen = |stepping| play(spec.make(9, stepping).unwrap(), 3, 12);
    let serial = seen(Stepping::Serial);
    assert!(serial == seen(Stepping::Threaded(3)) && serial == seen(Stepping::Asynchronous(2)));
    let (last, _) = &serial[5];
    assert!(last.truncated.iter().all(|cut| *cut) && last.terminated.iter().all(|end| !end));
    let expected = |env, episode| (episode_rng(3, env, episode).next_u64() >> 33) % 1000;
    for env in 0..9 {
        assert_eq!(
            last.final_observations[2 * env..2 * env + 2],
            [expected(env, 0) as f32, 5.0]
        );
        assert_eq!(last.observations[2 * env..2 * env + 2], [expected(env, 1) as f32, 0.0]);
    }

    let mut envs = spec.make(9, Stepping::Asynchronous(2))?;
    assert_eq!((envs.groups(), envs.group_rows(1), envs.group_rows(2)), (2, 5..9, 0..0));
    let mut buffers = StepBuffers::new(&envs);
    assert!(
        envs.begin_step(0, &[0.0; 5])
            .unwrap_err()
            .message()
            .contains("before `reset`")
    );
    envs.reset(3, &mut buffers.observations)?;
    envs.begin_step(1, &[1.0; 4])?;
    assert!(envs.step(&[0.0; 9], &mut buffers.as_mut()).is_err());
    assert!(envs.begin_step(1, &[1.0; 4]).is_err() && envs.finish_step(0, &mut buffers.as_mut().rows(0..5)).is_err());
    envs.finish_step(1, &mut buffers.as_mut().rows(5..9))?;
    assert_eq!((buffers.rewards[5], buffers.observations[11]), (0.5, 1.0));
    let error = envs.step(&[2.0; 9], &mut buffers.as_mut()).unwrap_err();
    assert!(
        error.message().contains("environment 0 was given the action [2.0]"),
        "{error}"
    );
    // A reset discards a step whose result was not taken.
    envs.begin_step(0, &[1.0; 5])?;
    envs.reset(3, &mut buffers.observations)?;
    assert_eq!(buffers.observations, serial[0].0.observations);

    let saved = envs.state()?;
    envs.restore(&saved, &mut buffers.observations)?;
    assert_eq!(buffers.observations[0], expected(0, 1) as f32);
    assert!(envs.begins_anew());
    let error = spec
        .make(8, Stepping::Serial)?
        .restore(&saved, &mut [0.0; 16])
        .unwrap_err();
    assert!(error.message().contains("of 9 environments"), "{error}");
    assert!(envs.restore(&json!({ "seed": 1 }), &mut buffers.observations).is_err());
    Ok(())
}

/// Launchers of jobs send them to all processes.
#[test]
fn signals_that_ask_to_stop_end_no_environments() -> Result<()> {
    if !is_set_up() {
        return Ok(());
    }
    let folder = tempfile::tempdir().unwrap();
    let marker = folder.path().join("sent");
    let config = made(json!({ "length": 6, "how": "signals", "marker": marker }));
    let mut envs = gym::find(&case("Counter"), &config)?.make(4, Stepping::Threaded(2))?;
    let mut buffers = StepBuffers::new(&envs);
    envs.reset(0, &mut buffers.observations)?;
    for _ in 0..3 {
        envs.step(&[1.0; 4], &mut buffers.as_mut())?;
    }
    assert!(marker.exists());
    assert_eq!(envs.take_notices(), Vec::<String>::new());
    Ok(())
}

#[test]
fn a_process_that_fails_is_started_anew() -> Result<()> {
    if !is_set_up() {
        return Ok(());
    }
    let folder = tempfile::tempdir().unwrap();
    for (how, words) in [
        ("raise", "raised RuntimeError: the tower fell, at "),
        ("kill", "ended by itself (signal: 9 (SIGKILL))"),
        ("hang", "did not answer within 10 s and was ended"),
    ] {
        let marker = folder.path().join(how);
        let config = GymConfig {
            timeout: 10.0,
            ..made(json!({ "length": 6, "how": how, "marker": marker }))
        };
        let spec = gym::find(&case("Counter"), &config)?;
        let mut envs = spec.make(4, Stepping::Threaded(2))?;
        let mut buffers = StepBuffers::new(&envs);
        envs.reset(0, &mut buffers.observations)?;
        let before = buffers.observations.clone();
        envs.step(&[1.0; 4], &mut buffers.as_mut())?;
        envs.step(&[1.0; 4], &mut buffers.as_mut())?;
        assert!(marker.exists());
        // Both processes have the environment that fails once, and either may be first.
        let failed: Vec<usize> = (0..4).filter(|row| buffers.truncated[*row]).collect();
        assert!(
            failed == [0, 1] || failed == [2, 3] || failed == [0, 1, 2, 3],
            "{failed:?}"
        );
        for row in failed {
            assert_eq!((buffers.rewards[row], buffers.terminated[row]), (0.0, false));
            assert_eq!(buffers.final_observations[2 * row..2 * row + 2], [before[2 * row], 1.0]);
            assert_eq!(buffers.observations[2 * row + 1], 0.0);
        }
        let notices = envs.take_notices();
        assert!(notices[0].contains(words), "{notices:?}");
        assert!(
            notices[0].contains("Counter") && notices[0].contains("environments "),
            "{notices:?}"
        );
        assert!(
            notices[0].ends_with("it begins new episodes in a new process (failure 1 of 3)"),
            "{notices:?}"
        );
        assert!(
            how != "raise" || notices[0].contains("gym_cases.py:") && notices[0].contains(" in fail"),
            "{notices:?}"
        );
        for _ in 0..20 {
            envs.step(&[1.0; 4], &mut buffers.as_mut())?;
        }
        assert!(envs.take_notices().is_empty());
    }
    Ok(())
}

#[test]
fn failures_in_a_row_end_it() -> Result<()> {
    if !is_set_up() {
        return Ok(());
    }
    let config = GymConfig {
        max_failures: 2,
        ..made(json!({ "how": "raise" }))
    };
    let spec = gym::find(&case("Counter"), &config)?;
    let mut envs = spec.make(2, Stepping::Serial)?;
    let mut buffers = StepBuffers::new(&envs);
    envs.reset(0, &mut buffers.observations)?;
    let mut steps = 0;
    let error = loop {
        match envs.step(&[0.0; 2], &mut buffers.as_mut()) {
            Ok(()) => steps += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((steps, envs.take_notices().len()), (3, 1));
    let text = error.to_string();
    for words in [
        "environments 0 to 1 of gym:",
        "the tower fell",
        "none of its episodes ended by itself in between",
    ] {
        assert!(text.contains(words), "{text}");
    }
    assert!(envs.step(&[0.0; 2], &mut buffers.as_mut()).is_err());
    envs.state()?;

    Ok(())
}

/// Four iterations of 16 steps begin; the second failure occurs in the last one.
#[test]
fn a_training_that_ends_so_leaves_a_checkpoint() -> Result<()> {
    if !is_set_up() {
        return Ok(());
    }
    let config = GymConfig {
        max_failures: 2,
        ..made(json!({ "length": 40, "how": "raise", "at": 30 }))
    };
    let spec = gym::find(&case("Counter"), &config)?;
    let mut preset = spec.preset(Some("ppo"), None)?;
    let Algorithm::Ppo(settings) = &mut preset.algorithm else {
        panic!("another algorithm")
    };
    (settings.num_steps, settings.total_steps) = (16, 6400);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let agent = || {
        let envs = spec.make(4, Stepping::Serial).unwrap();
        preset.algorithm.agent(envs, &preset.policy, &device(), None).unwrap()
    };
    let train = |run: Run| {
        let notices = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&notices);
        let tell = move |event: Event<'_>, _: &Progress<'_>| {
            if let Event::Notice(notice) = event {
                told.lock().unwrap().push(notice.to_owned());
            }
            Ok(Control::Continue)
        };
        let options = RunConfig::steps(6400).run(run).checkpoint_every(6400).callback(tell);
        let error = options.train(&mut *agent()).unwrap_err();
        assert!(error.message().contains("the tower fell"), "{error}");
        notices.lock().unwrap().clone()
    };
    let notices = train(Run::create(&path)?);
    assert!(
        notices.len() == 1 && notices[0].contains("(failure 1 of 2)"),
        "{notices:?}"
    );
    assert_eq!(Checkpoint::load(path.join("checkpoint.safetensors"))?.step, 3);
    let notices = train(Run::resume(&path)?);
    assert!(
        notices[0].contains("where the environments stood cannot be saved"),
        "{notices:?}"
    );
    assert_eq!(Checkpoint::load(path.join("checkpoint.safetensors"))?.step, 6);
    Ok(())
}

#[test]
fn numbers_that_are_none_and_other_shapes_are_told() -> Result<()> {
    if !is_set_up() {
        return Ok(());
    }
    for (how, words) in [
        ("nan", "gave an observation whose number 0 is NaN"),
        ("shape", "has the shape (1,), not that of its space, (2,)"),
    ] {
        let config = GymConfig {
            max_failures: 1,
            ..made(json!({ "how": how, "at": 99 }))
        };
        let mut envs = gym::find(&case("Counter"), &config)?.make(1, Stepping::Serial)?;
        let mut buffers = StepBuffers::new(&envs);
        envs.reset(0, &mut buffers.observations)?;
        let error = envs.step(&[0.0], &mut buffers.as_mut()).unwrap_err();
        assert!(
            error.message().contains(words) && error.message().contains("environment 0"),
            "{error}"
        );
    }
    Ok(())
}

#[test]
fn spaces_are_understood() -> Result<()> {
    if !is_set_up() {
        return Ok(());
    }
    let spec = gym::find(&case("Named"), &GymConfig::default())?;
    let names = [
        "place[0]",
        "place[1]",
        "kind=5",
        "kind=6",
        "kind=7",
        "both.0[0]",
        "both.0[1]",
        "both.1[0]=0",
        "both.1[0]=1",
        "both.1[1]=0",
        "both.1[1]=1",
        "both.1[1]=2",
    ];
    assert_eq!(spec.observations, names);
    assert_eq!(spec.max_episode_steps, None);
    let mut envs = spec.make(1, Stepping::Serial)?;
    assert_eq!(envs.action_space(), &Space::multi_binary(3));
    let mut buffers = StepBuffers::new(&envs);
    envs.reset(0, &mut buffers.observations)?;
    assert_eq!(
        buffers.observations,
        [0.5, -0.5, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0]
    );
    envs.step(&[1.0, 0.0, 1.0], &mut buffers.as_mut())?;
    assert_eq!(
        (buffers.rewards[0], &buffers.observations[2..5]),
        (5.0, &[0.0, 0.0, 1.0][..])
    );
    assert_eq!(spec.presets().len(), 1);

    let spec = gym::find(&case("Image"), &GymConfig::default())?;
    let mut envs = spec.make(1, Stepping::Serial)?;
    let Space::Box { shape, .. } = envs.observation_space() else {
        panic!("another space")
    };
    assert_eq!(
        (&shape[..], envs.action_space()),
        (&[3, 40, 36][..], &Space::multi_discrete(&[2, 3]))
    );
    assert!(matches!(spec.preset(None, None)?.policy.encoder, EncoderConfig::Cnn(_)));
    let mut buffers = StepBuffers::new(&envs);
    envs.reset(0, &mut buffers.observations)?;
    assert_eq!(
        buffers.observations.iter().position(|x| *x == 7.0),
        Some(2 * 40 * 36 + 1)
    );
    envs.step(&[1.0, 2.0], &mut buffers.as_mut())?;
    assert_eq!(buffers.rewards[0], 2.0);

    let spec = gym::find("Pendulum-v1", &GymConfig::default())?;
    let mut envs = spec.make(1, Stepping::Serial)?;
    assert_eq!(envs.action_space(), &Space::boxed(&[-2.0], &[2.0]));
    envs.reset(0, &mut [0.0; 3])?;
    let algorithms: Vec<&str> = spec.presets().iter().map(|preset| preset.algorithm.name()).collect();
    assert_eq!(algorithms, ["ppo", "sac", "sac", "td3", "td3"]);
    Ok(())
}

#[test]
fn a_policy_plays_before_somebody_who_watches() -> Result<()> {
    if !is_set_up() {
        return Ok(());
    }
    let spec = counter(json!({ "length": 4 }));
    let policy = ActorCritic::new(&PolicyConfig::mlp(2, ActionSpace::Discrete(3)), &device())?;
    let mut play = spec.play(&policy, 0)?;
    play.drawable()?;
    assert_eq!((play.size(), play.fps()), ([6.0, 4.0], 10.0));
    play.reset()?;
    let mut ended = false;
    while !ended {
        ended = play.step()?;
        let picture = play.picture(60, 60);
        assert_eq!((picture.width(), picture.height()), (60, 40));
        let red = picture.pixels().iter().filter(|pixel| **pixel == [200, 30, 10]).count();
        assert_eq!(red, play.steps() * 400);
    }
    assert_eq!((play.steps(), play.observations()[1]), (4, 4.0));
    let spec = gym::find(&case("Named"), &GymConfig::default())?;
    let policy = ActorCritic::new(&PolicyConfig::mlp(12, ActionSpace::MultiBinary(3)), &device())?;
    let mut play = spec.play(&policy, 0)?;
    let error = play.drawable().unwrap_err();
    assert!(error.message().contains("no render_mode rgb_array"), "{error}");
    play.reset()?;
    assert!(!play.step()?);
    Ok(())
}

fn script(folder: &Path, text: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join("python");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn what_cannot_be_made_is_told() {
    let python = |path: &Path| GymConfig {
        python: Some(path.to_owned()),
        ..GymConfig::default()
    };
    let (message, hint) = fails("CartPole-v1", &python(Path::new("/nowhere/python")));
    assert!(message.starts_with("/nowhere/python cannot be started: "), "{message}");
    assert!(hint.contains("--python or POLYGRAD_PYTHON"), "{hint}");
    let folder = tempfile::tempdir().unwrap();
    let silent = script(folder.path(), "#!/bin/sh\nexit 3\n");
    let (message, _) = fails("CartPole-v1", &python(&silent));
    assert!(message.contains("ended by itself (exit status: 3)"), "{message}");
    let bare = script(folder.path(), "#!/bin/sh\nexec python3 -I -S \"$@\"\n");
    let (message, hint) = fails("CartPole-v1", &python(&bare));
    assert_eq!(
        message,
        "gym:CartPole-v1 cannot be made: ModuleNotFoundError: No module named 'gymnasium'"
    );
    assert!(hint.contains("python -m pip install gymnasium`"), "{hint}");
    let slow = GymConfig {
        timeout: 0.2,
        ..python(&script(folder.path(), "#!/bin/sh\nexec sleep 1000\n"))
    };
    let (message, _) = fails("CartPole-v1", &slow);
    assert!(message.contains("did not answer within 0.2 s"), "{message}");
    for config in [
        GymConfig {
            timeout: 0.0,
            ..GymConfig::default()
        },
        GymConfig {
            timeout: f64::NAN,
            ..GymConfig::default()
        },
        GymConfig {
            max_failures: 0,
            ..GymConfig::default()
        },
    ] {
        assert!(gym::find("CartPole-v1", &config).is_err());
    }

    if !is_set_up() {
        return;
    }
    let own = |class: &str, args: Value| fails(&case(class), &made(args)).0;
    for (message, words) in [
        (
            fails("Nowhere-v0", &GymConfig::default()).0,
            "Environment `Nowhere` doesn't exist",
        ),
        (
            fails("nowhere:CartPole-v1", &GymConfig::default()).0,
            "No module named 'nowhere'",
        ),
        (
            fails("nowhere.py:CartPole", &GymConfig::default()).0,
            "there is no file nowhere.py",
        ),
        (
            own("Nowhere", json!({})),
            "has no class Nowhere, and registers no environment of this name",
        ),
        (own("Nothing", json!({})), "makes Nothing, which is no gymnasium.Env"),
        (
            own("Texts", json!({})),
            "the observation's inside.0 is Text, which cannot be used",
        ),
        (own("Plans", json!({})), "the action is Dict, which cannot be used"),
        (
            own("Counter", json!({ "wide": 3 })),
            "got an unexpected keyword argument 'wide'",
        ),
    ] {
        assert!(message.contains(words), "{message}");
    }
    let mut spec = gym::find("CartPole-v1", &GymConfig::default())
        .unwrap()
        .make(0, Stepping::Serial);
    assert!(spec.is_err());
    spec = gym::find("CartPole-v1", &GymConfig::default())
        .unwrap()
        .make(2, Stepping::Threaded(0));
    assert!(spec.is_err());
}
