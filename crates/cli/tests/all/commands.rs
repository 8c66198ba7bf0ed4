//! The commands on valid input: train, eval, predict, devices.

use crate::common::{Scene, image, png};

#[test]
fn train_eval_and_predict() {
    let scene = Scene::new();
    for model in ["mlp", "cnn"] {
        let out = scene.train(model, &format!("--model {model} --epochs 3 --batch-size 16 --lr 0.01"));
        assert!(
            out.contains("96 training and 40 test images of 8 × 8, 4 classes"),
            "{out}"
        );
        assert!(
            out.contains("epoch 3/3") && out.contains("test accuracy 100.00 %"),
            "{out}"
        );
        for file in [
            "config.json",
            "model.safetensors",
            "checkpoint.safetensors",
            "metrics.csv",
            "events.out.tfevents.polygrad",
            "curves.png",
        ] {
            assert!(scene.path(model).join(file).is_file(), "no {file}");
        }
        let rows = scene.metrics(model);
        assert_eq!(rows.iter().filter(|row| row.contains(",test,")).count(), 3);
        assert!(rows.last().unwrap().starts_with("18,3.0000,test,"), "{rows:?}");

        let out = scene.ok(&format!("eval {model}"));
        assert!(
            out.contains("40 test images of bars") && out.contains("accuracy 100.00 %"),
            "{out}"
        );
        assert_eq!(out.lines().filter(|line| line.contains("100.0 %")).count(), 4, "{out}");
        let row = out.lines().last().unwrap();
        assert_eq!(
            row.split_whitespace().collect::<Vec<_>>(),
            ["3", "0", "0", "0", "10"],
            "{out}"
        );

        for class in 0..4 {
            let file = format!("{class}.png");
            png(&scene.path(&file), 8, &image(class, 77));
            let out = scene.ok(&format!("predict {model} {file}"));
            let lines: Vec<_> = out.lines().collect();
            assert!(lines.len() == 4 && lines[0].ends_with(&format!("%  {class}")), "{out}");
            let sum: f64 = lines
                .iter()
                .map(|line| line.split_whitespace().next().unwrap().parse::<f64>().unwrap())
                .sum();
            assert!((sum - 100.0).abs() < 0.03, "{out}");
        }
    }
}

#[test]
fn predict_says_when_a_picture_looks_inverted() {
    let scene = Scene::new();
    scene.train("run", "--model mlp --epochs 2 --batch-size 16");
    let negative: Vec<u8> = image(2, 5).into_iter().map(|v| 255 - v).collect();
    png(&scene.path("negative.png"), 8, &negative);
    assert!(scene.run("predict run negative.png").stderr.contains("add --invert"));
    let ended = scene.run("predict run negative.png --invert");
    assert!(
        ended.stdout.lines().next().unwrap().ends_with("%  2") && ended.stderr.is_empty(),
        "{}",
        ended.stdout
    );
}

#[test]
fn one_seed_gives_one_run_whatever_the_optimizer() {
    let scene = Scene::new();
    for optimizer in ["sgd", "adam", "adamw", "rmsprop"] {
        let options = format!("--model mlp --epochs 1 --batch-size 16 --optimizer {optimizer}");
        scene.train(&format!("{optimizer}-a"), &options);
        scene.train(&format!("{optimizer}-b"), &options);
        scene.train(&format!("{optimizer}-c"), &format!("{options} --seed 1"));
        let [a, b, c] = ["a", "b", "c"].map(|run| scene.metrics(&format!("{optimizer}-{run}")));
        assert_eq!(a, b);
        assert_ne!(a, c);
    }
}

#[test]
fn without_a_terminal_lines_are_plain() {
    let scene = Scene::new();
    let ended = scene.run("train bars --data data --model mlp --epochs 2 --batch-size 16");
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(
        ended
            .stdout
            .lines()
            .any(|line| line.starts_with("epoch 2/2  train loss")),
        "{}",
        ended.stdout
    );
    assert!(
        ended.stdout.contains("run folder: runs/bars-mlp-1\n"),
        "{}",
        ended.stdout
    );
    for text in [ended.stdout, ended.stderr] {
        assert!(!text.contains(['\x1b', '\r']), "{text:?}");
    }
}

#[test]
fn devices_are_listed_with_their_dtypes() {
    let out = Scene::new().ok("devices");
    let lines: Vec<_> = out.lines().collect();
    assert!(lines[0].starts_with("cpu: "), "{out}");
    assert!(
        lines[1].contains("thread") && lines[1].contains("kernels: scalar, simd"),
        "{out}"
    );
    assert!(lines[2].contains("dtypes: ") && lines[2].contains("bf16"), "{out}");
}

#[test]
fn devices_explains_what_auto_chooses() {
    let scene = Scene::new();
    let out = scene.ok("devices --explain");
    assert!(out.lines().any(|line| line == "cpu: chosen"), "{out}");
    let out = scene.ok("devices --explain auto:dtype=f64");
    assert!(out.contains(": chosen"), "{out}");
    scene.fails("devices --explain auto:dtype=f12", &["no dtype \"f12\"", "bf16"]);
    scene.fails("devices --explain cpu", &["it is not auto that chooses here"]);
}

#[test]
fn a_closed_pipe_does_not_stop_training() {
    let scene = Scene::new();
    let mut child = scene
        .command("train bars --data data --model mlp --epochs 2 --batch-size 16 --out run")
        .spawn()
        .unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(scene.path("run/model.safetensors").is_file());
}

/// If cargo runs the command, the same command runs with another feature; a standalone program says how to build it.
#[cfg(all(unix, not(feature = "serve")))]
#[test]
fn a_command_of_another_build_is_built_where_cargo_runs_this_one() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new();
    scene.fails(
        "serve model.onnx --port 1",
        &[
            "`polygrad serve` is not in this build",
            "--features serve -- serve model.onnx --port 1",
        ],
    );
    let cargo = scene.path("cargo");
    std::fs::write(&cargo, "#!/bin/sh\nprintf '<%s>' \"$@\"\nexit 7\n").unwrap();
    std::fs::set_permissions(&cargo, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = scene.command("serve model.onnx --port 1");
    command
        .env("CARGO", &cargo)
        .env("CARGO_PKG_NAME", "polygrad-cli")
        .env("CARGO_MANIFEST_PATH", "/x/Cargo.toml");
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert!(said.starts_with("<run><--manifest-path></x/Cargo.toml>"), "{said}");
    assert!(said.ends_with("<--><serve><model.onnx><--port><1>"), "{said}");
    let features = said.split("<--features><").nth(1).unwrap().split('>').next().unwrap();
    for feature in ["cpu", "lab", "onnx", "serve"] {
        assert!(features.split(',').any(|name| name == feature), "{feature}: {said}");
    }
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("`polygrad serve` needs the feature `serve`"),
        "{stderr}"
    );
}
