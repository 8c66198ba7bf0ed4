//! `gpt`: a small language model on 16 texts of 64 tokens, with AdamW.

use polygrad_nn::{Embedding, LayerNorm, Linear, Module, Param};
use polygrad_tensor::{Attention, Backend, Device, Result, Tensor};

use crate::Prepared;
use crate::data::{INPUT, classes, noise};
use crate::training::{Mode, Optim, training};

const BATCH: usize = 16;
const CONTEXT: usize = 64;
const WIDTH: usize = 128;
const HEADS: usize = 4;
const BLOCKS: usize = 4;
const VOCABULARY: usize = 1024;

pub(crate) fn flops() -> u64 {
    let linear = BLOCKS * (3 + 1 + 4 + 4) * WIDTH * WIDTH + WIDTH * VOCABULARY;
    let attention = BLOCKS * 2 * CONTEXT * WIDTH;
    3 * 2 * (BATCH * CONTEXT * (linear + attention)) as u64
}

#[derive(Module)]
struct Block<B: Backend> {
    ln1: LayerNorm<B>,
    qkv: Linear<B>,
    proj: Linear<B>,
    ln2: LayerNorm<B>,
    fc1: Linear<B>,
    fc2: Linear<B>,
}

impl<B: Backend> Block<B> {
    fn new(device: &Device<B>) -> Result<Self> {
        Ok(Self {
            ln1: LayerNorm::new([WIDTH], device)?,
            qkv: Linear::new(WIDTH, 3 * WIDTH, device)?,
            proj: Linear::new(WIDTH, WIDTH, device)?,
            ln2: LayerNorm::new([WIDTH], device)?,
            fc1: Linear::new(WIDTH, 4 * WIDTH, device)?,
            fc2: Linear::new(4 * WIDTH, WIDTH, device)?,
        })
    }

    fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let qkv = self.qkv.forward(&self.ln1.forward(x)?)?.chunk(3, -1)?;
        let heads = |x: &Tensor<B>| x.reshape([BATCH, CONTEXT, HEADS, WIDTH / HEADS])?.transpose(1, 2);
        let (q, k, v) = (heads(&qkv[0])?, heads(&qkv[1])?, heads(&qkv[2])?);
        let mixed = q.scaled_dot_product_attention(&k, &v, Attention::new().causal(true))?;
        let mixed = mixed.transpose(1, 2)?.reshape([BATCH, CONTEXT, WIDTH])?;
        let x = x.add(&self.proj.forward(&mixed)?)?;
        let wide = self.fc1.forward(&self.ln2.forward(&x)?)?.gelu()?;
        x.add(&self.fc2.forward(&wide)?)
    }
}

#[derive(Module)]
struct Gpt<B: Backend> {
    tokens: Embedding<B>,
    positions: Param<B>,
    blocks: Vec<Block<B>>,
    ln: LayerNorm<B>,
    head: Linear<B>,
}

impl<B: Backend> Gpt<B> {
    fn new(device: &Device<B>) -> Result<Self> {
        Ok(Self {
            tokens: Embedding::new(VOCABULARY, WIDTH, device)?,
            positions: Param::new(Tensor::from_vec(
                noise(CONTEXT * WIDTH, INPUT),
                [CONTEXT, WIDTH],
                device,
            )?)?,
            blocks: (0..BLOCKS).map(|_| Block::new(device)).collect::<Result<_>>()?,
            ln: LayerNorm::new([WIDTH], device)?,
            head: Linear::new(WIDTH, VOCABULARY, device)?,
        })
    }

    fn forward(&self, tokens: &Tensor<B>) -> Result<Tensor<B>> {
        let mut x = self.tokens.forward(tokens)?.add(self.positions.tensor())?;
        for block in &self.blocks {
            x = block.forward(&x)?;
        }
        let logits = self.head.forward(&self.ln.forward(&x)?)?;
        logits.reshape([BATCH * CONTEXT, VOCABULARY])
    }
}

pub(crate) fn prepare<B: Backend, W: Mode<B>>(device: &Device<B>) -> Result<Prepared<B>> {
    let tokens = classes(BATCH * CONTEXT, VOCABULARY, INPUT);
    let tokens = Tensor::from_vec(tokens, [BATCH, CONTEXT], device)?;
    let targets = (BATCH * CONTEXT, VOCABULARY);
    training::<B, W, _>(Gpt::new(device)?, Optim::AdamW, tokens, targets, Gpt::forward)
}
