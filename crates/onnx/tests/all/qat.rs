//! Models in training for 8 bits: their graphs, and that their files compute what they learned.

use polygrad_cpu::Cpu;
use polygrad_nn::optim::{AdamW, Optimizer};
use polygrad_nn::qat::{self, QatConfig};
use polygrad_nn::{
    BatchNorm2d, Conv2dConfig, Flatten, Linear, MaxPool2d, Module, ReLU, Sequential, loss::cross_entropy,
};
use polygrad_onnx::graph::{ElementType, Graph};
use polygrad_onnx::{Calibration, Export, ExportOnnx, Input, Int8, OnnxModel, Options, Quantize};
use polygrad_tensor::{DType, Device, Result, Tensor, manual_seed, no_grad};

use super::quantize::checked;

fn device() -> Device {
    Device::<Cpu>::default().into_any()
}

fn images(rows: usize) -> Result<Tensor> {
    Tensor::randn([rows, 3, 8, 8], &device())
}

/// Briefly trained, with batch normalization after a convolution without a bias.
fn trained() -> Result<Sequential> {
    manual_seed(2);
    let device = device();
    let model = Sequential::new()
        .push(Conv2dConfig::new(3, 8, 3).padding(1).bias(false).build(&device)?)
        .push(BatchNorm2d::new(8, &device)?)
        .push(ReLU)
        .push(MaxPool2d::new(2))
        .push(Conv2dConfig::new(8, 12, 3).build(&device)?)
        .push(ReLU)
        .push(Flatten::new())
        .push(Linear::new(12 * 4, 5, &device)?);
    qat::attach(&model, &QatConfig::new())?;
    let x = images(64)?;
    qat::calibrate(&model, || model.forward(&x))?;
    let labels = Tensor::from_vec((0..64).map(|i| i % 5).collect::<Vec<i64>>(), [64], &device)?;
    let mut optimizer = AdamW::new(model.parameters(), 3e-3)?;
    for _ in 0..20 {
        optimizer.backward_step(cross_entropy(&model.forward(&x)?, &labels)?)?;
    }
    model.eval();
    Ok(model)
}

fn graph(model: &Sequential) -> Result<Graph> {
    let export = Export::new([Input::new("x", DType::F32, ("batch", 3, 8, 8))]).outputs(["logits"]);
    model.record_onnx(&export, |x| model.forward(&x[0]))
}

fn forward(graph: &Graph, x: &Tensor) -> Result<Vec<f64>> {
    let model = OnnxModel::from_graph(graph, &device(), Options::default())?;
    no_grad(|| model.forward(std::slice::from_ref(x)))?
        .tensor(0)?
        .to_f64_vec()
}

/// The largest difference, relative to the largest number.
fn difference(a: &[f64], b: &[f64]) -> f64 {
    let largest = a.iter().fold(0f64, |m, x| m.max(x.abs()));
    a.iter().zip(b).fold(0f64, |m, (a, b)| m.max((a - b).abs())) / largest
}

#[test]
fn the_file_has_the_numbers_that_were_learned() -> Result<()> {
    let model = trained()?;
    let graph = graph(&model)?;
    assert!(Quantize::is_learned(&graph));
    let x = images(32)?;
    let wanted = no_grad(|| model.forward(&x))?.to_f64_vec()?;
    assert!(difference(&wanted, &forward(&graph, &x)?) < 1e-5);

    let made = Quantize::new().run(&graph, &[vec![x.clone()]], &device())?;
    let (_, steps) = checked(&made, std::slice::from_ref(&x))?;
    let expected = [
        "QuantizeLinear",
        "QLinearConv",
        "MaxPool",
        "QLinearConv",
        "Reshape",
        "QGemm",
    ];
    assert_eq!(steps, expected);
    // Only biases are rounded that were not in training; a number near the middle between two bytes may round the other
    // way.
    assert!(difference(&wanted, &forward(&made.graph, &x)?) < 0.02);
    // Without data the file is the same.
    let again = Quantize::new().run(&graph, &[], &device())?;
    assert!(again.graph.to_bytes()? == made.graph.to_bytes()? && again.outputs.is_empty());

    // The integers of the second convolution are its weight divided by the learned scales.
    let state = model.state_dict()?;
    let of = |name: &str| state.get(&format!("4.{name}")).unwrap().to_f64_vec();
    let (begun, ranges) = (of("weight_quantizer.scale"), of("weight_quantizer.log_range"));
    let scales: Vec<f64> = begun
        .iter()
        .zip(&ranges)
        .map(|(scale, range)| scale * range.exp())
        .collect();
    assert!(ranges.iter().any(|range| *range != 0.0));
    let body = &made.graph.body;
    let integers = body
        .initializers
        .iter()
        .filter(|each| each.tensor.element() == ElementType::I8);
    let mut integers = integers.filter(|each| each.tensor.host().shape().dims() == [12, 8, 3, 3]);
    let found = integers.next().unwrap().tensor.host().to_f64_vec();
    for (i, (weight, found)) in of("weight").iter().zip(&found).enumerate() {
        let exact = (weight / scales[i / 72]).clamp(-127.0, 127.0);
        assert!((exact - found).abs() < 0.501, "{i}: {exact} {found}");
    }
    Ok(())
}

