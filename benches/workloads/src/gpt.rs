//! `gpt`: a language model with AdamW; small, as large as GPT-2, or of any size.

use polygrad_nn::{Embedding, LayerNorm, Linear, Module, Param};
use polygrad_tensor::{Attention, Backend, Device, Result, Tensor};

use crate::Prepared;
use crate::data::{INPUT, classes, noise};
use crate::extents::Extents;
use crate::training::{Mode, Optim, training};

/// Texts, their tokens, the width, heads, blocks, and the vocabulary.
pub(crate) type Gpt = Extents<6>;

impl Gpt {
    pub(crate) const SMALL: Self = Self::f32([16, 64, 128, 4, 4, 1024]);
    /// GPT-2 with 124 million parameters (Radford and others 2019), and a vocabulary that is padded to a multiple of
    /// 128, as those do who train it.
    const GPT2: Self = Self::f32([8, 1024, 768, 12, 12, 50304]);

    /// The size of this name; without one the small model.
    pub(crate) fn sized(words: &[&str]) -> Option<Self> {
        match words {
            ["124m"] => Some(Self::GPT2),
            _ => Self::parse(words, |_| false).filter(|gpt| gpt.of[2].is_multiple_of(gpt.of[3])),
        }
    }

    /// What follows the workload in the name of a case.
    pub(crate) fn suffix(self) -> Option<String> {
        match self {
            Self::SMALL => None,
            Self::GPT2 => Some("124m".to_owned()),
            other => Some(other.name()),
        }
    }

    pub(crate) fn flops(self) -> u64 {
        let [batch, context, width, _, blocks, vocabulary] = self.of;
        let linear = blocks * (3 + 1 + 4 + 4) * width * width + width * vocabulary;
        let attention = blocks * 2 * context * width;
        3 * 2 * (batch * context * (linear + attention)) as u64
    }

    pub(crate) fn prepare<B: Backend, W: Mode<B>>(self, device: &Device<B>) -> Result<Prepared<B>> {
        let [batch, context, _, _, _, vocabulary] = self.of;
        let tokens = classes(batch * context, vocabulary, INPUT);
        let tokens = Tensor::from_vec(tokens, [batch, context], device)?;
        let targets = (batch * context, vocabulary);
        training::<B, W, _>(Model::new(self, device)?, Optim::AdamW, tokens, targets, Model::forward)
    }
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
    fn new(width: usize, device: &Device<B>) -> Result<Self> {
        Ok(Self {
            ln1: LayerNorm::new([width], device)?,
            qkv: Linear::new(width, 3 * width, device)?,
            proj: Linear::new(width, width, device)?,
            ln2: LayerNorm::new([width], device)?,
            fc1: Linear::new(width, 4 * width, device)?,
            fc2: Linear::new(4 * width, width, device)?,
        })
    }

    fn forward(&self, x: &Tensor<B>, heads: usize) -> Result<Tensor<B>> {
        let [batch, context, width] = [0, 1, 2].map(|axis| x.shape()[axis]);
        let qkv = self.qkv.forward(&self.ln1.forward(x)?)?.chunk(3, -1)?;
        let split = |x: &Tensor<B>| x.reshape([batch, context, heads, width / heads])?.transpose(1, 2);
        let (q, k, v) = (split(&qkv[0])?, split(&qkv[1])?, split(&qkv[2])?);
        let mixed = q.scaled_dot_product_attention(&k, &v, Attention::new().causal(true))?;
        let mixed = mixed.transpose(1, 2)?.reshape([batch, context, width])?;
        let x = x.add(&self.proj.forward(&mixed)?)?;
        let wide = self.fc1.forward(&self.ln2.forward(&x)?)?.gelu()?;
        x.add(&self.fc2.forward(&wide)?)
    }
}

#[derive(Module)]
struct Model<B: Backend> {
    tokens: Embedding<B>,
    positions: Param<B>,
    blocks: Vec<Block<B>>,
    ln: LayerNorm<B>,
    /// Larger models multiply by the embeddings instead, as GPT-2 does.
    head: Option<Linear<B>>,
    #[module(skip)]
    size: Gpt,
}

impl<B: Backend> Model<B> {
    fn new(size: Gpt, device: &Device<B>) -> Result<Self> {
        let [_, context, width, _, blocks, vocabulary] = size.of;
        let positions = Tensor::from_vec(noise(context * width, INPUT), [context, width], device)?;
        let own_head = size == Gpt::SMALL;
        Ok(Self {
            tokens: Embedding::new(vocabulary, width, device)?,
            positions: Param::new(positions)?,
            blocks: (0..blocks).map(|_| Block::new(width, device)).collect::<Result<_>>()?,
            ln: LayerNorm::new([width], device)?,
            head: own_head.then(|| Linear::new(width, vocabulary, device)).transpose()?,
            size,
        })
    }

    fn forward(&self, tokens: &Tensor<B>) -> Result<Tensor<B>> {
        let [batch, context, _, heads, _, vocabulary] = self.size.of;
        let mut x = self.tokens.forward(tokens)?.add(self.positions.tensor())?;
        for block in &self.blocks {
            x = block.forward(&x, heads)?;
        }
        let x = self.ln.forward(&x)?;
        let logits = match &self.head {
            Some(head) => head.forward(&x)?,
            None => x.linear(&self.tokens.weight.tensor(), None)?,
        };
        logits.reshape([batch * context, vocabulary])
    }
}
