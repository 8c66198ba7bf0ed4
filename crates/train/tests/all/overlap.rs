//! Gradients are exchanged while the backward pass still runs.

use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use polygrad_core::program::{Call, call};
use polygrad_core::{AnyTensor, Error, Result};
use polygrad_nn::optim::SGD;
use polygrad_nn::{Linear, Module, TrainStep};
use polygrad_tensor::{CustomOp, Device, Tensor, manual_seed};
use polygrad_threads::Threads;
use polygrad_train::DataParallel;

/// Between two layers: blocks gradients until those of the layer after it have been summed over all ranks.
#[derive(Clone, Default)]
struct Gate(Arc<OnceLock<Weak<DataParallel>>>);

impl Call for Gate {
    fn name(&self) -> &'static str {
        "gate"
    }

    fn run(&self, inputs: &[AnyTensor]) -> Result<Vec<AnyTensor>> {
        let parallel = self.0.get().and_then(Weak::upgrade);
        let parallel = parallel.ok_or_else(|| Error::invalid("the ranks are not joined"))?;
        let begin = Instant::now();
        while parallel.take_spans().is_empty() {
            if begin.elapsed() > Duration::from_secs(10) {
                return Err(Error::invalid("nothing is exchanged before the backward pass is over"));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(inputs.to_vec())
    }
}

struct Gated(Arc<dyn Call>);

impl CustomOp for Gated {
    fn name(&self) -> &'static str {
        "gated"
    }

    fn forward(&self, inputs: &[Tensor]) -> Result<Tensor> {
        Ok(inputs[0].clone())
    }

    fn backward(&self, _: &[Tensor], _: &Tensor, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let passed = call(&self.0, &[grad.inner()])?;
        Ok(passed.into_iter().map(|grad| Some(Tensor::from_inner(grad))).collect())
    }
}

#[derive(Module)]
struct Model {
    first: Linear,
    second: Linear,
}

/// Takes steps that cannot end unless the second layer's gradients are summed before the first layer's are computed.
fn train(end: Threads, is_captured: bool) -> Result<()> {
    let device = Device::<polygrad_cpu::Cpu>::default().into_any();
    manual_seed(0);
    let model = Model {
        first: Linear::new(4, 3, &device)?,
        second: Linear::new(3, 2, &device)?,
    };
    // The second layer has 8 parameters of four bytes.
    let parallel = Arc::new(DataParallel::with_bucket_bytes(Arc::new(end), &model, 32)?);
    let gate = Gate::default();
    gate.0.get_or_init(|| Arc::downgrade(&parallel));
    let gated: Arc<dyn Call> = Arc::new(gate);
    let loss = move |model: &Model, batch: &[Tensor]| {
        let hidden = model.first.forward(&batch[0])?;
        let hidden = Tensor::custom(Gated(Arc::clone(&gated)), &[&hidden])?;
        model.second.forward(&hidden)?.square()?.mean_all()
    };
    let optimizer = SGD::new(model.parameters(), 0.1)?;
    let mut step = TrainStep::new(model, optimizer, loss).gradient_sync(Arc::clone(&parallel) as _);
    let batch = [Tensor::ones([5, 4], &device)?];
    if is_captured {
        let mut step = step.captured();
        for _ in 0..4 {
            parallel.take_spans();
            step.step(&batch)?;
        }
        assert!(step.is_ready(), "{:?}", step.refusal());
        return Ok(());
    }
    for _ in 0..2 {
        parallel.take_spans();
        step.step(&batch)?;
    }
    Ok(())
}

fn by_two_ranks(is_captured: bool) {
    let ends = Threads::group(2, Duration::from_secs(20)).unwrap();
    thread::scope(|scope| {
        let ranks = ends.into_iter().map(|end| scope.spawn(move || train(end, is_captured)));
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().for_each(|rank| rank.join().unwrap().unwrap());
    });
}

#[test]
fn gradients_are_exchanged_in_the_backward_pass() {
    by_two_ranks(false);
}

#[test]
fn gradients_of_a_replay_are_exchanged_in_its_backward_pass() {
    by_two_ranks(true);
}
