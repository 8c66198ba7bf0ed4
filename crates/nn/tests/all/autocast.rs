//! Mixed precision compared with PyTorch's: scripts/make_autocast_table.py recorded the dtypes that its ops return, and
//! the results of small models.

use polygrad_core::ConvParams;
use polygrad_nn::loss::*;
use polygrad_nn::optim::{Adam, Optimizer, SGD};
use polygrad_nn::*;
use polygrad_tensor::{
    Attention, Backend, DType, Device, InterpolateMode, PadMode, PoolParams, Resize, Result, Tensor, autocast,
    autocast_dtype, checkpoint, manual_seed,
};
use serde_json::Value;

use crate::common::{data, json};

on_backends!(
    each_op_gives_the_dtype_of_pytorchs,
    models_compute_what_pytorchs_do,
    gradients_and_optimizer_stay_f32,
    the_backward_pass_is_the_same_inside_and_outside,
    checkpoints_compute_again_in_the_mode_of_the_first_time,
    a_parameter_of_two_products_adds_up_in_f32,
    what_pytorch_refuses_is_computed_as_outside,
    modes_nest_and_end,
    other_dtypes_stay_as_they_are,
    a_captured_step_equals_the_written_one,
    a_captured_step_knows_its_mode,
    recurrent_layers_go_on_with_their_own_states,
);

fn dtype_of(name: &str) -> DType {
    match name {
        "f32" => DType::F32,
        "bf16" => DType::BF16,
        "f16" => DType::F16,
        _ => panic!("{name}"),
    }
}

/// Numbers between 0.1 and 0.9.
fn operand<B: Backend>(shape: &[usize], salt: usize, dtype: DType, device: &Device<B>) -> Tensor<B> {
    let values = (0..shape.iter().product()).map(|i| 0.5 + 0.4 * ((i * 7 + salt * 13) as f32 * 0.731).sin());
    let x = Tensor::from_vec(values.collect::<Vec<f32>>(), shape, device).unwrap();
    x.to_dtype(dtype).unwrap()
}

