//! Gradient clipping.

use polygrad_tensor::{Backend, Error, Gradients, Result, Tensor, no_grad};

/// Scales all gradients of a backward pass so that their total norm is at most `max_norm`; returns the norm before. As
/// PyTorch's `clip_grad_norm_`: the factor is `max_norm / (norm + 1e-6)` if that is below 1.
///
/// # Errors
/// When the norm is not finite, naming the gradients that are not, or `max_norm` is negative or NaN; the gradients are
/// then unchanged. If the device fails during scaling, some gradients are scaled and some are not.
pub fn clip_grad_norm<B: Backend>(gradients: &mut Gradients<B>, max_norm: f64) -> Result<f64> {
    check_bound("max_norm", max_norm)?;
    no_grad(|| {
        // Of tensors of one dtype on one device, mostly all.
        let mut groups: Vec<Vec<&B::Tensor>> = Vec::new();
        for (_, gradient) in gradients.iter() {
            let x = gradient.inner();
            let alike = |group: &&mut Vec<&B::Tensor>| B::dtype(group[0]) == B::dtype(x) && B::same_device(group[0], x);
            match groups.iter_mut().find(alike) {
                Some(group) => group.push(x),
                None => groups.push(vec![x]),
            }
        }
        let mut total = 0.0;
        for group in &groups {
            let sum = B::square_sum(group).map_err(|e| e.with_op("clip_grad_norm"))?;
            total += Tensor::<B>::from_inner(sum).item()?;
        }
        let norm = total.sqrt();
        if !norm.is_finite() {
            return Err(not_finite(gradients, norm)?);
        }
        let factor = max_norm / (norm + 1e-6);
        if factor < 1.0 {
            for gradient in gradients.iter_mut() {
                let scaled = B::mul_scalar(gradient.inner(), factor).map_err(|e| e.with_op("clip_grad_norm"))?;
                *gradient = Tensor::from_inner(scaled);
            }
        }
        Ok(norm)
    })
}

/// Clamps every element of all gradients of a backward pass to `[-max_value, max_value]`; NaN stays NaN.
///
/// # Errors
/// When `max_value` is negative or NaN (the gradients are then unchanged), or the device fails (then some gradients are
/// clipped and some are not).
pub fn clip_grad_value<B: Backend>(gradients: &mut Gradients<B>, max_value: f64) -> Result<()> {
    check_bound("max_value", max_value)?;
    no_grad(|| {
        for gradient in gradients.iter_mut() {
            *gradient = gradient.clamp(Some(-max_value), Some(max_value))?;
        }
        Ok(())
    })
}

fn check_bound(name: &str, bound: f64) -> Result<()> {
    if bound >= 0.0 {
        return Ok(());
    }
    Err(Error::invalid(format!("{name} = {bound} is no bound")).with_op("clip_grad"))
}

/// The error that names the gradients that are not finite. Returns `Err` if the device fails.
#[cold]
fn not_finite<B: Backend>(gradients: &Gradients<B>, norm: f64) -> Result<Error> {
    let mut bad = Vec::new();
    for (name, gradient) in gradients.iter() {
        if gradient.to_f64_vec()?.iter().any(|x| !x.is_finite()) {
            bad.push(name.unwrap_or("(unnamed)"));
        }
    }
    let which = if bad.is_empty() {
        "it overflows".to_owned()
    } else {
        format!("not finite: {}", bad.join(", "))
    };
    Ok(Error::invalid(format!("the gradients' norm is {norm}; {which}"))
        .with_op("clip_grad_norm")
        .with_hint("lower the learning rate, or look for a division by zero or a logarithm of zero in the loss"))
}
