//! A policy learns in an environment, and is shown, evaluated and exported.

use std::fs;

use crate::common::Scene;

/// A run in an environment after little training.
fn trained(environment: &str, options: &str) -> Scene {
    let scene = Scene::new();
    scene.ok(&format!("train {environment} --threads 1 --out run {options}"));
    scene
}

/// The number after the last occurrence of some words.
fn number(text: &str, words: &str) -> f64 {
    let at = text.rfind(words).unwrap_or_else(|| panic!("no {words:?} in {text}")) + words.len();
    let rest = text[at..].trim_start();
    let number = rest.split(|c: char| c.is_whitespace() || c == ',' || c == ';');
    number.into_iter().next().unwrap().parse().unwrap()
}

#[test]
fn environments_are_listed() {
    let scene = Scene::new();
    let text = scene.ok("list");
    for name in [
        "cartpole",
        "acrobot",
        "mountain-car",
        "mountain-car-continuous",
        "pendulum",
        "t-maze",
        "connect-four",
        "tic-tac-toe",
    ] {
        assert!(text.contains(&format!("{name}: ")), "{text}");
    }
    for words in [
        "pole angle (-0.4189 to 0.4189)",
        "box [1]: torque (-2 to 2)",
        "one of 2: push left, push right",
        "whole numbers below 8, 8, 8, 8: agent column",
        "one of 7: column 1, ",
        "not all are always allowed",
        "2 players, at most 42 steps",
        "at most 500 steps, solved from a mean return of 475 on",
        "32 environments, lstm, 300,000 steps",
    ] {
        assert!(text.contains(words), "{text}\nshould contain {words}");
    }
}

#[test]
fn a_policy_is_evaluated() {
    let scene = trained("cartpole", "--total-steps 20000");
    let text = scene.ok("eval run --episodes 20");
    assert!(
        text.contains("mlp in 20 episodes of cartpole, the most likely actions"),
        "{text}"
    );
    let mean = number(&text, "\nmean return");
    // An untrained policy gets 22 by random actions, and 9 by its likeliest actions.
    assert!(
        (100.0..=500.0).contains(&mean) && number(&text, "mean length") == (mean * 10.0).round() / 10.0,
        "{text}"
    );
    let (low, high) = (number(&text, "95 % interval"), number(&text, " to"));
    let iqm = number(&text, "interquartile mean");
    assert!(
        low <= iqm && iqm <= high && text.contains("as solved (from 475 on)"),
        "{text}"
    );
    assert_eq!(text, scene.ok("eval run --episodes 20"));
    let sampled = scene.ok("eval run --episodes 20 --sample --seed 3");
    assert!(sampled.contains("sampled actions") && sampled != text, "{sampled}");
    let one = scene.ok("eval run --episodes 1");
    assert!(one.contains("in an episode of cartpole") && !one.contains('±'), "{one}");
}

#[test]
fn a_network_of_dqn_is_used_as_any_policy() {
    let scene = Scene::new();
    let told = scene.ok(
        "train acrobot --algorithm dqn --set dueling=true --set double=true --set policy.encoder.mlp.hidden=[32] \
         --total-steps 3000 --threads 1 --out run",
    );
    assert!(
        told.contains("mlp of 356 parameters with DQN, 4 steps an iteration"),
        "{told}"
    );
    let text = scene.ok("eval run --episodes 4");
    assert!(
        text.contains("mlp in 4 episodes of acrobot, the most likely actions"),
        "{text}"
    );
    assert!((-500.0..=-60.0).contains(&number(&text, "\nmean return")), "{text}");
    scene.fails(
        "eval run --sample",
        &["a network of DQN says what they are worth", "leave --sample out"],
    );
    scene.fails("play run --sample", &["a network of DQN says what they are worth"]);
    assert!(scene.ok("play run").contains("\nstep 1: torque "));
    let exported = scene.ok("export run --onnx values.onnx");
    assert!(exported.contains("takes observation\n  gives logits\n"), "{exported}");
    let ran = scene.ok("run values.onnx --input observation=random --dim batch=2");
    assert!(ran.contains("logits"), "{ran}");
    let shown = scene.ok("show run");
    assert!(shown.starts_with("mlp for acrobot: "), "{shown}");
    let config = String::from_utf8(scene.read("run/config.json")).unwrap();
    assert!(
        config.contains("\"dqn\": {") && config.contains("\"dueling\": true"),
        "{config}"
    );
    // More steps are accepted, but no other algorithm.
    scene.fails(
        "train --resume run --algorithm ppo",
        &["--algorithm is dqn there, not ppo"],
    );
    let more = scene.ok("train --resume run --total-steps 3200");
    assert!(more.contains("total steps: 3200 instead of 3000"), "{more}");
}

