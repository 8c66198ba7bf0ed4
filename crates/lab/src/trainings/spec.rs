//! The parts of a drawn training, which can be removed one by one.

use polygrad::DType;

use crate::draw::Draw;

/// A small model, its data and how it is trained.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Training {
    /// The extents of one example; for tokens the length.
    pub(super) input: Input,
    pub(super) layers: Vec<Block>,
    /// The number of classes of the target; `None` for a target of two real numbers.
    pub(super) classes: Option<usize>,
    pub(super) examples: usize,
    pub(super) batch_size: usize,
    pub(super) shuffle: bool,
    pub(super) workers: usize,
    /// Whether random numbers are added to each example when it is loaded.
    pub(super) noise: bool,
    pub(super) optimizer: Rule,
    pub(super) schedule: bool,
    pub(super) accumulate: u64,
    pub(super) clip: bool,
    pub(super) ema: bool,
    pub(super) dtype: DType,
    pub(super) autocast: Option<DType>,
    pub(super) evaluated: bool,
    /// After how many of the five steps it is stopped or lost.
    pub(super) broken_after: u64,
    pub(super) seed: u64,
}

/// Extents of an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// `[features]`.
    Row(usize),
    /// `[channels, size, size]`.
    Image(usize, usize),
    /// `[length, features]`.
    Sequence(usize, usize),
    /// `[length]` of token ids; the second number is the size of the vocabulary.
    Tokens(usize, usize),
}

/// A layer, which adapts to the extents of its input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Block {
    Linear(usize),
    Activation(usize),
    Dropout(f64),
    LayerNorm,
    BatchNorm,
    GroupNorm,
    Conv {
        channels: usize,
        kernel: usize,
        stride: usize,
        grouped: bool,
    },
    MaxPool,
    AvgPool,
    Upsample,
    Lstm {
        hidden: usize,
        layers: usize,
        bidirectional: bool,
    },
    Gru {
        hidden: usize,
        layers: usize,
        bidirectional: bool,
    },
    Attention {
        heads: usize,
        causal: bool,
    },
}

/// An optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    Sgd,
    Momentum,
    Adam,
    AdamW,
    RmsProp,
    Adagrad,
    Lamb,
    Lion,
}

/// The number of activations that [`Block::Activation`] selects from.
pub(super) const ACTIVATIONS: usize = 6;

impl Training {
    /// The training of a seed and an index.
    pub(super) fn draw(seed: u64, number: u64) -> Self {
        let mut draw = Draw::new(seed, number);
        let size = draw.between(4, 9) as usize;
        let input = match draw.below(4) {
            0 => Input::Row(draw.between(1, 9) as usize),
            1 => Input::Image(draw.between(1, 3) as usize, size),
            2 => Input::Sequence(draw.between(1, 6) as usize, draw.between(1, 5) as usize),
            _ => Input::Tokens(draw.between(1, 6) as usize, 11),
        };
        let layers = (0..draw.between(0, 5)).map(|_| layer(&mut draw, input)).collect();
        let dtype = draw.of(&[DType::F32, DType::F64, DType::F64]);
        let autocast = draw.of(&[None, None, None, Some(DType::BF16), Some(DType::F16)]);
        Self {
            input,
            layers,
            classes: draw.of(&[None, Some(2), Some(3)]),
            examples: draw.between(3, 30) as usize,
            batch_size: draw.of(&[1, 2, 2, 3, 4, 4, 6, 7, 8]),
            shuffle: draw.one_in(2),
            workers: draw.of(&[0, 0, 1, 2]),
            noise: draw.one_in(2),
            optimizer: draw.of(&[
                Rule::Sgd,
                Rule::Momentum,
                Rule::Adam,
                Rule::AdamW,
                Rule::RmsProp,
                Rule::Adagrad,
                Rule::Lamb,
                Rule::Lion,
            ]),
            schedule: draw.one_in(2),
            accumulate: draw.of(&[1, 1, 2, 3]),
            clip: draw.one_in(3),
            ema: draw.one_in(3),
            dtype,
            autocast: autocast.filter(|_| dtype == DType::F32),
            evaluated: draw.one_in(2),
            broken_after: draw.between(1, 4) as u64,
            seed: draw.below(1 << 30) as u64,
        }
    }

    /// All variants with one part removed, which may still show a fault.
    pub(super) fn smaller(&self) -> Vec<Self> {
        let mut all: Vec<Self> = (0..self.layers.len())
            .map(|i| {
                let mut less = self.clone();
                less.layers.remove(i);
                less
            })
            .collect();
        let mut with = |change: fn(&mut Self)| {
            let mut less = self.clone();
            change(&mut less);
            if less != *self {
                all.push(less);
            }
        };
        with(|t| t.workers = 0);
        with(|t| t.noise = false);
        with(|t| t.shuffle = false);
        with(|t| t.schedule = false);
        with(|t| t.clip = false);
        with(|t| t.ema = false);
        with(|t| t.evaluated = false);
        with(|t| t.accumulate = 1);
        with(|t| t.autocast = None);
        with(|t| t.optimizer = Rule::Sgd);
        with(|t| t.classes = None);
        with(|t| t.batch_size = 1);
        with(|t| t.batch_size = t.batch_size.min(2));
        with(|t| t.examples = t.examples.min(t.batch_size));
        with(|t| t.examples = t.examples.min(2 * t.batch_size));
        with(|t| t.broken_after = 1);
        all
    }

    pub(super) fn draws_numbers(&self) -> bool {
        self.layers.iter().any(|layer| matches!(layer, Block::Dropout(_)))
    }
}

fn layer(draw: &mut Draw, input: Input) -> Block {
    let activation = Block::Activation(draw.below(ACTIVATIONS));
    let dropout = Block::Dropout(draw.of(&[0.1, 0.5]));
    match input {
        Input::Row(_) => match draw.below(6) {
            0 => Block::Linear(draw.between(1, 8) as usize),
            1 => activation,
            2 => dropout,
            3 => Block::LayerNorm,
            4 => Block::BatchNorm,
            _ => Block::GroupNorm,
        },
        Input::Image(..) => match draw.below(10) {
            0..=3 => Block::Conv {
                channels: draw.between(1, 6) as usize,
                kernel: draw.between(1, 3) as usize,
                stride: draw.between(1, 2) as usize,
                grouped: draw.one_in(4),
            },
            4 => activation,
            5 => dropout,
            6 => Block::BatchNorm,
            7 => Block::GroupNorm,
            8 => draw.of(&[Block::MaxPool, Block::AvgPool]),
            _ => Block::Upsample,
        },
        Input::Sequence(..) | Input::Tokens(..) => match draw.below(8) {
            0 => Block::Linear(draw.between(1, 8) as usize),
            1 => activation,
            2 => dropout,
            3 => Block::LayerNorm,
            4 => Block::Lstm {
                hidden: draw.between(1, 5) as usize,
                layers: draw.between(1, 2) as usize,
                bidirectional: draw.one_in(3),
            },
            5 => Block::Gru {
                hidden: draw.between(1, 5) as usize,
                layers: draw.between(1, 2) as usize,
                bidirectional: draw.one_in(3),
            },
            _ => Block::Attention {
                heads: draw.between(1, 2) as usize,
                causal: draw.one_in(2),
            },
        },
    }
}
