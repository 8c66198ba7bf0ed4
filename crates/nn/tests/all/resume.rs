//! Interrupted training continues as if it had not been interrupted; parallel runs do not disturb each other.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use polygrad_nn::optim::*;
use polygrad_nn::*;
use polygrad_tensor::{Backend, Device, GeneratorState, HostTensor, Result, Shape, Tensor, manual_seed};
use serde_json::json;

on_backends!(
    resuming_gives_the_same_losses,
    eight_threads_train_as_one_after_the_other
);

/// SGD with a momentum of 0.9.
pub(crate) struct Heavy {
    pub(crate) lr: f64,
    pub(crate) fails: bool,
}

impl<B: Backend> UpdateRule<B> for Heavy {
    const STATE: &'static [&'static str] = &["momentum_buffer"];

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }

    fn update(&self, param: &Tensor<B>, gradient: &Tensor<B>, state: &mut [Tensor<B>], _: u64) -> Result<Tensor<B>> {
        state[0] = state[0].mul(0.9)?.add(gradient)?;
        let change = state[0].mul(self.lr)?;
        if self.fails {
            state[0] = state[0].flatten(0, -1)?;
        }
        param.sub(change)
    }
}

/// A model in which everything has state: running statistics, random numbers, moments.
struct Run<B: Backend> {
    model: Sequential<B>,
    optimizer: Box<dyn Optimizer<B>>,
    step: u64,
}

impl<B: Backend> Run<B> {
    fn new(kind: usize, seed: u64, device: &Device<B>) -> Result<Self> {
        manual_seed(seed);
        let model = Sequential::new()
            .push(Linear::new(6, 8, device)?)
            .push(BatchNorm1dConfig::new(8).momentum(None).build(device)?)
            .push(Tanh)
            .push(Dropout::new(0.3)?)
            .push(Linear::new(8, 3, device)?);
        let params = model.parameters();
        let optimizer: Box<dyn Optimizer<B>> = match kind {
            0 => Box::new(SGDConfig::new(0.05).momentum(0.9).nesterov(true).build(params)?),
            1 => Box::new(AdamConfig::new(0.01).amsgrad(true).build(params)?),
            2 => Box::new(AdamW::new(params, 0.01)?),
            3 => Box::new(RMSpropConfig::new(0.01).momentum(0.5).centered(true).build(params)?),
            _ => Box::new(CustomOptimizer::new(Heavy { lr: 0.05, fails: false }, params)?),
        };
        Ok(Self {
            model,
            optimizer,
            step: 0,
        })
    }

    fn train(&mut self, steps: u64, device: &Device<B>) -> Result<Vec<f64>> {
        let schedule = SequentialLR::new(LinearLR::warm_up(5)).then(5, CosineAnnealingLR::new(40));
        let mut losses = Vec::new();
        for _ in 0..steps {
            let x = Tensor::randn([16, 6], device)?;
            let y = Tensor::randint(0, 3, [16], device)?;
            self.optimizer.set_lr(schedule.lr(0.02, self.step));
            let loss = loss::cross_entropy(&self.model.forward(&x)?, &y)?;
            losses.push(loss.item()?);
            let mut gradients = loss.backward()?;
            clip_grad_norm(&mut gradients, 1.0)?;
            self.optimizer.step(&gradients)?;
            self.step += 1;
        }
        Ok(losses)
    }
}

