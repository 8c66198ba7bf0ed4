//! Training that is asked to stop during a rollout stops there, and continues bit for bit.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use polygrad_rl::*;
use polygrad_tensor::{Device, manual_seed};
use polygrad_train::{Ended, Learner, Run, RunConfig, RunFolder, Summary};

const ENVS: u64 = 8;
const STEPS: u64 = 16;
/// Steps of the environments in an iteration.
const ITERATION: u64 = ENVS * STEPS;

/// What happens at which step, counted over all environments.
#[derive(Default)]
struct Plan {
    steps: AtomicU64,
    slow_at: u64,
    stop_at: u64,
    stop: Arc<AtomicBool>,
}

struct Planned<E>(E, Arc<Plan>);

impl<E: Env> Env for Planned<E> {
    fn observation_space(&self) -> Space {
        self.0.observation_space()
    }

    fn action_space(&self) -> Space {
        self.0.action_space()
    }

    fn reset(&mut self, rng: &mut Rng, observation: &mut [f32]) {
        self.0.reset(rng, observation);
    }

    fn step(&mut self, action: &[f32], rng: &mut Rng, observation: &mut [f32]) -> Step {
        let step = self.1.steps.fetch_add(1, Ordering::Relaxed) + 1;
        if step == self.1.slow_at {
            sleep(Duration::from_millis(1100));
        }
        if step == self.1.stop_at {
            self.1.stop.store(true, Ordering::Relaxed);
        }
        self.0.step(action, rng, observation)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Ppo,
    Asynchronous,
    Pqn,
}

fn learner(kind: Kind, plan: &Arc<Plan>) -> Box<dyn Learner> {
    let device: Device = Device::<polygrad_cpu::Cpu>::default().into_any();
    manual_seed(3);
    let make = |_| Planned(CartPole::v1(), Arc::clone(plan));
    let (total_steps, num_steps) = (4 * ITERATION, STEPS as usize);
    if kind == Kind::Pqn {
        let encoder = EncoderConfig::Mlp(MlpEncoderConfig::new(4));
        let config = PqnConfig {
            total_steps,
            num_steps,
            ..PqnConfig::default()
        };
        let network = QNetwork::orthogonal(&encoder, 2, &device).unwrap();
        return Box::new(Pqn::new(Vectorized::new(make, ENVS as usize).unwrap(), network, config).unwrap());
    }
    let envs = match kind {
        Kind::Asynchronous => Vectorized::asynchronous(make, ENVS as usize, 2),
        _ => Vectorized::new(make, ENVS as usize),
    };
    let policy = ActorCritic::new(&PolicyConfig::mlp(4, ActionSpace::Discrete(2)), &device).unwrap();
    let config = PpoConfig {
        total_steps,
        num_steps,
        ..PpoConfig::default()
    };
    Box::new(Ppo::new(envs.unwrap(), policy, config).unwrap())
}

/// Begins or continues a run; returns how it ended, and the steps of its environments.
fn train(kind: Kind, path: &Path, plan: Plan) -> (Summary, u64) {
    let plan = Arc::new(plan);
    let run = if path.exists() {
        Run::resume(path)
    } else {
        Run::create(path)
    };
    let config = RunConfig::steps(4 * ITERATION)
        .run(run.unwrap())
        .checkpoint_every(4 * ITERATION);
    let summary = config
        .stop_flag(Arc::clone(&plan.stop))
        .train(&mut *learner(kind, &plan));
    (summary.unwrap(), plan.steps.load(Ordering::Relaxed))
}

fn model(path: &Path) -> Vec<u8> {
    std::fs::read(RunFolder::new(path).model()).unwrap()
}

#[test]
fn a_rollout_is_left_where_a_stop_is_asked_for() {
    for kind in [Kind::Ppo, Kind::Asynchronous, Kind::Pqn] {
        let scene = tempfile::tempdir().unwrap();
        let (whole, parts) = (scene.path().join("whole"), scene.path().join("parts"));
        train(kind, &whole, Plan::default());
        // In the first rollout, and in the one after a slow iteration; a fast iteration is finished.
        for (slow_at, stop_at, done) in [
            (0, ITERATION / 4, 0),
            (5, ITERATION * 5 / 4, 1),
            (0, ITERATION * 9 / 4, 3),
        ] {
            let plan = Plan {
                slow_at,
                stop_at,
                ..Plan::default()
            };
            let (summary, steps) = train(kind, &parts, plan);
            assert_eq!(
                (summary.ended, summary.steps),
                (Ended::Stopped, done * ITERATION),
                "{kind:?}"
            );
            if done < 3 {
                // Asynchronous groups may be a step ahead.
                assert!(steps < stop_at + 2 * ENVS, "{kind:?}: {steps}");
            }
        }
        assert_eq!(train(kind, &parts, Plan::default()).0.ended, Ended::Done);
        assert!(model(&whole) == model(&parts), "{kind:?}");
    }
}
