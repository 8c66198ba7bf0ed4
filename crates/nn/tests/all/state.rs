//! State dicts: missing, unexpected and mismatched entries are all reported at once, and nothing changes.

use polygrad_nn::optim::*;
use polygrad_nn::*;
use polygrad_tensor::{Backend, DType, Device, ErrorKind, HostTensor, Shape, Tensor, bf16};

on_backends!(
    misfits_are_all_named,
    a_prefix_too_many_is_named,
    another_models_file_gives_few_guesses,
    values_that_do_not_fit_are_refused,
    names_are_escaped,
    what_fits_is_taken_where_that_is_wanted,
    one_name_of_a_shared_parameter_is_enough,
    values_take_the_modules_dtype,
    snapshots_stay,
    settled_weights_stay_what_they_are,
    optimizers_say_what_does_not_fit,
    options_are_checked,
    averages_are_means_and_say_what_differs,
);

fn mlp<B: Backend>(device: &Device<B>) -> Sequential<B> {
    Sequential::new()
        .push(Linear::new(3, 4, device).unwrap())
        .push(ReLU)
        .push(Linear::new(4, 2, device).unwrap())
}

fn values<B: Backend>(module: &impl Module<B>) -> Vec<Vec<f64>> {
    module
        .parameters()
        .iter()
        .map(|p| p.tensor().to_f64_vec().unwrap())
        .collect()
}

fn host(shape: &[usize]) -> HostTensor {
    let shape = Shape::new(shape).unwrap();
    HostTensor::new(shape, vec![0.5f32; shape.numel()]).unwrap()
}

/// A state dict with a letter switched, one entry too many, one of another shape and one of another kind.
fn misfit() -> StateDict {
    let mut state = StateDict::new();
    state.insert("0.wieght", host(&[4, 3]));
    state.insert("0.bias", host(&[5]));
    state.insert("2.weight", HostTensor::new(Shape::from([2, 4]), vec![1i64; 8]).unwrap());
    state.insert("2.bias", host(&[2]));
    state.insert("decoder.gamma", host(&[]));
    state
}