#[test]
fn a_policy_within_bounds_is_used_as_any_policy() {
    let drawn = "a policy of SAC draws them in training alone";
    let cases = [
        ("sac", 1250, "--set temperature=0.1", drawn),
        ("sac", 1249, "--set use_sde=true --set log_std_init=-2", drawn),
        (
            "td3",
            1217,
            "--set exploration_noise={\"ornstein_uhlenbeck\":0.3}",
            "a policy of TD3 draws nothing",
        ),
    ];
    for (algorithm, parameters, settings, why) in cases {
        let scene = Scene::new();
        let told = scene.ok(&format!(
            "train pendulum --algorithm {algorithm} {settings} --set learning_starts=100 --set batch_size=32 \
             --set policy.encoder.mlp.hidden=[32,32] --total-steps 600 --threads 1 --out run"
        ));
        let name = algorithm.to_uppercase();
        let about = format!("mlp of {parameters} parameters with {name}, 1 steps an iteration");
        assert!(told.replace(',', "").contains(&about.replace(',', "")), "{told}");
        let text = scene.ok("eval run --episodes 4");
        assert!((-2000.0..=0.0).contains(&number(&text, "\nmean return")), "{text}");
        scene.fails("eval run --sample", &[why, "leave --sample out"]);
        assert!(scene.ok("play run").contains("\nstep 1: torque "));
        let exported = scene.ok("export run --onnx policy.onnx");
        assert!(exported.contains("takes observation\n  gives action\n"), "{exported}");
        let ran = scene.ok("run policy.onnx --input observation=random --dim batch=2");
        assert!(ran.contains("action"), "{ran}");
        let quantized = scene.ok("quantize run --threads 1 --episodes 4 --max-drop 100 --out int8.onnx");
        assert!(
            quantized.contains("mean return in 4 episodes of pendulum"),
            "{quantized}"
        );
        let more = scene.ok("train --resume run --total-steps 700");
        assert!(more.contains("total steps: 700 instead of 600"), "{more}");
        let metrics = String::from_utf8(scene.read("run/metrics.csv")).unwrap();
        assert!(metrics.lines().next().unwrap().contains("q_value"), "{metrics}");
    }
}

#[test]
fn presets_and_settings_are_chosen() {
    let scene = Scene::new();
    fs::write(scene.path("own.toml"), "gamma = 0.9\nnum_steps = 16\n").unwrap();
    scene.ok(
        "train cartpole --preset cleanrl --settings own.toml --set gamma=0.98 --total-steps 128 --threads 1 --out run",
    );
    let config = String::from_utf8(scene.read("run/config.json")).unwrap();
    for part in [
        "\"gamma\": 0.98",
        "\"num_steps\": 16",
        "\"envs\": 4",
        "\"bootstrap_truncated\": false",
    ] {
        assert!(config.contains(part), "{config}");
    }
    for (line, parts) in [
        ("--set gama=0.98", &["there is no setting gama", "there are: "][..]),
        ("--set gamma=2", &["gamma is not from 0 to 1"]),
        (
            "--set log_std_init=-2",
            &["mean nothing without use_sde", "fix: set use_sde=true, or"],
        ),
        (
            "--set use_sde=true",
            &["exploration is for continuous actions", "fix: set use_sde=false"],
        ),
        (
            "--preset fast",
            &[
                "there are no settings called \"fast\" for cartpole",
                "ppo zoo, ppo cleanrl, dqn zoo, dqn cleanrl, pqn cleanrl",
            ],
        ),
        ("--algorithm dqn --policy lstm", &["its network remembers nothing"]),
        ("--settings none.toml", &["cannot read none.toml"]),
    ] {
        scene.fails(&format!("train cartpole --out other {line}"), parts);
    }
    scene.fails(
        "train pendulum --algorithm dqn",
        &[
            "there are no settings of dqn for pendulum",
            "there are: ppo zoo, sac zoo, ",
        ],
    );
    scene.fails(
        "train pendulum --algorithm sac --policy lstm --out other",
        &["its network remembers nothing"],
    );
    scene.fails(
        "train pendulum --algorithm sac --set tau=2 --out other",
        &["tau is not from 0 to 1"],
    );
    assert!(!scene.path("other").exists());
    let ended = scene.run("train --resume run --set gamma=0.9");
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    let listed = scene.ok("list");
    assert!(
        listed.contains("training     dqn cleanrl: 1 environment, mlp, 500,000 steps"),
        "{listed}"
    );
}

