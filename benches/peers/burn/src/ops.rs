//! Single ops, on the device without gradients unless they are needed.

use burn_tensor::activation::{gelu, softmax};
use burn_tensor::{Device, Tensor, TensorData};
use polygrad_peer::Step;
use polygrad_peer::data::{TARGET, noise};

use crate::training::{Weights, device, input};

fn other<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(noise(shape.iter().product(), TARGET), shape), device)
}

fn call<T>(mut call: impl FnMut() -> T + 'static) -> Step {
    Box::new(move || {
        std::hint::black_box(call());
        Ok(None)
    })
}

pub fn dispatch(which: &str) -> Step {
    let device = match which {
        "add" => Device::flex(),
        _ => device(),
    };
    let (a, b) = (input([64], &device), other([64], &device));
    match which {
        "add" => call(move || a.clone() + b.clone()),
        "tracked" => {
            let a = a.require_grad();
            call(move || a.clone() + b.clone())
        }
        _ => {
            let a = a.require_grad();
            call(move || (a.clone() + b.clone()).sum().backward())
        }
    }
}

pub fn elementwise(op: &str, size: usize) -> Option<Step> {
    let device = Device::flex();
    let shape = [size / 1024, 1024];
    let x = input(shape, &device);
    Some(match op {
        "add" => {
            let other = other(shape, &device);
            call(move || x.clone() + other.clone())
        }
        "exp" => call(move || x.clone().exp()),
        "tanh" => call(move || x.clone().tanh()),
        "gelu" => call(move || gelu(x.clone())),
        "layer_norm" => {
            let norm = Weights::new(device).layer_norm(1024);
            call(move || norm.forward(x.clone()))
        }
        "softmax" => call(move || softmax(x.clone(), 1)),
        "sum" => call(move || x.clone().sum()),
        _ => return None,
    })
}

pub fn gemm([m, n, k]: [usize; 3]) -> Step {
    let device = Device::flex();
    let (a, b) = (input([m, k], &device), other([k, n], &device));
    call(move || a.clone().matmul(b.clone()))
}