fn misfits_are_all_named<B: Backend>(device: &Device<B>) {
    let model = mlp(device);
    let before = values(&model);
    let error = model.load_state_dict(&misfit(), true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StateDict);
    let text = error.to_string();
    for part in [
        "missing: 0.weight (perhaps 0.wieght);",
        "unexpected: 0.wieght (perhaps 0.weight), decoder.gamma;",
        "mismatched: 0.bias (module f32[4], state dict f32[5]), 2.weight (module f32[2, 4], state dict i64[2, 4]);",
        "build the model with the sizes",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert!(!text.contains("2.bias"), "{text}");
    let lenient = model.load_state_dict(&misfit(), false).unwrap_err().to_string();
    assert!(
        lenient.contains("mismatched: 0.bias") && !lenient.contains("missing"),
        "{lenient}"
    );
    assert_eq!(values(&model), before);
}

fn a_prefix_too_many_is_named<B: Backend>(device: &Device<B>) {
    let model = mlp(device);
    let state = model.state_dict().unwrap();
    let within = |prefix: &str| -> StateDict {
        let entries = state
            .iter()
            .map(|(name, value)| (format!("{prefix}{name}"), value.clone()));
        entries.collect()
    };
    let mut wrapped = within("model.module.");
    wrapped.insert("optimizer.step", host(&[]));
    let error = model.load_state_dict(&wrapped, true).unwrap_err().to_string();
    assert!(error.contains("load state.with_prefix(\"model.module.\")"), "{error}");
    model
        .load_state_dict(&wrapped.with_prefix("model.module."), true)
        .unwrap();
    // Not the prefix of a module, and not common to all names.
    let joined = model.load_state_dict(&within("x"), true).unwrap_err().to_string();
    assert!(joined.contains("rename the entries"), "{joined}");
    wrapped = wrapped.with_prefix("model.");
    let most = wrapped
        .iter()
        .skip(1)
        .map(|(name, value)| (name.to_owned(), value.clone()))
        .collect();
    let error = model.load_state_dict(&most, true).unwrap_err().to_string();
    assert!(error.contains("rename the entries"), "{error}");
}

fn another_models_file_gives_few_guesses<B: Backend>(device: &Device<B>) {
    let layers = |names: &[String]| -> StateDict {
        let names = names
            .iter()
            .flat_map(|name| [format!("{name}.weight"), format!("{name}.bias")]);
        names.map(|name| (name, host(&[2]))).collect()
    };
    let perhaps = |names: &[String]| {
        let error = mlp(device).load_state_dict(&layers(names), true).unwrap_err();
        error.to_string().matches("(perhaps").count()
    };
    assert_eq!(perhaps(&["conv1", "bn1", "head", "dec1"].map(str::to_owned)), 0);
    let wide = VarStore::new(device);
    for i in 0..30 {
        wide.param(&format!("block{i}_weight"), [2], Init::ZEROS).unwrap();
    }
    let renamed: StateDict = (0..30).map(|i| (format!("block{i}_wieght"), host(&[2]))).collect();
    let error = wide.load_state_dict(&renamed, true).unwrap_err().to_string();
    assert!(
        error.contains("block29_weight") && error.contains("block29_wieght"),
        "{error}"
    );
    assert_eq!(error.matches("(perhaps").count(), 6, "{error}");
}

fn values_that_do_not_fit_are_refused<B: Backend>(device: &Device<B>) {
    let param = Param::new(Tensor::zeros([2], device).unwrap()).unwrap();
    param.set_name("fc.weight");
    let buffer = Buffer::new(&Tensor::zeros([2], device).unwrap());
    let three = Tensor::ones([3], device).unwrap();
    let double = Tensor::ones([2], device).unwrap().to_dtype(DType::F64).unwrap();
    for (value, kind, what) in [
        (three, ErrorKind::Shape, "f32[3]"),
        (double, ErrorKind::DType, "f64[2]"),
    ] {
        let replaced = |inner: &mut B::Tensor| {
            *inner = value.inner().clone();
            Ok(())
        };
        for error in [param.set(&value), param.update(replaced), buffer.set(&value)].map(Result::unwrap_err) {
            assert_eq!(error.kind(), kind, "{error}");
            assert!(
                error.to_string().contains(&format!("of f32[2] cannot become {what}")),
                "{error}"
            );
        }
        let error = param.set(&value).unwrap_err().to_string();
        assert!(error.contains("fc.weight"), "{error}");
        for kept in [param.tensor(), buffer.tensor()] {
            assert_eq!(kept.to_vec::<f32>().unwrap(), [0.0; 2]);
        }
    }
}

/// Names in a file may contain terminal control characters.
fn names_are_escaped<B: Backend>(device: &Device<B>) {
    let mut state = misfit();
    state.insert("a\u{1b}[2J\n", host(&[]));
    let text = mlp(device).load_state_dict(&state, true).unwrap_err().to_string();
    assert!(text.contains(r"a\u{1b}[2J\n"), "{text}");
}

fn what_fits_is_taken_where_that_is_wanted<B: Backend>(device: &Device<B>) {
    let model = mlp(device);
    let before = values(&model);
    let mut state = StateDict::new();
    state.insert("2.bias", host(&[2]));
    state.insert("other", host(&[2]));
    let report = model.load_state_dict(&state, false).unwrap();
    assert_eq!(report.missing, ["0.weight", "0.bias", "2.weight"]);
    assert_eq!(report.unexpected, ["other"]);
    let after = values(&model);
    assert_eq!(after[..3], before[..3]);
    assert_eq!(after[3], [0.5, 0.5]);
}

#[derive(Module)]
struct Tied<B: Backend> {
    encoder: Param<B>,
    decoder: Param<B>,
}

fn one_name_of_a_shared_parameter_is_enough<B: Backend>(device: &Device<B>) {
    let encoder = Param::new(Tensor::zeros([2], device).unwrap()).unwrap();
    let model = Tied {
        decoder: encoder.clone(),
        encoder,
    };
    let entry = |name: &str, x: f32| {
        let value = HostTensor::new(Shape::from([2]), vec![x, f32::NAN]).unwrap();
        (name.to_owned(), value)
    };
    assert_eq!(model.state_dict().unwrap().len(), 2);
    for names in [vec!["encoder"], vec!["decoder"], vec!["encoder", "decoder"]] {
        model.encoder.set(&Tensor::zeros([2], device).unwrap()).unwrap();
        let state: StateDict = names.iter().map(|name| entry(name, 3.0)).collect();
        model.load_state_dict(&state, true).unwrap();
        assert_eq!(model.decoder.tensor().to_f64_vec().unwrap()[0], 3.0);
    }
    let torn: StateDict = [entry("encoder", 1.0), entry("decoder", 2.0)].into_iter().collect();
    let error = model.load_state_dict(&torn, true).unwrap_err().to_string();
    assert!(error.contains("decoder (one parameter with encoder"), "{error}");
    assert_eq!(model.encoder.tensor().to_f64_vec().unwrap()[0], 3.0);
    let error = model.load_state_dict(&StateDict::new(), true).unwrap_err().to_string();
    assert!(error.contains("missing: encoder, decoder"), "{error}");
}

fn values_take_the_modules_dtype<B: Backend>(device: &Device<B>) {
    let model = Linear::new(1, 2, device).unwrap();
    let mut state = StateDict::new();
    let halves = vec![bf16::from_f64(0.5), bf16::from_f64(-2.0)];
    state.insert("weight", HostTensor::new(Shape::from([2, 1]), halves).unwrap());
    state.insert("bias", HostTensor::new(Shape::from([2]), vec![1.0f64, 2.0]).unwrap());
    model.load_state_dict(&state, true).unwrap();
    assert_eq!(model.weight.dtype(), DType::F32);
    assert_eq!(model.weight.tensor().to_vec::<f32>().unwrap(), [0.5, -2.0]);
    // Values that become infinite are reported, and nothing changes; values that already are infinite are accepted.
    state.insert(
        "bias",
        HostTensor::new(Shape::from([2]), vec![1e300f64, f64::INFINITY]).unwrap(),
    );
    state.insert("weight", HostTensor::new(Shape::from([2, 1]), vec![1f32, 2.0]).unwrap());
    let error = model.load_state_dict(&state, true).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("1 values of f64 are too large for f32 and would become infinite in module bias"),
        "{text}"
    );
    assert_eq!(error.kind(), ErrorKind::StateDict);
    assert_eq!(model.weight.tensor().to_vec::<f32>().unwrap(), [0.5, -2.0]);
    state.insert(
        "bias",
        HostTensor::new(Shape::from([2]), vec![1e-300f64, f64::INFINITY]).unwrap(),
    );
    state.insert(
        "weight",
        HostTensor::new(Shape::from([2, 1]), vec![0.5f32, -2.0]).unwrap(),
    );
    model.load_state_dict(&state, true).unwrap();

    model.to_dtype(DType::F64).unwrap();
    assert_eq!(
        model.bias.as_ref().unwrap().tensor().to_vec::<f64>().unwrap(),
        [0.0, f64::INFINITY]
    );
    let text = model.to_dtype(DType::I64).unwrap_err().to_string();
    assert!(text.contains("i64") && text.contains("weight"), "{text}");
    let norm = BatchNorm1d::new(2, device).unwrap();
    norm.to_dtype(DType::F64).unwrap();
    let dtypes: Vec<DType> = norm
        .named_buffers()
        .iter()
        .map(|(_, buffer)| buffer.tensor().dtype())
        .collect();
    assert_eq!(dtypes, [DType::F64, DType::F64, DType::I64]);
}

