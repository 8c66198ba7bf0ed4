//! Adapters in graphs.

use polygrad_core::{ErrorKind, HostTensor};
use polygrad_cpu::Cpu;
use polygrad_nn::Module;
use polygrad_nn::lora::LoraConfig;
use polygrad_nn::optim::{Optimizer, SGD};
use polygrad_onnx::graph::{Attribute, Body, Dim, ElementType, Graph, Node, ValueId, ValueType};
use polygrad_onnx::{Engine, OnnxModel, OnnxModule, Options, learnable, lora};
use polygrad_tensor::{Device, Shape, Tensor};

fn device() -> Device {
    Device::<Cpu>::default().into_any()
}

fn weight(body: &mut Body, name: &str, dims: &[usize]) -> ValueId {
    let shape = Shape::new(dims).unwrap();
    let values = (0..shape.numel()).map(|i| ((i * 7 % 11) as f32 - 5.0) / 10.0).collect();
    body.add_initializer(name, HostTensor::new(shape, values).unwrap())
}

fn node(op: &str, name: &str, inputs: &[ValueId], output: ValueId, attributes: &[(&str, Attribute)]) -> Node {
    Node {
        name: name.into(),
        op_type: op.into(),
        inputs: inputs.iter().copied().map(Some).collect(),
        outputs: vec![Some(output)],
        attributes: attributes
            .iter()
            .map(|(name, value)| ((*name).into(), value.clone()))
            .collect(),
        ..Node::default()
    }
}

/// A convolution, a Gemm with a weight `[out, in]`, a MatMul, and the same MatMul once more.
fn graph() -> Graph {
    let mut body = Body {
        name: "net".into(),
        ..Body::default()
    };
    let dims = vec![Dim::Named("n".into()), Dim::Fixed(2), Dim::Fixed(4), Dim::Fixed(4)];
    let x = body.add_value("x", Some(ValueType::tensor(ElementType::F32, dims)));
    let conv = weight(&mut body, "conv.weight", &[3, 2, 3, 3]);
    let conv_bias = weight(&mut body, "conv.bias", &[3]);
    let head = weight(&mut body, "head.weight", &[5, 12]);
    let head_bias = weight(&mut body, "head.bias", &[5]);
    let turn = weight(&mut body, "onnx::MatMul_7", &[5, 5]);
    let [a, b, c, d, e] = ["a", "b", "c", "d", "e"].map(|name| body.add_value(name, None));
    let y = body.add_value("y", None);
    body.inputs = vec![x];
    body.outputs = vec![y];
    let ints = |values: &[i64]| Attribute::Ints(values.to_vec());
    body.nodes = vec![
        node(
            "Conv",
            "/conv/Conv",
            &[x, conv, conv_bias],
            a,
            &[("strides", ints(&[2, 2])), ("pads", ints(&[1, 1, 1, 1]))],
        ),
        node("Relu", "/Relu", &[a], b, &[]),
        node("Flatten", "/Flatten", &[b], c, &[]),
        node(
            "Gemm",
            "/head/Gemm",
            &[c, head, head_bias],
            d,
            &[("transB", Attribute::Int(1))],
        ),
        node("MatMul", "/mix/turn/MatMul", &[d, turn], e, &[]),
        node("MatMul", "/mix/turn_1/MatMul", &[e, turn], y, &[]),
    ];
    Graph {
        opsets: [(String::new(), 20)].into(),
        body,
        ..Graph::default()
    }
}

fn images() -> Tensor {
    let values: Vec<f32> = (0..96).map(|i| (i * 5 % 13) as f32 / 6.0 - 1.0).collect();
    Tensor::from_vec(values, [3, 2, 4, 4], &device()).unwrap()
}

fn outputs(graph: &Graph, engine: Engine) -> Vec<f32> {
    let options = Options {
        engine,
        ..Options::default()
    };
    let model = OnnxModel::from_graph(graph, &device(), options).unwrap();
    model.forward(&[images()]).unwrap().tensor(0).unwrap().to_vec().unwrap()
}

fn close(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-5 * (1.0 + b.abs()))
}

fn config() -> LoraConfig {
    LoraConfig::new(2).alpha(4.0).targets(["conv", "head", "mix.turn"])
}

