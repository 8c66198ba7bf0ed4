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

/// A distribution for each element of a batch. What is said of values has gradients for them and for the parameters;
/// draws and modes have none.
///
/// Draws come from the thread's generator ([`manual_seed`](polygrad_tensor::manual_seed)), and are the same on every
/// backend but for what rounds differently.
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

    /// The logarithm of the probability, or of its density, of values such as [`Distribution::sample`] gives.
    ///
    /// # Errors
    /// When their shape or dtype does not fit.
    fn log_prob(&self, value: &Tensor<B>) -> Result<Tensor<B>>;

    /// The entropy, in nats.
    ///
    /// # Errors
    /// [`Unsupported`](polygrad_tensor::ErrorKind::Unsupported) where no formula is known; when memory runs out.
    fn entropy(&self) -> Result<Tensor<B>>;

    /// The value of the highest probability or density, but for [`TanhNormal`], which says what it gives.
    ///
    /// # Errors
    /// When memory runs out.
    fn mode(&self) -> Result<Tensor<B>>;

    /// The Kullback-Leibler divergence of this one from another: the mean of `log p(x) - log q(x)` over
    /// its own draws, in nats.
    ///
    /// # Errors
    /// When the shapes of the two do not fit.
    fn kl_divergence(&self, other: &Self) -> Result<Tensor<B>>;
}

/// The logit of what is masked: finite, so that it can be multiplied by 0, and below all that a model gives.
const MASKED: f64 = -1e30;

/// Logits in f32 at least, whose range the mask needs, and where the mask is not true [`MASKED`].
fn logits<B: Backend>(logits: &Tensor<B>, mask: Option<&Tensor<B>>) -> Result<Tensor<B>> {
    must_be_float(logits, "logits")?;
    // Minus infinity, as masks made by hand have it, times a probability of 0 would be NaN.
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

/// Values have the shape of the batch: anything else would be the log probabilities of something else.
fn must_fit<B: Backend>(value: &Tensor<B>, batch: &[usize]) -> Result<()> {
    if value.dims() == batch {
        return Ok(());
    }
    let text = format!("values for a batch {batch:?} have its shape, not {}", value.shape());
    Err(Error::shape(text).with_op("log_prob"))
}

/// Terms of a divergence from what cannot be, by logits such as those above, as infinity where it is possible here.
fn divergence<B: Backend>(terms: &Tensor<B>, probs: &Tensor<B>, other: &Tensor<B>) -> Result<Tensor<B>> {
    let never = other.lt(MASKED / 2.0)?.logical_and(&probs.gt(0.0)?)?;
    terms.masked_fill(&never, f64::INFINITY)
}

/// Log probabilities of what cannot be, by the logits above, as minus infinity.
fn impossible<B: Backend>(log_prob: &Tensor<B>) -> Result<Tensor<B>> {
    log_prob.masked_fill(&log_prob.lt(MASKED / 2.0)?, f64::NEG_INFINITY)
}
