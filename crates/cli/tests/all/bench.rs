//! `polygrad bench`: its output, its protocol with peers, and what it rejects.

use std::process::Command;

use crate::common::{Ended, Scene};

/// Runs a command line with the scene's folder `peers` as the folder of peers.
fn run(scene: &Scene, line: &str) -> Ended {
    let mut command: Command = scene.command(line);
    command
        .env("POLYGRAD_PEERS", scene.path("peers"))
        .output()
        .unwrap()
        .into()
}

/// A peer that is a shell script.
#[cfg(unix)]
fn peer(scene: &Scene, name: &str, script: &str) {
    use std::os::unix::fs::PermissionsExt;

    let _ = std::fs::create_dir(scene.path("peers"));
    let file = scene.path("peers").join(name);
    std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn json(scene: &Scene, name: &str) -> serde_json::Value {
    serde_json::from_slice(&scene.read(name)).unwrap()
}

#[test]
fn a_case_has_a_line_and_an_entry() {
    let scene = Scene::new();
    let out = scene.ok("bench mlp-act mlp-rl/adam --seconds 0.1 --json figures.json");
    assert!(out.starts_with("cpu:threads=1 on "), "{out}");
    let line = |name: &str| out.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(
        line("mlp-act ").contains("GFLOP/s") && !line("mlp-act ").contains("loss"),
        "{out}"
    );
    assert!(line("mlp-rl adam").contains("; loss 0."), "{out}");
    let json = json(&scene, "figures.json");
    let case = &json["cases"][1];
    assert_eq!((&case["case"], &json["threads"]), (&"mlp-rl adam".into(), &1.into()));
    let figures = &case["results"][0];
    let number = |name: &str| figures[name].as_f64().unwrap();
    assert!(
        number("minimum") <= number("median") && number("steps") >= 30.0,
        "{json}"
    );
    assert!((0.6..0.7).contains(&number("loss")), "{json}");
}

#[test]
fn backends_take_turns_in_lines_a_chart_and_a_file() {
    let scene = Scene::new();
    let line = "bench elementwise/sum/1024 mlp-rl/adam --seconds 0.05 --backend cpu --backend cpu:kernels=scalar";
    let out = scene.ok(&format!("{line} --plot bench.png --json figures.json"));
    let scalar: Vec<&str> = out
        .lines()
        .filter(|line| line.starts_with("  cpu:kernels=scalar "))
        .collect();
    assert!(
        scalar.len() == 2 && scalar.iter().all(|line| line.ends_with(" times ours")),
        "{out}"
    );
    // The losses agree, since the work is the same.
    let json = json(&scene, "figures.json");
    let loss = |i: usize| json["cases"][1]["results"][i]["loss"].as_f64().unwrap();
    assert!((loss(0) - loss(1)).abs() < 1e-4, "{json}");
    assert!(scene.read("bench.png").starts_with(b"\x89PNG"));
    // All available backends, the native one first.
    let all = scene.ok("bench elementwise/sum/1024 --seconds 0.05 --backend all");
    assert!(all.starts_with("cpu:threads=") && all.contains(" times ours"), "{all}");
    scene.fails(
        &format!("{line} --plot nowhere/sums.png"),
        &["cannot write nowhere/sums.png"],
    );
    scene.fails(
        "bench mlp-act --plot alone.png",
        &["nothing to draw", "--backend several times"],
    );
    scene.fails(
        "bench mlp-act --backend cpu --backend gpu",
        &["no backend named \"gpu\""],
    );
}

#[test]
#[cfg(target_os = "linux")]
fn memory_is_that_of_a_process_of_its_own() {
    let scene = Scene::new();
    let out = scene.ok("bench memory/gpt --json figures.json");
    assert!(
        out.lines()
            .any(|line| line.starts_with("memory gpt ") && line.ends_with(" MB")),
        "{out}"
    );
    let bytes = json(&scene, "figures.json")["memory"][0]["results"][0]["bytes"]
        .as_f64()
        .unwrap();
    assert!((20e6..2e9).contains(&bytes), "{bytes}");
}

#[test]
#[cfg(unix)]
fn peers_are_timed_in_turn() {
    let scene = Scene::new();
    let program = env!("CARGO_BIN_EXE_polygrad");
    // Polygrad itself is a peer, too: it measures its own time and loss.
    peer(&scene, "again", &format!("exec {program} bench --serve --threads $2"));
    peer(
        &scene,
        "none",
        "echo peer none 1; while read -r line; do echo no it has no such case; done",
    );
    peer(&scene, "gone", "echo peer gone 1; read -r line");
    let ended = run(
        &scene,
        "bench mlp-rl/sgd --seconds 0.05 --against again,none,gone --json figures.json --plot ratios.png",
    );
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains(" times ours"), "{}", ended.stdout);
    assert!(scene.read("ratios.png").starts_with(b"\x89PNG"));
    let json = json(&scene, "figures.json");
    let results = &json["cases"][0]["results"];
    assert_eq!(results[0]["loss"], results[1]["loss"]);
    let ratio = results[1]["ratio"].as_f64().unwrap();
    assert!((0.1..10.0).contains(&ratio), "{json}");
    assert_eq!(results[2]["failed"], "it has no such case");
    assert!(results[3]["failed"].as_str().unwrap().contains("it ended"), "{json}");
}

