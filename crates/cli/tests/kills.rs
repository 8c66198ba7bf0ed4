//! No kill at any moment loses a run: each is resumed or restarted, and ends as if it had never been stopped.
//!
//! `POLYGRAD_KILLS` is the number of runs to kill, `POLYGRAD_KILLS_SEED` the seed of the random moments.
#![cfg(unix)]

mod common;

use std::fs;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{Ended, Scene, heeding_ctrl_c};

/// The commands that start runs, without the folder at the end.
const IMAGES: &str = "train bars --data data --threads 1 --model mlp --batch-size 4 --epochs 3 --out";
const QAT: &str = "train bars --qat --data data --threads 1 --model mlp --batch-size 4 --epochs 3 --out";
const POLICY: &str = "train mountain-car --threads 1 --total-steps 50000 --out";
const DQN: &str = "train cartpole --algorithm dqn --preset cleanrl --set learning_starts=500 --set n_step=3 \
                   --set prioritized={} --threads 1 --total-steps 20000 --out";
const SAC: &str = "train pendulum --algorithm sac --set learning_starts=200 --set batch_size=32 \
                   --set policy.encoder.mlp.hidden=[32,32] --threads 1 --total-steps 4000 --out";
const TD3: &str =
    "train mountain-car-continuous --algorithm td3 --set batch_size=32 --threads 1 --total-steps 4000 --out";
const PQN: &str = "train cartpole --algorithm pqn --threads 1 --total-steps 20480 --out";
const SELF_PLAY: &str = "train tic-tac-toe --threads 1 --envs 8 --total-steps 30000 --set num_steps=32 \
                         --set policy.encoder.mlp.hidden=[16] --set self_play.snapshots=2 \
                         --set self_play.snapshot_every=4000 --out";

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Ends a command as the system does when memory is short.
fn kill(child: &mut Child) {
    // It may have ended by itself.
    let _ = child.kill();
}

/// Ends a command as an impatient user does: Ctrl-C, and again after `gap`.
fn ctrl_c_twice(child: &Child, gap: Duration) {
    let (id, gap) = (child.id(), gap.as_secs_f64());
    let line = format!("kill -INT {id} && sleep {gap} && kill -INT {id}");
    Command::new("sh").args(["-c", &line]).output().unwrap();
}

#[test]
fn every_killed_run_ends_as_if_it_had_not_been_killed() {
    survives(IMAGES, &[""], number("POLYGRAD_KILLS", 20));
}

#[test]
fn so_does_every_run_for_8_bits() {
    survives(QAT, &[""], number("POLYGRAD_KILLS", 6));
}

/// A kill leaves the complete file or none.
#[test]
fn a_killed_quantization_leaves_nothing_in_pieces() {
    let scene = Scene::new();
    scene.ok(&format!("{QAT} run"));
    let started = Instant::now();
    scene.ok("quantize run --threads 1 --out whole.onnx");
    let whole = started.elapsed().as_micros() as u64;
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ number("POLYGRAD_KILLS_SEED", 1));
    for trial in 0..number("POLYGRAD_KILLS", 10) {
        let mut child = heeding_ctrl_c(scene.command("quantize run --threads 1 --out killed.onnx"))
            .spawn()
            .unwrap();
        let at = random.below(whole);
        sleep(Duration::from_micros(at));
        kill(&mut child);
        child.wait().unwrap();
        let file = scene.path("killed.onnx");
        if file.exists() {
            assert!(
                scene.read("killed.onnx") == scene.read("whole.onnx"),
                "trial {trial}: after {at} µs"
            );
        }
        scene.ok("quantize run --threads 1 --out killed.onnx");
        assert!(
            scene.read("killed.onnx") == scene.read("whole.onnx"),
            "trial {trial}: anew"
        );
        fs::remove_file(file).unwrap();
    }
}

