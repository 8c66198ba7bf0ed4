//! A policy learns in an environment, is looked at, evaluated and exported.

use std::fs;

use crate::common::Scene;

/// A run in an environment that has seen little of it.
fn trained(environment: &str, options: &str) -> Scene {
    let scene = Scene::new();
    scene.ok(&format!("train {environment} --threads 1 --out run {options}"));
    scene
}

/// The number behind the last of some words.
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
        text.contains("mlp in 20 episodes of cartpole, the likeliest actions"),
        "{text}"
    );
    let mean = number(&text, "\nmean return");
    // One that has learnt nothing gets 22 by chance, and 9 by its likeliest actions.
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
    assert!(sampled.contains("actions by chance") && sampled != text, "{sampled}");
    let one = scene.ok("eval run --episodes 1");
    assert!(one.contains("in an episode of cartpole") && !one.contains('±'), "{one}");
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
    // The first of these is the first of the same seed's evaluation.
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
    let scene = trained("connect-four", "--total-steps 2048 --envs 4");
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
    // The file that was there stays.
    fs::create_dir(scene.path("folder.png")).unwrap();
    scene.fails("play run --apng folder.png", &["cannot write folder.png"]);
    fs::remove_file(scene.path("run/model.safetensors")).unwrap();
    scene.fails("play run", &["has no model.safetensors yet"]);
}
