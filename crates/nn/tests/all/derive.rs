//! The derive macro, names, tied weights, freezing, modes.

use std::collections::{BTreeMap, HashMap};
use std::marker::PhantomData;

use polygrad_nn::optim::*;
use polygrad_nn::*;
use polygrad_tensor::{AnyBackend, Backend, DType, Device, Gradients, Result, Tensor};

on_backends!(
    names_are_pytorchs,
    tied_weights_count_once,
    frozen_parameters_stay,
    modes_reach_everything,
    errors_say_in_which_module,
    stores_are_modules,
);

#[derive(Module)]
struct Block<M, B: Backend> {
    inner: M,
    scale: Param<B>,
    /// Plain data is skipped.
    factor: f64,
    sizes: [usize; 2],
    label: String,
}

#[derive(Module)]
struct Net<B>
where
    B: Backend,
{
    layers: Vec<Linear<B>>,
    optional: Option<Linear<B>>,
    absent: Option<Linear<B>>,
    pair: (Linear<B>, ReLU),
    array: [Linear<B>; 2],
    block: Block<Sequential<B>, B>,
    boxed: Box<dyn Forward<B>>,
    #[module(rename = "renamed")]
    other: Buffer<B>,
    r#type: Buffer<B>,
    #[module(skip)]
    #[allow(dead_code, reason = "only there to be skipped")]
    skipped: Linear<B>,
    marker: PhantomData<B>,
}

#[derive(Module)]
struct Pair<B: Backend>(Linear<B>, Linear<B>);

#[derive(Module)]
enum Either<B: Backend> {
    Pair(Pair<B>),
    Linear(Linear<B>),
    Nothing,
}

#[derive(Module)]
struct Erased {
    linear: Linear,
}

#[derive(Module)]
#[module(forward)]
struct Called<M: Forward<B>, B: Backend> {
    first: Linear<B>,
    inner: M,
}

impl<M: Forward<B>, B: Backend> Called<M, B> {
    fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.inner.forward(&self.first.forward(x)?)
    }
}

#[derive(Module)]
#[module(forward, backend = polygrad_reference::Reference)]
struct CalledOnOne {
    heads: HashMap<String, Linear<polygrad_reference::Reference>>,
    more: BTreeMap<&'static str, Linear<polygrad_reference::Reference>>,
}

impl CalledOnOne {
    fn forward(&self, x: &Tensor<polygrad_reference::Reference>) -> Result<Tensor<polygrad_reference::Reference>> {
        self.heads["b"].forward(x)
    }
}

#[test]
fn a_module_with_a_forward_is_a_layer() -> Result<()> {
    let device = Device::<polygrad_reference::Reference>::default();
    let one = CalledOnOne {
        heads: ["b", "c", "a"].map(|name| (name.to_owned(), linear(&device))).into(),
        more: [("z", linear(&device))].into(),
    };
    let names: Vec<_> = one.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), 8);
    assert_eq!(
        [&names[0], &names[2], &names[4], &names[6]],
        ["heads.a.weight", "heads.b.weight", "heads.c.weight", "more.z.weight"]
    );
    let x = Tensor::randn([3, 2], &device)?;
    let expected = one.forward(&x)?.mul(2.0)?.to_vec::<f32>()?;
    let doubled = Called {
        first: linear(&device),
        inner: Lambda::new(|x| x.mul(2.0)),
    };
    let weights = one.heads["b"].state_dict()?;
    doubled.first.load_state_dict(&weights, true)?;
    let model = Sequential::new().push(doubled);
    assert_eq!(model.forward(&x)?.to_vec::<f32>()?, expected);
    let shared = Sequential::new()
        .push(std::sync::Arc::new(one))
        .push(Lambda::new(|x| x.mul(2.0)));
    assert_eq!(shared.forward(&x)?.to_vec::<f32>()?, expected);
    Ok(())
}

#[derive(Module)]
#[module(backend = polygrad_reference::Reference)]
struct Fixed {
    linear: Linear<polygrad_reference::Reference>,
}

fn linear<B: Backend>(device: &Device<B>) -> Linear<B> {
    Linear::new(2, 2, device).unwrap()
}

fn net<B: Backend>(device: &Device<B>) -> Net<B> {
    let zero = Buffer::new(&Tensor::zeros([1], device).unwrap());
    Net {
        layers: vec![linear(device), linear(device)],
        optional: Some(linear(device)),
        absent: None,
        pair: (linear(device), ReLU),
        array: [linear(device), linear(device)],
        block: Block {
            inner: Sequential::new().push(ReLU).push(linear(device)),
            scale: Init::ONES.param([2], device).unwrap(),
            factor: 2.0,
            sizes: [1, 2],
            label: "block".to_owned(),
        },
        boxed: Box::new(linear(device)),
        other: zero.clone(),
        r#type: zero,
        skipped: linear(device),
        marker: PhantomData,
    }
}

fn names<B: Backend>(module: &impl Module<B>) -> Vec<String> {
    module.named_parameters().into_iter().map(|(name, _)| name).collect()
}