#[test]
fn an_adapter_is_trained_and_merged() {
    let base = graph();
    let mut graph = base.clone();
    let paths = lora::attach(&mut graph, "mine", &config(), &device()).unwrap();
    assert_eq!(paths, ["conv", "head", "mix.turn"]);
    let before = outputs(&base, Engine::Native);
    assert_eq!(outputs(&graph, Engine::Native), before);

    let mut model = OnnxModel::from_graph(&graph, &device(), Options::default()).unwrap();
    model.train(lora::is_adapter).unwrap();
    let mut losses = Vec::new();
    for _ in 0..40 {
        let loss = model.forward(&[images()]).unwrap().tensor(0).unwrap();
        let loss = (loss - 0.5).unwrap().square().unwrap().mean_all().unwrap();
        losses.push(loss.item().unwrap());
        let gradients = loss.backward().unwrap();
        let mut trained = Vec::new();
        for (name, value) in model.parameters().unwrap() {
            let gradient = gradients.by_name(&name);
            assert_eq!(
                gradient.is_some(),
                name.contains("lora_A") || name.contains("lora_B"),
                "{name}"
            );
            if let Some(gradient) = gradient {
                let value = (value.detach() - &(gradient * 0.3).unwrap()).unwrap();
                trained.push((name.clone(), Tensor::var(&name, value).unwrap()));
            }
        }
        assert_eq!(trained.len(), 6);
        model.set(trained).unwrap();
    }
    assert!(losses[39] < 0.5 * losses[0], "{losses:?}");

    let trained: Vec<f32> = model.forward(&[images()]).unwrap().tensor(0).unwrap().to_vec().unwrap();
    assert!(!close(&trained, &before));
    lora::keep(&mut graph, &model).unwrap();
    // With its nodes and without them, also out of a file, and elsewhere.
    let mut merged = graph.clone();
    lora::merge(&mut merged, &device()).unwrap();
    assert_eq!(merged.body.nodes.len(), base.body.nodes.len());
    assert_eq!(merged.body.initializers.len(), base.body.initializers.len());
    for graph in [&graph, &merged] {
        let read = Graph::from_bytes(graph.to_bytes().unwrap().to_vec()).unwrap();
        assert!(close(&outputs(graph, Engine::Native), &trained));
        assert!(close(&outputs(&read, Engine::Native), &trained));
        if Engine::Ort.available().is_ok() {
            assert!(close(&outputs(graph, Engine::Ort), &trained));
        }
    }
    // What was not an adapter's is as it was.
    for (old, new) in base.body.initializers.iter().zip(&merged.body.initializers) {
        let same = old.tensor.host().bytes() == new.tensor.host().bytes();
        assert_eq!(same, base.body.name_of(old.value).ends_with("bias"));
    }
    assert!(lora::attach(&mut merged, "again", &config(), &device()).is_ok());
}

/// Nodes without names, and an embedding whose weight is the head's, too.
#[test]
fn a_shared_weight_is_only_changed_where_it_has_the_adapter() {
    let mut body = Body {
        name: "tied".into(),
        ..Body::default()
    };
    let ids = body.add_value("ids", Some(ValueType::tensor(ElementType::I64, vec![Dim::Fixed(3)])));
    let first = weight(&mut body, "first", &[4, 4]);
    let words = weight(&mut body, "words", &[7, 4]);
    let [a, b, y] = ["a", "b", "y"].map(|name| body.add_value(name, None));
    body.inputs = vec![ids];
    body.outputs = vec![a, y];
    body.nodes = vec![
        node("Gather", "", &[words, ids], a, &[]),
        node("MatMul", "", &[a, first], b, &[]),
        node("Gemm", "", &[b, words], y, &[("transB", Attribute::Int(1))]),
    ];
    let mut graph = Graph {
        opsets: [(String::new(), 20)].into(),
        body,
        ..Graph::default()
    };
    let ids = Tensor::from_vec(vec![6i64, 0, 3], [3], &device()).unwrap();
    let outputs = |graph: &Graph| {
        let model = OnnxModel::from_graph(graph, &device(), Options::default()).unwrap();
        let outputs = model.forward(std::slice::from_ref(&ids)).unwrap();
        [0, 1].map(|i| outputs.tensor(i).unwrap().to_vec::<f32>().unwrap())
    };
    let before = outputs(&graph);
    let paths = lora::attach(&mut graph, "mine", &LoraConfig::new(2), &device()).unwrap();
    assert_eq!(paths, ["first", "words"]);
    // As if it had been trained.
    for initializer in &mut graph.body.initializers {
        if lora::is_adapter(&graph.body.values[initializer.value.index()].name) {
            let shape = *initializer.tensor.host().shape();
            let values = (0..shape.numel()).map(|i| 0.3 - (i % 5) as f32 / 10.0).collect();
            initializer.tensor = HostTensor::new(shape, values).unwrap().into();
        }
    }
    let trained = outputs(&graph);
    assert!(trained[0] == before[0] && !close(&trained[1], &before[1]));
    let mut merged = graph.clone();
    lora::merge(&mut merged, &device()).unwrap();
    assert_eq!(merged.body.nodes.len(), 3);
    let found = outputs(&Graph::from_bytes(merged.to_bytes().unwrap().to_vec()).unwrap());
    assert!(found[0] == before[0] && close(&found[1], &trained[1]));

    // Another program renamed the weight of an unnamed node.
    let renamed = graph
        .body
        .values
        .iter_mut()
        .find(|value| value.name == "first")
        .unwrap();
    renamed.name = "second".into();
    let error = lora::merge(&mut graph, &device()).unwrap_err();
    assert!(error.to_string().contains("factor of no layer"), "{error}");
}

