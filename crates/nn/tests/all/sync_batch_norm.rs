//! Batch normalisation on several ranks compared with one process on the joined batch.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use polygrad_core::AnyTensor;
use polygrad_core::communicator::{Checked, Communicator, HostSlice, HostSliceMut, Reduction};
use polygrad_core::program::{Call, call};
use polygrad_nn::optim::SGD;
use polygrad_nn::{
    BatchNorm1d, BatchNorm1dConfig, BatchNorm2d, BatchNormConfig, Conv2d, Flatten, GradientSync, Linear, Module, Param,
    ReLU, Sequential, SyncGroup, Tanh, TrainStep, sync_batch_norm,
};
use polygrad_tensor::{
    AnyBackend, BackwardOptions, DType, Device, Error, ErrorKind, Gradients, Result, Tensor, manual_seed, no_grad,
};
use polygrad_threads::Threads;

use crate::common::randn;

/// Runs `f` on each rank, and compares the ranks' calls; returns the results by rank.
fn ranks<R: Send>(size: usize, f: impl Fn(Arc<dyn Communicator>) -> R + Sync) -> Vec<R> {
    let ends = Threads::group(size, Duration::from_secs(20)).unwrap();
    std::thread::scope(|scope| {
        let started: Vec<_> = ends
            .into_iter()
            .map(|end| scope.spawn(|| f(Arc::new(Checked::new(Arc::new(end))))))
            .collect();
        started.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn apart(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// The rows that belong to a rank.
fn part(x: &Tensor, parts: &[usize], rank: usize) -> Tensor {
    let begin: usize = parts[..rank].iter().sum();
    x.narrow(0, begin, parts[rank]).unwrap()
}

/// The results of a pass through a model.
#[derive(Default)]
struct Seen {
    output: Vec<f64>,
    to_input: Vec<f64>,
    /// Gradients of all parameters, concatenated.
    to_params: Vec<f64>,
    buffers: Vec<f64>,
}

fn seen(model: &Sequential, x: &Tensor, slopes: &Tensor) -> Result<Seen> {
    let x = x.detach().requires_grad()?;
    let y = model.forward(&x)?;
    let gradients = y.mul(slopes)?.sum_all()?.backward()?;
    let mut to_params = Vec::new();
    for param in model.parameters() {
        to_params.extend(gradients.require(&param)?.to_f64_vec()?);
    }
    Ok(Seen {
        output: y.to_f64_vec()?,
        to_input: gradients.require(&x)?.to_f64_vec()?,
        to_params,
        buffers: buffers(model)?,
    })
}

fn buffers(model: &impl Module) -> Result<Vec<f64>> {
    let mut all = Vec::new();
    for (_, buffer) in model.named_buffers() {
        all.extend(buffer.tensor().to_f64_vec()?);
    }
    Ok(all)
}

fn dense(device: &Device) -> Result<Sequential> {
    Ok(Sequential::new()
        .push(Linear::new(4, 5, device)?)
        .push(BatchNorm1d::new(5, device)?)
        .push(Tanh)
        .push(Linear::new(5, 3, device)?)
        .push(
            BatchNorm1dConfig::new(3)
                .momentum(Some(0.3))
                .bias(false)
                .build(device)?,
        ))
}

fn images(device: &Device) -> Result<Sequential> {
    Ok(Sequential::new()
        .push(BatchNormConfig::<2>::new(2).affine(false).build(device)?)
        .push(Conv2d::new(2, 3, 3, device)?)
        .push(BatchNorm2d::new(3, device)?)
        .push(ReLU)
        .push(Flatten::new())
        .push(Linear::new(27, 2, device)?))
}

type Make = fn(&Device) -> Result<Sequential>;

/// Compares two passes, with the joined batch divided in several ways.
fn compare(device: &Device, make: Make, shape: &[usize], outputs: usize, dtype: DType, tolerance: f64) {
    for parts in [&[3, 4][..], &[1, 5], &[4, 1, 2]] {
        let count = parts.iter().sum();
        manual_seed(3);
        let mut dims = vec![count];
        dims.extend(shape);
        // Far from 0, where sums of squares would lose precision.
        let x = (randn(&dims, device) * 2.0).unwrap();
        let x = (x + 20.0).unwrap().to_dtype(dtype).unwrap();
        let slopes = randn(&[count, outputs], device).to_dtype(dtype).unwrap();
        let passes = |model: &Sequential, x: &Tensor, slopes: &Tensor| {
            model.to_dtype(dtype)?;
            seen(model, x, slopes)?;
            seen(model, x, slopes)
        };
        let make = || {
            manual_seed(5);
            make(device).unwrap()
        };
        let joined = passes(&make(), &x, &slopes).unwrap();
        let each = ranks(parts.len(), |group| {
            let model = make();
            assert_eq!(sync_batch_norm(&model, &*group).unwrap(), 2);
            let rank = group.rank();
            passes(&model, &part(&x, parts, rank), &part(&slopes, parts, rank)).unwrap()
        });
        let mut whole = Seen {
            to_params: vec![0.0; joined.to_params.len()],
            ..Seen::default()
        };
        for rank in &each {
            whole.output.extend(&rank.output);
            whole.to_input.extend(&rank.to_input);
            whole
                .to_params
                .iter_mut()
                .zip(&rank.to_params)
                .for_each(|(sum, x)| *sum += x);
            assert!(rank.buffers == each[0].buffers, "ranks keep the same statistics");
        }
        let scale = |values: &[f64]| values.iter().fold(1.0, |a: f64, b| a.max(b.abs()));
        for (what, a, b) in [
            ("output", &whole.output, &joined.output),
            ("gradient of the input", &whole.to_input, &joined.to_input),
            ("gradients of parameters", &whole.to_params, &joined.to_params),
            ("running statistics", &each[0].buffers, &joined.buffers),
        ] {
            let error = apart(a, b) / scale(b);
            assert!(error <= tolerance, "{what} of {parts:?} in {dtype}: {error:e}");
        }
    }
}

fn ranks_are_one_process_on_the_joined_batch(device: &Device) {
    for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 1e-5)] {
        compare(device, dense, &[4], 3, dtype, tolerance);
        compare(device, images, &[2, 5, 5], 2, dtype, tolerance);
    }
}

/// The mean loss over the joined batch, if each rank's loss is the mean over its part, weighted by the part's share.
fn weights_are_those_of_the_ranks_losses(device: &Device) {
    let x = randn(&[6, 4], device);
    let gradients = |model: &Sequential, x: &Tensor| -> Result<Vec<f64>> {
        // Not the squares, whose sum is the same for all normalised values.
        let y = (model.forward(x)? - 0.3)?.exp()?;
        let found = y.mul(&y)?.mean_all()?.backward()?;
        let mut all = Vec::new();
        for param in model.parameters() {
            all.extend(found.require(&param)?.to_f64_vec()?);
        }
        Ok(all)
    };
    let make = || {
        manual_seed(5);
        let model = dense(device).unwrap();
        model.to_dtype(DType::F64).unwrap();
        model
    };
    let alone = make();
    let joined = gradients(&alone, &x).unwrap();
    // The last rank has no examples, and computes with one of another rank.
    let parts = [2, 4, 0];
    let each = ranks(3, |group| {
        let (model, rank) = (make(), group.rank());
        sync_batch_norm(&model, &*group).unwrap();
        let weight = parts[rank] as f64 / 6.0;
        SyncGroup::of(&model).unwrap().set_weight(weight);
        let own = match parts[rank] {
            0 => x.narrow(0, 0, 1).unwrap(),
            _ => part(&x, &parts, rank),
        };
        let own = gradients(&model, &own).unwrap();
        (
            own.iter().map(|g| g * weight).collect::<Vec<f64>>(),
            buffers(&model).unwrap(),
        )
    });
    let sum: Vec<f64> = (0..joined.len())
        .map(|i| each.iter().map(|rank| rank.0[i]).sum())
        .collect();
    assert!(apart(&sum, &joined) < 1e-12, "{:e}", apart(&sum, &joined));
    for (_, kept) in &each {
        assert!(apart(kept, &buffers(&alone).unwrap()) < 1e-12);
    }
}

/// The statistics after four steps, and the gradients of the last step, summed over the ranks.
fn stepped(device: &Device, group: Option<&dyn Communicator>, captured: bool) -> Result<(Vec<f64>, Vec<f64>)> {
    manual_seed(5);
    let model = dense(device)?;
    model.to_dtype(DType::F64)?;
    if let Some(group) = group {
        sync_batch_norm(&model, group)?;
    }
    let params = model.parameters();
    let optimizer = SGD::new(params.clone(), 0.1)?;
    let loss = |model: &Sequential, batch: &[Tensor]| model.forward(&batch[0])?.mul(&batch[1])?.sum_all();
    let plain = TrainStep::new(model, optimizer, loss);
    let (mut step, plain) = match captured {
        true => (Some(plain.captured()), None),
        false => (None, Some(plain)),
    };
    let mut sums = Vec::new();
    for i in 0..4 {
        manual_seed(20 + i);
        let (x, slopes) = (randn(&[5, 4], device), randn(&[5, 3], device));
        let batch = [&x, &slopes].map(|x| group.map_or_else(|| x.clone(), |group| part(x, &[2, 3], group.rank())));
        let (_, gradients) = match (&mut step, &plain) {
            (Some(step), _) => step.backward(&batch)?,
            (_, Some(step)) => step.backward(&batch)?,
            _ => unreachable!("one of them"),
        };
        sums.clear();
        for param in &params {
            sums.extend(gradients.require(param)?.to_f64_vec()?);
        }
        if let Some(group) = group {
            group.all_reduce(HostSliceMut::new(&mut sums), Reduction::Sum)?;
        }
    }
    let model = match (&step, &plain) {
        (Some(step), _) => {
            assert!(step.is_ready() && step.refusal().is_none(), "{:?}", step.refusal());
            step.model()
        }
        (_, Some(step)) => step.model(),
        _ => unreachable!("one of them"),
    };
    Ok((buffers(model)?, sums))
}

fn captured_steps_exchange_what_others_do(device: &Device) {
    let (kept, gradients) = stepped(device, None, false).unwrap();
    for rank in ranks(2, |group| stepped(device, Some(&*group), true).unwrap()) {
        assert!(
            apart(&rank.0, &kept) < 1e-12,
            "statistics are {:e} apart",
            apart(&rank.0, &kept)
        );
        assert!(
            apart(&rank.1, &gradients) < 1e-12,
            "gradients are {:e} apart",
            apart(&rank.1, &gradients)
        );
    }
    // One rank replays while the other computes without capturing.
    for rank in ranks(2, |group| stepped(device, Some(&*group), group.rank() == 0).unwrap()) {
        assert!(apart(&rank.1, &gradients) < 1e-12);
    }
}

fn a_step_is_recorded_anew_when_its_layers_are_synchronized(device: &Device) {
    let means = ranks(2, |group| {
        let model = Sequential::new().push(BatchNorm1d::new(1, device).unwrap());
        let optimizer = SGD::new(model.parameters(), 0.0).unwrap();
        let loss = |model: &Sequential, batch: &[Tensor]| model.forward(&batch[0])?.sum_all();
        let mut step = TrainStep::new(model, optimizer, loss).captured();
        let x = Tensor::new([[0f32], [2.0]], device).unwrap();
        let x = [(x + 4.0 * group.rank() as f64).unwrap()];
        for i in 0..6 {
            if i == 3 {
                assert!(step.is_ready());
                sync_batch_norm(step.model(), &*group).unwrap();
            }
            step.step(&x).unwrap();
        }
        buffers(step.model()).unwrap()[0]
    });
    let of = |early: f64, late: f64| (0..6).fold(0.0, |kept, i| 0.9 * kept + 0.1 * if i < 3 { early } else { late });
    assert!(apart(&means, &[of(1.0, 3.0), of(5.0, 3.0)]) < 1e-6, "{means:?}");
}

fn halves_are_normalised_in_f32(device: &Device) {
    let x = randn(&[6, 4], device);
    let make = || {
        manual_seed(5);
        Sequential::new().push(BatchNorm1d::new(4, device).unwrap())
    };
    let slopes = randn(&[6, 4], device);
    let joined = make();
    joined.to_dtype(DType::F64).unwrap();
    let joined = seen(&joined, &x, &slopes).unwrap();
    for model_dtype in [DType::F32, DType::BF16] {
        let each = ranks(2, |group| {
            let model = make();
            model.to_dtype(model_dtype).unwrap();
            sync_batch_norm(&model, &*group).unwrap();
            let [x, slopes] = [&x, &slopes].map(|x| part(x, &[2, 4], group.rank()).to_dtype(DType::BF16).unwrap());
            assert_eq!(no_grad(|| model.forward(&x)).unwrap().dtype(), DType::BF16);
            seen(&model, &x, &slopes).unwrap()
        });
        let output: Vec<f64> = each.iter().flat_map(|rank| rank.output.clone()).collect();
        let to_input: Vec<f64> = each.iter().flat_map(|rank| rank.to_input.clone()).collect();
        assert!(
            apart(&output, &joined.output) < 0.03,
            "{:e}",
            apart(&output, &joined.output)
        );
        assert!(
            apart(&to_input, &joined.to_input) < 0.05,
            "{:e}",
            apart(&to_input, &joined.to_input)
        );
    }
}

on_backends!(
    ranks_are_one_process_on_the_joined_batch,
    weights_are_those_of_the_ranks_losses,
    captured_steps_exchange_what_others_do,
    a_step_is_recorded_anew_when_its_layers_are_synchronized,
    halves_are_normalised_in_f32,
);

#[test]
fn a_backend_chosen_at_compile_time_will_do() {
    let outputs = ranks(2, |group| {
        let device = Device::<polygrad_cpu::Cpu>::default();
        let layer = BatchNorm1d::new(1, &device).unwrap();
        assert_eq!(sync_batch_norm(&layer, &*group).unwrap(), 1);
        let x = Tensor::new([[group.rank() as f32]], &device).unwrap();
        let x = x.requires_grad().unwrap();
        let y = layer.forward(&x).unwrap();
        let gradients = (&y * &y).unwrap().sum_all().unwrap().backward().unwrap();
        (y.item().unwrap(), gradients.require(&x).unwrap().item().unwrap())
    });
    let exact = 0.5 / f64::sqrt(0.25 + 1e-5);
    for ((y, to_x), sign) in outputs.into_iter().zip([-1.0, 1.0]) {
        assert!((y - sign * exact).abs() < 1e-6, "{y}");
        // Nearly flat: the squares depend on the distance only through eps.
        let slope = sign * 1e-5 / (0.25f64 + 1e-5).powi(2);
        assert!((to_x - slope).abs() < 1e-6, "{to_x}");
    }
}

#[test]
fn evaluation_state_and_summary_are_those_of_a_plain_layer() {
    ranks(2, |group| {
        let device = &Device::<polygrad_cpu::Cpu>::default().into_any();
        let (plain, model) = (images(device).unwrap(), images(device).unwrap());
        assert!(SyncGroup::of(&model).is_none());
        sync_batch_norm(&model, &*group).unwrap();
        model.load_state_dict(&plain.state_dict().unwrap(), true).unwrap();
        let names = |model: &Sequential| {
            model
                .state_dict()
                .unwrap()
                .keys()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&model), names(&plain));
        // The other rank does not take part.
        if group.rank() == 0 {
            let x = randn(&[1, 2, 5, 5], device).to_dtype(DType::F32).unwrap();
            let summary = |model: &Sequential| model.summary(|| model.forward(&x)).unwrap().to_string();
            assert_eq!(summary(&model), summary(&plain));
            plain.eval();
            model.eval();
            let [a, b] = [&plain, &model].map(|model| model.forward(&x).unwrap().to_vec::<f32>().unwrap());
            assert_eq!(a, b);
        }
    });
}

/// A group of one; if it logs its calls, it can be duplicated.
#[derive(Clone, Debug, Default)]
struct Single(Option<Log>);

type Log = Arc<Mutex<Vec<String>>>;

impl Communicator for Single {
    fn name(&self) -> String {
        "single".to_owned()
    }

    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn all_reduce(&self, _: HostSliceMut<'_>, _: Reduction) -> Result<()> {
        if let Some(log) = &self.0 {
            log.lock().unwrap().push("sums".to_owned());
        }
        Ok(())
    }

    fn reduce_scatter(&self, values: HostSlice<'_>, mut own: HostSliceMut<'_>, _: Reduction) -> Result<()> {
        own.bytes_mut().copy_from_slice(values.bytes());
        Ok(())
    }

    fn all_gather(&self, own: HostSlice<'_>, mut all: HostSliceMut<'_>) -> Result<()> {
        all.bytes_mut().copy_from_slice(own.bytes());
        Ok(())
    }

    fn broadcast(&self, _: HostSliceMut<'_>, _: usize) -> Result<()> {
        Ok(())
    }

    fn barrier(&self) -> Result<()> {
        Ok(())
    }

    fn duplicate(&self) -> Result<Arc<dyn Communicator>> {
        match self.0 {
            Some(_) => Ok(Arc::new(self.clone())),
            None => Err(Error::unsupported("single has no second group")),
        }
    }
}

/// Records when the gradient of a parameter could be sent.
struct Sends {
    params: Vec<Param>,
    calls: Vec<Arc<dyn Call>>,
}

struct Sent(String, Log);

impl Call for Sent {
    fn name(&self) -> &'static str {
        "sent"
    }

    fn run(&self, _: &[AnyTensor]) -> Result<Vec<AnyTensor>> {
        self.1.lock().unwrap().push(self.0.clone());
        Ok(Vec::new())
    }
}

