//! Errors if CUDA is missing, or if a device string names another device.

use polygrad_core::compute::{ComputeBackend, Kernel};
use polygrad_core::{Availability, DType, ErrorKind};
use polygrad_cuda::CudaDriver;

fn open(text: &str) -> polygrad_core::Result<CudaDriver> {
    CudaDriver::open(&text.parse()?)
}

#[test]
fn device_strings() {
    for text in ["cuda", "cuda:1", "cuda:2:tf32=on"] {
        let driver = open(text).unwrap();
        assert_eq!(driver.name(), text);
        assert!(!driver.is_initialized());
    }
    for text in ["cuda:x", "cuda:0:1", "cuda:tf32=maybe", "cuda:threads=2"] {
        let error = open(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Device, "{error}");
    }
}

#[test]
fn before_init_nothing_is_done() {
    let driver = open("cuda").unwrap();
    assert_eq!(driver.alloc(4).unwrap_err().kind(), ErrorKind::NotInitialized);
    assert_eq!(driver.synchronize().unwrap_err().kind(), ErrorKind::NotInitialized);
    assert_eq!(
        driver.record(&mut || Ok(())).unwrap_err().kind(),
        ErrorKind::NotInitialized
    );
    assert!(driver.supports(Kernel::Elementwise, DType::F16));
    assert!(driver.capabilities().dtypes.contains(&DType::BF16));
}

#[test]
fn a_missing_library_is_named_with_a_fix() {
    let devices = CudaDriver::list();
    if devices
        .iter()
        .any(|device| device.availability == Availability::Available)
    {
        println!("skipped: CUDA is here");
        return;
    }
    let [device] = devices.as_slice() else {
        panic!("{devices:?}")
    };
    let Availability::Unavailable(reason) = &device.availability else {
        panic!("{device:?}")
    };
    let driver = open("cuda").unwrap();
    let error = driver.init().unwrap_err();
    assert_eq!(
        (error.kind(), error.device()),
        (ErrorKind::BackendUnavailable, Some("cuda"))
    );
    assert!(
        reason.contains(error.message()) && error.hint().is_some(),
        "{reason} {error}"
    );
    if reason.contains("libcuda") {
        assert!(error.to_string().contains("install NVIDIA's driver"), "{error}");
    }
    assert!(!driver.is_initialized());
}
