//! Embeddings of bags of indices.

use std::ops::Range;

use polygrad_tensor::{AnyBackend, Backend, Device, Error, Result, Shape, Tensor};

use super::embedding::EmbeddingConfig;
use crate::options::options;
use crate::{Forward, Init, Module, Param, watch};

/// Looks up the vectors of whole bags of indices in a table, `weight [num_embeddings, embedding_dim]`, and reduces them
/// to one vector for each bag. Names and behaviour are PyTorch's.
///
/// ```
/// use polygrad_nn::{EmbeddingBagConfig, EmbeddingBagMode};
/// # use polygrad_reference::Reference;
/// # use polygrad_tensor::{Device, Result, Tensor};
/// # fn main() -> Result<()> {
/// let device = Device::<Reference>::default();
/// let bags = EmbeddingBagConfig::new(10, 3).mode(EmbeddingBagMode::Sum).build(&device)?;
/// // Three bags, of two indices, none, and three.
/// let index = Tensor::new([1i64, 2, 4, 5, 4], &device)?;
/// assert_eq!(bags.forward(&index, Some(&[0, 2, 2]), None)?.dims(), [3, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Module)]
pub struct EmbeddingBag<B: Backend = AnyBackend> {
    /// `[num_embeddings, embedding_dim]`.
    pub weight: Param<B>,
    #[module(skip)]
    padding_idx: Option<usize>,
    #[module(skip)]
    mode: EmbeddingBagMode,
    #[module(skip)]
    include_last_offset: bool,
}

/// How an [`EmbeddingBag`] reduces the vectors of a bag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EmbeddingBagMode {
    /// Their sum.
    Sum,
    /// Their mean.
    #[default]
    Mean,
    /// The largest value in each place; the first of equal ones takes the gradient.
    Max,
}

options! {
    /// Options of [`EmbeddingBag`].
    #[derive(Clone, Copy, Debug)]
    pub struct EmbeddingBagConfig {
        /// `num_embeddings` vectors of `embedding_dim`.
        pub const fn new(num_embeddings: usize, embedding_dim: usize);
        /// How the vectors of a bag are reduced. Default: their mean.
        mode: EmbeddingBagMode = EmbeddingBagMode::Mean;
        /// Index (negative: from the end) of a vector that begins as 0 and is left out of every bag. Default: none.
        padding_idx: Option<isize> = None, from |index: isize| Some(index);
        /// Whether the last offset is the end of the last bag instead of the start of another one.
        include_last_offset: bool = false;
        /// Initial vectors. Default, as in PyTorch: standard normal.
        init: Init = Init::Normal { mean: 0.0, std: 1.0 };
    }
}

impl EmbeddingBagConfig {
    /// The layer, on a device.
    ///
    /// # Errors
    /// When `padding_idx` is out of range, or memory runs out.
    #[track_caller]
    pub fn build<B: Backend>(self, device: &Device<B>) -> Result<EmbeddingBag<B>> {
        let table = EmbeddingConfig {
            num_embeddings: self.num_embeddings,
            embedding_dim: self.embedding_dim,
            padding_idx: self.padding_idx,
            init: self.init,
        };
        let (weight, padding_idx) = table.table(device).map_err(|e| e.with_op("EmbeddingBag"))?;
        Ok(EmbeddingBag {
            weight,
            padding_idx,
            mode: self.mode,
            include_last_offset: self.include_last_offset,
        })
    }
}

impl<B: Backend> EmbeddingBag<B> {
    /// `num_embeddings` vectors of `embedding_dim`, averaged for each bag; [`EmbeddingBagConfig`] has the other
    /// options.
    ///
    /// # Errors
    /// When memory runs out.
    #[track_caller]
    pub fn new(num_embeddings: usize, embedding_dim: usize, device: &Device<B>) -> Result<Self> {
        EmbeddingBagConfig::new(num_embeddings, embedding_dim).build(device)
    }

