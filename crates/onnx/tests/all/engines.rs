//! One model in every engine of this build: the same results, and errors that say what is wrong.

use std::collections::HashMap;

use polygrad_core::{DType, Error, ErrorKind, HostTensor, Shape};
use polygrad_cpu::Cpu;
use polygrad_onnx::graph::{Attribute, Body, Dim, ElementType, Graph, Node, SaveOptions, ValueType};
use polygrad_onnx::{Engine, OnnxModel, Options, Value};
use polygrad_tensor::{Device, Tensor};

fn device() -> Device {
    Device::<Cpu>::default().into_any()
}

fn options(engine: Engine) -> Options {
    Options {
        engine,
        threads: Some(1),
        ..Options::default()
    }
}

/// The engines that can be used. The errors of the others must say what to do.
fn engines() -> Vec<Engine> {
    let (there, missing): (Vec<Engine>, _) = Engine::ALL.into_iter().partition(|engine| engine.available().is_ok());
    for engine in missing {
        let error = engine.available().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
        let hint = error.hint().unwrap();
        assert!(
            error.to_string().contains(engine.title()) || error.to_string().contains(engine.name()),
            "{error}"
        );
        assert!(hint.contains("cargo"), "{hint}");
        let error = open(engine, &product()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
        println!("left out: {error}");
    }
    there
}

fn open(engine: Engine, graph: &Graph) -> Result<OnnxModel, Error> {
    OnnxModel::from_graph(graph, &device(), options(engine))
}

fn host<T: polygrad_core::Element>(dims: &[usize], values: Vec<T>) -> HostTensor {
    HostTensor::new(Shape::new(dims).unwrap(), values).unwrap()
}

fn named(dims: &[&str]) -> Vec<Dim> {
    let dim = |dim: &&str| dim.parse().map_or(Dim::Named((*dim).into()), Dim::Fixed);
    dims.iter().map(dim).collect()
}

/// One node between inputs and an output of these types.
fn one_node(op: &str, inputs: &[(ElementType, &[&str])], output: (ElementType, &[&str])) -> Graph {
    let mut body = Body {
        name: "one".into(),
        ..Body::default()
    };
    for (i, &(element, dims)) in inputs.iter().enumerate() {
        let ty = ValueType::tensor(element, named(dims));
        let id = body.add_value(["a", "b", "c"][i], Some(ty));
        body.inputs.push(id);
    }
    let y = body.add_value("y", Some(ValueType::tensor(output.0, named(output.1))));
    body.outputs = vec![y];
    body.nodes = vec![Node {
        name: "the_node".into(),
        op_type: op.into(),
        inputs: body.inputs.iter().copied().map(Some).collect(),
        outputs: vec![Some(y)],
        ..Node::default()
    }];
    Graph {
        opsets: [(String::new(), 20)].into(),
        body,
        ..Graph::default()
    }
}

/// `y = x w`, with an initializer.
fn product() -> Graph {
    let mut graph = one_node(
        "MatMul",
        &[(ElementType::F32, &["n", "2"])],
        (ElementType::F32, &["n", "3"]),
    );
    let w = graph
        .body
        .add_initializer("w", host(&[2, 3], vec![1f32, 2.0, 3.0, 4.0, 5.0, 6.0]));
    graph.body.nodes[0].inputs.push(Some(w));
    graph
}

#[test]
fn all_give_the_same_from_memory_and_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    for external_data in [false, true] {
        let path = folder.path().join(format!("{external_data}.onnx"));
        let save = SaveOptions {
            external_data: Some(external_data),
            ..SaveOptions::default()
        };
        product().save_with(&path, save).unwrap();
        for engine in engines() {
            let model = OnnxModel::load_with(&path, &device(), options(engine)).unwrap();
            assert_eq!(model.engine(), engine);
            for n in [1, 4] {
                let x = Tensor::ones([n, 2], &device()).unwrap();
                let outputs = model.forward(&[x]).unwrap();
                let y = outputs.named("y").unwrap();
                assert_eq!(y.to_vec::<f32>().unwrap(), [5.0, 7.0, 9.0].repeat(n), "{engine}");
            }
        }
    }
    for engine in engines() {
        let model = open(engine, &product()).unwrap();
        let values = [("a".to_owned(), Value::from(host(&[1, 2], vec![1f32, 0.0])))];
        let outputs = model.run(values).unwrap();
        assert_eq!(
            outputs.get("y").unwrap().host().unwrap().to_vec::<f32>().unwrap(),
            [1.0, 2.0, 3.0]
        );
    }
}

