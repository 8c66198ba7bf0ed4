//! Steps per second: `cargo bench -p polygrad-rl --bench steps`.
//!
//! 64 environments of a kind, one thread, through the public traits with time limits and resets. The fastest of many
//! short runs is reported, so that other load on the machine counts as little as possible. The last measurements are
//! the cost of waking a second thread for every step, and the time of a step when the policy computes as long as the
//! environments, one after the other and in two groups.

use std::time::{Duration, Instant};

use polygrad_rl::{
    Acrobot, CartPole, ConnectFour, Env, GridWorld, MountainCar, MountainCarContinuous, Pendulum, Rng, Space, Step,
    StepBuffers, TMaze, TimeLimit, VectorEnv, Vectorized,
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
    report(name, times);
    Ok(())
}

/// The same with masked actions. The time to choose them is not counted.
fn measure_masked<E: Env<A>, const A: usize>(name: &str, make: impl Fn() -> E) -> polygrad_core::Result<()> {
    let mut envs = Vectorized::new(|_| make(), ENVS)?;
    let mut buffers = StepBuffers::new(&envs);
    envs.reset(0, &mut buffers.observations)?;
    let space = envs.action_space().clone();
    let mut actions = vec![0.0; envs.rows() * space.len()];
    let mut rng = Rng::new(1);
    let mut times = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let mut time = 0.0;
        for _ in 0..STEPS {
            let masks = envs
                .action_masks()
                .into_iter()
                .flat_map(|masks| masks.chunks(space.flat_len()));
            for (action, mask) in actions.chunks_mut(space.len()).zip(masks) {
                space.sample_masked(mask, &mut rng, action);
            }
            let start = Instant::now();
            envs.step(&actions, &mut buffers.as_mut())?;
            time += start.elapsed().as_secs_f64();
        }
        times.push(time);
    }
    report(name, times);
    Ok(())
}

fn report(name: &str, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    let millions = |seconds: f64| (ENVS * STEPS) as f64 / seconds / 1e6;
    let (fastest, median) = (millions(times[0]), millions(times[RUNS / 2]));
    println!("{name:<24} {fastest:>6.1} M steps/s  (median {median:>6.1})");
}

fn report_step(name: &str, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    println!(
        "{name:<24} {:>6.1} µs a step  (median {:>6.1})",
        times[0],
        times[RUNS / 2]
    );
}

fn main() -> polygrad_core::Result<()> {
    measure("CartPole-v1", CartPole::v1)?;
    measure("Acrobot-v1", Acrobot::v1)?;
    measure("MountainCar-v0", MountainCar::v0)?;
    measure("MountainCarContinuous-v0", MountainCarContinuous::v0)?;
    measure("Pendulum-v1", Pendulum::v1)?;
    let maze = TimeLimit::new(TMaze::new(10)?, 100)?;
    measure("TMaze", || maze.clone())?;
    let world = TimeLimit::new(GridWorld::new(8)?, 100)?;
    measure("GridWorld", || world.clone())?;
    measure_masked("ConnectFour", ConnectFour::new)?;
    waking()?;
    overlapping()
}

/// Two environments in two threads, whose steps take almost no time compared with waking a thread.
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
    report_step("a second thread", times);
    Ok(())
}

/// Each step takes some microseconds.
struct Slow(Duration);

impl Env for Slow {
    fn observation_space(&self) -> Space {
        Space::boxed(&[0.0], &[1.0])
    }
    fn action_space(&self) -> Space {
        Space::discrete(2)
    }
    fn reset(&mut self, _rng: &mut Rng, observation: &mut [f32]) {
        observation[0] = 0.0;
    }
    fn step(&mut self, action: &[f32], _rng: &mut Rng, observation: &mut [f32]) -> Step {
        compute(self.0);
        observation[0] = action[0];
        Step::new(0.0, false)
    }
}

fn compute(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// 16 environments of 25 µs, and a policy that takes 25 µs for each row.
fn overlapping() -> polygrad_core::Result<()> {
    let each = Duration::from_micros(25);
    let mut serial = Vectorized::new(|_| Slow(each), 16)?;
    let mut apart = Vectorized::asynchronous(|_| Slow(each), 16, 1)?;
    let mut buffers = StepBuffers::new(&serial);
    let mut times = Vec::new();
    serial.reset(0, &mut buffers.observations)?;
    for _ in 0..RUNS {
        let start = Instant::now();
        compute(each * 16);
        serial.step(&[0.0; 16], &mut buffers.as_mut())?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    report_step("policy, then step", times);
    let mut times = Vec::new();
    apart.reset(0, &mut buffers.observations)?;
    for group in 0..2 {
        apart.begin_step(group, &[0.0; 8])?;
    }
    for _ in 0..RUNS {
        let start = Instant::now();
        for group in 0..2 {
            let rows = apart.group_rows(group);
            apart.finish_step(group, &mut buffers.as_mut().rows(rows))?;
            compute(each * 8);
            apart.begin_step(group, &[0.0; 8])?;
        }
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    report_step("in two groups", times);
    Ok(())
}
