//! Device strings.

use polygrad_compute::{entry, entry_with_host};
use polygrad_core::compute::ComputeBackend;
use polygrad_core::{AnyDevice, Registry, Result};
use polygrad_cpu::CpuDriver;

#[test]
fn a_device_prints_the_string_that_opens_it() -> Result<()> {
    let registry = Registry::default();
    registry.register(entry("a test", CpuDriver::open, Vec::new))?;
    let open = |text: &str| registry.open(text);
    let same = |a: &AnyDevice, b: &AnyDevice| a == b;
    for text in [
        "compute-cpu",
        "compute-cpu:fusion=off",
        "compute-cpu:threads=1,fusion=off",
    ] {
        let device = open(text)?;
        assert_eq!(device.to_string(), text);
        assert!(same(&device, &open(&device.to_string())?), "{text} is one device");
    }
    assert!(!same(&open("compute-cpu")?, &open("compute-cpu:fusion=off")?));
    let error = open("compute-cpu:fusion=some").unwrap_err().to_string();
    assert!(error.contains("fusion=on or fusion=off"), "{error}");
    assert!(open("compute-cpu:colour=red").is_err());
    Ok(())
}

#[test]
fn work_is_routed_on_request() -> Result<()> {
    let registry = Registry::default();
    let host = || Box::new(CpuDriver::default()) as Box<dyn ComputeBackend>;
    registry.register(entry_with_host("a test", CpuDriver::open, Vec::new, host))?;
    for text in [
        "compute-cpu:host-below=1000",
        "compute-cpu:threads=1,host-below=0",
        "compute-cpu:host-below=1000,fusion=off",
    ] {
        let device = registry.open(text)?;
        assert_eq!(device.to_string(), text);
        assert!(device == registry.open(text)?, "{text} is one device");
        assert!(device != registry.open("compute-cpu")?);
    }
    let order = registry.open("compute-cpu:fusion=off,host-below=1000")?;
    assert_eq!(order.to_string(), "compute-cpu:host-below=1000,fusion=off");
    for text in ["compute-cpu:host-below=many", "compute-cpu:host-below=-1"] {
        let error = registry.open(text).unwrap_err().to_string();
        assert!(error.contains("host-below=100000"), "{error}");
    }
    // Without drivers for both sides there is no such option.
    let registry = Registry::default();
    registry.register(entry("a test", CpuDriver::open, Vec::new))?;
    let error = registry.open("compute-cpu:host-below=1000").unwrap_err().to_string();
    assert!(error.contains("no option \"host-below\""), "{error}");
    Ok(())
}
