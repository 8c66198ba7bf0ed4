//! The step by candle's own tensors, autograd and optimizers.

use candle_core::{D, DType, Device, Result, Tensor, Var};
use candle_nn::{AdamW, Linear, Module, Optimizer, ParamsAdamW, SGD, loss, ops};

use polygrad_workloads::Weight;
use polygrad_workloads::data::{INPUT, TARGET, classes, noise};

use crate::{AnyResult, Step};

const WIDTH: usize = 128;
const HEADS: usize = 4;
const CONTEXT: usize = 64;
const VOCABULARY: usize = 1024;

enum Any {
    Sgd(SGD),
    Adam(AdamW),
}

/// A step of a case from given weights, which come in the order of ours.
pub(crate) fn step(case: &str, weights: Vec<Weight>) -> AnyResult<Step> {
    let device = Device::Cpu;
    let mut vars = Vec::new();
    for (_, shape, values) in &weights {
        vars.push(Var::from_slice(values, &shape[..], &device)?);
    }
    let adam = |weight_decay| {
        let params = ParamsAdamW {
            lr: 1e-3,
            weight_decay,
            ..ParamsAdamW::default()
        };
        AdamW::new(vars.clone(), params).map(Any::Adam)
    };
    let workload = case.split(' ').next().unwrap_or_default().to_owned();
    let mut optimizer = match workload.as_str() {
        "gpt" => adam(0.01)?,
        _ if case.ends_with("sgd") => Any::Sgd(SGD::new(vars.clone(), 0.01)?),
        _ => adam(0.0)?,
    };
    let (shape, rows, of): (&[usize], usize, usize) = match workload.as_str() {
        "mlp-rl" => (&[32, 4], 32, 2),
        "mlp-big" => (&[128, 784], 128, 10),
        "cnn" => (&[64, 1, 28, 28], 64, 10),
        _ => (&[16, CONTEXT], 16 * CONTEXT, VOCABULARY),
    };
    let count = shape.iter().product();
    let input = match workload.as_str() {
        "gpt" => Tensor::from_vec(classes(count, VOCABULARY, INPUT), shape, &device)?.to_dtype(DType::U32)?,
        _ => Tensor::from_vec(noise(count, INPUT), shape, &device)?,
    };
    let targets = Tensor::from_vec(classes(rows, of, TARGET), rows, &device)?.to_dtype(DType::U32)?;
    let mask: Vec<u8> = (0..CONTEXT)
        .flat_map(|i| (0..CONTEXT).map(move |j| u8::from(j > i)))
        .collect();
    let mask = Tensor::from_slice(&mask, (CONTEXT, CONTEXT), &device)?;
    Ok(Box::new(move || {
        let p: Vec<Tensor> = vars.iter().map(|var| var.as_tensor().clone()).collect();
        let logits = match workload.as_str() {
            "cnn" => cnn(&input, &p)?,
            "gpt" => gpt(&input, &p, &mask)?,
            _ => mlp(&input, &p)?,
        };
        let loss = loss::cross_entropy(&logits, &targets)?;
        match &mut optimizer {
            Any::Sgd(optimizer) => optimizer.backward_step(&loss)?,
            Any::Adam(optimizer) => optimizer.backward_step(&loss)?,
        }
        Ok(Some(f64::from(loss.to_scalar::<f32>()?)))
    }))
}

fn linear(x: &Tensor, p: &[Tensor]) -> Result<Tensor> {
    Linear::new(p[0].clone(), Some(p[1].clone())).forward(x)
}

fn mlp(x: &Tensor, p: &[Tensor]) -> Result<Tensor> {
    let mut x = x.clone();
    for (i, layer) in p.chunks(2).enumerate() {
        x = if i == 0 { x } else { x.relu()? };
        x = linear(&x, layer)?;
    }
    Ok(x)
}

fn cnn(x: &Tensor, p: &[Tensor]) -> Result<Tensor> {
    let mut x = x.clone();
    for layer in p[..4].chunks(2) {
        let bias = layer[1].reshape((1, (), 1, 1))?;
        x = x.conv2d(&layer[0], 1, 1, 1, 1)?.broadcast_add(&bias)?.relu()?;
        x = x.max_pool2d(2)?;
    }
    mlp(&x.flatten_from(1)?, &p[4..])
}

fn norm(x: &Tensor, p: &[Tensor]) -> Result<Tensor> {
    ops::layer_norm_slow(x, &p[0], &p[1], 1e-5)
}

fn gpt(tokens: &Tensor, p: &[Tensor], mask: &Tensor) -> Result<Tensor> {
    let batch = tokens.dim(0)?;
    let embedded = candle_nn::Embedding::new(p[0].clone(), WIDTH).forward(tokens)?;
    let mut x = embedded.broadcast_add(&p[1])?;
    let (blocks, last) = p[2..].split_at(p.len() - 6);
    let hidden = Tensor::new(f32::NEG_INFINITY, tokens.device())?;
    for p in blocks.chunks(12) {
        let packed = linear(&norm(&x, p)?, &p[2..])?;
        let part = |i: usize| {
            let heads = packed.narrow(D::Minus1, i * WIDTH, WIDTH)?;
            heads
                .reshape((batch, CONTEXT, HEADS, WIDTH / HEADS))?
                .transpose(1, 2)?
                .contiguous()
        };
        let (q, k, v) = (part(0)?, part(1)?, part(2)?);
        let scores = (q.matmul(&k.t()?)? * (1.0 / ((WIDTH / HEADS) as f64).sqrt()))?;
        let shape = scores.shape().clone();
        let scores = mask
            .broadcast_as(&shape)?
            .where_cond(&hidden.broadcast_as(&shape)?, &scores)?;
        let mixed = ops::softmax(&scores, D::Minus1)?.matmul(&v)?;
        let mixed = mixed.transpose(1, 2)?.reshape((batch, CONTEXT, WIDTH))?;
        x = (x + linear(&mixed, &p[4..])?)?;
        let inner = linear(&norm(&x, &p[6..])?, &p[8..])?.gelu_erf()?;
        x = (x + linear(&inner, &p[10..])?)?;
    }
    let x = linear(&norm(&x, last)?, &last[2..])?;
    x.reshape((batch * CONTEXT, VOCABULARY))
}