fn resuming_gives_the_same_losses<B: Backend>(device: &Device<B>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    for kind in 0..5 {
        let mut run = Run::new(kind, 7, device).unwrap();
        let through = run.train(30, device).unwrap();

        let mut first = Run::new(kind, 7, device).unwrap();
        let mut losses = first.train(13, device).unwrap();
        let mut plateau = ReduceLROnPlateauConfig::new(PlateauMode::Min).build().unwrap();
        plateau.step(0.5, &mut *first.optimizer).unwrap();
        Checkpoint::new(&first.model, &*first.optimizer, first.step)
            .unwrap()
            .with_part("plateau", plateau.state_dict())
            .save(&path)
            .unwrap();
        let mut second = Run::new(kind, 999, device).unwrap();
        let checkpoint = Checkpoint::load(&path).unwrap();
        second.step = checkpoint.restore(&second.model, &mut *second.optimizer).unwrap();
        assert_eq!(second.step, 13);
        let mut plateau = ReduceLROnPlateauConfig::new(PlateauMode::Min).build().unwrap();
        plateau.load_state_dict(checkpoint.part("plateau").unwrap()).unwrap();
        assert_eq!(plateau.best(), 0.5);
        let error = checkpoint.part("ema").unwrap_err().to_string();
        assert!(error.contains("no part \"ema\"; there: plateau"), "{error}");
        losses.extend(second.train(17, device).unwrap());
        assert_eq!(losses, through, "optimizer {kind}");
        assert!(through.iter().all(|loss| loss.is_finite()));
    }
}

fn eight_threads_train_as_one_after_the_other<B: Backend>(device: &Device<B>) {
    let train = |i: usize| Run::new(i % 4, i as u64, device).unwrap().train(20, device).unwrap();
    let one_by_one: Vec<_> = (0..8).map(train).collect();
    let at_once: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|i| scope.spawn(move || train(i))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(at_once, one_by_one);
    assert_ne!(at_once[0], at_once[4]);
}

const CHILD: &str = "POLYGRAD_TEST_WRITE_CHECKPOINTS_TO";

/// In the child process: writes checkpoints until it is killed.
#[test]
fn child_writes_until_it_is_killed() {
    let Ok(path) = std::env::var(CHILD) else {
        return;
    };
    for step in 1.. {
        checkpoint(step).save(&path).unwrap();
    }
}

/// About 1 MiB in which every value identifies its step.
fn checkpoint(step: u64) -> Checkpoint {
    let mut model = StateDict::new();
    model.insert(
        "weight",
        HostTensor::new(Shape::from([256, 1024]), vec![step as f32; 1 << 18]).unwrap(),
    );
    Checkpoint {
        model,
        optimizer: StateDict::new(),
        step,
        generator: GeneratorState::current(),
        parts: Default::default(),
        config: json!({ "step": step }),
    }
}

fn spawn(path: &Path) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "resume::child_writes_until_it_is_killed", "--test-threads=1"])
        .env(CHILD, path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_kill_at_any_moment_leaves_a_whole_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    checkpoint(0).save(&path).unwrap();
    let (mut torn, mut later) = (0, 0);
    for round in 0..40u64 {
        let mut child = spawn(&path);
        // Wait until it writes, then kill it at a different point of its work each time.
        let begun = std::time::Instant::now();
        let left = strays(folder.path());
        while strays(folder.path()).is_subset(&left) && begun.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_micros(round * 3170 % 40_000));
        child.kill().unwrap();
        child.wait().unwrap();
        // Each child has removed what the one before it left behind.
        let found = strays(folder.path());
        assert!(
            found.is_disjoint(&left) && found.len() < 2,
            "round {round}: {left:?}, then {found:?}"
        );
        torn += found.len();

        let found = Checkpoint::load(&path).unwrap_or_else(|e| panic!("round {round}: {e}"));
        let values = found.model.get("weight").unwrap().to_f64_vec();
        assert!(
            values.iter().all(|&v| v == found.step as f64),
            "round {round}: a mixture of two checkpoints"
        );
        assert_eq!(found.config["step"], found.step);
        later += usize::from(found.step > 0);
    }
    assert!(later > 0, "no child ever wrote a checkpoint");
    assert!(torn > 0, "no child was killed in the middle of writing");
}

/// The other files beside the checkpoint.
fn strays(folder: &Path) -> BTreeSet<OsString> {
    let names = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    names.filter(|name| name != "checkpoint.safetensors").collect()
}