#[test]
fn a_policy_plays_in_words_and_as_a_film() {
    let scene = trained("cartpole", "--total-steps 2048");
    let text = scene.ok("play run --episodes 2 --seed 5");
    assert!(
        text.contains("\nepisode 1; cart position ") && text.contains("\nstep 1: push "),
        "{text}"
    );
    let outcomes: Vec<&str> = text.lines().filter(|line| line.contains(": return ")).collect();
    assert!(
        outcomes.len() == 2 && outcomes[1].starts_with("episode 2: return "),
        "{text}"
    );
    let steps = text.lines().filter(|line| line.starts_with("step ")).count();
    // The first episode is the first of the evaluation with the same seed.
    let evaluated = scene.ok("eval run --episodes 1 --seed 5");
    assert_eq!(number(outcomes[0], "return"), number(&evaluated, "mean return"));

    let told = scene.ok("play run --episodes 2 --seed 5 --apng film.png");
    let pictures = steps + 2;
    assert!(
        told.contains(&format!("film.png: {pictures} pictures of 600 by 400")),
        "{told}"
    );
    assert!(outcomes.iter().all(|outcome| told.contains(outcome)), "{told}");
    let file = fs::File::open(scene.path("film.png")).unwrap();
    let mut reader = png::Decoder::new(std::io::BufReader::new(file)).read_info().unwrap();
    assert_eq!(reader.info().animation_control.unwrap().num_frames as usize, pictures);
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let mut different = std::collections::HashSet::new();
    let mut delays = Vec::new();
    for _ in 0..pictures {
        reader.next_frame(&mut pixels).unwrap();
        different.insert(pixels.clone());
        delays.push(reader.info().frame_control.unwrap().delay_num);
    }
    assert!(different.len() > pictures / 2, "{} of {pictures}", different.len());
    assert_eq!(delays.iter().filter(|delay| **delay == 1000).count(), 2);
    assert!(delays.iter().all(|delay| *delay == 20 || *delay == 1000), "{delays:?}");
}

#[test]
fn two_players_play() {
    let scene = trained("connect-four", "--total-steps 2048 --envs 4 --set self_play=null");
    let text = scene.ok("play run --sample");
    assert!(
        text.contains("step 1: player 1 column ") && text.contains("return 0 and 0"),
        "{text}"
    );
    let text = scene.ok("eval run --episodes 4 --sample");
    assert!(text.contains("mean return of the first player "), "{text}");
    let exported = scene.ok("export run --onnx policy.onnx");
    assert!(
        exported.contains("takes observation, mask\n  gives logits, value\n"),
        "{exported}"
    );
}

#[test]
fn a_game_is_learnt_against_a_pool() {
    let scene = Scene::new();
    let told = scene.ok(
        "train tic-tac-toe --threads 1 --total-steps 4096 --envs 8 --set num_steps=32 --set self_play.snapshots=2 \
         --set self_play.snapshot_every=1000 --set policy.encoder.mlp.hidden=[16] --out run",
    );
    for part in [
        "  policy, ",
        "  random, ",
        "  greedy, ",
        "  snapshot of step 3072, ",
        "  snapshot of step 4096, ",
    ] {
        assert!(told.contains("  Elo ") && told.contains(part), "{told}");
    }
    let metrics = String::from_utf8(scene.read("run/metrics.csv")).unwrap();
    let names = ",elo,score,elo_random,elo_greedy,elo_snapshot_1,elo_snapshot_2";
    assert!(metrics.lines().next().unwrap().contains(names), "{metrics}");
    let text = scene.ok("eval run --opponent random --episodes 20");
    assert!(text.contains("mlp in tic-tac-toe against random, 20 games"), "{text}");
    assert!(text.contains("as the first player 10 games: "), "{text}");
    assert!((0.0..=1.0).contains(&number(&text, "\nscore")), "{text}");
    assert_eq!(text, scene.ok("eval run --opponent random --episodes 20"));
    let text = scene.ok("eval run --opponent solver");
    assert!(text.contains("against solver, every game that it may play"), "{text}");
    // The solver never loses.
    assert_eq!(text.matches(" games: 0 won, ").count(), 2, "{text}");
    let text = scene.ok("eval run --opponent run --episodes 4 --sample");
    assert!(text.contains("against run, 4 games"), "{text}");
    scene.ok("play run");
    scene.ok("export run --onnx policy.onnx");
    for (line, parts) in [
        (
            "eval run --opponent solver --sample",
            &["--sample means nothing against solver"][..],
        ),
        ("eval run --opponent nobody", &["nobody is no folder"]),
        (
            "train cartpole --set self_play={} --out other",
            &["cartpole is no game for two"],
        ),
        (
            "train tic-tac-toe --set self_play.elo_k=-1 --out other",
            &["elo_k is not at least 0"],
        ),
        (
            "train tic-tac-toe --set self_play.elo=1 --out other",
            &["there is no setting self_play.elo"],
        ),
        (
            "train tic-tac-toe --async --out other",
            &["games of self-play step in one thread"],
        ),
        (
            "train tic-tac-toe --policy gru --out other",
            &["a policy with memory cannot be an opponent"],
        ),
        (
            "train connect-four --set self_play.scripted=[\"solver\"] --out other",
            &["too large to be solved"],
        ),
    ] {
        scene.fails(line, parts);
    }
    let scene = trained("cartpole", "--algorithm pqn --total-steps 2048");
    scene.fails("eval run --opponent greedy", &["cartpole is no game for two"]);
}

