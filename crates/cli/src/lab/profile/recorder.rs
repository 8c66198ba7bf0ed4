//! Listens to a device while steps run.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use polygrad::backend::Result as Computed;
use polygrad::backend::observe::bytes_copied_to_update;
use polygrad::nn::watch::{self, Activation};
use polygrad::nn::{Item, Visit, Visitor};
use polygrad::tensor::wrapped::{Call, Hooks};
use polygrad::tensor::{Activity, activity, flops_counted};
use polygrad::{AnyBackend, DType, Device, Shape, autograd::GradId};

use super::record::{Layer, Profile, Sample};
use crate::lab::trace::Span;

/// Hooks of a device that take the time of each call, while a [step](Recorder::step) runs. What is not a device's call is told apart by what
/// the library says: the passes by [`activity`], layers by [`watch::with_hook`], work by [`flops_counted`].
pub(super) struct Recorder {
    /// The device below, to wait for.
    device: Option<Device>,
    state: Mutex<State>,
}

struct State {
    origin: Instant,
    recording: bool,
    profile: Profile,
    /// Where the samples of the running step begin.
    first: usize,
    /// What was counted when the last call ended.
    flops: u64,
    /// The nodes of each call of a layer in the running step, inner ones first, with its place.
    nodes: Vec<(Range<u64>, Arc<str>)>,
    /// The places of parameters, by their leaves.
    leaves: HashMap<u64, Arc<str>>,
}

impl Recorder {
    /// For a device over `device`, which is waited for after each call if `sync`.
    pub(super) fn new(device: &Device, sync: bool) -> Arc<Self> {
        Arc::new(Self {
            device: sync.then(|| device.clone()),
            state: Mutex::new(State {
                origin: Instant::now(),
                recording: false,
                profile: Profile::default(),
                first: 0,
                flops: 0,
                nodes: Vec::new(),
                leaves: HashMap::new(),
            }),
        })
    }

    /// Runs `f` and knows meanwhile which layer of the model computes.
    pub(super) fn watch<R>(self: &Arc<Self>, model: Option<&dyn Visit<AnyBackend>>, f: impl FnOnce() -> R) -> R {
        let Some(model) = model else {
            return f();
        };
        Visitor::walk(model, |path, item| {
            if let Item::Param(param) = item
                && let Some(leaf) = param.grad_id()
            {
                let module = path.rsplit_once('.').map_or("", |(module, _)| module);
                self.lock().leaves.entry(leaf).or_insert_with(|| module.into());
            }
        });
        let recorder = Arc::clone(self);
        watch::with_hook(model, move |layer| recorder.lock().layer(layer), f)
    }

    /// Runs one step and records it.
    pub(super) fn step<R>(&self, f: impl FnOnce() -> R) -> R {
        self.lock().begin();
        let began = Instant::now();
        let result = f();
        let span = Span::new(began, Instant::now());
        self.lock().end(&span);
        result
    }