/// Factors of either sign leave the integers unchanged.
#[test]
fn normalization_is_folded_into_the_scales() -> Result<()> {
    let model = trained()?;
    let state = model.state_dict()?;
    let mut state = state;
    let norm: Vec<f32> = state
        .get("1.weight")
        .unwrap()
        .to_f64_vec()
        .iter()
        .map(|x| *x as f32)
        .collect();
    let turned = norm
        .iter()
        .enumerate()
        .map(|(i, x)| if i % 2 == 0 { -x } else { *x })
        .collect::<Vec<f32>>();
    state.insert("1.weight", polygrad_core::HostTensor::new([8].into(), turned)?);
    model.load_state_dict(&state, true)?;
    let x = images(16)?;
    let wanted = no_grad(|| model.forward(&x))?.to_f64_vec()?;
    let made = Quantize::new().run(&graph(&model)?, &[vec![x.clone()]], &device())?;
    checked(&made, std::slice::from_ref(&x))?;
    assert!(difference(&wanted, &forward(&made.graph, &x)?) < 0.02);
    Ok(())
}

#[derive(Module)]
struct Pair {
    query: Linear,
    key: Linear,
}

/// A linear layer on three axes is a product with a transposed weight; two layers with separate ranges read one value.
#[test]
fn layers_round_one_value_each_in_its_way() -> Result<()> {
    manual_seed(4);
    let device = device();
    let model = Pair {
        query: Linear::new(6, 4, &device)?,
        key: Linear::new(6, 4, &device)?,
    };
    let x = Tensor::randn([3, 5, 6], &device)?;
    for (layer, factor) in [(&model.query, 1.0), (&model.key, 0.5)] {
        qat::attach(layer, &QatConfig::new())?;
        qat::calibrate(layer, || layer.forward(&(&x * factor)?))?;
    }
    let answer = |x: &Tensor| model.query.forward(x)?.mul(&model.key.forward(x)?);
    let export = Export::new([Input::new("x", DType::F32, ("batch", 5, 6))]).outputs(["y"]);
    let graph = model.record_onnx(&export, |x| answer(&x[0]))?;
    let made = Quantize::new().run(&graph, &[vec![x.clone()]], &device)?;
    assert!(made.layers.len() == 2 && made.layers.iter().all(|layer| layer.left_out.is_none()));
    checked(&made, std::slice::from_ref(&x))?;
    let wanted = no_grad(|| answer(&x))?.to_f64_vec()?;
    assert!(difference(&wanted, &forward(&made.graph, &x)?) < 1e-3);
    Ok(())
}

#[test]
fn what_was_not_learned_is_said() -> Result<()> {
    manual_seed(6);
    let device = device();
    let model = Sequential::new()
        .push(Linear::new(6, 8, &device)?)
        .push(ReLU)
        .push(Linear::new(8, 3, &device)?);
    qat::attach(&model, &QatConfig::new().targets(["0"]))?;
    let export = Export::new([Input::new("x", DType::F32, ("batch", 6))]);
    let record = || model.record_onnx(&export, |x| model.forward(&x[0]));
    let x = Tensor::randn([16, 6], &device)?;
    // The ranges are not known yet, so exporting is an error rather than silently wrong.
    let unknown = record().and_then(|graph| Quantize::new().run(&graph, &[], &device));
    let error = unknown.unwrap_err();
    assert!(error.hint().is_some(), "{error}");
    qat::calibrate(&model, || model.forward(&x))?;
    let graph = record()?;
    let made = Quantize::new().run(&graph, &[vec![x.clone()]], &device)?;
    let left: Vec<Option<&str>> = made.layers.iter().map(|layer| layer.left_out.as_deref()).collect();
    assert_eq!(left, [None, Some("want of learned ranges")]);
    for (options, words) in [
        (Quantize::new().int8(Int8::Dynamic), "quantize it statically"),
        (
            Quantize::new().calibration(Calibration::Mse),
            "leave the calibration out",
        ),
        (Quantize::new().skip(["*0*"]), "skip fewer layers"),
    ] {
        let error = options.run(&graph, &[vec![x.clone()]], &device).unwrap_err();
        assert!(error.hint().is_some_and(|hint| hint.contains(words)), "{error}");
    }
    // Its result has no ranges to be learned, and is quantized already.
    let error = Quantize::new().run(&made.graph, &[], &device).unwrap_err();
    assert!(error.to_string().contains("quantized already"), "{error}");
    Ok(())
}
