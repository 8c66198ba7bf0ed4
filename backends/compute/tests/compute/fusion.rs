//! The ops that are fused into one kernel.

use polygrad_compute::{Compute, ComputeDevice};
use polygrad_cpu::CpuDriver;
use polygrad_tensor::{Device, Result, Tensor};

type B = Compute<CpuDriver>;

fn fused() -> Device<B> {
    Device::from_inner(ComputeDevice::new(CpuDriver::default()).unwrap())
}

fn launches(device: &Device<B>) -> u64 {
    device.inner().stats().launches
}

fn ramp(device: &Device<B>) -> Tensor<B> {
    Tensor::from_vec((0..6).map(|i| i as f32 - 2.5).collect(), [2, 3], device).unwrap()
}

#[test]
fn a_chain_is_one_launch() -> Result<()> {
    for (device, wanted) in [
        (fused(), 1),
        (Device::from_inner(ComputeDevice::unfused(CpuDriver::default())?), 4),
    ] {
        let x = ramp(&device);
        let bias = Tensor::from_vec(vec![1f32, 2.0, 3.0], 3, &device)?;
        let before = launches(&device);
        let y = ((&x * 2.0)? + &bias)?.relu()?.sqrt()?;
        assert_eq!(
            y.to_vec::<f32>()?,
            [0.0, 0.0, 2f32.sqrt(), 2f32.sqrt(), 5f32.sqrt(), 8f32.sqrt()]
        );
        assert_eq!(launches(&device) - before, wanted);
    }
    Ok(())
}

#[test]
fn what_somebody_holds_is_stored_by_the_same_launch() -> Result<()> {
    let device = fused();
    let x = ramp(&device);
    let before = launches(&device);
    let held = x.abs()?;
    let y = (&held + 1.0)?.log()?;
    drop(x);
    y.to_vec::<f32>()?;
    assert_eq!(held.to_vec::<f32>()?, [2.5, 1.5, 0.5, 0.5, 1.5, 2.5]);
    assert_eq!(launches(&device) - before, 1);
    Ok(())
}

#[test]
fn what_nobody_needs_is_not_computed() -> Result<()> {
    let device = fused();
    let x = ramp(&device);
    let before = launches(&device);
    drop(x.exp()?);
    device.synchronize()?;
    assert_eq!(launches(&device), before);
    let kept = x.exp()?;
    device.synchronize()?;
    assert_eq!(launches(&device) - before, 1, "who holds it may time it");
    drop(kept);
    Ok(())
}

#[test]
fn a_tensor_of_one_number_is_the_number() -> Result<()> {
    let device = fused();
    let x = ramp(&device);
    let before = launches(&device);
    let two = Tensor::<B>::full((), 2.0, &device)?;
    let ones = Tensor::<B>::ones([2, 3], &device)?;
    assert_eq!(
        x.mul(&two)?.add(&ones)?.to_vec::<f32>()?,
        [-4.0, -2.0, 0.0, 2.0, 4.0, 6.0]
    );
    assert_eq!(launches(&device) - before, 1);
    assert_eq!(ones.to_vec::<f32>()?, [1.0; 6]);
    Ok(())
}

#[test]
fn a_long_chain_runs_in_parts_and_drops_without_recursion() -> Result<()> {
    let device = fused();
    let mut x = ramp(&device);
    let before = launches(&device);
    for _ in 0..10_000 {
        x = (&x + 1.0)?;
    }
    assert_eq!(x.to_vec::<f32>()?[0], 9997.5);
    let parts = launches(&device) - before;
    assert!((100..400).contains(&parts), "{parts}");
    // Each value is used twice: the program must not double in length with each op.
    let mut y = ramp(&device);
    for _ in 0..200 {
        y = (y.mul(&y)? * 0.0)?;
    }
    assert_eq!(y.to_vec::<f32>()?, [0.0; 6]);
    Ok(())
}

#[test]
fn views_of_a_recorded_tensor_show_its_values() -> Result<()> {
    let device = fused();
    let y = (ramp(&device) + 2.5)?;
    let turned = y.transpose(0, 1)?;
    let sum = (&turned + &y.reshape([3, 2])?)?;
    assert_eq!(sum.to_vec::<f32>()?, [0.0, 4.0, 3.0, 7.0, 6.0, 10.0]);
    assert_eq!(turned.narrow(0, 1, 1)?.to_vec::<f32>()?, [1.0, 4.0]);
    Ok(())
}

#[test]
fn threads_share_what_is_recorded() -> Result<()> {
    let device = fused();
    let x = ramp(&device);
    let y = (&x * 3.0)?;
    std::thread::scope(|scope| {
        for i in 0..8 {
            let y = &y;
            scope.spawn(move || {
                let z = (y + f64::from(i)).unwrap();
                let values = z.to_vec::<f32>().unwrap();
                assert_eq!(values[0], -7.5 + i as f32);
            });
        }
    });
    assert_eq!(y.to_vec::<f32>()?[5], 7.5);
    Ok(())
}