#[test]
fn a_network_of_pqn_is_used_as_any_policy() {
    let scene = Scene::new();
    let told = scene.ok("train acrobot --algorithm pqn --set q_lambda=0.5 --total-steps 2048 --threads 1 --out run");
    assert!(
        told.contains("mlp of 11,667 parameters with PQN, 512 steps an iteration"),
        "{told}"
    );
    let text = scene.ok("eval run --episodes 2");
    assert!(
        text.contains("mlp in 2 episodes of acrobot, the most likely actions"),
        "{text}"
    );
    scene.fails(
        "eval run --sample",
        &["a network of PQN says what they are worth", "leave --sample out"],
    );
    scene.ok("play run");
    let exported = scene.ok("export run --onnx policy.onnx");
    assert!(exported.contains("takes observation\n  gives logits\n"), "{exported}");
    scene.ok("quantize run --out policy8.onnx --episodes 2 --max-drop 100");
    scene.ok("train --resume run --total-steps 4096");
    for (line, parts) in [
        ("--set q_lambda=2", &["q_lambda is not from 0 to 1"][..]),
        ("--set num_minibatches=7", &["cannot be cut into 7 equal minibatches"]),
        ("--policy lstm", &["its network remembers nothing"]),
    ] {
        scene.fails(&format!("train acrobot --algorithm pqn --out other {line}"), parts);
    }
}

#[test]
fn memory_and_what_normalizes_are_exported() {
    let scene = trained("t-maze", "--total-steps 4096");
    let exported = scene.ok("export run --onnx policy.onnx");
    assert!(exported.contains("takes observation, state_0, state_1"), "{exported}");
    assert!(
        exported.contains("gives logits, value, next_state_0, next_state_1"),
        "{exported}"
    );
    let shown = scene.ok("show run");
    assert!(shown.starts_with("lstm for t-maze: remember a sign"), "{shown}");
    assert!(shown.contains("input state_0: float[1, batch, 32]"), "{shown}");
    scene.ok("run policy.onnx --input observation=random --input state_0=random --input state_1=random --dim batch=3");

    let scene = trained("mountain-car-continuous", "--total-steps 16384");
    scene.ok("export run --onnx policy.onnx");
    let shown = scene.ok("show policy.onnx");
    let (inputs, outputs) = ("input observation: float[batch, 2]", "output mean: float[batch, 1]");
    assert!(
        shown.contains(inputs) && shown.contains(outputs) && shown.contains("output std: "),
        "{shown}"
    );
    assert!(shown.contains("normalizer.mean"), "{shown}");
    let bytes = scene.read("policy.onnx");
    let text = String::from_utf8_lossy(&bytes);
    for words in [
        "observation_names",
        "position\nvelocity",
        "action_space",
        "\"type\":\"Box\"",
        "training_return",
    ] {
        assert!(text.contains(words), "no {words:?}");
    }

    let scene = trained("pendulum", "--total-steps 4096");
    let exported = scene.ok("export run --onnx policy.onnx --fixed --opset 17");
    assert!(exported.contains("gives mean, std, value"), "{exported}");
}

