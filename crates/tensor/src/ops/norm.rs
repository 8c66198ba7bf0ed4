//! Normalisations and cross entropy.

use polygrad_core::{Backend, CrossEntropyParams, DType, Error, Op, Result, Shape, decompose};
use smallvec::SmallVec;

use super::context;
use crate::Tensor;
use crate::autocast::autocast_dtype;
use crate::graph::{needs_graph, record_first};
use crate::tracked::Tracked;

impl<B: Backend> Tensor<B> {
    /// Normalises over the last `axes` axes to mean 0 and variance 1, then scales by `weight` and shifts by `bias`,
    /// which have the shape of those axes. PyTorch's default for `eps` is 1e-5. For f16 and bf16, weight and bias may
    /// be f32, here and in the other normalisations. Source: Ba, Kiros and Hinton, "Layer normalization" (2016).
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit.
    pub fn layer_norm(&self, weight: Option<&Self>, bias: Option<&Self>, axes: usize, eps: f64) -> Result<Self> {
        let fail = |e| context(e, "layer_norm", &[self]);
        let inner = self.last_axes(axes).map_err(fail)?;
        // A bias without a weight gets a weight of ones, since backends require a weight with a bias.
        let ones = match (weight, bias) {
            (None, Some(bias)) => Some(bias.detach().ones_like()?),
            _ => None,
        };
        let weight = weight.or(ones.as_ref());
        self.check_affine(weight, bias, inner).map_err(fail)?;
        if let Some((x, weight, bias)) = self.beside_wide(weight, bias)? {
            let y = x.layer_norm(weight.as_ref(), bias.as_ref(), axes, eps)?;
            return y.to_dtype(self.dtype());
        }
        let (value, mean, rstd) =
            B::layer_norm(&self.value, weight.map(|w| &w.value), bias.map(|b| &b.value), axes, eps).map_err(fail)?;
        let inputs: SmallVec<[&Self; 3]> = [Some(self), weight, bias].into_iter().flatten().collect();
        Ok(record_first(value, &[&mean, &rstd], &inputs, || Op::LayerNorm {
            axes,
            eps,
        }))
    }

    /// Divides by the root of the mean square over the last `axes` axes, then scales by `weight`, which has the shape
    /// of those axes. Source: Zhang and Sennrich, "Root mean square layer normalization" (2019).
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit.
    pub fn rms_norm(&self, weight: Option<&Self>, axes: usize, eps: f64) -> Result<Self> {
        let fail = |e| context(e, "rms_norm", &[self]);
        let inner = self.last_axes(axes).map_err(fail)?;
        self.check_affine(weight, None, inner).map_err(fail)?;
        // The tensors saved for the gradient may overflow f16.
        if self.dtype() != self.dtype().wide() {
            let operands = [self, weight.unwrap_or(self)];
            let y = Self::in_wide(operands, |[x, scale]| x.rms_norm(weight.and(Some(scale)), axes, eps))?;
            return y.to_dtype(self.dtype());
        }
        let (value, rstd) = B::rms_norm(&self.value, weight.map(|w| &w.value), axes, eps).map_err(fail)?;
        let inputs: SmallVec<[&Self; 2]> = [Some(self), weight].into_iter().flatten().collect();
        Ok(record_first(value, &[&rstd], &inputs, || Op::RmsNorm { axes, eps }))
    }

