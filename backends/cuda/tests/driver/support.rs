//! A driver over the emulator, and memory with numbers in it.

use polygrad_core::compute::{ComputeBackend, DevicePtr};
use polygrad_core::{Backend, DType, HostTensor, Shape};
use polygrad_cuda::CudaDriver;
use polygrad_reference::{Reference, ReferenceTensor};

use crate::emulator::{self, Emulator};

/// Runs a test over emulators of two block sizes, one of them with matrix instructions, if there is a compiler for
/// them.
pub(crate) fn each(test: impl Fn(&CudaDriver)) {
    if !emulator::present() {
        return;
    }
    for (block, busy, matrices) in [(32, 8, true), (4, 1, false)] {
        let emulator = Emulator::new(block, busy, matrices);
        let driver = CudaDriver::over(Box::new(emulator.clone()));
        driver.init().unwrap();
        test(&driver);
        drop(driver);
        assert_eq!(emulator.allocations(), 0, "memory is left");
    }
}

/// Allocates memory with numbers, converted to a dtype.
pub(crate) fn filled(driver: &CudaDriver, dtype: DType, values: &[f64]) -> DevicePtr {
    let host = host(dtype, Shape::from([values.len()]), values);
    let ptr = driver.alloc(host.bytes().len()).unwrap();
    driver.copy_htod(ptr, host.bytes()).unwrap();
    ptr
}

/// Allocates uninitialized memory.
pub(crate) fn empty(driver: &CudaDriver, dtype: DType, len: usize) -> DevicePtr {
    driver.alloc(len * dtype.size()).unwrap()
}

/// Reads the numbers at `ptr`.
pub(crate) fn read(driver: &CudaDriver, dtype: DType, ptr: DevicePtr, len: usize) -> Vec<f64> {
    let mut bytes = vec![0; len * dtype.size()];
    driver.copy_dtoh(&mut bytes, ptr).unwrap();
    HostTensor::from_bytes(dtype, Shape::from([len]), &bytes)
        .unwrap()
        .to_f64_vec()
}

/// Numbers rounded to a dtype.
pub(crate) fn host(dtype: DType, shape: Shape, values: &[f64]) -> HostTensor {
    HostTensor::new(shape, values.to_vec()).unwrap().cast(dtype)
}

/// The same as a tensor of the reference backend.
pub(crate) fn reference(dtype: DType, shape: Shape, values: &[f64]) -> ReferenceTensor {
    Reference::from_host(host(dtype, shape, values), &Default::default()).unwrap()
}

/// The reference's numbers.
pub(crate) fn numbers(x: &ReferenceTensor) -> Vec<f64> {
    Reference::to_host(x).unwrap().to_f64_vec()
}

/// A few numbers that are difficult for functions, and many that are not.
pub(crate) fn samples(dtype: DType, len: usize) -> Vec<f64> {
    let hard = match dtype.is_float() {
        true => vec![
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -2.5,
            3.5,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            1e-30,
            88.0,
            -90.0,
        ],
        false => vec![
            0.0,
            1.0,
            2.0,
            127.0,
            255.0,
            -1.0,
            -128.0,
            2147483647.0,
            -2147483648.0,
            3.0,
            7.0,
        ],
    };
    let drawn = (0..len).map(|i| {
        let x = ((i * 37 + 11) % 101) as f64 / 10.0 - 5.0;
        if dtype.is_float() { x } else { (x * 4.0).trunc() }
    });
    hard.into_iter()
        .chain(drawn)
        .take(len)
        .map(|x| host(dtype, Shape::SCALAR, &[x]).to_f64_vec()[0])
        .collect()
}

/// Asserts that numbers are equal within `ulps` units in a dtype's last place and `slack`.
pub(crate) fn close(dtype: DType, got: &[f64], wanted: &[f64], ulps: f64, slack: f64, what: &str) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    let digits = match dtype {
        DType::F64 => 52,
        DType::F32 => 23,
        DType::F16 => 10,
        _ => 7,
    };
    for (i, (&got, &wanted)) in got.iter().zip(wanted).enumerate() {
        let room = ulps * wanted.abs() * f64::powi(2.0, -digits) + slack;
        let equal = got == wanted || (got.is_nan() && wanted.is_nan());
        assert!(
            equal || (dtype.is_float() && (got - wanted).abs() <= room),
            "{what} {dtype}: {got} is not {wanted} at {i}"
        );
    }
}
