//! MinGRU: computing all steps at once gives the same as one after another.

use crate::common::randn;
use polygrad_nn::{MinGRU, Module};
use polygrad_tensor::{Backend, DType, Device, Tensor, manual_seed, no_grad};

on_backends!(
    a_sequence_is_its_steps,
    lengths_of_all_kinds,
    long_sequences_keep_their_precision,
    gradients_are_those_of_the_steps
);

/// A layer in f64 whose gates are open, shut, or in between, depending on the size of its input.
fn layer<B: Backend>(device: &Device<B>) -> MinGRU<B> {
    manual_seed(3);
    let layer = MinGRU::new(3, 4, device).unwrap();
    layer.to_dtype(DType::F64).unwrap();
    layer
}

/// The states after each step, one step at a time: `[N, T, H]`.
fn stepwise<B: Backend>(layer: &MinGRU<B>, x: &Tensor<B>, h: &Tensor<B>) -> Tensor<B> {
    let mut states = vec![h.clone()];
    for x in x.unbind(1).unwrap() {
        states.push(layer.step(&x, states.last().unwrap()).unwrap());
    }
    Tensor::stack(&states[1..].iter().collect::<Vec<_>>(), 1).unwrap()
}

/// The largest difference as a share of the number itself, or of 1e-30 if that is larger.
fn off<B: Backend>(found: &Tensor<B>, expected: &Tensor<B>) -> f64 {
    assert_eq!(found.dims(), expected.dims());
    let pairs = found
        .to_f64_vec()
        .unwrap()
        .into_iter()
        .zip(expected.to_f64_vec().unwrap());
    pairs
        .map(|(a, b)| {
            if a.is_finite() {
                (a - b).abs() / b.abs().max(1e-30)
            } else {
                f64::INFINITY
            }
        })
        .fold(0.0, f64::max)
}

fn a_sequence_is_its_steps<B: Backend>(device: &Device<B>) {
    let layer = layer(device);
    // Without a given state it begins with zeros; a state may have either sign.
    let zeros = Tensor::full([2, 4], 0.0, (device, DType::F64)).unwrap();
    for (given, h) in [(false, zeros), (true, randn(&[2, 4], device))] {
        for size in [0.1, 1.0, 10.0, 100.0] {
            let x = (randn(&[2, 1000, 3], device) * size).unwrap();
            let (y, last) = no_grad(|| layer.forward(&x, given.then_some(&h))).unwrap();
            let expected = no_grad(|| stepwise(&layer, &x, &h));
            // States of different signs cancel, so that only their absolute error is small.
            let shift = if given { 10.0 } else { 0.0 };
            let wrong = off(&(&y + shift).unwrap(), &(&expected + shift).unwrap());
            assert!(wrong < 1e-11, "inputs of size {size}: {wrong}");
            assert_eq!(
                last.to_f64_vec().unwrap(),
                y.select(1, -1).unwrap().to_f64_vec().unwrap()
            );
        }
    }
}

fn lengths_of_all_kinds<B: Backend>(device: &Device<B>) {
    let layer = layer(device);
    for steps in 1..20 {
        let (x, h) = (randn(&[1, steps, 3], device), randn(&[1, 4], device));
        let (y, _) = layer.forward(&x, Some(&h)).unwrap();
        let difference = (y - &stepwise(&layer, &x, &h)).unwrap().abs().unwrap();
        let largest = difference.to_f64_vec().unwrap().into_iter().fold(0.0, f64::max);
        assert!(largest < 1e-13, "{steps} steps: {largest}");
    }
}

/// In f32 a thousand steps are as exact as the gates themselves: a global sum of logarithms would lose three digits.
fn long_sequences_keep_their_precision<B: Backend>(device: &Device<B>) {
    let layer = layer(device);
    for size in [0.1, 1.0, 10.0, 100.0] {
        let x = (randn(&[2, 1000, 3], device) * size).unwrap();
        let x = x.to_dtype(DType::F32).unwrap();
        layer.to_dtype(DType::F32).unwrap();
        let (y, _) = no_grad(|| layer.forward(&x, None)).unwrap();
        layer.to_dtype(DType::F64).unwrap();
        let (exact, _) = no_grad(|| layer.forward(&x.to_dtype(DType::F64).unwrap(), None)).unwrap();
        // The gates are sums of products up to some tens times the input's size, and enter by their exponentials.
        let wrong = off(&y.to_dtype(DType::F64).unwrap(), &exact);
        assert!(wrong < 1e-5 * f64::max(size, 1.0), "inputs of size {size}: {wrong}");
    }
}

fn gradients_are_those_of_the_steps<B: Backend>(device: &Device<B>) {
    let layer = layer(device);
    for (size, steps) in [(1.0, 7), (20.0, 50)] {
        let x = (randn(&[2, steps, 3], device) * size).unwrap().requires_grad().unwrap();
        let h = randn(&[2, 4], device).requires_grad().unwrap();
        let weight = randn(&[2, steps, 4], device);
        let of = |y: &Tensor<B>| {
            let gradients = y.mul(&weight).unwrap().sum_all().unwrap().backward().unwrap();
            let mut all = vec![
                gradients.require(&x).unwrap().clone(),
                gradients.require(&h).unwrap().clone(),
            ];
            all.extend(layer.parameters().iter().map(|p| gradients.require(p).unwrap().clone()));
            all
        };
        let found = of(&layer.forward(&x, Some(&h)).unwrap().0);
        let expected = of(&stepwise(&layer, &x, &h));
        assert_eq!(found.len(), 6);
        for (found, expected) in found.iter().zip(&expected) {
            let largest = expected
                .to_f64_vec()
                .unwrap()
                .into_iter()
                .fold(1.0, |m: f64, v| m.max(v.abs()));
            let difference = (found - expected).unwrap().abs().unwrap().to_f64_vec().unwrap();
            assert!(difference.iter().all(|d| *d < 1e-10 * largest), "{difference:?}");
        }
    }
}
