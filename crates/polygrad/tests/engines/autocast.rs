//! Mixed precision on every backend that supports the dtype.

use polygrad::ErrorKind;
use polygrad::autograd::autocast;
use polygrad::nn::loss::cross_entropy;
use polygrad::nn::{Conv2d, Flatten, LayerNorm, LayerNormConfig, Linear, MaxPool2d, Module, ReLU, Sequential};
use polygrad::optim::{GradScalerConfig, Optimizer, SGD};
use polygrad::prelude::*;

use crate::devices;

const STEPS: u64 = 8;

fn model(device: &Device) -> Result<Sequential> {
    polygrad::manual_seed(3);
    let norm: LayerNorm = LayerNormConfig::new([32]).build(device)?;
    Ok(Sequential::new()
        .push(Conv2d::new(1, 8, 3, device)?)
        .push(ReLU)
        .push(MaxPool2d::new(2))
        .push(Flatten::default())
        .push(Linear::new(72, 32, device)?)
        .push(norm)
        .push(Linear::new(32, 4, device)?))
}

/// The losses of some steps with this dtype, and the dtypes of the last one's gradients.
fn losses(device: &Device, dtype: DType) -> Result<Vec<f64>> {
    let model = model(device)?;
    let mut optimizer = SGD::new(model.parameters(), 0.1)?;
    // Small enough that no gradient overflows.
    let mut scaler = GradScalerConfig::new().init_scale(1024.0).build()?;
    let mut losses = Vec::new();
    for i in 0..STEPS {
        polygrad::manual_seed(i);
        let x = Tensor::randn([16, 1, 8, 8], device)?;
        let y = Tensor::randint(0, 4, [16], device)?;
        let loss = autocast(dtype, || cross_entropy(&model.forward(&x)?, &y))?;
        assert_eq!(loss.dtype(), DType::F32);
        losses.push(loss.item()?);
        let gradients = match dtype {
            DType::F16 => scaler.scale(loss)?.backward()?,
            _ => loss.backward()?,
        };
        assert!(gradients.iter().all(|(_, gradient)| gradient.dtype() == DType::F32));
        match dtype {
            DType::F16 => {
                assert!(scaler.step(&mut optimizer, gradients)?, "step {i} was left out");
                scaler.update()?;
            }
            _ => optimizer.step(&gradients)?,
        }
    }
    Ok(losses)
}

#[test]
fn mixed_precision_follows_full_precision() {
    for (name, device) in devices().unwrap() {
        let full = losses(&device, DType::F32).unwrap();
        for dtype in [DType::BF16, DType::F16] {
            let mixed = match losses(&device, dtype) {
                Ok(mixed) => mixed,
                // Backends that support the dtype only for some ops name the op.
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    let has_both = ["cpu", "torch", "candle"].iter().any(|own| name.starts_with(own));
                    assert!(!has_both, "{name}, {dtype}: {error}");
                    println!("skipped: {name}, {dtype}: {error}");
                    continue;
                }
                Err(error) => panic!("{name}, {dtype}: {error}"),
            };
            for (i, (mixed, full)) in mixed.iter().zip(&full).enumerate() {
                let apart = (mixed - full).abs() / full;
                assert!(apart < 0.02, "{name}, {dtype}, step {i}: {mixed} for {full}");
            }
            assert_ne!(mixed, full, "{name}: {dtype} is not what was computed in");
        }
    }
}
