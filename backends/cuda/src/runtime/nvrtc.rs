//! NVIDIA's run-time compiler.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char};

use cudarc::nvrtc::result;
use cudarc::nvrtc::sys::{self, nvrtcProgram, nvrtcResult};
use polygrad_core::{Error, ErrorKind, Result};

use super::libraries;

/// A compiled source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// Instructions for one generation of devices.
    Cubin(Vec<u8>),
    /// Assembly for the driver to compile; ends with a 0.
    Ptx(Vec<u8>),
}

impl Image {
    /// The bytes that the driver loads.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Cubin(bytes) | Self::Ptx(bytes) => bytes,
        }
    }
}

/// No contraction to FMA: products and sums are rounded separately, so that a fused program gives the same results as
/// its steps.
const OPTIONS: [&str; 3] = ["--fmad=false", "--std=c++17", "--device-as-default-execution-space"];

/// Checks that the compiler is present.
///
/// # Errors
/// If its library cannot be loaded.
pub fn present() -> Result<()> {
    libraries::nvrtc()
}

/// Compiles a source for devices of a compute capability (90: 9.0). For a capability newer than the compiler, compiles
/// to the newest assembly that the compiler knows.
///
/// # Errors
/// If the compiler is missing, or rejects the source, which is a bug in this crate.
pub fn compile(source: &str, capability: u32) -> Result<Image> {
    present()?;
    let known = capabilities()?;
    if known.contains(&capability) {
        return program(source, &format!("--gpu-architecture=sm_{capability}"), |program| {
            let mut size = 0;
            // SAFETY: the program has been compiled, and the size is a local variable.
            check(unsafe { sys::nvrtcGetCUBINSize(program, &mut size) })?;
            let mut bytes = vec![0u8; size];
            // SAFETY: the buffer has the size that NVRTC returned.
            check(unsafe { sys::nvrtcGetCUBIN(program, bytes.as_mut_ptr().cast()) })?;
            Ok(Image::Cubin(bytes))
        });
    }
    let newest = known.iter().copied().filter(|&known| known < capability).max();
    let Some(newest) = newest else {
        return Err(Error::new(
            ErrorKind::BackendUnavailable,
            format!("NVRTC compiles for no device as old as compute capability {capability}"),
        ));
    };
    ptx(source, newest)
}

/// Compiles a source to assembly.
///
/// # Errors
/// As [`compile`].
pub fn ptx(source: &str, capability: u32) -> Result<Image> {
    present()?;
    program(source, &format!("--gpu-architecture=compute_{capability}"), |program| {
        // SAFETY: the program has been compiled.
        let text = unsafe { result::get_ptx(program) }.map_err(|error| failed(error.0))?;
        Ok(Image::Ptx(text.into_iter().map(c_char::cast_unsigned).collect()))
    })
}

/// Everything except the source that images depend on: the compiler's version, the device's generation and the options.
///
/// # Errors
/// If the compiler is missing.
pub(super) fn name(capability: u32) -> Result<String> {
    present()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the numbers are local variables.
    check(unsafe { sys::nvrtcVersion(&mut major, &mut minor) })?;
    Ok(format!("NVRTC {major}.{minor} for {capability} {}", OPTIONS.join(" ")))
}

/// The compute capabilities that the compiler supports.
fn capabilities() -> Result<Vec<u32>> {
    let mut count = 0;
    // SAFETY: the number is a local variable.
    check(unsafe { sys::nvrtcGetNumSupportedArchs(&mut count) })?;
    let mut all = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: there is room for all of them.
    check(unsafe { sys::nvrtcGetSupportedArchs(all.as_mut_ptr()) })?;
    Ok(all.into_iter().filter_map(|known| u32::try_from(known).ok()).collect())
}

/// A program that is destroyed on drop.
struct Program(nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: it was created, and is destroyed once. Errors cannot be handled here.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

fn program(source: &str, target: &str, take: impl FnOnce(nvrtcProgram) -> Result<Image>) -> Result<Image> {
    let text = CString::new(source).map_err(|_| Error::invalid("a kernel's source has a 0 in it"))?;
    let program = Program(result::create_program(&text, None).map_err(|error| failed(error.0))?);
    let options: Vec<String> = [target]
        .iter()
        .chain(&OPTIONS)
        .map(|&option| option.to_owned())
        .collect();
    // SAFETY: the program was created above.
    if let Err(error) = unsafe { result::compile_program(program.0, &options) } {
        // SAFETY: as above; the log is a text that ends with a 0.
        let log = unsafe { result::get_program_log(program.0) }.unwrap_or_default();
        let log: Vec<u8> = log.into_iter().map(c_char::cast_unsigned).collect();
        let log = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
        return Err(Error::new(
            ErrorKind::DeviceError,
            format!("NVRTC finds fault with a kernel ({:?}): {log}", error.0),
        ));
    }
    take(program.0)
}

fn check(result: nvrtcResult) -> Result<()> {
    match result {
        nvrtcResult::NVRTC_SUCCESS => Ok(()),
        other => Err(failed(other)),
    }
}

fn failed(result: nvrtcResult) -> Error {
    Error::new(ErrorKind::DeviceError, format!("NVRTC failed: {result:?}"))
}
