//! Categorical distributions: one of several classes.

use polygrad_tensor::{AnyBackend, Backend, DType, Error, Result, Tensor, no_grad};

use super::{Distribution, divergence, impossible, logits, must_fit};

/// One of C classes, by logits `[…, C]`; values are i64 `[…]`. As PyTorch's `Categorical(logits=…)`.
#[derive(Clone, Debug)]
pub struct Categorical<B: Backend = AnyBackend> {
    /// Normalized logits.
    log_probs: Tensor<B>,
}

impl<B: Backend> Categorical<B> {
    /// From unnormalized log probabilities.
    ///
    /// # Errors
    /// When the logits have rank 0, are integers, or have no classes.
    pub fn new(logits: &Tensor<B>) -> Result<Self> {
        Self::of(logits, None)
    }

    /// Only the classes for which the mask (bool, of the logits' shape) is true. Where it is false for every class,
    /// everything is NaN.
    ///
    /// # Errors
    /// As [`Categorical::new`]; when the mask does not fit.
    pub fn masked(logits: &Tensor<B>, mask: &Tensor<B>) -> Result<Self> {
        Self::of(logits, Some(mask))
    }

    fn of(given: &Tensor<B>, mask: Option<&Tensor<B>>) -> Result<Self> {
        if given.dims().last().is_none_or(|&classes| classes == 0) {
            let text = format!(
                "logits are […, classes], with at least one class, not {}",
                given.shape()
            );
            return Err(Error::shape(text).with_op("Categorical"));
        }
        let mut logits = logits(given, mask)?;
        if let Some(mask) = mask {
            let none = mask.to_dtype(DType::F32)?.sum_keepdim(-1)?.eq(0.0)?;
            logits = logits.masked_fill(&none.expand(logits.shape())?, f64::NAN)?;
        }
        Ok(Self {
            log_probs: logits.log_softmax(-1)?,
        })
    }

    /// Normalized logits `[…, C]`.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn logits(&self) -> Result<Tensor<B>> {
        impossible(&self.log_probs)
    }

    /// The probabilities `[…, C]`.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn probs(&self) -> Result<Tensor<B>> {
        self.log_probs.exp()
    }
}

impl<B: Backend> Distribution<B> for Categorical<B> {
    fn sample(&self) -> Result<Tensor<B>> {
        no_grad(|| self.log_probs.multinomial_logits(1, true)?.squeeze(-1))
    }

    fn log_prob(&self, value: &Tensor<B>) -> Result<Tensor<B>> {
        if value.dtype() != DType::I64 {
            let error = Error::dtype(format!("classes are i64, not {}", value.dtype())).with_op("log_prob");
            return Err(error.with_hint("convert them with to_dtype(DType::I64)"));
        }
        let dims = self.log_probs.dims();
        must_fit(value, &dims[..dims.len() - 1])?;
        impossible(&self.log_probs.gather(-1, &value.unsqueeze(-1)?)?.squeeze(-1)?)
    }

    fn entropy(&self) -> Result<Tensor<B>> {
        self.probs()?.mul(&self.log_probs)?.sum(-1)?.neg()
    }

    fn mode(&self) -> Result<Tensor<B>> {
        self.log_probs.detach().argmax(-1)
    }

    fn kl_divergence(&self, other: &Self) -> Result<Tensor<B>> {
        let probs = self.probs()?;
        let terms = probs.mul(&self.log_probs.sub(&other.log_probs)?)?;
        divergence(&terms, &probs, &other.log_probs)?.sum(-1)
    }
}

/// Several choices at once, each among classes of its own: a [`Categorical`] for each, with logits
/// `[…, sum of the numbers of classes]`; values are i64 `[…, choices]`.
#[derive(Clone, Debug)]
pub struct MultiDiscrete<B: Backend = AnyBackend> {
    choices: Vec<Categorical<B>>,
}

impl<B: Backend> MultiDiscrete<B> {
    /// From the logits of all choices and each choice's number of classes.
    ///
    /// # Errors
    /// When the number of logits is not the sum of `classes`, or there is no choice.
    pub fn new(logits: &Tensor<B>, classes: &[usize]) -> Result<Self> {
        Self::of(logits, None, classes)
    }

    /// Only the classes for which the mask (bool, of the logits' shape) is true. Where it is false for every class of a
    /// choice, everything is NaN.
    ///
    /// # Errors
    /// As [`MultiDiscrete::new`]; when the mask does not fit.
    pub fn masked(logits: &Tensor<B>, mask: &Tensor<B>, classes: &[usize]) -> Result<Self> {
        Self::of(logits, Some(mask), classes)
    }

    fn of(given: &Tensor<B>, mask: Option<&Tensor<B>>, classes: &[usize]) -> Result<Self> {
        let total: usize = classes.iter().sum();
        if classes.is_empty() || given.dims().last() != Some(&total) {
            let text = format!(
                "logits for choices of {classes:?} classes are […, {total}], not {}",
                given.shape()
            );
            return Err(Error::shape(text).with_op("MultiDiscrete"));
        }
        let choices = classes.iter().scan(0, |next, &classes| {
            let begin = *next;
            *next += classes;
            let own = |x: &Tensor<B>| x.narrow(-1, begin, classes);
            let mask = mask.map(own).transpose();
            Some(mask.and_then(|mask| Categorical::of(&own(given)?, mask.as_ref())))
        });
        Ok(Self {
            choices: choices.collect::<Result<_>>()?,
        })
    }

    /// The choices.
    pub fn choices(&self) -> &[Categorical<B>] {
        &self.choices
    }

    fn total(&self, f: impl Fn(usize, &Categorical<B>) -> Result<Tensor<B>>) -> Result<Tensor<B>> {
        let mut terms = self.choices.iter().enumerate().map(|(i, choice)| f(i, choice));
        let first = terms
            .next()
            .unwrap_or_else(|| Err(Error::invalid("there is no choice")))?;
        terms.try_fold(first, |sum, term| sum.add(&term?))
    }

    fn stacked(&self, f: impl Fn(&Categorical<B>) -> Result<Tensor<B>>) -> Result<Tensor<B>> {
        Tensor::stack(&self.choices.iter().map(f).collect::<Result<Vec<_>>>()?, -1)
    }
}

impl<B: Backend> Distribution<B> for MultiDiscrete<B> {
    fn sample(&self) -> Result<Tensor<B>> {
        self.stacked(Distribution::sample)
    }

    fn log_prob(&self, value: &Tensor<B>) -> Result<Tensor<B>> {
        if value.dims().last() != Some(&self.choices.len()) {
            let text = format!(
                "values of {} choices are […, {0}], not {}",
                self.choices.len(),
                value.shape()
            );
            return Err(Error::shape(text).with_op("log_prob"));
        }
        self.total(|i, choice| choice.log_prob(&value.select(-1, i as isize)?))
    }

    fn entropy(&self) -> Result<Tensor<B>> {
        self.total(|_, choice| choice.entropy())
    }

    fn mode(&self) -> Result<Tensor<B>> {
        self.stacked(Distribution::mode)
    }

    fn kl_divergence(&self, other: &Self) -> Result<Tensor<B>> {
        let classes =
            |of: &Self| -> Vec<usize> { of.choices.iter().filter_map(|x| x.log_probs.dims().pop()).collect() };
        if classes(self) != classes(other) {
            let text = format!("choices of {:?} classes and of {:?}", classes(self), classes(other));
            return Err(Error::shape(text).with_op("kl_divergence"));
        }
        self.total(|i, choice| choice.kl_divergence(&other.choices[i]))
    }
}
