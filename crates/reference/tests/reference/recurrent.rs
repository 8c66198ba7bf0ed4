//! Recurrent cells against PyTorch's formulas.

use polygrad_core::{Activation, Backend, Shape, SliceRange, UnaryOp};
use polygrad_reference::ReferenceTensor as Tensor;

use crate::tools::{R, assert_close, dims, normal, reals};

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[test]
fn lstm_cell() {
    let (batch, hidden) = (3, 4);
    let (gates, cell) = (normal(&[batch, 4 * hidden], 1), normal(&[batch, hidden], 2));
    let (g, c) = (reals(&gates), reals(&cell));
    let (mut new_hidden, mut new_cell) = (Vec::new(), Vec::new());
    for n in 0..batch {
        for j in 0..hidden {
            let gate = |k: usize| g[n * 4 * hidden + k * hidden + j];
            let state = sigmoid(gate(1)) * c[n * hidden + j] + sigmoid(gate(0)) * gate(2).tanh();
            new_cell.push(state);
            new_hidden.push(sigmoid(gate(3)) * state.tanh());
        }
    }
    let (h, c) = R::lstm_cell(&gates, &cell).unwrap();
    assert_eq!((dims(&h), dims(&c)), (vec![batch, hidden], vec![batch, hidden]));
    assert_close(&reals(&h), &new_hidden, 1e-15);
    assert_close(&reals(&c), &new_cell, 1e-15);
}

#[test]
fn gru_cell() {
    let (batch, hidden) = (3, 4);
    let (from_x, from_h) = (normal(&[batch, 3 * hidden], 1), normal(&[batch, 3 * hidden], 2));
    let state = normal(&[batch, hidden], 3);
    let (x, h, s) = (reals(&from_x), reals(&from_h), reals(&state));
    let mut expected = Vec::new();
    for n in 0..batch {
        for j in 0..hidden {
            let at = |k: usize| n * 3 * hidden + k * hidden + j;
            let reset = sigmoid(x[at(0)] + h[at(0)]);
            let update = sigmoid(x[at(1)] + h[at(1)]);
            let new = (x[at(2)] + reset * h[at(2)]).tanh();
            expected.push((1.0 - update) * new + update * s[n * hidden + j]);
        }
    }
    let y = R::gru_cell(&from_x, &from_h, &state).unwrap();
    assert_eq!(dims(&y), [batch, hidden]);
    assert_close(&reals(&y), &expected, 1e-14);
}

/// The input at step `t`, `[N, C]`.
fn step(x: &Tensor, t: usize) -> Tensor {
    let shape = R::shape(x);
    let ranges = [
        SliceRange::new(t, 1, 1),
        SliceRange::full(shape[1]),
        SliceRange::full(shape[2]),
    ];
    R::reshape(&R::slice(x, &ranges).unwrap(), Shape::from([shape[1], shape[2]])).unwrap()
}

#[test]
fn sequences_are_their_steps() {
    let (steps, rows, inputs, width) = (3, 2, 4, 5);
    let x = normal(&[steps, rows, inputs], 1);
    let (h0, c0) = (normal(&[rows, width], 2), normal(&[rows, width], 3));
    let params = |gates: usize| {
        [
            normal(&[gates * width, inputs], 4),
            normal(&[gates * width, width], 5),
            normal(&[gates * width], 6),
            normal(&[gates * width], 7),
        ]
    };
    for reverse in [false, true] {
        let order: Vec<usize> = if reverse {
            (0..steps).rev().collect()
        } else {
            (0..steps).collect()
        };
        let check = |outputs: &Tensor, expected: &[Tensor]| {
            assert_eq!(dims(outputs), [steps, rows, width]);
            for (&t, expected) in order.iter().zip(expected) {
                assert_close(&reals(&step(outputs, t)), &reals(expected), 1e-14);
            }
        };
        let shares = |[wi, wh, bi, bh]: &[Tensor; 4], t: usize, h: &Tensor| {
            (
                R::linear(&step(&x, t), wi, Some(bi), None).unwrap(),
                R::linear(h, wh, Some(bh), None).unwrap(),
            )
        };

        let p = params(4);
        let (outputs, h, c) = R::lstm(&x, &h0, &c0, [&p[0], &p[1]], Some([&p[2], &p[3]]), reverse).unwrap();
        let (mut state, mut expected) = ((h0.clone(), c0.clone()), Vec::new());
        for &t in &order {
            let (input, own) = shares(&p, t, &state.0);
            state = R::lstm_cell(&R::add(&input, &own).unwrap(), &state.1).unwrap();
            expected.push(state.0.clone());
        }
        check(&outputs, &expected);
        assert_close(&reals(&h), &reals(&state.0), 1e-14);
        assert_close(&reals(&c), &reals(&state.1), 1e-14);

        let p = params(3);
        let (outputs, h) = R::gru(&x, &h0, [&p[0], &p[1]], Some([&p[2], &p[3]]), true, reverse).unwrap();
        let (mut state, mut expected) = (h0.clone(), Vec::new());
        for &t in &order {
            let (input, own) = shares(&p, t, &state);
            state = R::gru_cell(&input, &own, &state).unwrap();
            expected.push(state.clone());
        }
        check(&outputs, &expected);
        assert_close(&reals(&h), &reals(&state), 1e-14);

        let p = params(1);
        let weights = [&p[0], &p[1]];
        let (outputs, h) = R::rnn(&x, &h0, weights, Some([&p[2], &p[3]]), Activation::Tanh, reverse).unwrap();
        let (mut state, mut expected) = (h0.clone(), Vec::new());
        for &t in &order {
            let (input, own) = shares(&p, t, &state);
            state = R::unary(UnaryOp::Tanh, &R::add(&input, &own).unwrap()).unwrap();
            expected.push(state.clone());
        }
        check(&outputs, &expected);
        assert_close(&reals(&h), &reals(&state), 1e-14);
    }
}
