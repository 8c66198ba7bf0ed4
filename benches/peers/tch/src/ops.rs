//! Single ops.

use polygrad_peer::Step;
use polygrad_peer::data::{TARGET, noise};
use tch::Tensor;

use crate::training::{input, tensor};

fn other(shape: &[usize]) -> Tensor {
    tensor(&noise(shape.iter().product(), TARGET), shape)
}

fn call<T>(mut call: impl FnMut() -> T + 'static) -> Step {
    Box::new(move || {
        std::hint::black_box(call());
        Ok(None)
    })
}

pub fn dispatch(which: &str) -> Step {
    let (a, b) = (input(&[64]).set_requires_grad(which != "add"), other(&[64]));
    match which {
        "backward" => call(move || {
            let loss = (&a + &b).sum(None);
            Tensor::run_backward(&[loss], &[&a], false, false)
        }),
        _ => call(move || &a + &b),
    }
}

pub fn elementwise(op: &str, size: usize) -> Option<Step> {
    let shape = [size / 1024, 1024];
    let x = input(&shape);
    Some(match op {
        "add" => {
            let other = other(&shape);
            call(move || &x + &other)
        }
        "exp" => call(move || x.exp()),
        "tanh" => call(move || x.tanh()),
        "gelu" => call(move || x.gelu("none")),
        "layer_norm" => {
            let weight = Tensor::ones([1024], (x.kind(), x.device()));
            let bias = weight.zeros_like();
            call(move || x.layer_norm([1024], Some(&weight), Some(&bias), 1e-5, false))
        }
        "softmax" => call(move || x.softmax(-1, x.kind())),
        "sum" => call(move || x.sum(None)),
        _ => return None,
    })
}

pub fn gemm([m, n, k]: [usize; 3]) -> Step {
    let (a, b) = (input(&[m, k]), other(&[k, n]));
    call(move || a.matmul(&b))
}