fn names_are_pytorchs<B: Backend>(device: &Device<B>) {
    let net = net(device);
    let mut expected = Vec::new();
    for layer in [
        "layers.0",
        "layers.1",
        "optional",
        "pair.0",
        "array.0",
        "array.1",
        "block.inner.1",
    ] {
        expected.extend([format!("{layer}.weight"), format!("{layer}.bias")]);
    }
    expected.push("block.scale".to_owned());
    expected.extend(["boxed.weight".to_owned(), "boxed.bias".to_owned()]);
    assert_eq!(names(&net), expected);
    let buffers: Vec<String> = net.named_buffers().into_iter().map(|(name, _)| name).collect();
    assert_eq!(buffers, ["renamed", "type"]);
    assert_eq!(net.num_parameters(), 8 * 6 + 2);
    assert_eq!(net.layers[1].weight.name().as_deref(), Some("layers.1.weight"));
    assert!(net.skipped.weight.name().is_none());
    assert_eq!(
        (net.block.factor, net.block.sizes, net.block.label.as_str()),
        (2.0, [1, 2], "block")
    );

    let pair = || Pair(linear(device), linear(device));
    assert_eq!(names(&pair()), ["0.weight", "0.bias", "1.weight", "1.bias"]);
    assert_eq!(names(&Either::Pair(pair())), names(&pair()));
    assert_eq!(names(&Either::Linear(linear(device))), ["weight", "bias"]);
    assert!(names(&Either::<B>::Nothing).is_empty());

    let normal = Sequential::new()
        .push(Conv2d::new(1, 2, 3, device).unwrap())
        .push(BatchNorm2d::new(2, device).unwrap());
    let state = normal.state_dict().unwrap();
    let found: Vec<&str> = state.keys().collect();
    let expected = [
        "0.weight",
        "0.bias",
        "1.weight",
        "1.bias",
        "1.running_mean",
        "1.running_var",
        "1.num_batches_tracked",
    ];
    assert_eq!(found, expected);
    assert_eq!(state.get("1.num_batches_tracked").unwrap().shape().rank(), 0);
}

#[test]
fn modules_without_a_backend_parameter() {
    let device = Device::<polygrad_reference::Reference>::default();
    let fixed = Fixed {
        linear: linear(&device),
    };
    assert_eq!(names(&fixed), ["linear.weight", "linear.bias"]);
    let erased = Erased {
        linear: linear(&device.into_any()),
    };
    assert_eq!(names::<AnyBackend>(&erased), ["linear.weight", "linear.bias"]);
    erased.load_state_dict(&fixed.state_dict().unwrap(), true).unwrap();
    assert_eq!(
        erased.linear.weight.tensor().to_f64_vec().unwrap(),
        fixed.linear.weight.tensor().to_f64_vec().unwrap()
    );
}

fn tied_weights_count_once<B: Backend>(device: &Device<B>) {
    let (first, mut second) = (linear(device), linear(device));
    second.weight = first.weight.clone();
    let pair = Pair(first, second);
    assert_eq!(names(&pair), ["0.weight", "0.bias", "1.bias"]);
    assert_eq!(pair.num_parameters(), 8);
    assert_eq!(pair.state_dict().unwrap().len(), 4);
    let x = Tensor::ones([1, 2], device).unwrap();
    let run = || pair.1.forward(&pair.0.forward(&x)?)?.sum_all();
    let before = pair.0.weight.tensor().to_f64_vec().unwrap();
    let mut optimizer = SGD::new(pair.parameters(), 0.1).unwrap();
    let gradients = run().unwrap().backward().unwrap();
    let gradient = |name: &str| gradients.by_name(name).map(|g| g.to_f64_vec().unwrap());
    assert!(gradient("0.weight").is_some() && gradient("1.weight") == gradient("0.weight"));
    assert!(gradient("1.bias").is_some() && gradient("weight").is_none());
    // Externally created gradients, and those of a parameter at another place, are also found by all names.
    let given = Gradients::new([(&pair.0.weight, pair.0.weight.tensor().detach())]);
    assert!(given.by_name("0.weight").is_some() && given.by_name("1.weight").is_some());
    optimizer.step(&gradients).unwrap();
    let after = pair.1.weight.tensor().to_f64_vec().unwrap();
    assert_eq!(after, pair.0.weight.tensor().to_f64_vec().unwrap());
    assert_ne!(after, before);
    pair.to_dtype(DType::F64).unwrap();
    let x = x.to_dtype(DType::F64).unwrap();
    let gradients = pair
        .1
        .forward(&pair.0.forward(&x).unwrap())
        .unwrap()
        .sum_all()
        .unwrap()
        .backward()
        .unwrap();
    assert!(gradients.by_name("0.weight").is_some() && gradients.by_name("1.weight").is_some());
}

