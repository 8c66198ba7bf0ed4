//! Tests of what the suite for drivers cannot see from outside; `conformance/tests/drivers.rs` tests the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use polygrad_core::compute::{ComputeBackend, DevicePtr, DeviceView, Elementwise, ElementwiseProgram, Step, Unary};
use polygrad_core::{BinaryOp, DType, ErrorKind, Shape, UnaryOp};

use super::CpuDriver;
use super::claims::Access;
use crate::{CpuDevice, Kernels};

fn driver() -> CpuDriver {
    let driver = CpuDriver::new(CpuDevice::new(2, Kernels::Simd).unwrap());
    driver.init().unwrap();
    driver
}

fn filled(driver: &CpuDriver, values: &[f32]) -> DevicePtr {
    let ptr = driver.alloc(values.len() * 4).unwrap();
    driver.copy_htod(ptr, bytemuck::cast_slice(values)).unwrap();
    ptr
}

fn read(driver: &CpuDriver, ptr: DevicePtr, len: usize) -> Vec<f32> {
    let mut out = vec![0f32; len];
    driver.copy_dtoh(bytemuck::cast_slice_mut(&mut out), ptr).unwrap();
    out
}

#[test]
fn fused_and_step_by_step_are_the_same_bits() {
    let n = if cfg!(miri) { 5000 } else { 300_001 };
    let driver = driver();
    let values: Vec<f32> = (0..n).map(|i| (i as f32 * 0.37).sin() * 3.0).collect();
    let x = filled(&driver, &values);
    let [y, z] = [0; 2].map(|_| driver.alloc(4 * n).unwrap());
    let view = |ptr| DeviceView::contiguous(ptr, DType::F32, Shape::new(&[n]).unwrap());
    let mut program = ElementwiseProgram::default();
    let a = program.input(DType::F32);
    let exp = program.push(Step::Unary(UnaryOp::Exp, a)).unwrap();
    let product = program.push(Step::Binary(BinaryOp::Mul, exp, a)).unwrap();
    let tanh = program.push(Step::Unary(UnaryOp::Tanh, product)).unwrap();
    program.output(tanh);
    let call = Elementwise {
        program: &program,
        shape: Shape::new(&[n]).unwrap(),
        inputs: &[view(x)],
        scalars: &[],
        outputs: &[view(y)],
    };
    driver.elementwise(&call).unwrap();
    driver.unary_strided(UnaryOp::Exp, &view(x), &view(z)).unwrap();
    driver
        .binary_strided(BinaryOp::Mul, &view(z), &view(x), &view(z))
        .unwrap();
    driver.unary_strided(UnaryOp::Tanh, &view(z), &view(z)).unwrap();
    assert_eq!(read(&driver, y, n), read(&driver, z, n));
}

#[test]
fn bytes_that_are_no_bools_are_harmless() {
    let driver = driver();
    let x = driver.alloc(4).unwrap();
    driver.copy_htod(x, &[0, 1, 2, 255]).unwrap();
    let view = DeviceView::contiguous(x, DType::Bool, Shape::from([4]));
    driver.unary_strided(UnaryOp::LogicalNot, &view, &view).unwrap();
    let mut out = [7; 4];
    driver.copy_dtoh(&mut out, x).unwrap();
    assert_eq!(out, [1, 0, 0, 0]);
}

#[test]
fn addresses_between_elements_are_refused() {
    let driver = driver();
    let x = driver.alloc(64).unwrap();
    let view = |ptr| DeviceView::contiguous(ptr, DType::F32, Shape::from([4]));
    let error = driver
        .unary_strided(UnaryOp::Neg, &view(x.add(2)), &view(x))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("multiple of 4"), "{error}");
}

#[test]
fn nothing_is_left_when_all_is_freed() {
    let driver = driver();
    let all: Vec<_> = [0, 1, 100_000].map(|bytes| driver.alloc(bytes).unwrap()).into();
    for ptr in all {
        driver.free(ptr).unwrap();
    }
    assert_eq!(format!("{:?}", driver.memory.table()), "0 allocations of 0 bytes");
}