    /// Batch normalisation for training: normalises each channel of `[N, C, …]` by the batch's own mean and biased
    /// variance, then scales and shifts by `weight [C]` and `bias [C]`. Gives the output, and mean and biased variance
    /// `[C]`, which carry no gradient and are f32 for f16 and bf16.
    /// Source: Ioffe and Szegedy, "Batch normalization" (2015).
    ///
    /// # Errors
    /// When the rank is below 2, there are no values to take a mean of, or shapes, dtypes or devices do not fit.
    pub fn batch_norm(&self, weight: Option<&Self>, bias: Option<&Self>, eps: f64) -> Result<(Self, Self, Self)> {
        let fail = |e| context(e, "batch_norm", &[self]);
        let channels = self.channels().map_err(fail)?;
        if self.numel() == 0 {
            return Err(fail(Error::shape("there are no values to take a mean of")));
        }
        let ones = match (weight, bias) {
            (None, Some(bias)) => Some(bias.detach().ones_like()?),
            _ => None,
        };
        let weight = weight.or(ones.as_ref());
        self.check_affine(weight, bias, channels).map_err(fail)?;
        if let Some((x, weight, bias)) = self.beside_wide(weight, bias)? {
            let (y, mean, var) = x.batch_norm(weight.as_ref(), bias.as_ref(), eps)?;
            return Ok((y.to_dtype(self.dtype())?, mean, var));
        }
        let (value, mean, var) =
            B::batch_norm(&self.value, weight.map(|w| &w.value), bias.map(|b| &b.value), eps).map_err(fail)?;
        let inputs: Vec<&Self> = [Some(self), weight, bias].into_iter().flatten().collect();
        let y = record_first(value, &[&mean, &var], &inputs, || Op::BatchNorm { eps });
        Ok((y, Self::from_inner(mean), Self::from_inner(var)))
    }

    /// Normalises each channel of `[N, C, …]` by a given mean `[C]` and variance `[C]`, then scales and shifts by
    /// `weight [C]` and `bias [C]`: PyTorch's `batch_norm` in evaluation, with the running statistics. For f16 and
    /// bf16 these may be f32.
    ///
    /// # Errors
    /// When the rank is below 2, or shapes, dtypes or devices do not fit.
    pub fn batch_norm_running(
        &self,
        mean: &Self,
        var: &Self,
        weight: Option<&Self>,
        bias: Option<&Self>,
        eps: f64,
    ) -> Result<Self> {
        let fail = |e| context(e, "batch_norm", &[self]);
        let channels = self.channels().map_err(fail)?;
        self.check_affine(weight, bias, channels).map_err(fail)?;
        if let Some((x, weight, bias)) = self.beside_wide(weight, bias)? {
            let (mean, var) = (mean.widened()?, var.widened()?);
            let y = x.batch_norm_running(&mean, &var, weight.as_ref(), bias.as_ref(), eps)?;
            return y.to_dtype(self.dtype());
        }
        let dtype = if mean.dtype() == var.dtype() && mean.dtype() == self.dtype().wide() {
            mean.dtype()
        } else {
            self.dtype()
        };
        check_params(self, dtype, [("mean", Some(mean)), ("variance", Some(var))], channels).map_err(fail)?;
        // A bias without a weight gets a weight of ones, since backends require a weight with a bias.
        let ones = match (weight, bias) {
            (None, Some(bias)) => Some(bias.detach().ones_like()?),
            _ => None,
        };
        let weight = weight.or(ones.as_ref());
        let operands: Vec<&Self> = [Some(self), Some(mean), Some(var), weight, bias]
            .into_iter()
            .flatten()
            .collect();
        if needs_graph(&operands) {
            return decompose::batch_norm_running::<Tracked<B>>(self, mean, var, weight, bias, eps).map_err(fail);
        }
        let (weight, bias) = (weight.map(|w| &w.value), bias.map(|b| &b.value));
        B::batch_norm_running(&self.value, &mean.value, &var.value, weight, bias, eps)
            .map(Self::from_inner)
            .map_err(fail)
    }

    /// Divides the channels of `[N, C, …]` into `num_groups` groups and normalises each group of each sample to mean 0
    /// and variance 1, then scales each channel by `weight [C]` and shifts it by `bias [C]`. PyTorch's default for
    /// `eps` is 1e-5.
    /// Source: Wu and He, "Group normalization" (2018).
    ///
    /// # Errors
    /// When the rank is below 2, the groups do not divide the channels, a sample has no values, or shapes, dtypes
    /// or devices do not fit.
    pub fn group_norm(&self, num_groups: usize, weight: Option<&Self>, bias: Option<&Self>, eps: f64) -> Result<Self> {
        self.by_groups(num_groups, weight, bias, eps)
            .map_err(|e| context(e, "group_norm", &[self]))
    }

