//! Files that are broken, or made to break something: each gives an error that says what is wrong.

mod wire;

use std::path::Path;
use std::sync::Arc;

use polygrad_core::{ErrorKind, HostTensor};
use polygrad_cpu::Cpu;
use polygrad_onnx::graph::{Attribute, Body, Graph, Node, SaveOptions, ValueId};
use polygrad_onnx::{OnnxModel, Options};
use polygrad_tensor::{Device, Error, Shape, Tensor};
use wire::{bytes, model, node, number, output, tensor};

fn refused(graph: &[u8], says: &str) {
    let error = Graph::from_bytes(model(graph))
        .err()
        .unwrap_or_else(|| panic!("nothing wrong was found: {says}"));
    assert!(error.to_string().contains(says), "{error}");
}

#[test]
fn what_is_no_model() {
    assert_eq!(Graph::from_bytes(Vec::new()).unwrap_err().kind(), ErrorKind::Format);
    assert_eq!(
        Graph::from_bytes(b"PK\x03\x04 no model".to_vec()).unwrap_err().kind(),
        ErrorKind::Format
    );
    let whole = model(&[node("Relu", &["x"], &["y"]), bytes(11, &bytes(1, b"x")), output("y")].concat());
    Graph::from_bytes(whole.clone()).unwrap();
    // A file cut off anywhere is an error, never a panic; only a cut between fields can leave a valid file.
    let whole_ones = (0..whole.len())
        .filter(|&end| Graph::from_bytes(whole[..end].to_vec()).is_ok())
        .count();
    assert_eq!(whole_ones, 0);
}

#[test]
fn many_empty_entries() {
    // Each takes two bytes of a file, and hundreds in memory.
    let nodes = bytes(1, &[]).repeat(3_000_000);
    assert_eq!(
        Graph::from_bytes(model(&nodes)).unwrap_err().kind(),
        ErrorKind::OutOfMemory
    );
    let attributes = bytes(1, &bytes(5, &[]).repeat(3_000_000));
    assert_eq!(
        Graph::from_bytes(model(&attributes)).unwrap_err().kind(),
        ErrorKind::OutOfMemory
    );
}

#[test]
fn names_and_circles() {
    refused(
        &[node("Relu", &["x"], &["y"]), output("y")].concat(),
        "nothing gives the value \"x\"",
    );
    refused(&output("y"), "nothing gives the output \"y\"");
    let twice = [
        node("Relu", &["x"], &["y"]),
        node("Abs", &["x"], &["y"]),
        bytes(11, &bytes(1, b"x")),
    ]
    .concat();
    refused(&twice, "defined twice");
    let circle = [node("Relu", &["a"], &["b"]), node("Relu", &["b"], &["a"]), output("a")].concat();
    refused(&circle, "in a circle");
    refused(&[node("Relu", &["a"], &["a"]), output("a")].concat(), "in a circle");
}

#[test]
fn tensors_that_lie() {
    let with = |tensor: Vec<u8>| [bytes(5, &tensor), output("w")].concat();
    refused(&with(tensor(&[2, 2], 1, &[0; 15])), "does not fit");
    refused(&with(tensor(&[-1], 1, &[0; 4])), "negative");
    refused(&with(tensor(&[i64::MAX, 4], 1, &[])), "more elements than memory");
    refused(&with(tensor(&[1 << 30, 1 << 29], 1, &[0; 4])), "does not fit");
    refused(&with(tensor(&[1; 9], 1, &[0; 4])), "rank 9");
    refused(&with(tensor(&[1], 99, &[0])), "no element type");
    refused(&with(tensor(&[1], 8, &[0])), "0 values do not fill");
    let text = [number(1, 1), number(2, 8), bytes(6, &[0xff]), bytes(8, b"w")].concat();
    refused(&with(text), "not UTF-8");
    refused(&with(tensor(&[1], 14, &[0; 8])), "complex64");
    refused(&with(tensor(&[1], 9, &[7])), "bool");
    // Elements in the field for another type.
    refused(
        &with([number(1, 2), number(2, 1), bytes(7, &[1, 2])].concat()),
        "do not fill",
    );
}

