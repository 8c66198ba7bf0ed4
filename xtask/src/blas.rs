//! The CBLAS library that the feature `blas` links.

use std::path::Path;

/// The linker finds OpenBLAS through a link named after the library, which the development package installs.
pub(crate) fn find() -> Result<(), String> {
    let folders = [
        "/usr/lib",
        "/usr/lib64",
        "/usr/local/lib",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
    ];
    let chosen = std::env::var_os("POLYGRAD_BLAS_DIR");
    let found = chosen.is_some()
        || folders
            .iter()
            .any(|folder| Path::new(folder).join("libopenblas.so").exists());
    if found {
        return Ok(());
    }
    Err("OpenBLAS is not installed: apt-get install libopenblas-dev".to_owned())
}
