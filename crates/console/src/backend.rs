//! From `--backend` and `--threads` to a device.

use polygrad::Device;
use polygrad::backend::DeviceSpec;

use crate::failure::{Failure, Result};

/// Opens the device that the string `backend` names, with the option `threads` if it is given.
///
/// # Errors
/// An invalid string, two different numbers of threads, a backend that is unknown or absent, or that has no option for
/// threads.
pub fn open(backend: &str, threads: Option<usize>) -> Result<Device> {
    Ok(Device::new(&spec(backend, threads)?.to_string())?)
}

/// The device that the string `backend` names, with the option `threads` if it is given.
///
/// # Errors
/// An invalid string, or two different numbers of threads.
pub fn spec(backend: &str, threads: Option<usize>) -> Result<DeviceSpec> {
    let spec: DeviceSpec = backend.parse()?;
    let Some(threads) = threads.map(|n| n.to_string()) else {
        return Ok(spec);
    };
    match spec.option("threads") {
        Some(other) if other != threads => Err(Failure::new(format!(
            "--backend {backend} asks for {other} threads, --threads for {threads}"
        ))
        .fix("give the number of threads once")),
        Some(_) => Ok(spec),
        None => Ok(spec.with_option("threads", &threads)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_an_option_of_the_device() {
        let text = |backend, threads| spec(backend, threads).map(|spec| spec.to_string());
        assert_eq!(text("cpu", None).unwrap(), "cpu");
        assert_eq!(text("cpu", Some(2)).unwrap(), "cpu:threads=2");
        assert_eq!(text("cpu:threads=2", Some(2)).unwrap(), "cpu:threads=2");
        assert_eq!(
            text("cpu:kernels=scalar", Some(2)).unwrap(),
            "cpu:kernels=scalar,threads=2"
        );
        let error = text("cpu:threads=2", Some(3)).unwrap_err().to_string();
        assert!(
            error.contains("cpu:threads=2 asks for 2 threads, --threads for 3"),
            "{error}"
        );
    }

    #[test]
    fn the_unknown_is_refused_with_what_there_is() {
        let error = open("gpu", None).unwrap_err().to_string();
        assert!(
            error.contains("no backend named \"gpu\"") && error.contains("fix: available backends: cpu"),
            "{error}"
        );
        assert!(open("cpu:colour=red", None).is_err());
    }
}