#[test]
fn attributes_that_are_not_text() {
    let refused = |op: &[u8], name: &[u8], says: &str| {
        let attribute = [bytes(1, name), bytes(4, &[0xff]), number(20, 3)].concat();
        let parts = [bytes(1, b"x"), bytes(2, b"y"), bytes(4, op), bytes(5, &attribute)];
        let file = [bytes(1, &parts.concat()), bytes(11, &bytes(1, b"x")), output("y")].concat();
        let graph = Graph::from_bytes(model(&file)).unwrap();
        let device = Device::<Cpu>::default().into_any();
        let made = OnnxModel::from_graph(&graph, &device, Options::default());
        let ran = made.and_then(|made| made.forward(&[Tensor::zeros([2], &device)?]));
        let error = ran.err().unwrap().to_string();
        assert!(error.contains(says), "{error}");
    };
    // Keras writes the configuration of a function so.
    refused(
        b"StatefulPartitionedCall",
        b"config_proto",
        "not known here: StatefulPartitionedCall",
    );
    refused(b"Elu", b"alpha", "text that is not UTF-8");
}

#[test]
fn bodies_in_bodies_without_end() {
    let mut graph = output("y");
    for _ in 0..40 {
        let attribute = [bytes(1, b"then_branch"), bytes(6, &graph), number(20, 5)].concat();
        let call = [bytes(2, b"y"), bytes(4, b"If"), bytes(5, &attribute)].concat();
        graph = [bytes(1, &call), output("y")].concat();
    }
    assert_eq!(Graph::from_bytes(model(&graph)).unwrap_err().kind(), ErrorKind::Format);
    // Deeper than the protobuf reader allows.
    let mut message = Vec::new();
    for _ in 0..100_000 {
        message = if message.len() < 4000 {
            bytes(7, &message)
        } else {
            break;
        };
    }
    assert!(Graph::from_bytes(message).is_err());
}

/// A model with one initializer whose values are in another file.
fn outside(location: &str, offset: u64, length: u64) -> Vec<u8> {
    let entry = |key: &str, value: &str| bytes(13, &[bytes(1, key.as_bytes()), bytes(2, value.as_bytes())].concat());
    let tensor = [
        number(1, 2),
        number(2, 1),
        bytes(8, b"w"),
        entry("location", location),
        entry("offset", &offset.to_string()),
        entry("length", &length.to_string()),
        number(14, 1),
    ];
    model(&[bytes(5, &tensor.concat()), output("w")].concat())
}

#[test]
fn external_data_stays_in_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("models");
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(folder.path().join("secret"), [0u8; 64]).unwrap();
    std::fs::write(inner.join("data"), 1.5f32.to_le_bytes().repeat(3)).unwrap();
    let load = |content: Vec<u8>| {
        let path = inner.join("model.onnx");
        std::fs::write(&path, content).unwrap();
        Graph::load(&path)
    };
    let graph = load(outside("data", 4, 8)).unwrap();
    assert_eq!(graph.body.initializers[0].tensor.host().to_f64_vec(), [1.5, 1.5]);
    let absolute = folder.path().join("secret");
    for location in [
        "../secret",
        "../models/data",
        absolute.to_str().unwrap(),
        "",
        "a\\..\\b",
        ".",
    ] {
        let error = load(outside(location, 0, 8)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Format, "{location}: {error}");
    }
    assert!(load(outside("missing", 0, 8)).is_err());
    assert!(
        load(outside("data", 8, 8))
            .unwrap_err()
            .to_string()
            .contains("lie outside")
    );
    assert!(load(outside("data", u64::MAX, 8)).is_err());
    assert!(
        load(outside("data", 0, 4))
            .unwrap_err()
            .to_string()
            .contains("the shape needs 8")
    );
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(folder.path().join("secret"), inner.join("link")).unwrap();
        assert!(
            load(outside("link", 0, 8))
                .unwrap_err()
                .to_string()
                .contains("not inside")
        );
        std::os::unix::fs::symlink(folder.path(), inner.join("up")).unwrap();
        assert!(load(outside("up/secret", 0, 8)).is_err());
    }
    assert!(
        Graph::from_bytes(outside("data", 0, 8))
            .unwrap_err()
            .to_string()
            .contains("another file")
    );
}

