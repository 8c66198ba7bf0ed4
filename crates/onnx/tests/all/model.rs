//! Loading, folding, training and running models.

use polygrad_core::{DType, ErrorKind, HostTensor};
use polygrad_cpu::Cpu;
use polygrad_null::Null;
use polygrad_onnx::graph::{Attribute, Body, Dim, ElementType, Function, Graph, Node, ValueId, ValueType};
use polygrad_onnx::{OnnxModel, Options};
use polygrad_tensor::{Device, Shape, Tensor};

fn device() -> Device {
    Device::<Cpu>::default().into_any()
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

/// `y = x (2 w)`, with `x [n, 2]`, and an unused node.
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
    // Other values take effect at once, folded or not.
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
fn parameters_may_be_let_go_of() {
    let mut graph = product();
    // `two` is the default of an input.
    let two = graph.body.initializers[1].value;
    graph.body.inputs.push(two);
    let whole = OnnxModel::from_graph(&graph, &device(), Options::default()).unwrap();
    let mut model = OnnxModel::from_graph(&graph, &device(), Options::default())
        .unwrap()
        .without_parameters();
    let x = Tensor::new([[1f32, 1.0], [3.0, 0.0]], &device()).unwrap();
    let values = |model: &OnnxModel| {
        let outputs = model.forward(std::slice::from_ref(&x)).unwrap();
        outputs.tensor(0).unwrap().to_vec::<f32>().unwrap()
    };
    assert_eq!(values(&model), [6.0, 6.0]);
    assert_eq!(values(&model), values(&whole));
    assert_eq!(whole.parameters().unwrap().len(), 2);
    assert!(model.parameters().unwrap().is_empty());
    for name in ["w", "two"] {
        let value = Tensor::zeros([2, 1], &device()).unwrap();
        let error = model.set([(name.to_owned(), value)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StateDict);
    }
    assert_eq!(values(&model), [6.0, 6.0]);
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
    let refused = |graph: &Graph| match OnnxModel::from_graph(graph, &device(), Options::default()) {
        Ok(_) => panic!("it was loaded"),
        Err(error) => error.to_string(),
    };
    let text = refused(&endless);
    assert!(text.contains("in a circle: Gentle, Gentle"), "{text}");
    // Deep nesting is not endless recursion.
    let mut deep = endless.clone();
    let last = deep.functions[0].clone();
    deep.functions = (0..40)
        .map(|i| {
            let mut function = last.clone();
            function.name = if i == 0 { "Gentle".into() } else { format!("F{i}") };
            function.body.nodes[0].op_type = format!("F{}", i + 1);
            if i == 39 {
                function.body.nodes[0].op_type = "Relu".into();
                function.body.nodes[0].domain.clear();
                function.body.nodes[0].attributes.clear();
            }
            function
        })
        .collect();
    let text = refused(&deep);
    assert!(
        text.contains("nested more than 32 deep") && !text.contains("circle"),
        "{text}"
    );
}

#[test]
fn chance_is_not_folded() {
    let mut body = Body::default();
    let mut inner = Body {
        name: "then".into(),
        ..Body::default()
    };
    let drawn = inner.add_value("drawn", None);
    let mut draw = call("RandomUniform", &[], drawn);
    draw.attributes.push(("shape".into(), Attribute::Ints(vec![4])));
    inner.nodes = vec![draw];
    inner.outputs = vec![drawn];
    let inner = Attribute::Body(inner.into());
    let yes = body.add_initializer("yes", HostTensor::scalar(true));
    let y = body.add_value("y", None);
    let mut choice = call("If", &[yes], y);
    choice.attributes = vec![("then_branch".into(), inner.clone()), ("else_branch".into(), inner)];
    body.nodes = vec![choice];
    body.outputs = vec![y];
    let graph = Graph {
        opsets: [(String::new(), 20)].into(),
        body,
        ..Graph::default()
    };
    let model = OnnxModel::from_graph(&graph, &device(), Options::default()).unwrap();
    let run = || model.forward(&[]).unwrap().tensor(0).unwrap().to_vec::<f32>().unwrap();
    assert_ne!(run(), run());
}

/// Values that a run computes from shapes are kept for the next one, but not if the shapes have changed, and callers
/// cannot modify them.
#[test]
fn shapes_may_change_from_run_to_run() {
    let mut body = Body::default();
    let x = body.add_value("x", None);
    let [zero, one] = [0i64, 1].map(|value| body.add_initializer(format!("c{value}"), HostTensor::scalar(value)));
    let [shape, n, places, floats, y] = ["shape", "n", "places", "floats", "y"].map(|name| body.add_value(name, None));
    body.inputs = vec![x];
    body.outputs = vec![y];
    let mut cast = call("Cast", &[places], floats);
    cast.attributes
        .push(("to".into(), Attribute::Int(ElementType::F32.number().into())));
    body.nodes = vec![
        call("Shape", &[x], shape),
        call("Gather", &[shape, zero], n),
        call("Range", &[zero, n, one], places),
        cast,
        call("Add", &[floats, x], y),
    ];
    let graph = Graph {
        opsets: [(String::new(), 20)].into(),
        body,
        ..Graph::default()
    };
    let model = OnnxModel::from_graph(&graph, &device(), Options::default()).unwrap();
    for extent in [3, 3, 1, 4, 4, 3] {
        let x = Tensor::ones([extent], &device()).unwrap();
        let y = model.forward(&[x]).unwrap().tensor(0).unwrap();
        let wanted: Vec<f32> = (1..=extent).map(|place| place as f32).collect();
        assert_eq!(y.to_vec::<f32>().unwrap(), wanted);
    }
}

#[test]
fn models_are_shared_between_threads() {
    let model = OnnxModel::from_graph(&product(), &device(), Options::default()).unwrap();
    let x = Tensor::new([[1f32, 1.0]], &device()).unwrap();
    let sum = || {
        model
            .forward(std::slice::from_ref(&x))
            .unwrap()
            .tensor(0)
            .unwrap()
            .to_vec::<f32>()
            .unwrap()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(sum)).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), [6.0]);
        }
    });
}