#[test]
#[cfg(unix)]
fn a_peer_that_hangs_is_ended_with_what_it_started() {
    let scene = Scene::new();
    // Each waits for another program, as one that compiles does, which would leave a file.
    let hang = "(sleep 4; touch $0.lived) & wait";
    peer(&scene, "slow", &format!("echo peer slow 1; read -r line; {hang}"));
    peer(
        &scene,
        "later",
        &format!("echo peer later 1; read -r line; echo ok; read -r line; {hang}"),
    );
    let cases = "mlp-act mlp-rl/sgd --seconds 0.05 --patience 1";
    let ended = run(
        &scene,
        &format!("bench {cases} --against slow,later --json figures.json"),
    );
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let json = json(&scene, "figures.json");
    for case in [0, 1] {
        let results = &json["cases"][case]["results"];
        assert!(results[0]["median"].is_number(), "{json}");
        // The second case is not waited for; the error is the first one.
        assert_eq!(results[1]["failed"], "no answer in 1 s to \"case mlp-act\"");
        assert_eq!(results[2]["failed"], "no answer in 1 s to \"run 1 5\"");
    }
    std::thread::sleep(std::time::Duration::from_secs(4));
    for name in ["slow", "later"] {
        assert!(
            !scene.path(&format!("peers/{name}.lived")).exists(),
            "{name}'s program ran on"
        );
    }
    peer(&scene, "mute", "sleep 600");
    let ended = run(&scene, "bench mlp-act --patience 0.2 --against mute");
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    assert!(ended.stderr.contains("no answer in 0.2 s"), "{}", ended.stderr);
}

#[test]
fn what_is_not_there_is_named_with_what_is() {
    let scene = Scene::new();
    for (line, words) in [
        ("bench mlp", ["\"mlp\"", "mlp-rl"]),
        ("bench mlp-rl/rmsprop", ["rmsprop", "mlp-rl/adam"]),
        ("bench ppo", ["ppo", "mlp-act"]),
        ("bench build", ["cargo", "cargo xtask bench build"]),
        ("bench memory/cnn", ["cnn", "memory/resnet"]),
        ("bench mlp-act --backend gpu", ["\"gpu\"", "cpu"]),
        ("bench mlp-act --json none/figures.json", ["none", "path"]),
    ] {
        scene.fails(line, &words);
    }
    let ended = run(&scene, "bench mlp-act --against jaxx");
    assert_eq!(ended.code, Some(1));
    for words in [
        "\"jaxx\"",
        "none is set up",
        "\n  fix: ",
        "cargo xtask bench",
        "POLYGRAD_PEERS",
    ] {
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
}

#[test]
#[cfg(unix)]
fn a_peer_that_says_something_else_is_refused() {
    let scene = Scene::new();
    peer(&scene, "odd", "echo hello");
    peer(&scene, "mute", "exit 3");
    for (name, words) in [
        ("odd", "\"hello\""),
        ("mute", "exit status: 3"),
        ("more", "there are mute, odd"),
    ] {
        let ended = run(&scene, &format!("bench mlp-act --against {name}"));
        assert_eq!(ended.code, Some(1), "{}", ended.stdout);
        assert!(
            ended.stderr.contains(words) && ended.stderr.contains("\n  fix: "),
            "{}",
            ended.stderr
        );
    }
}
