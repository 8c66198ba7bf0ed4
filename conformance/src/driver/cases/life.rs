//! Calls before and during initialization, and the driver's description of itself.

use polygrad_core::compute::DevicePtr;
use polygrad_core::{DType, ErrorKind};

use super::super::case::Cases;
use super::super::fixture::Fixture;
use super::super::outcome::{CaseResult, wrong};
use super::super::probe::probes;

pub(super) fn cases(all: &mut Cases) {
    all.add("init: nothing works before it", before);
    all.add("init: twice is a no-op", twice);
    all.add("capabilities: there is something", something);
    for dtype in DType::ALL {
        all.add(
            format!("capabilities: what is said of {dtype} is true"),
            move |fixture| truthful(fixture, dtype),
        );
    }
}

fn before(fixture: &Fixture<'_>) -> CaseResult {
    let driver = (fixture.make)()?;
    if driver.is_initialized() {
        return wrong("it says that it is initialized, which nobody has asked for");
    }
    let mut results = vec![
        ("alloc", driver.alloc(4).map(drop)),
        ("free", driver.free(DevicePtr::NULL)),
        ("copy_htod", driver.copy_htod(DevicePtr::NULL, &[])),
        ("copy_dtoh", driver.copy_dtoh(&mut [], DevicePtr::NULL)),
        ("copy_dtod", driver.copy_dtod(DevicePtr::NULL, DevicePtr::NULL, 0)),
        ("synchronize", driver.synchronize()),
    ];
    let dtype = DType::F32;
    for probe in probes(dtype) {
        if probe.kernel.is_none_or(|kernel| driver.supports(kernel, dtype)) {
            let pointers = vec![DevicePtr::new(1 << 20); probe.operands.len()];
            results.push((probe.name, (probe.call)(&*driver, &pointers)));
        }
    }
    for (name, result) in results {
        match result {
            Err(error) if error.kind() == ErrorKind::NotInitialized => {}
            Err(error) => return wrong(format!("{name} before init: {error}")),
            Ok(()) => return wrong(format!("{name} works before init")),
        }
    }
    driver.init()?;
    match driver.is_initialized() {
        true => Ok(()),
        false => wrong("it is not initialized after init"),
    }
}

fn twice(fixture: &Fixture<'_>) -> CaseResult {
    let driver = (fixture.make)()?;
    driver.init()?;
    let ptr = driver.alloc(8)?;
    driver.copy_htod(ptr, &[7; 8])?;
    driver.init()?;
    let mut bytes = [0; 8];
    driver.copy_dtoh(&mut bytes, ptr)?;
    driver.free(ptr)?;
    match bytes == [7; 8] || !fixture.options.values {
        true => Ok(()),
        false => wrong("the second init has changed memory"),
    }
}

fn something(fixture: &Fixture<'_>) -> CaseResult {
    let offered = fixture.driver.capabilities();
    let (f32, i64, bool) = (DType::F32, DType::I64, DType::Bool);
    if [f32, i64, bool].iter().any(|dtype| !offered.dtypes.contains(dtype)) {
        return wrong(format!("f32, i64 and bool are the least: {:?}", offered.dtypes));
    }
    if offered.device.is_empty() || fixture.driver.name().is_empty() {
        return wrong("it has no name");
    }
    fixture.driver.devices();
    Ok(())
}

fn truthful(fixture: &Fixture<'_>, dtype: DType) -> CaseResult {
    fixture.holds(dtype)?;
    for probe in probes(dtype) {
        let Some(kernel) = probe.kernel else { continue };
        let said = fixture.driver.supports(kernel, dtype);
        let mut pointers = Vec::new();
        for &bytes in &probe.operands {
            let ptr = fixture.driver.alloc(bytes)?;
            fixture.driver.copy_htod(ptr, &vec![0; bytes])?;
            pointers.push(ptr);
        }
        let result = (probe.call)(fixture.driver, &pointers).and_then(|()| fixture.driver.synchronize());
        for ptr in pointers {
            fixture.driver.free(ptr)?;
        }
        let name = kernel.name();
        match (said, result) {
            (true, Err(error)) => return wrong(format!("{name} is there, but: {error}")),
            (false, Ok(())) => return wrong(format!("{name} works, and is said not to be there")),
            (false, Err(error)) if error.kind() != ErrorKind::Unsupported => {
                return wrong(format!("{name} is not there, which is no unsupported error: {error}"));
            }
            _ => {}
        }
    }
    Ok(())
}