fn snapshots_stay<B: Backend>(device: &Device<B>) {
    let model = Linear::new(2, 1, device).unwrap();
    let mut optimizer = SGDConfig::new(0.1).momentum(0.9).build(model.parameters()).unwrap();
    let x = Tensor::ones([1, 2], device).unwrap();
    let mut step = || {
        let gradients = model.forward(&x).unwrap().sum_all().unwrap().backward().unwrap();
        optimizer.step(&gradients).unwrap();
        optimizer.state_dict().unwrap()
    };
    let momentum = step();
    let (weights, graph) = (model.state_dict().unwrap(), model.forward(&x).unwrap());
    let before: Vec<Vec<f64>> = [&weights, &momentum]
        .iter()
        .flat_map(|s| s.iter().map(|(_, v)| v.to_f64_vec()))
        .collect();
    let output = graph.to_f64_vec().unwrap();
    step();
    let after: Vec<Vec<f64>> = [&weights, &momentum]
        .iter()
        .flat_map(|s| s.iter().map(|(_, v)| v.to_f64_vec()))
        .collect();
    assert_eq!(before, after);
    assert_ne!(weights.get("weight").unwrap().to_f64_vec(), values(&model)[0]);
    assert_eq!(graph.to_f64_vec().unwrap(), output);
}

