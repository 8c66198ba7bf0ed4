//! Unavailable devices and dtypes give errors that say why, and how to fix it.

use polygrad::backend::{Availability, Registry};
use polygrad::prelude::*;
use polygrad::{DType, ErrorKind};

use crate::devices;

#[test]
fn what_is_not_built_in_names_its_feature() {
    for name in ["torch", "candle", "burn", "luminal"] {
        let entries = Registry::global().entries();
        let entry = entries.iter().find(|entry| entry.name() == name).unwrap();
        let devices = entry.devices();
        assert!(!devices.is_empty(), "{name} lists nothing");
        let absent = devices
            .iter()
            .all(|device| device.availability != Availability::Available);
        for device in devices {
            if device.availability == Availability::Available {
                Device::new(&device.spec).unwrap();
                continue;
            }
            let error = Device::new(&device.spec).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error}");
            let text = error.to_string();
            assert!(text.contains("feature") || text.contains("driver"), "{error}");
            assert!(
                !absent || error.to_string().contains("available backends: cpu"),
                "{error}"
            );
        }
    }
}

#[test]
fn a_device_that_is_not_there_is_an_error() {
    for (spec, _) in devices().unwrap() {
        let name = spec.split(':').next().unwrap();
        for bad in [
            format!("{name}:nowhere"),
            format!("{name}:cuda:99"),
            format!("{name}:colour=red"),
        ] {
            let error = Device::new(&bad).unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::Device | ErrorKind::BackendUnavailable),
                "{bad}: {error}"
            );
            assert!(error.to_string().contains(name), "{bad}: {error}");
        }
    }
}

#[test]
fn a_dtype_that_a_backend_lacks_is_an_error_that_names_it() {
    for (name, device) in devices().unwrap() {
        let offered = device.capabilities().dtypes;
        for dtype in DType::ALL {
            let made = Tensor::ones([2], &device).unwrap().to_dtype(dtype);
            match offered.contains(&dtype) {
                true => assert_eq!(made.unwrap().dtype(), dtype, "{name}"),
                false => {
                    let error = made.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
                    assert!(error.to_string().contains(dtype.name()), "{name}: {error}");
                    assert!(error.hint().is_some(), "{name}: {error} has no hint");
                }
            }
        }
    }
}

#[test]
fn bad_indices_and_sizes_are_errors_everywhere() {
    for (name, device) in devices().unwrap() {
        let x = Tensor::ones([3, 4], &device).unwrap();
        let index = Tensor::new([7i64], &device).unwrap();
        let read = x.index_select(0, &index).and_then(|y| y.to_vec::<f32>());
        assert_eq!(read.unwrap_err().kind(), ErrorKind::OutOfRange, "{name}");
        // A lazy engine notices it when the value is read.
        let huge = Tensor::ones([1 << 30, 1 << 20], &device).and_then(|y| y.to_vec::<f32>());
        assert_eq!(huge.unwrap_err().kind(), ErrorKind::OutOfMemory, "{name}");
        let product = x.matmul(&x).unwrap_err();
        assert_eq!(product.kind(), ErrorKind::Shape, "{name}");
        assert_eq!(x.sum_all().unwrap().item().unwrap(), 12.0, "{name} after the errors");
    }
}
