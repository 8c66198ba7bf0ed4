//! Compares gradients with differences of values.

use polygrad_core::{Error, ErrorKind, HostTensor, Result};
use polygrad_tensor::{AnyBackend, BackwardOptions, Tensor, enable_grad, no_grad};

type Any = Tensor<AnyBackend>;

/// The result of a function, and the leaves that get its inputs' gradients, in order.
pub(super) struct Values {
    pub(super) output: Any,
    pub(super) leaves: Vec<Any>,
}

/// Large enough for rounding and small enough for curvature, for numbers of about 1.
const STEP: f64 = 1e-6;
const ABSOLUTE: f64 = 1e-5;
const RELATIVE: f64 = 1e-3;

/// The factor by which a second step is shorter, which shows whether the first one was short enough.
const SHORTER: f64 = 10.0;

/// Compares the gradients of `Σ function(inputs) · weights` with differences of its values, for irregular weights.
///
/// # Errors
/// [`ErrorKind::NoGradient`] with the first element that differs; [`ErrorKind::Unsupported`] if differences are
/// meaningless, since values are infinite or NaN, or jump or bend within a step; and errors of `function`.
pub(super) fn first(function: &dyn Fn(&[Any]) -> Result<Values>, inputs: &[Any]) -> Result<()> {
    let tracked: Vec<Any> = (inputs.iter().cloned().map(Tensor::requires_grad)).collect::<Result<_>>()?;
    let Values { output, leaves } = function(&tracked)?;
    let weights = irregular(&output)?;
    let gradients = match output.is_tracked() {
        true => Some(output.backward_with(&BackwardOptions::default().gradient(&weights))?),
        false => None,
    };
    let slopes = Slopes::new(function, inputs, &output, &weights)?;
    let mut undecided = None;
    for (i, (input, leaf)) in inputs.iter().zip(&leaves).enumerate() {
        let analytical = match gradients.as_ref().and_then(|all| all.get(leaf)) {
            Some(gradient) => gradient.to_f64_vec()?,
            None => vec![0.0; input.numel()],
        };
        for (element, gradient) in analytical.into_iter().enumerate() {
            match slopes.agree(i, element, gradient)? {
                Verdict::Agrees => {}
                Verdict::Differs(slope) => {
                    let what = format!(
                        "the gradient of input {i} at element {element} is {gradient}, differences give {slope}"
                    );
                    return Err(Error::new(ErrorKind::NoGradient, what));
                }
                Verdict::SaysNothing(why) => {
                    undecided = undecided.or(Some(format!("{why} at element {element} of input {i}")))
                }
            }
        }
    }
    match undecided {
        Some(why) => Err(Error::unsupported(format!("{why}, of which differences say nothing"))),
        None => Ok(()),
    }
}

/// [`first`] applied to the gradients.
///
/// # Errors
/// As [`first`].
pub(super) fn second(function: &dyn Fn(&[Any]) -> Result<Values>, inputs: &[Any]) -> Result<()> {
    for wrt in 0..inputs.len() {
        let gradient = |xs: &[Any]| {
            let tracked = |x: &Any| {
                if x.is_tracked() {
                    Ok(x.clone())
                } else {
                    x.clone().requires_grad()
                }
            };
            let xs: Vec<Any> = xs.iter().map(tracked).collect::<Result<_>>()?;
            enable_grad(|| {
                let Values { output, leaves } = function(&xs)?;
                let weights = irregular(&output)?;
                let options = BackwardOptions::default().gradient(&weights).create_graph(true);
                let found = match output.is_tracked() {
                    true => output.backward_with(&options)?.get(&leaves[wrt]).cloned(),
                    false => None,
                };
                let output = found.map_or_else(|| leaves[wrt].zeros_like(), Ok)?;
                Ok(Values { output, leaves })
            })
        };
        first(&gradient, inputs)?;
    }
    Ok(())
}

enum Verdict {
    Agrees,
    Differs(f64),
    SaysNothing(&'static str),
}

struct Slopes<'a> {
    function: &'a dyn Fn(&[Any]) -> Result<Values>,
    inputs: &'a [Any],
    values: Vec<Vec<f64>>,
    weights: Vec<f64>,
    here: f64,
    /// The largest difference of two sums of the values due to rounding, as a slope.
    noise: f64,
}

