//! Checks of gradients against finite differences.

use polygrad_core::{Backend, DType, Error, ErrorKind, HostTensor, Result};

use crate::{BackwardOptions, Tensor, no_grad};

/// The gradient of `Σ function(inputs) · cotangent` wrt input `wrt`, from central differences with a
/// step of `eps`. Use f64.
///
/// # Errors
/// Those of `function`; and when there is no such input, or its dtype is not a float.
pub fn numerical_gradient<B: Backend>(
    function: impl Fn(&[Tensor<B>]) -> Result<Tensor<B>>,
    inputs: &[Tensor<B>],
    wrt: usize,
    cotangent: &Tensor<B>,
    eps: f64,
) -> Result<Tensor<B>> {
    let Some(input) = inputs.get(wrt) else {
        return Err(Error::out_of_range(format!(
            "there is no input {wrt} among {}",
            inputs.len()
        )));
    };
    if !input.dtype().is_float() {
        return Err(Error::dtype(format!("input {wrt} is {}, no float", input.dtype())));
    }
    let (shape, dtype, device) = (input.shape(), input.dtype(), input.device());
    let weights = cotangent.to_f64_vec()?;
    let base = input.to_f64_vec()?;
    let value_at = |values: &[f64]| -> Result<f64> {
        let host = HostTensor::new(shape, values.to_vec())?.cast(dtype);
        let mut moved = inputs.to_vec();
        moved[wrt] = Tensor::from_host(host, &device)?;
        let output = no_grad(|| function(&moved))?.to_f64_vec()?;
        if output.len() != weights.len() {
            return Err(Error::shape(format!(
                "the function gives {} elements, the cotangent has {}",
                output.len(),
                weights.len()
            )));
        }
        Ok(output.iter().zip(&weights).map(|(y, w)| y * w).sum())
    };
    let mut values = base.clone();
    let mut gradient = Vec::with_capacity(base.len());
    for (i, &x) in base.iter().enumerate() {
        values[i] = x + eps;
        let above = value_at(&values)?;
        values[i] = x - eps;
        let below = value_at(&values)?;
        values[i] = x;
        gradient.push((above - below) / (2.0 * eps));
    }
    Tensor::from_host(HostTensor::new(shape, gradient)?.cast(dtype), &device)
}

/// Checks the gradients of `function` wrt all float inputs against central differences, as `torch.autograd.gradcheck`
/// does: step 1e-6, tolerance 1e-5 absolute plus 1e-3 relative. The gradient of the output consists of fixed irregular
/// numbers.
///
/// # Errors
/// [`ErrorKind::NoGradient`] with the first element that differs; [`ErrorKind::DType`] when a float input is not f64;
/// and those of `function`.
pub fn gradcheck<B: Backend>(function: impl Fn(&[Tensor<B>]) -> Result<Tensor<B>>, inputs: &[Tensor<B>]) -> Result<()> {
    check(function, inputs, 1e-6, 1e-5, 1e-3)
}

/// Checks gradients of second order: [`gradcheck`] of the gradients themselves.
///
/// # Errors
/// As [`gradcheck`].
pub fn gradgradcheck<B: Backend>(
    function: impl Fn(&[Tensor<B>]) -> Result<Tensor<B>>,
    inputs: &[Tensor<B>],
) -> Result<()> {
    for wrt in 0..inputs.len() {
        if !inputs[wrt].dtype().is_float() {
            continue;
        }
        let gradient_of = |xs: &[Tensor<B>]| -> Result<Tensor<B>> {
            // A tracked input stays the leaf that the outer check differentiates; any other becomes a new leaf.
            let mut xs = xs.to_vec();
            for x in &mut xs {
                if x.dtype().is_float() && !x.is_tracked() {
                    *x = x.clone().requires_grad()?;
                }
            }
            let xs = xs;
            crate::enable_grad(|| {
                let output = function(&xs)?;
                let cotangent = irregular(&output)?;
                let options = BackwardOptions::default()
                    .gradient(&cotangent)
                    .create_graph(true)
                    .capture(&xs[wrt]);
                let gradients = output.backward_with(&options)?;
                match gradients.get(&xs[wrt]) {
                    Some(gradient) => Ok(gradient.clone()),
                    None => xs[wrt].zeros_like(),
                }
            })
        };
        check(gradient_of, inputs, 1e-6, 1e-5, 1e-3)?;
    }
    Ok(())
}

fn check<B: Backend>(
    function: impl Fn(&[Tensor<B>]) -> Result<Tensor<B>>,
    inputs: &[Tensor<B>],
    eps: f64,
    absolute: f64,
    relative: f64,
) -> Result<()> {
    let mut leaves = Vec::with_capacity(inputs.len());
    for input in inputs {
        let leaf = match input.dtype() {
            DType::F64 => input.clone().requires_grad()?,
            dtype if dtype.is_float() => {
                return Err(
                    Error::dtype(format!("an input is {dtype}: differences need the precision of f64"))
                        .with_op("gradcheck")
                        .with_hint("convert it with to_dtype(DType::F64)"),
                );
            }
            _ => input.detach(),
        };
        leaves.push(leaf);
    }
    let output = function(&leaves)?;
    let cotangent = irregular(&output)?;
    let gradients = if output.is_tracked() {
        Some(output.backward_with(&BackwardOptions::default().gradient(&cotangent))?)
    } else {
        None
    };
    for (i, leaf) in leaves.iter().enumerate().filter(|(_, leaf)| leaf.is_tracked()) {
        let numerical = numerical_gradient(&function, inputs, i, &cotangent, eps)?.to_f64_vec()?;
        let analytical = match gradients.as_ref().and_then(|g| g.get(leaf)) {
            Some(gradient) => gradient.to_f64_vec()?,
            None => vec![0.0; numerical.len()],
        };
        for (element, (&a, &n)) in analytical.iter().zip(&numerical).enumerate() {
            let difference = (a - n).abs();
            if difference.is_nan() || difference > absolute + relative * n.abs() {
                return Err(Error::new(
                    ErrorKind::NoGradient,
                    format!("the gradient of input {i} at element {element} is {a}, differences give {n}"),
                )
                .with_op("gradcheck"));
            }
        }
    }
    Ok(())
}

/// Numbers between 0.5 and 1.5 without a pattern that a wrong gradient could share.
fn irregular<B: Backend>(like: &Tensor<B>) -> Result<Tensor<B>> {
    let values: Vec<f64> = (0..like.numel())
        .map(|i| 0.5 + (i as f64 * 0.618_033_988_749_895 + 0.137).fract())
        .collect();
    Tensor::from_host(
        HostTensor::new(like.shape(), values)?.cast(like.dtype()),
        &like.device(),
    )
}
