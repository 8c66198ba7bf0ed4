//! A recurrent network whose gates do not depend on the state, so that all steps can be computed at once.

use polygrad_tensor::{AnyBackend, Backend, Device, Error, Result, Tensor, autocast_dtype};

use crate::options::options;
use crate::{Init, Linear, LinearConfig, Module, watch};

/// The minimal GRU: with `z = σ(W_z x + b_z)` and `h̃ = g(W_h x + b_h)`, `g(x) = x + ½` for `x ≥ 0` and `σ(x)` below,
///
/// `h' = (1 − z) · h + z · h̃`.
///
/// Neither `z` nor `h̃` depends on `h`, so [`MinGRU::forward`] computes all steps of a sequence together, in `2 log₂ T`
/// rounds; [`MinGRU::step`] computes the same one step at a time. Parameters: `linear_z` and `linear_h`, two [`Linear`]
/// layers.
///
/// Source: Feng et al., "Were RNNs all we needed?" (2024).
///
/// ```
/// use polygrad_nn::MinGRU;
/// use polygrad_reference::Reference;
/// use polygrad_tensor::{Device, Tensor};
///
/// # fn main() -> polygrad_tensor::Result<()> {
/// let device = Device::<Reference>::default();
/// let gru = MinGRU::new(3, 4, &device)?;
/// let x = Tensor::ones([2, 5, 3], &device)?;
/// let (y, h) = gru.forward(&x, None)?;
/// assert_eq!((y.dims(), h.dims()), (vec![2, 5, 4], vec![2, 4]));
/// let next = gru.step(&Tensor::ones([2, 3], &device)?, &h)?;
/// assert_eq!(next.dims(), [2, 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Module)]
pub struct MinGRU<B: Backend = AnyBackend> {
    /// Computes the gate, before its sigmoid.
    pub linear_z: Linear<B>,
    /// Computes the candidate, before `g`.
    pub linear_h: Linear<B>,
    #[module(skip)]
    config: MinGRUConfig,
}

options! {
    /// Options of [`MinGRU`].
    #[derive(Clone, Copy, Debug)]
    pub struct MinGRUConfig {
        /// A network from `input_size` to `hidden_size`, with biases.
        pub const fn new(input_size: usize, hidden_size: usize);
        /// Whether there are biases.
        bias: bool = true;
        /// Initial weights. Default: as in [`Linear`].
        init: Option<Init> = None, from |init: Init| Some(init);
        /// Initial biases. Default: as in [`Linear`].
        bias_init: Option<Init> = None, from |init: Init| Some(init);
    }
}

impl MinGRUConfig {
    /// The layer, on a device.
    ///
    /// # Errors
    /// When a size is 0, or memory runs out.
    #[track_caller]
    pub fn build<B: Backend>(self, device: &Device<B>) -> Result<MinGRU<B>> {
        if self.input_size == 0 || self.hidden_size == 0 {
            return Err(Error::invalid(format!(
                "input_size = {} and hidden_size = {} must each be at least 1",
                self.input_size, self.hidden_size
            ))
            .with_op(NAME));
        }
        let mut linear = LinearConfig::new(self.input_size, self.hidden_size).bias(self.bias);
        if let Some(init) = self.init {
            linear = linear.init(init);
        }
        if let Some(init) = self.bias_init {
            linear = linear.bias_init(init);
        }
        Ok(MinGRU {
            linear_z: linear.build(device)?,
            linear_h: linear.build(device)?,
            config: self,
        })
    }
}

const NAME: &str = "MinGRU";

impl<B: Backend> MinGRU<B> {
    /// A network with biases; [`MinGRUConfig`] has the other options.
    ///
    /// # Errors
    /// As [`MinGRUConfig::build`].
    #[track_caller]
    pub fn new(input_size: usize, hidden_size: usize, device: &Device<B>) -> Result<Self> {
        MinGRUConfig::new(input_size, hidden_size).build(device)
    }

    /// Computes all steps of a batch `[N, T, input_size]`: the states after each step, `[N, T, hidden_size]`, and the
    /// last one, `[N, hidden_size]`. Without a given state, it begins with zeros.
    ///
    /// # Errors
    /// When ranks or extents do not fit, there is no step, or dtype or device differ from the parameters'.
    pub fn forward(&self, x: &Tensor<B>, h: Option<&Tensor<B>>) -> Result<(Tensor<B>, Tensor<B>)> {
        watch::layer(self, x, || self.sequence(x, h)).map_err(|e| e.with_op(NAME))
    }

    /// One step: from an input `[N, input_size]` and a state `[N, hidden_size]` to the next state.
    ///
    /// # Errors
    /// When ranks or extents do not fit, or dtype or device differ from the parameters'.
    pub fn step(&self, x: &Tensor<B>, h: &Tensor<B>) -> Result<Tensor<B>> {
        let run = || {
            self.check(x, "[N, C]", 2, Some(h))?;
            let (gate, new) = (self.linear_z.forward(x)?, self.linear_h.forward(x)?);
            Tensor::in_wide([&gate, &new, h], |[gate, new, h]| {
                // Computing 1 − z as σ(−gate) keeps its digits when z is nearly 1.
                let kept = gate.neg()?.sigmoid()?.mul(h)?;
                kept.add(&gate.sigmoid()?.mul(&log_g(new)?.exp()?)?)
            })
        };
        watch::layer(self, x, run).map_err(|e| e.with_op(NAME))
    }

