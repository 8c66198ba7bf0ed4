//! An adapter of a single layer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use polygrad_tensor::{Backend, Error, HostTensor, Result, Tensor, no_grad};

use super::config::LoraConfig;
use super::layer::{Kind, Layer, Shapes};
use crate::layers::default_weight;
use crate::{Dropout, Init, Param, Visitor};

/// The factors `A` and `B` of a change `scale · B A` of a layer's weight. With DoRA, it also has the norms to which the
/// changed weight is scaled.
///
/// Sources: Hu et al., "LoRA: low-rank adaptation of large language models" (2021); Kalajdzievski, "A rank
/// stabilization scaling factor for fine-tuning with LoRA" (2023); Liu et al., "DoRA: weight-decomposed low-rank
/// adaptation" (2024).
pub(crate) struct Adapter<B: Backend> {
    /// Unique among all adapters of the process.
    id: u64,
    name: Arc<str>,
    config: Arc<LoraConfig>,
    kind: Kind,
    pub(super) rank: usize,
    pub(super) alpha: f64,
    scale: f64,
    a: Param<B>,
    b: Param<B>,
    magnitude: Option<Param<B>>,
    dropout: Option<Dropout>,
}

impl<B: Backend> Adapter<B> {
    /// A new adapter, which does not change the output yet.
    pub(super) fn new(name: Arc<str>, config: Arc<LoraConfig>, layer: &Layer<'_, B>) -> Result<Self> {
        let rank = config.rank;
        let Shapes { a, b, .. } = layer.shapes(rank, config.dora)?;
        let (device, dtype) = (layer.weight.device(), layer.weight.wide());
        let (first, second) = match layer.kind {
            Kind::Embedding { .. } => (Init::ZEROS, Init::Normal { mean: 0.0, std: 1.0 }),
            _ => (default_weight(), Init::ZEROS),
        };
        let param = |init: Init, shape: Vec<usize>| Param::new(init.tensor(shape, dtype, &device)?);
        let parts = (param(first, a)?, param(second, b)?, None);
        let alpha = config.alpha;
        let mut adapter = Self::with(name, config, layer, (rank, alpha), parts)?;
        if adapter.config.dora {
            let norms = adapter.norms(layer, &layer.weight.value()?)?;
            if norms.numel() > 0 && norms.reshape([norms.numel()])?.amin([0])?.item()? == 0.0 {
                return Err(Error::unsupported("DoRA on a weight with an output that is all zeros")
                    .with_hint("leave this layer out, or attach LoRA without DoRA"));
            }
            adapter.magnitude = Some(Param::new(norms)?);
        }
        Ok(adapter)
    }

    /// An adapter from a file, which [fits](Factors::misfits) the layer.
    pub(super) fn of(
        name: Arc<str>,
        config: Arc<LoraConfig>,
        layer: &Layer<'_, B>,
        sizes: (usize, f64),
        factors: &Factors<'_>,
    ) -> Result<Self> {
        let (device, dtype) = (layer.weight.device(), layer.weight.wide());
        let param = |value: &HostTensor| Param::new(Tensor::from_host(value.cast(dtype), &device)?);
        let (Some(a), Some(b)) = (factors.a, factors.b) else {
            unreachable!("a layer that fits has both factors");
        };
        let parts = (param(a)?, param(b)?, factors.magnitude.map(param).transpose()?);
        Self::with(name, config, layer, sizes, parts)
    }

    fn with(
        name: Arc<str>,
        config: Arc<LoraConfig>,
        layer: &Layer<'_, B>,
        (rank, alpha): (usize, f64),
        (a, b, magnitude): (Param<B>, Param<B>, Option<Param<B>>),
    ) -> Result<Self> {
        let scale = config.scale(rank, alpha);
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Ok(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            kind: layer.kind,
            rank,
            alpha,
            scale,
            a,
            b,
            magnitude,
            dropout: (config.dropout > 0.0)
                .then(|| Dropout::new(config.dropout))
                .transpose()?,
            name,
            config,
        })
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn config(&self) -> &Arc<LoraConfig> {
        &self.config
    }

    /// Whether the layer's weight is `[in, out]`, for which PEFT has an option.
    pub(super) fn is_transposed(&self) -> bool {
        matches!(self.kind, Kind::Transposed)
    }

    pub(super) fn is_dora(&self) -> bool {
        self.magnitude.is_some()
    }

    /// Its parameters, each with its name in the layer and its name in PEFT's files.
    pub(super) fn params(&self) -> Vec<(String, &'static str, &Param<B>)> {
        let name = &self.name;
        let (a, b) = match self.kind {
            Kind::Embedding { .. } => (
                (format!("lora_embedding_A.{name}"), "lora_embedding_A"),
                (format!("lora_embedding_B.{name}"), "lora_embedding_B"),
            ),
            _ => (
                (format!("lora_A.{name}.weight"), "lora_A.weight"),
                (format!("lora_B.{name}.weight"), "lora_B.weight"),
            ),
        };
        let mut params = vec![(a.0, a.1, &self.a), (b.0, b.1, &self.b)];
        if let Some(magnitude) = &self.magnitude {
            let own = format!("lora_magnitude_vector.{name}.weight");
            params.push((own, "lora_magnitude_vector", magnitude));
        }
        params
    }

    pub(super) fn set_trainable(&self, trainable: bool) {
        for (_, _, param) in self.params() {
            param.set_trainable(trainable);
        }
    }

    pub(super) fn set_training(&self, training: bool) {
        if let Some(dropout) = &self.dropout {
            match training {
                true => dropout.train(),
                false => dropout.eval(),
            }
        }
    }