impl GradientSync for Sends {
    fn ready(&self, _: &Tensor, gradients: &Gradients) -> Result<()> {
        for (param, sent) in self.params.iter().zip(&self.calls).rev() {
            call(sent, &[gradients.require(param)?.inner()])?;
        }
        Ok(())
    }

    fn finish(&self, gradients: Gradients) -> Result<Gradients> {
        Ok(gradients)
    }
}

#[test]
fn gradients_are_sent_while_statistics_are_exchanged() {
    let device = &Device::<polygrad_cpu::Cpu>::default().into_any();
    let log = Log::default();
    let model = dense(device).unwrap();
    sync_batch_norm(&model, &Single(Some(Arc::clone(&log)))).unwrap();
    let (names, params): (Vec<String>, Vec<Param>) = model.named_parameters().into_iter().unzip();
    let sent = |name| Arc::new(Sent(name, Arc::clone(&log))) as Arc<dyn Call>;
    let sends = Sends {
        params: params.clone(),
        calls: names.into_iter().map(sent).collect(),
    };
    let loss = |model: &Sequential, batch: &[Tensor]| model.forward(&batch[0])?.exp()?.sum_all();
    let optimizer = SGD::new(params, 0.1).unwrap();
    let mut step = TrainStep::new(model, optimizer, loss)
        .gradient_sync(Arc::new(sends))
        .captured();
    let x = [randn(&[5, 4], device).to_dtype(DType::F32).unwrap()];
    let mut seen = Vec::new();
    for _ in 0..3 {
        log.lock().unwrap().clear();
        step.step(&x).unwrap();
        seen.push(log.lock().unwrap().join(" "));
    }
    let late = "sums sums 4.weight 3.bias 3.weight 1.bias 1.weight 0.bias 0.weight";
    let early = "4.weight sums 3.bias 3.weight 1.bias 1.weight sums 0.bias 0.weight";
    assert_eq!((seen[0].as_str(), seen[2].as_str()), (late, early));
}