    fn sequence(&self, x: &Tensor<B>, h: Option<&Tensor<B>>) -> Result<(Tensor<B>, Tensor<B>)> {
        self.check(x, "[N, T, C]", 3, h)?;
        let steps = x.shape()[1];
        if steps == 0 {
            return Err(Error::shape("the input has no steps").with_operands([(x.shape(), x.dtype())]));
        }
        let (gate, new) = (self.linear_z.forward(x)?, self.linear_h.forward(x)?);
        let y = Tensor::in_wide([&gate, &new, h.unwrap_or(&gate)], |[gate, new, initial]| {
            // ln z and ln (1 − z), computed from the gate: z = σ(gate) rounds to 0 or 1 long before the logarithms
            // overflow.
            let log_kept = softplus(gate)?.neg()?;
            let log_new = softplus(&gate.neg()?)?.neg()?.add(&log_g(new)?)?;
            let y = log_scan(&log_kept, &log_new)?.exp()?;
            if h.is_none() {
                return Ok(y);
            }
            // The initial state may be negative and then has no logarithm, but it only enters as a product.
            let kept = log_kept.cumsum(1)?.exp()?;
            y.add(&kept.mul(&initial.unsqueeze(1)?)?)
        })?;
        let last = y.narrow(1, steps - 1, 1)?.squeeze(1)?;
        Ok((y, last))
    }

    fn check(&self, x: &Tensor<B>, form: &str, rank: usize, h: Option<&Tensor<B>>) -> Result<()> {
        let operands = |e: Error| {
            let all = [Some(x), h].into_iter().flatten();
            e.with_operands(all.map(|x| (x.shape(), x.dtype())))
        };
        let (width, hidden) = (self.config.input_size, self.config.hidden_size);
        if x.rank() != rank || x.shape()[rank - 1] != width {
            return Err(operands(Error::shape(format!("takes {form} with {width} features"))));
        }
        let Some(h) = h else {
            return Ok(());
        };
        let wanted = [x.shape()[0], hidden];
        if h.dims() != wanted {
            return Err(operands(Error::shape(format!(
                "the state has shape {}, it must be {wanted:?}",
                h.shape()
            ))));
        }
        if h.dtype() != x.dtype() && autocast_dtype().is_none() {
            let error = Error::dtype(format!("the state is {}, the input {}", h.dtype(), x.dtype()));
            return Err(operands(error.with_hint("convert one of them with to_dtype")));
        }
        Ok(())
    }
}

/// `ln (1 + eˣ)`.
fn softplus<B: Backend>(x: &Tensor<B>) -> Result<Tensor<B>> {
    x.softplus(1.0, f64::INFINITY)
}

/// `ln g(x)`: `ln (x + ½)` for `x ≥ 0`, `ln σ(x)` below.
fn log_g<B: Backend>(x: &Tensor<B>) -> Result<Tensor<B>> {
    let above = (x.relu()? + 0.5)?.log()?;
    let below = softplus(&x.neg()?)?.neg()?;
    Tensor::where_(&x.ge(0.0)?, &above, &below)
}

/// `ln (eᵃ + eᵇ)`.
fn log_add_exp<B: Backend>(a: &Tensor<B>, b: &Tensor<B>) -> Result<Tensor<B>> {
    a.maximum(b)?.add(&softplus(&a.sub(b)?.abs()?.neg()?)?)
}

/// `l_t = ln (e^(l_{t−1} + a_t) + e^(b_t))` along axis 1 of `[N, T, H]`, beginning with `l_0 = b_0`.
///
/// The closed form, `A_t + ln Σ_{s ≤ t} e^(b_s − A_s)` with `A = cumsum(a)`, is the difference of two numbers that grow
/// with the length. After 1,000 steps `A` may be −1,000 or −20,000, for which f32 keeps only four or two decimal
/// places, and the sum of exponentials exceeds any dtype's range, whatever maximum is factored out. Therefore both sums
/// are accumulated together: two neighbouring steps are merged into one, with `a = a₁ + a₂` and `b = ln (e^(b₁ + a₂) +
/// e^(b₂))`, in which each exponent is relative to the current position. The scan of these pairs gives every second
/// state, and one step from each gives the others. Source of the pairwise scan: Blelloch, "Prefix sums and their
/// applications" (1990).
fn log_scan<B: Backend>(a: &Tensor<B>, b: &Tensor<B>) -> Result<Tensor<B>> {
    let shape = b.shape();
    let [batch, steps, hidden] = [shape[0], shape[1], shape[2]];
    if steps < 2 {
        return Ok(b.clone());
    }
    let half = steps / 2;
    let halves = |x: &Tensor<B>| -> Result<[Tensor<B>; 2]> {
        let pairs = x.narrow(1, 0, 2 * half)?.reshape([batch, half, 2, hidden])?;
        Ok([pairs.select(2, 0)?, pairs.select(2, 1)?])
    };
    let ([a1, a2], [b1, b2]) = (halves(a)?, halves(b)?);
    // The states after the second step of each pair.
    let second = log_scan(&a1.add(&a2)?, &log_add_exp(&b1.add(&a2)?, &b2)?)?;
    // The states after the first steps. The first pair has no state before it.
    let before = second.narrow(1, 0, half - 1)?;
    let later = log_add_exp(&before.add(&a1.narrow(1, 1, half - 1)?)?, &b1.narrow(1, 1, half - 1)?)?;
    let first = Tensor::cat(&[&b1.narrow(1, 0, 1)?, &later], 1)?;
    let paired = Tensor::stack(&[&first, &second], 2)?.reshape([batch, 2 * half, hidden])?;
    if steps == 2 * half {
        return Ok(paired);
    }
    let at = |x: &Tensor<B>, t| x.narrow(1, t, 1);
    let last = log_add_exp(&at(&second, half - 1)?.add(&at(a, steps - 1)?)?, &at(b, steps - 1)?)?;
    Tensor::cat(&[&paired, &last], 1)
}
