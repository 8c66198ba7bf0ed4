//! Ops of `com.microsoft` and `ai.onnx.ml` beyond ONNX Runtime's recorded results (test node_cases): an invalid node
//! gives an error that names it, and differences from ONNX Runtime are intended.

mod attention;
mod classical;
mod quantized;
mod rounding;
mod rows;

use std::sync::Arc;

use polygrad_core::{DType, HostTensor};
use polygrad_cpu::Cpu;
use polygrad_onnx::graph::{Attribute, Body, ElementType, Graph, Initializer, Literal, Node, ValueId};
use polygrad_onnx::{OnnxModel, Options, Value};
use polygrad_tensor::{Device, Element, Error, Result, Shape, Tensor};

const MS: &str = "com.microsoft";
const ML: &str = "ai.onnx.ml";

type Attributes = Vec<(&'static str, Attribute)>;

/// A graph of one node named `n`, with an input for each operand that is given.
fn graph(domain: &str, op: &str, operands: &[Option<Value>], attributes: &Attributes, outputs: usize) -> Graph {
    let mut body = Body::default();
    let inputs: Vec<Option<ValueId>> = operands
        .iter()
        .enumerate()
        .map(|(i, operand)| operand.as_ref().map(|_| body.add_value(format!("x{i}"), None)))
        .collect();
    let made: Vec<ValueId> = (0..outputs).map(|i| body.add_value(format!("y{i}"), None)).collect();
    body.nodes.push(Node {
        name: "n".into(),
        op_type: op.into(),
        domain: domain.into(),
        inputs: inputs.clone(),
        outputs: made.iter().copied().map(Some).collect(),
        attributes: attributes
            .iter()
            .map(|(name, value)| ((*name).into(), value.clone()))
            .collect(),
        ..Node::default()
    });
    body.inputs = inputs.into_iter().flatten().collect();
    body.outputs = made;
    let version = match domain {
        ML => 5,
        "" => 20,
        _ => 1,
    };
    Graph {
        opsets: [(String::new(), 20), (domain.to_owned(), version)].into(),
        body,
        ..Graph::default()
    }
}

fn run(
    domain: &str,
    op: &str,
    operands: &[Option<Value>],
    attributes: &Attributes,
    outputs: usize,
) -> Result<Vec<Value>> {
    let graph = graph(domain, op, operands, attributes, outputs);
    let options = Options {
        max_tensor_bytes: 1 << 24,
        ..Options::default()
    };
    let model = OnnxModel::from_graph(&graph, &Device::<Cpu>::default().into_any(), options)?;
    let given: Vec<Value> = operands.iter().flatten().cloned().collect();
    let made = model.run_ordered(given.into_iter())?;
    Ok(made.iter().map(|(_, value)| value.clone()).collect())
}

fn host<T: Element>(values: Vec<T>, dims: &[usize]) -> Option<Value> {
    Some(HostTensor::new(Shape::new(dims).unwrap(), values).unwrap().into())
}

fn ones<T: Element>(one: T, dims: &[usize]) -> Option<Value> {
    host(vec![one; dims.iter().product()], dims)
}

fn words(texts: &[&str], dims: &[usize]) -> Option<Value> {
    let texts = texts.iter().map(|&text| Arc::from(text)).collect();
    Some(Literal::text(Shape::new(dims).unwrap(), texts).unwrap().into())
}

fn scalar(value: f32) -> Option<Value> {
    host(vec![value], &[])
}

fn zero(value: u8) -> Option<Value> {
    host(vec![value], &[])
}

fn signed(dims: &[usize]) -> Option<Value> {
    let values = HostTensor::new(Shape::new(dims).unwrap(), vec![1i32; dims.iter().product()]).unwrap();
    Some(Literal::new(ElementType::I8, values).unwrap().into())
}

fn int(name: &'static str, value: i64) -> (&'static str, Attribute) {
    (name, Attribute::Int(value))
}

fn ints(name: &'static str, values: &[i64]) -> (&'static str, Attribute) {
    (name, Attribute::Ints(values.to_vec()))
}

fn floats(name: &'static str, values: &[f32]) -> (&'static str, Attribute) {
    (name, Attribute::Floats(values.to_vec()))
}

fn text(name: &'static str, value: &str) -> (&'static str, Attribute) {
    (name, Attribute::String(value.into()))
}

fn texts(name: &'static str, values: &[&str]) -> (&'static str, Attribute) {
    (
        name,
        Attribute::Strings(values.iter().map(|&value| value.into()).collect()),
    )
}

type Case = (&'static str, Vec<Option<Value>>, Attributes, &'static str);

#[track_caller]
fn refused(domain: &str, cases: Vec<Case>) {
    for (op, operands, attributes, says) in cases {
        let outputs = if op.ends_with("Classifier") { 2 } else { 1 };
        let error: Error = match run(domain, op, &operands, &attributes, outputs) {
            Err(error) => error,
            Ok(made) => panic!("{op} gave {made:?} where {says:?} was to be said"),
        };
        let told = error.to_string();
        assert!(told.contains(says), "{op}: {told}");
        assert!(told.contains(&format!("node \"n\" ({op})")), "{op}: {told}");
    }
}

/// One tree of a branch and two leaves.
fn stump(extra: Attributes) -> Attributes {
    let mut all = vec![
        ints("nodes_treeids", &[0, 0, 0]),
        ints("nodes_nodeids", &[0, 1, 2]),
        ints("nodes_featureids", &[1, 0, 0]),
        texts("nodes_modes", &["BRANCH_LEQ", "LEAF", "LEAF"]),
        floats("nodes_values", &[0.5, 0.0, 0.0]),
        ints("nodes_truenodeids", &[1, 0, 0]),
        ints("nodes_falsenodeids", &[2, 0, 0]),
        ints("target_treeids", &[0, 0]),
        ints("target_nodeids", &[1, 2]),
        ints("target_ids", &[0, 0]),
        floats("target_weights", &[1.0, 2.0]),
    ];
    for (name, value) in extra {
        all.retain(|(known, _)| *known != name);
        all.push((name, value));
    }
    all
}

/// A file that cannot be run gives an error, before it is run, that says how to get one that can.
#[test]
fn maps_as_inputs_and_layouts_of_one_cpu_have_a_way_out() {
    let device = Device::<Cpu>::default().into_any();
    for (domain, op, says) in [
        (ML, "DictVectorizer", "for a tensor of features"),
        ("com.microsoft.nchwc", "Conv", "ORT_ENABLE_EXTENDED"),
    ] {
        let graph = graph(domain, op, &[ones(1f32, &[1])], &vec![], 1);
        let error = OnnxModel::from_graph(&graph, &device, Options::default())
            .err()
            .unwrap();
        assert!(error.to_string().contains(says), "{error}");
    }
}

/// NumPy's slice is empty there.
#[test]
fn a_slice_backwards_from_before_the_first_element_begins_at_it() -> Result<()> {
    for (start, end, step, wanted) in [
        (-8i64, -9, -1, &[1.0][..]),
        (-8, 2, -1, &[]),
        (9, -9, -2, &[4.0, 2.0]),
        (-9, 9, 2, &[1.0, 3.0]),
    ] {
        let x = host(vec![1.0f32, 2.0, 3.0, 4.0], &[4]);
        let numbers = [start, end, 0, step].map(|number| host(vec![number], &[1]));
        let inputs = [&[x][..], &numbers[..]].concat();
        let made = run("", "Slice", &inputs, &vec![], 1)?;
        assert_eq!(made[0].host()?.to_f64_vec(), wanted, "{start}:{end}:{step}");
    }
    let none = [host(Vec::<f32>::new(), &[0])];
    let numbers = [-8i64, -9, 0, -1].map(|number| host(vec![number], &[1]));
    let made = run("", "Slice", &[&none[..], &numbers[..]].concat(), &vec![], 1)?;
    assert_eq!(made[0].host()?.shape().dims(), [0]);
    Ok(())
}

/// For this file ONNX Runtime 1.32 returns the labels 0 and 1, whatever the file's are, and numbers the transforms
/// differently from ONNX.
#[test]
fn labels_are_the_files_and_transforms_are_onnx_s() -> Result<()> {
    let x = [host(vec![0.0f32, 0.0, 0.0, 1.0], &[2, 2])];
    let mut classes: Attributes = stump(vec![])
        .into_iter()
        .filter(|(name, _)| !name.starts_with("target"))
        .collect();
    classes.extend([
        ints("class_treeids", &[0, 0]),
        ints("class_nodeids", &[1, 2]),
        ints("class_ids", &[0, 1]),
        floats("class_weights", &[0.25, 0.5]),
        ints("classlabels_int64s", &[4, 8]),
    ]);
    let made = run(ML, "TreeEnsembleClassifier", &x, &classes, 2)?;
    assert_eq!(made[0].host()?.as_slice::<i64>()?, [4, 8]);
    assert_eq!(made[1].host()?.to_f64_vec(), [0.25, 0.0, 0.0, 0.5]);
    let tensor = |host: HostTensor| Attribute::Tensor(host.into());
    let list = |values: Vec<f32>| HostTensor::new(Shape::new(&[values.len()]).unwrap(), values).unwrap();
    let whole = vec![
        int("n_targets", 2),
        int("post_transform", 1),
        ints("tree_roots", &[0]),
        ("nodes_modes", tensor(list(vec![0.0]).cast(DType::U8))),
        ("nodes_splits", tensor(list(vec![0.5]))),
        ints("nodes_featureids", &[1]),
        ints("nodes_truenodeids", &[0]),
        ints("nodes_falsenodeids", &[1]),
        ints("nodes_trueleafs", &[1]),
        ints("nodes_falseleafs", &[1]),
        ("leaf_weights", tensor(list(vec![0.0, 0.0]))),
        ints("leaf_targetids", &[0, 1]),
    ];
    let made = run(ML, "TreeEnsemble", &x, &whole, 1)?;
    assert_eq!(made[0].host()?.to_f64_vec(), [0.5; 4]);
    Ok(())
}

/// Ops that round pass no gradient on, and say so; the others do pass it on.
#[test]
fn gradients_pass_or_are_refused() -> Result<()> {
    let device = Device::<Cpu>::default().into_any();
    let leaf = |dims: &[usize]| -> Result<Option<Value>> {
        let x = Tensor::full(Shape::new(dims)?, 0.5, (&device, DType::F32))?;
        Ok(Some(x.requires_grad()?.into()))
    };
    let made = run(MS, "FusedMatMul", &[leaf(&[2, 3])?, leaf(&[3, 2])?], &vec![], 1)?;
    assert!(made[0].is_tracked());
    let error = run(
        MS,
        "DynamicQuantizeMatMul",
        &[leaf(&[2, 3])?, signed(&[3, 2]), scalar(0.5)],
        &vec![],
        1,
    );
    let told = error.unwrap_err().to_string();
    assert!(told.contains("DynamicQuantizeMatMul passes no gradient on"), "{told}");
    let error = run(ML, "TreeEnsembleRegressor", &[leaf(&[2, 2])?], &stump(vec![]), 1)
        .unwrap_err()
        .to_string();
    assert!(error.contains("passes no gradient on"), "{error}");
    Ok(())
}

/// ONNX Runtime's nodes are fused with their neighbours, and give the same results as unfused.
#[test]
fn products_take_in_what_follows_them() -> Result<()> {
    let device = Device::<Cpu>::default().into_any();
    let values = |dims: &[usize]| -> Result<HostTensor> {
        let shape = Shape::new(dims)?;
        HostTensor::new(
            shape,
            (0..shape.numel()).map(|i| (i as f32 * 0.7).sin()).collect::<Vec<f32>>(),
        )
    };
    let x: Value = values(&[2, 32])?.into();
    let blocks = vec![int("K", 32), int("N", 4), int("block_size", 16)];
    let packed = HostTensor::new(
        Shape::new(&[4, 2, 8])?,
        (0..64).map(|i| (i * 37) as u8).collect::<Vec<u8>>(),
    )?;
    for (first, weights, attributes, second) in [
        ("FusedMatMul", vec![values(&[32, 4])?], vec![], "BiasGelu"),
        ("FusedMatMul", vec![values(&[32, 4])?], vec![], "FastGelu"),
        ("MatMulNBits", vec![packed, values(&[4, 2])?], blocks, "BiasGelu"),
    ] {
        let operands: Vec<Option<Value>> = (0..=weights.len()).map(|_| Some(x.clone())).collect();
        let mut graph = graph(MS, first, &operands, &attributes, 1);
        let body = &mut graph.body;
        for (value, tensor) in body.inputs.split_off(1).into_iter().zip(weights) {
            let tensor = tensor.into();
            body.initializers.push(Initializer { value, tensor });
        }
        let (bias, y) = (body.add_initializer("bias", values(&[4])?), body.add_value("y", None));
        let product = std::mem::replace(&mut body.outputs, vec![y]);
        body.nodes.push(Node {
            op_type: second.into(),
            domain: MS.into(),
            inputs: vec![Some(product[0]), Some(bias)],
            outputs: vec![Some(y)],
            ..Node::default()
        });
        let run = |fuse| {
            let options = Options {
                fuse,
                ..Options::default()
            };
            let model = OnnxModel::from_graph(&graph, &device, options)?;
            let steps: Vec<String> = model.steps().iter().map(|step| (*step).to_owned()).collect();
            let made = model.run_ordered(std::iter::once(x.clone()))?;
            let y = made.iter().next().map(|(_, value)| value.host());
            Ok::<_, Error>((steps, y.transpose()?.map(|host| host.to_f64_vec()).unwrap_or_default()))
        };
        let (fused, apart) = (run(true)?, run(false)?);
        assert_eq!((fused.0, apart.0.len()), (vec![format!("{first}+{second}")], 2));
        let far = fused
            .1
            .iter()
            .zip(&apart.1)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f64::max);
        assert!(fused.1.len() == 8 && far < 1e-5, "{first}: {far}");
    }
    Ok(())
}
