//! f16 on a driver: several steps are one kernel, and intermediate values are not rounded.

use polygrad_compute::{Compute, ComputeDevice};
use polygrad_cpu::CpuDriver;
use polygrad_tensor::{DType, Device, Result, Tensor};

type B = Compute<CpuDriver>;

fn devices() -> Result<[Device<B>; 2]> {
    Ok([
        Device::from_inner(ComputeDevice::new(CpuDriver::default())?),
        Device::from_inner(ComputeDevice::unfused(CpuDriver::default())?),
    ])
}

fn f16(values: &[f64], device: &Device<B>) -> Result<Tensor<B>> {
    Tensor::from_slice(values, [values.len()], device)?
        .to_dtype(DType::F32)?
        .to_dtype(DType::F16)
}

#[test]
fn numbers_are_not_rounded() -> Result<()> {
    for device in devices()? {
        let x = f16(&[0.5, 50.0], &device)?;
        assert_eq!((&x * 1e5)?.to_f64_vec()?, [49_984.0, f64::INFINITY]);
        assert_eq!((1e5 / &x)?.to_f64_vec()?, [f64::INFINITY, 2000.0]);
        assert_eq!((&x * 65_536)?.to_f64_vec()?[0], 32_768.0);
    }
    Ok(())
}

#[test]
fn means_and_norms_do_not_overflow() -> Result<()> {
    for device in devices()? {
        let x = Tensor::full([70_000], 1.0, (&device, DType::F16))?.requires_grad()?;
        let gradient = x.mean_all()?.backward()?.require(&x)?.to_f64_vec()?;
        assert!((gradient[0] * 70_000.0 - 1.0).abs() < 3e-3, "{}", gradient[0]);
        let x = f16(&[300.0, 400.0], &device)?.requires_grad()?;
        let norm = x.norm(2.0, ())?;
        assert_eq!(norm.item()?, 500.0);
        let gradient = norm.backward()?.require(&x)?.to_f64_vec()?;
        assert!(
            (gradient[0] - 0.6).abs() < 3e-4 && (gradient[1] - 0.8).abs() < 3e-4,
            "{gradient:?}"
        );
    }
    Ok(())
}

#[test]
fn statistics_of_a_batch_are_f32() -> Result<()> {
    for device in devices()? {
        let x = f16(&[-1000.0, 1000.0, 500.0, -300.0], &device)?
            .reshape([4, 1])?
            .requires_grad()?;
        let (y, mean, var) = x.batch_norm(None, None, 1e-5)?;
        assert_eq!((mean.dtype(), mean.item()?), (DType::F32, 50.0));
        assert_eq!((var.dtype(), var.item()?), (DType::F32, 582_500.0));
        let picked = y.select(0, 0)?.sum_all()?;
        let gradient = picked.backward()?.require(&x)?.to_f64_vec()?;
        // (1 − 1/n − normal² / n) / std
        let normal = (-1000.0 - 50.0) / 582_500f64.sqrt();
        let truth = (1.0 - 0.25 - normal * normal / 4.0) / 582_500f64.sqrt();
        assert!((gradient[0] / truth - 1.0).abs() < 2e-3, "{gradient:?}");
    }
    Ok(())
}
