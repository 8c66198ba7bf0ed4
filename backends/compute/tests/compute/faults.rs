//! A driver that fails at any call: the error is reported, nothing leaks, and the next step succeeds.

use std::sync::Arc;

use polygrad_compute::ComputeDevice;
use polygrad_conformance::driver::DriverFault;
use polygrad_core::{ErrorKind, Result};

use crate::watch::{Training, Watch, watched};

fn ready(fuses: bool) -> Result<(Training, Arc<Watch>)> {
    let (driver, watch) = watched();
    let device = match fuses {
        true => ComputeDevice::new(driver)?,
        false => ComputeDevice::unfused(driver)?,
    };
    Ok((Training::ready(device)?, watch))
}

/// Drops everything, and returns the number of remaining allocations.
fn end(training: Training, watch: &Watch) -> i64 {
    watch.plan.disarm();
    drop(training);
    watch.live()
}

fn fails_well(fuses: bool, fault: DriverFault, kind: ErrorKind) -> Result<()> {
    let undisturbed = ready(fuses)?.0.step()?;
    for n in 1.. {
        let (mut training, watch) = ready(fuses)?;
        let before = training.device.inner().stats().memory;
        watch.plan.arm(None, n, fault);
        let outcome = training.step();
        let Some(struck) = watch.plan.struck() else {
            outcome?;
            assert!(n > 20, "a step has more calls than {n}");
            assert_eq!(end(training, &watch), 0);
            return Ok(());
        };
        let case = format!("call {n}, {struck}, {fault:?}, fused: {fuses}");
        match outcome {
            Err(error) => {
                assert_eq!(error.kind(), kind, "{case}: {error}");
                assert!(error.op().is_some(), "{case}: {error} names no op");
            }
            // The cache was returned to the driver, and then there was memory.
            Ok(_) => {
                let after = training.device.inner().stats().memory;
                assert!(struck == "alloc" && kind == ErrorKind::OutOfMemory, "{case}: no error");
                assert_eq!(after.flushes, before.flushes + 1, "{case}");
                assert_eq!(end(training, &watch), 0, "{case}: leaks");
                continue;
            }
        }
        if fault == DriverFault::Lost {
            assert_eq!(training.step().unwrap_err().kind(), kind, "{case}");
        }
        watch.plan.disarm();
        // Parameters before the failing one may have taken the step.
        let next = training.step()?;
        assert!(next <= undisturbed + 1e-6, "{case}: {next} after {undisturbed}");
        assert_eq!(end(training, &watch), 0, "{case}: leaks");
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
    let (training, watch) = ready(true)?;
    watch.plan.arm(None, 1, DriverFault::Lost);
    // Its memory can no longer be freed, which must not panic.
    drop(training);
    assert!(watch.live() > 0);
    Ok(())
}
