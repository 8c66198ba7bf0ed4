//! Calls Burn in the middle of a program on Polygrad, and comes back: `cd examples/burn && cargo run`.
//!
//! Burn's public tensors have a rank and a kind known when the program is compiled; beneath them lie tensors of its CPU engine, which are the
//! ones that the backend `burn` computes with. So each way is a change of wrapping, and nothing is copied.

use burn_tensor::activation::softmax;
use polygrad::burn::burn_flex::{Flex, FlexTensor};
use polygrad::burn::{Burn, BurnTensor};
use polygrad::{DType, Device, Error, Result, Tensor};

/// A tensor of floats as one of Burn's, of rank `D`.
fn to_burn<const D: usize>(x: &Tensor<Burn>) -> Result<burn_tensor::Tensor<D>> {
    if x.rank() != D || x.dtype() != DType::F32 {
        return Err(Error::shape(format!(
            "{}{} is no tensor of f32 of rank {D}",
            x.dtype(),
            x.shape()
        )));
    }
    let inner = FlexTensor::from(x.inner().clone());
    Ok(burn_tensor::Tensor::from_primitive::<Flex>(inner))
}

/// A tensor of Burn's CPU engine as one of Polygrad's.
fn from_burn<const D: usize>(x: burn_tensor::Tensor<D>) -> Result<Tensor<Burn>> {
    let inner = x.try_into_primitive::<Flex>().map_err(|e| {
        Error::invalid(format!("this tensor is not one of Burn's CPU engine: {e:?}"))
            .with_hint("take it out of autodiff with inner(), and to Device::flex()")
    })?;
    BurnTensor::try_from(inner).map(Tensor::from_inner)
}

/// Where a tensor's values lie.
fn address(x: &Tensor<Burn>) -> Result<*const u8> {
    Ok(x.to_host()?.bytes().as_ptr())
}

fn main() -> Result<()> {
    let device = Device::<Burn>::default();
    let x = Tensor::new([[1.0f32, 2.0, 3.0], [0.0, 0.0, 0.0]], &device)?;
    let there = to_burn::<2>(&x)?;
    let back = from_burn(there.clone())?;
    println!("there and back without a copy: {}", address(&x)? == address(&back)?);
    let y = from_burn(softmax(there, 1))?;
    println!("Burn's softmax\n{y}\nours\n{}", x.softmax(1)?);
    let difference = (y - x.softmax(1)?)?.abs()?.sum_all()?.item()?;
    if address(&x)? != address(&back)? || difference > 1e-6 {
        return Err(Error::invalid(format!(
            "they differ by {difference}, or something was copied"
        )));
    }
    Ok(())
}
