//! Device strings.

use polygrad_compute::entry;
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
