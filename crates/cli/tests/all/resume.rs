//! A resumed run gives the same result as an uninterrupted one.

use std::fs;
#[cfg(unix)]
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{self, Scene};

const OPTIONS: &str = "--model mlp --batch-size 5 --lr 0.003";

/// Starts a training run, waits until a row of metrics fulfils `reached`, and presses Ctrl-C.
#[cfg(unix)]
fn interrupt(scene: &Scene, line: &str, run: &str, reached: impl Fn(&str) -> bool) -> common::Ended {
    let mut child = common::heeding_ctrl_c(scene.command(line)).spawn().unwrap();
    let (metrics, started) = (scene.path(run).join("metrics.csv"), Instant::now());
    while !fs::read_to_string(&metrics)
        .unwrap_or_default()
        .lines()
        .skip(1)
        .any(&reached)
    {
        if child.try_wait().unwrap().is_some() || started.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            let ended: common::Ended = child.wait_with_output().unwrap().into();
            panic!("it never got there: {}{}", ended.stdout, ended.stderr);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    common::press_ctrl_c(&child);
    child.wait_with_output().unwrap().into()
}

#[cfg(unix)]
#[test]
fn ctrl_c_leaves_a_checkpoint_and_resuming_gives_the_same_run() {
    let scene = Scene::new();
    let options = "--model cnn --batch-size 2 --epochs 8";
    let line = format!("train bars --data data --threads 1 --out stopped {options}");
    let ended = interrupt(&scene, &line, "stopped", |row| row.contains(",train,"));
    assert_eq!(ended.code, Some(130), "{}{}", ended.stdout, ended.stderr);
    assert!(
        ended.stderr.contains("polygrad train --resume stopped"),
        "{}",
        ended.stderr
    );
    let before = scene.metrics("stopped").len();
    assert!(before < 80, "it was already over");
    assert!(scene.ok("eval stopped").contains("accuracy"));

    let ended = interrupt(&scene, "train --resume stopped", "stopped", |row| {
        row.split(',')
            .next()
            .unwrap()
            .parse::<u32>()
            .is_ok_and(|step| step >= 150)
    });
    assert_eq!(ended.code, Some(130), "{}{}", ended.stdout, ended.stderr);
    assert!(scene.metrics("stopped").len() > before);

    scene.ok("train --resume stopped");
    scene.train("whole", options);
    scene.same("stopped", "whole");
}

#[cfg(unix)]
#[test]
fn a_run_in_the_background_ignores_ctrl_c() {
    let scene = Scene::new();
    let line = format!(
        "trap '' INT; {} train bars --data data --out run --model mlp --epochs 1 & kill -INT $!; wait $!",
        env!("CARGO_BIN_EXE_polygrad")
    );
    let status = Command::new("sh")
        .args(["-c", &line])
        .current_dir(scene.path(""))
        .output()
        .unwrap();
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    assert!(scene.path("run/model.safetensors").is_file());
}

#[test]
fn a_killed_run_goes_on_from_its_last_checkpoint() {
    let scene = Scene::new();
    let options = "--model mlp --batch-size 1 --epochs 6";
    let mut child = scene
        .command(&format!("train bars --data data --threads 1 --out killed {options}"))
        .spawn()
        .unwrap();
    let metrics = scene.path("killed/metrics.csv");
    let started = Instant::now();
    while fs::read_to_string(&metrics).unwrap_or_default().lines().count() < 30 {
        assert!(started.elapsed() < Duration::from_secs(60), "too slow");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    scene.ok("train --resume killed");
    scene.train("whole", options);
    scene.same("killed", "whole");
}

#[test]
fn more_epochs_train_on_and_other_settings_are_refused() {
    let scene = Scene::new();
    scene.train("run", &format!("{OPTIONS} --epochs 2"));
    let out = scene.ok("train --resume run");
    assert!(out.contains("this run is complete"), "{out}");
    let out = scene.ok("train bars --resume run --epochs 3 --lr 0.003");
    assert!(
        out.contains("epochs: 3 instead of 2") && out.contains("epoch 3/3"),
        "{out}"
    );
    assert!(!out.contains("epoch 2/3"), "{out}");
    let tests = scene.metrics("run").iter().filter(|row| row.contains(",test,")).count();
    assert_eq!(tests, 3);
    scene.fails(
        "train --resume run --lr 0.1 --seed 4 --epochs 2",
        &[
            "--lr is 0.003 there, not 0.1",
            "--seed is 0 there, not 4",
            "--epochs is 3 there, not 2",
        ],
    );
}

#[test]
fn another_data_set_is_refused_and_a_moved_one_is_not() {
    let scene = Scene::new();
    scene.train("run", &format!("{OPTIONS} --epochs 1"));
    fs::rename(scene.path("data"), scene.path("moved")).unwrap();
    scene.fails("train --resume run --epochs 2", &["cannot read the folder", "data"]);
    scene.ok("train --resume run --epochs 2 --data moved");
    let mut images = scene.read("moved/train-images-idx3-ubyte");
    images[100] ^= 1;
    scene.write("moved/train-images-idx3-ubyte", &images);
    scene.fails(
        "train --resume run --epochs 3",
        &["not the images that run was trained on"],
    );
}

#[test]
fn a_damaged_checkpoint_is_named() {
    let scene = Scene::new();
    scene.train("run", &format!("{OPTIONS} --epochs 1"));
    let whole = scene.read("run/checkpoint.safetensors");
    scene.write("run/checkpoint.safetensors", &whole[..whole.len() / 2]);
    scene.fails("train --resume run --epochs 2", &["checkpoint.safetensors"]);
    scene.write("run/checkpoint.safetensors", &scene.read("run/model.safetensors"));
    scene.fails(
        "train --resume run --epochs 2",
        &["checkpoint.safetensors", "no state of a run"],
    );
    let text = scene.fails("train --resume run --epochs 2", &["start a new run without --resume"]);
    assert!(!text.contains("StateDict"), "{text}");
    fs::remove_file(scene.path("run/checkpoint.safetensors")).unwrap();
    scene.fails("train --resume run --epochs 2", &["has no checkpoint"]);
    scene.write("run/checkpoint.safetensors", &whole);
    let config = String::from_utf8(scene.read("run/config.json")).unwrap();
    scene.write(
        "run/config.json",
        config.replace("\"seed\": 0", "\"seed\": 1").as_bytes(),
    );
    scene.fails(
        "train --resume run --epochs 2",
        &["seed is 0 in the checkpoint, 1 in config.json"],
    );
}

#[test]
fn files_of_another_run_are_refused() {
    let scene = Scene::new();
    let options = format!("{OPTIONS} --epochs 1");
    for run in ["a", "b", "c"] {
        scene.train(run, &options);
    }
    let resume = |run: &str| format!("train --resume {run} --epochs 2");
    // The same settings, but other rows.
    let metrics = String::from_utf8(scene.read("a/metrics.csv")).unwrap();
    scene.write("a/metrics.csv", metrics.replace(",train,0.", ",train,1.").as_bytes());
    scene.fails(
        &resume("a"),
        &["a/metrics.csv is not that of the checkpoint", "others", "move it away"],
    );
    scene.write("b/checkpoint.safetensors", &scene.read("c/checkpoint.safetensors"));
    scene.fails(&resume("b"), &["run is ", " in the checkpoint", "restore config.json"]);
    assert_eq!(
        scene.metrics("b").len(),
        scene.metrics("c").len(),
        "it was changed all the same"
    );
    scene.ok(&resume("c"));
}

#[test]
fn lost_metrics_are_told() {
    let scene = Scene::new();
    scene.train("run", &format!("{OPTIONS} --epochs 1"));
    let rows = scene.metrics("run").len() - 1;
    fs::remove_file(scene.path("run/metrics.csv")).unwrap();
    let ended = scene.run("train --resume run --epochs 2");
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let words = format!("run/metrics.csv is gone, and with it {rows} rows");
    assert!(ended.stderr.contains(&words), "{}", ended.stderr);
    assert_eq!(scene.run("train --resume run --epochs 3").stderr, "");
}

#[test]
fn lost_settings_are_those_of_the_checkpoint() {
    let scene = Scene::new();
    scene.train("run", &format!("{OPTIONS} --epochs 1"));
    let config = scene.read("run/config.json");
    fs::remove_file(scene.path("run/config.json")).unwrap();
    scene.fails("eval run", &["has lost its config.json", "--resume run"]);
    let ended = scene.run("train --resume run");
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("config.json is gone"), "{}", ended.stderr);
    assert_eq!(scene.read("run/config.json"), config);
}