    /// One vector for each bag, `[bags, embedding_dim]`. The i64 indices are `[bags, length]`, or `[count]` with the
    /// offset at which each bag begins. An empty bag gives 0. With `per_sample_weights` of the index's shape, in mode
    /// `Sum`, each vector is multiplied by its weight first.
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit; an index is out of range; offsets do not begin with 0, decrease, or
    /// exceed the number of indices; or weights are given in another mode than `Sum`.
    pub fn forward(
        &self,
        index: &Tensor<B>,
        offsets: Option<&[usize]>,
        per_sample_weights: Option<&Tensor<B>>,
    ) -> Result<Tensor<B>> {
        watch::layer(self, index, || self.compute(index, offsets, per_sample_weights))
            .map_err(|e| e.with_op("EmbeddingBag"))
    }

    fn compute(
        &self,
        index: &Tensor<B>,
        offsets: Option<&[usize]>,
        per_sample_weights: Option<&Tensor<B>>,
    ) -> Result<Tensor<B>> {
        let shape = index.shape();
        let bags = self
            .bags(&shape, offsets, per_sample_weights)
            .map_err(|e| e.with_operands([(shape, index.dtype())]))?;
        let used = bags.len();
        let flat = |x: &Tensor<B>| x.reshape([shape.numel()])?.narrow(0, 0, used);
        let (index, weights) = (flat(index)?, per_sample_weights.map(flat).transpose()?);
        let y = match self.mode {
            EmbeddingBagMode::Max => self.largest(&index, &bags)?,
            EmbeddingBagMode::Sum | EmbeddingBagMode::Mean => self.sum_or_mean(&index, &bags, weights.as_ref())?,
        };
        y.to_dtype(self.weight.dtype())
    }

    fn bags(&self, index: &Shape, offsets: Option<&[usize]>, per_sample_weights: Option<&Tensor<B>>) -> Result<Bags> {
        if let Some(weights) = per_sample_weights {
            if self.mode != EmbeddingBagMode::Sum {
                let error = format!("per_sample_weights are for mode Sum, not {:?}", self.mode);
                return Err(Error::invalid(error));
            }
            let (own, dtype) = (weights.dtype(), self.weight.dtype());
            if weights.shape() != *index || own != dtype {
                let error = format!("per_sample_weights are {own}{}, not {dtype}{index}", weights.shape());
                return Err(Error::shape(error));
            }
        }
        match (index.dims(), offsets) {
            (&[count, length], None) => Ok(Bags::Even { count, length }),
            (&[len], Some(offsets)) => Bags::from_offsets(offsets, self.include_last_offset, len),
            _ => Err(Error::shape("takes an index [bags, length], or [count] with offsets")),
        }
    }

    /// Whether each index is the padding index, or `None` if there is no padding index.
    fn padding(&self, index: &Tensor<B>) -> Result<Option<Tensor<B>>> {
        self.padding_idx.map(|row| index.eq(row as i64)).transpose()
    }

    /// The vectors of these indices, in a dtype wide enough for sums.
    fn vectors(&self, index: &Tensor<B>) -> Result<Tensor<B>> {
        let vectors = index.embedding(&self.weight.tensor(), None)?;
        vectors.to_dtype(vectors.dtype().wide())
    }

    fn sum_or_mean(&self, index: &Tensor<B>, bags: &Bags, weights: Option<&Tensor<B>>) -> Result<Tensor<B>> {
        let mut vectors = self.vectors(index)?;
        let dtype = vectors.dtype();
        let padding = self.padding(&index.unsqueeze(1)?)?;
        if let Some(padding) = &padding {
            vectors = vectors.masked_fill(padding, 0.0)?;
        }
        if let Some(weights) = weights {
            vectors = vectors.mul(&weights.to_dtype(dtype)?.unsqueeze(1)?)?;
        }
        let sum = bags.sum(&vectors)?;
        if self.mode == EmbeddingBagMode::Sum {
            return Ok(sum);
        }
        let counted = match padding {
            Some(padding) => padding.logical_not()?.to_dtype(dtype)?,
            None => Tensor::ones([bags.len(), 1], (&index.device(), dtype))?,
        };
        sum.div(&bags.sum(&counted)?.clamp(Some(1.0), None)?)
    }

