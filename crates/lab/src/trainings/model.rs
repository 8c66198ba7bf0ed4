//! Builds the model, the data and the optimizer of a drawn training.

use polygrad::backend::HostTensor;
use polygrad::data::{DataLoader, DataLoaderConfig};
use polygrad::nn::loss::{cross_entropy, mse_loss};
use polygrad::nn::{
    AvgPool2d, BatchNorm1d, BatchNorm2d, Conv2dConfig, Dropout, Embedding, Flatten, Forward, GELU, GRU, GRUConfig,
    GroupNorm, LSTM, LSTMConfig, Lambda, LayerNorm, LeakyReLU, Linear, Masks, MaxPool2d, Module, MultiheadAttention,
    Param, ReLU, Sequential, SiLU, Sigmoid, Tanh, Upsample,
};
use polygrad::optim::{AdagradConfig, AdamConfig, LAMBConfig, LionConfig, Optimizer, RMSpropConfig, SGDConfig};
use polygrad::{DType, Device, Result, Shape, Tensor, manual_seed};

use super::spec::{Block, Input, Rule, Training};
use crate::draw::Draw;

/// Examples and their targets.
pub(super) type Batch = (Tensor, Tensor);

/// The perturbation of the data, in units in the last place: shows the effect of rounding on a training.
pub(super) type Moved = u32;

/// A recurrent layer that returns its outputs of all steps.
#[derive(Module)]
struct OverTime<L> {
    layer: L,
}

macro_rules! over_time {
    ($($layer:ty),*) => {$(
        impl Forward for OverTime<$layer> {
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                self.layer.forward(x, None).map(|(outputs, _)| outputs)
            }
        }
    )*};
}

over_time!(LSTM, GRU);

/// Self-attention of a sequence, with a residual connection.
#[derive(Module)]
struct Attending {
    layer: MultiheadAttention,
    #[module(skip)]
    causal: bool,
}

impl Forward for Attending {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let masks = if self.causal { Masks::causal() } else { Masks::default() };
        self.layer.forward_self(x, masks)?.add(x)
    }
}

impl Training {
    /// The model, initialized with the training's seed and perturbed like the data.
    pub(super) fn model(&self, moved: Moved, device: &Device) -> Result<Sequential> {
        manual_seed(self.seed);
        let (mut model, mut dims) = match self.input {
            Input::Row(features) => (Sequential::new(), vec![features]),
            Input::Image(channels, size) => (Sequential::new(), vec![channels, size, size]),
            Input::Sequence(length, features) => (Sequential::new(), vec![length, features]),
            Input::Tokens(length, kinds) => (
                Sequential::new().push(Embedding::new(kinds, 4, device)?),
                vec![length, 4],
            ),
        };
        for &layer in &self.layers {
            model = push(model, layer, &mut dims, device)?;
        }
        if let Input::Sequence(..) | Input::Tokens(..) = self.input {
            model = model.push(Lambda::new(|x: &Tensor| x.mean([1])));
            dims.remove(0);
        }
        let features = dims.iter().product();
        let model = model
            .push(Flatten::default())
            .push(Linear::new(features, self.classes.unwrap_or(2), device)?);
        model.to_dtype(self.dtype)?;
        if moved > 0 {
            let mut moves = Draw::new(self.seed ^ u64::from(moved), 0);
            for param in model.parameters() {
                let host = param.tensor().to_host()?;
                let values: Vec<f64> = host
                    .to_f64_vec()
                    .iter()
                    .map(|v| v * (1.0 + self.step(moved) * moves.real()))
                    .collect();
                let values = HostTensor::new(*host.shape(), values)?.cast(self.dtype);
                param.set(&Tensor::from_host(values, device)?)?;
            }
        }
        Ok(model)
    }

    /// The relative size of the perturbation.
    fn step(&self, moved: Moved) -> f64 {
        let last_place = match self.dtype {
            DType::F64 => f64::EPSILON,
            _ => f64::from(f32::EPSILON),
        };
        f64::from(moved) * last_place
    }

    /// The loss of a batch.
    pub(super) fn loss(&self) -> impl Fn(&Sequential, &Batch) -> Result<Tensor> + use<> {
        let classes = self.classes;
        move |model, (x, y)| match classes {
            Some(_) => cross_entropy(&model.forward(x)?, y),
            None => mse_loss(&model.forward(x)?, y),
        }
    }

    /// The data of this training; different for each `salt`.
    pub(super) fn loader(&self, salt: u64, moved: Moved, device: &Device) -> Result<DataLoader<Batch>> {
        let mut draw = Draw::new(self.seed, salt);
        // The perturbations are independent of the data.
        let mut moves = Draw::new(self.seed ^ u64::from(moved), salt + 100);
        let examples = (0..self.examples)
            .map(|_| {
                Ok((
                    self.example(&mut draw, &mut moves, self.step(moved))?,
                    self.target(&mut draw)?,
                ))
            })
            .collect::<Result<Vec<(HostTensor, HostTensor)>>>()?;
        let (noise, dtype) = (self.noise && !matches!(self.input, Input::Tokens(..)), self.dtype);
        let config = DataLoaderConfig::new(examples)
            .batch_size(self.batch_size)
            .workers(self.workers)
            .seed(self.seed)
            .transform(move |(x, y): (HostTensor, HostTensor), rng| {
                if !noise {
                    return Ok((x, y));
                }
                let values: Vec<f64> = x.to_f64_vec().iter().map(|v| v + 0.01 * rng.normal()).collect();
                Ok((HostTensor::new(*x.shape(), values)?.cast(dtype), y))
            });
        match self.shuffle {
            true => config.shuffle(self.seed),
            false => config,
        }
        .build(device)
    }

