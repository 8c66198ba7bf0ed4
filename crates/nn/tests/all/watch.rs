//! Hooks and summaries see the layers of a model, under their names.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::channel;

use polygrad_nn::watch::{self, Activation};
use polygrad_nn::{BatchNorm2d, Conv2d, Dropout, Flatten, Linear, MaxPool2d, Module, Param, ReLU, Sequential};
use polygrad_reference::Reference;
use polygrad_tensor::{Device, Error, Result, Tensor};

type B = Reference;

fn device() -> Device<B> {
    Device::default()
}

#[derive(Module)]
#[module(backend = Reference)]
struct Net {
    stem: Sequential<B>,
    act1: ReLU,
    act2: ReLU,
    dropout: Dropout,
    head: Option<Linear<B>>,
}

impl Net {
    fn new() -> Result<Self> {
        let stem = Sequential::new()
            .push(Conv2d::new(1, 4, 3, &device())?)
            .push(ReLU)
            .push(BatchNorm2d::new(4, &device())?)
            .push(ReLU)
            .push(MaxPool2d::new(2))
            .push(Flatten::new());
        Ok(Self {
            stem,
            act1: ReLU,
            act2: ReLU,
            dropout: Dropout::new(0.5)?,
            head: Some(Linear::new(36, 2, &device())?),
        })
    }

    fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let y = self.act1.forward(&self.stem.forward(x)?)?;
        let y = self.dropout.forward(&self.act2.forward(&y)?)?;
        match &self.head {
            Some(head) => head.forward(&y),
            None => Ok(y),
        }
    }
}

fn images() -> Result<Tensor<B>> {
    Tensor::ones([2, 1, 8, 8], &device())
}

fn watched<R>(model: &Net, forward: impl FnOnce() -> R) -> (R, Vec<Activation<B>>) {
    let (sender, seen) = channel();
    let result = watch::with_hook(model, move |layer| sender.send(layer.clone()).unwrap(), forward);
    (result, seen.iter().collect())
}

#[test]
fn a_hook_sees_each_layer_under_its_name() -> Result<()> {
    let net = Net::new()?;
    let x = images()?;
    let (y, seen) = watched(&net, || net.forward(&x));
    let y = y?;
    let places: Vec<_> = seen.iter().map(|s| (s.path.as_str(), s.layer.as_str())).collect();
    assert_eq!(
        places,
        [
            ("stem.0", "Conv2d"),
            ("stem.1", "ReLU"),
            ("stem.2", "BatchNorm2d"),
            ("stem.3", "ReLU"),
            ("stem.4", "MaxPool2d"),
            ("stem.5", "Flatten"),
            ("stem", "Sequential"),
            // Two fields of a zero-sized type cannot be told apart.
            ("act1|act2", "ReLU"),
            ("act1|act2", "ReLU"),
            ("dropout", "Dropout"),
            ("head", "Linear"),
        ]
    );
    assert_eq!(seen[0].input.to_vec::<f32>()?, x.to_vec::<f32>()?);
    assert_eq!(seen[0].output.dims(), [2, 4, 6, 6]);
    assert_eq!(seen[0].flops, 2 * (2 * 4 * 6 * 6) * 9);
    assert_eq!(seen[6].flops, seen[0].flops);
    assert_eq!(seen[10].output.to_vec::<f32>()?, y.to_vec::<f32>()?);
    assert!(seen[10].output.is_tracked());
    // Inner layers are within outer ones, in time and in the graph, and begin one after another.
    let (first, whole) = (&seen[0], &seen[6]);
    assert!(whole.began <= first.began && first.began < seen[1].began);
    assert!(first.output.node_id().is_some_and(|id| first.nodes.contains(&id)));
    assert!(whole.nodes.start <= first.nodes.start && first.nodes.end <= whole.nodes.end);
    Ok(())
}