    fn largest(&self, index: &Tensor<B>, bags: &Bags) -> Result<Tensor<B>> {
        let (count, longest, device) = (bags.count(), bags.longest(), index.device());
        if longest == 0 {
            return bags.sum(&self.vectors(index)?);
        }
        let (index, outside) = match bags {
            Bags::Even { .. } => (index.reshape([count, longest])?, None),
            // Each bag becomes a row of the longest bag's length.
            Bags::Uneven { ends } => {
                let rows = || {
                    bags.ranges()
                        .flat_map(|bag| (0..longest).map(move |i| (bag.start + i, bag.end)))
                };
                let last = ends.last().map_or(0, |end| end - 1);
                let places = rows().map(|(place, _)| place.min(last) as i64).collect();
                let places = Tensor::from_vec::<i64>(places, [count * longest], &device)?;
                let outside = rows().map(|(place, end)| place >= end).collect();
                let outside = Tensor::from_vec::<bool>(outside, [count, longest], &device)?;
                (
                    index.index_select(0, &places)?.reshape([count, longest])?,
                    Some(outside),
                )
            }
        };
        let hidden = match (outside, self.padding(&index)?) {
            (Some(outside), Some(padding)) => Some(outside.logical_or(&padding)?),
            (outside, padding) => outside.or(padding),
        };
        let vectors = self.vectors(&index)?;
        let Some(hidden) = hidden else {
            return Ok(vectors.max(1)?.0);
        };
        let (largest, _) = vectors.masked_fill(&hidden.unsqueeze(2)?, f64::NEG_INFINITY)?.max(1)?;
        largest.masked_fill(&hidden.all_keepdim(1)?, 0.0)
    }
}

/// How a list of indices is divided into bags.
enum Bags {
    Even {
        count: usize,
        length: usize,
    },
    /// The bags one after another; the end of each.
    Uneven {
        ends: Vec<usize>,
    },
}

impl Bags {
    fn from_offsets(offsets: &[usize], include_last: bool, len: usize) -> Result<Self> {
        let fits = offsets.first().is_none_or(|&first| first == 0)
            && offsets.is_sorted()
            && offsets.last().is_none_or(|&last| last <= len)
            && !(include_last && offsets.is_empty());
        if !fits {
            return Err(Error::out_of_range(format!(
                "offsets must begin with 0, not fall, and stay within the {len} indices"
            )));
        }
        let mut ends = offsets.get(1..).unwrap_or_default().to_vec();
        if !include_last && !offsets.is_empty() {
            ends.push(len);
        }
        Ok(Self::Uneven { ends })
    }

    fn count(&self) -> usize {
        match self {
            Self::Even { count, .. } => *count,
            Self::Uneven { ends } => ends.len(),
        }
    }

    /// Number of indices in all bags.
    fn len(&self) -> usize {
        match self {
            Self::Even { count, length } => count * length,
            Self::Uneven { ends } => ends.last().copied().unwrap_or(0),
        }
    }

    fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        let ends = match self {
            Self::Even { .. } => &[],
            Self::Uneven { ends } => &ends[..],
        };
        let starts = std::iter::once(0).chain(ends.iter().copied());
        starts.zip(ends).map(|(start, &end)| start..end)
    }

    fn longest(&self) -> usize {
        match self {
            Self::Even { length, .. } => *length,
            Self::Uneven { .. } => self.ranges().map(|bag| bag.len()).max().unwrap_or(0),
        }
    }

    /// Sums the rows of each bag: `[len, K]` to `[count, K]`.
    fn sum<B: Backend>(&self, rows: &Tensor<B>) -> Result<Tensor<B>> {
        let width = rows.shape()[1];
        match self {
            Self::Even { count, length } => rows.reshape([*count, *length, width])?.sum(1),
            Self::Uneven { ends } => {
                let bags = self
                    .ranges()
                    .enumerate()
                    .flat_map(|(i, bag)| bag.map(move |_| i as i64));
                let bags = Tensor::from_vec::<i64>(bags.collect(), [self.len()], &rows.device())?;
                let zeros = Tensor::zeros([ends.len(), width], (&rows.device(), rows.dtype()))?;
                zeros.index_add(0, &bags, rows)
            }
        }
    }
}

impl<B: Backend> Forward<B> for EmbeddingBag<B> {
    /// Bags of equal length, `[bags, length]`.
    fn forward(&self, index: &Tensor<B>) -> Result<Tensor<B>> {
        self.forward(index, None, None)
    }
}
