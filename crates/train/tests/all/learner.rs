//! A learner trained in a run folder.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use polygrad_nn::optim::SGD;
use polygrad_nn::{Checkpoint, Linear, Module};
use polygrad_tensor::{Device, Error, Result, Tensor, manual_seed};
use polygrad_train::{Control, Ended, Event, Learner, Measured, Progress, Run, RunConfig, RunFolder};
use serde_json::json;

/// Approaches 3, in steps of 10 at a time.
struct Walk {
    model: Linear,
    optimizer: SGD,
    steps: u64,
    fails_at: Option<u64>,
}

impl Walk {
    fn new() -> Self {
        manual_seed(0);
        let model = Linear::new(1, 1, &Device::<polygrad_cpu::Cpu>::default().into_any()).unwrap();
        let optimizer = SGD::new(model.parameters(), 0.05).unwrap();
        Self {
            model,
            optimizer,
            steps: 0,
            fails_at: None,
        }
    }

    fn answer(&self) -> Result<Tensor> {
        self.model.forward(&Tensor::ones([1, 1], &self.model.weight.device())?)
    }
}

impl Learner for Walk {
    fn unit(&self) -> &'static str {
        "paces"
    }

    fn metrics(&self) -> Vec<&str> {
        vec!["answer", "seldom"]
    }

    fn steps(&self) -> u64 {
        self.steps
    }

    fn is_done(&self) -> bool {
        false
    }

    fn advance(&mut self) -> Result<Measured> {
        use polygrad_nn::optim::Optimizer;
        if self.fails_at == Some(self.steps) {
            return Err(Error::invalid("it stumbled"));
        }
        let loss = (self.answer()? - 3.0)?.square()?.sum(())?;
        let loss = self.optimizer.backward_step(loss)?;
        self.steps += 10;
        let seldom = if self.steps.is_multiple_of(50) { 1.0 } else { f64::NAN };
        Ok(Measured {
            loss,
            metrics: vec![self.answer()?.item()?, seldom],
            learning_rate: 0.05,
            loading_seconds: 0.0,
        })
    }

    fn score(&self) -> Option<f64> {
        Some(-(self.answer().ok()?.item().ok()? - 2.0).abs())
    }

    fn checkpoint(&self) -> Result<Checkpoint> {
        Ok(Checkpoint::new(&self.model, &self.optimizer, self.steps)?.with_config(json!({"walk": self.steps})))
    }

    fn restore(&mut self, checkpoint: &Checkpoint) -> Result<Vec<String>> {
        self.steps = checkpoint.restore(&self.model, &mut self.optimizer)?;
        assert_eq!(checkpoint.config["walk"], self.steps);
        Ok(Vec::new())
    }

    fn save_model(&self, path: &Path, metadata: &BTreeMap<String, String>) -> Result<()> {
        self.model.state_dict()?.save_with_metadata(path, metadata)
    }
}

fn rows(folder: &RunFolder) -> Vec<String> {
    let text = std::fs::read_to_string(folder.metrics()).unwrap();
    text.lines()
        .map(|line| line.rsplit_once(',').unwrap().0.to_owned())
        .collect()
}

fn config(run: Run) -> RunConfig {
    RunConfig::steps(1000).log_every(100).checkpoint_every(200).run(run)
}

#[test]
fn a_run_leaves_rows_the_model_and_the_best_one() {
    let scene = tempfile::tempdir().unwrap();
    let path = scene.path().join("run");
    let mut walk = Walk::new();
    let summary = config(Run::create(&path).unwrap()).train(&mut walk).unwrap();
    assert_eq!((summary.ended, summary.steps), (Ended::Done, 1000));
    let folder = RunFolder::new(&path);
    let rows = rows(&folder);
    assert_eq!(rows[0], "step,epoch,split,loss,answer,seldom,learning_rate");
    assert_eq!(rows.len(), 11);
    // NaN is ignored in a mean.
    assert!(
        rows[10].starts_with("1000,1000.0000,train,") && rows[10].contains(",1.000000,"),
        "{rows:?}"
    );
    let answer = |file: &Path| {
        let walk = Walk::new();
        walk.model.load(file).unwrap();
        walk.answer().unwrap().item().unwrap()
    };
    assert!((answer(&folder.model()) - 3.0).abs() < 1e-3);
    assert!(
        answer(&folder.best()) < answer(&folder.model()),
        "the best is judged by the score"
    );
    assert!(summary.best.is_some());
}

#[test]
fn it_goes_on_where_it_was_stopped_or_failed() {
    let scene = tempfile::tempdir().unwrap();
    let whole = scene.path().join("whole");
    config(Run::create(&whole).unwrap()).train(&mut Walk::new()).unwrap();
    let path = scene.path().join("parts");
    // Stopped by the flag, by a callback, and by an error.
    let flag = Arc::new(AtomicBool::new(true));
    let stopped = config(Run::create(&path).unwrap())
        .stop_flag(Arc::clone(&flag))
        .train(&mut Walk::new())
        .unwrap();
    assert_eq!((stopped.ended, stopped.steps), (Ended::Stopped, 0));
    flag.store(false, Ordering::Relaxed);
    let stop = |_: Event<'_>, progress: &Progress<'_>| {
        assert_eq!((progress.unit, progress.steps), ("paces", Some(1000)));
        Ok(if progress.step == 330 {
            Control::Stop
        } else {
            Control::Continue
        })
    };
    let stopped = config(Run::resume(&path).unwrap())
        .callback(stop)
        .train(&mut Walk::new())
        .unwrap();
    assert_eq!((stopped.ended, stopped.steps), (Ended::Stopped, 330));
    let mut walk = Walk::new();
    walk.fails_at = Some(750);
    let error = config(Run::resume(&path).unwrap()).train(&mut walk).unwrap_err();
    assert!(error.to_string().contains("it stumbled"), "{error}");
    let summary = config(Run::resume(&path).unwrap()).train(&mut Walk::new()).unwrap();
    assert_eq!((summary.ended, summary.steps), (Ended::Done, 1000));
    let (whole, parts) = (RunFolder::new(&whole), RunFolder::new(&path));
    assert_eq!(rows(&whole), rows(&parts));
    for file in [RunFolder::model, RunFolder::best] {
        assert!(std::fs::read(file(&whole)).unwrap() == std::fs::read(file(&parts)).unwrap());
    }
}

#[test]
fn options_that_make_no_sense_and_checkpoints_of_others_are_refused() {
    let told = |config: RunConfig, part: &str| {
        let error = config.train(&mut Walk::new()).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    told(RunConfig::steps(0), "at least 1");
    let scene = tempfile::tempdir().unwrap();
    let path = scene.path().join("run");
    let run = Run::create(&path).unwrap();
    Walk::new().checkpoint().unwrap().save(run.checkpoint()).unwrap();
    told(config(run), "its record is damaged");
}