/// A graph of one node on constants.
fn constant_graph(op: &str, inputs: &[HostTensor], attributes: Vec<(String, Attribute)>) -> Graph {
    let mut body = Body::default();
    let inputs: Vec<Option<ValueId>> = inputs
        .iter()
        .enumerate()
        .map(|(i, tensor)| Some(body.add_initializer(format!("c{i}"), tensor.clone())))
        .collect();
    let y = body.add_value("y", None);
    body.nodes.push(Node {
        op_type: op.into(),
        inputs,
        outputs: vec![Some(y)],
        attributes,
        ..Node::default()
    });
    body.outputs.push(y);
    Graph {
        opsets: [(String::new(), 20)].into(),
        body,
        ..Graph::default()
    }
}

fn ints(values: &[i64]) -> HostTensor {
    HostTensor::new(Shape::new(&[values.len()]).unwrap(), values.to_vec()).unwrap()
}

fn run(graph: &Graph) -> Result<Tensor, Error> {
    let options = Options {
        max_tensor_bytes: 1 << 24,
        max_steps: 10_000,
        ..Options::default()
    };
    let device = Device::<Cpu>::default().into_any();
    OnnxModel::from_graph(graph, &device, options)?.forward(&[])?.tensor(0)
}

#[test]
fn a_few_bytes_cannot_fill_the_memory() {
    let huge = 1i64 << 35;
    let x = HostTensor::new(Shape::from([1, 1]), vec![1f32]).unwrap();
    let number = |v: i64| HostTensor::scalar(v);
    let cases: Vec<(&str, Vec<HostTensor>)> = vec![
        ("ConstantOfShape", vec![ints(&[huge, 2])]),
        ("Expand", vec![x.clone(), ints(&[huge, 2])]),
        ("Tile", vec![x.clone(), ints(&[huge, 2])]),
        ("Range", vec![number(0), number(huge), number(1)]),
        ("Pad", vec![x.clone(), ints(&[0, 0, huge, 0])]),
        ("OneHot", vec![ints(&[0]), number(huge), ints(&[0, 1])]),
        (
            "Resize",
            vec![
                x.clone(),
                ints(&[]).cast(polygrad_core::DType::F32),
                ints(&[]).cast(polygrad_core::DType::F32),
                ints(&[huge, 2]),
            ],
        ),
        ("HannWindow", vec![number(huge)]),
        ("CenterCropPad", vec![x, ints(&[huge, 2])]),
    ];
    for (op, inputs) in cases {
        let error = run(&constant_graph(op, &inputs, Vec::new()))
            .err()
            .unwrap_or_else(|| panic!("{op} was computed"));
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{op}: {error}");
        assert!(error.to_string().contains(op), "{error}");
    }
}

/// A limit of 1 MiB for all tensors together, and none for a single one.
fn run_within(graph: &Graph, max_memory_bytes: usize) -> Result<Tensor, Error> {
    let options = Options {
        max_memory_bytes,
        ..Options::default()
    };
    let device = Device::<Cpu>::default().into_any();
    OnnxModel::from_graph(graph, &device, options)?.forward(&[])?.tensor(0)
}

#[test]
fn an_einsum_is_counted_in_all_its_forms() {
    let ones = |dims: &[usize]| HostTensor::new(Shape::new(dims).unwrap(), vec![1f32; dims.iter().product()]).unwrap();
    for (equation, a, b) in [
        ("ab,cd", &[64, 64][..], &[64, 64][..]),
        ("...a,...b->...ab", &[2, 2048], &[2, 2048]),
        (
            "abcdefgh,ijklmnop->abcdefghijklmnop",
            &[4, 4, 4, 4, 2, 2, 2, 2],
            &[4, 4, 4, 4, 2, 2, 2, 2],
        ),
        ("i,j->", &[4096], &[4096]),
    ] {
        let text = ("equation".to_owned(), Attribute::String(equation.into()));
        let error = run(&constant_graph("Einsum", &[ones(a), ones(b)], vec![text])).map(|_| equation);
        if equation == "i,j->" {
            assert!(error.is_ok());
            continue;
        }
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{equation}: {error}");
        assert!(error.to_string().contains("Einsum"), "{error}");
    }
}

