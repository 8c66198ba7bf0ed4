//! f32 models quantized to bytes: what is written, what it computes here and in ONNX Runtime, and what is rejected.

use polygrad_cpu::Cpu;
use polygrad_nn::{BatchNorm2d, Conv2d, Conv2dConfig, Flatten, Linear, MaxPool2d, Module, ReLU, Sequential};
use polygrad_onnx::graph::{Attribute, Body, Dim, ElementType, Graph, Node, ValueType};
use polygrad_onnx::{
    Calibration, Engine, Export, ExportOnnx, Input, Int8, OnnxModel, Opset, Options, Quantize, Quantized,
};
use polygrad_tensor::{DType, Device, Result, Tensor, manual_seed};

fn device() -> Device {
    Device::<Cpu>::default().into_any()
}

fn mlp() -> Result<Graph> {
    manual_seed(1);
    let device = device();
    let model = Sequential::new()
        .push(Linear::new(20, 32, &device)?)
        .push(ReLU)
        .push(Linear::new(32, 24, &device)?)
        .push(ReLU)
        .push(Linear::new(24, 5, &device)?);
    let export = Export::new([Input::new("x", DType::F32, ("batch", 20))]).outputs(["logits"]);
    model.record_onnx(&export, |x| model.forward(&x[0]))
}

/// With batch normalization, whose statistics differ from the initial ones.
fn cnn(fold: bool) -> Result<Graph> {
    manual_seed(2);
    let device = device();
    let model = Sequential::new()
        .push(Conv2dConfig::new(3, 8, 3).padding(1).build(&device)?)
        .push(BatchNorm2d::new(8, &device)?)
        .push(ReLU)
        .push(MaxPool2d::new(2))
        .push(Conv2d::new(8, 12, 3, &device)?)
        .push(ReLU)
        .push(Flatten::new())
        .push(Linear::new(12 * 4, 5, &device)?);
    model.train();
    for _ in 0..5 {
        model.forward(&Tensor::randn([16, 3, 8, 8], &device)?)?;
    }
    model.eval();
    let export = Export::new([Input::new("x", DType::F32, ("batch", 3, 8, 8))]).fold_batch_norm(fold);
    model.record_onnx(&export, |x| model.forward(&x[0]))
}

fn batches(dims: &[usize]) -> Result<Vec<Vec<Tensor>>> {
    manual_seed(3);
    let (dims, device) = ([&[16], dims].concat(), device());
    (0..4)
        .map(|_| Ok(vec![Tensor::randn(dims.as_slice(), &device)?]))
        .collect()
}

/// The error of the model, and its steps; all its bytes match ONNX Runtime's.
pub(crate) fn checked(made: &Quantized, batch: &[Tensor]) -> Result<(f64, Vec<String>)> {
    let mut graph = Graph::from_bytes(made.graph.to_bytes()?)?;
    let native = OnnxModel::from_graph(&graph, &device(), Options::default())?;
    let steps = native.steps().into_iter().map(str::to_owned).collect();
    if Engine::Ort.available().is_ok() {
        let bytes: Vec<_> = graph
            .body
            .nodes
            .iter()
            .filter(|node| node.op_type == "QuantizeLinear")
            .collect();
        let bytes: Vec<_> = bytes.into_iter().map(|node| node.outputs[0].unwrap()).collect();
        graph.body.outputs.extend(bytes);
        let [ours, theirs] = [Engine::Native, Engine::Ort].map(|engine| {
            let options = Options {
                engine,
                threads: Some(1),
                ..Options::default()
            };
            OnnxModel::from_graph(&graph, &device(), options)?.forward(batch)
        });
        for ((name, ours), (_, theirs)) in ours?.iter().zip(theirs?.iter()) {
            let (a, b) = (ours.host()?.to_f64_vec(), theirs.host()?.to_f64_vec());
            if ours.element() == Some(ElementType::U8) {
                assert!(a == b, "{name}");
            } else {
                let largest = b.iter().fold(0f64, |m, x| m.max(x.abs()));
                assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= 1e-5 * largest), "{name}");
            }
        }
    }
    Ok((made.outputs[0].relative_error, steps))
}

