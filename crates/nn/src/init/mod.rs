//! Initial values of parameters.

mod orthogonal;
mod skip;

use polygrad_core::{RandomKey, random_host};
use polygrad_tensor::{
    Backend, DType, Device, Distribution, Error, GeneratorState, HostTensor, IntoShape, Result, Shape, Tensor,
};

pub use skip::skip_init;
pub(crate) use skip::skips;

use crate::Param;

/// Initial values. Random ones are drawn from the thread's generator ([`manual_seed`](polygrad_tensor::manual_seed)),
/// and are the same on every backend.
///
/// ```
/// use polygrad_nn::{Fan, Init};
///
/// let he = Init::KaimingNormal { gain: Init::gain_leaky_relu(0.0), fan: Fan::In };
/// assert_eq!(he, Init::kaiming_normal());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Init {
    /// All of one value.
    Constant(f64),
    /// Uniform on `[low, high)`.
    Uniform {
        /// Smallest value.
        low: f64,
        /// Upper bound.
        high: f64,
    },
    /// Normal.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        std: f64,
    },
    /// Normal, without the values outside `[low, high]`, which are absolute bounds.
    TruncNormal {
        /// Mean, before truncation.
        mean: f64,
        /// Standard deviation, before truncation.
        std: f64,
        /// Smallest value.
        low: f64,
        /// Largest value.
        high: f64,
    },
    /// Uniform on `±gain · √(3 / fan)`.
    ///
    /// Source: He et al., "Delving deep into rectifiers" (2015).
    KaimingUniform {
        /// The gain of the activation that follows.
        gain: f64,
        /// Which fan.
        fan: Fan,
    },
    /// Normal with standard deviation `gain / √fan`. Source as for [`Init::KaimingUniform`].
    KaimingNormal {
        /// The gain of the activation that follows.
        gain: f64,
        /// Which fan.
        fan: Fan,
    },
    /// Uniform on `±gain · √(6 / (fan_in + fan_out))`.
    ///
    /// Source: Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks" (2010).
    XavierUniform {
        /// The gain of the activation that follows.
        gain: f64,
    },
    /// Normal with standard deviation `gain · √(2 / (fan_in + fan_out))`. Source as for [`Init::XavierUniform`].
    XavierNormal {
        /// The gain of the activation that follows.
        gain: f64,
    },
    /// Orthonormal rows (columns if there are more rows than columns), times `gain`. Axes after the first count as
    /// columns.
    ///
    /// Source: Saxe, McClelland and Ganguli, "Exact solutions to the nonlinear dynamics of learning in deep linear
    /// neural networks" (2013).
    Orthogonal {
        /// Factor of all values.
        gain: f64,
    },
}

/// The number of connections over which a Kaiming initialisation keeps the variance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fan {
    /// Inputs of each output: keeps the forward pass's variance.
    #[default]
    In,
    /// Outputs of each input: keeps the backward pass's variance.
    Out,
}

impl Init {
    /// All 0.
    pub const ZEROS: Self = Self::Constant(0.0);
    /// All 1.
    pub const ONES: Self = Self::Constant(1.0);

    /// Kaiming, uniform, over the inputs, for ReLU.
    pub fn kaiming_uniform() -> Self {
        Self::KaimingUniform {
            gain: Self::gain_leaky_relu(0.0),
            fan: Fan::In,
        }
    }

    /// Kaiming, normal, over the inputs, for ReLU.
    pub fn kaiming_normal() -> Self {
        Self::KaimingNormal {
            gain: Self::gain_leaky_relu(0.0),
            fan: Fan::In,
        }
    }

    /// Xavier, uniform, with gain 1.
    pub const fn xavier_uniform() -> Self {
        Self::XavierUniform { gain: 1.0 }
    }

    /// Xavier, normal, with gain 1.
    pub const fn xavier_normal() -> Self {
        Self::XavierNormal { gain: 1.0 }
    }

    /// Orthogonal with a gain.
    pub const fn orthogonal(gain: f64) -> Self {
        Self::Orthogonal { gain }
    }

    /// Truncated normal with mean 0, within two standard deviations.
    pub const fn trunc_normal(std: f64) -> Self {
        Self::TruncNormal {
            mean: 0.0,
            std,
            low: -2.0 * std,
            high: 2.0 * std,
        }
    }

    /// The gain of a leaky ReLU: `√(2 / (1 + slope²))`; a slope of 0 is ReLU's.
    pub fn gain_leaky_relu(slope: f64) -> f64 {
        (2.0 / (1.0 + slope * slope)).sqrt()
    }

    /// The gain of tanh: 5/3.
    pub const GAIN_TANH: f64 = 5.0 / 3.0;

    /// A tensor of these values.
    ///
    /// # Errors
    /// When the shape has too few axes for a fan or a matrix, the arguments make no sense, or the dtype is no float.
    pub fn tensor<B: Backend>(self, shape: impl IntoShape, dtype: DType, device: &Device<B>) -> Result<Tensor<B>> {
        let shape = shape.into_shape()?;
        if !dtype.is_float() {
            return Err(Error::dtype(format!("parameters are floats, not {dtype}")).with_op("init"));
        }
        self.draw(shape, dtype, device).map_err(|e| e.with_op("init"))
    }

