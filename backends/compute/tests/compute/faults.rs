//! A driver that fails, at whichever call: it is reported, nothing leaks, and the next step goes well.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use polygrad_compute::{Compute, ComputeDevice};
use polygrad_conformance::driver::{DriverCall, DriverFault, DriverHooks, FaultPlan, Hooked};
use polygrad_core::compute::ComputeBackend;
use polygrad_core::{ErrorKind, Result};
use polygrad_cpu::CpuDriver;
use polygrad_nn::loss::cross_entropy;
use polygrad_nn::{Adam, Conv2d, Flatten, LayerNorm, Linear, Module, Optimizer, ReLU, Sequential};
use polygrad_tensor::{DType, Device, Distribution, Tensor, manual_seed};

/// Fails as planned, and counts what is allocated.
#[derive(Default)]
struct Watch {
    plan: FaultPlan,
    live: AtomicI64,
}

impl DriverHooks for Watch {
    fn before(&self, call: &DriverCall<'_>) -> Result<()> {
        self.plan.before(call)
    }

    fn after(&self, call: &DriverCall<'_>, _: &dyn ComputeBackend) -> Result<()> {
        match call {
            DriverCall::Alloc(_) => self.live.fetch_add(1, Ordering::Relaxed),
            DriverCall::Free(_) => self.live.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
        Ok(())
    }
}

type B = Compute<Hooked<CpuDriver, Watch>>;

struct Training {
    watch: Arc<Watch>,
    device: Device<B>,
    model: Sequential<B>,
    optimizer: Adam<B>,
    images: Tensor<B>,
    classes: Tensor<B>,
}

impl Training {
    /// After one step, so that the optimizer has its state.
    fn ready(fuses: bool) -> Result<Self> {
        manual_seed(3);
        let watch = Arc::new(Watch::default());
        let driver = Hooked::new(CpuDriver::default(), Arc::clone(&watch));
        let device = Device::from_inner(match fuses {
            true => ComputeDevice::new(driver)?,
            false => ComputeDevice::unfused(driver)?,
        });
        let model = Sequential::new()
            .push(Conv2d::new(1, 2, 3, &device)?)
            .push(ReLU)
            .push(Flatten::default())
            .push(LayerNorm::new([32], &device)?)
            .push(Linear::new(32, 3, &device)?);
        let normal = Distribution::Normal { mean: 0.0, std: 1.0 };
        let mut training = Self {
            watch,
            images: Tensor::random([4, 1, 6, 6], normal, DType::F32, &device)?,
            classes: Tensor::from_vec(vec![0i64, 1, 2, 1], 4, &device)?,
            optimizer: Adam::new(model.parameters(), 1e-2)?,
            device,
            model,
        };
        training.step()?;
        Ok(training)
    }

    fn step(&mut self) -> Result<f64> {
        let loss = cross_entropy(&self.model.forward(&self.images)?, &self.classes)?;
        let value = loss.item()?;
        self.optimizer.step(&loss.backward()?)?;
        Ok(value)
    }

    /// Everything goes; gives the allocations that stay.
    fn end(self) -> i64 {
        let watch = Arc::clone(&self.watch);
        watch.plan.disarm();
        drop(self);
        watch.live.load(Ordering::Relaxed)
    }
}

fn fails_well(fuses: bool, fault: DriverFault, kind: ErrorKind) -> Result<()> {
    let undisturbed = Training::ready(fuses)?.step()?;
    for n in 1.. {
        let mut training = Training::ready(fuses)?;
        let before = training.device.inner().stats().memory;
        training.watch.plan.arm(None, n, fault);
        let outcome = training.step();
        let Some(struck) = training.watch.plan.struck() else {
            outcome?;
            assert!(n > 20, "a step has more calls than {n}");
            assert_eq!(training.end(), 0);
            return Ok(());
        };
        let case = format!("call {n}, {struck}, {fault:?}, fused: {fuses}");
        match outcome {
            Err(error) => {
                assert_eq!(error.kind(), kind, "{case}: {error}");
                assert!(error.op().is_some(), "{case}: {error} names no op");
            }
            // The cache was given back, and there was memory then.
            Ok(_) => {
                let after = training.device.inner().stats().memory;
                assert!(struck == "alloc" && kind == ErrorKind::OutOfMemory, "{case}: no error");
                assert_eq!(after.flushes, before.flushes + 1, "{case}");
                assert_eq!(training.end(), 0, "{case}: leaks");
                continue;
            }
        }
        if fault == DriverFault::Lost {
            assert_eq!(training.step().unwrap_err().kind(), kind, "{case}");
        }
        training.watch.plan.disarm();
        // Parameters before the one that failed may have taken the step.
        let next = training.step()?;
        assert!(next <= undisturbed + 1e-6, "{case}: {next} after {undisturbed}");
        assert_eq!(training.end(), 0, "{case}: leaks");
    }
    Ok(())
}

#[test]
fn a_call_that_fails_is_reported_and_leaves_nothing() -> Result<()> {
    for fuses in [true, false] {
        for kind in [ErrorKind::OutOfMemory, ErrorKind::DeviceError] {
            fails_well(fuses, DriverFault::Once(kind), kind)?;
        }
        fails_well(fuses, DriverFault::Lost, ErrorKind::DeviceError)?;
    }
    Ok(())
}

#[test]
fn a_lost_device_can_be_let_go() -> Result<()> {
    let training = Training::ready(true)?;
    let watch = Arc::clone(&training.watch);
    watch.plan.arm(None, 1, DriverFault::Lost);
    // Its memory cannot be freed any more, which is nothing to panic about.
    drop(training);
    assert!(watch.live.load(Ordering::Relaxed) > 0);
    Ok(())
}
