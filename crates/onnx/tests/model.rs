//! Loading, folding, training and running models.

use polygrad_core::{DType, ErrorKind, HostTensor};
use polygrad_cpu::Cpu;
use polygrad_onnx::graph::{Attribute, Body, Dim, ElementType, Function, Graph, Node, ValueId, ValueType};
use polygrad_onnx::{OnnxModel, Options};
use polygrad_tensor::{Device, Shape, Tensor};

fn device() -> Device<Cpu> {
    Device::default()
}

fn call(op: &str, inputs: &[ValueId], output: ValueId) -> Node {
    Node {
        name: format!("{op}_{}", output.0),
        op_type: op.into(),
        inputs: inputs.iter().copied().map(Some).collect(),
        outputs: vec![Some(output)],
        ..Node::default()
    }
}

/// `y = x (2 w)`, with `x [n, 2]`, and a node that nobody needs.
fn product() -> Graph {
    let mut body = Body::default();
    let batch = ValueType::tensor(ElementType::F32, vec![Dim::Named("n".into()), Dim::Fixed(2)]);
    let x = body.add_value("x", Some(batch));
    let w = body.add_initializer("w", HostTensor::new(Shape::from([2, 1]), vec![1f32, 2.0]).unwrap());
    let two = body.add_initializer("two", HostTensor::scalar(2f32));
    let [double, y, unused] = ["double", "y", "unused"].map(|name| body.add_value(name, None));
    body.inputs = vec![x];
    body.outputs = vec![y];
    body.nodes = vec![
        call("Mul", &[w, two], double),
        call("MatMul", &[x, double], y),
        call("Exp", &[x], unused),
    ];
    Graph {
        opsets: [(String::new(), 20)].into(),
        body,
        ..Graph::default()
    }
}

#[test]
fn runs_by_order_and_by_name() {
    let model = OnnxModel::from_graph(&product(), &device(), Options::default()).unwrap();
    let x = Tensor::new([[1f32, 1.0], [3.0, 0.0]], &device()).unwrap();
    for _ in 0..2 {
        let outputs = model.forward(std::slice::from_ref(&x)).unwrap();
        assert_eq!(outputs.named("y").unwrap().to_vec::<f32>().unwrap(), [6.0, 6.0]);
    }
    let outputs = model.forward_named(&[("x", &x)]).unwrap();
    assert_eq!(outputs.tensor(0).unwrap().dims(), [2, 1]);
    let wrong = |error: polygrad_tensor::Error, says: &str| assert!(error.to_string().contains(says), "{error}");
    wrong(model.forward(&[]).unwrap_err(), "takes 1: x");
    wrong(model.forward_named(&[("z", &x)]).unwrap_err(), "\"x\" is missing");
    wrong(
        model.forward_named(&[("x", &x), ("z", &x)]).unwrap_err(),
        "no input \"z\"",
    );
    wrong(
        model.forward(&[x.to_dtype(DType::F64).unwrap()]).unwrap_err(),
        "f64 was given",
    );
    wrong(
        model.forward(&[x.t().unwrap().reshape([4, 1]).unwrap()]).unwrap_err(),
        "[4, 1] was given",
    );
}

#[test]
fn gradients_reach_what_trains() {
    let mut model = OnnxModel::from_graph(&product(), &device(), Options::default()).unwrap();
    let x = Tensor::new([[1f32, 1.0], [3.0, 0.0]], &device()).unwrap();
    assert!(
        !model
            .forward(std::slice::from_ref(&x))
            .unwrap()
            .tensor(0)
            .unwrap()
            .is_tracked()
    );
    model.train(|name| name == "w").unwrap();
    let loss = model
        .forward(std::slice::from_ref(&x))
        .unwrap()
        .tensor(0)
        .unwrap()
        .sum_all()
        .unwrap();
    let gradients = loss.backward().unwrap();
    assert_eq!(gradients.by_name("w").unwrap().to_vec::<f32>().unwrap(), [8.0, 2.0]);
    assert!(gradients.by_name("two").is_none());
    // Other values are used at once, folded or not.
    let w = Tensor::new([[0f32], [1.0]], &device()).unwrap();
    model.set([("w".to_owned(), w)]).unwrap();
    assert_eq!(
        model.forward(&[x]).unwrap().tensor(0).unwrap().to_vec::<f32>().unwrap(),
        [2.0, 0.0]
    );
    let names: Vec<String> = model.parameters().unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["w", "two"]);
    let error = model
        .set([("w".to_owned(), Tensor::zeros([3], &device()).unwrap())])
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StateDict);
}

#[test]
fn functions_are_put_in_place() {
    let mut body = Body::default();
    let [x, slope, y] = ["x", "slope", "y"].map(|name| body.add_value(name, None));
    body.inputs = vec![x, slope];
    body.outputs = vec![y];
    let mut leaky = call("LeakyRelu", &[x], y);
    leaky
        .attributes
        .push(("alpha".into(), Attribute::Reference("strength".into())));
    body.nodes = vec![leaky];
    let function = Function {
        name: "Gentle".into(),
        domain: "mine".into(),
        attributes: vec![("strength".into(), Some(Attribute::Float(0.5)))],
        opsets: [(String::new(), 20)].into(),
        body,
        ..Function::default()
    };
    let mut body = Body::default();
    let [x, a, b] = ["x", "a", "b"].map(|name| body.add_value(name, None));
    let mut first = call("Gentle", &[x], a);
    first.domain = "mine".into();
    let mut second = call("Gentle", &[a], b);
    second.domain = "mine".into();
    second.attributes.push(("strength".into(), Attribute::Float(0.25)));
    body.inputs = vec![x];
    body.outputs = vec![b];
    body.nodes = vec![first, second];
    let graph = Graph {
        opsets: [(String::new(), 20), ("mine".into(), 1)].into(),
        functions: vec![function],
        body,
        ..Graph::default()
    };
    let graph = Graph::from_bytes(graph.to_bytes().unwrap()).unwrap();
    let model = OnnxModel::from_graph(&graph, &device(), Options::default()).unwrap();
    let x = Tensor::new([-8f32, 3.0], &device()).unwrap();
    assert_eq!(
        model.forward(&[x]).unwrap().tensor(0).unwrap().to_vec::<f32>().unwrap(),
        [-1.0, 3.0]
    );
    let mut endless = graph;
    endless.functions[0].body.nodes[0].op_type = "Gentle".into();
    endless.functions[0].body.nodes[0].domain = "mine".into();
    assert!(OnnxModel::from_graph(&endless, &device(), Options::default()).is_err());
}

#[test]
fn the_table_of_the_docs_is_true() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/onnx.md");
    let docs = std::fs::read_to_string(path).unwrap();
    let rows = docs
        .lines()
        .skip_while(|line| *line != "## Ops")
        .filter(|line| line.starts_with("| "));
    let cells = rows.flat_map(|row| row.split('|')).map(str::trim);
    let mut told: Vec<String> = cells
        .map(|cell| cell.replace('ᴴ', ""))
        .filter(|cell| cell.contains(' '))
        .collect();
    let mut known: Vec<String> = polygrad_onnx::op_versions()
        .iter()
        .map(|(_, op, since)| format!("{op} {since}"))
        .collect();
    told.sort();
    known.sort();
    assert_eq!(told, known);
}
