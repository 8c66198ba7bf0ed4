//! Probability distributions whose parameters are tensors: draws, log probabilities and entropies, with gradients.

mod bernoulli;
mod categorical;
mod independent;
mod normal;

use polygrad_tensor::{AnyBackend, Backend, DType, Error, Result, Tensor};

pub use bernoulli::Bernoulli;
pub use categorical::{Categorical, MultiDiscrete};
pub use independent::Independent;
pub use normal::{Normal, TanhNormal};

/// A distribution for each element of a batch. Log probabilities, entropies and divergences have gradients for the
/// values and the parameters; draws and modes have none.
///
/// Draws come from the thread's generator ([`manual_seed`](polygrad_tensor::manual_seed)), and are the same on every
/// backend up to rounding.
///
/// ```
/// use polygrad_nn::distributions::{Categorical, Distribution};
/// # use polygrad_reference::Reference;
/// # use polygrad_tensor::{Device, Result, Tensor};
/// # fn main() -> Result<()> {
/// # let device = Device::<Reference>::default();
/// let logits = Tensor::new([[0.0f32, 1.0, 2.0], [1.0, 1.0, 1.0]], &device)?;
/// let allowed = Tensor::new([[true, true, false], [true, true, true]], &device)?;
/// let policy = Categorical::masked(&logits, &allowed)?;
/// let actions = policy.sample()?;
/// assert_eq!(policy.log_prob(&actions)?.dims(), [2]);
/// assert_eq!(policy.mode()?.to_vec::<i64>()?, [1, 0]);
/// # Ok(())
/// # }
/// ```
pub trait Distribution<B: Backend = AnyBackend>: Sized {
    /// A draw for each element of the batch.
    ///
    /// # Errors
    /// When memory runs out.
    fn sample(&self) -> Result<Tensor<B>>;

    /// The log probability (or log density) of values such as those from [`Distribution::sample`].
    ///
    /// # Errors
    /// When the values' shape or dtype does not fit.
    fn log_prob(&self, value: &Tensor<B>) -> Result<Tensor<B>>;

    /// The entropy, in nats.
    ///
    /// # Errors
    /// [`Unsupported`](polygrad_tensor::ErrorKind::Unsupported) if no formula is known; when memory runs out.
    fn entropy(&self) -> Result<Tensor<B>>;

    /// The value of the highest probability or density, except for [`TanhNormal`], whose docs say what it returns.
    ///
    /// # Errors
    /// When memory runs out.
    fn mode(&self) -> Result<Tensor<B>>;

    /// The Kullback-Leibler divergence of this distribution from another: the mean of `log p(x) - log q(x)` over this
    /// distribution's draws, in nats.
    ///
    /// # Errors
    /// When the two shapes do not fit.
    fn kl_divergence(&self, other: &Self) -> Result<Tensor<B>>;
}

/// The logit of masked entries: finite, so that multiplying it by 0 gives 0, and below all logits of real models.
const MASKED: f64 = -1e30;

/// The logits, [`MASKED`] where the mask is false. At least f32, since narrower dtypes cannot hold that value.
fn logits<B: Backend>(logits: &Tensor<B>, mask: Option<&Tensor<B>>) -> Result<Tensor<B>> {
    must_be_float(logits, "logits")?;
    // A logit of minus infinity, as in handmade masks, times a probability of 0 would be NaN.
    let logits = logits.to_dtype(logits.dtype().promote(DType::F32))?;
    let logits = logits.clamp(Some(MASKED), None)?;
    let Some(mask) = mask else { return Ok(logits) };
    if mask.dtype() != DType::Bool || mask.shape() != logits.shape() {
        return Err(Error::shape(format!(
            "a mask is bool{}, one for each logit, not {}{}",
            logits.shape(),
            mask.dtype(),
            mask.shape()
        ))
        .with_op("distribution"));
    }
    logits.masked_fill(&mask.logical_not()?, MASKED)
}

fn must_be_float<B: Backend>(x: &Tensor<B>, what: &str) -> Result<()> {
    if x.dtype().is_float() {
        return Ok(());
    }
    let error = Error::dtype(format!("{what} are floats, not {}", x.dtype())).with_op("distribution");
    Err(error.with_hint("convert them with to_dtype"))
}

/// Values must have the batch's shape: any other would give the log probabilities of something else.
fn must_fit<B: Backend>(value: &Tensor<B>, batch: &[usize]) -> Result<()> {
    if value.dims() == batch {
        return Ok(());
    }
    let text = format!("values for a batch {batch:?} have its shape, not {}", value.shape());
    Err(Error::shape(text).with_op("log_prob"))
}

/// Sets terms of a divergence to infinity where `other` (logits as above) excludes a class that is possible here.
fn divergence<B: Backend>(terms: &Tensor<B>, probs: &Tensor<B>, other: &Tensor<B>) -> Result<Tensor<B>> {
    let never = other.lt(MASKED / 2.0)?.logical_and(&probs.gt(0.0)?)?;
    terms.masked_fill(&never, f64::INFINITY)
}

/// Log probabilities of masked entries as minus infinity.
fn impossible<B: Backend>(log_prob: &Tensor<B>) -> Result<Tensor<B>> {
    log_prob.masked_fill(&log_prob.lt(MASKED / 2.0)?, f64::NEG_INFINITY)
}