#[test]
fn what_cannot_be_is_an_error() {
    let device = &Device::<polygrad_cpu::Cpu>::default().into_any();
    let layer = BatchNorm1d::<AnyBackend>::new(1, device).unwrap();
    let error = sync_batch_norm(&layer, &Single(None)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("single has no second group"), "{error}");
    assert!(SyncGroup::of(&layer).is_none());
    // No duplicate is requested if there is nothing to synchronize.
    assert_eq!(
        sync_batch_norm(&Linear::new(1, 1, device).unwrap(), &Single(None)).unwrap(),
        0
    );

    ranks(2, |group| {
        let layer = BatchNorm1d::<AnyBackend>::new(1, device).unwrap();
        sync_batch_norm(&layer, &*group).unwrap();
        let x = Tensor::ones([1, 1], device).unwrap().requires_grad().unwrap();
        let y = layer.forward(&x).unwrap();
        let options = BackwardOptions::default().create_graph(true);
        let error = y.sum_all().unwrap().backward_with(&options).unwrap_err();
        assert!(error.to_string().contains("no second derivatives"), "{error}");
        // A single value over all ranks.
        SyncGroup::of(&layer).unwrap().set_weight(group.rank() as f64);
        let error = layer.forward(&x).unwrap_err();
        assert!(error.to_string().contains("more than one value"), "{error}");
        assert_eq!(
            buffers(&layer).unwrap()[2],
            1.0,
            "only the first batch has been counted"
        );
    });
}