fn optimizers_say_what_does_not_fit<B: Backend>(device: &Device<B>) {
    let model = mlp(device);
    let x = Tensor::ones([1, 3], device).unwrap();
    let gradients = || model.forward(&x).unwrap().sum_all().unwrap().backward().unwrap();
    let mut adam = Adam::new(model.parameters(), 0.1).unwrap();
    adam.step(&gradients()).unwrap();
    let state = adam.state_dict().unwrap();
    assert!(
        state.contains("0.weight.exp_avg") && state.contains("2.bias.exp_avg_sq"),
        "{state:?}"
    );
    assert_eq!(state.get("0.bias.step").unwrap().to_f64_vec(), [1.0]);

    let mut sgd = SGDConfig::new(0.1).momentum(0.5).build(model.parameters()).unwrap();
    let error = sgd.load_state_dict(&state).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StateDict);
    let text = error.to_string();
    assert!(text.contains("missing: 0.weight.momentum_buffer"), "{text}");
    assert!(text.contains("unexpected: 2.bias.exp_avg_sq"), "{text}");

    let other = Linear::new(3, 4, device).unwrap();
    let text = Adam::new(other.parameters(), 0.1)
        .unwrap()
        .load_state_dict(&state)
        .unwrap_err()
        .to_string();
    assert!(text.contains("unexpected: 2.weight.exp_avg"), "{text}");

    let mut damaged = state.clone();
    damaged.insert("0.bias.exp_avg", host(&[7]));
    damaged.insert("0.weight.step", host(&[2]));
    let before = adam.state_dict().unwrap();
    let text = adam.load_state_dict(&damaged).unwrap_err().to_string();
    assert!(
        text.contains("mismatched: 0.bias.exp_avg (parameter f32[4], state f32[7])"),
        "{text}"
    );
    assert!(text.contains("0.weight.step is no number of steps"), "{text}");
    let after = adam.state_dict().unwrap();
    assert!(
        before
            .iter()
            .zip(after.iter())
            .all(|(a, b)| a.0 == b.0 && a.1.to_f64_vec() == b.1.to_f64_vec())
    );
}

fn options_are_checked<B: Backend>(device: &Device<B>) {
    let model = Linear::new(2, 1, device).unwrap();
    let params = || model.parameters();
    let faults = [
        SGD::new(params(), -0.1).err(),
        SGD::new(params(), f64::NAN).err(),
        SGDConfig::new(0.1).nesterov(true).build(params()).err(),
        Adam::new(Vec::<Param<B>>::new(), 0.1).err(),
        AdamConfig::new(0.1).betas(0.9, 1.0).build(params()).err(),
        RMSpropConfig::new(0.1).alpha(2.0).build(params()).err(),
        Dropout::new(1.5).err(),
        Conv2dConfig::new(3, 4, 3).groups(2).build(device).err(),
        Conv2dConfig::new(3, 4, 0).build(device).err(),
        Conv2dConfig::new(3, 4, 2).stride(2).padding_same().build(device).err(),
        EmbeddingConfig::new(3, 4).padding_idx(3).build(device).err(),
        EmbeddingConfig::new(3, 4).padding_idx(-4).build(device).err(),
        LayerNorm::new((), device).err(),
        Init::xavier_uniform().param([3], device).err(),
        Init::orthogonal(1.0).param([3], device).err(),
        Init::TruncNormal {
            mean: 0.0,
            std: 1.0,
            low: 9.0,
            high: 10.0,
        }
        .param([3], device)
        .err(),
        Init::ZEROS.tensor([3], DType::I64, device).err(),
    ];
    for (i, fault) in faults.into_iter().enumerate() {
        let text = fault.unwrap_or_else(|| panic!("case {i} is no error")).to_string();
        assert!(text.len() > 20, "{text}");
    }
}

