//! What `compare` lets each backend do.

use clap::ValueEnum;
use polygrad::nn::{
    Adam, Conv2dConfig, Flatten, Linear, MaxPool2d, Module, Optimizer, ReLU, Sequential, loss::cross_entropy,
};
use polygrad::{ConvParams, Device, Result, Tensor, manual_seed};

/// A kind of work, done at several sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Work {
    /// The sum of two tensors
    Add,
    /// The exponential of a tensor
    Exp,
    /// The sum of all elements
    Sum,
    /// The product of two square matrices
    Matmul,
    /// A convolution of 32 channels of 28×28 to 64 with a kernel of 3×3
    Conv2d,
    /// A training step of the MLP 784-128-10 with Adam
    Mlp,
    /// A training step of a CNN for images of 28×28 with Adam
    Cnn,
}

/// One call; what it gives is kept until the device has finished, so that a lazy engine computes it.
pub(crate) type Call = Box<dyn FnMut() -> Result<Tensor>>;

impl Work {
    /// Its name, as it is typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Exp => "exp",
            Self::Sum => "sum",
            Self::Matmul => "matmul",
            Self::Conv2d => "conv2d",
            Self::Mlp => "mlp",
            Self::Cnn => "cnn",
        }
    }

    /// What it is, for people.
    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::Add => "a + b",
            Self::Exp => "e^x",
            Self::Sum => "sum of all elements",
            Self::Matmul => "n×n by n×n",
            Self::Conv2d => "32 channels of 28×28 to 64, kernel 3×3",
            Self::Mlp => "training step, 784-128-10, Adam",
            Self::Cnn => "training step, two convolutions, Adam",
        }
    }

    /// What its size counts.
    pub(crate) fn axis(self) -> &'static str {
        match self {
            Self::Add | Self::Exp | Self::Sum => "elements",
            Self::Matmul => "n",
            Self::Conv2d | Self::Mlp | Self::Cnn => "images",
        }
    }

    /// The sizes, growing.
    pub(crate) fn sizes(self) -> &'static [usize] {
        match self {
            Self::Add | Self::Exp | Self::Sum => &[64, 1 << 10, 1 << 14, 1 << 18, 1 << 22],
            Self::Matmul => &[16, 64, 256, 1024],
            Self::Conv2d => &[1, 4, 16, 64],
            Self::Mlp => &[1, 16, 64, 256],
            Self::Cnn => &[1, 8, 64],
        }
    }

    /// In what its throughput is given.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Add | Self::Exp | Self::Sum => "GB/s",
            Self::Matmul | Self::Conv2d => "GFLOP/s",
            Self::Mlp | Self::Cnn => "images/s",
        }
    }

    /// How many of its unit one call is worth, times one second: bytes read and written, operations, or images.
    pub(crate) fn amount(self, size: usize) -> f64 {
        let n = size as f64;
        match self {
            Self::Add => 12.0 * n * 1e-9,
            Self::Exp => 8.0 * n * 1e-9,
            Self::Sum => 4.0 * n * 1e-9,
            Self::Matmul => 2.0 * n * n * n * 1e-9,
            Self::Conv2d => 2.0 * n * 64.0 * 28.0 * 28.0 * 32.0 * 9.0 * 1e-9,
            Self::Mlp | Self::Cnn => n,
        }
    }

    /// Gets all ready on a device.
    ///
    /// # Errors
    /// When the device cannot do the work, or has no memory for it.
    pub(crate) fn prepare(self, size: usize, device: &Device) -> Result<Call> {
        manual_seed(0);
        Ok(match self {
            Self::Add => {
                let (a, b) = (Tensor::randn([size], device)?, Tensor::randn([size], device)?);
                Box::new(move || &a + &b)
            }
            Self::Exp => {
                let x = Tensor::randn([size], device)?;
                Box::new(move || x.exp())
            }
            Self::Sum => {
                let x = Tensor::randn([size], device)?;
                Box::new(move || x.sum_all())
            }
            Self::Matmul => {
                let (a, b) = (
                    Tensor::randn([size, size], device)?,
                    Tensor::randn([size, size], device)?,
                );
                Box::new(move || a.matmul(&b))
            }
            Self::Conv2d => {
                let x = Tensor::randn([size, 32, 28, 28], device)?;
                let weight = Tensor::randn([64, 32, 3, 3], device)?;
                let params = ConvParams {
                    padding: [1; 3],
                    ..ConvParams::default()
                };
                Box::new(move || x.conv(&weight, None, &params))
            }
            Self::Mlp => {
                let model = Sequential::new()
                    .push(Linear::new(784, 128, device)?)
                    .push(ReLU)
                    .push(Linear::new(128, 10, device)?);
                training(model, Tensor::randn([size, 784], device)?, device)?
            }
            Self::Cnn => {
                let conv = |from, to| Conv2dConfig::new(from, to, 3).padding(1).build(device);
                let model = Sequential::new()
                    .push(conv(1, 32)?)
                    .push(ReLU)
                    .push(MaxPool2d::new(2))
                    .push(conv(32, 64)?)
                    .push(ReLU)
                    .push(MaxPool2d::new(2))
                    .push(Flatten::default())
                    .push(Linear::new(3136, 128, device)?)
                    .push(ReLU)
                    .push(Linear::new(128, 10, device)?);
                training(model, Tensor::randn([size, 1, 28, 28], device)?, device)?
            }
        })
    }
}

/// Steps of Adam on one batch.
fn training(model: Sequential, x: Tensor, device: &Device) -> Result<Call> {
    let classes: Vec<i64> = (0..10).cycle().take(x.shape()[0]).collect();
    let target = Tensor::from_vec(classes, [x.shape()[0]], device)?;
    let mut optimizer = Adam::new(model.parameters(), 1e-3)?;
    Ok(Box::new(move || {
        let loss = cross_entropy(&model.forward(&x)?, &target)?;
        optimizer.step(&loss.backward()?)?;
        Ok(loss.detach())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_work_can_be_done_at_its_smallest_size() {
        let device = Device::new("cpu:threads=1").unwrap();
        for work in Work::value_variants() {
            let size = work.sizes()[0];
            let mut call = work.prepare(size, &device).unwrap();
            let value = call().unwrap().sum_all().unwrap().item().unwrap();
            assert!(value.is_finite(), "{work:?} gives {value}");
            assert!(work.sizes().is_sorted() && work.amount(size) > 0.0, "{work:?}");
            assert_eq!(Work::from_str(work.name(), false), Ok(*work));
        }
    }
}