fn frozen_parameters_stay<B: Backend>(device: &Device<B>) {
    let pair = Pair(linear(device), linear(device));
    let mut optimizer = AdamW::new(pair.parameters(), 0.1).unwrap();
    let x = Tensor::ones([1, 2], device).unwrap();
    pair.0.requires_grad(false);
    let loss = pair.1.forward(&pair.0.forward(&x).unwrap()).unwrap().sum_all().unwrap();
    let gradients = loss.backward().unwrap();
    assert!(gradients.by_name("0.weight").is_none() && gradients.by_name("1.weight").is_some());
    let before = (
        pair.0.weight.tensor().to_f64_vec().unwrap(),
        pair.1.weight.tensor().to_f64_vec().unwrap(),
    );
    optimizer.step(&gradients).unwrap();
    assert_eq!(pair.0.weight.tensor().to_f64_vec().unwrap(), before.0);
    assert_ne!(pair.1.weight.tensor().to_f64_vec().unwrap(), before.1);

    // An unused parameter is named in the error, and nothing changes.
    pair.requires_grad(true);
    let gradients = pair.0.forward(&x).unwrap().sum_all().unwrap().backward().unwrap();
    let before = pair.0.weight.tensor().to_f64_vec().unwrap();
    let text = optimizer.step(&gradients).unwrap_err().to_string();
    assert!(
        text.contains("1.weight, 1.bias") && text.contains("allow_unused(true)"),
        "{text}"
    );
    assert_eq!(pair.0.weight.tensor().to_f64_vec().unwrap(), before);
    optimizer.allow_unused(true);
    optimizer.step(&gradients).unwrap();
    assert_ne!(pair.0.weight.tensor().to_f64_vec().unwrap(), before);
}

fn modes_reach_everything<B: Backend>(device: &Device<B>) {
    let model = Sequential::new().push(Sequential::new().push(Dropout::new(0.5).unwrap()));
    let x = Tensor::ones([1000], device).unwrap();
    let zeros = |model: &Sequential<B>| -> Result<usize> {
        Ok(model
            .forward(&x)?
            .to_vec::<f32>()?
            .iter()
            .filter(|&&v| v == 0.0)
            .count())
    };
    assert!((400..600).contains(&zeros(&model).unwrap()));
    model.eval();
    assert_eq!(zeros(&model).unwrap(), 0);
    model.train();
    assert!(zeros(&model).unwrap() > 0);
}

fn errors_say_in_which_module<B: Backend>(device: &Device<B>) {
    let wrong = Tensor::ones([1, 3], device).unwrap();
    let model = || {
        Sequential::new()
            .push(ReLU)
            .push(Sequential::new().push(Tanh).push(linear(device)))
    };
    let path = |model: &Sequential<B>| model.forward(&wrong).unwrap_err().module_path();
    // Before and after the parameters have been named.
    let named = model();
    assert_eq!(path(&named).as_deref(), Some("1.1"));
    named.parameters();
    assert_eq!(path(&named).as_deref(), Some("1.1"));

    #[derive(Module)]
    struct Outer<B: Backend> {
        net: Sequential<B>,
        fc: Linear<B>,
    }
    let outer = Outer {
        net: model(),
        fc: linear(device),
    };
    outer.parameters();
    assert_eq!(path(&outer.net).as_deref(), Some("net.1.1"));
    assert_eq!(
        outer.fc.forward(&wrong).unwrap_err().module_path().as_deref(),
        Some("fc")
    );
}

fn stores_are_modules<B: Backend>(device: &Device<B>) {
    let vs = VarStore::new(device);
    let w = vs.param("w", [1, 2], Init::xavier_uniform()).unwrap();
    let b = vs.sub("head").param("b", [1], Init::ZEROS).unwrap();
    assert_eq!(names(&vs), ["head.b", "w"]);
    assert_eq!(names(&vs.sub("head")), ["b"]);
    assert_eq!(b.name().as_deref(), Some("head.b"));
    let again = vs.param("w", [1, 2], Init::ZEROS).unwrap();
    assert_eq!(again.tensor().to_f64_vec().unwrap(), w.tensor().to_f64_vec().unwrap());
    let text = vs.param("w", [2, 2], Init::ZEROS).unwrap_err().to_string();
    assert!(text.contains("w has shape [1, 2], not [2, 2]"), "{text}");

    let x = Tensor::ones([3, 2], device).unwrap();
    let loss = x.linear(&w.tensor(), Some(&b.tensor())).unwrap().sum_all().unwrap();
    let gradients = loss.backward().unwrap();
    assert_eq!(gradients.by_name("head.b").unwrap().to_f64_vec().unwrap(), [3.0]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.safetensors");
    vs.save(&path).unwrap();
    let before = w.tensor().to_f64_vec().unwrap();
    SGD::new(vs.parameters(), 0.5).unwrap().step(&gradients).unwrap();
    assert_ne!(w.tensor().to_f64_vec().unwrap(), before);
    vs.load(&path).unwrap();
    assert_eq!(w.tensor().to_f64_vec().unwrap(), before);
}