impl<'a> Slopes<'a> {
    fn new(
        function: &'a dyn Fn(&[Any]) -> Result<Values>,
        inputs: &'a [Any],
        output: &Any,
        weights: &Any,
    ) -> Result<Self> {
        let (weights, outputs) = (weights.to_f64_vec()?, output.to_f64_vec()?);
        let terms = || outputs.iter().zip(&weights).map(|(y, w)| y * w);
        Ok(Self {
            function,
            inputs,
            values: inputs.iter().map(Tensor::to_f64_vec).collect::<Result<_>>()?,
            here: terms().sum(),
            noise: 8.0 * f64::EPSILON * terms().map(f64::abs).sum::<f64>() / STEP,
            weights,
        })
    }

    /// The weighted sum with one element changed.
    fn at(&self, input: usize, element: usize, by: f64) -> Result<f64> {
        let (mut values, mut inputs) = (self.values[input].clone(), self.inputs.to_vec());
        values[element] += by;
        let host = HostTensor::new(inputs[input].shape(), values)?;
        inputs[input] = Tensor::from_host(host, &inputs[input].device())?;
        let moved = no_grad(|| (self.function)(&inputs))?.output.to_f64_vec()?;
        Ok(moved.iter().zip(&self.weights).map(|(y, w)| y * w).sum())
    }

    /// If the slopes on both sides differ, at a kink, everything between them is a valid gradient.
    fn agree(&self, input: usize, element: usize, gradient: f64) -> Result<Verdict> {
        let (above, below) = (self.at(input, element, STEP)?, self.at(input, element, -STEP)?);
        let (right, left) = ((above - self.here) / STEP, (self.here - below) / STEP);
        let slope = (above - below) / (2.0 * STEP);
        if !slope.is_finite() || !self.here.is_finite() {
            return Ok(Verdict::SaysNothing("a value is infinite or no number"));
        }
        let near = |a: f64, b: f64| (a - b).abs() <= ABSOLUTE + RELATIVE * b.abs() + SHORTER * self.noise;
        if near(gradient, slope) {
            return Ok(Verdict::Agrees);
        }
        let (low, high) = (right.min(left), right.max(left));
        let between = low < gradient && gradient < high || near(gradient, low) || near(gradient, high);
        let step = STEP / SHORTER;
        let shorter = (self.at(input, element, step)? - self.at(input, element, -step)?) / (2.0 * step);
        Ok(if !near(shorter, slope) {
            Verdict::SaysNothing("a value jumps or bends within a step")
        } else if between && !near(low, high) {
            Verdict::Agrees
        } else {
            Verdict::Differs(slope)
        })
    }
}

/// Irregular numbers between 0.5 and 1.5, so that a wrong gradient does not cancel.
fn irregular(like: &Any) -> Result<Any> {
    let number = |i: usize| 0.5 + (i as f64 * 0.618_033_988_749_895 + 0.137).fract();
    let values: Vec<f64> = (0..like.numel()).map(number).collect();
    Tensor::from_host(HostTensor::new(like.shape(), values)?, &like.device())
}

#[cfg(test)]
mod tests {
    use polygrad_core::DType;

    use super::*;

    fn check(x: &[f64], f: fn(&Any) -> Result<Any>) -> Result<()> {
        let x = Tensor::from_slice(x, [x.len()], &crate::reference()).unwrap();
        let function = |xs: &[Any]| {
            Ok(Values {
                output: f(&xs[0])?,
                leaves: xs.to_vec(),
            })
        };
        first(&function, &[x])
    }

    #[test]
    fn kinks_pass_with_any_slope_between_and_wrong_gradients_do_not() {
        check(&[0.0, -1.0, 2.0], Tensor::relu).unwrap();
        check(&[0.0, 1.0], Tensor::abs).unwrap();
        check(&[3.0, 3.0, 1.0], |x| x.amax(())).unwrap();
        check(&[0.5, 2.0], Tensor::exp).unwrap();
        let wrong = check(&[0.5, 2.0], |x| x.exp()?.mul(x.detach())).unwrap_err();
        assert_eq!(wrong.kind(), ErrorKind::NoGradient, "{wrong}");
        // At a kink, a gradient beyond the steeper slope is invalid.
        let wrong = check(&[0.0], |x| x.abs()? + ((x - x.detach())? * 2.0)?);
        assert_eq!(wrong.unwrap_err().kind(), ErrorKind::NoGradient);
        let nothing = check(&[1.0, 2.5], |x| x.floor()? + x * 2.0);
        assert_eq!(nothing.unwrap_err().kind(), ErrorKind::Unsupported);
        let nothing = check(&[0.0, 2.5], Tensor::log);
        assert_eq!(nothing.unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(
            irregular(
                &Tensor::zeros([3], &crate::reference())
                    .unwrap()
                    .to_dtype(DType::F64)
                    .unwrap()
            )
            .unwrap()
            .numel(),
            3
        );
    }
}