/// The results of an op of the table.
fn run<B: Backend>(name: &str, x: &[Tensor<B>]) -> Result<Vec<Tensor<B>>> {
    let device = x[0].device();
    let classes = || Tensor::new([0i64, 2], &device);
    let pool = |kernel: usize| PoolParams::new([kernel; 3]);
    let conv = ConvParams::default();
    // Pads all axes except batch and channels.
    let border = |axes: usize| [vec![(0, 0); 2], vec![(1, 1); axes]].concat();
    let at = |i: usize| &x[i];
    let y = match name {
        "matmul" => at(0).matmul(at(1)),
        "mm" => at(0).mm(at(1)),
        "bmm" => at(0).bmm(at(1)),
        "addmm" => at(0).addmm(at(1), at(2), 1.0, 0.5),
        "einsum" => Tensor::einsum("ij,jk->ik", x),
        "linear" => at(0).linear(at(1), Some(at(2))),
        "conv1d" | "conv2d" | "conv3d" => at(0).conv(at(1), Some(at(2)), &conv),
        "conv_transpose1d" | "conv_transpose2d" | "conv_transpose3d" => at(0).conv_transpose(at(1), &conv, [0; 3]),
        "scaled_dot_product_attention" => at(0).scaled_dot_product_attention(at(1), at(2), Attention::new()),
        "add" => at(0).add(at(1)),
        "mul" => at(0).mul(at(1)),
        "relu" => at(0).relu(),
        "gelu" => at(0).gelu(),
        "exp" => at(0).exp(),
        "log" => at(0).log(),
        "softplus" => at(0).softplus(1.0, 20.0),
        "softmax" => at(0).softmax(-1),
        "log_softmax" => at(0).log_softmax(-1),
        "sum" => at(0).sum(-1),
        "mean" => at(0).mean(-1),
        "prod" => at(0).prod(-1),
        "prod_all" => at(0).prod(()),
        "cumsum" => at(0).cumsum(-1),
        "vector_norm" => at(0).norm(2.0, -1),
        "nuclear_norm" => at(0).nuclear_norm([0, 1]),
        "cosine_similarity" => at(0).cosine_similarity(at(1), -1, 1e-8),
        "cat" => Tensor::cat(x, 0),
        "stack" => Tensor::stack(x, 0),
        "where" => Tensor::where_(&at(0).gt(0.0)?, at(0), at(1)),
        "index_put" => at(0).index_put(&Tensor::new([1i64], &device)?, at(1)),
        "layer_norm" => at(0).layer_norm(Some(at(1)), Some(at(2)), 1, 1e-5),
        "rms_norm" => at(0).rms_norm(Some(at(1)), 1, 1e-6),
        "group_norm" => at(0).group_norm(2, Some(at(1)), Some(at(2)), 1e-5),
        "batch_norm" => Ok(at(0).batch_norm(Some(at(1)), Some(at(2)), 1e-5)?.0),
        "instance_norm" => at(0).instance_norm(Some(at(1)), Some(at(2)), 1e-5),
        "prelu" => at(0).prelu(at(1)),
        "dropout" => at(0).dropout(0.5),
        "max_pool1d" | "max_pool2d" | "max_pool3d" => Ok(at(0).max_pool(&pool(2))?.0),
        "avg_pool1d" | "avg_pool2d" | "avg_pool3d" => at(0).avg_pool(&pool(2)),
        "adaptive_avg_pool1d" => at(0).adaptive_avg_pool(&[2]),
        "adaptive_avg_pool2d" => at(0).adaptive_avg_pool(&[2; 2]),
        "adaptive_avg_pool3d" => at(0).adaptive_avg_pool(&[2; 3]),
        "adaptive_max_pool1d" => Ok(at(0).adaptive_max_pool(&[2])?.0),
        "adaptive_max_pool2d" => Ok(at(0).adaptive_max_pool(&[2; 2])?.0),
        "adaptive_max_pool3d" => Ok(at(0).adaptive_max_pool(&[2; 3])?.0),
        "pad_constant" => at(0).pad_with(&border(1), PadMode::Constant(0.0.into())),
        "pad_reflect1d" => at(0).pad_with(&border(1), PadMode::Reflect),
        "pad_reflect2d" => at(0).pad_with(&border(2), PadMode::Reflect),
        "pad_reflect3d" => at(0).pad_with(&border(3), PadMode::Reflect),
        "pad_replicate1d" => at(0).pad_with(&border(1), PadMode::Replicate),
        "pad_replicate2d" => at(0).pad_with(&border(2), PadMode::Replicate),
        "pad_replicate3d" => at(0).pad_with(&border(3), PadMode::Replicate),
        "pad_circular" => at(0).pad_with(&border(1), PadMode::Circular),
        "interpolate_nearest" => at(0).interpolate(Resize::Scale(&[2.0; 2]), InterpolateMode::Nearest, false),
        "interpolate_bilinear" => at(0).interpolate(Resize::Scale(&[2.0; 2]), InterpolateMode::Linear, false),
        "mse_loss" => mse_loss(at(0), at(1)),
        "l1_loss" => l1_loss(at(0), at(1)),
        "smooth_l1_loss" => smooth_l1_loss(at(0), at(1)),
        "huber_loss" => huber_loss(at(0), at(1)),
        "nll_loss" => nll_loss(at(0), &classes()?),
        "nll_loss_weighted" => NLLLoss::new().weight(at(1).clone()).forward(at(0), &classes()?),
        "cross_entropy" => cross_entropy(at(0), &classes()?),
        "cross_entropy_of_all" => {
            let loss = CrossEntropyLoss::new().reduction(Reduction::None);
            loss.forward(at(0), &classes()?)
        }
        "cross_entropy_summed" => {
            let loss = CrossEntropyLoss::new().reduction(Reduction::Sum);
            loss.forward(at(0), &classes()?)
        }
        "cross_entropy_weighted" => CrossEntropyLoss::new()
            .weight(at(1).clone())
            .forward(at(0), &classes()?),
        "cross_entropy_of_probabilities" => cross_entropy(at(0), at(1)),
        "binary_cross_entropy" => binary_cross_entropy(at(0), at(1)),
        "bce_with_logits" => bce_with_logits(at(0), at(1)),
        "kl_div" => KLDivLoss::new().batch_mean(true).forward(at(0), at(1)),
        "poisson_nll_loss" => poisson_nll_loss(at(0), at(1)),
        "gaussian_nll_loss" => gaussian_nll_loss(at(0), at(1), at(2)),
        "cosine_embedding_loss" => cosine_embedding_loss(at(0), at(1), at(2)),
        "hinge_embedding_loss" => hinge_embedding_loss(at(0), at(1)),
        "margin_ranking_loss" => margin_ranking_loss(at(0), at(1), at(2)),
        "soft_margin_loss" => soft_margin_loss(at(0), at(1)),
        "triplet_margin_loss" => triplet_margin_loss(at(0), at(1), at(2)),
        "multi_margin_loss" => multi_margin_loss(at(0), &classes()?),
        "multilabel_margin_loss" => multilabel_margin_loss(at(0), &Tensor::new([[0i64, -1, 1], [2, 1, -1]], &device)?),
        "multilabel_soft_margin_loss" => multilabel_soft_margin_loss(at(0), at(1)),
        "ctc_loss" => ctc_loss(at(0), &Tensor::new([[1i64, 2]], &device)?, &[4], &[2]),
        "embedding" => classes()?.embedding(at(0), None),
        "RNN" => return RNN::new(3, 4, &device)?.forward(at(0), None).map(|(y, h)| vec![y, h]),
        "LSTM" => {
            return LSTM::new(3, 4, &device)?
                .forward(at(0), None)
                .map(|(y, (h, c))| vec![y, h, c]);
        }
        "GRU" => return GRU::new(3, 4, &device)?.forward(at(0), None).map(|(y, h)| vec![y, h]),
        "RNNCell" => RNNCell::new(3, 4, &device)?.forward(at(0), None),
        "LSTMCell" => {
            return LSTMCell::new(3, 4, &device)?
                .forward(at(0), None)
                .map(|(h, c)| vec![h, c]);
        }
        "GRUCell" => GRUCell::new(3, 4, &device)?.forward(at(0), None),
        "MultiheadAttention" => MultiheadAttentionConfig::new(4, 2)
            .batch_first(true)
            .build(&device)?
            .forward_self(at(0), Masks::default()),
        "TransformerEncoderLayer" => TransformerLayerConfig::new(4, 2)
            .dim_feedforward(8)
            .batch_first(true)
            .encoder_layer(&device)?
            .forward(at(0), Masks::default()),
        _ => panic!("the table has an op that this test has not: {name}"),
    };
    Ok(vec![y?])
}