    /// A parameter of these values, f32.
    ///
    /// # Errors
    /// As [`Init::tensor`].
    #[track_caller]
    pub fn param<B: Backend>(self, shape: impl IntoShape, device: &Device<B>) -> Result<Param<B>> {
        Param::new(self.tensor(shape, DType::F32, device)?)
    }

    /// [`Init::param`] if `there` is true, else `None`.
    #[track_caller]
    pub(crate) fn param_if<B: Backend>(
        self,
        there: bool,
        shape: impl IntoShape,
        device: &Device<B>,
    ) -> Result<Option<Param<B>>> {
        if !there {
            return Ok(None);
        }
        self.param(shape, device).map(Some)
    }

    fn draw<B: Backend>(self, shape: Shape, dtype: DType, device: &Device<B>) -> Result<Tensor<B>> {
        let random = |distribution| Tensor::random(shape, distribution, (device, dtype));
        let normal = |std| random(Distribution::Normal { mean: 0.0, std });
        let uniform = |bound: f64| {
            random(Distribution::Uniform {
                low: -bound,
                high: bound,
            })
        };
        match self {
            _ if skips() => {
                let value = if let Self::Constant(value) = self {
                    value
                } else {
                    f64::NAN
                };
                Tensor::full([0_usize; 0], value, (device, dtype))?.expand(shape)
            }
            Self::Constant(value) => Tensor::full(shape, value, (device, dtype)),
            Self::Uniform { low, high } => random(Distribution::Uniform { low, high }),
            Self::Normal { mean, std } => random(Distribution::Normal { mean, std }),
            Self::TruncNormal { mean, std, low, high } => {
                let values = trunc_normal(shape.numel(), mean, std, low, high)?;
                Tensor::from_host(HostTensor::new(shape, values)?.cast(dtype), device)
            }
            Self::KaimingUniform { gain, fan } => uniform(gain * (3.0 / fan.of(&shape)?).sqrt()),
            Self::KaimingNormal { gain, fan } => normal(gain / fan.of(&shape)?.sqrt()),
            Self::XavierUniform { gain } => uniform(gain * (6.0 / both_fans(&shape)?).sqrt()),
            Self::XavierNormal { gain } => normal(gain * (2.0 / both_fans(&shape)?).sqrt()),
            Self::Orthogonal { gain } => {
                let values = orthogonal::orthogonal(&shape, gain)?;
                Tensor::from_host(HostTensor::new(shape, values)?.cast(dtype), device)
            }
        }
    }
}

impl Fan {
    /// At least 1, so that layers without inputs or outputs can be made.
    fn of(self, shape: &Shape) -> Result<f64> {
        if shape.rank() < 2 {
            return Err(Error::shape(format!(
                "the fans of a tensor of shape {shape} are not defined: it needs two axes, outputs and inputs"
            )));
        }
        let window: usize = shape[2..].iter().product();
        let fan = match self {
            Self::In => shape[1] * window,
            Self::Out => shape[0] * window,
        };
        Ok(fan.max(1) as f64)
    }
}

fn both_fans(shape: &Shape) -> Result<f64> {
    Ok(Fan::In.of(shape)? + Fan::Out.of(shape)?)
}

/// Draws again until the number lies within the bounds.
fn trunc_normal(count: usize, mean: f64, std: f64, low: f64, high: f64) -> Result<Vec<f64>> {
    let (from, to) = ((low - mean) / std, (high - mean) / std);
    // The share of draws that land in [from, to] is at least about this; below it redrawing would take forever.
    let reachable = std > 0.0 && from < to && from < 4.0 && to > -4.0 && to - from > 1e-3;
    if !reachable {
        return Err(Error::invalid(format!(
            "a normal distribution of mean {mean} and standard deviation {std} has next to nothing in [{low}, {high}]"
        ))
        .with_hint("the bounds are in absolute terms, not in standard deviations"));
    }
    let mut values = Vec::with_capacity(count);
    while values.len() < count {
        let drawn = host_normal(count - values.len())?;
        values.extend(
            drawn
                .into_iter()
                .filter(|z| (from..=to).contains(z))
                .map(|z| mean + std * z),
        );
    }
    Ok(values)
}

/// Standard normal numbers from the thread's generator, in f64.
fn host_normal(count: usize) -> Result<Vec<f64>> {
    let GeneratorState { seed, offset } = GeneratorState::current();
    let after = offset.wrapping_add(count as u64);
    GeneratorState { seed, offset: after }.restore();
    let distribution = Distribution::Normal { mean: 0.0, std: 1.0 };
    Ok(random_host(
        Shape::from([count]),
        distribution,
        DType::F64,
        RandomKey { seed, offset },
    )?
    .to_f64_vec())
}