/// The reason why the rows of a batch are not independent.
fn mixed(model: &OnnxModel) -> Result<Option<String>> {
    model.mixes_rows([&[0], &[0]], |rows| {
        Ok(vec![Tensor::ones([rows, 20], &device())?.into()])
    })
}

#[test]
fn a_perceptron_is_products_of_bytes() -> Result<()> {
    let (graph, batches) = (mlp()?, batches(&[20])?);
    for per_channel in [false, true] {
        for calibration in [Calibration::MinMax, Calibration::Percentile(99.99), Calibration::Mse] {
            let options = Quantize::new().per_channel(per_channel).calibration(calibration);
            let made = options.run(&graph, &batches, &device())?;
            let (error, steps) = checked(&made, &batches[0])?;
            assert_eq!(steps, ["QuantizeLinear", "QGemm", "QGemm", "QGemm"]);
            assert!(error > 1e-4 && error < 0.03, "{options:?}: {error}");
            assert!(made.outputs[0].cosine > 0.999);
            assert!(made.layers.iter().all(|layer| layer.snr > 30.0), "{:?}", made.layers);
            assert_eq!((made.graph.opsets[""], made.graph.header.ir_version), (21, 10));
            let model = OnnxModel::from_graph(&made.graph, &device(), Options::default())?;
            assert_eq!(mixed(&model)?, None);
            let again = options.run(&graph, &batches, &device())?;
            assert!(made.graph.to_bytes()? == again.graph.to_bytes()?);
        }
    }
    Ok(())
}

#[test]
fn a_convolutional_network_stays_in_bytes() -> Result<()> {
    let batches = batches(&[3, 8, 8])?;
    for (fold, per_channel) in [(true, false), (false, true)] {
        let graph = cnn(fold)?;
        let made = Quantize::new()
            .per_channel(per_channel)
            .run(&graph, &batches, &device())?;
        let (error, steps) = checked(&made, &batches[0])?;
        assert_eq!(
            steps,
            [
                "QuantizeLinear",
                "QLinearConv",
                "MaxPool",
                "QLinearConv",
                "Reshape",
                "QGemm"
            ]
        );
        assert!(error > 1e-4 && error < 0.05, "{error}");
        let ops: Vec<&str> = made.graph.body.nodes.iter().map(|node| node.op_type.as_str()).collect();
        assert!(
            !ops.contains(&"BatchNormalization") && !ops.contains(&"Relu"),
            "{ops:?}"
        );
        let weights = made
            .graph
            .body
            .initializers
            .iter()
            .filter(|each| each.tensor.element() == ElementType::I8);
        let scales: Vec<usize> = weights
            .filter(|each| made.graph.body.name_of(each.value).ends_with("_zero_point"))
            .map(|each| each.tensor.host().shape().numel())
            .collect();
        assert_eq!(scales, if per_channel { [8, 12, 5] } else { [1, 1, 1] });
    }
    Ok(())
}

#[test]
fn a_scale_for_each_channel_helps_uneven_weights() -> Result<()> {
    let mut graph = mlp()?;
    // One output of the first layer is a hundred times the others.
    let weight = graph.body.nodes[0].inputs[1].unwrap();
    let weight = graph
        .body
        .initializers
        .iter_mut()
        .find(|each| each.value == weight)
        .unwrap();
    let mut values = weight.tensor.host().to_vec::<f32>()?;
    values[..20].iter_mut().for_each(|x| *x *= 100.0);
    let shape = *weight.tensor.host().shape();
    weight.tensor = polygrad_core::HostTensor::new(shape, values)?.into();
    let data = batches(&[20])?;
    let error = |per_channel: bool| -> Result<Quantized> {
        Quantize::new().per_channel(per_channel).run(&graph, &data, &device())
    };
    let [whole, each] = [error(false)?, error(true)?].map(|made| made.layers[0].snr);
    assert!(each > whole, "{each} {whole}");
    Ok(())
}

