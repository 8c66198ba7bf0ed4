//! A differentiable op defined outside the library, and checked with finite differences: `cargo run --release --example
//! custom_op`.
//!
//! The op is `clip`, which limits values like `clamp`, but passes the whole gradient ("straight through").

use polygrad::autograd::{CustomOp, gradcheck};
use polygrad::prelude::*;

struct Clip {
    limit: f64,
}

impl<B: Backend> CustomOp<B> for Clip {
    fn name(&self) -> &str {
        "clip"
    }

    fn forward(&self, inputs: &[Tensor<B>]) -> Result<Tensor<B>> {
        inputs[0].clamp(Some(-self.limit), Some(self.limit))
    }

    fn backward(&self, _: &[Tensor<B>], _: &Tensor<B>, grad: &Tensor<B>) -> Result<Vec<Option<Tensor<B>>>> {
        Ok(vec![Some(grad.clone())])
    }
}

/// `x³`, whose gradient rule consists of tensor ops, so that higher-order gradients also work.
struct Cube;

impl<B: Backend> CustomOp<B> for Cube {
    fn name(&self) -> &str {
        "cube"
    }

    fn forward(&self, inputs: &[Tensor<B>]) -> Result<Tensor<B>> {
        inputs[0].pow(3.0)
    }

    fn backward(&self, inputs: &[Tensor<B>], _: &Tensor<B>, grad: &Tensor<B>) -> Result<Vec<Option<Tensor<B>>>> {
        let slope = (inputs[0].square()? * 3.0)?;
        Ok(vec![Some(grad.mul(&slope)?)])
    }
}

fn main() -> Result<()> {
    let device = Device::new("cpu")?;
    let x = Tensor::var("x", Tensor::new([-3.0f32, 0.5, 3.0], &device)?)?;
    let y = Tensor::custom(Clip { limit: 1.0 }, &[&x])?;
    println!("clip(x) = {y}");
    println!("dx      = {}", y.sum_all()?.backward()?.require(&x)?);

    let x = Tensor::new([-1.5, 0.2, 2.0], (&device, DType::F64))?;
    gradcheck(|inputs| Tensor::custom(Cube, &[&inputs[0]]), &[x])?;
    println!("cube passes the numerical check");
    Ok(())
}