#[test]
fn so_does_every_policy_however_its_environments_step() {
    let ways = ["", " --env-threads 2", " --async", " --async --env-threads 2"];
    survives(POLICY, &ways, number("POLYGRAD_KILLS", 6));
}

#[test]
fn so_does_what_learns_from_a_replay_buffer() {
    for start in [DQN, PQN, SAC, TD3] {
        survives(start, &[""], number("POLYGRAD_KILLS", 4));
    }
}

#[test]
fn so_does_what_plays_against_its_own_snapshots() {
    survives(SELF_PLAY, &[""], number("POLYGRAD_KILLS", 6));
}

/// The concatenated tensors of a checkpoint: weights, moments, and the transitions of a replay buffer. The part before
/// them differs by the run's name.
fn tensors(scene: &Scene, run: &str) -> Vec<u8> {
    let bytes = scene.read(&format!("{run}/checkpoint.safetensors"));
    let (length, rest) = bytes.split_first_chunk().unwrap();
    rest[u64::from_le_bytes(*length) as usize..].to_vec()
}

/// Kills runs that `start` begins. The parts of a run use the options in `ways` in turn.
fn survives(start: &str, ways: &[&str], count: u64) {
    let scene = Scene::new();
    let started = Instant::now();
    scene.ok(&format!("{start} whole"));
    let whole = started.elapsed().as_millis() as u64;
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ number("POLYGRAD_KILLS_SEED", 1));
    let (mut ended, mut early, mut anew) = (0, 0, 0);
    let start = format!("{start} killed");
    let mut ways = ways.iter().cycle();
    for trial in 0..count {
        // As a user would continue: resumes a run that has begun, else starts anew.
        let mut go_on = || {
            let way = ways.next().unwrap();
            match scene.path("killed/checkpoint.safetensors").exists() {
                true => format!("train --resume killed{way}"),
                false => format!("{start}{way}"),
            }
        };
        let mut story = format!("trial {trial}:");
        for _ in 0..=random.below(3) {
            let within = if random.below(2) == 0 { 200 } else { whole };
            let (at, gap) = (random.below(within * 1000), random.below(20));
            let twice = random.below(2) == 0;
            let line = go_on();
            story += &format!(
                " `{line}` ended after {at} µs{};",
                if twice { " by Ctrl-C" } else { "" }
            );
            let mut child = heeding_ctrl_c(scene.command(&line)).spawn().unwrap();
            sleep(Duration::from_micros(at));
            match twice {
                true => ctrl_c_twice(&child, Duration::from_millis(gap)),
                false => kill(&mut child),
            }
            let how: Ended = child.wait_with_output().unwrap().into();
            // By a signal, by the second or the first Ctrl-C, or normally before either arrived.
            assert!(
                matches!(how.code, None | Some(130 | 0)),
                "{story}\n{}{}",
                how.stdout,
                how.stderr
            );
            ended += u64::from(how.code != Some(0));
            early += u64::from(at < 200_000);
        }
        let line = go_on();
        anew += u64::from(line.starts_with(&start));
        let last = scene.run(&line);
        assert_eq!(last.code, Some(0), "{story} `{line}`\n{}{}", last.stdout, last.stderr);
        assert!(!last.stderr.contains("is gone"), "{story}\n{}", last.stderr);
        assert_eq!(scene.metrics("killed"), scene.metrics("whole"), "{story}");
        let model = |run: &str| scene.read(&format!("{run}/model.safetensors"));
        assert!(model("killed") == model("whole"), "{story} the weights differ");
        let same = tensors(&scene, "killed") == tensors(&scene, "whole");
        assert!(same, "{story} the checkpoints differ");
        let left = |run: &str| {
            let files = fs::read_dir(scene.path(run)).unwrap();
            let mut names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(left("killed"), left("whole"), "{story}");
        fs::remove_dir_all(scene.path("killed")).unwrap();
    }
    println!(
        "{count} runs: {ended} ended before their time, {early} of the moments within 200 ms; {anew} started anew"
    );
}
