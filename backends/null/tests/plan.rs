//! The memory of a training step, determined without computing anything.

use polygrad_nn::loss::cross_entropy;
use polygrad_nn::optim::{Adam, Optimizer};
use polygrad_nn::{Linear, Module, ReLU, Sequential};
use polygrad_null::Null;
use polygrad_tensor::{DType, Device, Result, Tensor};

const SIZES: [usize; 3] = [1024, 65_536, 10];

fn peak_bytes(batch: usize) -> Result<usize> {
    let device = Device::<Null>::default();
    let model = Sequential::new()
        .push(Linear::new(SIZES[0], SIZES[1], &device)?)
        .push(ReLU)
        .push(Linear::new(SIZES[1], SIZES[2], &device)?);
    let mut optimizer = Adam::new(model.parameters(), 1e-3)?;
    let classes = Tensor::full([batch], 0i64, (&device, DType::I64))?;
    let x = Tensor::zeros([batch, SIZES[0]], &device)?;
    for _ in 0..2 {
        let loss = cross_entropy(&model.forward(&x)?, &classes)?;
        optimizer.step(&loss.backward()?)?;
    }
    Ok(device.inner().stats().peak_bytes)
}

#[test]
fn a_step_tells_its_peak() {
    let [input, hidden, output] = SIZES;
    let parameters = 4 * (input * hidden + hidden + hidden * output + output);
    let batch = 32;
    let peak = peak_bytes(batch).unwrap();
    // Parameters, gradients and two moments each; the weight that the graph keeps beside its update; and the batch's
    // share, nearly all of which is the hidden layer, its activation and the gradients of both.
    assert!(peak > 4 * parameters, "{peak} bytes, parameters {parameters}");
    assert!(
        peak < 5 * parameters + 5 * 4 * batch * hidden,
        "{peak} bytes, parameters {parameters}"
    );
}

#[test]
fn a_batch_twice_as_large_takes_more() {
    let peaks = [32, 64, 128].map(|batch| peak_bytes(batch).unwrap());
    assert!(peaks.is_sorted_by(|a, b| a < b), "{peaks:?}");
    // It grows only by the batch's share.
    assert_eq!(peaks[2] - peaks[1], 2 * (peaks[1] - peaks[0]), "{peaks:?}");
}
