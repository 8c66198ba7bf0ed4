//! Recurrent cells against PyTorch's formulas.

use polygrad_core::Backend;

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
