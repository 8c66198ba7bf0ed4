//! Calls that go to one of two drivers by their work.

use std::sync::Arc;

use polygrad_compute::{ComputeDevice, Routed};
use polygrad_conformance::driver::DriverFault;
use polygrad_core::compute::{Binary, ComputeBackend, DevicePtr, DeviceView, Fill, Unary};
use polygrad_core::{BinaryOp, DType, ErrorKind, Layout, Result, Scalar, Shape, UnaryOp};
use polygrad_cpu::CpuDriver;

use crate::watch::{Training, Watch, watched};

/// Between the calls of a training step with little work and the others.
const BELOW: u64 = 200;

/// The small side's watch, and the large one's.
type Watches = [Arc<Watch>; 2];

fn ready() -> Result<(Training, Watches)> {
    let ((small, first), (large, second)) = (watched(), watched());
    let device = ComputeDevice::routed(Routed::new(small, large, BELOW))?;
    Ok((Training::ready(device)?, [first, second]))
}

/// Everything goes; gives the allocations that stay.
fn end(training: Training, watches: &Watches) -> [i64; 2] {
    watches.iter().for_each(|watch| watch.plan.disarm());
    drop(training);
    watches.each_ref().map(|watch| watch.live())
}

#[test]
fn training_is_the_same_on_two_drivers() -> Result<()> {
    let mut alone = Training::ready(ComputeDevice::new(watched().0)?)?;
    let (mut training, watches) = ready()?;
    for _ in 0..3 {
        assert_eq!(training.step()?, alone.step()?);
    }
    assert_eq!(alone.device.inner().stats().routes, None);
    let routes = training.device.inner().stats().routes.unwrap_or_default();
    assert!(
        routes.small > 10 && routes.large > 10 && routes.moved_bytes > 0,
        "{routes:?}"
    );
    assert_eq!(end(training, &watches), [0; 2]);
    Ok(())
}

fn fails_well(side: usize, fault: DriverFault, kind: ErrorKind) -> Result<()> {
    let undisturbed = ready()?.0.step()?;
    for n in 1.. {
        let (mut training, watches) = ready()?;
        let plan = &watches[side].plan;
        plan.arm(None, n, fault);
        let outcome = training.step();
        let Some(struck) = plan.struck() else {
            outcome?;
            assert!(n > 10, "a step has more calls than {n}");
            assert_eq!(end(training, &watches), [0; 2]);
            return Ok(());
        };
        let case = format!("call {n} of side {side}, {struck}, {fault:?}");
        match outcome {
            Err(error) => {
                assert_eq!(error.kind(), kind, "{case}: {error}");
                assert!(
                    error.op().is_some() && error.to_string().contains("compute-cpu"),
                    "{case}: {error}"
                );
            }
            // The large side's memory is asked for where the cache can be given back.
            Ok(_) => assert!(
                struck == "alloc" && side == 1 && kind == ErrorKind::OutOfMemory,
                "{case}: no error"
            ),
        }
        if fault == DriverFault::Lost {
            assert_eq!(training.step().unwrap_err().kind(), kind, "{case}");
        }
        plan.disarm();
        let next = training.step()?;
        assert!(next <= undisturbed + 1e-6, "{case}: {next} after {undisturbed}");
        assert_eq!(end(training, &watches), [0; 2], "{case}: leaks");
    }
    Ok(())
}

#[test]
fn either_driver_may_fail() -> Result<()> {
    for side in [0, 1] {
        for kind in [ErrorKind::OutOfMemory, ErrorKind::DeviceError] {
            fails_well(side, DriverFault::Once(kind), kind)?;
        }
        fails_well(side, DriverFault::Lost, ErrorKind::DeviceError)?;
    }
    Ok(())
}

fn fill(driver: &dyn ComputeBackend, output: DevicePtr, len: usize, value: i64) -> Result<()> {
    let (dtype, value) = (DType::U8, Scalar::Int(value));
    driver.fill(&Fill {
        dtype,
        len,
        value,
        output,
    })
}