fn averages_are_means_and_say_what_differs<B: Backend>(device: &Device<B>) {
    let state = |scale: f64, count: i64| {
        let mut state = StateDict::new();
        let numbers = |n: usize| (0..n).map(|i| scale * (i as f64 + 0.5)).collect::<Vec<_>>();
        let floats = |n: usize, dtype| HostTensor::new([n].into(), numbers(n)).unwrap().cast(dtype);
        state.insert("weight", floats(3, DType::F32));
        state.insert("half", floats(2, DType::BF16));
        state.insert("num_batches_tracked", HostTensor::scalar(count));
        state
    };
    let of = |state: &StateDict, name: &str| state.get(name).unwrap().to_f64_vec();
    let (a, b, c) = (state(1.0, 5), state(2.0, 6), state(6.0, 7));
    let mean = StateDict::average([&a, &b, &c]).unwrap();
    assert_eq!(
        mean.keys().collect::<Vec<_>>(),
        ["weight", "half", "num_batches_tracked"]
    );
    assert_eq!(
        (mean.get("weight").unwrap().dtype(), mean.get("half").unwrap().dtype()),
        (DType::F32, DType::BF16)
    );
    assert_eq!(of(&mean, "weight"), of(&state(3.0, 0), "weight"));
    assert_eq!(of(&mean, "num_batches_tracked"), [7.0]);
    // Only ratios of weights matter, and models of weight 0 do not count.
    let mut broken = c.clone();
    broken.insert("weight", HostTensor::new([3].into(), vec![f32::NAN; 3]).unwrap());
    let weighted = StateDict::weighted_average([(&a, 30.0), (&b, 10.0), (&broken, 0.0)]).unwrap();
    assert_eq!(of(&weighted, "weight"), of(&state(1.25, 0), "weight"));
    // The average of equal models equals them bit for bit.
    let same = StateDict::average([&a, &a, &a]).unwrap();
    for (name, value) in a.iter() {
        assert_eq!(of(&same, name), value.to_f64_vec());
    }

    let none: [&StateDict; 0] = [];
    let mut other = state(1.0, 1);
    other.insert("weight", HostTensor::new([1, 3].into(), vec![0f32; 3]).unwrap());
    other.insert("half", HostTensor::new([2].into(), vec![0f32; 2]).unwrap());
    other.insert("bias", HostTensor::scalar(0f32));
    let mut less = StateDict::new();
    less.insert("weight", a.get("weight").unwrap().clone());
    for (error, parts) in [
        (StateDict::average(none).unwrap_err(), &["there are no state dicts"][..]),
        (
            StateDict::average([&a, &b, &other]).unwrap_err(),
            &[
                "state dict 3 of 3",
                "unexpected: bias",
                "weight (f32[3] in the first, f32[1, 3] here)",
                "half (bf16[2]",
            ],
        ),
        (
            StateDict::average([&a, &less]).unwrap_err(),
            &["state dict 2 of 2", "missing: half, num_batches_tracked"],
        ),
        (
            StateDict::weighted_average([(&a, 0.0), (&b, 0.0)]).unwrap_err(),
            &["[0.0, 0.0]"],
        ),
        (
            StateDict::weighted_average([(&a, 2.0), (&b, -1.0)]).unwrap_err(),
            &["-1.0"],
        ),
        (StateDict::weighted_average([(&a, f64::NAN)]).unwrap_err(), &["NaN"]),
    ] {
        for part in parts {
            assert!(error.to_string().contains(part), "{part}: {error}");
        }
    }
    // The average of models.
    let (one, two) = (mlp(device), mlp(device));
    let mean = StateDict::average([&one.state_dict().unwrap(), &two.state_dict().unwrap()]).unwrap();
    let (first, second) = (values(&one), values(&two));
    one.load_state_dict(&mean, true).unwrap();
    for ((a, b), mean) in first.concat().iter().zip(second.concat()).zip(values(&one).concat()) {
        assert!(((a + b) / 2.0 - mean).abs() < 1e-7);
    }
}

fn settled_weights_stay_what_they_are<B: Backend>(device: &Device<B>) {
    // The first weight is large enough to be moved, and a bias is not.
    let model = Sequential::new()
        .push(Linear::new(200, 300, device).unwrap())
        .push(Linear::new(300, 2, device).unwrap());
    let params = model.parameters();
    params[2].set_trainable(false);
    let before = values(&model);
    for _ in 0..2 {
        model.settle().unwrap();
        assert_eq!(values(&model), before);
    }
    let trained: Vec<bool> = params.iter().map(Param::is_trainable).collect();
    assert_eq!(trained, [true, true, false, true]);

    // They can still be trained.
    let x = Tensor::ones([1, 200], device).unwrap();
    let loss = model.forward(&x).unwrap().sum_all().unwrap();
    let mut optimizer = SGD::new(model.parameters(), 0.1).unwrap();
    optimizer.backward_step(loss).unwrap();
    let after = values(&model);
    let changed: Vec<bool> = before.iter().zip(&after).map(|(old, new)| old != new).collect();
    assert_eq!(changed, [true, true, false, true]);
}
