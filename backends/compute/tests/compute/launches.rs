//! Number of kernels of a training step, fused and unfused.

use polygrad_compute::{Compute, ComputeDevice};
use polygrad_nn::loss::cross_entropy;
use polygrad_nn::models::{Gpt2, Gpt2Config};
use polygrad_nn::optim::{Adam, AdamConfig, Optimizer, SGD};
use polygrad_nn::{Linear, Module, ReLU, Sequential};
use polygrad_null::NullDriver;
use polygrad_tensor::{DType, Device, Result, Tensor};

type B = Compute<NullDriver>;
type Step = Box<dyn FnMut() -> Result<()>>;
type Workload = fn(&Device<B>) -> Result<Step>;

/// Launches of the second step, when the optimizer's state exists.
fn of_a_step(fuses: bool, workload: Workload) -> Result<u64> {
    let driver = NullDriver::default();
    let device = Device::from_inner(match fuses {
        true => ComputeDevice::new(driver)?,
        false => ComputeDevice::unfused(driver)?,
    });
    let mut step = workload(&device)?;
    step()?;
    let before = device.inner().stats().launches;
    step()?;
    device.synchronize()?;
    let stats = device.inner().stats();
    assert_eq!(stats.host_ops, 0, "ops ran on the host");
    Ok(stats.launches - before)
}

fn mlp_small(adam: bool, device: &Device<B>) -> Result<Step> {
    let model = Sequential::new()
        .push(Linear::new(784, 128, device)?)
        .push(ReLU)
        .push(Linear::new(128, 10, device)?);
    let mut optimizer: Box<dyn Optimizer<B>> = match adam {
        true => Box::new(Adam::new(model.parameters(), 1e-3)?),
        false => Box::new(SGD::new(model.parameters(), 0.1)?),
    };
    let x = Tensor::zeros([64, 784], device)?;
    let classes = Tensor::full([64], 0i64, (device, DType::I64))?;
    Ok(Box::new(move || {
        let loss = cross_entropy(&model.forward(&x)?, &classes)?;
        loss.to_host()?;
        optimizer.step(&loss.backward()?)
    }))
}

fn gpt(device: &Device<B>) -> Result<Step> {
    let config = Gpt2Config {
        vocab_size: 1024,
        n_positions: 64,
        n_embd: 128,
        n_layer: 4,
        n_head: 4,
        resid_pdrop: 0.0,
        embd_pdrop: 0.0,
        attn_pdrop: 0.0,
        ..Gpt2Config::default()
    };
    let model = Gpt2::new(&config, device)?;
    let mut optimizer = AdamConfig::adamw(1e-3).build(model.parameters())?;
    let tokens = Tensor::full([16, 64], 0i64, (device, DType::I64))?;
    let classes = Tensor::full([16 * 64], 0i64, (device, DType::I64))?;
    Ok(Box::new(move || {
        let logits = model.forward(&tokens)?.reshape([16 * 64, 1024])?;
        let loss = cross_entropy(&logits, &classes)?;
        loss.to_host()?;
        optimizer.step(&loss.backward()?)
    }))
}

#[test]
fn fusion_halves_the_launches_of_a_training_step() -> Result<()> {
    let workloads: [(&str, Workload); 3] = [
        ("mlp-small, SGD", |device| mlp_small(false, device)),
        ("mlp-small, Adam", |device| mlp_small(true, device)),
        ("gpt, AdamW", gpt),
    ];
    println!("launches of a training step: fused, unfused");
    for (name, workload) in workloads {
        let (fused, unfused) = (of_a_step(true, workload)?, of_a_step(false, workload)?);
        println!("{name}: {fused}, {unfused}");
        assert!(2 * fused <= unfused, "{name}: {fused} of {unfused}");
    }
    Ok(())
}
