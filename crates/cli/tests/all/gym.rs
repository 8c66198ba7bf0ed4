//! Policies learn in Gymnasium's environments, in Python. Skipped unless `POLYGRAD_PYTHON` names it, as `cargo xtask
//! test` does.

use std::fs;

use crate::common::Scene;

/// A rocket that is to land softly. It fails at step `fails`, but only once if there is a file of this name.
const LANDER: &str = "
import pathlib
import gymnasium
import numpy as np

class Lander(gymnasium.Env):
    observation_space = gymnasium.spaces.Dict(
        height=gymnasium.spaces.Box(-np.inf, np.inf), speed=gymnasium.spaces.Box(-np.inf, np.inf))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, fails=0, once=None):
        self.fails, self.once = fails, once and pathlib.Path(once)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.height, self.speed, self.steps = 3 + self.np_random.uniform(), 0.0, 0
        return self.seen(), {}

    def seen(self):
        return dict(height=np.array([self.height], np.float32), speed=np.array([self.speed], np.float32))

    def step(self, action):
        self.steps += 1
        if self.steps == self.fails and not (self.once and self.once.exists()):
            if self.once:
                self.once.touch()
            raise RuntimeError('the engine burst')
        self.speed += 0.1 if action == 1 else -0.1
        self.height += self.speed
        landed = self.height <= 0
        return self.seen(), 1 - abs(self.speed) if landed else 0.0, landed, False, {}
";

fn scene() -> Option<Scene> {
    if std::env::var_os("POLYGRAD_PYTHON").is_none_or(|python| python.is_empty()) {
        let strict = std::env::var_os("CI").is_some_and(|value| value == "true");
        assert!(!strict, "under CI nothing may be skipped");
        eprintln!("skipped, POLYGRAD_PYTHON names no Python with gymnasium");
        return None;
    }
    let scene = Scene::new();
    scene.write("lander.py", LANDER.as_bytes());
    Some(scene)
}

const TRAIN: &str = "train gym:lander.py:Lander --threads 1 --env-arg max_episode_steps=40 --total-steps 1024";

#[test]
fn an_environment_in_a_file_is_used_as_any() {
    let Some(scene) = scene() else { return };
    let text = scene.ok(&format!("{TRAIN} --env-threads 2 --env-timeout 50"));
    assert!(
        text.contains("gym:lander.py:Lander: an environment of Gymnasium 1."),
        "{text}"
    );
    let run = "runs/gym-lander.py-Lander-mlp-1";
    let config = String::from_utf8(scene.read(&format!("{run}/config.json"))).unwrap();
    for part in [
        "\"max_episode_steps\": 40",
        "\"timeout\": 50.0",
        "\"environment\": \"gym:lander.py:Lander\"",
    ] {
        assert!(config.contains(part), "{config}");
    }
    let text = scene.ok(&format!("eval {run} --episodes 4"));
    assert!(
        text.contains("4 episodes of gym:lander.py:Lander") && text.contains("mean return "),
        "{text}"
    );
    let text = scene.ok(&format!("play {run} --record episode.json"));
    let replayed = scene.ok("play --replay episode.json");
    assert_eq!(
        text.lines()
            .skip(1)
            .filter(|line| !line.starts_with("recorded"))
            .collect::<Vec<_>>(),
        replayed.lines().skip(1).collect::<Vec<_>>()
    );
    assert!(text.contains("episode 1; height 3."), "{text}");
    assert!(
        text.contains("; height ") && text.contains(", speed 0.0000\n"),
        "{text}"
    );
    scene.fails(
        &format!("play {run} --apng film.png"),
        &["cannot be drawn: ", "rgb_array"],
    );
    scene.ok(&format!("export {run} --onnx lander.onnx"));
    let file = scene.read("lander.onnx");
    for part in [&b"gym:lander.py:Lander"[..], b"height\nspeed"] {
        assert!(file.windows(part.len()).any(|window| window == part));
    }
    let ended = scene.run(&format!("train --resume {run} --total-steps 2048 --env-failures 2"));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let told = "where the environments stood cannot be saved";
    assert!(ended.stderr.contains(told), "{}", ended.stderr);
    scene.fails(
        &format!("train --resume {run} --python nowhere"),
        &["nowhere cannot be started"],
    );
    fs::remove_file(scene.path("lander.py")).unwrap();
    scene.fails(&format!("eval {run}"), &["there is no file lander.py"]);
}

#[test]
fn an_environment_that_fails_is_told_of() {
    let Some(scene) = scene() else { return };
    let ended = scene.run(&format!("{TRAIN} --env-arg fails=3 --env-arg once=marker --out once"));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let told = format!("{}{}", ended.stdout, ended.stderr);
    for words in [
        "environments 0 to 3 of gym:lander.py:Lander raised RuntimeError: the engine burst, at ",
        "it begins new episodes in a new process (failure 1 of 3)",
        // Python's own messages.
        "Traceback (most recent call last):",
    ] {
        assert!(told.contains(words), "{told}");
    }
    let text = scene.run(&format!("{TRAIN} --env-arg fails=3 --out often")).stderr;
    for words in [
        "error: the process of environments 0 to 3 of gym:lander.py:Lander raised RuntimeError: the engine burst",
        "fix: look at the environment",
        "go on from the last checkpoint: polygrad train --resume often",
    ] {
        assert!(text.contains(words), "{text}");
    }
    assert!(scene.path("often/checkpoint.safetensors").exists());
}

#[test]
fn what_there_is_not_is_told() {
    let scene_of_python = scene();
    let scene = Scene::new();
    scene.fails(
        "train cartpole --python python3",
        &["--python is for environments of Gymnasium, and cartpole is none"],
    );
    scene.fails(
        "train gym:X-v0 --env-arg wide",
        &["--env-arg wide says no value", "KEY=VALUE"],
    );
    scene.fails("train gym:X-v0 --env-timeout 0", &["a timeout of 0 s makes no sense"]);
    scene.fails(
        "train gym:X-v0 --python nowhere",
        &["nowhere cannot be started", "--python or POLYGRAD_PYTHON"],
    );
    assert!(scene.ok("list").contains("polygrad train gym:ID, "));
    let Some(scene) = scene_of_python else { return };
    scene.fails(
        "train gym:Nowhere-v0",
        &["Environment `Nowhere` doesn't exist", "gym:FILE.py:CLASS"],
    );
    scene.fails(
        "train gym:Pendulum-v1 --algorithm dqn",
        &["there are no settings of dqn for gym:Pendulum-v1"],
    );
    scene.fails(
        "train gym:lander.py:Lander --algorithm sac",
        &["there are: ppo cleanrl, dqn cleanrl"],
    );
    assert!(!scene.path("runs").exists());
}