#[test]
fn layers_are_left_out_by_name_or_by_their_error() -> Result<()> {
    let (graph, batches) = (mlp()?, batches(&[20])?);
    let made = Quantize::new().skip(["2*"]).run(&graph, &batches, &device())?;
    let left: Vec<bool> = made.layers.iter().map(|layer| layer.left_out.is_some()).collect();
    assert_eq!(left, [false, true, false]);
    let (_, steps) = checked(&made, &batches[0])?;
    assert_eq!(
        steps,
        [
            "QuantizeLinear",
            "QGemm",
            "Relu",
            "Gemm+Relu",
            "QuantizeLinear",
            "QGemm"
        ]
    );
    let noise: Vec<f64> = Quantize::new()
        .run(&graph, &batches, &device())?
        .layers
        .iter()
        .map(|l| l.snr)
        .collect();
    let worst = noise.iter().copied().fold(f64::INFINITY, f64::min);
    let made = Quantize::new().min_snr(worst + 1e-9).run(&graph, &batches, &device())?;
    let left = made.layers.iter().filter(|layer| layer.left_out.is_some()).count();
    assert_eq!(left, 1);
    Ok(())
}

#[test]
fn dynamic_ranges_need_no_data() -> Result<()> {
    let (graph, batches) = (mlp()?, batches(&[20])?);
    for per_channel in [false, true] {
        let options = Quantize::new().int8(Int8::Dynamic).per_channel(per_channel);
        let made = options.run(&graph, &[], &device())?;
        assert!(made.outputs.is_empty() && made.layers.iter().all(|layer| layer.snr.is_nan()));
        let made = options.run(&graph, &batches, &device())?;
        let (error, _) = checked(&made, &batches[0])?;
        assert!(error > 1e-4 && error < 0.03, "{error}");
        let ops = made
            .graph
            .body
            .nodes
            .iter()
            .filter(|node| node.op_type == "MatMulInteger");
        assert_eq!(ops.count(), 3);
        let model = OnnxModel::from_graph(&made.graph, &device(), Options::default())?;
        assert!(mixed(&model)?.unwrap().contains("takes one scale for all rows"));
    }
    let error = Quantize::new()
        .int8(Int8::Dynamic)
        .skip(["nothing"])
        .run(&cnn(true)?, &[], &device());
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("no layer to be quantized is called \"nothing\"")
    );
    Ok(())
}

/// `y = op(x, w)` with these attributes, in op set `opset`.
fn one(op: &str, opset: i64, attributes: &[(&str, Attribute)]) -> Graph {
    let mut body = Body {
        name: "one".into(),
        ..Body::default()
    };
    let x = body.add_value(
        "x",
        Some(ValueType::tensor(
            DType::F32,
            vec![Dim::Named("n".into()), Dim::Fixed(2)],
        )),
    );
    let y = body.add_value("y", None);
    let values: Vec<f32> = vec![0.5, -1.0, 2.0, 0.25];
    let w = polygrad_core::HostTensor::new([2, 2].into(), values).unwrap();
    let w = body.add_initializer("w", w);
    (body.inputs, body.outputs) = (vec![x], vec![y]);
    body.nodes = vec![Node {
        name: "the_node".into(),
        op_type: op.into(),
        inputs: vec![Some(x), Some(w)],
        outputs: vec![Some(y)],
        attributes: attributes
            .iter()
            .map(|(name, value)| ((*name).into(), value.clone()))
            .collect(),
        ..Node::default()
    }];
    Graph {
        opsets: [(String::new(), opset)].into(),
        body,
        ..Graph::default()
    }
}