#[test]
fn element_types_go_in_and_come_out() {
    use ElementType::*;
    for engine in engines() {
        for element in [F32, F64, F16, I32, I64, U8, I8, U16, U32, U64, I16, Bool] {
            let graph = one_node("Identity", &[(element, &["n"])], (element, &["n"]));
            let model = match open(engine, &graph) {
                Ok(model) => model,
                Err(error) => {
                    assert_eq!(
                        (engine, error.kind()),
                        (Engine::Rten, ErrorKind::Unsupported),
                        "{error}"
                    );
                    assert!(error.to_string().contains(element.name()), "{error}");
                    continue;
                }
            };
            for values in [vec![], vec![0i64, 1, 1, 0, 1]] {
                let x = host(&[values.len()], values).cast(element.dtype().unwrap());
                let outputs = model.run([("a".to_owned(), Value::from(x.clone()))]).unwrap();
                let y = outputs.get("y").unwrap();
                assert_eq!((y.element(), y.dtype()), (Some(element), Some(x.dtype())), "{engine}");
                assert_eq!(y.host().unwrap().to_f64_vec(), x.to_f64_vec(), "{engine}");
            }
        }
    }
}

#[test]
fn several_inputs_go_by_name() {
    for engine in engines() {
        let graph = one_node(
            "Where",
            &[
                (ElementType::Bool, &["n"]),
                (ElementType::I64, &["n"]),
                (ElementType::I64, &["n"]),
            ],
            (ElementType::I64, &["n"]),
        );
        let model = open(engine, &graph).unwrap();
        let inputs: HashMap<String, Value> = [
            ("c".to_owned(), host(&[2], vec![3i64, 4]).into()),
            ("a".to_owned(), host(&[2], vec![true, false]).into()),
            ("b".to_owned(), host(&[2], vec![1i64, 2]).into()),
        ]
        .into();
        let y = model.run(inputs).unwrap().named("y").unwrap();
        assert_eq!(
            (y.dtype(), y.to_vec::<i64>().unwrap()),
            (DType::I64, vec![1, 4]),
            "{engine}"
        );
    }
}

#[test]
fn wrong_inputs_are_the_same_errors_everywhere() {
    for engine in engines() {
        let model = open(engine, &product()).unwrap();
        let fails = |inputs: &[(&str, HostTensor)], says: &str| {
            let inputs = inputs
                .iter()
                .map(|(name, host)| ((*name).to_owned(), host.clone().into()));
            let error = model.run(inputs).unwrap_err().to_string();
            assert!(error.contains(says), "{engine}: {error}");
        };
        let right = host(&[1, 2], vec![1f32, 2.0]);
        fails(&[], "the input \"a\" is missing");
        fails(&[("a", right.clone()), ("z", right.clone())], "no input \"z\"");
        fails(&[("a", host(&[1, 3], vec![1f32; 3]))], "[1, 3]");
        fails(&[("a", right.cast(DType::I64))], "i64 was given for float");
    }
}

#[test]
fn what_an_engine_lacks_is_an_error_with_a_way_out() {
    let mut custom = product();
    custom.opsets.insert("my.ops".into(), 1);
    custom.body.nodes[0].op_type = "Frobnicate".into();
    custom.body.nodes[0].domain = "my.ops".into();
    let mut wrong = product();
    wrong.body.nodes[0]
        .attributes
        .push(("no_such".into(), Attribute::Int(1)));
    wrong.body.nodes[0].inputs.pop();
    for engine in engines() {
        let error = open(engine, &custom).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{engine}: {error}");
        assert!(error.to_string().contains("Frobnicate"), "{engine}: {error}");
        // RTen checks operands when it runs.
        let run = open(engine, &wrong).and_then(|model| model.forward(&[Tensor::ones([1, 2], &device())?]).map(|_| ()));
        assert!(run.is_err(), "{engine}");
    }
    for engine in engines().into_iter().filter(|&engine| engine != Engine::Native) {
        let mut model = open(engine, &product()).unwrap();
        assert_eq!(model.parameters().unwrap()[0].0, "w");
        let error = model.train(|_| true).unwrap_err();
        assert!(error.hint().unwrap().contains("native"), "{error}");
    }
}