#[test]
fn only_what_is_needed_is_moved() -> Result<()> {
    let driver = Routed::new(CpuDriver::default(), CpuDriver::default(), 100);
    driver.init()?;
    let (x, y) = (driver.alloc(1000)?, driver.alloc(1000)?);
    fill(&driver, x, 1000, 1)?;
    fill(&driver, x.add(10), 5, 2)?;
    assert_eq!(driver.stats().moved_bytes, 0, "what is written over is not moved");
    let add = |a: DevicePtr, len| {
        driver.binary(&Binary {
            op: BinaryOp::Add,
            dtype: DType::U8,
            len,
            a,
            b: a,
            output: y,
        })
    };
    // Five bytes of the first twenty are on the small side, where the call runs.
    add(x, 20)?;
    assert_eq!(driver.stats().moved_bytes, 15);
    add(x, 20)?;
    assert_eq!(driver.stats().moved_bytes, 15, "both sides have it now");
    add(x, 1000)?;
    assert_eq!(driver.stats().moved_bytes, 20);
    let mut bytes = [0; 20];
    driver.copy_dtoh(&mut bytes, y)?;
    assert!(
        (0..20).all(|i| bytes[i] == if (10..15).contains(&i) { 4 } else { 2 }),
        "{bytes:?}"
    );
    // Written in steps, by the other side: what lies between stays.
    let every = |ptr, stride| DeviceView::new(ptr, DType::U8, Layout::strided(Shape::from([3]), &[stride], 0));
    driver.unary_strided(UnaryOp::Neg, &every(x, 1), &every(y, 4))?;
    driver.copy_dtoh(&mut bytes, y)?;
    assert_eq!(bytes[..10], [255, 2, 2, 2, 255, 2, 2, 2, 255, 2]);
    // A copy is made where its source is.
    let before = driver.stats();
    driver.copy_dtod(y, x.add(500), 4)?;
    let after = driver.stats();
    assert_eq!((after.large, after.moved_bytes), (before.large + 1, before.moved_bytes));
    driver.free(x)?;
    driver.free(y)
}

#[test]
fn a_read_hears_what_went_wrong_on_either_side() -> Result<()> {
    let ((small, _), (large, watch)) = (watched(), watched());
    let driver = Routed::new(small, large, 100);
    driver.init()?;
    let (x, y) = (driver.alloc(1000)?, driver.alloc(1000)?);
    fill(&driver, x, 10, 1)?;
    fill(&driver, y, 1000, 1)?;
    watch
        .plan
        .arm(Some("synchronize"), 1, DriverFault::Once(ErrorKind::OutOfRange));
    let mut bytes = [0; 10];
    assert_eq!(
        driver.copy_dtoh(&mut bytes, x).unwrap_err().kind(),
        ErrorKind::OutOfRange
    );
    driver.copy_dtoh(&mut bytes, x)?;
    assert_eq!(bytes, [1; 10]);
    driver.free(x)?;
    driver.free(y)
}

#[test]
fn a_call_that_fails_leaves_what_the_other_side_has() -> Result<()> {
    let ((small, watch), (large, _)) = (watched(), watched());
    let driver = Routed::new(small, large, 100);
    driver.init()?;
    let x = driver.alloc(1000)?;
    fill(&driver, x, 1000, 1)?;
    watch
        .plan
        .arm(Some("fill"), 1, DriverFault::Once(ErrorKind::DeviceError));
    assert!(fill(&driver, x, 10, 2).is_err());
    let negate = Unary {
        op: UnaryOp::Neg,
        dtype: DType::U8,
        len: 10,
        input: x,
        output: x,
    };
    watch
        .plan
        .arm(Some("unary"), 1, DriverFault::Once(ErrorKind::DeviceError));
    assert!(driver.unary(&negate).is_err());
    let mut bytes = [0; 10];
    driver.copy_dtoh(&mut bytes, x)?;
    assert_eq!(bytes, [1; 10]);
    driver.unary(&negate)?;
    driver.copy_dtoh(&mut bytes, x)?;
    assert_eq!(bytes, [255; 10]);
    driver.free(x)
}

#[test]
fn memory_that_a_side_has_not_is_an_error_and_leaves_nothing() -> Result<()> {
    let ((small, watch), (large, other)) = (watched(), watched());
    let driver = Routed::new(small, large, 100);
    driver.init()?;
    let (x, y) = (driver.alloc(1000)?, driver.alloc(1000)?);
    fill(&driver, x, 1000, 1)?;
    let call = Unary {
        op: UnaryOp::Neg,
        dtype: DType::U8,
        len: 10,
        input: x,
        output: y,
    };
    // Memory for the input, its copy, and memory for the output.
    for name in ["alloc", "copy_htod", "alloc"] {
        let kind = ErrorKind::OutOfMemory;
        watch.plan.arm(Some(name), 1, DriverFault::Once(kind));
        let error = driver.unary(&call).unwrap_err();
        assert_eq!(error.kind(), kind, "{name}: {error}");
        assert!(error.to_string().contains("compute-cpu"), "{error}");
    }
    watch.plan.disarm();
    driver.unary(&call)?;
    let mut bytes = [0; 10];
    driver.copy_dtoh(&mut bytes, y)?;
    assert_eq!(bytes, [255; 10]);
    driver.free(x)?;
    driver.free(y)?;
    assert_eq!([watch.live(), other.live()], [0, 0]);
    Ok(())
}
