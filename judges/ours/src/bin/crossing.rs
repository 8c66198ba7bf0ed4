//! One half of `cargo xtask cross`, which verifies that weights can be exchanged between Polygrad and PyTorch in both
//! directions, only through safetensors. `scripts/cross_pytorch.py` is the other half.
//!
//! `crossing write DIR` creates each model with random weights. It writes `DIR/polygrad/<model>.safetensors`, the state
//! dict, and `<model>.answers.safetensors`: inputs, the output, the weights of the output in a loss, and all gradients.
//! `crossing check DIR` reads PyTorch's files in the same form from `DIR/pytorch`, computes the answers again, and
//! compares: outputs to 1e-5, gradients to 1e-4.

use std::path::Path;
use std::process::ExitCode;

use polygrad_cpu::Cpu;
use polygrad_nn::models::{BertClassifier, BertConfig, BertInput, Gpt2, Gpt2Config, ResNet, ResNetConfig};
use polygrad_nn::{
    GRUConfig, LSTMConfig, Masks, Module, MultiheadAttentionConfig, StateDict, TransformerActivation,
    TransformerLayerConfig,
};
use polygrad_tensor::{Device, Error, Result, Tensor as AnyTensor, manual_seed};

type Tensor = AnyTensor<Cpu>;
type Forward = Box<dyn Fn(&[Tensor]) -> Result<Tensor>>;

/// A model, its inputs, and how it is called.
struct Case {
    name: &'static str,
    model: std::sync::Arc<dyn Module<Cpu>>,
    inputs: Vec<Tensor>,
    forward: Forward,
}

fn case<M: Module<Cpu> + 'static>(
    name: &'static str,
    model: M,
    inputs: Vec<Tensor>,
    forward: impl Fn(&M, &[Tensor]) -> Result<Tensor> + 'static,
) -> Case {
    let model = std::sync::Arc::new(model);
    let shared = std::sync::Arc::clone(&model);
    Case {
        name,
        model,
        inputs,
        forward: Box::new(move |inputs| forward(&shared, inputs)),
    }
}

/// These configs must be the same in the script.
fn cases(device: &Device<Cpu>) -> Result<Vec<Case>> {
    let random = |dims: [usize; 3]| Tensor::randn(dims, device);
    let tokens = |n: usize, length: usize, vocabulary: i64| {
        let ids = (0..n * length)
            .map(|i| (i as i64 * 31 + 7) % vocabulary)
            .collect::<Vec<_>>();
        Tensor::from_vec(ids, [n, length], device)
    };
    let recurrent = LSTMConfig::new(24, 32)
        .num_layers(2)
        .bidirectional(true)
        .batch_first(true)
        .build(device)?;
    let gated = GRUConfig::new(24, 32)
        .num_layers(2)
        .bidirectional(true)
        .batch_first(true)
        .build(device)?;
    let layer = TransformerLayerConfig::new(32, 4)
        .dim_feedforward(64)
        .dropout(0.0)
        .activation(TransformerActivation::Gelu)
        .batch_first(true);
    let gpt = Gpt2Config {
        vocab_size: 101,
        n_positions: 32,
        n_embd: 48,
        n_layer: 4,
        n_head: 4,
        resid_pdrop: 0.0,
        embd_pdrop: 0.0,
        attn_pdrop: 0.0,
        ..Gpt2Config::default()
    };
    let bert = BertConfig {
        vocab_size: 101,
        hidden_size: 48,
        num_hidden_layers: 4,
        num_attention_heads: 4,
        intermediate_size: 96,
        hidden_dropout_prob: 0.0,
        attention_probs_dropout_prob: 0.0,
        max_position_embeddings: 32,
        num_labels: Some(5),
        ..BertConfig::default()
    };
    let resnet = ResNet::new(&ResNetConfig::resnet18(10), device)?;
    resnet.eval();
    Ok(vec![
        case("LSTM", recurrent, vec![random([3, 9, 24])?], |m, x| {
            Ok(m.forward(&x[0], None)?.0)
        }),
        case("GRU", gated, vec![random([3, 9, 24])?], |m, x| {
            Ok(m.forward(&x[0], None)?.0)
        }),
        case(
            "MultiheadAttention",
            MultiheadAttentionConfig::new(32, 4).batch_first(true).build(device)?,
            vec![random([2, 7, 32])?, random([2, 5, 32])?, random([2, 5, 32])?],
            |m, x| m.forward(&x[0], &x[1], &x[2], Masks::default()),
        ),
        case(
            "TransformerEncoderLayer",
            layer.encoder_layer(device)?,
            vec![random([2, 7, 32])?],
            |m, x| m.forward(&x[0], Masks::default()),
        ),
        case(
            "TransformerDecoderLayer",
            layer.norm_first(true).decoder_layer(device)?,
            vec![random([2, 7, 32])?, random([2, 5, 32])?],
            |m, x| m.forward(&x[0], &x[1], Masks::default(), Masks::default()),
        ),
        case(
            "ResNet18",
            resnet,
            vec![Tensor::randn([2, 3, 64, 64], device)?],
            |m, x| m.forward(&x[0]),
        ),
        case("GPT2", Gpt2::new(&gpt, device)?, vec![tokens(2, 17, 101)?], |m, x| {
            m.forward(&x[0])
        }),
        case(
            "BERT",
            BertClassifier::new(&bert, device)?,
            vec![tokens(3, 19, 101)?],
            |m, x| m.forward(BertInput::new(&x[0])),
        ),
    ])
}

