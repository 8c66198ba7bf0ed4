//! The structure of graphs.

use polygrad_cpu::Cpu;
use polygrad_nn::{
    BatchNorm2d, Conv2d, GELU, GRUConfig, HostBlocks, LSTMConfig, Linear, Module, QuantizedLinear, QuantizedWeight,
    ReLU, Sequential,
};
use polygrad_onnx::graph::{Attribute, Body, Dim, Graph};
use polygrad_onnx::{Export, ExportOnnx, Input, OnnxModel, Opset, Options};
use polygrad_tensor::{Attention, BlockScheme, DType, Device, HostTensor, Result, Shape, Tensor};

use super::{cpu, zoo};

fn ops(body: &Body) -> Vec<&str> {
    body.nodes.iter().map(|node| node.op_type.as_str()).collect()
}

fn initializers(body: &Body) -> Vec<&str> {
    body.initializers.iter().map(|i| body.name_of(i.value)).collect()
}

fn named(name: &str) -> Dim {
    Dim::Named(name.to_owned())
}

fn dims(body: &Body, output: usize) -> Vec<Dim> {
    let ty = body
        .value(body.outputs[output])
        .ty
        .as_ref()
        .and_then(|ty| ty.as_tensor());
    ty.and_then(|ty| ty.shape.clone()).unwrap()
}

fn recorded(name: &str, opset: Opset) -> Result<Graph> {
    let case = zoo::cases(&cpu())?.into_iter().find(|case| case.name == name).unwrap();
    case.model
        .record_onnx(&case.export.opset(opset).check(false), &case.run)
}

#[test]
fn a_network_is_a_few_ops_with_its_own_names() -> Result<()> {
    let device = cpu();
    let model = Sequential::new()
        .push(Linear::new(4, 8, &device)?)
        .push(ReLU)
        .push(Linear::new(8, 3, &device)?);
    model.train();
    let input = Input::new("x", DType::F32, ("batch", 4));
    let export = Export::new([input]).outputs(["logits"]).doc_string("a test");
    let before = model.state_dict()?;
    let graph = model.record_onnx(&export, |x| model.forward(&x[0]))?;
    assert_eq!(ops(&graph.body), ["Gemm", "Relu", "Gemm"]);
    assert_eq!(initializers(&graph.body), ["0.weight", "0.bias", "2.weight", "2.bias"]);
    assert_eq!(dims(&graph.body, 0), [named("batch"), Dim::Fixed(3)]);
    assert_eq!(graph.body.nodes[2].name, "2/Gemm");
    assert_eq!(
        (graph.header.producer_name.as_str(), graph.header.doc_string.as_str()),
        ("polygrad", "a test")
    );
    assert!(graph.body.values.iter().all(|value| value.ty.is_some()));
    // The model is on its device again, unchanged.
    for (name, host) in model.state_dict()?.iter() {
        assert_eq!(before.get(name).unwrap().bytes(), host.bytes());
    }
    assert!(model.parameters().iter().all(|param| param.tensor().device() == device));
    Ok(())
}

#[test]
fn batch_norm_goes_into_the_convolution() -> Result<()> {
    let device = cpu();
    let model = Sequential::new()
        .push(Conv2d::new(3, 4, 3, &device)?)
        .push(BatchNorm2d::new(4, &device)?);
    let input = Input::new("x", DType::F32, ("batch", 3, 8, 8));
    let export = Export::new([input]);
    let run = |x: &[Tensor]| model.forward(&x[0]);
    let graph = model.record_onnx(&export, run)?;
    assert_eq!(ops(&graph.body), ["Conv"]);
    assert_eq!(initializers(&graph.body), ["0.weight.folded", "0.bias.folded"]);
    let graph = model.record_onnx(&export.fold_batch_norm(false), run)?;
    assert_eq!(ops(&graph.body), ["Conv", "BatchNormalization"]);
    assert!(initializers(&graph.body).contains(&"1.running_mean"));
    Ok(())
}

