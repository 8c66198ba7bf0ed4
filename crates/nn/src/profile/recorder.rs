//! The recorder that listens while steps run.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use polygrad_core::timing::Timed;
use polygrad_tensor::{Activity, DType, Shape, activity, flops_counted};

use super::record::{LayerCall, Profile, Sample, Span};
use crate::watch::Activation;

/// The recorded calls, and the state of the running step. [`activity`] tells the passes apart, hooks the layers, and
/// [`flops_counted`] counts the work.
pub(super) struct Recorder {
    origin: Instant,
    profile: Profile,
    /// Index of the first sample of the running step.
    first: usize,
    /// Operations counted when the last call ended.
    flops: u64,
    /// The graph nodes of each layer call in the running step, inner ones first, with the layer's path.
    nodes: Vec<(Range<u64>, Arc<str>)>,
    /// The modules of parameters, by their leaves.
    leaves: HashMap<u64, Arc<str>>,
}

impl Recorder {
    pub(super) fn new() -> Self {
        Self {
            origin: Instant::now(),
            profile: Profile::default(),
            first: 0,
            flops: 0,
            nodes: Vec::new(),
            leaves: HashMap::new(),
        }
    }

    /// Sets the module that the parameter with this leaf is in.
    pub(super) fn set_place(&mut self, leaf: u64, module: &str) {
        self.leaves.entry(leaf).or_insert_with(|| module.into());
    }

    pub(super) fn begin(&mut self) {
        if self.profile.steps.is_empty() {
            self.origin = Instant::now();
        }
        self.first = self.profile.samples.len();
        self.flops = flops_counted();
    }

    pub(super) fn end(&mut self, began: Instant) {
        self.settle();
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
        let step = self.span(began, Instant::now());
        self.profile.steps.push(step);
    }

    pub(super) fn finish(self) -> Profile {
        self.profile
    }

    fn span(&self, begin: Instant, end: Instant) -> Span {
        Span::since(self.origin, begin, end)
    }

    /// Adds to the last call the operations counted since it ended.
    fn settle(&mut self) {
        let counted = flops_counted();
        if let Some(last) = self.profile.samples[self.first..].last_mut() {
            last.flops += counted.wrapping_sub(self.flops);
        }
        self.flops = counted;
    }

    /// Records a call that the device has made.
    pub(super) fn add(&mut self, call: &Timed<'_>) {
        self.settle();
        let bytes = |types: &[(DType, Shape)]| -> u64 {
            let each = types.iter().map(|(dtype, shape)| shape.numel() * dtype.size());
            each.sum::<usize>() as u64
        };
        let operands = match call.operands {
            [] => call.results,
            operands => operands,
        };
        let span = self.span(call.began, call.ended);
        self.profile.samples.push(Sample {
            op: call.name,
            operands: operands.into(),
            span,
            activity: activity(),
            replayed: call.replayed,
            module: None,
            flops: 0,
            bytes: bytes(call.operands) + bytes(call.results),
            copied: call.copied,
        });
    }

    /// Records a layer that has finished: calls meanwhile that belong to no inner layer are its own.
    pub(super) fn layer<B: polygrad_tensor::Backend>(&mut self, layer: &Activation<B>) {
        // The layer around the method, if any, is reported later.
        if layer.is_method {
            return;
        }
        let place: Arc<str> = layer.path.as_str().into();
        let span = self.span(layer.began, Instant::now());
        let own = self.profile.samples[self.first..].iter_mut().rev();
        for sample in own.take_while(|sample| sample.span.begin >= span.begin) {
            sample.module.get_or_insert_with(|| Arc::clone(&place));
        }
        self.nodes.push((layer.nodes.clone(), Arc::clone(&place)));
        self.profile.layers.push(LayerCall {
            place,
            kind: layer.layer.clone(),
            span,
        });
    }
}
