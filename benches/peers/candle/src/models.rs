//! The models except ResNet.

use candle_core::{D, DType, Device, IndexOp, Result, Tensor};
use candle_nn::{Linear, Module, ops};
use polygrad_peer::Step;
use polygrad_peer::data::INPUT;

use crate::training::{Params, input, tokens, training};

fn layers(sizes: &[usize], params: &mut Params) -> Result<Vec<Linear>> {
    sizes.windows(2).map(|pair| params.linear(pair[0], pair[1])).collect()
}

fn forward(layers: &[Linear], x: &Tensor, activation: fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let mut x = layers[0].forward(x)?;
    for layer in &layers[1..] {
        x = layer.forward(&activation(&x)?)?;
    }
    Ok(x)
}

pub fn act() -> Result<Step> {
    let mut params = Params::default();
    let mut layers = layers(&[4, 64, 64, 2], &mut params)?;
    // Without gradients: tensors that are not variables.
    for layer in &mut layers {
        *layer = Linear::new(layer.weight().detach(), layer.bias().map(Tensor::detach));
    }
    let x = input(&[1, 4])?;
    Ok(polygrad_peer::call(move || forward(&layers, &x, Tensor::tanh)))
}

pub fn mlp(sizes: &[usize], batch: usize, optimizer: &str) -> Result<Step> {
    let mut params = Params::default();
    let layers = layers(sizes, &mut params)?;
    let targets = (batch, sizes[sizes.len() - 1]);
    training(params, optimizer, input(&[batch, sizes[0]])?, targets, move |x| {
        forward(&layers, x, Tensor::relu)
    })
}

pub fn cnn() -> Result<Step> {
    let mut params = Params::default();
    let mut conv = |inputs: usize, outputs: usize| -> Result<candle_nn::Conv2d> {
        let config = candle_nn::Conv2dConfig {
            padding: 1,
            ..Default::default()
        };
        let weight = params.take(&[outputs, inputs, 3, 3], false)?;
        Ok(candle_nn::Conv2d::new(
            weight,
            Some(params.take(&[outputs], false)?),
            config,
        ))
    };
    let (conv1, conv2) = (conv(1, 32)?, conv(32, 64)?);
    let layers = layers(&[3136, 128, 10], &mut params)?;
    training(params, "adam", input(&[64, 1, 28, 28])?, (64, 10), move |x| {
        let x = conv1.forward(x)?.relu()?.max_pool2d(2)?;
        let x = conv2.forward(&x)?.relu()?.max_pool2d(2)?;
        forward(&layers, &x.flatten_from(1)?, Tensor::relu)
    })
}

struct Norm(Tensor, Tensor);

impl Norm {
    fn new(params: &mut Params) -> Result<Self> {
        Ok(Self(params.take(&[128], true)?, params.take(&[128], false)?))
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ops::layer_norm_slow(x, &self.0, &self.1, 1e-5)
    }
}

struct Block {
    ln1: Norm,
    qkv: Linear,
    proj: Linear,
    ln2: Norm,
    fc1: Linear,
    fc2: Linear,
}

impl Block {
    fn new(params: &mut Params) -> Result<Self> {
        Ok(Self {
            ln1: Norm::new(params)?,
            qkv: params.linear(128, 384)?,
            proj: params.linear(128, 128)?,
            ln2: Norm::new(params)?,
            fc1: params.linear(128, 512)?,
            fc2: params.linear(512, 128)?,
        })
    }

    fn forward(&self, x: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let packed = self.qkv.forward(&self.ln1.forward(x)?)?;
        let part = |i: usize| {
            let heads = packed.narrow(D::Minus1, i * 128, 128)?.reshape((16, 64, 4, 32))?;
            heads.transpose(1, 2)?.contiguous()
        };
        let (q, k, v) = (part(0)?, part(1)?, part(2)?);
        let scores = (q.matmul(&k.t()?)? * (1.0 / 32f64.sqrt()))?.broadcast_add(mask)?;
        let mixed = ops::softmax(&scores, D::Minus1)?.matmul(&v)?;
        let mixed = mixed.transpose(1, 2)?.reshape((16, 64, 128))?;
        let x = (x + self.proj.forward(&mixed)?)?;
        let wide = self.fc1.forward(&self.ln2.forward(&x)?)?.gelu_erf()?;
        x + self.fc2.forward(&wide)?
    }
}

pub fn gpt() -> Result<Step> {
    let mut params = Params::default();
    let embedding = candle_nn::Embedding::new(params.take(&[1024, 128], false)?, 128);
    let positions = params.take(&[64, 128], false)?;
    let blocks = (0..4).map(|_| Block::new(&mut params)).collect::<Result<Vec<_>>>()?;
    let ln = Norm::new(&mut params)?;
    let head = params.linear(128, 1024)?;
    let mask: Vec<f32> = (0..64 * 64)
        .map(|i| if i % 64 > i / 64 { f32::NEG_INFINITY } else { 0.0 })
        .collect();
    let mask = Tensor::from_vec(mask, (64, 64), &Device::Cpu)?;
    training(
        params,
        "adamw",
        tokens(&[16, 64], 1024, INPUT)?,
        (1024, 1024),
        move |x| {
            let mut x = embedding.forward(x)?.broadcast_add(&positions)?;
            for block in &blocks {
                x = block.forward(&x, &mask)?;
            }
            head.forward(&ln.forward(&x)?)?.reshape((1024, 1024))
        },
    )
}

/// candle-nn's own LSTM takes its weights from a `VarBuilder` and multiplies the input step by step; here all steps are
/// multiplied at once.
pub fn lstm() -> Result<Step> {
    let mut params = Params::default();
    let (ih, hh) = (params.take(&[512, 64], false)?, params.take(&[512, 128], false)?);
    let (bih, bhh) = (params.take(&[512], false)?, params.take(&[512], false)?);
    let head = params.linear(128, 10)?;
    let input_part = Linear::new(ih, Some(bih));
    let hidden_part = Linear::new(hh, Some(bhh));
    training(params, "adam", input(&[64, 32, 64])?, (32, 10), move |x| {
        let all = input_part.forward(x)?;
        let mut h = Tensor::zeros((32, 128), DType::F32, &Device::Cpu)?;
        let mut c = h.clone();
        for step in 0..64 {
            let gates = (all.i(step)? + hidden_part.forward(&h)?)?.chunk(4, 1)?;
            let (i, f, o) = (
                ops::sigmoid(&gates[0])?,
                ops::sigmoid(&gates[1])?,
                ops::sigmoid(&gates[3])?,
            );
            c = ((f * c)? + (i * gates[2].tanh()?)?)?;
            h = (o * c.tanh()?)?;
        }
        head.forward(&h)
    })
}