#[test]
fn recurrent_layers_are_one_op_each() -> Result<()> {
    let device = cpu();
    let input = || Input::new("x", DType::F32, ("seq", "batch", 3));
    let lstm = LSTMConfig::new(3, 4).num_layers(2).build(&device)?;
    let graph = lstm.record_onnx(&Export::new([input()]), |x| Ok(lstm.forward(&x[0], None)?.0))?;
    assert_eq!(ops(&graph.body).iter().filter(|op| **op == "LSTM").count(), 2);
    assert!(initializers(&graph.body).contains(&"weight_hh_l1.iofc"));
    assert_eq!(dims(&graph.body, 0), [named("seq"), named("batch"), Dim::Fixed(4)]);
    let gru = GRUConfig::new(3, 4).num_layers(2).bidirectional(true).build(&device)?;
    let graph = gru.record_onnx(&Export::new([input()]), |x| Ok(gru.forward(&x[0], None)?.0))?;
    let count = |body: &Body, op: &str| ops(body).iter().filter(|found| **found == op).count();
    for (op, wanted) in [
        ("GRU", 2),
        ("Transpose", 2),
        ("Reshape", 2),
        ("Squeeze", 0),
        ("Split", 0),
    ] {
        assert_eq!(count(&graph.body, op), wanted, "{op} in {:?}", ops(&graph.body));
    }
    let Some(layer) = graph.body.nodes.iter().find(|node| node.op_type == "GRU") else {
        unreachable!("it was found above")
    };
    let direction = layer.attribute("direction");
    assert!(matches!(direction, Some(Attribute::String(text)) if text == "bidirectional"));
    assert!(initializers(&graph.body).contains(&"weight_hh_l1.zrh.both"));
    // The states of both directions are one result of each layer.
    let states = gru.record_onnx(&Export::new([input()]), |x| Ok(gru.forward(&x[0], None)?.1))?;
    assert_eq!(count(&states.body, "Split"), 0, "{:?}", ops(&states.body));
    assert_eq!(dims(&states.body, 0), [Dim::Fixed(4), named("batch"), Dim::Fixed(4)]);
    Ok(())
}

#[test]
fn each_opset_has_its_highest_ops() -> Result<()> {
    let graph = recorded("gpt2", Opset::V23)?;
    assert_eq!(ops(&graph.body).iter().filter(|op| **op == "Attention").count(), 2);
    let graph = recorded("gpt2", Opset::V20)?;
    assert!(ops(&graph.body).contains(&"Gelu") && ops(&graph.body).contains(&"LayerNormalization"));
    assert!(initializers(&graph.body).contains(&"transformer.h.1.attn.c_attn.weight"));
    assert_eq!(dims(&graph.body, 0), [named("batch"), named("seq"), Dim::Fixed(40)]);
    let graph = recorded("gpt2", Opset::V17)?;
    assert!(!ops(&graph.body).contains(&"Gelu"));
    let graph = recorded("t5", Opset::V23)?;
    assert!(ops(&graph.body).contains(&"RMSNormalization"));
    Ok(())
}

#[test]
fn a_policy_takes_and_gives_its_state() -> Result<()> {
    let graph = recorded("lstm_policy", Opset::V20)?;
    assert!(graph.body.inputs.len() >= 3 && graph.body.outputs.len() >= 4);
    assert_eq!(dims(&graph.body, 2), [Dim::Fixed(1), named("batch"), Dim::Fixed(7)]);
    Ok(())
}

#[test]
fn outputs_that_are_inputs_or_weights_are_copied() -> Result<()> {
    let device = cpu();
    let model = Linear::new(2, 2, &device)?;
    let export = Export::new([Input::new("x", DType::F32, ("batch", 2))]);
    let graph = model.record_onnx(&export, |x| {
        let y = model.forward(&x[0])?;
        Ok([x[0].clone(), model.weight.tensor(), y.clone(), y])
    })?;
    assert_eq!(ops(&graph.body).iter().filter(|op| **op == "Identity").count(), 3);
    Ok(())
}

#[test]
fn other_dtypes() -> Result<()> {
    let device = cpu();
    for dtype in [DType::F64, DType::F16, DType::BF16] {
        let model = Sequential::new()
            .push(Linear::new(4, 8, &device)?)
            .push(GELU::Exact)
            .push(Linear::new(8, 3, &device)?);
        model.to_dtype(dtype)?;
        let export = Export::new([Input::new("x", dtype, ("batch", 4))]);
        let graph = model.record_onnx(&export, |x| model.forward(&x[0])?.softmax(-1))?;
        assert_eq!(graph.body.initializers[0].tensor.host().dtype(), dtype);
    }
    Ok(())
}

