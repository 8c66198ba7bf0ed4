//! The step on Polygrad's candle backend.

use polygrad_candle::Candle;
use polygrad_core::{ConvParams, PoolParams};
use polygrad_nn::loss::cross_entropy;
use polygrad_nn::{Adam, AdamConfig, Optimizer, Param, SGD};
use polygrad_tensor::{Device, Result, Tensor};

use crate::work::{CONTEXT, HEADS, Kind, LR, Optim, VOCABULARY, WIDTH, Work};
use crate::{AnyResult, Step};

type T = Tensor<Candle>;

pub(crate) fn step(work: &Work, optim: Optim) -> AnyResult<Step> {
    let device = Device::<Candle>::default();
    let mut params = Vec::new();
    for (i, (shape, values)) in work.params.iter().enumerate() {
        let param = Param::new(T::from_slice(values, &shape[..], &device)?)?;
        param.set_name(&format!("p{i}"));
        params.push(param);
    }
    let mut optimizer: Box<dyn Optimizer<Candle>> = match optim {
        Optim::Sgd => Box::new(SGD::new(params.clone(), LR)?),
        Optim::Adam => Box::new(Adam::new(params.clone(), LR)?),
        Optim::AdamW => Box::new(AdamConfig::adamw(LR).build(params.clone())?),
    };
    let kind = work.kind;
    let input = match kind {
        Kind::Gpt => T::from_slice(&work.tokens, &work.shape[..], &device)?,
        _ => T::from_slice(&work.input, &work.shape[..], &device)?,
    };
    let targets = T::from_slice(&work.targets, [work.targets.len()], &device)?;
    Ok(Box::new(move || {
        let (loss, gradients) = {
            let p: Vec<T> = params.iter().map(Param::tensor).collect();
            let logits = match kind {
                Kind::Mlp => mlp(&input, &p)?,
                Kind::Cnn => cnn(&input, &p)?,
                Kind::Gpt => gpt(&input, &p)?,
            };
            let loss = cross_entropy(&logits, &targets)?;
            (loss.item()?, loss.backward()?)
        };
        optimizer.step(&gradients)?;
        Ok(loss)
    }))
}

fn mlp(x: &T, p: &[T]) -> Result<T> {
    let mut x = x.clone();
    for (i, layer) in p.chunks(2).enumerate() {
        x = if i == 0 { x } else { x.relu()? };
        x = x.linear(&layer[0], Some(&layer[1]))?;
    }
    Ok(x)
}

fn cnn(x: &T, p: &[T]) -> Result<T> {
    let padded = ConvParams {
        padding: [1; 3],
        ..ConvParams::default()
    };
    let mut x = x.clone();
    for layer in p[..4].chunks(2) {
        let bias = layer[1].reshape([1, layer[1].numel(), 1, 1])?;
        x = x.conv(&layer[0], &padded)?.add(&bias)?.relu()?;
        x = x.max_pool(&PoolParams::new([2; 3]))?.0;
    }
    mlp(&x.flatten(1, -1)?, &p[4..])
}

fn gpt(tokens: &T, p: &[T]) -> Result<T> {
    let batch = tokens.shape()[0];
    let mut x = tokens.embedding(&p[0], None)?.add(&p[1])?;
    let norm = |x: &T, p: &[T]| x.layer_norm(Some(&p[0]), Some(&p[1]), 1, 1e-5);
    let (blocks, last) = p[2..].split_at(p.len() - 5);
    for p in blocks.chunks(12) {
        let packed = norm(&x, p)?.linear(&p[2], Some(&p[3]))?;
        let part = |i: usize| {
            let heads = packed
                .narrow(2, i * WIDTH, WIDTH)?
                .reshape([batch, CONTEXT, HEADS, WIDTH / HEADS])?;
            heads.transpose(1, 2)
        };
        let mixed = part(0)?.scaled_dot_product_attention(&part(1)?, &part(2)?, None, true, None)?;
        let mixed = mixed.transpose(1, 2)?.reshape([batch, CONTEXT, WIDTH])?;
        x = x.add(&mixed.linear(&p[4], Some(&p[5]))?)?;
        let inner = norm(&x, &p[6..])?.linear(&p[8], Some(&p[9]))?.gelu()?;
        x = x.add(&inner.linear(&p[10], Some(&p[11]))?)?;
    }
    norm(&x, last)?
        .linear(&last[2], None)?
        .reshape([batch * CONTEXT, VOCABULARY])
}