    fn example(&self, draw: &mut Draw, moves: &mut Draw, by: f64) -> Result<HostTensor> {
        let dims = match self.input {
            Input::Row(features) => vec![features],
            Input::Image(channels, size) => vec![channels, size, size],
            Input::Sequence(length, features) => vec![length, features],
            Input::Tokens(length, kinds) => {
                let tokens: Vec<i64> = (0..length).map(|_| draw.below(kinds) as i64).collect();
                return HostTensor::new(Shape::from([length]), tokens);
            }
        };
        let shape = Shape::new(&dims)?;
        let values: Vec<f64> = (0..shape.numel())
            .map(|_| draw.real() * (1.0 + by * moves.real()))
            .collect();
        Ok(HostTensor::new(shape, values)?.cast(self.dtype))
    }

    fn target(&self, draw: &mut Draw) -> Result<HostTensor> {
        match self.classes {
            Some(classes) => HostTensor::new(Shape::from([]), vec![draw.below(classes) as i64]),
            None => Ok(HostTensor::new(Shape::from([2]), vec![draw.real(), draw.real()])?.cast(self.dtype)),
        }
    }

    /// The optimizer of parameters.
    pub(super) fn optimizer(&self, params: Vec<Param>) -> Result<Box<dyn Optimizer>> {
        Ok(match self.optimizer {
            Rule::Sgd => Box::new(SGDConfig::new(0.05).build(params)?),
            Rule::Momentum => Box::new(SGDConfig::new(0.05).momentum(0.9).build(params)?),
            Rule::Adam => Box::new(AdamConfig::new(0.01).build(params)?),
            Rule::AdamW => Box::new(AdamConfig::adamw(0.01).build(params)?),
            Rule::RmsProp => Box::new(RMSpropConfig::new(0.01).build(params)?),
            Rule::Adagrad => Box::new(AdagradConfig::new(0.05).build(params)?),
            Rule::Lamb => Box::new(LAMBConfig::new(0.01).build(params)?),
            Rule::Lion => Box::new(LionConfig::new(0.005).build(params)?),
        })
    }
}

/// Adds a layer, if it accepts the current axes, and updates the axes of an example.
fn push(model: Sequential, layer: Block, dims: &mut [usize], device: &Device) -> Result<Sequential> {
    let last = dims[dims.len() - 1];
    let groups = if dims[0].is_multiple_of(2) { 2 } else { 1 };
    let is_image = dims.len() == 3;
    Ok(match layer {
        Block::Linear(features) => {
            let linear = Linear::new(last, features, device)?;
            *dims.last_mut().expect("there is an axis") = features;
            model.push(linear)
        }
        Block::Activation(which) => match which {
            0 => model.push(ReLU),
            1 => model.push(Tanh),
            2 => model.push(Sigmoid),
            3 => model.push(GELU::default()),
            4 => model.push(SiLU),
            _ => model.push(LeakyReLU(0.1)),
        },
        Block::Dropout(p) => model.push(Dropout::new(p)?),
        Block::LayerNorm => model.push(LayerNorm::new([last], device)?),
        Block::BatchNorm if is_image => model.push(BatchNorm2d::new(dims[0], device)?),
        Block::BatchNorm => model.push(BatchNorm1d::new(last, device)?),
        Block::GroupNorm => model.push(GroupNorm::new(groups, dims[0], device)?),
        Block::Conv {
            channels,
            kernel,
            stride,
            grouped,
        } => {
            let channels = if grouped { dims[0] } else { channels };
            let config = Conv2dConfig::new(dims[0], channels, kernel)
                .stride(stride)
                .padding(kernel / 2)
                .groups(if grouped { dims[0] } else { 1 });
            dims[0] = channels;
            for extent in &mut dims[1..] {
                *extent = (*extent + 2 * (kernel / 2) - kernel) / stride + 1;
            }
            model.push(config.build(device)?)
        }
        Block::MaxPool | Block::AvgPool if dims[1] < 2 => model,
        Block::MaxPool | Block::AvgPool => {
            dims[1..].iter_mut().for_each(|extent| *extent /= 2);
            match layer {
                Block::MaxPool => model.push(MaxPool2d::new(2)),
                _ => model.push(AvgPool2d::new(2)),
            }
        }
        Block::Upsample if dims[1] > 8 => model,
        Block::Upsample => {
            dims[1..].iter_mut().for_each(|extent| *extent *= 2);
            model.push(Upsample::scale_factor(2.0))
        }
        Block::Lstm {
            hidden,
            layers,
            bidirectional,
        } => {
            let config = LSTMConfig::new(last, hidden)
                .num_layers(layers)
                .bidirectional(bidirectional);
            dims[1] = hidden * (1 + usize::from(bidirectional));
            model.push(OverTime {
                layer: config.batch_first(true).build(device)?,
            })
        }
        Block::Gru {
            hidden,
            layers,
            bidirectional,
        } => {
            let config = GRUConfig::new(last, hidden)
                .num_layers(layers)
                .bidirectional(bidirectional);
            dims[1] = hidden * (1 + usize::from(bidirectional));
            model.push(OverTime {
                layer: config.batch_first(true).build(device)?,
            })
        }
        Block::Attention { heads, causal } => {
            let heads = if last.is_multiple_of(heads) { heads } else { 1 };
            let layer = polygrad::nn::MultiheadAttentionConfig::new(last, heads)
                .batch_first(true)
                .build(device)?;
            model.push(Attending { layer, causal })
        }
    })
}
