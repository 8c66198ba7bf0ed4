//! The network models.

use polygrad::Device;
use polygrad::nn::{Conv2d, Conv2dConfig, Flatten, Linear, MaxPool2d, ReLU, Sequential};

use super::config::{Input, Model};
use crate::failure::{Failure, Result};

/// Builds a network from images `[N, channels, rows, cols]` to logits `[N, classes]`, with weights from this thread's
/// generator.
///
/// # Errors
/// Images that are too small for it, or a device that fails.
pub(crate) fn build(model: Model, input: &Input, classes: usize, device: &Device) -> Result<Sequential> {
    match model {
        Model::Mlp => mlp(input, classes, device),
        Model::Cnn => cnn(input, classes, device),
    }
}

fn mlp(input: &Input, classes: usize, device: &Device) -> Result<Sequential> {
    Ok(Sequential::new()
        .push(Flatten::new())
        .push(Linear::new(input.len(), 256, device)?)
        .push(ReLU)
        .push(Linear::new(256, 128, device)?)
        .push(ReLU)
        .push(Linear::new(128, classes, device)?))
}

fn cnn(input: &Input, classes: usize, device: &Device) -> Result<Sequential> {
    let (rows, cols) = (input.rows / 4, input.cols / 4);
    if rows == 0 || cols == 0 {
        return Err(Failure::new(format!(
            "the cnn halves images twice, and these have {} × {} pixels",
            input.rows, input.cols
        ))
        .fix("train with --model mlp"));
    }
    let conv = |from, to| -> Result<Conv2d> { Ok(Conv2dConfig::new(from, to, 3).padding(1).build(device)?) };
    Ok(Sequential::new()
        .push(conv(input.channels, 16)?)
        .push(ReLU)
        .push(MaxPool2d::new(2))
        .push(conv(16, 32)?)
        .push(ReLU)
        .push(MaxPool2d::new(2))
        .push(Flatten::new())
        .push(Linear::new(32 * rows * cols, 128, device)?)
        .push(ReLU)
        .push(Linear::new(128, classes, device)?))
}

#[cfg(test)]
mod tests {
    use polygrad::Tensor;
    use polygrad::nn::Module;

    use super::*;

    fn input(channels: usize, rows: usize, cols: usize) -> Input {
        Input {
            channels,
            rows,
            cols,
            mean: 0.5,
            std: 0.25,
        }
    }

    #[test]
    fn networks_fit_their_images() {
        let device = Device::new("cpu").unwrap();
        for model in [Model::Mlp, Model::Cnn] {
            for (channels, rows, cols) in [(1, 8, 8), (3, 5, 11)] {
                let network = build(model, &input(channels, rows, cols), 7, &device).unwrap();
                let x = Tensor::zeros([2, channels, rows, cols], &device).unwrap();
                assert_eq!(network.forward(&x).unwrap().dims(), [2, 7]);
            }
        }
        let error = build(Model::Cnn, &input(1, 3, 8), 7, &device)
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("3 × 8") && error.contains("--model mlp"), "{error}");
    }

    #[test]
    fn parameters_have_pytorchs_names() {
        let device = Device::new("cpu").unwrap();
        let network = build(Model::Cnn, &input(1, 28, 28), 10, &device).unwrap();
        let names: Vec<String> = network.named_parameters().into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            [
                "0.weight", "0.bias", "3.weight", "3.bias", "7.weight", "7.bias", "9.weight", "9.bias"
            ]
        );
        assert_eq!(network.num_parameters(), 206_922);
    }
}