/// Operands that are small or empty, with results or intermediate values that would take gigabytes.
#[test]
fn what_ops_make_of_little_has_a_limit() {
    let zeros = |dims: &[usize]| HostTensor::new(Shape::new(dims).unwrap(), vec![0f32; dims.iter().product()]).unwrap();
    let (image, weight) = (zeros(&[1, 1, 500, 500]), zeros(&[1, 1, 100, 100]));
    for (op, inputs) in [
        ("GlobalLpPool", vec![zeros(&[25_000, 25_000, 0])]),
        ("DFT", vec![zeros(&[25_000, 1, 1]), HostTensor::scalar(25_000i64)]),
        ("ConvTranspose", vec![image.clone(), weight.clone()]),
        ("Conv", vec![image, weight]),
    ] {
        let found = run_within(&constant_graph(op, &inputs, Vec::new()), 200 << 20);
        let error = found.map(|_| op).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{op}: {error}");
        assert!(error.to_string().contains(op), "{error}");
    }
}

#[test]
fn all_values_together_have_a_limit() {
    // 40 tensors of 64 KiB, all alive until they are added up.
    let mut graph = constant_graph("ConstantOfShape", &[ints(&[1 << 14])], Vec::new());
    let first = graph.body.outputs[0];
    let mut parts = vec![first];
    for i in 0..39 {
        let y = graph.body.add_value(format!("part{i}"), None);
        graph.body.nodes.push(Node {
            name: format!("n{i}"),
            op_type: "Exp".into(),
            inputs: vec![Some(first)],
            outputs: vec![Some(y)],
            ..Node::default()
        });
        parts.push(y);
    }
    let sum = graph.body.add_value("sum", None);
    graph.body.nodes.push(Node {
        op_type: "Sum".into(),
        inputs: parts.into_iter().map(Some).collect(),
        outputs: vec![Some(sum)],
        ..Node::default()
    });
    graph.body.outputs = vec![sum];
    let error = run_within(&graph, 1 << 20).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    let text = error.to_string();
    assert!(text.contains("(Exp)") && text.contains("max_memory_bytes"), "{text}");
    run_within(&graph, 1 << 22).unwrap();
    // In sequence they take no more than two at a time.
    let mut chain = constant_graph("ConstantOfShape", &[ints(&[1 << 14])], Vec::new());
    let mut last = chain.body.outputs[0];
    for i in 0..100 {
        let y = chain.body.add_value(format!("part{i}"), None);
        chain.body.nodes.push(Node {
            op_type: "Exp".into(),
            inputs: vec![Some(last)],
            outputs: vec![Some(y)],
            ..Node::default()
        });
        last = y;
    }
    chain.body.outputs = vec![last];
    run_within(&chain, 1 << 18).unwrap();
}

#[test]
fn what_a_loop_collects_has_a_limit() {
    let mut inner = Body {
        name: "body".into(),
        ..Body::default()
    };
    let [i, going, made] = ["i", "going", "made"].map(|name| inner.add_value(name, None));
    let extent = inner.add_initializer("extent", ints(&[1 << 12]));
    inner.nodes.push(Node {
        op_type: "ConstantOfShape".into(),
        inputs: vec![Some(extent)],
        outputs: vec![Some(made)],
        ..Node::default()
    });
    inner.inputs = vec![i, going];
    inner.outputs = vec![going, made];
    let mut graph = constant_graph(
        "Loop",
        &[HostTensor::scalar(1i64 << 62), HostTensor::scalar(true)],
        vec![("body".into(), Attribute::Body(Arc::new(inner)))],
    );
    let error = run_within(&graph, 1 << 20).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!(error.to_string().contains("(Loop)"), "{error}");
    // A few iterations fit, repeatedly.
    graph.body.initializers[0].tensor = HostTensor::scalar(20i64).into();
    let model = OnnxModel::from_graph(
        &graph,
        &Device::<Cpu>::default().into_any(),
        Options {
            max_memory_bytes: 1 << 20,
            ..Options::default()
        },
    )
    .unwrap();
    for _ in 0..5 {
        assert_eq!(model.forward(&[]).unwrap().tensor(0).unwrap().dims(), [20, 1 << 12]);
    }
}