    pub(super) fn visit(&self, visitor: &mut Visitor<'_, B>) {
        for (name, _, param) in self.params() {
            visitor.field(&name, param);
        }
        if let Some(dropout) = &self.dropout {
            visitor.field(&format!("lora_dropout.{}", self.name), dropout);
        }
    }

    /// The layer's output `y` for `x`, plus this adapter's part.
    fn added(&self, layer: &Layer<'_, B>, x: &Tensor<B>, y: Tensor<B>) -> Result<Tensor<B>> {
        let (a, b) = (self.a.tensor(), self.b.tensor());
        let takes_floats = !matches!(self.kind, Kind::Embedding { .. });
        let dropped = match &self.dropout {
            Some(dropout) if takes_floats && dropout.rate() > 0.0 => Some(dropout.forward(x)?),
            _ => None,
        };
        let x = dropped.as_ref().unwrap_or(x);
        let change = if takes_floats && x.dtype() != a.dtype() {
            layer.low_rank(&x.to_dtype(a.dtype())?, &a, &b, self.scale)?
        } else {
            layer.low_rank(x, &a, &b, self.scale)?
        };
        let Some(magnitude) = &self.magnitude else {
            return y.add(&in_dtype(change, &y)?);
        };
        let factor = magnitude.tensor().div(&self.changed_norms(layer)?)?;
        // With dropout, the remaining input is multiplied by the whole weight.
        let own = match (dropped.is_some(), layer.bias()?) {
            (true, _) => layer.product(x)?,
            (false, Some(bias)) => y.sub(&bias)?,
            (false, None) => y.clone(),
        };
        let own = own.to_dtype(factor.dtype())?;
        let change = in_dtype(change, &own)?;
        let change = (&factor - 1.0)?.mul(&own)?.add(&factor.mul(&change)?)?;
        y.add(&in_dtype(change, &y)?)
    }

    /// The norms of the changed weight, treated as constants: DoRA's section 4.3.
    fn changed_norms(&self, layer: &Layer<'_, B>) -> Result<Tensor<B>> {
        self.norms(layer, &layer.weight.value()?)
    }

    fn norms(&self, layer: &Layer<'_, B>, weight: &Tensor<B>) -> Result<Tensor<B>> {
        no_grad(|| layer.norms(&self.changed(layer, weight)?))
    }

    /// `W + scale · B A`.
    fn changed(&self, layer: &Layer<'_, B>, weight: &Tensor<B>) -> Result<Tensor<B>> {
        let (a, b) = (self.a.value(), self.b.value());
        weight.to_dtype(a.dtype())?.add(&(&layer.delta(&a, &b)? * self.scale)?)
    }

    /// The weight merged with this adapter.
    pub(super) fn merged(&self, layer: &Layer<'_, B>, weight: &Tensor<B>) -> Result<Tensor<B>> {
        no_grad(|| {
            let changed = self.changed(layer, weight)?;
            let Some(magnitude) = &self.magnitude else {
                return Ok(changed);
            };
            let factor = magnitude.value().div(&layer.norms(&changed)?)?;
            changed.mul(&layer.factors(&factor)?)
        })
    }
}

/// The tensors of a file for one layer's adapter.
#[derive(Default)]
pub(super) struct Factors<'a> {
    pub(super) a: Option<&'a HostTensor>,
    pub(super) b: Option<&'a HostTensor>,
    pub(super) magnitude: Option<&'a HostTensor>,
    /// The base's weight.
    pub(super) base: Option<&'a HostTensor>,
}

impl Factors<'_> {
    /// The reasons why the tensors are not an adapter of this layer with this rank, and with or without DoRA; empty if
    /// they are.
    ///
    /// # Errors
    /// If a device fails, or the layer cannot have such an adapter.
    pub(super) fn misfits<B: Backend>(&self, layer: &Layer<'_, B>, rank: usize, dora: bool) -> Result<Vec<String>> {
        if rank == 0 {
            return Ok(vec!["its rank in rank_pattern is 0".to_owned()]);
        }
        let shapes = layer.shapes(rank, dora)?;
        let magnitude = dora.then_some(shapes.magnitude);
        let parts = [
            ("A", self.a, Some(shapes.a)),
            ("B", self.b, Some(shapes.b)),
            ("the magnitude", self.magnitude, magnitude),
        ];
        let mut misfits = Vec::new();
        for (name, found, expected) in parts {
            match (found, expected) {
                (None, None) => {}
                (Some(found), Some(expected)) if found.shape().dims() == expected && found.dtype().is_float() => {}
                (Some(found), Some(expected)) => misfits.push(format!(
                    "{name} is {}{}, and with rank {rank} it is {expected:?} here",
                    found.dtype(),
                    found.shape()
                )),
                (None, Some(_)) => misfits.push(format!("{name} is missing")),
                (Some(_), None) => misfits.push(format!("{name} is there without use_dora")),
            }
        }
        if let Some(base) = self.base {
            let own = layer.weight.value()?.to_host()?;
            if base.shape() != own.shape() || base.cast(own.dtype()).to_f64_vec() != own.to_f64_vec() {
                misfits.push("its own weight, which is in the file too, has other values".to_owned());
            }
        }
        Ok(misfits)
    }
}

/// A layer's output `y` for `x`, plus the parts of its active adapters.
pub(crate) fn adapted<B: Backend>(
    adapters: &[Arc<Adapter<B>>],
    layer: &Layer<'_, B>,
    x: &Tensor<B>,
    y: Tensor<B>,
) -> Result<Tensor<B>> {
    adapters.iter().try_fold(y, |y, adapter| adapter.added(layer, x, y))
}

fn in_dtype<B: Backend>(x: Tensor<B>, like: &Tensor<B>) -> Result<Tensor<B>> {
    match x.dtype() == like.dtype() {
        true => Ok(x),
        false => x.to_dtype(like.dtype()),
    }
}
