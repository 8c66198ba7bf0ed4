//! CUDA's libraries, which may be missing.
#![allow(unsafe_code)]

use cudarc::{cublas, driver, nvrtc};
use polygrad_core::{Availability, DeviceInfo, Error, ErrorKind, Result};

/// A required library, and how to get it.
struct Library {
    name: &'static str,
    fix: &'static str,
    present: unsafe fn() -> bool,
}

const LIBRARIES: [Library; 3] = [
    Library {
        name: "libcuda (NVIDIA's driver)",
        fix: "install NVIDIA's driver for this GPU, and in a container pass the GPU through",
        present: driver::sys::is_culib_present,
    },
    Library {
        name: "libcublas",
        fix: "install the CUDA toolkit 12 or 13, or the Python package nvidia-cublas-cu12, and put its lib folder on LD_LIBRARY_PATH",
        present: cublas::sys::is_culib_present,
    },
    NVRTC,
];

const NVRTC: Library = Library {
    name: "libnvrtc",
    fix: "install the CUDA toolkit 12 or 13, or the Python package nvidia-cuda-nvrtc-cu12, and put its lib folder on LD_LIBRARY_PATH",
    present: nvrtc::sys::is_culib_present,
};

#[cfg(feature = "nccl")]
const NCCL: Library = Library {
    name: "libnccl",
    fix: "install NVIDIA's package libnccl-dev; or the Python package nvidia-nccl-cu12, put its lib folder on LD_LIBRARY_PATH, and link \
          libnccl.so to the libnccl.so.2 in it",
    present: cudarc::nccl::sys::is_culib_present,
};

impl Library {
    fn check(&self) -> Result<()> {
        // SAFETY: this loads the library, whose initializers are NVIDIA's, and closes it.
        if unsafe { (self.present)() } {
            return Ok(());
        }
        let message = format!("{} cannot be loaded", self.name);
        Err(Error::new(ErrorKind::BackendUnavailable, message)
            .with_device("cuda")
            .with_hint(self.fix))
    }
}

/// Checks that all libraries can be loaded.
///
/// # Errors
/// If one is missing.
pub(crate) fn present() -> Result<()> {
    LIBRARIES.iter().try_for_each(Library::check)
}

/// Checks that NVRTC can be loaded.
///
/// # Errors
/// If it is missing.
pub(super) fn nvrtc() -> Result<()> {
    NVRTC.check()
}

/// Checks that NCCL can be loaded and that the device exists.
///
/// # Errors
/// If one is missing.
#[cfg(feature = "nccl")]
pub(crate) fn nccl(index: usize) -> Result<()> {
    LIBRARIES[0].check()?;
    NCCL.check()?;
    check_index(index)
}

/// The devices of this machine.
pub(crate) fn devices() -> Vec<DeviceInfo> {
    let none = |error: Error| {
        let reason = match error.hint() {
            Some(hint) => format!("{}: {hint}", error.message()),
            None => error.message().to_owned(),
        };
        vec![DeviceInfo {
            spec: "cuda".to_owned(),
            description: "an NVIDIA GPU".to_owned(),
            availability: Availability::Unavailable(reason),
        }]
    };
    match present().and_then(|()| names()) {
        Err(error) => none(error),
        Ok(names) if names.is_empty() => none(no_device()),
        Ok(names) => (names.into_iter().enumerate())
            .map(|(i, description)| DeviceInfo {
                spec: if i == 0 { "cuda".to_owned() } else { format!("cuda:{i}") },
                description,
                availability: Availability::Available,
            })
            .collect(),
    }
}

fn no_device() -> Error {
    Error::new(ErrorKind::BackendUnavailable, "CUDA finds no device")
        .with_device("cuda")
        .with_hint("nvidia-smi lists the devices; CUDA_VISIBLE_DEVICES may hide some")
}

/// The devices' names. The libraries must be present.
///
/// # Errors
/// If CUDA does not start.
fn names() -> Result<Vec<String>> {
    let failed = |error: driver::DriverError| {
        let name = super::errors::driver_error_name(error);
        if name == "CUDA_ERROR_NO_DEVICE" {
            return no_device();
        }
        Error::new(ErrorKind::BackendUnavailable, format!("CUDA does not start: {name}"))
            .with_device("cuda")
            .with_hint("run nvidia-smi: it says what is wrong with the driver")
    };
    driver::result::init().map_err(failed)?;
    let count = driver::result::device::get_count().map_err(failed)?;
    (0..count)
        .map(|i| {
            let device = driver::result::device::get(i).map_err(failed)?;
            driver::result::device::get_name(device).map_err(failed)
        })
        .collect()
}

/// Checks that a device of this index exists.
///
/// # Errors
/// If there is none; the error names those that exist.
pub(super) fn check_index(index: usize) -> Result<()> {
    let names = names()?;
    if index < names.len() {
        return Ok(());
    }
    if names.is_empty() {
        return Err(no_device());
    }
    let list: Vec<_> = (names.iter().enumerate())
        .map(|(i, name)| format!("cuda:{i} ({name})"))
        .collect();
    Err(Error::new(
        ErrorKind::BackendUnavailable,
        format!("there is no device cuda:{index}"),
    )
    .with_device(format!("cuda:{index}"))
    .with_hint(format!("there are {}", list.join(", "))))
}