#[test]
fn layers_of_other_models_and_what_a_hook_computes_are_not_seen() -> Result<()> {
    let (net, other) = (Net::new()?, Net::new()?);
    let x = images()?;
    let (y, seen) = watched(&net, || other.forward(&x));
    y?;
    assert_eq!(
        seen.iter()
            .filter(|s| s.layer != "ReLU" && s.layer != "Flatten")
            .count(),
        0,
        "{seen:?}"
    );

    let (sender, seen) = channel();
    let inner = Arc::new(Linear::new(3, 3, &device())?);
    let shared = Arc::clone(&inner);
    let hook = move |layer: &Activation<B>| {
        sender.send(shared.forward(&layer.output).map(|y| y.dims())).unwrap();
    };
    let x = Tensor::ones([1, 3], &device())?;
    watch::with_hook(&inner, hook, || inner.forward(&x))?;
    assert_eq!(seen.iter().collect::<Result<Vec<_>>>()?, [[1, 3]]);
    Ok(())
}

#[test]
fn hooks_nest_and_go_away_also_after_a_panic() -> Result<()> {
    let net = Net::new()?;
    let x = images()?;
    let (inner, outer) = watched(&net, || watched(&net, || net.forward(&x)));
    assert_eq!((inner.1.len(), outer.len()), (11, 11));

    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let outcome = watch::with_hook(&net, |_: &Activation<B>| panic!("a hook fails"), || net.forward(&x));
        outcome.map(drop)
    }));
    assert!(outcome.is_err());
    net.forward(&x)?;
    let (y, seen) = watched(&net, || net.forward(&x));
    y?;
    assert_eq!(seen.len(), 11);
    Ok(())
}

/// A block that reports to hooks, in a model that does not.
#[derive(Module)]
#[module(backend = Reference)]
struct Block {
    fc: Linear<B>,
}

impl Block {
    fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        watch::layer(self, x, || self.fc.forward(x)?.relu()? + x)
    }
}

#[derive(Module)]
#[module(backend = Reference)]
struct Blocks {
    first: Block,
    second: Block,
}

#[test]
fn methods_of_tensors_are_seen_where_the_program_calls_them() -> Result<()> {
    let block = || Linear::new(3, 3, &device()).map(|fc| Block { fc });
    let model = Blocks {
        first: block()?,
        second: block()?,
    };
    let x = Tensor::ones([2, 3], &device())?;
    let run = || {
        model
            .second
            .forward(&model.first.forward(&x)?.exp()?)?
            .softmax(1)?
            .sum_all()
    };
    let (y, seen) = watch::activations(&model, run);
    let places: Vec<_> = seen
        .iter()
        .map(|s| (s.path.as_str(), s.layer.as_str(), s.is_method))
        .collect();
    // The ops inside of layers are not reported.
    assert_eq!(
        places,
        [
            ("first.fc", "Linear", false),
            ("first", "relu", true),
            ("first", "add", true),
            ("first", "Block", false),
            ("", "exp", true),
            ("second.fc", "Linear", false),
            ("second", "relu", true),
            ("second", "add", true),
            ("second", "Block", false),
            ("", "softmax", true),
            ("", "sum", true),
        ]
    );
    assert_eq!(seen[4].input.to_vec::<f32>()?, seen[3].output.to_vec::<f32>()?);
    assert!(seen[4].output.node_id().is_some_and(|id| seen[4].nodes == (id..id + 1)));
    // Neither backward passes nor later calls are reported.
    let (_, seen) = watch::activations(&model, || y?.backward());
    assert!(seen.is_empty(), "{seen:?}");
    let (_, seen) = watch::activations(&model, || x.matmul(&x.t()?));
    assert_eq!((&*seen[1].layer, seen[1].flops), ("matmul", 2 * 2 * 2 * 3));
    Ok(())
}

#[test]
fn a_layer_that_fails_is_not_seen() -> Result<()> {
    let net = Net::new()?;
    let wrong = Tensor::ones([2, 3, 8, 8], &device())?;
    let (y, seen) = watched(&net, || net.forward(&wrong));
    assert!(y.is_err());
    assert!(seen.is_empty());
    Ok(())
}

/// A block shared by two places, and a parameter tied to another.
#[derive(Module)]
#[module(backend = Reference)]
struct Tied {
    first: Arc<Linear<B>>,
    second: Arc<Linear<B>>,
    bias: Param<B>,
}