    /// What was recorded; times begin with the first step.
    pub(super) fn take(&self) -> Profile {
        std::mem::take(&mut self.lock().profile)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hooks for Recorder {
    fn around(&self, call: &Call<'_>, operands: &[(DType, Shape)], run: &mut dyn FnMut()) -> Computed<()> {
        if !self.lock().settle() {
            run();
            return Ok(());
        }
        let (began, copied) = (Instant::now(), bytes_copied_to_update());
        run();
        let copied = bytes_copied_to_update().wrapping_sub(copied);
        let waited = self.device.as_ref().map_or(Ok(()), Device::synchronize);
        let ended = Instant::now();
        self.lock().add(call.name(), operands, Span::new(began, ended), copied);
        waited
    }
}

impl State {
    fn begin(&mut self) {
        if self.profile.steps.is_empty() {
            self.origin = Instant::now();
        }
        self.first = self.profile.samples.len();
        self.flops = flops_counted();
        self.recording = true;
    }

    fn end(&mut self, step: &Span<Instant>) {
        self.settle();
        self.recording = false;
        for sample in &mut self.profile.samples[self.first..] {
            let place = match sample.activity {
                Activity::Backward(node) => {
                    let innermost = self.nodes.iter().find(|(nodes, _)| nodes.contains(&node));
                    innermost.map(|(_, place)| place)
                }
                Activity::Update(leaf) => self.leaves.get(&leaf),
                _ => None,
            };
            if sample.module.is_none() {
                sample.module = place.cloned();
            }
        }
        self.nodes.clear();
        let step = step.since(self.origin);
        self.profile.steps.push(step);
    }

    /// Gives the last call what was counted since it ended, and says whether this is a step.
    fn settle(&mut self) -> bool {
        if self.recording {
            let counted = flops_counted();
            if let Some(last) = self.profile.samples[self.first..].last_mut() {
                last.flops += counted.wrapping_sub(self.flops);
            }
            self.flops = counted;
        }
        self.recording
    }

    fn add(&mut self, op: &'static str, operands: &[(DType, Shape)], span: Span<Instant>, copied: u64) {
        self.profile.samples.push(Sample {
            op,
            operands: operands.into(),
            span: span.since(self.origin),
            activity: activity(),
            module: None,
            flops: 0,
            copied,
        });
    }

    /// A layer has computed: what has run meanwhile and is of no inner layer is its own.
    fn layer(&mut self, layer: &Activation<AnyBackend>) {
        if !self.recording {
            return;
        }
        let place: Arc<str> = layer.path.as_str().into();
        let span = Span::new(layer.began, Instant::now()).since(self.origin);
        let own = self.profile.samples[self.first..].iter_mut().rev();
        for sample in own.take_while(|sample| sample.span.begin >= span.begin) {
            sample.module.get_or_insert_with(|| Arc::clone(&place));
        }
        self.nodes.push((layer.nodes.clone(), Arc::clone(&place)));
        self.profile.layers.push(Layer {
            place,
            kind: layer.layer.clone(),
            span,
        });
    }
}

#[cfg(test)]
mod tests {
    use polygrad::Tensor;
    use polygrad::nn::{Linear, ReLU, Sequential};
    use polygrad::optim::{Optimizer, SGD};
    use polygrad::tensor::wrapped::Wrapped;
    use polygrad_conformance::{Options, run};

    use super::super::record::Pass;
    use super::super::table;
    use super::*;

    /// A watched device of the CPU.
    fn watched() -> (Arc<Recorder>, Device) {
        let device = Device::new("cpu:threads=1").unwrap();
        let recorder = Recorder::new(&device, true);
        let watched = Wrapped::new(&device, recorder.clone()).device();
        (recorder, watched)
    }

    #[test]
    fn a_watched_device_computes_what_the_device_does() {
        let (recorder, device) = watched();
        for op in [
            "nn.functional.linear",
            "nn.functional.cross_entropy",
            "sort",
            "nn.functional.max_pool2d",
        ] {
            let options = Options {
                op: Some(op.to_owned()),
                ..Options::default()
            };
            let report = recorder.step(|| run(&device, &options)).unwrap();
            assert!(
                report.complaints().is_empty() && !report.records.is_empty(),
                "{op}: {report}"
            );
        }
        let profile = recorder.take();
        for op in ["linear", "cross_entropy_backward", "sort", "max_pool"] {
            assert!(profile.samples.iter().any(|sample| sample.op == op), "{op}");
        }
    }

    #[test]
    fn parameters_that_somebody_holds_are_told_of() {
        let (recorder, device) = watched();
        let model = Linear::new(250, 500, &device).unwrap();
        let mut sgd = SGD::new(polygrad::nn::Module::parameters(&model), 0.1).unwrap();
        let x = Tensor::ones([5, 250], &device).unwrap();
        let loss = || model.forward(&x)?.sum_all();
        recorder.step(|| sgd.backward_step(loss()?)).unwrap();
        assert_eq!(table::copies(&recorder.take()), None);

        let held = |sgd: &mut SGD| {
            let loss = loss()?;
            sgd.backward_step(loss.clone()).map(|_| loss)
        };
        recorder.step(|| held(&mut sgd)).unwrap();
        let warning = table::copies(&recorder.take()).unwrap();
        assert!(warning.contains("copies 0.500 MB of parameters a step"), "{warning}");
    }

    #[test]
    fn gradients_belong_to_the_layer_that_computed() {
        let (recorder, device) = watched();
        let model = Sequential::new()
            .push(Linear::new(3, 4, &device).unwrap())
            .push(ReLU)
            .push(Linear::new(4, 2, &device).unwrap());
        let x = Tensor::ones([5, 3], &device).unwrap();
        let recorded = || recorder.step(|| model.forward(&x)?.sum_all()?.backward());
        recorder.watch(Some(&model), recorded).unwrap();
        let profile = recorder.take();
        let of = |pass, module: &str| {
            let here = |sample: &&Sample| sample.pass() == pass && sample.module.as_deref() == Some(module);
            profile
                .samples
                .iter()
                .filter(here)
                .map(|sample| (sample.op, sample.flops))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(Pass::Forward, "0"), [("linear", 2 * 5 * 3 * 4)]);
        assert_eq!(of(Pass::Forward, "1"), [("relu", 0)]);
        assert_eq!(of(Pass::Backward, "1"), [("activation_backward", 0)]);
        let flops = |pass, module| of(pass, module).iter().map(|(_, flops)| flops).sum::<u64>();
        assert_eq!(flops(Pass::Backward, "0"), 2 * 5 * 3 * 4);
        assert_eq!(flops(Pass::Backward, "2"), 2 * flops(Pass::Forward, "2"));
        assert!(of(Pass::Optimizer, "0").is_empty());
        assert_eq!(table::copies(&profile), None);
        assert_eq!((profile.steps.len(), profile.layers.len()), (1, 4));
    }
}
