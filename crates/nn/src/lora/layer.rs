//! What an adapter needs to know about its layer.

use polygrad_tensor::{Backend, ConvParams, DType, Device, Error, Result, Shape, Tensor, inference};

use crate::{Param, QuantizedWeight};

/// A layer that can have adapters: its kind of computation and its own parameters.
pub(crate) struct Layer<'a, B: Backend> {
    pub(crate) kind: Kind,
    pub(crate) weight: Weight<'a, B>,
    pub(crate) bias: Option<&'a Param<B>>,
}

/// The weight of a layer.
#[derive(Clone, Copy)]
pub(crate) enum Weight<'a, B: Backend> {
    Param(&'a Param<B>),
    /// A packed weight, of a [`Kind::Linear`].
    Packed(&'a QuantizedWeight<B>),
}

impl<'a, B: Backend> Weight<'a, B> {
    /// The parameter.
    ///
    /// # Errors
    /// If the weight is packed, and so cannot be changed.
    pub(super) fn param(self) -> Result<&'a Param<B>> {
        match self {
            Self::Param(param) => Ok(param),
            Self::Packed(_) => Err(
                Error::unsupported("the adapter of a weight that stays packed cannot be merged")
                    .with_hint("leave the adapter attached, or load the model without packing it"),
            ),
        }
    }

    pub(super) fn shape(self) -> Result<Shape> {
        match self {
            Self::Param(param) => Ok(param.shape()),
            Self::Packed(weight) => Shape::new(&weight.dims()),
        }
    }

    pub(super) fn device(self) -> Device<B> {
        match self {
            Self::Param(param) => param.device(),
            Self::Packed(weight) => weight.device(),
        }
    }

    /// The dtype of adapters: f32, or f64 if the weight's dtype is f64.
    pub(super) fn wide(self) -> DType {
        match self {
            Self::Param(param) => param.dtype().wide(),
            Self::Packed(_) => DType::F32,
        }
    }

    /// Its value, outside of the graph.
    pub(super) fn value(self) -> Result<Tensor<B>> {
        match self {
            Self::Param(param) => Ok(param.value()),
            Self::Packed(weight) => weight.dequantized(),
        }
    }
}

/// How a layer uses its weight.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// `x Wᵀ`, with a weight `[out, in]`.
    Linear,
    /// `x W`, with a weight `[in, out]`.
    Transposed,
    /// Rows of a weight `[count, dim]`.
    Embedding { padding_idx: Option<usize> },
    /// A convolution with a weight `[out, in / groups, kernel…]`. Unless the padding is zeros on both sides, its input
    /// is already padded.
    Conv { params: ConvParams, zeros: bool },
}

/// The shapes of the two factors, and of DoRA's magnitudes.
pub(super) struct Shapes {
    pub(super) a: Vec<usize>,
    pub(super) b: Vec<usize>,
    pub(super) magnitude: Vec<usize>,
}