/// While one call uses memory, calls run that use other memory or read the same. Calls that write it, or read what it
/// writes, wait.
#[test]
fn calls_wait_for_memory_and_not_for_each_other() {
    let driver = Arc::new(driver());
    let [a, b, c] = [1.0, 2.0, 3.0].map(|value| filled(&driver, &[value; 4]));
    // A call over `a` and `b` that runs until the test ends it.
    let running = driver.memory.begin();
    running.find(a, 16, Access::Read).unwrap();
    running.find(b, 16, Access::Write).unwrap();
    running.found();
    let released = Arc::new(AtomicBool::new(false));
    let negate = |input, output| {
        let (driver, released, (ended, end)) = (Arc::clone(&driver), Arc::clone(&released), channel());
        std::thread::spawn(move || {
            let (op, dtype) = (UnaryOp::Neg, DType::F32);
            let call = Unary {
                op,
                dtype,
                len: 4,
                input,
                output,
            };
            driver.unary(&call).unwrap();
            let _ = ended.send(released.load(Ordering::Acquire));
        });
        end
    };
    let long = Duration::from_secs(60);
    assert_eq!(negate(a, c).recv_timeout(long), Ok(false));
    assert_eq!(read(&driver, c, 4), [-1.0; 4]);
    driver.free(driver.alloc(16).unwrap()).unwrap();
    let (reads_it, writes_it) = (negate(b, c), negate(c, a));
    std::thread::sleep(Duration::from_millis(20));
    released.store(true, Ordering::Release);
    drop(running);
    assert_eq!(reads_it.recv_timeout(long), Ok(true));
    assert_eq!(writes_it.recv_timeout(long), Ok(true));
    // A call may write memory that it also reads, and cannot look up memory once it has begun to compute.
    let running = driver.memory.begin();
    for access in [Access::Read, Access::Write, Access::Read] {
        running.find(a, 16, access).unwrap();
    }
    running.found();
    assert!(running.find(a, 16, Access::Read).is_err());
    drop(running);
    assert_eq!(negate(a, a).recv_timeout(long), Ok(true));
    for ptr in [a, b, c] {
        driver.free(ptr).unwrap();
    }
}

/// Prints the speed-up by fusion: `cargo test -p polygrad-cpu --release driver -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn fusion_pays() {
    let driver = driver();
    let n = 4 << 20;
    let x = filled(&driver, &vec![0.5; n]);
    let y = driver.alloc(4 * n).unwrap();
    let view = |ptr| DeviceView::contiguous(ptr, DType::F32, Shape::new(&[n]).unwrap());
    let mut program = ElementwiseProgram::default();
    let a = program.input(DType::F32);
    let mut value = a;
    for _ in 0..8 {
        value = program.push(Step::Binary(BinaryOp::Add, value, a)).unwrap();
    }
    program.output(value);
    let time = |f: &dyn Fn()| {
        f();
        let start = std::time::Instant::now();
        (0..5).for_each(|_| f());
        start.elapsed() / 5
    };
    let fused = time(&|| {
        let call = Elementwise {
            program: &program,
            shape: Shape::new(&[n]).unwrap(),
            inputs: &[view(x)],
            scalars: &[],
            outputs: &[view(y)],
        };
        driver.elementwise(&call).unwrap();
    });
    let steps = time(&|| {
        driver
            .binary_strided(BinaryOp::Add, &view(x), &view(x), &view(y))
            .unwrap();
        for _ in 1..8 {
            driver
                .binary_strided(BinaryOp::Add, &view(y), &view(x), &view(y))
                .unwrap();
        }
    });
    println!("8 additions of {n} f32: fused {fused:?}, step by step {steps:?}");
    assert!(fused < steps);
}
