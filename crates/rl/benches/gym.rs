//! Steps per second of Gymnasium's environments, here and in Gymnasium's own vector environments, in turns:
//! `cargo bench -p polygrad-rl --bench gym`, with `POLYGRAD_PYTHON` as for the tests.

use std::process::Command;
use std::time::{Duration, Instant};

use polygrad_rl::zoo::{self, Stepping};
use polygrad_rl::{Rng, Space, StepBuffers, VectorEnv};

const ENVS: usize = 8;
const TURNS: usize = 5;
const SECONDS: f64 = 1.0;

/// Prints the steps per second of all environments.
const THEIRS: &str = "
import sys, time, gymnasium
name, envs, mode, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
def main():
    vector = gymnasium.make_vec(name, num_envs=envs, vectorization_mode=mode)
    vector.reset(seed=0)
    vector.action_space.seed(0)
    actions = [vector.action_space.sample() for _ in range(64)]
    for action in actions:
        vector.step(action)
    begun, steps = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        for action in actions:
            vector.step(action)
        steps += len(actions) * envs
    print(steps / (time.perf_counter() - begun))
    vector.close()
if __name__ == '__main__':
    main()
";

fn theirs(name: &str, mode: &str) -> f64 {
    let python = std::env::var("POLYGRAD_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut command = Command::new(python);
    command.args([
        "-W",
        "ignore",
        "-c",
        THEIRS,
        name,
        &ENVS.to_string(),
        mode,
        &SECONDS.to_string(),
    ]);
    let output = command.output().expect("a Python that starts");
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim()
        .parse()
        .expect("a Python with gymnasium, as POLYGRAD_PYTHON names it")
}

fn ours(name: &str, stepping: Stepping) -> f64 {
    let mut envs = zoo::find(&format!("gym:{name}")).unwrap().make(ENVS, stepping).unwrap();
    let mut rng = Rng::new(0);
    let space: Space = envs.action_space().clone();
    let actions: Vec<Vec<f32>> = (0..64)
        .map(|_| {
            let mut actions = vec![0.0; ENVS * space.len()];
            actions
                .chunks_mut(space.len())
                .for_each(|action| space.sample(&mut rng, action));
            actions
        })
        .collect();
    let mut buffers = StepBuffers::new(&envs);
    envs.reset(0, &mut buffers.observations).unwrap();
    let mut round = || {
        for actions in &actions {
            envs.step(actions, &mut buffers.as_mut()).unwrap();
        }
    };
    round();
    let (begun, mut steps) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs_f64(SECONDS) {
        round();
        steps += 64 * ENVS;
    }
    steps as f64 / begun.elapsed().as_secs_f64()
}

fn main() {
    println!("steps a second of {ENVS} environments, medians of {TURNS} turns of {SECONDS} s");
    for name in ["CartPole-v1", "Pendulum-v1", "Acrobot-v1"] {
        let kinds: [(&str, &dyn Fn() -> f64); 4] = [
            ("ours, 1 process", &|| ours(name, Stepping::Serial)),
            ("ours, 2 processes", &|| ours(name, Stepping::Threaded(2))),
            ("Gymnasium, sync", &|| theirs(name, "sync")),
            ("Gymnasium, async", &|| theirs(name, "async")),
        ];
        let mut found = vec![Vec::new(); kinds.len()];
        for _ in 0..TURNS {
            kinds
                .iter()
                .zip(&mut found)
                .for_each(|((_, run), found)| found.push(run()));
        }
        for ((kind, _), found) in kinds.iter().zip(&mut found) {
            found.sort_by(f64::total_cmp);
            println!("{name:<12} {kind:<18} {:>8.0}", found[TURNS / 2]);
        }
    }
}