#[test]
fn initializers_together_have_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(folder.path().join("data")).unwrap();
    // A sparse file takes no disk space.
    file.set_len(1 << 20).unwrap();
    let entry = |key: &str, value: &str| bytes(13, &[bytes(1, key.as_bytes()), bytes(2, value.as_bytes())].concat());
    let weights: Vec<u8> = (0..40)
        .flat_map(|i| {
            let tensor = [
                number(1, 1 << 18),
                number(2, 1),
                bytes(8, format!("w{i}").as_bytes()),
                entry("location", "data"),
                number(14, 1),
            ];
            bytes(5, &tensor.concat())
        })
        .collect();
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, model(&[weights, output("w0")].concat())).unwrap();
    let error = Graph::load_within(&path, 8 << 20).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    let text = error.to_string();
    assert!(text.contains("\"w8\"") && text.contains("max_memory_bytes"), "{text}");
    assert_eq!(text.matches("model.onnx").count(), 1, "{text}");
    let options = Options {
        max_memory_bytes: 8 << 20,
        ..Options::default()
    };
    let device = Device::<Cpu>::default().into_any();
    let error = OnnxModel::load_with(&path, &device, options).err().unwrap();
    assert_eq!(error.to_string().matches("model.onnx").count(), 1, "{error}");
    Graph::load_within(&path, 40 << 20).unwrap();
}

#[test]
fn loading_does_not_take_the_time_of_a_long_run() {
    // A Scan with 2^22 iterations: folding it would take too long for loading a file.
    let mut inner = Body {
        name: "body".into(),
        ..Body::default()
    };
    let [state, x] = ["state", "x"].map(|name| inner.add_value(name, None));
    inner.inputs = vec![state, x];
    inner.outputs = vec![x];
    let mut graph = constant_graph(
        "Scan",
        &[
            HostTensor::scalar(0f32),
            HostTensor::new(Shape::from([1 << 22]), vec![0f32; 1 << 22]).unwrap(),
        ],
        vec![
            ("body".into(), Attribute::Body(Arc::new(inner))),
            ("num_scan_inputs".into(), Attribute::Int(1)),
        ],
    );
    graph.opsets.insert(String::new(), 20);
    let device = Device::<Cpu>::default().into_any();
    let options = Options {
        max_steps: 1000,
        ..Options::default()
    };
    let model = OnnxModel::from_graph(&graph, &device, options).unwrap();
    assert_eq!(model.steps(), ["Scan"]);
    assert!(model.forward(&[]).unwrap_err().to_string().contains("max_steps"));
}

#[test]
fn names_do_not_reach_the_terminal() {
    let name = "a\u{1b}[2J\nb";
    let mut graph = constant_graph("Softmax", &[ints(&[1]).cast(polygrad_core::DType::F32)], Vec::new());
    graph.body.nodes[0].name = name.into();
    graph.body.nodes[0].attributes = vec![("axis".into(), Attribute::String("x".into()))];
    let plain = |error: Error| {
        let text = error.to_string();
        assert!(!text.chars().any(char::is_control), "{text:?}");
    };
    plain(run(&graph).unwrap_err());
    graph.body.nodes[0].op_type = name.into();
    plain(run(&graph).unwrap_err());
    let whole = [node("Relu", &[name], &["y"]), output("y")].concat();
    plain(Graph::from_bytes(model(&whole)).unwrap_err());
    let twice = [bytes(
        1,
        &[bytes(4, b"Relu"), bytes(5, &bytes(1, name.as_bytes())).repeat(2)].concat(),
    )]
    .concat();
    plain(Graph::from_bytes(model(&twice)).unwrap_err());
}