fn each_op_gives_the_dtype_of_pytorchs<B: Backend>(device: &Device<B>) {
    let table = json(&data("autocast").join("table.json"));
    let mut wrong = Vec::new();
    for (name, entry) in table.as_object().unwrap() {
        let shapes: Vec<Vec<usize>> = serde_json::from_value(entry["shapes"].clone()).unwrap();
        for mode in ["bf16", "f16"] {
            for (kind, expected) in entry[mode].as_object().unwrap() {
                // Ops that PyTorch rejects may work here.
                let Value::Array(expected) = expected else { continue };
                let narrow = ["low", "mixed"].contains(&kind.as_str());
                let operands = shapes.iter().enumerate().map(|(i, shape)| {
                    let wide = kind == "wide" || kind == "mixed" && i > 0;
                    let dtype = if wide { DType::F32 } else { dtype_of(mode) };
                    operand(shape, i, dtype, device)
                });
                let operands: Vec<_> = operands.collect();
                assert_eq!(operands[0].dtype() == dtype_of(mode), narrow);
                let expected: Vec<DType> = expected.iter().map(|name| dtype_of(name.as_str().unwrap())).collect();
                match autocast(dtype_of(mode), || run(name, &operands)) {
                    Err(error) => wrong.push(format!("{name} of {kind} operands in {mode}: {error}")),
                    Ok(outputs) => {
                        let found: Vec<DType> = outputs.iter().map(Tensor::dtype).collect();
                        let finite = outputs
                            .iter()
                            .all(|y| y.to_f64_vec().unwrap().iter().all(|y| y.is_finite()));
                        if found != expected || !finite {
                            wrong.push(format!(
                                "{name} of {kind} operands in {mode}: {found:?}, not {expected:?}"
                            ));
                        }
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The attention block of the script.
#[derive(Module)]
struct Block<B: Backend> {
    norm1: LayerNorm<B>,
    attn: MultiheadAttention<B>,
    norm2: LayerNorm<B>,
    fc1: Linear<B>,
    fc2: Linear<B>,
}

impl<B: Backend> Block<B> {
    fn new(device: &Device<B>) -> Result<Self> {
        Ok(Self {
            norm1: LayerNorm::new(16, device)?,
            attn: MultiheadAttentionConfig::new(16, 4).batch_first(true).build(device)?,
            norm2: LayerNorm::new(16, device)?,
            fc1: Linear::new(16, 32, device)?,
            fc2: Linear::new(32, 16, device)?,
        })
    }

    fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let x = x.add(&self.attn.forward_self(&self.norm1.forward(x)?, Masks::default())?)?;
        let y = self.fc1.forward(&self.norm2.forward(&x)?)?.gelu()?;
        x.add(&self.fc2.forward(&y)?)
    }
}

/// The root mean square of a difference, relative to that of the truth.
fn distance(found: &[f64], truth: &[f64]) -> f64 {
    assert_eq!(found.len(), truth.len());
    let square = |x: f64| x * x;
    let apart: f64 = found.iter().zip(truth).map(|(a, b)| square(a - b)).sum();
    (apart / truth.iter().copied().map(square).sum::<f64>().max(1e-30)).sqrt()
}

/// Compares a model with the script's record of this name.
fn agrees<B: Backend>(
    name: &str,
    recorded: &StateDict,
    model: &impl Module<B>,
    run: impl Fn(&Tensor<B>) -> Result<(Tensor<B>, Tensor<B>)>,
    device: &Device<B>,
) {
    let value = |key: &str| {
        recorded
            .get(&format!("{name}/{key}"))
            .unwrap_or_else(|| panic!("{name}/{key}"))
    };
    let mut state = model.state_dict().unwrap();
    for (param, _) in model.named_parameters() {
        state.insert(param.clone(), value(&format!("param/{param}")).clone());
    }
    model.load_state_dict(&state, true).unwrap();
    let x = Tensor::from_host(value("x").clone(), device).unwrap();
    let (y, loss) = autocast(DType::BF16, || run(&x)).unwrap();
    assert_eq!(y.dtype(), value("bf16/y").dtype(), "{name}");
    assert_eq!(loss.dtype(), DType::F32, "{name}");
    let gradients = loss.backward().unwrap();
    let mut found = vec![("y".to_owned(), y), ("loss".to_owned(), loss)];
    for (param, _) in model.named_parameters() {
        let gradient = gradients.by_name(&param).unwrap_or_else(|| panic!("{param}")).clone();
        assert_eq!(gradient.dtype(), DType::F32, "{param}");
        found.push((format!("grad/{param}"), gradient));
    }
    for (key, found) in found {
        let found = found.to_f64_vec().unwrap();
        let (theirs, truth) = (
            value(&format!("bf16/{key}")).to_f64_vec(),
            value(&format!("f64/{key}")).to_f64_vec(),
        );
        // The gradients of a bias before batch normalisation and of keys' biases are 0 except for rounding errors.
        if truth.iter().all(|x| x.abs() < 1e-9) {
            assert!(found.iter().all(|x| x.abs() < 2e-3), "{name}: {key}");
            continue;
        }
        let (apart, ours, others) = (
            distance(&found, &theirs),
            distance(&found, &truth),
            distance(&theirs, &truth),
        );
        assert!(apart < 0.02, "{name}: {key} is {apart} away from PyTorch's");
        assert!(
            ours < 1.5 * others + 2e-3,
            "{name}: {key} is {ours} away from the truth, PyTorch's {others}"
        );
        // Proves that it was not computed in f32.
        assert!(
            key == "loss" || ours > 1e-5,
            "{name}: {key} is {ours} away from the truth"
        );
    }
}

fn models_compute_what_pytorchs_do<B: Backend>(device: &Device<B>) {
    let recorded = StateDict::load(data("autocast").join("models.safetensors")).unwrap();
    let classes = Tensor::from_host(recorded.get("classes").unwrap().clone(), device).unwrap();
    let with_classes = |y: Tensor<B>| {
        let loss = cross_entropy(&y, &classes)?;
        Ok((y, loss))
    };
    let mlp = Sequential::new()
        .push(Linear::new(12, 24, device).unwrap())
        .push(Tanh)
        .push(Linear::new(24, 5, device).unwrap());
    agrees("mlp", &recorded, &mlp, |x| with_classes(mlp.forward(x)?), device);
    let cnn = Sequential::new()
        .push(Conv2dConfig::new(2, 6, 3).padding(1).build(device).unwrap())
        .push(BatchNorm2d::new(6, device).unwrap())
        .push(Tanh)
        .push(AvgPool2d::new(2))
        .push(Flatten::new())
        .push(Linear::new(54, 5, device).unwrap());
    agrees("cnn", &recorded, &cnn, |x| with_classes(cnn.forward(x)?), device);
    let block = Block::new(device).unwrap();
    let squared = |x: &Tensor<B>| {
        let y = block.forward(x)?;
        let loss = y.square()?.mean_all()?;
        Ok((y, loss))
    };
    agrees("attention", &recorded, &block, squared, device);
}

fn small<B: Backend>(device: &Device<B>) -> Sequential<B> {
    manual_seed(3);
    Sequential::new()
        .push(Linear::new(5, 16, device).unwrap())
        .push(LayerNorm::new(16, device).unwrap())
        .push(ReLU)
        .push(Dropout::new(0.25).unwrap())
        .push(Linear::new(16, 16, device).unwrap())
        .push(GELU::default())
        .push(Linear::new(16, 3, device).unwrap())
}

fn batch<B: Backend>(number: usize, device: &Device<B>) -> [Tensor<B>; 2] {
    let classes = (0..8).map(|i| ((i * 5 + number) % 3) as i64).collect();
    let y = Tensor::from_vec::<i64>(classes, [8], device).unwrap();
    [operand(&[8, 5], number, DType::F32, device), y]
}

fn loss<B: Backend>(model: &Sequential<B>, batch: &[Tensor<B>]) -> Result<Tensor<B>> {
    autocast(DType::BF16, || cross_entropy(&model.forward(&batch[0])?, &batch[1]))
}

fn bytes<B: Backend>(model: &impl Module<B>) -> Vec<u8> {
    let state = model.state_dict().unwrap();
    state.iter().flat_map(|(_, value)| value.bytes().to_vec()).collect()
}

fn gradients_and_optimizer_stay_f32<B: Backend>(device: &Device<B>) {
    let model = small(device);
    model.eval();
    let mut optimizer = Adam::new(model.parameters(), 1e-2).unwrap();
    let (mut first, mut last) = (f64::NAN, f64::NAN);
    for step in 0..150 {
        let loss = loss(&model, &batch(0, device)).unwrap();
        let gradients = loss.backward().unwrap();
        assert!(gradients.iter().all(|(_, gradient)| gradient.dtype() == DType::F32));
        last = loss.item().unwrap();
        if step == 0 {
            first = last;
        }
        optimizer.step(&gradients).unwrap();
    }
    assert!(last < 0.5 * first, "{first} to {last}");
    assert!(model.parameters().iter().all(|param| param.dtype() == DType::F32));
    let state = optimizer.state_dict().unwrap();
    let moments: Vec<_> = state.iter().filter(|(name, _)| name.contains("exp_avg")).collect();
    assert!(!moments.is_empty() && moments.iter().all(|(_, value)| value.dtype() == DType::F32));
}

fn the_backward_pass_is_the_same_inside_and_outside<B: Backend>(device: &Device<B>) {
    let model = small(device);
    model.eval();
    let batch = batch(0, device);
    let values = |gradients: polygrad_tensor::Gradients<B>| -> Vec<f64> {
        let all = gradients.iter().map(|(_, gradient)| gradient.to_f64_vec().unwrap());
        all.flatten().collect()
    };
    let outside = values(loss(&model, &batch).unwrap().backward().unwrap());
    let inside = autocast(DType::BF16, || loss(&model, &batch)?.backward()).unwrap();
    let in_f16 = autocast(DType::F16, || loss(&model, &batch)?.backward()).unwrap();
    assert_eq!(values(inside), outside);
    assert_eq!(values(in_f16), outside);
    let full = cross_entropy(&model.forward(&batch[0]).unwrap(), &batch[1]).unwrap();
    assert_ne!(values(full.backward().unwrap()), outside);
}

fn checkpoints_compute_again_in_the_mode_of_the_first_time<B: Backend>(device: &Device<B>) {
    let weight = operand(&[6, 6], 1, DType::F32, device).requires_grad().unwrap();
    let x = operand(&[4, 6], 2, DType::F32, device);
    let f = {
        let weight = weight.clone();
        move |inputs: &[Tensor<B>]| inputs[0].matmul(&weight)?.tanh()?.matmul(&weight)
    };
    let plain = autocast(DType::BF16, || f(std::slice::from_ref(&x))).unwrap();
    let kept = autocast(DType::BF16, || checkpoint(f, &[&x])).unwrap();
    assert_eq!((plain.dtype(), kept.dtype()), (DType::BF16, DType::BF16));
    let gradient = |y: Tensor<B>| {
        let gradients = y.sum_all().unwrap().backward().unwrap();
        gradients.require(&weight).unwrap().to_vec::<f32>().unwrap()
    };
    assert_eq!(gradient(kept), gradient(plain));
}

fn a_parameter_of_two_products_adds_up_in_f32<B: Backend>(device: &Device<B>) {
    let weight = operand(&[6, 6], 1, DType::F32, device).requires_grad().unwrap();
    let inputs = [2, 9].map(|salt| operand(&[4, 6], salt, DType::F32, device));
    let gradient = |uses: &[Tensor<B>]| {
        let products = uses
            .iter()
            .map(|x| autocast(DType::BF16, || x.matmul(&weight)?.tanh()).unwrap());
        let sum = products.reduce(|a, b| a.add(&b).unwrap()).unwrap().sum_all().unwrap();
        let gradients = sum.backward().unwrap();
        gradients.require(&weight).unwrap().to_vec::<f32>().unwrap()
    };
    let [first, second] = inputs.each_ref().map(|x| gradient(std::slice::from_ref(x)));
    let expected: Vec<f32> = first.iter().zip(&second).map(|(a, b)| a + b).collect();
    assert_eq!(gradient(&inputs), expected);
    assert!(expected.iter().any(|x| x.to_bits() & 0xffff != 0), "{expected:?}");
}

fn what_pytorch_refuses_is_computed_as_outside<B: Backend>(device: &Device<B>) {
    let x = operand(&[3, 3], 0, DType::BF16, device);
    let outside = x.nuclear_norm([0, 1]).unwrap();
    let inside = autocast(DType::BF16, || x.nuclear_norm([0, 1])).unwrap();
    assert_eq!(inside.dtype(), DType::BF16);
    assert_eq!(inside.item().unwrap(), outside.item().unwrap());
    let full = autocast(DType::BF16, || x.to_dtype(DType::F32)?.nuclear_norm([0, 1])).unwrap();
    let truth = x
        .to_dtype(DType::F64)
        .unwrap()
        .nuclear_norm([0, 1])
        .unwrap()
        .item()
        .unwrap();
    assert!((full.item().unwrap() - truth).abs() < 1e-5 * truth);
}

fn modes_nest_and_end<B: Backend>(device: &Device<B>) {
    let x = operand(&[2, 2], 0, DType::F32, device);
    let product = || Ok::<_, polygrad_tensor::Error>(x.matmul(&x)?.dtype());
    assert_eq!(autocast_dtype(), None);
    let found = autocast(DType::BF16, || {
        let inner = autocast(DType::F16, product)?;
        let off = autocast(DType::F32, product)?;
        let there = std::thread::scope(|scope| scope.spawn(autocast_dtype).join().unwrap());
        Ok((inner, off, product()?, there))
    });
    assert_eq!(found.unwrap(), (DType::F16, DType::F32, DType::BF16, None));
    let panicked = std::panic::catch_unwind(|| autocast::<()>(DType::BF16, || panic!("on purpose")));
    assert!(panicked.is_err());
    assert_eq!((autocast_dtype(), product().unwrap()), (None, DType::F32));
    for dtype in [DType::F64, DType::I64, DType::Bool] {
        let error = autocast(dtype, product).unwrap_err().to_string();
        assert!(
            error.contains("autocast") && error.contains("bf16, f16, or f32"),
            "{error}"
        );
    }
}

fn other_dtypes_stay_as_they_are<B: Backend>(device: &Device<B>) {
    for dtype in [DType::F64, DType::I64] {
        let x = (operand(&[2, 2], 0, DType::F32, device) * 10.0)
            .unwrap()
            .to_dtype(dtype)
            .unwrap();
        let y = autocast(DType::BF16, || x.matmul(&x)).unwrap();
        assert_eq!(y.dtype(), dtype);
        assert_eq!(y.to_f64_vec().unwrap(), x.matmul(&x).unwrap().to_f64_vec().unwrap());
    }
    let x = operand(&[3, 5], 0, DType::F64, device);
    let model = small(device);
    model.to_dtype(DType::F64).unwrap();
    model.eval();
    let y = autocast(DType::BF16, || model.forward(&x)).unwrap();
    assert_eq!(
        y.to_vec::<f64>().unwrap(),
        model.forward(&x).unwrap().to_vec::<f64>().unwrap()
    );
}

fn a_captured_step_equals_the_written_one(device: &Device) {
    let step = || {
        let model = small(device);
        let optimizer = Adam::new(model.parameters(), 1e-2).unwrap();
        TrainStep::new(model, optimizer, loss)
    };
    let (mut plain, mut captured) = (step(), step().captured());
    manual_seed(5);
    let expected: Vec<f64> = (0..6)
        .map(|i| plain.step(&batch(i, device)).unwrap().item().unwrap())
        .collect();
    manual_seed(5);
    let found: Vec<f64> = (0..6)
        .map(|i| captured.step(&batch(i, device)).unwrap().item().unwrap())
        .collect();
    assert!(captured.is_ready(), "{:?}", captured.refusal());
    assert_eq!(found, expected);
    assert_eq!(bytes(captured.model()), bytes(plain.model()));
}

/// The mode around a step matters as much as one within the loss.
fn a_captured_step_knows_its_mode(device: &Device) {
    let step = || {
        let model = small(device);
        model.eval();
        let optimizer = SGD::new(model.parameters(), 0.1).unwrap();
        TrainStep::new(model, optimizer, |model: &Sequential, batch: &[Tensor]| {
            cross_entropy(&model.forward(&batch[0])?, &batch[1])
        })
    };
    let (mut plain, mut captured) = (step(), step().captured());
    for i in 0..10 {
        let mode = if i % 2 == 0 { DType::BF16 } else { DType::F32 };
        let batch = batch(i, device);
        let expected = autocast(mode, || plain.step(&batch)).unwrap().item().unwrap();
        let found = autocast(mode, || captured.step(&batch)).unwrap().item().unwrap();
        assert_eq!(found, expected, "step {i}");
    }
    assert!(captured.is_ready(), "{:?}", captured.refusal());
    assert_eq!(bytes(captured.model()), bytes(plain.model()));
}

fn recurrent_layers_go_on_with_their_own_states<B: Backend>(device: &Device<B>) {
    let x = operand(&[6, 2, 3], 0, DType::F32, device);
    let parts = [x.narrow(0, 0, 3).unwrap(), x.narrow(0, 3, 3).unwrap()];
    let near = |a: &Tensor<B>, b: &Tensor<B>, what: &str| {
        let apart = distance(&a.to_f64_vec().unwrap(), &b.to_f64_vec().unwrap());
        assert!(apart < 0.02, "{what}: {apart}");
    };
    macro_rules! layer {
        ($config:ident) => {{
            let what = stringify!($config);
            let layer = $config::new(3, 4)
                .num_layers(2)
                .bidirectional(false)
                .build(device)
                .unwrap();
            let (full, _) = layer.forward(&x, None).unwrap();
            autocast(DType::BF16, || {
                let (whole, _) = layer.forward(&x, None)?;
                let (_, state) = layer.forward(&parts[0], None)?;
                let (rest, _) = layer.forward(&parts[1], Some(state))?;
                near(&whole, &full, what);
                near(&rest, &full.narrow(0, 3, 3)?, what);
                let (packed, _) = layer.forward_packed(&x, &[6, 4], None)?;
                near(&packed.narrow(0, 0, 4)?, &full.narrow(0, 0, 4)?, what);
                let gradients = whole.sum_all()?.backward()?;
                assert!(gradients.iter().all(|(_, gradient)| gradient.dtype() == DType::F32));
                assert_eq!(gradients.len(), layer.parameters().len());
                // Without a gradient it may be a single op.
                near(&polygrad_tensor::no_grad(|| layer.forward(&x, None))?.0, &full, what);
                Ok(())
            })
            .unwrap();
        }};
    }
    layer!(RNNConfig);
    layer!(LSTMConfig);
    layer!(GRUConfig);
    let min = MinGRU::new(3, 4, device).unwrap();
    let x = x.transpose(0, 1).unwrap();
    let (full, _) = min.forward(&x, None).unwrap();
    autocast(DType::BF16, || {
        let (whole, last) = min.forward(&x, None)?;
        near(&whole, &full, "MinGRU");
        min.step(&x.select(1, 0)?, &last)
    })
    .unwrap();
}