#[test]
fn a_summary_counts_shared_parameters_once_and_tells_shapes_calls_and_work() -> Result<()> {
    let shared = Arc::new(Linear::new(3, 3, &device())?);
    let bias = shared.bias.clone().unwrap();
    let model = Tied {
        first: Arc::clone(&shared),
        second: shared,
        bias,
    };
    model.bias.set_trainable(false);
    let x = Tensor::ones([5, 3], &device())?;
    let run = || {
        model
            .second
            .forward(&model.first.forward(&x)?)?
            .add(model.bias.tensor())
    };
    let summary = model.summary(run)?;
    assert_eq!((summary.parameters, summary.trainable, summary.bytes), (12, 9, 48));
    assert_eq!(summary.flops, 2 * 2 * 5 * 9);
    let rows: Vec<_> = summary
        .rows
        .iter()
        .map(|r| (r.path.as_str(), r.calls, r.parameters, r.flops))
        .collect();
    assert_eq!(rows, [("", 0, 12, 180), ("first", 2, 12, 180), ("second", 0, 12, 0)]);
    Ok(())
}

#[test]
fn a_summary_leaves_the_model_as_it_was() -> Result<()> {
    let net = Net::new()?;
    net.dropout.eval();
    let state = || -> Result<Vec<(String, Vec<f64>)>> {
        let state = net.state_dict()?;
        Ok(state
            .iter()
            .map(|(name, value)| (name.to_owned(), value.to_f64_vec()))
            .collect())
    };
    let before = state()?;
    let x = images()?;
    let text = net.summary(|| net.forward(&x))?.to_string();
    assert_eq!(state()?, before);
    assert!(text.contains("stem: Sequential"), "{text}");
    assert!(text.contains("    2: BatchNorm2d  [2, 4, 6, 6]"), "{text}");
    assert!(
        text.ends_with("122 parameters (122 trainable), 528 bytes with buffers, 5,472 FLOPs forward"),
        "{text}"
    );

    // Training updates the statistics again, and the dropout that was switched off separately stays off.
    let kept = net.dropout.forward(&x)?;
    assert_eq!(kept.to_vec::<f32>()?, x.to_vec::<f32>()?);
    net.forward(&x)?;
    assert_ne!(state()?, before);

    let failed = net.summary(|| Err::<(), _>(Error::invalid("no forward")));
    assert!(failed.unwrap_err().to_string().contains("no forward"));
    Ok(())
}

/// A part of a model that is in containers of all kinds.
#[derive(Module)]
#[module(backend = Reference)]
struct Stage {
    layers: Vec<Linear<B>>,
}

#[derive(Module)]
#[module(backend = Reference)]
struct Tower {
    blocks: Vec<Stage>,
    grid: Vec<Vec<Linear<B>>>,
    pair: (Linear<B>, Sequential<B>),
    maybe: Option<Linear<B>>,
    named: std::collections::BTreeMap<&'static str, Linear<B>>,
    boxed: [Box<Linear<B>>; 1],
}

#[test]
fn a_summary_keeps_the_names_of_lists_tuples_and_maps() -> Result<()> {
    let linear = || Linear::new(2, 2, &device());
    let stage = || -> Result<_> {
        Ok(Stage {
            layers: vec![linear()?, linear()?],
        })
    };
    let tower = Tower {
        blocks: vec![stage()?, stage()?],
        grid: vec![vec![linear()?], vec![linear()?]],
        pair: (linear()?, Sequential::new().push(linear()?).push(ReLU)),
        maybe: Some(linear()?),
        named: [("left", linear()?)].into_iter().collect(),
        boxed: [Box::new(linear()?)],
    };
    let x = Tensor::ones([1, 2], &device())?;
    let text = tower.summary(|| tower.blocks[1].layers[0].forward(&x))?.to_string();
    for line in [
        "Tower",
        "blocks.0: Stage",
        "layers.0: Linear",
        "blocks.1: Stage",
        "layers.1: Linear",
        "grid.0.0: Linear",
        "grid.1.0: Linear",
        "pair.0: Linear",
        "pair.1: Sequential",
        "1: ReLU",
        "maybe: Linear",
        "named.left: Linear",
        "boxed.0: Linear",
    ] {
        assert!(
            text.lines().any(|shown| shown.trim_start().starts_with(line)),
            "{line} is not in\n{text}"
        );
    }
    Ok(())
}