#[test]
fn nothing_can_have_a_huge_extent() {
    let nothing = |dims: [usize; 3]| HostTensor::new(Shape::from(dims), Vec::<f32>::new()).unwrap();
    let huge = 1 << 50;
    let wide = nothing([0, huge, 1]);
    let cases: Vec<(&str, Vec<HostTensor>)> = vec![
        ("Hardmax", vec![nothing([1, 0, huge])]),
        ("Trilu", vec![nothing([0, 1 << 25, 1 << 25])]),
        ("ReverseSequence", vec![nothing([huge, 1, 0]), ints(&[1])]),
        ("SplitToSequence", vec![nothing([huge, 1, 0])]),
        ("CumSum", vec![wide.clone(), HostTensor::scalar(1i64)]),
        ("Unique", vec![wide.clone()]),
        ("NonZero", vec![wide.clone()]),
        (
            "RNN",
            vec![
                nothing([huge, 1, 0]),
                nothing([1, 2, 0]),
                HostTensor::new(Shape::from([1, 2, 2]), vec![0f32; 4]).unwrap(),
            ],
        ),
        (
            "EyeLike",
            vec![nothing([1, huge, 0]).reshape(Shape::from([huge, 0])).unwrap()],
        ),
    ];
    for (op, inputs) in cases {
        // Whether it is computed or rejected, it takes little time and memory.
        let start = std::time::Instant::now();
        let _ = run(&constant_graph(op, &inputs, Vec::new()));
        assert!(start.elapsed().as_secs() < 5, "{op}");
    }
}

#[test]
fn a_loop_without_end_ends() {
    let mut inner = Body {
        name: "body".into(),
        ..Body::default()
    };
    let (i, going) = (inner.add_value("i", None), inner.add_value("going", None));
    inner.inputs = vec![i, going];
    inner.outputs = vec![going];
    let mut graph = constant_graph("Loop", &[], vec![("body".into(), Attribute::Body(Arc::new(inner)))]);
    let yes = graph.body.add_initializer("yes", HostTensor::scalar(true));
    graph.body.nodes[0].inputs = vec![None, Some(yes)];
    let y = graph.body.outputs[0];
    graph.body.nodes[0].outputs = vec![];
    graph.body.initializers.push(polygrad_onnx::graph::Initializer {
        value: y,
        tensor: ints(&[1]).into(),
    });
    // The loop is unused, so it is dropped.
    run(&graph).unwrap();
    graph.body.initializers.pop();
    graph.body.nodes[0].outputs = vec![Some(y)];
    assert!(run(&graph).unwrap_err().to_string().contains("max_steps"));
}

#[test]
fn wrong_types_name_the_node() {
    let text = |name: &str| (name.to_owned(), Attribute::String("x".into()));
    let error = run(&constant_graph(
        "Softmax",
        &[ints(&[1]).cast(polygrad_core::DType::F32)],
        vec![text("axis")],
    ))
    .unwrap_err();
    assert!(
        error.to_string().contains("Softmax") && error.to_string().contains("not an integer"),
        "{error}"
    );
    let error = run(&constant_graph("Nonsense", &[], Vec::new())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let mut old = constant_graph("Gelu", &[ints(&[1])], Vec::new());
    old.opsets.insert(String::new(), 17);
    assert!(run(&old).unwrap_err().to_string().contains("came with version 20"));
}

#[test]
fn files_are_whole_or_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    let graph = constant_graph(
        "Identity",
        &[HostTensor::new(Shape::from([600]), vec![2f32; 600]).unwrap()],
        Vec::new(),
    );
    graph.save(&path).unwrap();
    assert_eq!(files(folder.path()), ["model.onnx"]);
    let options = SaveOptions {
        external_data: Some(true),
        ..SaveOptions::default()
    };
    graph.save_with(&path, options).unwrap();
    assert_eq!(files(folder.path()), ["model.onnx", "model.onnx.data"]);
    let read = Graph::load(&path).unwrap();
    assert_eq!(read.body.initializers[0].tensor.host().to_f64_vec(), vec![2.0; 600]);
    let mut broken = graph;
    broken.body.nodes[0].outputs.clear();
    assert!(broken.save(&path).is_err());
    assert_eq!(Graph::load(&path).unwrap().body.nodes.len(), 1);
}

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