/// Consecutive nodes that call these ops of a domain; the first has a body around the last op.
fn calls(domain: &str, ops: &[&str]) -> Graph {
    let mut graph = one_node("Relu", &[(ElementType::F32, &["n"])], (ElementType::F32, &["n"]));
    graph.opsets.insert(domain.into(), 1);
    let (x, y) = (graph.body.inputs[0], graph.body.outputs[0]);
    graph.body.nodes.clear();
    let mut from = x;
    for (i, op) in ops.iter().enumerate() {
        let to = if i + 1 == ops.len() {
            y
        } else {
            graph.body.add_value(format!("v{i}"), None)
        };
        graph.body.nodes.push(Node {
            op_type: (*op).into(),
            domain: domain.into(),
            inputs: vec![Some(from)],
            outputs: vec![Some(to)],
            ..Node::default()
        });
        from = to;
    }
    graph
}

#[test]
fn all_ops_that_are_not_known_are_told_at_once_and_who_knows_them() {
    let mut graph = calls("my.ops", &["Frob", "Nicate", "Frob"]);
    // One more in a branch; unknown ops that no output needs are not reported.
    let mut branch = Body::default();
    let b = branch.add_value("b", None);
    branch.outputs = vec![b];
    branch.nodes.push(Node {
        op_type: "Inner".into(),
        domain: "my.ops".into(),
        outputs: vec![Some(b)],
        ..Node::default()
    });
    let condition = graph.body.add_initializer("c", host(&[], vec![true]));
    let (z, unused) = (graph.body.add_value("z", None), graph.body.add_value("unused", None));
    graph.body.outputs.push(z);
    graph.body.nodes.push(Node {
        op_type: "If".into(),
        inputs: vec![Some(condition)],
        outputs: vec![Some(z)],
        attributes: vec![
            ("then_branch".into(), Attribute::Body(branch.clone().into())),
            ("else_branch".into(), Attribute::Body(branch.into())),
        ],
        ..Node::default()
    });
    graph.body.nodes.push(Node {
        op_type: "Unused".into(),
        domain: "my.ops".into(),
        outputs: vec![Some(unused)],
        ..Node::default()
    });
    let error = open(Engine::Native, &graph).err().unwrap();
    let says = "3 ops are not known here: Frob of my.ops, 2 times; Nicate of my.ops; Inner of my.ops, 2 times";
    assert!(error.to_string().contains(says), "{error}");
    assert!(
        !error.to_string().contains("docs/") && !error.hint().unwrap().contains("docs/"),
        "{error}"
    );
    assert!(
        !error.hint().unwrap().starts_with("take the engine"),
        "nobody knows these: {error}"
    );
    // Ops of ONNX Runtime's own.
    let error = open(Engine::Native, &calls("com.microsoft", &["SampleOp"]))
        .err()
        .unwrap();
    assert!(error.to_string().contains("SampleOp of com.microsoft"), "{error}");
    match Engine::Ort.available() {
        Ok(()) => assert_eq!(
            error.hint(),
            Some("take the engine ort, which opens the file (--engine ort)")
        ),
        Err(_) => assert!(
            error.hint().unwrap().starts_with("ONNX Runtime may know more ops: "),
            "{error}"
        ),
    }
}

#[test]
fn a_file_that_is_newer_than_the_library_is_not_blamed() {
    if Engine::Ort.available().is_err() {
        return;
    }
    let mut newer = product();
    newer.header.ir_version = 99;
    let mut ops = product();
    ops.opsets.insert(String::new(), 99);
    for (graph, says) in [(newer, "IR version 99"), (ops, "op set 99")] {
        let error = open(Engine::Ort, &graph).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(
            error
                .to_string()
                .contains(&format!("older than the file, which is of {says}")),
            "{error}"
        );
        assert!(
            error.hint().unwrap().contains("ONNX Runtime newer than 1.32"),
            "{error}"
        );
    }
}

#[test]
fn engines_have_names() {
    for engine in Engine::ALL {
        assert_eq!(engine.to_string().parse::<Engine>().unwrap(), engine);
    }
    let error = "tract".parse::<Engine>().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
    assert!(error.to_string().contains("\"tract\"") && error.hint().unwrap().contains("native, ort, rten"));
}
