//! Callers on several threads: they run in the driver at the same time, and get their own results.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use polygrad_compute::{Compute, ComputeDevice};
use polygrad_conformance::driver::{DriverCall, DriverHooks, Hooked};
use polygrad_core::compute::Call;
use polygrad_core::{Error, Result};
use polygrad_cpu::CpuDriver;
use polygrad_tensor::{DType, Device, Tensor};

/// Once it is open, element-wise programs wait here for each other.
#[derive(Default)]
struct Meeting {
    /// The expected number, and the number that have arrived.
    state: Mutex<(usize, usize)>,
    came: Condvar,
}

impl DriverHooks for Meeting {
    fn before(&self, call: &DriverCall<'_>) -> Result<()> {
        if !matches!(call, DriverCall::Kernel(Call::Elementwise(_))) {
            return Ok(());
        }
        let mut state = self.state.lock().unwrap();
        if state.0 == 0 {
            return Ok(());
        }
        state.1 += 1;
        self.came.notify_all();
        let alone = |state: &mut (usize, usize)| state.1 < state.0;
        let (_state, waited) = self
            .came
            .wait_timeout_while(state, Duration::from_secs(60), alone)
            .unwrap();
        match waited.timed_out() {
            false => Ok(()),
            true => Err(Error::invalid("nobody else came into the driver")),
        }
    }
}

type B = Compute<Hooked<CpuDriver, Meeting>>;

#[test]
fn two_callers_are_in_the_driver_at_once() -> Result<()> {
    let driver = Hooked::new(CpuDriver::default(), Arc::new(Meeting::default()));
    let meeting = driver.hooks();
    let device = Device::<B>::from_inner(ComputeDevice::new(driver)?);
    let x = Tensor::new([1.0f32, -2.0], &device)?;
    meeting.state.lock().unwrap().0 = 2;
    let outcomes = std::thread::scope(|scope| {
        let call = || (&x * 2.0)?.relu()?.to_vec::<f32>();
        [scope.spawn(call), scope.spawn(call)].map(|thread| thread.join().unwrap())
    });
    for outcome in outcomes {
        assert_eq!(outcome?, [2.0, 0.0]);
    }
    Ok(())
}

/// Threads compute results with common parts, which each of them may store: all results equal those of a single thread.
#[test]
fn common_parts_may_be_computed_by_any_of_them() -> Result<()> {
    let device = Device::<Compute<CpuDriver>>::from_inner(ComputeDevice::new(CpuDriver::default())?);
    for round in 0..200 {
        let x = Tensor::full([64], f64::from(round) * 0.01, (&device, DType::F32))?;
        let inner = (&x + 1.0)?;
        let part = (&inner * &inner)?;
        drop(inner);
        let tail = |i: usize| &(&part + i as f64)? * &part;
        let results: Vec<_> = (0..4).map(tail).collect::<Result<_>>()?;
        let found = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|i| {
                    let (result, part) = (&results[i % 4], &part);
                    scope.spawn(move || match i {
                        0..4 => result.to_vec::<f32>(),
                        _ => (part * 1.0)?.add(result)?.to_vec::<f32>(),
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|t| t.join().unwrap())
                .collect::<Result<Vec<_>>>()
        })?;
        for (i, found) in found.iter().enumerate() {
            let x = (f64::from(round) * 0.01) as f32;
            let part = (x + 1.0) * (x + 1.0);
            let result = (part + (i % 4) as f32) * part;
            let expected = if i < 4 { result } else { part + result };
            assert!(
                found.iter().all(|y| (y - expected).abs() <= 1e-5 * expected),
                "{i}: {} {expected}",
                found[0]
            );
        }
    }
    Ok(())
}