#[test]
fn initializers_of_old_files_are_no_inputs() {
    let mut graph = product();
    graph.header.ir_version = 3;
    let w = graph.body.initializers[0].value;
    graph.body.inputs.push(w);
    let read = |graph: &Graph| Graph::from_bytes(graph.to_bytes().unwrap()).unwrap();
    assert_eq!(read(&graph).body.inputs.len(), 1);
    // In newer files they have a default, and may be given.
    graph.header.ir_version = 10;
    let graph = read(&graph);
    assert_eq!(graph.body.inputs.len(), 2);
    let model = OnnxModel::from_graph(&graph, &device(), Options::default()).unwrap();
    let x = Tensor::new([[1f32, 1.0]], &device()).unwrap();
    assert_eq!(
        model
            .forward(std::slice::from_ref(&x))
            .unwrap()
            .tensor(0)
            .unwrap()
            .item()
            .unwrap(),
        6.0
    );
    let w = Tensor::new([[0f32], [1.0]], &device()).unwrap();
    assert_eq!(
        model
            .forward_named(&[("x", &x), ("w", &w)])
            .unwrap()
            .tensor(0)
            .unwrap()
            .item()
            .unwrap(),
        2.0
    );
}

#[test]
fn the_table_of_the_docs_is_true() {
    // Read at run time, since checkouts may share a build folder.
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let path = std::path::Path::new(&here).join("../../docs/onnx.md");
    let docs = std::fs::read_to_string(path).unwrap();
    let rows = docs
        .lines()
        .skip_while(|line| *line != "## Ops")
        .skip(1)
        .take_while(|line| !line.starts_with("## "))
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

/// Shapes computed as in PyTorch's exports, on a backend without values: nothing is read back.
#[test]
fn shapes_need_no_readback() {
    let mut body = Body::default();
    let int = |values: &[i64]| HostTensor::new(Shape::new(&[values.len()]).unwrap(), values.to_vec()).unwrap();
    let x = body.add_value("x", None);
    let first = body.add_initializer("first", HostTensor::scalar(0i64));
    let [zero, one, three, minus] =
        [0i64, 1, 3, -1].map(|value| body.add_initializer(format!("c{value}"), int(&[value])));
    let names = [
        "shape",
        "n",
        "batch",
        "flat_shape",
        "flat",
        "zeros",
        "open",
        "is_open",
        "kept",
        "head",
        "size",
        "wide",
        "y",
    ];
    let [
        shape,
        n,
        batch,
        flat_shape,
        flat,
        zeros,
        open,
        is_open,
        kept,
        head,
        size,
        wide,
        y,
    ] = names.map(|name| body.add_value(name, None));
    body.inputs = vec![x];
    body.outputs = vec![y];
    let concat = |inputs: &[ValueId], output| {
        let mut node = call("Concat", inputs, output);
        node.attributes.push(("axis".into(), Attribute::Int(0)));
        node
    };
    let mut of_zeros = call("ConstantOfShape", &[three], zeros);
    of_zeros
        .attributes
        .push(("value".into(), Attribute::Tensor(int(&[0]).into())));
    body.nodes = vec![
        // Flatten after the batch axis.
        call("Shape", &[x], shape),
        call("Gather", &[shape, first], n),
        call("Unsqueeze", &[n, zero], batch),
        concat(&[batch, minus], flat_shape),
        call("Reshape", &[x, flat_shape], flat),
        // Expand, in which −1 keeps an extent.
        of_zeros,
        call("Sub", &[zeros, one], open),
        call("Equal", &[open, minus], is_open),
        call("Where", &[is_open, one, open], kept),
        call("Slice", &[kept, zero, one], head),
        call("Mul", &[head, three], size),
        concat(&[size, batch, one], wide),
        call("Expand", &[flat, wide], y),
    ];
    let graph = Graph {
        opsets: [(String::new(), 17)].into(),
        body,
        ..Graph::default()
    };
    let device = Device::<Null>::default().into_any();
    let model = OnnxModel::from_graph(&graph, &device, Options::default()).unwrap();
    let x = Tensor::zeros([2, 4, 5], &device).unwrap();
    assert_eq!(model.forward(&[x]).unwrap().tensor(0).unwrap().dims(), [3, 2, 20]);
}
