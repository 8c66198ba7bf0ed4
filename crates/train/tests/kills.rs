//! A run that is repeatedly killed at any moment ends like an undisturbed one, with any number of workers.
//!
//! `POLYGRAD_KILLS` is the number of kills that each number of workers has to survive; the default is 6.
#![cfg(unix)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use polygrad_core::Result;
use polygrad_data::{DataLoaderConfig, Rng};
use polygrad_nn::optim::{Adam, EmaConfig};
use polygrad_nn::{Dropout, Linear, Module, ReLU, Sequential, loss::cross_entropy};
use polygrad_tensor::{Device, Tensor, manual_seed};
use polygrad_train::{Accuracy, Run, RunFolder, Step, TrainerConfig};

const FOLDER: &str = "POLYGRAD_KILLS_FOLDER";
const WORKERS: &str = "POLYGRAD_KILLS_WORKERS";
const EPOCHS: u64 = 30;

/// Begins or resumes the run in the folder given by the environment; the test below starts processes that do nothing
/// else.
#[test]
#[ignore = "for the other test, in processes of their own"]
fn trains() {
    let variable = |name| std::env::var(name).unwrap();
    let workers = variable(WORKERS).parse().unwrap();
    train(Path::new(&variable(FOLDER)), workers).unwrap();
}

fn train(folder: &Path, workers: usize) -> Result<()> {
    let device = Device::<polygrad_cpu::Cpu>::default().into_any();
    let points: Vec<[f32; 2]> = (0..400)
        .map(|i| [(i * 37 % 101) as f32 / 50.0 - 1.0, (i * 53 % 97) as f32 / 48.0 - 1.0])
        .collect();
    let train = DataLoaderConfig::new(points.clone())
        .batch_size(8)
        .shuffle(5)
        .workers(workers)
        .transform(|[x, y], rng| Ok(([x + 0.01 * rng.normal() as f32, y], usize::from(x * x + y * y < 0.6))))
        .build(&device)?;
    let validation = DataLoaderConfig::new(points)
        .batch_size(100)
        .transform(|[x, y], _| Ok(([x, y], usize::from(x * x + y * y < 0.6))))
        .build(&device)?;
    manual_seed(3);
    let model = Sequential::new()
        .push(Linear::new(2, 32, &device)?)
        .push(ReLU)
        .push(Dropout::new(0.1)?)
        .push(Linear::new(32, 2, &device)?);
    let optimizer = Adam::new(model.parameters(), 0.01)?;
    let mut trainer = TrainerConfig::epochs(EPOCHS)
        .metric(Accuracy::new())
        .accumulate(3)
        .ema(EmaConfig::new(0.9))
        .checkpoint_every(4)
        .run(Run::open(folder)?)
        .build(model, optimizer, |model, (x, y): &(Tensor, Tensor)| {
            let logits = model.forward(x)?;
            Ok(Step::new(cross_entropy(&logits, y)?).outputs(logits, y))
        })?;
    trainer.fit(&train, Some(&validation)).map(drop)
}

/// The files that a run has left, except for times.
fn left(folder: &Path) -> (Vec<String>, [Vec<u8>; 2]) {
    let files = RunFolder::new(folder);
    let rows = std::fs::read_to_string(files.metrics()).unwrap();
    let rows = rows.lines().map(|line| line.rsplit_once(',').unwrap().0.to_owned());
    (
        rows.collect(),
        [files.model(), files.best()].map(|path| std::fs::read(path).unwrap()),
    )
}

#[test]
fn a_run_that_is_killed_again_and_again_ends_the_same() {
    let wanted: usize = std::env::var("POLYGRAD_KILLS").map_or(6, |kills| kills.parse().unwrap());
    let scene = tempfile::tempdir().unwrap();
    let whole = scene.path().join("whole");
    train(&whole, 0).unwrap();
    let expected = left(&whole);
    let mut rng = Rng::new(7);
    for workers in [1, 2, 4] {
        let (mut kills, mut run) = (0, 0);
        while kills < wanted {
            let folder = scene.path().join(format!("run-{workers}-{run}"));
            run += 1;
            loop {
                let mut child = Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", "trains", "--ignored"])
                    .env(FOLDER, &folder)
                    .env(WORKERS, workers.to_string())
                    .stdout(Stdio::null())
                    .spawn()
                    .unwrap();
                // Runs that were killed often enough are left alone, since they would otherwise never end.
                if kills < wanted {
                    sleep(Duration::from_micros(rng.below(300_000) as u64));
                    child.kill().unwrap();
                }
                let status = child.wait().unwrap();
                if status.success() {
                    break;
                }
                assert_eq!(status.code(), None, "it failed with {workers} workers");
                kills += 1;
            }
            assert!(left(&folder) == expected, "{workers} workers, after {kills} kills");
        }
    }
}