    /// Normalises each channel of each sample of `[N, C, spatial…]` to mean 0 and variance 1, then scales it by
    /// `weight [C]` and shifts it by `bias [C]`. PyTorch's default for `eps` is 1e-5.
    /// Source: Ulyanov, Vedaldi and Lempitsky, "Instance normalization" (2016).
    ///
    /// # Errors
    /// When the rank is below 3, there are no values to take a mean of, or shapes, dtypes or devices do not fit.
    pub fn instance_norm(&self, weight: Option<&Self>, bias: Option<&Self>, eps: f64) -> Result<Self> {
        let fail = |e| context(e, "instance_norm", &[self]);
        let shape = self.shape();
        if shape.rank() < 3 {
            return Err(fail(Error::shape(format!("takes [N, C, spatial…], not {shape}"))));
        }
        self.by_groups(shape[1], weight, bias, eps).map_err(fail)
    }

    fn by_groups(&self, groups: usize, weight: Option<&Self>, bias: Option<&Self>, eps: f64) -> Result<Self> {
        let shape = self.shape();
        self.check_affine(weight, bias, self.channels()?)?;
        if groups == 0 || !shape[1].is_multiple_of(groups) {
            return Err(Error::shape(format!(
                "{groups} groups do not divide {} channels",
                shape[1]
            )));
        }
        let each = shape[1] / groups * shape[2..].iter().product::<usize>();
        let wide = |x: Option<&Self>| x.map(Self::widened).transpose();
        let (weight, bias) = (wide(weight)?, wide(bias)?);
        let rows = self.widened()?.reshape([shape[0], groups, each])?;
        let normal = rows.layer_norm(None, None, 1, eps)?.reshape(shape)?;
        normal
            .scaled_channels(weight.as_ref(), bias.as_ref())?
            .to_dtype(self.dtype())
    }

    /// `x · scale + shift` with one scale and one shift for each channel.
    fn scaled_channels(&self, scale: Option<&Self>, shift: Option<&Self>) -> Result<Self> {
        let mut column = vec![1; self.rank()];
        column[1] = self.shape()[1];
        let mut out = self.clone();
        if let Some(scale) = scale {
            out = out.mul(&scale.reshape(&column)?)?;
        }
        if let Some(shift) = shift {
            out = out.add(&shift.reshape(&column)?)?;
        }
        Ok(out)
    }

    /// The channels of `[N, C, …]`, as the shape `[C]`.
    fn channels(&self) -> Result<Shape> {
        let shape = self.shape();
        if shape.rank() < 2 {
            return Err(Error::shape(format!("takes [N, C, …], not {shape}")));
        }
        Ok(Shape::from([shape[1]]))
    }

    /// The mean of [`Tensor::cross_entropy`] over the rows that are not ignored, of rank 0; NaN if all are ignored.
    ///
    /// # Errors
    /// As [`Tensor::cross_entropy`].
    pub fn cross_entropy_mean(&self, target: &Self, params: &CrossEntropyParams) -> Result<Self> {
        let params = CrossEntropyParams { mean: true, ..*params };
        self.cross_entropy(target, &params)
    }