#[test]
fn what_does_not_fit_is_an_error() {
    let refused = |config: &LoraConfig, name: &str, says: &str| {
        let (base, mut graph) = (graph(), graph());
        let error = lora::attach(&mut graph, name, config, &device()).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(graph.body.nodes.len(), base.body.nodes.len());
    };
    refused(&LoraConfig::new(0), "mine", "rank 0");
    refused(&LoraConfig::new(2).dropout(0.1), "mine", "dropout");
    refused(&LoraConfig::new(2).dora(true), "mine", "DoRA");
    refused(&LoraConfig::new(2).targets(["query"]), "mine", "query");
    refused(&LoraConfig::new(2).exclude(["head", "turn"]), "mine", "no layer left");
    refused(&LoraConfig::new(2), "a.b", "cannot be called");

    let mut fixed = graph();
    for known in std::mem::take(&mut fixed.body.initializers) {
        let value = ("value", Attribute::Tensor(known.tensor));
        fixed
            .body
            .nodes
            .insert(0, node("Constant", "", &[], known.value, &[value]));
    }
    let error = lora::attach(&mut fixed, "mine", &LoraConfig::new(2).targets(["head"]), &device()).unwrap_err();
    assert!(error.to_string().contains("in Constant nodes"), "{error}");
    let error = OnnxModule::new(&fixed, |_| true, &device()).unwrap_err();
    assert!(error.to_string().contains("in Constant nodes"), "{error}");

    let mut adapted = graph();
    assert_eq!(
        lora::attach(&mut adapted, "mine", &LoraConfig::new(2), &device()).unwrap(),
        ["head", "mix.turn"]
    );
    let error = lora::attach(&mut adapted, "other", &LoraConfig::new(2), &device()).unwrap_err();
    assert!(error.to_string().contains("already"), "{error}");
    let error = lora::merge(&mut graph(), &device()).unwrap_err();
    assert!(error.to_string().contains("no adapter"), "{error}");

    let mut model = OnnxModel::from_graph(&adapted, &device(), Options::default()).unwrap();
    model.train(lora::is_adapter).unwrap();
    let error = lora::keep(&mut graph(), &model).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("lora_A"), "{error}");
}

/// Changes each factor `B`, as training would.
fn trained(graph: &mut Graph) {
    let body = &mut graph.body;
    for at in 0..body.initializers.len() {
        if body.name_of(body.initializers[at].value).contains("lora_B.") {
            let shape = *body.initializers[at].tensor.host().shape();
            let values: Vec<f32> = (0..shape.numel()).map(|i| (i % 7) as f32 / 10.0 - 0.3).collect();
            body.initializers[at].tensor = HostTensor::new(shape, values).unwrap().into();
        }
    }
}

