//! The memory that steps keep if no value is read. Linux reports it for the whole process, so this test has one of its
//! own.
#![cfg(target_os = "linux")]

use polygrad_luminal::Luminal;
use polygrad_nn::loss::cross_entropy;
use polygrad_nn::optim::{Adam, Optimizer};
use polygrad_nn::{Linear, Module, ReLU, Sequential};
use polygrad_tensor::{DType, Device, Result, Tensor};

fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn memory_does_not_grow_over_training_steps() -> Result<()> {
    let device = Device::default();
    let model = Sequential::new()
        .push(Linear::new(64, 64, &device)?)
        .push(ReLU)
        .push(Linear::new(64, 10, &device)?);
    let mut optimizer = Adam::new(model.parameters(), 1e-4)?;
    let x = Tensor::ones([32, 64], &device)?;
    let classes = Tensor::full([32], 3i64, (&device, DType::I64))?;
    let mut steps = |count: usize| -> Result<Tensor<Luminal>> {
        let mut last = None;
        for _ in 0..count {
            let loss = cross_entropy(&model.forward(&x)?, &classes)?;
            optimizer.step(&loss.backward()?)?;
            last = Some(loss);
        }
        last.ok_or_else(|| polygrad_core::Error::invalid("no steps"))
    };
    let first = steps(60)?.item()?;
    let before = resident();
    // No value is read in between, so everything would pile up.
    let last = steps(300)?;
    let after = resident();
    assert!(last.item()? < first);
    assert!(after < before + (64 << 20), "{before} bytes before, {after} after");
    Ok(())
}