#[test]
fn numbers_that_an_attribute_rounds_are_written_otherwise_in_f64() -> Result<()> {
    type Call = fn(&Tensor) -> Result<Tensor>;
    let calls: [(&str, Call); 8] = [
        ("gelu_tanh", |x| x.gelu_tanh()),
        ("layer_norm", |x| x.layer_norm(None, None, 1, 1e-2)),
        ("rms_norm", |x| x.rms_norm(None, 1, 1e-2)),
        ("batch_norm_running", |x| {
            let of_channels = x.narrow(0, 0, 1)?.reshape([4])?;
            let (mean, var) = (&of_channels * 0.5, (&of_channels * &of_channels)? + 0.1);
            x.batch_norm_running(&mean?, &var?, None, None, 1e-2)
        }),
        ("leaky_relu", |x| x.leaky_relu(0.01)),
        ("elu", |x| x.elu(0.3)),
        ("softplus", |x| (x * 12.0)?.softplus(1.0, 20.0)),
        ("attention", |x| {
            let x = x.reshape([1, 1, 2, 4])?;
            x.scaled_dot_product_attention(&x, &x, Attention::new().scale(0.3))
        }),
    ];
    let x = [0.3, -0.7, 1.9, 0.2, -1.1, 0.9, 0.4, -2.3];
    let x = Tensor::from_slice(&x, [2, 4], &cpu())?;
    for (op, run) in calls {
        let export = Export::new([Input::new("x", DType::F64, (2usize, 4usize))]).opset(Opset::V23);
        let graph = Sequential::new().record_onnx(&export, |x| run(&x[0]))?;
        let found = OnnxModel::from_graph(&graph, &cpu(), Options::default())?.forward(std::slice::from_ref(&x))?;
        let off = (found.tensor(0)? - run(&x)?)?.abs()?.sum_all()?.item()?;
        assert!(off < 1e-14, "{op} is off by {off}");
    }
    Ok(())
}

#[test]
fn weights_go_to_a_file_of_their_own() -> Result<()> {
    let (device, folder) = (cpu(), tempfile::tempdir().unwrap());
    let path = folder.path().join("model.onnx");
    let model = Linear::new(64, 64, &device)?;
    let export = Export::new([Input::new("x", DType::F32, ("batch", 64))]).external_data(true);
    model.export_onnx(&path, &export, |x| model.forward(&x[0]))?;
    assert!(std::fs::metadata(&path).unwrap().len() < 4096);
    let again = OnnxModel::load(&path, &device)?;
    let x = Tensor::ones([3, 64], &device)?;
    let difference = (again.forward(std::slice::from_ref(&x))?.tensor(0)? - model.forward(&x)?)?;
    assert!(difference.abs()?.mean_all()?.item()? < 1e-5);
    Ok(())
}

#[test]
fn a_typed_model_is_recorded_on_a_second_one() -> Result<()> {
    let device = Device::<Cpu>::default().into_any();
    let model = LSTMConfig::new(3, 4).num_layers(2).dropout(0.5).build(&device)?;
    let export = Export::new([Input::new("x", DType::F32, ("seq", "batch", 3))]);
    let graph = export.record_typed(
        &model.state_dict()?,
        |device| LSTMConfig::new(3, 4).num_layers(2).dropout(0.5).build(device),
        |model, x| Ok(model.forward(&x[0], None)?.0),
    )?;
    let x = Tensor::ones([5, 2, 3], &device)?;
    model.eval();
    let found = OnnxModel::from_graph(&graph, &device, Options::default())?
        .forward(std::slice::from_ref(&x))?
        .tensor(0)?;
    let difference = (found - model.forward(&x, None)?.0)?;
    assert!(difference.abs()?.mean_all()?.item()? < 1e-6);
    Ok(())
}

/// A settled weight is recorded with one row after another, and no symbol stands near its number of rows.
#[test]
fn extents_of_settled_weights_are_plain_numbers() -> Result<()> {
    let rows = 6992;
    let weight = HostTensor::new(Shape::from([rows, 128]), vec![0.5f32; rows * 128])?;
    let blocks = HostBlocks::quantize(&weight, BlockScheme::Q8.with_rounded_input(true))?;
    let model = QuantizedLinear::of(QuantizedWeight::from_host(&blocks, &cpu())?, None);
    model.settle()?;
    assert_eq!(model.named_buffers()[0].1.tensor().rank(), 3);
    let export = Export::new([Input::new("x", DType::F32, ("batch", 128))]).check(false);
    let graph = model.record_onnx(&export, |x| model.forward(&x[0]))?;
    assert_eq!(dims(&graph.body, 0), [named("batch"), Dim::Fixed(rows)]);
    Ok(())
}
