//! Steps per second: `cargo bench -p polygrad-rl --bench steps`.
//!
//! 64 environments of a kind, one thread, through the public traits with time limits and resets, the fastest of many short runs, so that
//! other load on the machine counts as little as possible. At the end, what it costs to wake a second thread for every step.

use std::time::Instant;

use polygrad_rl::{
    Acrobot, CartPole, Env, GridWorld, MountainCar, MountainCarContinuous, Pendulum, Rng, StepBuffers, TMaze,
    TimeLimit, VectorEnv, Vectorized,
};

const ENVS: usize = 64;
const RUNS: usize = 200;
const STEPS: usize = 200;

fn measure<E: Env<A>, const A: usize>(name: &str, make: impl Fn() -> E) -> polygrad_core::Result<()> {
    let mut envs = Vectorized::new(|_| make(), ENVS)?;
    let mut buffers = StepBuffers::new(&envs);
    envs.reset(0, &mut buffers.observations)?;
    let width = ENVS * envs.action_space().len();
    let mut actions = vec![0.0; width * STEPS];
    let mut rng = Rng::new(1);
    for action in actions.chunks_mut(envs.action_space().len()) {
        envs.action_space().sample(&mut rng, action);
    }
    let mut times = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let start = Instant::now();
        for actions in actions.chunks(width) {
            envs.step(actions, &mut buffers.as_mut())?;
        }
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    let millions = |seconds: f64| (ENVS * STEPS) as f64 / seconds / 1e6;
    let (fastest, median) = (millions(times[0]), millions(times[RUNS / 2]));
    println!("{name:<24} {fastest:>6.1} M steps/s  (median {median:>6.1})");
    Ok(())
}

fn main() -> polygrad_core::Result<()> {
    measure("CartPole-v1", CartPole::v1)?;
    measure("Acrobot-v1", Acrobot::v1)?;
    measure("MountainCar-v0", MountainCar::v0)?;
    measure("MountainCarContinuous-v0", MountainCarContinuous::v0)?;
    measure("Pendulum-v1", Pendulum::v1)?;
    let maze = TimeLimit::new(TMaze::new(10)?, 100);
    measure("TMaze", || maze.clone())?;
    let world = TimeLimit::new(GridWorld::new(8)?, 100);
    measure("GridWorld", || world.clone())?;
    waking()
}

/// Two environments in two threads, a step of which is nothing beside waking one.
fn waking() -> polygrad_core::Result<()> {
    let mut envs = Vectorized::threaded(|_| CartPole::v1(), 2, 2)?;
    let mut buffers = StepBuffers::new(&envs);
    envs.reset(0, &mut buffers.observations)?;
    let mut times = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let start = Instant::now();
        for step in 0..STEPS {
            envs.step(&[(step % 2) as f32; 2], &mut buffers.as_mut())?;
        }
        times.push(start.elapsed().as_secs_f64() / STEPS as f64 * 1e6);
    }
    times.sort_by(f64::total_cmp);
    println!(
        "{:<24} {:>6.1} µs a step  (median {:>6.1})",
        "a second thread",
        times[0],
        times[RUNS / 2]
    );
    Ok(())
}