#[test]
fn what_is_for_other_runs_is_refused() {
    let scene = trained("cartpole", "--total-steps 256");
    scene.fails("predict run x.png", &["is a run of rl", "polygrad play RUN"]);
    scene.fails("eval run --full", &["--full is for images, and this is a run of rl"]);
    scene.fails("eval run --data data", &["--data is for images and table"]);
    scene.fails("play none", &["none is no folder"]);
    scene.train("bars", "--epochs 1 --model mlp");
    scene.fails(
        "eval bars --episodes 3",
        &["--episodes is for rl, and this is a run of images"],
    );
    scene.fails("eval bars --sample", &["--sample is for rl"]);
    scene.fails("play bars", &["is a run of images, and this is for runs of rl"]);
    let ended = scene.run("play run --episodes 0");
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    // The existing files stay.
    for line in [
        "--apng run/config.json",
        "--apng run/model.safetensors",
        "--record run/config.json",
    ] {
        let ended = scene.run(&format!("play run {line}"));
        assert!(
            ended.code == Some(2) && ended.stderr.contains("would be lost"),
            "{}",
            ended.stderr
        );
    }
    scene.fails(
        "train cartpole --set num_minibatches=7",
        &["equal minibatches", "take another number of steps"],
    );
    fs::create_dir(scene.path("folder.png")).unwrap();
    scene.fails("play run --apng folder.png", &["cannot write folder.png"]);
    fs::remove_file(scene.path("run/model.safetensors")).unwrap();
    scene.fails("play run", &["has no model.safetensors yet"]);
}

/// The lines of `play` about episodes.
fn told(text: &str) -> Vec<&str> {
    let lines = text.lines().skip(1);
    lines.filter(|line| !line.starts_with("recorded: ")).collect()
}

#[test]
fn every_environment_repeats_what_was_recorded() {
    for environment in [
        "cartpole",
        "acrobot",
        "mountain-car",
        "mountain-car-continuous",
        "pendulum",
        "t-maze",
        "grid-world",
        "connect-four",
    ] {
        let scene = trained(environment, "--total-steps 1");
        let played = scene.ok("play run --sample --seed 7 --episodes 2 --record two.json");
        assert!(played.ends_with("recorded: two.json\n"), "{played}");
        let shown = scene.ok("play --replay two.json");
        assert_eq!(told(&shown), told(&played), "{environment}");
        assert!(
            shown.starts_with(&format!("two.json: 2 episodes of {environment}\n")),
            "{shown}"
        );
    }
}

#[test]
fn what_was_not_recorded_is_told_by_its_step() {
    let scene = trained("cartpole", "--total-steps 1");
    scene.ok("play run --record one.json");
    let whole = String::from_utf8(scene.read("one.json")).unwrap();
    let film = scene.ok("play --replay one.json --apng film.png");
    assert!(film.contains("film.png: ") && scene.path("film.png").exists(), "{film}");
    let mut other: serde_json::Value = serde_json::from_str(&whole).unwrap();
    let action = other["episodes"][0]["actions"][3][0].as_f64().unwrap();
    other["episodes"][0]["actions"][3][0] = (1.0 - action).into();
    scene.write("action.json", other.to_string().as_bytes());
    scene.fails(
        "play --replay action.json",
        &["episode 1, step 4: observations or rewards are others", "Polygrad "],
    );
    other["episodes"][0]["actions"][3][0] = 2.0.into();
    scene.write("action.json", other.to_string().as_bytes());
    let ended = scene.run("play --replay action.json");
    assert!(
        ended.code == Some(1)
            && ended
                .stderr
                .contains("episode 1, step 4: the action [2.0] is not allowed\n  fix: "),
        "{}",
        ended.stderr
    );
    let mut cut: serde_json::Value = serde_json::from_str(&whole).unwrap();
    for name in ["actions", "seen"] {
        cut["episodes"][0][name].as_array_mut().unwrap().pop();
    }
    scene.write("cut.json", cut.to_string().as_bytes());
    scene.fails("play --replay cut.json", &["the episode ends elsewhere"]);
    scene.write("seed.json", whole.replace("\"seed\":0", "\"seed\":1").as_bytes());
    scene.fails(
        "play --replay seed.json",
        &["episode 1, step 0: observations or rewards are others"],
    );
    scene.write("format.json", whole.replace("\"format\":1", "\"format\":2").as_bytes());
    scene.fails("play --replay format.json", &["is no replay file: its format is 2"]);
    scene.write("name.json", whole.replace("\"cartpole\"", "\"cart\"").as_bytes());
    scene.fails("play --replay name.json", &["cart"]);
    for (bytes, what) in [
        (&b"{}"[..], "missing field"),
        (b"x", "expected value"),
        (b"\xff", "is no replay file"),
    ] {
        scene.write("bad.json", bytes);
        scene.fails("play --replay bad.json", &["bad.json is no replay file: ", what]);
    }
    scene.fails("play --replay none.json", &["none.json"]);
    for line in [
        "play",
        "play run --replay one.json",
        "play --replay one.json --seed 3",
        "play --replay one.json --record x",
    ] {
        assert_eq!(scene.run(line).code, Some(2), "{line}");
    }
}
