//! NVIDIA's compiler for CUDA C, which works without a GPU, for the tests that every kernel compiles.

use std::path::PathBuf;

use crate::cache;
use crate::packages::{self, Package};
use crate::torch;

const VERSION: &str = "12.8.93";

const PACKAGE: Package = Package {
    requirement: "nvidia-cuda-nvrtc-cu12==12.8.93",
    file: "nvidia_cuda_nvrtc_cu12-12.8.93-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl",
    sha256: "a7756528852ef889772a84c6cd89d41dfa74667e24cca16bb31f8f061e3e9994",
    parts: &[
        ("nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "lib"),
        ("nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.8", "lib"),
    ],
};

/// `cargo xtask setup nvrtc`: prints only the variables to export to standard output.
pub(crate) fn command() -> Result<(), String> {
    let folder = torch::quoted(&find()?.display().to_string());
    println!("export LD_LIBRARY_PATH={folder}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}");
    Ok(())
}

/// The environment variables for the tests. First fetches the compiler if it is not in the cache folder.
///
/// # Errors
/// If it cannot be fetched.
pub(crate) fn environment() -> Result<Vec<(String, String)>, String> {
    let mut path = find()?.display().to_string();
    if let Ok(rest) = std::env::var("LD_LIBRARY_PATH") {
        path = format!("{path}:{rest}");
    }
    Ok(vec![("LD_LIBRARY_PATH".to_owned(), path)])
}

/// The files of [`find`]'s folder.
pub(crate) const FILES: [&str; 2] = ["libnvrtc.so.12", "libnvrtc-builtins.so.12.8"];

/// The folder of the libraries. First fetches them if they are not in the cache folder.
///
/// # Errors
/// If they cannot be fetched.
pub(crate) fn find() -> Result<PathBuf, String> {
    let folder = cache::folder()?.join(format!("nvrtc-{VERSION}"));
    if !folder.exists() {
        packages::install(&PACKAGE, &folder, "install the CUDA toolkit 12")?;
    }
    Ok(folder.join("lib"))
}
