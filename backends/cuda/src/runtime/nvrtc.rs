//! NVIDIA's compiler at run time.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char};

use cudarc::nvrtc::result;
use cudarc::nvrtc::sys::{self, nvrtcProgram, nvrtcResult};
use polygrad_core::{Error, ErrorKind, Result};

use super::libraries;

/// What a source became.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// Instructions for one generation of devices.
    Cubin(Vec<u8>),
    /// Assembly that the driver translates; ends with a 0.
    Ptx(Vec<u8>),
}

impl Image {
    /// What the driver loads.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Cubin(bytes) | Self::Ptx(bytes) => bytes,
        }
    }
}

/// No contraction to FMA: products and sums round separately, so that a fused program gives what its steps would.
const OPTIONS: [&str; 3] = ["--fmad=false", "--std=c++17", "--device-as-default-execution-space"];

/// Whether the compiler is there.
///
/// # Errors
/// When its library cannot be loaded.
pub fn present() -> Result<()> {
    libraries::nvrtc()
}

/// Compiles a source for devices of a compute capability (90: 9.0), or, for one newer than the compiler, to the newest
/// assembly that it knows.
///
/// # Errors
/// When the compiler is missing or finds fault with the source, which is a mistake in this crate.
pub fn compile(source: &str, capability: u32) -> Result<Image> {
    present()?;
    let known = capabilities()?;
    if known.contains(&capability) {
        return program(source, &format!("--gpu-architecture=sm_{capability}"), |program| {
            let mut size = 0;
            // SAFETY: the program is one that was compiled, and the size is ours.
            check(unsafe { sys::nvrtcGetCUBINSize(program, &mut size) })?;
            let mut bytes = vec![0u8; size];
            // SAFETY: the buffer has the size that was asked for.
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
        // SAFETY: the program is one that was compiled.
        let text = unsafe { result::get_ptx(program) }.map_err(|error| failed(error.0))?;
        Ok(Image::Ptx(text.into_iter().map(c_char::cast_unsigned).collect()))
    })
}

/// What images depend on beside the source: the compiler's version, the device's generation and the options.
///
/// # Errors
/// When the compiler is missing.
pub(super) fn name(capability: u32) -> Result<String> {
    present()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the numbers are ours.
    check(unsafe { sys::nvrtcVersion(&mut major, &mut minor) })?;
    Ok(format!("NVRTC {major}.{minor} for {capability} {}", OPTIONS.join(" ")))
}

/// The compute capabilities that it compiles for.
fn capabilities() -> Result<Vec<u32>> {
    let mut count = 0;
    // SAFETY: the number is ours.
    check(unsafe { sys::nvrtcGetNumSupportedArchs(&mut count) })?;
    let mut all = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: there is room for as many as there are.
    check(unsafe { sys::nvrtcGetSupportedArchs(all.as_mut_ptr()) })?;
    Ok(all.into_iter().filter_map(|known| u32::try_from(known).ok()).collect())
}

/// A program that goes away.
struct Program(nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: it was created, and is destroyed once. What that says matters to nobody.
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
        // SAFETY: likewise; the log is a text that ends with a 0.
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