    /// Cross entropy of logits `[N, C]` against class indices `[N]`: for each row, or the mean. Rows with the ignored
    /// index are 0.
    ///
    /// # Errors
    /// When shapes, dtypes or devices do not fit, a class is out of range, or the label smoothing is outside `[0, 1]`.
    pub fn cross_entropy(&self, target: &Self, params: &CrossEntropyParams) -> Result<Self> {
        let fail = |e| context(e, "cross_entropy", &[self, target]);
        let (logits, classes) = (self.shape(), target.shape());
        if logits.rank() != 2 || classes.dims() != [logits[0]] {
            return Err(fail(Error::shape("takes logits [N, C] and class indices [N]")));
        }
        if logits[1] == 0 && logits[0] > 0 {
            return Err(fail(Error::shape("there are no classes")));
        }
        if !self.dtype().is_float() || !target.dtype().is_int() {
            return Err(fail(Error::dtype(
                "takes logits of a float dtype and integer class indices",
            )));
        }
        if !(0.0..=1.0).contains(&params.label_smoothing) {
            let error = Error::invalid(format!("label_smoothing {} is outside [0, 1]", params.label_smoothing));
            return Err(fail(error));
        }
        self.check_device(target).map_err(fail)?;
        // The gradient depends on the difference of the logits and the saved logsumexp. Rounded to 16 bits, it would
        // lose most of its digits for logits far from 0.
        if self.dtype() != self.dtype().wide() {
            let losses = self.widened()?.cross_entropy(target, params)?;
            return match autocast_dtype() {
                Some(_) => Ok(losses),
                None => losses.to_dtype(self.dtype()),
            };
        }
        let target = target.detach().to_dtype(DType::I64)?;
        let (value, logsumexp) = B::cross_entropy(&self.value, &target.value, params).map_err(fail)?;
        Ok(record_first(value, &[&logsumexp], &[self, &target], || {
            Op::CrossEntropy(*params)
        }))
    }

    fn last_axes(&self, axes: usize) -> Result<Shape> {
        let shape = self.shape();
        if axes == 0 || axes > shape.rank() {
            return Err(Error::shape(format!(
                "the last {axes} axes of shape {shape} were asked for"
            )));
        }
        if shape[shape.rank() - axes..].contains(&0) {
            return Err(Error::shape("there are no values to normalise"));
        }
        Shape::new(&shape[shape.rank() - axes..])
    }

    fn check_affine(&self, weight: Option<&Self>, bias: Option<&Self>, shape: Shape) -> Result<()> {
        if !self.dtype().is_float() {
            return Err(Error::dtype(format!("{} is no float", self.dtype())).with_hint("convert it with to_dtype"));
        }
        for (name, param) in [("weight", weight), ("bias", bias)] {
            let wide = param.is_some_and(|param| param.dtype() == self.dtype().wide());
            let dtype = if wide { self.dtype().wide() } else { self.dtype() };
            check_params(self, dtype, [(name, param), (name, None)], shape)?;
        }
        Ok(())
    }

    /// Converts an f16 or bf16 input and its parameters to f32 if a parameter is f32, so that the op runs in f32.
    /// `None` otherwise.
    fn beside_wide(&self, weight: Option<&Self>, bias: Option<&Self>) -> Result<Option<Wide<B>>> {
        let wide = self.dtype().wide();
        if wide == self.dtype() || [weight, bias].into_iter().flatten().all(|x| x.dtype() != wide) {
            return Ok(None);
        }
        let widened = |x: Option<&Self>| x.map(Self::widened).transpose();
        Ok(Some((self.widened()?, widened(weight)?, widened(bias)?)))
    }
}

/// An input, a weight and a bias.
type Wide<B> = (Tensor<B>, Option<Tensor<B>>, Option<Tensor<B>>);

fn check_params<B: Backend>(
    x: &Tensor<B>,
    dtype: DType,
    params: [(&str, Option<&Tensor<B>>); 2],
    shape: Shape,
) -> Result<()> {
    for (name, param) in params {
        let Some(param) = param else {
            continue;
        };
        x.check_device(param)?;
        if param.shape() != shape || param.dtype() != dtype {
            return Err(Error::shape(format!(
                "the {name} must be {dtype}{shape}, not {}{}",
                param.dtype(),
                param.shape()
            )));
        }
    }
    Ok(())
}
