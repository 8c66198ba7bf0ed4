//! Single ops.

use candle_core::{D, Device, Result, Tensor, Var};
use candle_nn::ops;
use polygrad_peer::data::{TARGET, noise};
use polygrad_peer::{Step, call};

use crate::training::input;

fn other(shape: &[usize]) -> Result<Tensor> {
    Tensor::from_vec(noise(shape.iter().product(), TARGET), shape, &Device::Cpu)
}

pub fn dispatch(which: &str) -> Result<Step> {
    let (a, b) = (input(&[64])?, other(&[64])?);
    let tracked = Var::from_tensor(&a)?.into_inner();
    Ok(match which {
        "add" => call(move || &a + &b),
        "tracked" => call(move || &tracked + &b),
        _ => call(move || (&tracked + &b)?.sum_all()?.backward()),
    })
}

pub fn elementwise(op: &str, size: usize) -> Result<Step> {
    let shape = [size / 1024, 1024];
    let x = input(&shape)?;
    Ok(match op {
        "add" => {
            let other = other(&shape)?;
            call(move || &x + &other)
        }
        "exp" => call(move || x.exp()),
        "tanh" => call(move || x.tanh()),
        "gelu" => call(move || x.gelu_erf()),
        "layer_norm" => {
            let weight = Tensor::ones(1024, x.dtype(), &Device::Cpu)?;
            let bias = weight.zeros_like()?;
            call(move || ops::layer_norm(&x, &weight, &bias, 1e-5))
        }
        "softmax" => call(move || ops::softmax_last_dim(&x)),
        "sum" => call(move || x.sum_all()),
        _ => candle_core::bail!("{op} on {:?} is not written", D::Minus1),
    })
}

pub fn gemm([m, n, k]: [usize; 3]) -> Result<Step> {
    let (a, b) = (input(&[m, k])?, other(&[k, n])?);
    Ok(call(move || a.matmul(&b)))
}