/// The output and all gradients of `sum(output · weights)`, by name.
fn answers(case: &Case, inputs: &[Tensor], weights: Option<&Tensor>) -> Result<StateDict> {
    let tracked = |x: &Tensor| {
        if x.dtype().is_float() {
            x.clone().requires_grad()
        } else {
            Ok(x.clone())
        }
    };
    let inputs: Vec<Tensor> = inputs.iter().map(tracked).collect::<Result<_>>()?;
    let output = (case.forward)(&inputs)?;
    let weights = match weights {
        Some(weights) => weights.clone(),
        None => Tensor::randn(output.shape(), &output.device())?,
    };
    let gradients = output.mul(&weights)?.sum_all()?.backward()?;
    let mut out = StateDict::new();
    out.insert("output", output.to_host()?);
    out.insert("weights", weights.to_host()?);
    for (i, x) in inputs.iter().enumerate() {
        out.insert(format!("input.{i}"), x.to_host()?);
        if x.is_leaf() {
            out.insert(format!("gradient.input.{i}"), gradients.require(x)?.to_host()?);
        }
    }
    for (name, param) in case.model.named_parameters() {
        out.insert(format!("gradient.{name}"), gradients.require(&param)?.to_host()?);
    }
    Ok(out)
}

fn write(case: &Case, folder: &Path) -> Result<()> {
    case.model
        .state_dict()?
        .save(folder.join(format!("{}.safetensors", case.name)))?;
    answers(case, &case.inputs, None)?.save(folder.join(format!("{}.answers.safetensors", case.name)))
}

/// The largest differences of output and gradients, as shares of each tensor's largest value.
fn check(case: &Case, folder: &Path, device: &Device<Cpu>) -> Result<(f64, f64)> {
    let state = StateDict::load(folder.join(format!("{}.safetensors", case.name)))?;
    case.model.load_state_dict(&state, true)?;
    let wanted = StateDict::load(folder.join(format!("{}.answers.safetensors", case.name)))?;
    let tensor = |name: &str| match wanted.get(name) {
        Some(host) => Tensor::from_host(host.clone(), device),
        None => Err(Error::invalid(format!("the answers of {} lack {name}", case.name))),
    };
    let inputs: Vec<Tensor> = (0..case.inputs.len())
        .map(|i| tensor(&format!("input.{i}")))
        .collect::<Result<_>>()?;
    let given = answers(case, &inputs, Some(&tensor("weights")?))?;
    let (mut output, mut gradient) = (0.0f64, 0.0f64);
    for (name, value) in given.iter() {
        let truth = tensor(name)?.to_f64_vec()?;
        let largest = truth.iter().fold(1e-3f64, |largest, x| largest.max(x.abs()));
        let pairs = value.to_f64_vec().into_iter().zip(truth);
        let off = pairs.fold(0.0f64, |off, (a, b)| {
            if (a - b).is_nan() {
                f64::INFINITY
            } else {
                off.max((a - b).abs())
            }
        });
        match name {
            "output" => output = output.max(off / largest),
            _ if name.starts_with("gradient.") => gradient = gradient.max(off / largest),
            _ => {}
        }
    }
    if given.len() != wanted.len() {
        return Err(Error::invalid(format!(
            "{} answers here, {} from PyTorch",
            given.len(),
            wanted.len()
        )));
    }
    Ok((output, gradient))
}

fn run(task: &str, folder: &Path) -> Result<bool> {
    let device = Device::default();
    manual_seed(1);
    let mut fine = true;
    for case in cases(&device)? {
        if task == "write" {
            write(&case, &folder.join("polygrad"))?;
            continue;
        }
        let (output, gradient) = check(&case, &folder.join("pytorch"), &device)?;
        let holds = output <= 1e-5 && gradient <= 1e-4;
        let verdict = if holds { "ok" } else { "FAIL" };
        println!(
            "PyTorch -> Polygrad  {:<24} output {output:.1e}, gradients {gradient:.1e}  {verdict}",
            case.name
        );
        fine &= holds;
    }
    Ok(fine)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match &arguments[..] {
        [task, folder] if task == "write" || task == "check" => run(task, Path::new(folder)),
        _ => {
            eprintln!("usage: crossing write|check DIR");
            return ExitCode::FAILURE;
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
