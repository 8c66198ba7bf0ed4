//! `lstm`: 64 steps of an LSTM on a batch of 32, classified by the last step, with Adam.

use polygrad_nn::{LSTM, Linear, Module};
use polygrad_tensor::{Backend, Device, Result, Tensor};

use crate::Prepared;
use crate::training::{Mode, Optim, input, training};

const STEPS: usize = 64;
const BATCH: usize = 32;
const INPUTS: usize = 64;
const HIDDEN: usize = 128;
const CLASSES: usize = 10;

pub(crate) fn flops() -> u64 {
    let (input, hidden) = (4 * HIDDEN * INPUTS, 4 * HIDDEN * HIDDEN);
    // The input needs no gradient; the state before the first step gets one like the other states.
    let recurrent = STEPS * (2 * input + 3 * hidden);
    2 * (BATCH * (recurrent + 3 * HIDDEN * CLASSES)) as u64
}

#[derive(Module)]
struct Classifier<B: Backend> {
    lstm: LSTM<B>,
    head: Linear<B>,
}

impl<B: Backend> Classifier<B> {
    /// From `[steps, batch, inputs]` to `[batch, classes]`.
    fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let (outputs, _) = self.lstm.forward(x, None)?;
        self.head.forward(&outputs.select(0, -1)?)
    }
}

pub(crate) fn prepare<B: Backend, W: Mode<B>>(device: &Device<B>) -> Result<Prepared<B>> {
    let model = Classifier {
        lstm: LSTM::new(INPUTS, HIDDEN, device)?,
        head: Linear::new(HIDDEN, CLASSES, device)?,
    };
    let x = input(&[STEPS, BATCH, INPUTS], device)?;
    training::<B, W, _>(model, Optim::Adam, x, (BATCH, CLASSES), Classifier::forward)
}