impl<B: Backend> Layer<'_, B> {
    /// The shapes for an adapter of this rank, as PEFT stores them.
    ///
    /// # Errors
    /// If a layer of this kind cannot have such an adapter.
    pub(super) fn shapes(&self, rank: usize, dora: bool) -> Result<Shapes> {
        let shape = self.weight.shape()?;
        let dims = shape.dims();
        if dims.len() < 2 {
            return Err(Error::shape(format!("a weight {shape} cannot have an adapter"))
                .with_hint("name the layers that are to have one in `targets`, without this one"));
        }
        let (a, b, magnitude) = match self.kind {
            Kind::Linear => (vec![rank, dims[1]], vec![dims[0], rank], vec![dims[0]]),
            Kind::Transposed => (vec![rank, dims[0]], vec![dims[1], rank], vec![dims[1]]),
            Kind::Embedding { .. } => (vec![rank, dims[0]], vec![dims[1], rank], vec![dims[1]]),
            Kind::Conv { params, zeros } => {
                check_conv(&params, zeros, rank, dora)?;
                let mut a = vec![rank, dims[1] * params.groups];
                a.extend(&dims[2..]);
                let ones = |first: [usize; 2]| first.into_iter().chain(dims[2..].iter().map(|_| 1)).collect();
                (a, ones([dims[0], rank / params.groups]), ones([1, dims[0]]))
            }
        };
        Ok(Shapes { a, b, magnitude })
    }

    /// `B A x`.
    pub(super) fn low_rank(&self, x: &Tensor<B>, a: &Tensor<B>, b: &Tensor<B>, scale: f64) -> Result<Tensor<B>> {
        let scaled = |x: Tensor<B>| if scale == 1.0 { Ok(x) } else { &x * scale };
        match self.kind {
            Kind::Linear | Kind::Transposed => scaled(x.linear(a, None)?)?.linear(b, None),
            Kind::Embedding { padding_idx } => scaled(x.embedding(&a.t()?, padding_idx)?)?.linear(b, None),
            Kind::Conv { params, .. } => {
                let one = ConvParams {
                    groups: params.groups,
                    ..ConvParams::default()
                };
                scaled(x.conv(a, None, &ConvParams { groups: 1, ..params })?)?.conv(b, None, &one)
            }
        }
    }

    /// The layer's output without its bias.
    pub(super) fn product(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let weight = match self.weight {
            Weight::Param(param) => param.tensor(),
            Weight::Packed(weight) => return weight.product(x),
        };
        match &self.kind {
            Kind::Linear => inference::linear(x, &weight, None, None),
            Kind::Transposed => x.linear(&weight.t()?, None),
            Kind::Embedding { padding_idx } => x.embedding(&weight, *padding_idx),
            Kind::Conv { params, .. } => x.conv(&weight, None, params),
        }
    }

    /// The bias in the shape in which it is added to an output.
    pub(super) fn bias(&self) -> Result<Option<Tensor<B>>> {
        let Some(bias) = self.bias.map(Param::tensor) else {
            return Ok(None);
        };
        match self.kind {
            Kind::Conv { .. } => bias.reshape(self.channels()?).map(Some),
            _ => Ok(Some(bias)),
        }
    }

    /// `B A`, in the shape of the weight.
    pub(super) fn delta(&self, a: &Tensor<B>, b: &Tensor<B>) -> Result<Tensor<B>> {
        match self.kind {
            Kind::Linear => b.matmul(a),
            Kind::Transposed | Kind::Embedding { .. } => b.matmul(a)?.t(),
            Kind::Conv { .. } => {
                let flat = b.flatten(1, -1)?.matmul(&a.flatten(1, -1)?)?;
                flat.reshape(self.weight.shape()?.dims())
            }
        }
    }

    /// The Euclidean norms of a weight of this layer, one for each output, in the shape of DoRA's magnitudes.
    pub(super) fn norms(&self, weight: &Tensor<B>) -> Result<Tensor<B>> {
        let squares = weight.square()?;
        match self.kind {
            Kind::Linear => squares.sum(1)?.sqrt(),
            Kind::Transposed | Kind::Embedding { .. } => squares.sum(0)?.sqrt(),
            Kind::Conv { .. } => squares.flatten(1, -1)?.sum(1)?.sqrt()?.reshape(self.channels()?),
        }
    }

    /// Converts factors of the outputs, in the shape of DoRA's magnitudes, to factors of the weight.
    pub(super) fn factors(&self, factors: &Tensor<B>) -> Result<Tensor<B>> {
        match self.kind {
            Kind::Linear => factors.unsqueeze(1),
            Kind::Transposed | Kind::Embedding { .. } => Ok(factors.clone()),
            Kind::Conv { .. } => factors.transpose(0, 1),
        }
    }

    /// Whether an adapter can be merged into the layer's weight.
    pub(super) fn can_merge(&self) -> bool {
        !matches!(self.kind, Kind::Conv { params, .. } if params.groups > 1)
    }

    /// `[1, out, 1…]` of a convolution's weight.
    fn channels(&self) -> Result<Vec<usize>> {
        let shape = self.weight.shape()?;
        let one = |axis: usize| if axis == 1 { shape[0] } else { 1 };
        Ok((0..shape.rank()).map(one).collect())
    }
}

fn check_conv(params: &ConvParams, zeros: bool, rank: usize, dora: bool) -> Result<()> {
    let groups = params.groups;
    if !rank.is_multiple_of(groups) {
        return Err(Error::invalid(format!(
            "rank {rank} is no multiple of the convolution's {groups} groups"
        ))
        .with_hint("take a rank that is, or leave this layer out"));
    }
    if dora && groups > 1 {
        return Err(
            Error::unsupported(format!("DoRA on a convolution with {groups} groups"))
                .with_hint("leave this layer out, or attach LoRA without DoRA"),
        );
    }
    if !zeros || params.dilation != [1; 3] {
        return Err(
            Error::unsupported("LoRA on a convolution with dilation, or a padding that is not of zeros")
                .with_hint("leave this layer out: PEFT's factors have neither, so its results would be others"),
        );
    }
    Ok(())
}
