//! Cached and returned memory.

use polygrad_compute::{Compute, ComputeDevice};
use polygrad_core::ErrorKind;
use polygrad_cpu::CpuDriver;
use polygrad_nn::loss::cross_entropy;
use polygrad_nn::optim::{Adam, Optimizer};
use polygrad_nn::{Linear, Module, ReLU, Sequential};
use polygrad_tensor::{DType, Device, Result, Tensor};

type B = Compute<CpuDriver>;

fn device() -> Device<B> {
    Device::from_inner(ComputeDevice::new(CpuDriver::default()).unwrap())
}

#[test]
fn freed_memory_is_used_again() -> Result<()> {
    let device = device();
    let stats = || device.inner().stats().memory;
    for _ in 0..10 {
        let x = Tensor::<B>::from_vec(vec![1f32; 1000], 1000, &device)?;
        assert_eq!((&x + 1.0)?.to_vec::<f32>()?, [2.0; 1000]);
    }
    assert_eq!((stats().live_bytes, stats().live_buffers), (0, 0));
    assert_eq!((stats().allocations, stats().reuses), (2, 18));
    assert!(stats().cached_bytes > 0 && stats().peak_bytes == stats().cached_bytes);
    device.inner().release_cache();
    assert_eq!(stats().cached_bytes, 0);
    Ok(())
}

#[test]
fn training_leaves_nothing_behind() -> Result<()> {
    let device = device();
    let run = || -> Result<Vec<u64>> {
        let model = Sequential::new()
            .push(Linear::new(6, 16, &device)?)
            .push(ReLU)
            .push(Linear::new(16, 3, &device)?);
        let mut optimizer = Adam::new(model.parameters(), 1e-2)?;
        let x = Tensor::<B>::ones([8, 6], &device)?;
        let classes = Tensor::full([8], 1i64, (&device, DType::I64))?;
        (0..20)
            .map(|_| {
                let loss = cross_entropy(&model.forward(&x)?, &classes)?;
                optimizer.step(&loss.backward()?)?;
                Ok(device.inner().stats().memory.allocations)
            })
            .collect()
    };
    let allocations = run()?;
    assert_eq!(
        allocations[4], allocations[19],
        "a step needs no new memory once it has run"
    );
    assert_eq!(device.inner().stats().memory.live_bytes, 0);
    device.inner().release_cache();
    assert_eq!(device.inner().stats().memory.failed_frees, 0);
    Ok(())
}

#[test]
fn too_large_a_tensor_is_an_error() {
    let device = device();
    let huge = Tensor::<B>::zeros([1 << 20, 1 << 20, 1 << 10], &device).and_then(|x| x.to_host());
    assert_eq!(huge.unwrap_err().kind(), ErrorKind::OutOfMemory);
    assert_eq!(device.inner().stats().memory.live_bytes, 0);
}