#[test]
fn pefts_files_carry_an_adapter_to_another_graph() {
    let folder = tempfile::tempdir().unwrap();
    let mut adapted = graph();
    lora::attach(&mut adapted, "mine", &config().alpha(3.0), &device()).unwrap();
    trained(&mut adapted);
    let wanted = outputs(&adapted, Engine::Native);
    assert!(!close(&wanted, &outputs(&graph(), Engine::Native)));
    let written = lora::peft(&adapted).unwrap();
    assert_eq!(written.layers.keys().collect::<Vec<_>>(), ["conv", "head", "mix.turn"]);
    assert_eq!(written.layers["head"].scale, 1.5);
    written.save(folder.path()).unwrap();

    let mut other = graph();
    assert_eq!(lora::load(&mut other, "other", folder.path()).unwrap().len(), 3);
    assert_eq!(outputs(&other, Engine::Native), wanted);
    lora::merge(&mut other, &device()).unwrap();
    assert!(close(&outputs(&other, Engine::Native), &wanted));

    // A graph whose layers have other names and shapes.
    let mut strange = graph();
    for value in &mut strange.body.values {
        value.name = value.name.replace("head.", "top.");
    }
    let before = strange.body.nodes.len();
    let error = lora::load(&mut strange, "other", folder.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StateDict);
    assert!(error.message().contains("of another base: no layer head"), "{error}");
    assert_eq!(strange.body.nodes.len(), before);
    let mut wrong = written.clone();
    let narrow = HostTensor::new([2, 5].into(), vec![0f32; 10]).unwrap();
    wrong.layers.get_mut("head").unwrap().a = narrow;
    wrong.save(folder.path()).unwrap();
    let error = lora::load(&mut graph(), "other", folder.path()).unwrap_err();
    assert!(
        error
            .message()
            .contains("head: factors [[2, 5], [5, 2]], and the weight takes"),
        "{error}"
    );
    // More than a change of low rank, and nothing at all.
    let path = folder.path().join("adapter_config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"use_dora\": false", "\"use_dora\": true")).unwrap();
    let error = lora::load(&mut graph(), "other", folder.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(lora::peft(&graph()).unwrap_err().message().contains("no adapter"));
}

#[test]
fn a_module_trains_what_was_chosen_and_keeps_its_plan_when_some_is_frozen() {
    let base = graph();
    let weights = learnable(&base.body);
    assert_eq!(weights.len(), 5);
    let model = OnnxModule::new(&base, |name| weights.contains(&name), &device()).unwrap();
    assert_eq!(model.parameters().len(), 5);
    model.freeze(["conv"]).unwrap();
    let before = model.state_dict().unwrap();
    let mut optimizer = SGD::new(model.parameters(), 0.1).unwrap();
    let mut losses = Vec::new();
    for _ in 0..10 {
        let loss = model
            .forward(&[images()])
            .unwrap()
            .tensor(0)
            .unwrap()
            .square()
            .unwrap()
            .mean_all()
            .unwrap();
        losses.push(loss.item().unwrap());
        optimizer.step(&loss.backward().unwrap()).unwrap();
    }
    assert!(losses[9] < 0.5 * losses[0], "{losses:?}");
    let after = model.state_dict().unwrap();
    for name in weights {
        let same = before.get(name).unwrap().to_f64_vec() == after.get(name).unwrap().to_f64_vec();
        assert_eq!(same, name.starts_with("conv."), "{name}");
    }
    // A frozen value that is loaded counts at once.
    let state = model.state_dict().unwrap();
    let zeros = state.iter().map(|(name, value)| {
        let zeros = HostTensor::new(*value.shape(), vec![0f32; value.shape().numel()]).unwrap();
        (
            name.to_owned(),
            if name == "conv.weight" { zeros } else { value.clone() },
        )
    });
    let old = model
        .forward(&[images()])
        .unwrap()
        .tensor(0)
        .unwrap()
        .to_f64_vec()
        .unwrap();
    model.load_state_dict(&zeros.collect(), true).unwrap();
    let new = model
        .forward(&[images()])
        .unwrap()
        .tensor(0)
        .unwrap()
        .to_f64_vec()
        .unwrap();
    assert_ne!(old, new);
    let written = outputs(&model.written(&base).unwrap(), Engine::Native);
    assert!(new.iter().zip(&written).all(|(a, b)| (a - f64::from(*b)).abs() < 1e-5));
    let error = OnnxModule::new(&base, |_| false, &device()).unwrap_err();
    assert!(error.message().contains("no weights to be trained"), "{error}");
}
