//! A policy learns from recorded play, and a smaller one from that policy.

use crate::common::Scene;

/// The mean return printed by `eval`.
fn mean(scene: &Scene, run: &str) -> f64 {
    let text = scene.ok(&format!("eval {run} --episodes 40"));
    let line = text.lines().find_map(|line| line.strip_prefix("mean return "));
    line.unwrap().split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn recorded_play_teaches_a_policy_and_it_a_smaller_one() {
    let scene = Scene::new();
    scene.ok("train cartpole --seed 1 --threads 1 --out expert");
    scene.ok("play expert --episodes 5 --seed 9 --sample --record first.json");
    scene.ok("play expert --episodes 5 --seed 10 --sample --record second.json");
    let files = "--demonstrations first.json --demonstrations second.json";
    let bc = format!("train cartpole --algorithm bc {files} --threads 1 --set ent_weight=0.002");
    let told = scene.ok(&format!("{bc} --total-steps 51200 --out whole"));
    assert!(told.contains("with BC, 512 steps an iteration"), "{told}");
    let found = mean(&scene, "whole");
    assert!(found >= 475.0, "{found}");
    // In two parts the result is the same.
    scene.ok(&format!("{bc} --total-steps 10240 --out parts"));
    scene.ok("train --resume parts --total-steps 51200");
    scene.same("whole", "parts");
    assert!(scene.ok("export whole --onnx whole.onnx").contains("gives logits\n"));

    let small = "train cartpole --algorithm distill --teacher whole --threads 1 --set policy.encoder.mlp.hidden=[16]";
    let told = scene.ok(&format!("{small} --total-steps 51200 --out small"));
    assert!(told.contains("mlp of 114 parameters with distillation"), "{told}");
    let found = mean(&scene, "small");
    assert!(found >= 475.0, "{found}");
}

#[test]
fn what_nothing_can_be_learnt_from_is_told() {
    let scene = Scene::new();
    scene.ok("train cartpole --total-steps 1 --threads 1 --out run");
    scene.ok("train acrobot --total-steps 1 --threads 1 --out other");
    scene.ok("play run --record play.json");
    let changed = String::from_utf8(scene.read("play.json")).unwrap();
    scene.write("changed.json", changed.replace("\"seed\":0", "\"seed\":1").as_bytes());
    scene.write("none.json", b"{}");
    let bc = "train cartpole --out new --algorithm bc";
    let distill = "train cartpole --out new --algorithm distill";
    for (line, parts) in [
        (
            bc.to_owned(),
            &["bc needs something to learn from", "--demonstrations"][..],
        ),
        (
            distill.to_owned(),
            &["distill needs something to learn from", "--teacher"],
        ),
        (format!("{bc} --teacher run"), &["bc needs something to learn from"]),
        (
            "train cartpole --out new --demonstrations play.json".to_owned(),
            &["--demonstrations is for bc, and ppo learns", "--algorithm bc"],
        ),
        (
            format!("{distill} --teacher run --demonstrations play.json"),
            &["--demonstrations is for bc, and distill learns"],
        ),
        (format!("{bc} --demonstrations gone.json"), &["gone.json"]),
        (
            format!("{bc} --demonstrations none.json"),
            &["none.json is no replay file"],
        ),
        (
            format!("{bc} --demonstrations changed.json"),
            &["episode 1, step 0: observations or rewards are others"],
        ),
        (
            "train acrobot --out new --algorithm bc --demonstrations play.json".to_owned(),
            &["play.json is of cartpole, and not of acrobot"],
        ),
        (
            format!("{distill} --teacher other"),
            &["other is of acrobot, and not of cartpole"],
        ),
        (format!("{distill} --teacher gone"), &["gone is no folder"]),
        (
            format!("{bc} --demonstrations play.json --policy lstm"),
            &["its network remembers nothing"],
        ),
        (
            format!("{bc} --demonstrations play.json --set batch_size=0"),
            &["batch_size is not at least 1"],
        ),
        (
            format!("{bc} --demonstrations play.json --preset zoo"),
            &["no settings of bc called \"zoo\"", "there are: bc own"],
        ),
    ] {
        let ended = scene.fails(&line, parts);
        assert!(!ended.contains("panicked"), "{ended}");
    }
    scene.ok(&format!(
        "{bc} --demonstrations play.json --total-steps 1024 --threads 1"
    ));
    scene.ok("play run --seed 3 --record play.json");
    scene.fails(
        "train --resume new --total-steps 2048",
        &["by other demonstrations, or another teacher"],
    );
}