#[test]
fn scales_are_those_of_hand() -> Result<()> {
    let device = device();
    let x = Tensor::new([[1.0f32, -1.0], [3.0, 0.0]], &device)?;
    let made = Quantize::new()
        .per_channel(true)
        .run(&one("MatMul", 20, &[]), &[vec![x]], &device)?;
    let body = &made.graph.body;
    let constant = |name: &str| {
        let found = body.initializers.iter().find(|each| body.name_of(each.value) == name);
        found.unwrap_or_else(|| panic!("no {name}")).tensor.host().to_f64_vec()
    };
    let f = |x: f32| f64::from(x);
    // x is −1 to 3, so 255 steps are 4, and 0 is byte 64; columns of w are 0.5, 2 and −1, 0.25.
    assert_eq!(constant("x_rounded_scale"), [f((4.0f64 / 255.0) as f32)]);
    assert_eq!(constant("x_rounded_zero_point"), [64.0]);
    assert_eq!(
        constant("w_scale"),
        [f((2.0f64 / 127.0) as f32), f((1.0f64 / 127.0) as f32)]
    );
    assert_eq!(constant("w_quantized"), [32.0, -127.0, 127.0, 32.0]);
    assert_eq!(constant("w_zero_point"), [0.0, 0.0]);
    Ok(())
}

#[test]
fn what_cannot_be_quantized_is_refused() -> Result<()> {
    let device = device();
    let data = |x: f32| -> Result<Vec<Vec<Tensor>>> { Ok(vec![vec![Tensor::full([3, 2], x, &device)?]]) };
    let refused = |options: Quantize, graph: &Graph, data: &[Vec<Tensor>], words: &[&str]| {
        let error = options.run(graph, data, &device).unwrap_err();
        for word in words {
            assert!(error.to_string().contains(word), "{error}\nshould contain {word}");
        }
        assert!(error.hint().is_some(), "{error}");
    };
    let graph = one("MatMul", 20, &[]);
    let new = Quantize::new;
    refused(
        new(),
        &one("MatMul", 12, &[]),
        &data(1.0)?,
        &["op set 12", "version_converter"],
    );
    refused(new(), &one("Add", 20, &[]), &data(1.0)?, &["nothing to quantize"]);
    let turned = [("transA", Attribute::Int(1))];
    refused(new(), &one("Gemm", 20, &turned), &data(1.0)?, &["nothing to quantize"]);
    refused(new(), &graph, &[], &["no batches"]);
    refused(
        new(),
        &graph,
        &data(f32::NAN)?,
        &["\"x\"", "\"the_node\"", "not finite"],
    );
    refused(new(), &graph, &data(f32::INFINITY)?, &["\"the_node\"", "not finite"]);
    refused(
        new().skip(["the_nod"]),
        &graph,
        &data(1.0)?,
        &["\"the_nod\"", "near it: the_node"],
    );
    refused(new().skip(["*"]), &graph, &data(1.0)?, &["every layer is left out"]);
    refused(
        new().calibration(Calibration::Percentile(101.0)),
        &graph,
        &data(1.0)?,
        &["101", "99.99"],
    );
    let wide = vec![vec![Tensor::ones([3, 5], &device)?]];
    refused(new(), &graph, &wide, &["\"x\""]);
    let made = new().run(&graph, &data(1.0)?, &device)?;
    refused(
        new(),
        &made.graph,
        &data(1.0)?,
        &["quantized already", "QuantizeLinear"],
    );
    let narrow = {
        let mut graph = graph.clone();
        let column = polygrad_core::HostTensor::new([2, 1].into(), vec![1f32, 2.0])?;
        graph.body.initializers[0].tensor = column.into();
        graph.body.values[2].ty = None;
        graph
    };
    refused(
        new().per_channel(true),
        &narrow,
        &data(1.0)?,
        &["more than one output channel"],
    );
    Ok(())
}

#[test]
fn an_op_that_changed_keeps_its_op_set() -> Result<()> {
    manual_seed(4);
    let device = device();
    let layer = Linear::new(6, 4, &device)?;
    let export = Export::new([Input::new("x", DType::F32, ("batch", 6))]).opset(Opset::V17);
    let data = vec![vec![Tensor::randn([8, 6], &device)?]];
    let opset = |graph: &Graph| -> Result<i64> { Ok(Quantize::new().run(graph, &data, &device)?.graph.opsets[""]) };
    assert_eq!(opset(&layer.record_onnx(&export, |x| layer.forward(&x[0]))?)?, 21);
    // Its axes became an operand with op set 18.
    assert_eq!(
        opset(&layer.record_onnx(&export, |x| layer.forward(&x[0])?.mean([1]))?)?,
        17
    );
    Ok(())
}
